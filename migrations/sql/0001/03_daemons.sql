-- What the daemons may do that is more than one row of one table. Everything here is VOLATILE plpgsql: each statement inside
-- has its own snapshot, which a takeover needs (a claim that committed while it waited must be seen).

create function outbox.fence_of(era bigint, counter bigint) returns bigint language sql immutable
  as $$ select (era << 40) | (counter & 1099511627775) $$;

-- Wake the holder of a lane for a row behind its cursor. Payload: receiver/lane/seq, never data (channels have no ACL).
create function outbox.ring(p_receiver_id int, p_lane int, p_seq bigint) returns void language sql volatile as $$
  select pg_notify(l.bell, l.receiver_id || '/' || l.lane || '/' || p_seq)
  from outbox.lane l where l.receiver_id = p_receiver_id and l.lane = p_lane and l.bell is not null $$;

-- One row of doubt per uncertain operation; a later attempt brings its own settle time and never an earlier one.
create function outbox.doubt_upsert(p_seq bigint, p_receiver_id int, p_lane int, p_attempt int, p_exposed_at timestamptz,
    p_settle interval, p_step outbox.step, p_next_at timestamptz, p_accepted boolean, p_no_resend boolean, p_reason text)
  returns void language sql volatile as $$
  insert into outbox.doubt as d (seq, receiver_id, lane, tenant_id, tool, attempt, last_exposed_at, settle_at, step, next_at,
                                 accepted, no_resend, needs_person, reason)
  select p_seq, p_receiver_id, p_lane, i.tenant_id, i.tool, p_attempt, p_exposed_at, p_exposed_at + p_settle, p_step, p_next_at,
         p_accepted, p_no_resend, p_step = 'person', p_reason
  from outbox.intent i where i.seq = p_seq
  on conflict (seq) do update set attempt = excluded.attempt, last_exposed_at = excluded.last_exposed_at, gave_up_at = outbox.now(),
    settle_at = case when excluded.settle_at is null or (d.settle_at is null and d.last_exposed_at is not null) then null
                     else greatest(d.settle_at, excluded.settle_at) end,
    step = excluded.step, next_at = excluded.next_at, accepted = d.accepted or excluded.accepted,
    reads = case when excluded.attempt > d.attempt then 0 else d.reads end,
    last_read_at = case when excluded.attempt > d.attempt then null else d.last_read_at end,
    no_resend = d.no_resend or excluded.no_resend, needs_person = d.needs_person or excluded.needs_person,
    reason = coalesce(excluded.reason, d.reason), claimed_by = null, claimed_until = null $$;

-- executing -> unknown for rows whose attempt nobody holds any more. Used by take(), the belt and a new era.
create function outbox.abandon(p_receiver_id int, p_lane int, p_below_fence bigint, p_begun_before timestamptz, p_cause text)
  returns int language plpgsql volatile as $$
declare
  made int := 0;
  lost record;
begin
  for lost in
    update outbox.pending q set state = 'unknown', step = 'none', unresolved_at = coalesce(q.unresolved_at, q.begun_at), cause = p_cause
    where q.receiver_id = p_receiver_id and q.lane = p_lane and q.state = 'executing'
      and q.fence < p_below_fence and q.begun_at < p_begun_before
    returning q.*
  loop
    insert into outbox.attempt (seq, attempt, fence, cause, contract_id, sent_key, wire_digest, started_at)
    values (lost.seq, lost.attempt, lost.fence, p_cause, lost.contract_id, lost.sent_key, lost.wire_digest, lost.begun_at)
    on conflict do nothing;
    perform outbox.doubt_upsert(lost.seq, lost.receiver_id, lost.lane, lost.attempt, lost.begun_at,
      (select t.settle from outbox.intent i join outbox.tool t on t.name = i.tool where i.seq = lost.seq),
      'look', outbox.now(), false, false, null);
    made := made + 1;
  end loop;
  return made;
end $$;

