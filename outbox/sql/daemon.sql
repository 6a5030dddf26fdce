-- What both daemons send: who they are, what database this is, the registry, and the chores that one of them does at a time.

-- name: read_instance
-- Which database this is, which life of it, and what the running server says of itself.
select n.id, n.era, n.swept_era < n.era as unswept, n.database_oid <> outbox.database_oid() as moved, n.system_identifier, n.timeline, n.schema_version, n.min_daemon, s.system_identifier as server_identifier,
  outbox.timeline() as server_timeline, pg_is_in_recovery() as standby
from outbox.instance n, pg_control_system() s

-- name: enter_era
-- A new life of this database: era and fences grow. False: it is known already.
select outbox.enter_era(%(system_identifier)s, %(timeline)s) as entered

-- name: sweep_era
-- Make unknown, in batches, what may have been exposed without a trace in the life before. Null: nothing is left.
select outbox.sweep_era(%(batch_max)s) as made_unknown

-- name: effective_settings
-- The settings that the daemons' promises rest on, as this session has them.
select current_setting('synchronous_commit') as synchronous_commit, current_setting('fsync') as fsync,
  current_setting('default_transaction_isolation') as isolation,
  (select setting::int from pg_settings where name = 'statement_timeout') as statement_timeout_ms,
  (select setting::int from pg_settings where name = 'lock_timeout') as lock_timeout_ms,
  (select setting::int from pg_settings where name = 'idle_in_transaction_session_timeout') as idle_in_transaction_ms,
  current_setting('enable_hashjoin') as hashjoin, current_setting('enable_mergejoin') as mergejoin,
  current_setting('enable_seqscan') as seqscan, current_user::text as role,
  not row_security_active('outbox.intent') or pg_has_role(current_user, 'outbox_relay', 'usage')
    or pg_has_role(current_user, 'outbox_reconciler', 'usage') as sees_every_tenant

-- name: heartbeat
-- Say that this daemon lives, and how much it has counted. Answers with the database's clock.
insert into outbox.member as m (member_id, kind, host, pid, version, receivers, counters)
values (%(member_id)s, %(kind)s, %(host)s, %(pid)s, %(version)s, %(receivers)s, %(counters)s::jsonb)
on conflict (member_id) do update set seen_at = outbox.now(), counters = excluded.counters
returning outbox.now() as now

-- name: live_members
-- Daemons of one kind seen lately, with the receivers they serve (null: all) and how long they have been silent.
select m.member_id, m.receivers, extract(epoch from outbox.now() - m.seen_at)::float8 as silent_seconds from outbox.member m
where m.kind = %(kind)s and m.seen_at > outbox.now() - %(seen_within_seconds)s * interval '1 second' order by m.member_id

-- name: member_leaves
-- A daemon stops in an orderly way; its counters stay for `report`.
update outbox.member m set seen_at = '-infinity', left_at = outbox.now(), counters = %(counters)s::jsonb where m.member_id = %(member_id)s

-- name: expire
-- Reject operations whose permission lapsed before anything was sent.
select outbox.expire(%(limit)s) as ended

-- name: redecide
-- Decide again where the policy has changed.
select outbox.redecide(%(limit)s) as moved

-- name: claim_chore
-- True for one daemon per period, which is longer for what takes long.
select outbox.claim_chore(%(name)s, %(every_seconds)s * interval '1 second') as mine

-- name: chore_took
-- How long it took to find out whether there was anything to do.
select outbox.chore_took(%(name)s, %(seconds)s * interval '1 second')
