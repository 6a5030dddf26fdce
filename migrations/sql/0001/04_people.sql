-- What people may do, and what they read. Every function compares what the person looked at, and records who it was.

-- Find an operation for a person's act; locks its pending row. Raises OB404 / OB409 with a hint.
create function outbox.held(p_tenant_id text, p_operation_id text) returns outbox.pending
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  the_seq bigint;
  held outbox.pending;
begin
  if not outbox.swept() then
    raise exception 'the database has just failed over, and what may have been exposed is still being marked' using errcode = 'OB409',
      hint = 'A daemon does it when it connects: outbox relay, or outbox reconciler. Then try again.';
  end if;
  select i.seq into the_seq from outbox.intent i
    where i.tenant_id = outbox.check_tenant(p_tenant_id) and i.operation_id = p_operation_id;
  if not found then
    raise exception 'no operation % of tenant %', p_operation_id, p_tenant_id using errcode = 'OB404', hint = 'See: outbox list';
  end if;
  select p.* into held from outbox.place_of(the_seq) w join outbox.pending p
    on p.receiver_id = w.receiver_id and p.lane = w.lane and p.seq = the_seq for no key update of p;
  if not found then
    raise exception 'operation % of tenant % has ended%', p_operation_id, p_tenant_id,
        coalesce((select format(': %s at %s', o.state, to_char(o.ended_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'))
            || coalesce(', ' || o.cause, '') || coalesce(', by ' || o.decided_by, '')
          from outbox.outcome o where o.seq = the_seq), '')
      using errcode = 'OB409', hint = 'Terminal operations never change. See: outbox show ' || p_operation_id;
  end if;
  return held;
end $$;

create function outbox.approve(p_tenant_id text, p_operation_id text, p_digest bytea, p_by text, p_expires_at timestamptz, p_reason text)
  returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  held outbox.pending := outbox.held(p_tenant_id, p_operation_id);
  i outbox.intent;
  id bigint;
begin
  select * into i from outbox.intent n where n.seq = held.seq;
  if held.state <> 'proposed' then
    raise exception 'operation % is %, not proposed', p_operation_id, held.state using errcode = 'OB409',
      hint = 'It is permitted already. See: outbox why ' || p_operation_id;
  elsif i.digest <> p_digest then
    raise exception 'the digest that was approved is not the digest of operation %', p_operation_id
      using errcode = 'OB409', hint = 'Read it again: outbox show ' || p_operation_id;
  elsif p_by = i.principal_id then
    raise exception 'the principal % asked for operation % and cannot approve it', p_by, p_operation_id using errcode = 'OB409',
      hint = 'Somebody else must, as another user of the operating system: outbox approve ' || p_operation_id;
  elsif p_expires_at <= outbox.now() then
    raise exception 'the approval of operation % would have expired already', p_operation_id using errcode = 'OB409',
      hint = 'Give it longer: outbox approve ' || p_operation_id || ' --expires-in SPAN';
  end if;
  insert into outbox.approval (seq, digest, decision, policy_version, expires_at, decided_by, reason)
    select held.seq, p_digest, 'approved', t.policy_version, p_expires_at, p_by, p_reason from outbox.tool t where t.name = i.tool
    returning approval_id into id;
  -- A row that waited for a person (its back-off is endless) is due again; any other keeps its date.
  update outbox.pending p set state = 'authorized', approval_id = id, cause = null, expires_at = least(i.expires_at, p_expires_at),
      next_at = case when p.next_at = 'infinity' then greatest(outbox.now(), i.not_before) else p.next_at end,
      policy_version = (select t.policy_version from outbox.tool t where t.name = i.tool)
    where p.receiver_id = held.receiver_id and p.lane = held.lane and p.seq = held.seq;
  delete from outbox.doubt d where d.seq = held.seq;
  perform outbox.ring(held.receiver_id, held.lane, held.seq);
  return id;
end $$;

-- Withdraw a permission. An operation that hides nothing ends; an uncertain one stays unknown, without permission to resend.
create function outbox.revoke(p_tenant_id text, p_operation_id text, p_by text, p_reason text) returns text
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  held outbox.pending := outbox.held(p_tenant_id, p_operation_id);
begin
  insert into outbox.approval (seq, digest, decision, policy_version, decided_by, reason)
    select held.seq, i.digest, case when held.state = 'proposed' then 'refused' else 'revoked' end, held.policy_version, p_by, p_reason
    from outbox.intent i where i.seq = held.seq;
  if held.state in ('proposed', 'authorized') then
    perform outbox.end_unexposed(held, 'revoked', p_by);
    return 'rejected';
  end if;
  update outbox.pending p set expires_at = outbox.now(), step = 'none'
    where p.receiver_id = held.receiver_id and p.lane = held.lane and p.seq = held.seq;
  -- What was planned rested on the permission: the reconciler decides anew, at once.
  update outbox.doubt d set step = case d.step when 'resend' then 'look' else d.step end, next_at = outbox.now(), claimed_by = null, claimed_until = null
    where d.seq = held.seq and held.state = 'unknown';
  return held.state::text;
end $$;

-- End a proposed or authorized operation as rejected. Internal.
create function outbox.end_unexposed(held outbox.pending, p_cause text, p_by text) returns void language plpgsql volatile as $$
begin
  if held.state not in ('proposed', 'authorized') then
    raise exception 'operation % is % and may hide an effect: it cannot be cancelled',
        (select i.operation_id from outbox.intent i where i.seq = held.seq), held.state using errcode = 'OB409',
      hint = 'It is looked up, or a person decides (outbox resolve). See: outbox why ' || (select i.operation_id from outbox.intent i where i.seq = held.seq);
  end if;
  delete from outbox.pending p where p.receiver_id = held.receiver_id and p.lane = held.lane and p.seq = held.seq;
  delete from outbox.doubt d where d.seq = held.seq;
  insert into outbox.outcome (seq, from_state, state, cause, attempt, fence, first_sent_at, started_at, sent_key, wire_digest, contract_id,
      approval_id, policy_version, throttled, not_sent, decided_by)
  values (held.seq, held.state, 'rejected', p_cause, held.attempt, held.fence, held.first_sent_at, held.begun_at, held.sent_key,
      held.wire_digest, held.contract_id, held.approval_id, held.policy_version, held.throttled, held.not_sent, p_by);
  perform outbox.ring(p.receiver_id, p.lane, p.seq) from outbox.pending p
    where p.receiver_id = held.receiver_id and p.ord = held.ord and p.seq > held.seq order by p.seq limit 1;
end $$;

create function outbox.cancel(p_tenant_id text, p_operation_id text, p_by text) returns void
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform outbox.end_unexposed(outbox.held(p_tenant_id, p_operation_id), 'cancelled', p_by);
end $$;

-- Whether a person's "no effect" can count yet: from settle time on; where no bound is stated, or the work is done after its request has
-- landed, after person_settle too (as times.statement_counts_from says).
create function outbox.settled(p_seq bigint) returns table (settled boolean, at timestamptz, bound boolean) language sql stable as $$
  select outbox.now() >= w.at, w.at, w.bound
  from (select case when d.settle_at is null then d.gave_up_at + t.person_settle when later.is_so then greatest(d.settle_at, d.gave_up_at + t.person_settle)
                    else d.settle_at end as at,
               d.settle_at is not null and not later.is_so as bound
        from outbox.doubt d join outbox.tool t on t.name = d.tool
        cross join lateral (select d.accepted
          or exists (select from outbox.contract c where c.contract_id = t.contract_id and c.body #>> '{config,contract,acceptance}' = 'async')
          or exists (select from outbox.evidence e where e.seq = d.seq and e.kind = 'late_answer' and starts_with(e.note, 'Accepted')) as is_so) later
        where d.seq = p_seq) w $$;

-- Whether it may be sent: its permission has not ended, and was given under the policy in force.
create function outbox.permitted(held outbox.pending) returns boolean language sql stable as $$
  select (held.expires_at is null or held.expires_at > outbox.now())
    and exists (select from outbox.intent i join outbox.tool t on t.name = i.tool where i.seq = held.seq and t.policy_version = held.policy_version) $$;

-- A person's statement settles an unknown operation. p_to: succeeded | rejected | authorized.
create function outbox.resolve(p_tenant_id text, p_operation_id text, p_attempt int, p_to outbox.state, p_external_id text,
    p_by text, p_evidence text)
  returns text language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  held outbox.pending := outbox.held(p_tenant_id, p_operation_id);
  s record;
  id bigint;
  answer text;
begin
  if coalesce(p_evidence, '') !~ '[^[:space:]]' then
    raise exception 'a statement needs evidence: who looked where, and saw what' using errcode = 'OB409',
      hint = 'It is kept for ever, with your name: outbox resolve ' || p_operation_id || ' --evidence TEXT';
  elsif held.state <> 'unknown' then
    raise exception 'operation % is %, not unknown', p_operation_id, held.state using errcode = 'OB409',
      hint = case when held.state = 'executing' then 'An attempt runs. Wait for it: outbox why ' || p_operation_id
        else 'It hides no effect: outbox cancel, outbox retry, outbox why ' || p_operation_id end;
  elsif held.attempt <> p_attempt then
    raise exception 'operation % has moved: attempt % is not attempt %', p_operation_id, held.attempt, p_attempt
      using errcode = 'OB409', hint = 'Look again: outbox show ' || p_operation_id;
  elsif p_to = 'authorized' and not outbox.permitted(held) then
    raise exception 'the permission of operation % has ended, so it may not be sent again', p_operation_id using errcode = 'OB409',
      hint = 'State "no effect" alone, and put it again under a new id: outbox resolve ' || p_operation_id || ' --no-effect';
  end if;
  select * into s from outbox.settled(held.seq);
  if p_to <> 'succeeded' and not coalesce(s.settled, false) then
    raise exception 'a request of operation % may still land until %', p_operation_id, s.at using errcode = 'OB409',
      hint = '"No effect" counts only from then on' || case when s.bound then '' else ' (no bound is stated; this is person_settle)' end
        || '. See: outbox why ' || p_operation_id;
  end if;
  id := outbox.witness(held.seq, held.attempt, held.fence, 'statement', case when p_to = 'succeeded' then 'confirmed' else 'not_found' end,
    p_external_id, null, 0, null, null, null, outbox.now(), 'operator', p_by,
    p_evidence || case when p_to <> 'succeeded' and not s.bound then ' [no bound backs this]' else '' end);
  answer := outbox.settle(held.seq, held.attempt, p_to, 'person', p_by, id, p_external_id, null);
  if answer = 'receipt' then
    raise exception 'evidence shows that the effect of operation % exists', p_operation_id using errcode = 'OB409', hint = 'See: outbox show ' || p_operation_id;
  end if;
  return answer;
end $$;

-- Try again now. From authorized: end the back-off. From unknown: a resend, only while the window is open or where it is harmless.
create function outbox.retry(p_tenant_id text, p_operation_id text, p_by text) returns text
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  held outbox.pending := outbox.held(p_tenant_id, p_operation_id);
  t outbox.tool;
  blocked boolean;
begin
  select o.* into t from outbox.tool o join outbox.intent i on i.tool = o.name where i.seq = held.seq;
  if held.state = 'authorized' then
    update outbox.pending p set next_at = greatest(outbox.now(), i.not_before) from outbox.intent i
      where i.seq = p.seq and p.receiver_id = held.receiver_id and p.lane = held.lane and p.seq = held.seq;
    delete from outbox.doubt d where d.seq = held.seq;
    perform outbox.ring(held.receiver_id, held.lane, held.seq);
    perform outbox.record_act('retry', p_tenant_id || ' ' || p_operation_id, p_by, 'the back-off was ended');
    return 'authorized';
  elsif held.state <> 'unknown' then
    raise exception 'operation % is %', p_operation_id, held.state using errcode = 'OB409', hint = case held.state
      when 'executing' then 'An attempt runs. Wait for it: outbox why ' else 'Nobody has permitted it yet. See: outbox approve ' end || p_operation_id;
  elsif outbox.proven(held.seq) then
    raise exception 'a receipt exists for operation %', p_operation_id using errcode = 'OB409', hint = 'See: outbox show ' || p_operation_id;
  elsif held.policy_version <> t.policy_version then
    raise exception 'operation % was permitted under another policy; it may not be sent again', p_operation_id using errcode = 'OB409',
      hint = 'Find out what happened, then: outbox resolve ' || p_operation_id;
  elsif held.expires_at <= outbox.now() then
    raise exception 'the permission of operation % has ended; it may not be sent again', p_operation_id using errcode = 'OB409',
      hint = 'Find out what happened, then: outbox resolve ' || p_operation_id;
  elsif not (t.repeat_safe or outbox.resend_open(held, t)) then
    raise exception 'the window of operation % is closed: the receiver may execute the same key again', p_operation_id
      using errcode = 'OB409', hint = 'Find out what happened, then: outbox resolve ' || p_operation_id;
  end if;
  select d.no_resend into blocked from outbox.doubt d where d.seq = held.seq;
  if blocked then
    raise exception 'a resend of operation % would prove nothing', p_operation_id using errcode = 'OB409',
      hint = 'See: outbox why ' || p_operation_id;
  end if;
  perform outbox.allow_resend(held.seq, held.attempt, outbox.now(), outbox.now() + t.deadline + interval '1 minute');
  perform outbox.record_act('retry', p_tenant_id || ' ' || p_operation_id, p_by, 'a resend inside the doubt');
  return 'unknown';
end $$;

-- Is a resend inside the window, under the pinned and under the present contract?
create function outbox.resend_open(p outbox.pending, t outbox.tool) returns boolean language sql stable as $$
  select outbox.now() + t.reach < least(p.resend_until, case when t.key_forever then 'infinity' else p.first_sent_at + t.retention end) - t.margin $$;

create view outbox.operation as
  select i.seq, i.tenant_id, i.operation_id, coalesce(o.state, p.state) as state, case when o.seq is null then p.cause else o.cause end as cause,
         i.tool, i.resource, i.arguments, i.content_type, i.expected_version, i.ordering_key, i.principal_id, i.on_behalf_of, i.compensates,
         i.revision_of, i.written_by, i.digest, i.traceparent, i.created_at, i.not_before, coalesce(p.expires_at, i.expires_at) as expires_at,
         i.redacted_at, t.receiver_id, r.name as receiver, coalesce(p.lane, outbox.lane_of(r.lanes, i.tenant_id, coalesce(i.ordering_key, i.operation_id))) as lane,
         coalesce(o.attempt, p.attempt) as attempt, coalesce(o.fence, p.fence) as fence, coalesce(o.sent_key, p.sent_key) as sent_key,
         coalesce(o.wire_digest, p.wire_digest) as wire_digest, coalesce(o.contract_id, p.contract_id) as contract_id, t.contract_id as contract_in_force,
         coalesce(o.approval_id, p.approval_id) as approval_id, coalesce(o.policy_version, p.policy_version) as policy_version,
         coalesce(o.first_sent_at, p.first_sent_at) as first_sent_at, p.resend_until, p.unresolved_at, coalesce(o.started_at, p.begun_at) as begun_at,
         p.step, p.next_at, p.ord, p.passed, coalesce(o.throttled, p.throttled) as throttled, coalesce(o.not_sent, p.not_sent) as not_sent,
         o.from_state, o.ended_at, o.status, o.excerpt, o.request_id, o.peer, o.receipt, o.external_id, o.decided_by, o.evidence_id
  from outbox.intent i
  left join outbox.outcome o on o.seq = i.seq
  left join outbox.tool t on t.name = i.tool
  left join outbox.receiver r on r.receiver_id = t.receiver_id
  left join outbox.pending p on p.receiver_id = r.receiver_id
    and p.lane = outbox.lane_of(r.lanes, i.tenant_id, coalesce(i.ordering_key, i.operation_id)) and p.seq = i.seq;

-- Every exposure, also the one that ended the operation and the one that runs.
create view outbox.attempt_log as
  select a.seq, a.attempt, a.fence, a.owner, a.cause, a.contract_id, a.sent_key, a.wire_digest, a.started_at, a.ended_at, a.status,
         a.excerpt, a.request_id, a.peer from outbox.attempt a
  union all
  select o.seq, o.attempt, o.fence, o.owner, coalesce(o.cause, o.state::text), o.contract_id, o.sent_key, o.wire_digest, o.started_at, o.ended_at,
         -- An answer that was the receipt is not kept twice.
         o.status, coalesce(o.excerpt, o.receipt), o.request_id, o.peer from outbox.outcome o where o.from_state = 'executing';

-- What a piece of evidence says against the end of its operation (null: it has none), or by itself; null: nothing.
create function outbox.against(state outbox.state, external_id text, e outbox.evidence) returns text language sql immutable parallel safe
  return case
    when state = 'rejected' and ((e).kind = 'receipt' or (e).verdict = 'confirmed') then 'evidence of the effect after the operation was rejected'
    when (e).duplicates > 0 then 'the receiver holds more than one record with this identity'
    when state = 'succeeded' and (e).external_id <> external_id then 'a second effect with another external id'
  end;

-- The same for all evidence, which is long: for a few at a time. Also where the end has been purged.
create view outbox.evidence_against as
  select e.seq, e.evidence_id, w.state is not null as ended, outbox.against(w.state, w.external_id, e) as what
  from outbox.evidence e left join outbox.outcome o on o.seq = e.seq left join outbox.tombstone s on s.seq = e.seq
  cross join lateral (select coalesce(o.state, s.state) as state, coalesce(o.external_id, s.external_id) as external_id) w;

-- Evidence is compared with the end that there is, and an end with the evidence that there is; what contradicts is noted as an objection.
-- Whichever comes second has waited for the row that the other one held, and reads here what was committed meanwhile. The end of a first
-- attempt that was never in doubt is not compared, since that would cost every operation: evidence of one that is open and not in doubt is
-- noted before its end, whatever that will be.
create function outbox.compare_evidence() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into outbox.objection (seq, evidence_id)
    select a.seq, a.evidence_id from written w
    cross join lateral (select x.* from outbox.evidence_against x where x.evidence_id = w.evidence_id offset 0) a
    where (w.kind = 'receipt' or w.verdict = 'confirmed' or w.external_id is not null or w.duplicates > 0)
      and (a.what is not null or not (a.ended or exists (select from outbox.doubt d where d.seq = a.seq)))
    on conflict do nothing;
  return null;
end $$;
create trigger compared after insert on outbox.evidence referencing new table as written for each statement
  execute function outbox.compare_evidence();
create function outbox.compare_end() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into outbox.objection (seq, evidence_id)
    select e.seq, e.evidence_id from outbox.evidence e where e.seq = new.seq and outbox.against(new.state, new.external_id, e) is not null
    on conflict do nothing;
  return null;
end $$;
create trigger compared after insert on outbox.outcome for each row
  when (new.attempt > 1 or new.from_state <> 'executing') execute function outbox.compare_end();

-- Evidence that contradicts a terminal state, or itself. It changes nothing and raises. Each is found by its key, whatever statistics say.
create view outbox.contradiction as
  select s.seq, s.evidence_id, a.what from outbox.objection s
  cross join lateral (select x.what from outbox.evidence_against x where x.evidence_id = s.evidence_id offset 0) a
  where a.what is not null;

-- What will not move on its own, or is late. Never scans the backlog.
create view outbox.stuck as
  select d.seq, d.tenant_id, d.tool, d.receiver_id, d.lane, d.attempt, d.since, d.settle_at, d.step, d.next_at, d.reads, d.needs_person,
         d.reason, outbox.now() - d.since as age
  from outbox.doubt d;