-- Take a free or expired lane. Lane first, rows second: never one statement, never above READ COMMITTED.
create function outbox.take(p_receiver_id int, p_lane int, p_owner uuid, p_member_id uuid, p_ttl interval)
  returns table (fence bigint, made_unknown int) language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'outbox.take must run under READ COMMITTED' using errcode = '25001';
  elsif not outbox.swept() then
    return;
  end if;
  update outbox.lane l set owner = p_owner, member_id = p_member_id, fence = l.fence + 1, expires_at = outbox.now() + p_ttl,
      renewed_at = outbox.now(), idle = false, bell = null, crowd = '{}'
    where l.receiver_id = p_receiver_id and l.lane = p_lane and l.expires_at < outbox.now()
    returning l.fence into fence;
  if not found then
    return;
  end if;
  made_unknown := outbox.abandon(p_receiver_id, p_lane, fence, 'infinity', 'lease_lost');
  return next;
end $$;

-- The reconciler's belt: executing rows older than lease + deadline + margin become unknown, whoever holds the lane.
create function outbox.sweep_orphans(p_older_than interval) returns int
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  made int := 0;
  place record;
begin
  for place in
    select p.receiver_id, p.lane from outbox.pending p
    where p.state = 'executing' and p.begun_at < outbox.now() - p_older_than group by 1, 2
  loop
    made := made + outbox.abandon(place.receiver_id, place.lane, 9223372036854775807, outbox.now() - p_older_than, 'orphaned');
  end loop;
  return made;
end $$;

-- The timeline that this server writes now; null on a standby. Not pg_control_checkpoint(): for minutes after a promotion, until the
-- checkpoint that follows it is complete, that still names the old one.
create function outbox.timeline() returns int language sql volatile
  as $$ select case when not pg_is_in_recovery() then ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int end $$;

create function outbox.database_oid() returns oid language sql stable
  return (select d.oid from pg_catalog.pg_database d where d.datname = current_database());

-- The feed orders ends by stored transaction ids. After a logical restore the new cluster may be younger than what is stored: from now
-- on ids are stored shifted beyond the last one, so that the order goes on and every cursor stays good.
create function outbox.keep_feed_order() returns void language plpgsql volatile as $$
declare
  shift bigint;
  last bigint;
begin
  select feed_offset into shift from outbox.instance;
  select o.xid::text::bigint into last from outbox.outcome o order by o.xid desc, o.seq desc limit 1;
  if last >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + shift then
    lock table outbox.outcome in share mode; -- whoever is ending an operation has the old number
    select o.xid::text::bigint + 1 into shift from outbox.outcome o order by o.xid desc, o.seq desc limit 1;
    update outbox.instance set feed_offset = shift;
  end if;
  if shift > 0 then -- also where only the data were restored, and not the function
    execute format('create or replace function outbox.feed_xid() returns xid8 language sql volatile return '
                   '(pg_current_xact_id()::text::bigint + %s)::text::xid8', shift);
  end if;
end $$;

-- A failover or a restore: era and every fence grow, so no lease of the old life is good. No lane can be taken before outbox.sweep_era() is
-- done. Returns false when this life is known already.
create function outbox.enter_era(p_system_identifier bigint, p_timeline int) returns boolean
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  life outbox.instance;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'outbox.enter_era must run under READ COMMITTED' using errcode = '25001';
  end if;
  select * into life from outbox.instance for update;
  if life.system_identifier = p_system_identifier and life.timeline = p_timeline and life.database_oid = outbox.database_oid() then
    return false;
  end if;
  if ((select s.system_identifier from pg_control_system() s), outbox.timeline())
     is distinct from (p_system_identifier, p_timeline) then
    raise exception 'this is not the database that the caller describes' using errcode = 'OB409';
  end if;
  update outbox.instance set system_identifier = p_system_identifier, timeline = p_timeline, database_oid = outbox.database_oid(), era = era + 1,
    era_seq = coalesce((select max(i.seq) from outbox.intent i), 0);
  perform outbox.keep_feed_order();
  perform setval('outbox.must_be_seen', 0); -- of another life: a restored cluster may count from before it
  update outbox.lane l set fence = outbox.fence_of(life.era + 1, (l.fence & 1099511627775) + 1), owner = null, member_id = null,
    expires_at = '-infinity', idle = false, bell = null, crowd = '{}';
  return true;
