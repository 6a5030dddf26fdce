-- What is wrong with the whole, read for `outbox doctor`. Nothing here changes anything or waits for a lock; what grows with the backlog or
-- with history is read up to a bound.

-- name: doctor_instance
-- Which schema this is, and whether the server is the one that the daemons have last seen.
select n.schema_version, n.min_daemon, n.era, n.system_identifier = s.system_identifier as same_cluster, pg_is_in_recovery() as standby,
  outbox.now() as now, clock_timestamp() as server_now, current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes,
  current_setting('autovacuum') as autovacuum, current_setting('track_counts') as track_counts,
  current_setting('synchronous_standby_names') <> '' as synchronous
from outbox.instance n, pg_control_system() s

-- name: doctor_roles
-- The settings that each daemon's role will have when it connects: its own for this database, its own, the database's, the server's.
select r.name as role, p.oid is not null as made, coalesce(p.rolcanlogin, false) as logs_in,
  coalesce(has_schema_privilege(p.oid, 'outbox', 'usage'), false) as may_enter, g.name as setting, coalesce(v.value, s.reset_val) as value
from unnest(array['outbox_relay', 'outbox_reconciler']) as r(name)
left join pg_roles p on p.rolname = r.name
cross join unnest(array['synchronous_commit', 'default_transaction_isolation', 'statement_timeout', 'lock_timeout',
  'idle_in_transaction_session_timeout', 'enable_hashjoin', 'enable_mergejoin', 'enable_seqscan']) as g(name)
join pg_settings s on s.name = g.name
left join lateral (
  select substr(c.line, length(g.name) + 2) as value from pg_db_role_setting d, unnest(d.setconfig) as c(line), pg_database b
  where b.datname = current_database() and c.line like g.name || '=%%' and d.setrole in (p.oid, 0) and d.setdatabase in (b.oid, 0)
  order by d.setrole <> 0 desc, d.setdatabase <> 0 desc limit 1
) v on true
order by r.name, g.name

-- name: doctor_parts
-- Parts of the schema that are not in force: indexes that were never finished, triggers switched off, constraints not checked.
select 'index' as kind, c.relname::text as name, '' as of from pg_index i join pg_class c on c.oid = i.indexrelid
where c.relnamespace = 'outbox'::regnamespace and not (i.indisvalid and i.indisready)
union all
select 'trigger', g.tgname::text, c.relname::text from pg_trigger g join pg_class c on c.oid = g.tgrelid
where c.relnamespace = 'outbox'::regnamespace and not g.tgisinternal and g.tgenabled not in ('O', 'A')
union all
select 'constraint', k.conname::text, c.relname::text from pg_constraint k join pg_class c on c.oid = k.conrelid
where c.relnamespace = 'outbox'::regnamespace and not k.convalidated
order by 1, 2

-- name: doctor_xmin
-- Who keeps dead rows alive: open transactions, prepared ones, replication slots. Durations of other people's sessions are visible to
-- members of pg_read_all_stats only; ages are visible to all.
select h.* from (
  select 'session' as kind, a.pid::text as name, coalesce(a.application_name, '') as detail,
    greatest(age(a.backend_xmin), age(a.backend_xid)) as transactions, extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds
  from pg_stat_activity a
  where a.pid <> pg_backend_pid() and (a.backend_xmin is not null or a.backend_xid is not null)
    and (a.datname = current_database() or a.backend_type = 'walsender')
  union all
  select 'prepared', x.gid, x.owner::text, age(x.transaction), extract(epoch from clock_timestamp() - x.prepared)::float8
  from pg_prepared_xacts x where x.database = current_database()
  union all
  select 'slot', t.slot_name::text, t.slot_type, greatest(age(t.xmin), age(t.catalog_xmin)), null from pg_replication_slots t
  where t.xmin is not null or t.catalog_xmin is not null
) h
where h.transactions >= %(transactions_min)s or h.seconds >= %(seconds_min)s
order by h.transactions desc limit %(limit)s

-- name: doctor_tables
-- How much of the busy tables is dead, and when it was last cleaned.
select s.relname::text as name, pg_total_relation_size(s.relid) as bytes, s.n_live_tup as live, s.n_dead_tup as dead,
  greatest(s.last_autovacuum, s.last_vacuum) as vacuumed_at
from pg_stat_all_tables s where s.schemaname = 'outbox' and s.relname in ('pending', 'doubt', 'lane', 'member', 'receiver', 'intent', 'outcome')
order by s.relname

-- name: doctor_keyless
-- Tools whose lost exposures nothing would notice: no resend of theirs is safe. And how many standbys there are to fail over to.
select coalesce(array_agg(t.name order by t.name), '{}') as tools, (select count(*) from pg_stat_replication) as standbys
from outbox.tool t where not t.resend_safe

-- name: doctor_daemons
-- Daemons that were heard of lately.
select m.kind, m.host, m.pid, m.version, m.receivers, extract(epoch from outbox.now() - m.seen_at)::float8 as silent_seconds from outbox.member m
where m.seen_at > outbox.now() - %(seen_within_seconds)s * interval '1 second' order by m.kind, m.host, m.pid limit %(limit)s

-- name: doctor_receivers
-- Each receiver: whether it is left alone, or paused, and whether anything of it is open.
select r.name, r.circuit_opened_at, r.circuit_reason, extract(epoch from outbox.now() - r.circuit_opened_at)::float8 as circuit_seconds, z.paused_at, z.paused_by, z.reason as pause_reason,
  exists (select from outbox.pending p where p.receiver_id = r.receiver_id) as has_work
from outbox.receiver r left join outbox.pause z on z.kind = 'receiver' and z.name = r.name order by r.name

-- name: doctor_pauses
-- The other kill switches that are on.
select z.kind, z.name, z.paused_at, z.paused_by, z.reason as pause_reason from outbox.pause z where z.kind <> 'receiver' order by z.paused_at limit %(limit)s

-- name: doctor_doubt
-- How much is in doubt, for whom, how late; and how much of it can be sent again for a short while only. Each doubt finds its operation by
-- its key: a join in any other order would read the whole backlog.
select count(*) as open, count(*) filter (where d.needs_person) as needs_person,
  count(*) filter (where not d.needs_person and d.next_at < outbox.now() - %(late_seconds)s * interval '1 second') as late,
  extract(epoch from outbox.now() - min(d.since) filter (where d.needs_person))::float8 as waiting_seconds,
  count(*) filter (where c.closes_at > outbox.now() and c.closes_at < outbox.now() + %(within_seconds)s * interval '1 second') as closing,
  min(c.closes_at) filter (where c.closes_at > outbox.now()) as closes_at
from outbox.doubt d left join lateral (
  select least(p.resend_until, p.first_sent_at + t.retention) - t.margin - t.reach as closes_at
  from outbox.pending p join outbox.tool t on t.name = d.tool
  where p.receiver_id = d.receiver_id and p.lane = d.lane and p.seq = d.seq and p.state = 'unknown' and t.resend_safe and not t.repeat_safe
    and not t.key_forever and isfinite(p.resend_until) and p.resend_until > p.first_sent_at offset 0
) c on true

-- name: doctor_contradictions
-- How much evidence speaks against a state, counted up to a bound.
select count(*) as found from (select from outbox.contradiction limit %(limit)s) x

-- name: doctor_unplaced
-- The first intent that no trigger has placed, among the newest so many (null: all of them).
select u.seq, u.tenant_id, u.operation_id from outbox.unplaced(
  coalesce((select max(i.seq) from outbox.intent i) - %(newest)s::bigint, 0), 1) u