end $$;

-- After enter_era, in batches that fit a statement timeout: what may have been exposed without a trace becomes unknown, cause failover. That is
-- every authorized operation of then that was due, unless a repeat is harmless at any time. A key with a window is aged from the creation of its intent
-- (the lost exposure cannot be older) and goes on as a resend, inside that window; the rest is looked up. Returns how many; null: done.
create function outbox.sweep_era(p_limit int) returns int
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  life outbox.instance;
  lost outbox.pending[];
begin
  select * into life from outbox.instance for update;
  if life.swept_era = life.era then
    return null;
  end if;
  -- Due by the intent, not by next_at: the clock of the new primary may be behind the one that wrote it.
  with due as materialized (
    select q.receiver_id, q.lane, q.seq, i.created_at, t.retention, t.contract_id as in_force
    from outbox.pending q join outbox.intent i on i.seq = q.seq join outbox.tool t on t.name = i.tool
    where q.state = 'authorized' and q.seq <= life.era_seq and not t.repeat_safe and not t.key_forever and (i.not_before is null or i.not_before <= outbox.now())
    limit p_limit for no key update of q
  ), begun as (
    update outbox.pending q set state = 'executing', attempt = q.attempt + 1, fence = coalesce(q.fence, 0), begun_at = outbox.now(),
      first_sent_at = coalesce(q.first_sent_at, d.created_at), resend_until = coalesce(q.resend_until, d.created_at + d.retention),
      contract_id = coalesce(q.contract_id, d.in_force)
    from due d where q.receiver_id = d.receiver_id and q.lane = d.lane and q.seq = d.seq returning q.*
  ) select coalesce(array_agg(b::outbox.pending), '{}') into lost from begun b;
  update outbox.pending q set state = 'unknown', unresolved_at = q.begun_at, next_at = outbox.now(), cause = 'failover',
    step = (case when t.resend_safe then 'resend' else 'none' end)::outbox.step
  from unnest(lost) u join outbox.intent i on i.seq = u.seq join outbox.tool t on t.name = i.tool
  where q.receiver_id = u.receiver_id and q.lane = u.lane and q.seq = u.seq;
  insert into outbox.attempt (seq, attempt, fence, cause, contract_id, sent_key, wire_digest, started_at)
    select u.seq, u.attempt, u.fence, 'failover', u.contract_id, u.sent_key, u.wire_digest, u.begun_at from unnest(lost) u on conflict do nothing;
  -- If nobody has sent again by then, the reconciler decides anew: a window may have closed.
  perform outbox.doubt_upsert(u.seq, u.receiver_id, u.lane, u.attempt, u.begun_at, t.settle,
      (case when t.resend_safe then 'resend' else 'look' end)::outbox.step,
      case when t.resend_safe then outbox.now() + interval '10 minutes' else outbox.now() end, false, false, null)
    from unnest(lost) u join outbox.intent i on i.seq = u.seq join outbox.tool t on t.name = i.tool;
  if cardinality(lost) < p_limit then
    update outbox.instance set swept_era = era;
  end if;
  return cardinality(lost);
end $$;

-- Whether everything has been done that the last failover asks for.
create function outbox.swept() returns boolean language sql stable as $$ select n.swept_era = n.era from outbox.instance n $$;

-- Whether evidence shows the effect: a receipt, or a record that carries our identity.
create function outbox.proven(p_seq bigint) returns boolean language sql stable
  as $$ select exists (select from outbox.evidence e where e.seq = p_seq and (e.kind = 'receipt' or e.verdict = 'confirmed')) $$;

-- Record what was observed about an effect. Evidence is never a state, but nothing goes on as if it were not there:
-- * executing: the attempt may still be recorded as succeeded or unknown, never as rejected or withdrawn (`late_receipt` marks the row
--   itself, since a statement that waits for its lock sees the new row and no new evidence);
-- * unknown: a planned resend is off, and the reconciler looks at once;
-- * proposed or authorized: it hides an effect, so it becomes unknown, by the moves of the table. The proof then settles it.
create function outbox.witness(p_seq bigint, p_attempt int, p_fence bigint, p_kind text, p_verdict text, p_external_id text,
    p_receipt text, p_duplicates int, p_status int, p_excerpt text, p_request_id text, p_sent_at timestamptz, p_source text,
    p_stated_by text, p_note text)
  returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  id bigint;
  held outbox.pending;
  proof boolean := p_kind = 'receipt' or coalesce(p_verdict = 'confirmed', false);
begin
  -- The open row before its doubt, as everybody locks them.
  select p.* into held from outbox.place_of(p_seq) w join outbox.pending p
    on p.receiver_id = w.receiver_id and p.lane = w.lane and p.seq = p_seq for no key update of p;
  if held.seq is null then
    perform from outbox.outcome o where o.seq = p_seq for key share; -- a purge must not take what it has not seen with it
  end if;
  insert into outbox.evidence (seq, attempt, fence, kind, verdict, external_id, receipt, duplicates, status, excerpt, request_id,
                               sent_at, source, stated_by, note)
  values (p_seq, p_attempt, p_fence, p_kind, p_verdict, p_external_id, p_receipt, coalesce(p_duplicates, 0), p_status, p_excerpt,
          p_request_id, p_sent_at, p_source, p_stated_by, p_note) returning evidence_id into id;
  if proof and held.state in ('proposed', 'authorized') then
    perform outbox.admit_effect(held, p_attempt, p_fence);
  elsif proof then
    update outbox.pending p set step = 'none', cause = case when p.state = 'executing' then 'late_receipt' else p.cause end
      where p.receiver_id = held.receiver_id and p.lane = held.lane and p.seq = held.seq;
  end if;
  if proof or p_kind in ('not_sent', 'callback') then
    update outbox.doubt d set next_at = outbox.now() where d.seq = p_seq;
  end if;
  return id;
end $$;

-- An effect exists of an operation that claimed to hide none (a failover lost its attempt, or an absence was believed too early).
create function outbox.admit_effect(held outbox.pending, p_attempt int, p_fence bigint) returns void language plpgsql volatile as $$
declare
  written timestamptz;
  tool outbox.tool;
begin
  select i.created_at into written from outbox.intent i where i.seq = held.seq;
  select t.* into tool from outbox.intent i join outbox.tool t on t.name = i.tool where i.seq = held.seq;
  held.attempt := greatest(held.attempt, p_attempt, 1);
  held.begun_at := coalesce(held.begun_at, written);
  update outbox.pending p set state = 'authorized'
    where p.receiver_id = held.receiver_id and p.lane = held.lane and p.seq = held.seq and p.state = 'proposed';
  update outbox.pending p set state = 'executing', attempt = held.attempt, fence = coalesce(p.fence, p_fence, 0), begun_at = held.begun_at,
      first_sent_at = coalesce(p.first_sent_at, held.begun_at), resend_until = coalesce(p.resend_until, held.begun_at),
      contract_id = coalesce(p.contract_id, tool.contract_id)
    where p.receiver_id = held.receiver_id and p.lane = held.lane and p.seq = held.seq;
  update outbox.pending p set state = 'unknown', step = 'none', unresolved_at = held.begun_at, next_at = outbox.now(), cause = 'contradiction'
    where p.receiver_id = held.receiver_id and p.lane = held.lane and p.seq = held.seq;
  perform outbox.doubt_upsert(held.seq, held.receiver_id, held.lane, held.attempt, held.begun_at, tool.settle, 'look', outbox.now(),
    false, true, null);
end $$;

-- Where an open operation lies. Valid because lanes are fixed and a tool with open operations cannot be moved.
create function outbox.place_of(p_seq bigint) returns table (receiver_id int, lane int) language sql stable as $$
  select r.receiver_id, outbox.lane_of(r.lanes, i.tenant_id, coalesce(i.ordering_key, i.operation_id))
  from outbox.intent i join outbox.tool t on t.name = i.tool join outbox.receiver r on r.receiver_id = t.receiver_id
  where i.seq = p_seq $$;

-- Whether nobody else works on an operation in doubt at this moment; then its rows are ours until the transaction ends, the open row before
-- its doubt. Whoever acts on many at once asks this first: it waits for nobody, so that no one row that a person holds stops the others.
create function outbox.seize(p_seq bigint, p_receiver_id int, p_lane int) returns boolean
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform from outbox.pending p
    where p.receiver_id = p_receiver_id and p.lane = p_lane and p.seq = p_seq for no key update skip locked;
  if not found then
    return false;
  end if;
  perform from outbox.doubt d where d.seq = p_seq for no key update skip locked;
  return found;
end $$;

-- The one way out of `unknown` that is not an attempt, for many operations at once. Compares the attempt that was judged; refuses to forget a
-- receipt. Each answer: applied | moved | receipt. `p_looks`: what a decision rests on and is not kept yet; it is, whatever the answer.
create function outbox.settle_all(p_seqs bigint[], p_attempts int[], p_tos outbox.state[], p_causes text[], p_decided_bys text[],
    p_evidence_ids bigint[], p_external_ids text[], p_receipts text[], p_looks outbox.evidence[])
  returns table (seq bigint, evidence_id bigint, answer text)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  held outbox.pending[];
  applied bigint[];
  proofs bigint[];
begin
  if exists (select from unnest(p_tos) as u(state) where u.state not in ('succeeded', 'rejected', 'authorized')) then
    raise exception 'settle leads to succeeded, rejected or authorized, not %', p_tos using errcode = 'OB409';
  end if;
  -- The lock first: what follows sees what was committed while this waited for it. Here and below one by one, as no statistics of a burst
  -- can be trusted: no plan may read a whole lane.
  select coalesce(array_agg(y.held), '{}') into held from (
    select u.seq, u.attempt from unnest(p_seqs, p_attempts) as u(seq, attempt) order by u.seq
  ) x cross join lateral (
    select p as held from outbox.place_of(x.seq) w join outbox.pending p on p.receiver_id = w.receiver_id and p.lane = w.lane and p.seq = x.seq
    where p.state = 'unknown' and p.attempt = x.attempt for no key update of p
  ) y;
  with x as materialized (
    select h.*, u.to_state, u.why, u.decided_by, u.evidence_id, u.external_id, u.receipt, u.n, t.stores_key_on_execution, t.lands_late, t.person_settle
    from unnest(held) h join unnest(p_seqs, p_tos, p_causes, p_decided_bys, p_evidence_ids, p_external_ids, p_receipts)
        with ordinality as u(named, to_state, why, decided_by, evidence_id, external_id, receipt, n) on u.named = h.seq
      cross join lateral (select t.* from outbox.intent i join outbox.tool t on t.name = i.tool where i.seq = h.seq offset 0) t
    where u.to_state = 'succeeded' or not outbox.proven(h.seq)
  ), e as (
    -- Not by witness(): what a proof changes in an open row and its doubt ends with them.
    insert into outbox.evidence (seq, attempt, fence, kind, verdict, external_id, receipt, duplicates, status, excerpt, request_id, sent_at, source,
      stated_by, note)
    select x.seq, v.attempt, v.fence, v.kind, v.verdict, v.external_id, v.receipt, coalesce(v.duplicates, 0), v.status, v.excerpt, v.request_id,
      v.sent_at, v.source, v.stated_by, v.note
    from x cross join lateral (select (p_looks[x.n]).*) v where v.kind is not null
    returning seq, evidence_id
  ), r as materialized (
    select x.*, coalesce(e.evidence_id, x.evidence_id) as proof from x left join e on e.seq = x.seq
  ), freed as (
    update outbox.pending p set state = 'authorized', step = 'none', unresolved_at = null, next_at = outbox.now(), cause = r.why,
      first_sent_at = case when r.stores_key_on_execution then null else p.first_sent_at end,
      resend_until = case when r.stores_key_on_execution then null else p.resend_until end
    from r where r.to_state = 'authorized' and p.receiver_id = r.receiver_id and p.lane = r.lane and p.seq = r.seq
  ), gone as (
    delete from outbox.pending p using r where r.to_state <> 'authorized' and p.receiver_id = r.receiver_id and p.lane = r.lane and p.seq = r.seq
  ), ended as (
    insert into outbox.outcome (seq, from_state, state, cause, attempt, fence, first_sent_at, started_at, sent_key, wire_digest,
      contract_id, approval_id, policy_version, throttled, not_sent, receipt, external_id, decided_by, evidence_id)
    select r.seq, 'unknown', r.to_state, r.why, r.attempt, r.fence, r.first_sent_at, r.begun_at, r.sent_key, r.wire_digest,
      r.contract_id, r.approval_id, r.policy_version, r.throttled, r.not_sent, r.receipt, r.external_id,
      coalesce(r.decided_by, 'evidence#' || r.proof), r.proof
    from r where r.to_state <> 'authorized'
  ), landing as (
    insert into outbox.landing (receiver_id, ord, seq, until)
    select r.receiver_id, r.ord, r.seq, coalesce(d.settle_at, d.gave_up_at + r.person_settle) from r join outbox.doubt d on d.seq = r.seq
    where r.to_state <> 'authorized' and r.ord is not null and r.lands_late
    on conflict do nothing
  ), undoubted as (
    delete from outbox.doubt d using r where d.seq = r.seq
  )
  select coalesce(array_agg(r.seq), '{}'), coalesce(array_agg(r.proof), '{}') into applied, proofs from r;
  -- Whoever may go on now: the operation itself, or the next one under its ordering key.
  perform outbox.ring(g.receiver_id, g.lane, g.seq) from unnest(held) h cross join lateral (
    select p.receiver_id, p.lane, p.seq from outbox.pending p
      where p.receiver_id = h.receiver_id and p.lane = h.lane and p.seq = h.seq and p.state = 'authorized'
    union all (select p.receiver_id, p.lane, p.seq from outbox.pending p
      where h.ord is not null and p.receiver_id = h.receiver_id and p.ord = h.ord and p.seq > h.seq order by p.seq limit 1)
  ) g where h.seq = any(applied);
  return query select a.seq, a.proof, 'applied' from unnest(applied, proofs) as a(seq, proof);
  return query select u.named, case when v.kind is null then u.evidence_id else outbox.witness(u.named, v.attempt, v.fence, v.kind, v.verdict,
      v.external_id, v.receipt, v.duplicates, v.status, v.excerpt, v.request_id, v.sent_at, v.source, v.stated_by, v.note) end,
    case when exists (select from unnest(held) h where h.seq = u.named) then 'receipt' else 'moved' end
  from unnest(p_seqs, p_evidence_ids) with ordinality as u(named, evidence_id, n) cross join lateral (select (p_looks[u.n]).*) v
  where u.named <> all(applied);
end $$;

-- The same for one.
create function outbox.settle(p_seq bigint, p_attempt int, p_to outbox.state, p_cause text, p_decided_by text, p_evidence_id bigint,
    p_external_id text, p_receipt text)
  returns text language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return (select s.answer from outbox.settle_all(array[p_seq], array[p_attempt], array[p_to], array[p_cause], array[p_decided_by],
    array[p_evidence_id], array[p_external_id], array[p_receipt], null) s);
end $$;

-- Let the holder of the lane send again (the reconciler itself cannot). The begin statement checks the window once more.
create function outbox.allow_resend(p_seq bigint, p_attempt int, p_at timestamptz, p_look_again_at timestamptz) returns text
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  held record;
begin
  select p.receiver_id, p.lane into held from outbox.place_of(p_seq) w join outbox.pending p
      on p.receiver_id = w.receiver_id and p.lane = w.lane and p.seq = p_seq
    where p.state = 'unknown' and p.attempt = p_attempt for no key update of p;
  if not found or outbox.proven(p_seq) then
    return 'moved';
  end if;
  update outbox.pending p set step = 'resend', next_at = p_at, cause = 'resend'
    where p.receiver_id = held.receiver_id and p.lane = held.lane and p.seq = p_seq;
  update outbox.doubt d set step = 'resend', next_at = p_look_again_at, claimed_by = null, claimed_until = null where d.seq = p_seq;
  perform outbox.ring(held.receiver_id, held.lane, p_seq);
  return 'applied';
end $$;

-- A permission has lapsed. Only rows that hide nothing end: unknown stays unknown.
create function outbox.expire(p_limit int) returns int
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  due outbox.pending;
  ended int := 0;
  present timestamptz := outbox.now(); -- no index is read by a function that may answer differently for each row
begin
  for due in
    select p.* from outbox.pending p
    where outbox.swept() and p.expires_at <= present and p.state in ('proposed', 'authorized')
    order by p.expires_at limit p_limit for update of p skip locked
  loop
    -- What was revoked while it was uncertain ends here, if it turns out to hide nothing.
    perform outbox.end_unexposed(due, case (select a.decision from outbox.approval a where a.seq = due.seq order by a.approval_id desc limit 1)
      when 'revoked' then 'revoked' else 'expired' end, 'expiry');
    ended := ended + 1;
  end loop;
  return ended;
end $$;

-- policy changed: decide again. Rows placed or approved under another policy version go back to proposed (or are
-- authorized anew where the policy asks nobody). What may hide an effect stays unknown; it may be sent again only where the new policy asks
-- nobody, since an approval binds the version that it was given under.
create function outbox.redecide(p_limit int) returns int
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  moved int;
begin
  with stale as materialized (
    select p.receiver_id, p.lane, p.seq, p.state = 'unknown' as uncertain, t.requires_approval, t.policy_version, i.expires_at
    from outbox.tool t join outbox.pending p on p.receiver_id = t.receiver_id and p.policy_version <> t.policy_version
      and (p.state in ('proposed', 'authorized') or (p.state = 'unknown' and not t.requires_approval))
    join outbox.intent i on i.seq = p.seq and i.tool = t.name
    where outbox.swept() and (p.expires_at is null or p.expires_at > outbox.now()) -- revoked, or lapsed: outbox.expire() ends it
    limit p_limit for no key update of p skip locked
  ), m as (
    update outbox.pending p set policy_version = s.policy_version, expires_at = s.expires_at,
      approval_id = case when s.uncertain then p.approval_id end, cause = case when s.uncertain then p.cause else 'policy_changed' end,
      state = (case when s.requires_approval then 'proposed' else p.state::text end)::outbox.state
    from stale s where p.receiver_id = s.receiver_id and p.lane = s.lane and p.seq = s.seq returning p.seq, s.uncertain
  ), d as (
    update outbox.doubt d set next_at = outbox.now() from m where d.seq = m.seq and m.uncertain and d.step = 'person'
  )
  select count(*) into moved from m;
  return moved;
end $$;

-- True for exactly one caller per period, or in fifty times what the chore took, up to ten minutes, if that is longer.
create function outbox.claim_chore(p_name text, p_every interval) returns boolean
  language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  with c as (
    insert into outbox.chore as c (name, next_at) values (p_name, outbox.now() + p_every)
    on conflict (name) do update set next_at = outbox.now() + greatest(p_every, least(50 * c.took, interval '10 minutes'))
    where c.next_at <= outbox.now() returning 1)
  select exists (select from c) $$;

create function outbox.chore_took(p_name text, p_took interval) returns void
  language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  update outbox.chore c set took = least(greatest(p_took, interval '0'), interval '1 day') where c.name = p_name $$;
