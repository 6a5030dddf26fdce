CREATE SCHEMA outbox;
CREATE TYPE outbox.ended AS (
	cursor text,
	more boolean,
	seq bigint,
	tenant_id text,
	operation_id text,
	tool text,
	resource text,
	principal_id text,
	state text,
	cause text,
	attempt integer,
	receipt text,
	external_id text,
	decided_by text,
	created_at timestamp with time zone,
	ended_at timestamp with time zone
);
CREATE TYPE outbox.put_result AS (
	seq bigint,
	created boolean,
	differs text[],
	state text,
	cause text,
	attempt integer,
	receipt text,
	external_id text,
	created_at timestamp with time zone,
	ended_at timestamp with time zone,
	purged boolean
);
CREATE TYPE outbox.state AS ENUM (
    'proposed',
    'authorized',
    'executing',
    'succeeded',
    'rejected',
    'unknown'
);
CREATE TYPE outbox.step AS ENUM (
    'none',
    'look',
    'resend',
    'person'
);
CREATE FUNCTION outbox.abandon(p_receiver_id integer, p_lane integer, p_below_fence bigint, p_begun_before timestamp with time zone, p_cause text) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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
CREATE TABLE outbox.pending (
    receiver_id integer NOT NULL,
    lane integer NOT NULL,
    seq bigint NOT NULL,
    next_at timestamp with time zone NOT NULL,
    ord bigint,
    expires_at timestamp with time zone,
    policy_version integer NOT NULL,
    step outbox.step DEFAULT 'none'::outbox.step NOT NULL,
    state outbox.state NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    fence bigint,
    begun_at timestamp with time zone,
    first_sent_at timestamp with time zone,
    resend_until timestamp with time zone,
    unresolved_at timestamp with time zone,
    contract_id integer,
    approval_id bigint,
    throttled integer DEFAULT 0 NOT NULL,
    not_sent integer DEFAULT 0 NOT NULL,
    passed boolean DEFAULT false NOT NULL,
    sent_key uuid,
    wire_digest bytea,
    cause text
)
WITH (fillfactor='38', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');
CREATE FUNCTION outbox.admit_effect(held outbox.pending, p_attempt integer, p_fence bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION outbox.now() RETURNS timestamp with time zone
    LANGUAGE sql PARALLEL SAFE
    RETURN clock_timestamp();
CREATE TABLE outbox.evidence (
    evidence_id bigint NOT NULL,
    seq bigint NOT NULL,
    attempt integer,
    fence bigint,
    kind text NOT NULL,
    verdict text,
    external_id text,
    receipt text,
    duplicates integer DEFAULT 0 NOT NULL,
    status integer,
    excerpt text,
    request_id text,
    sent_at timestamp with time zone,
    observed_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    source text NOT NULL,
    stated_by text,
    note text,
    CONSTRAINT evidence_excerpt_check CHECK ((octet_length(excerpt) <= 4096)),
    CONSTRAINT evidence_external_id_check CHECK ((octet_length(external_id) <= 500)),
    CONSTRAINT evidence_kind_check CHECK ((kind = ANY (ARRAY['receipt'::text, 'not_sent'::text, 'late_answer'::text, 'lookup'::text, 'statement'::text, 'callback'::text]))),
    CONSTRAINT evidence_note_check CHECK ((octet_length(note) <= 4096)),
    CONSTRAINT evidence_receipt_check CHECK ((octet_length(receipt) <= 8192)),
    CONSTRAINT evidence_request_id_check CHECK ((octet_length(request_id) <= 300)),
    CONSTRAINT evidence_verdict_check CHECK ((verdict = ANY (ARRAY['confirmed'::text, 'ended'::text, 'partial'::text, 'not_found'::text, 'unknown'::text])))
);
CREATE FUNCTION outbox.against(state outbox.state, external_id text, e outbox.evidence) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN ((state = 'rejected'::outbox.state) AND (((e).kind = 'receipt'::text) OR ((e).verdict = 'confirmed'::text))) THEN 'evidence of the effect after the operation was rejected'::text WHEN ((e).duplicates > 0) THEN 'the receiver holds more than one record with this identity'::text WHEN ((state = 'succeeded'::outbox.state) AND ((e).external_id <> external_id)) THEN 'a second effect with another external id'::text ELSE NULL::text END;
CREATE FUNCTION outbox.allow_resend(p_seq bigint, p_attempt integer, p_at timestamp with time zone, p_look_again_at timestamp with time zone) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.approve(p_tenant_id text, p_operation_id text, p_digest bytea, p_by text, p_expires_at timestamp with time zone, p_reason text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.as_tenant(p_tenant_id text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN p_tenant_id;
CREATE FUNCTION outbox.cancel(p_tenant_id text, p_operation_id text, p_by text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform outbox.end_unexposed(outbox.held(p_tenant_id, p_operation_id), 'cancelled', p_by);
end $$;
CREATE FUNCTION outbox.check_tenant(p_tenant_id text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN p_tenant_id;
CREATE FUNCTION outbox.chore_took(p_name text, p_took interval) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  update outbox.chore c set took = least(greatest(p_took, interval '0'), interval '1 day') where c.name = p_name $$;
CREATE FUNCTION outbox.claim_chore(p_name text, p_every interval) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  with c as (
    insert into outbox.chore as c (name, next_at) values (p_name, outbox.now() + p_every)
    on conflict (name) do update set next_at = outbox.now() + greatest(p_every, least(50 * c.took, interval '10 minutes'))
    where c.next_at <= outbox.now() returning 1)
  select exists (select from c) $$;
CREATE FUNCTION outbox.compare_end() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  insert into outbox.objection (seq, evidence_id)
    select e.seq, e.evidence_id from outbox.evidence e where e.seq = new.seq and outbox.against(new.state, new.external_id, e) is not null
    on conflict do nothing;
  return null;
end $$;
CREATE FUNCTION outbox.compare_evidence() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  insert into outbox.objection (seq, evidence_id)
    select a.seq, a.evidence_id from written w
    cross join lateral (select x.* from outbox.evidence_against x where x.evidence_id = w.evidence_id offset 0) a
    where (w.kind = 'receipt' or w.verdict = 'confirmed' or w.external_id is not null or w.duplicates > 0)
      and (a.what is not null or not (a.ended or exists (select from outbox.doubt d where d.seq = a.seq)))
    on conflict do nothing;
  return null;
end $$;
CREATE FUNCTION outbox.database_oid() RETURNS oid
    LANGUAGE sql STABLE
    RETURN (SELECT d.oid FROM pg_database d WHERE (d.datname = current_database()));
CREATE FUNCTION outbox.lp(v text) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN COALESCE((int4send(octet_length(v)) || convert_to(v, 'UTF8'::name)), int4send('-1'::integer));
CREATE FUNCTION outbox.digest_of(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN sha256(((((((('\x6f7574626f782f3100'::bytea || outbox.lp(tenant_id)) || outbox.lp(operation_id)) || outbox.lp(tool)) || outbox.lp(resource)) || outbox.lp(expected_version)) || outbox.lp(arguments)) || COALESCE(((outbox.lp(content_type) || int4send(octet_length(body))) || body), '\x'::bytea)));
CREATE FUNCTION outbox.doubt_upsert(p_seq bigint, p_receiver_id integer, p_lane integer, p_attempt integer, p_exposed_at timestamp with time zone, p_settle interval, p_step outbox.step, p_next_at timestamp with time zone, p_accepted boolean, p_no_resend boolean, p_reason text) RETURNS void
    LANGUAGE sql
    AS $$
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
CREATE FUNCTION outbox.end_unexposed(held outbox.pending, p_cause text, p_by text) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION outbox.enter_era(p_system_identifier bigint, p_timeline integer) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.expedite(p_tenant_id text, p_operation_id text, p_by text, p_reason text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  held outbox.pending := outbox.held(p_tenant_id, p_operation_id);
begin
  if held.state <> 'authorized' then
    raise exception 'operation % is %: only an authorized one can be expedited', p_operation_id, held.state using errcode = 'OB409',
      hint = 'See: outbox why ' || p_operation_id;
  end if;
  update outbox.pending p set next_at = greatest(outbox.now(), i.not_before) from outbox.intent i
    where i.seq = p.seq and p.receiver_id = held.receiver_id and p.lane = held.lane and p.seq = held.seq;
  perform outbox.record_act('expedite', p_tenant_id || ' ' || p_operation_id, p_by, p_reason);
  perform outbox.ring(held.receiver_id, held.lane, held.seq);
end $$;
CREATE FUNCTION outbox.expire(p_limit integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.feed(p_tenant_id text, p_after text DEFAULT NULL::text, p_limit integer DEFAULT 500) RETURNS SETOF outbox.ended
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if p_tenant_id is null or not coalesce(p_limit, 0) between 1 and 10000 then
    raise exception 'a feed is of one tenant, 1 to 10000 rows at a time' using errcode = 'OB400';
  end if;
  return query select * from outbox.feed_rows(outbox.check_tenant(p_tenant_id), p_after, p_limit);
end $$;
CREATE FUNCTION outbox.feed_of_all(p_after text DEFAULT NULL::text, p_limit integer DEFAULT 500) RETURNS SETOF outbox.ended
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  select * from outbox.feed_rows(null, p_after, least(greatest(p_limit, 1), 10000)) $$;
CREATE FUNCTION outbox.feed_rows(p_tenant_id text, p_after text, p_limit integer) RETURNS SETOF outbox.ended
    LANGUAGE plpgsql STABLE
    AS $_$
declare
  scan_max constant int := 10000;
  life outbox.instance;
  said text[] := regexp_match(p_after, '^([0-9a-f]{8})\.(\d{1,7})\.(\d{1,18})\.(\d{1,18})(?:\.(\d{1,18})\.(\d{1,18}))?$');
  mine text;                              -- what every cursor of this life begins with
  told text := '0.0';                     -- the row that was told last
  from_xid xid8 := '0';
  from_seq bigint := 0;
  horizon xid8;
  looked_at int := 0;
  returned int := 0;
  e outbox.ended;
  o record;
begin
  select * into life from outbox.instance;
  mine := left(life.id::text, 8) || '.' || life.era || '.';
  horizon := (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + life.feed_offset)::text::xid8;
  if p_after <> '' then
    if said is null then
      raise exception 'this is not a cursor of a feed' using errcode = 'OB400',
        hint = 'Give the cursor of an end as it was told (outbox feed --json), or none.';
    end if;
    told := said[3] || '.' || said[4];
    if said[1] || '.' || said[2] || '.' = mine then
      from_xid := coalesce(said[5], said[3])::xid8; from_seq := coalesce(said[6], said[4]);
    elsif said[1] = left(life.id::text, 8) and (told = '0.0'
        or exists (select from outbox.outcome k where k.seq = said[4]::bigint and k.xid = said[3]::xid8)) then
      from_xid := said[3]::xid8; from_seq := said[4];
    else
      raise exception 'the database has no such end any more: the cursor is of another life of it' using errcode = 'OB410',
        hint = 'Start again without a cursor: what is kept is told again, and a handler that sets its rows to what it is told may hear it twice.';
    end if;
  end if;
  for o in
    select c.xid, c.seq, i.tenant_id, i.operation_id, i.tool, i.resource, i.principal_id, c.state, c.cause, c.attempt, c.receipt,
           c.external_id, c.decided_by, i.created_at, c.ended_at
    from outbox.outcome c join outbox.intent i on i.seq = c.seq
    where (c.xid, c.seq) > (from_xid, from_seq) and c.xid < horizon order by c.xid, c.seq limit scan_max
  loop
    looked_at := looked_at + 1; from_xid := o.xid; from_seq := o.seq;
    if p_tenant_id is null or o.tenant_id = p_tenant_id then
      returned := returned + 1; told := o.xid || '.' || o.seq;
      return next row(mine || told, true, o.seq, o.tenant_id, o.operation_id, o.tool, o.resource, o.principal_id, o.state, o.cause, o.attempt,
                      o.receipt, o.external_id, o.decided_by, o.created_at, o.ended_at)::outbox.ended;
      exit when returned >= p_limit;
    end if;
  end loop;
  e.more := looked_at = scan_max or returned >= p_limit;
  if not e.more and (from_xid, from_seq) < (horizon, 0::bigint) then
    from_xid := horizon; from_seq := 0;
  end if;
  e.cursor := mine || told || '.' || from_xid || '.' || from_seq;
  return next e;
end $_$;
CREATE FUNCTION outbox.feed_xid() RETURNS xid8
    LANGUAGE sql
    RETURN pg_current_xact_id();
CREATE FUNCTION outbox.fence_of(era bigint, counter bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$ select (era << 40) | (counter & 1099511627775) $$;
CREATE FUNCTION outbox.forget(p_limit integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  present timestamptz := outbox.now(); -- no index is read by a function that may answer differently for each row
  forgotten int;
begin
  perform set_config('outbox.act', 'forget', true);
  with old as (
    select s.tenant_id, s.operation_id from outbox.tool t cross join lateral (
      select k.tenant_id, k.operation_id from outbox.tombstone k
      where k.tool = t.name and k.ended_at < present - t.identity_retention order by k.ended_at limit p_limit) s
    where t.identity_retention is not null limit p_limit
  ), f as (
    delete from outbox.tombstone s using old o where s.tenant_id = o.tenant_id and s.operation_id = o.operation_id returning 1
  ) select count(*) into forgotten from f;
  perform set_config('outbox.act', '', true);
  return forgotten;
end $$;
CREATE FUNCTION outbox.get_operation(p_tenant_id text, p_operation_id text) RETURNS TABLE(seq bigint, tool text, resource text, arguments text, principal_id text, digest bytea, state text, cause text, attempt integer, receipt text, external_id text, created_at timestamp with time zone, ended_at timestamp with time zone, purged boolean)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  select i.seq, i.tool, i.resource, i.arguments, i.principal_id, i.digest, coalesce(o.state, p.state)::text,
         case when o.seq is null then p.cause else o.cause end, coalesce(o.attempt, p.attempt), o.receipt, o.external_id,
         i.created_at, o.ended_at, false
  from outbox.intent i
  left join outbox.outcome o on o.seq = i.seq
  left join outbox.tool t on t.name = i.tool
  left join outbox.receiver r on r.receiver_id = t.receiver_id
  left join outbox.pending p on p.receiver_id = r.receiver_id and p.seq = i.seq
    and p.lane = outbox.lane_of(r.lanes, i.tenant_id, coalesce(i.ordering_key, i.operation_id))
  where i.tenant_id = outbox.check_tenant(p_tenant_id) and i.operation_id = p_operation_id
  union all
  select s.seq, s.tool, null, null, s.principal_id, s.digest, s.state::text, s.cause, null, null, s.external_id, null, s.ended_at, true
  from outbox.tombstone s where s.tenant_id = outbox.check_tenant(p_tenant_id) and s.operation_id = p_operation_id
$$;
CREATE FUNCTION outbox.held(p_tenant_id text, p_operation_id text) RETURNS outbox.pending
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.hold_writers() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '10s'
    AS $$
begin
  lock table outbox.intent in share mode;
exception when lock_not_available then
  raise exception 'a transaction that has written an intent stays open' using errcode = 'OB409',
    hint = 'A tool is moved or removed when no such transaction is open. Try again.';
end $$;
CREATE FUNCTION outbox.identity_fault(tenant_id text, operation_id text, principal_id text) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN ((octet_length(tenant_id) > 200) OR (tenant_id !~ '^[!-~]+$'::text)) THEN 'tenant_id is not 1 to 200 characters from ! to ~'::text WHEN ((octet_length(operation_id) > 200) OR (operation_id !~ '^[!-~]+$'::text)) THEN 'operation_id is not 1 to 200 characters from ! to ~'::text WHEN ((octet_length(principal_id) > 200) OR (principal_id !~ '^[!-~]+$'::text)) THEN 'principal_id is not 1 to 200 characters from ! to ~'::text ELSE NULL::text END;
CREATE FUNCTION outbox.inherit_lanes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  select r.lanes into new.lanes from outbox.receiver r where r.receiver_id = new.receiver_id;
  return new;
end $$;
CREATE FUNCTION outbox.intent_digest(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text DEFAULT NULL::text, body bytea DEFAULT NULL::bytea) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
begin
  return outbox.digest_of(tenant_id, operation_id, tool, resource, expected_version, arguments, content_type, body);
end $$;
CREATE TABLE outbox.intent (
    seq bigint NOT NULL,
    tenant_id text NOT NULL,
    operation_id text NOT NULL,
    tool text NOT NULL,
    resource text,
    arguments text,
    content_type text,
    body bytea,
    expected_version text,
    ordering_key text,
    principal_id text NOT NULL,
    expires_at timestamp with time zone,
    not_before timestamp with time zone,
    compensates text,
    revision_of text,
    on_behalf_of text,
    traceparent text,
    written_by text DEFAULT SESSION_USER NOT NULL,
    created_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    redacted_at timestamp with time zone,
    digest bytea NOT NULL
);
CREATE FUNCTION outbox.intent_is_sound(i outbox.intent) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
  fault pg_catalog.text;
begin
  if coalesce(i.compensates, i.revision_of, i.on_behalf_of, i.resource, i.ordering_key, i.content_type, i.expected_version, i.traceparent) is null
     and i.body is null and i.redacted_at is null then
    fault := coalesce(outbox.identity_fault(i.tenant_id, i.operation_id, i.principal_id),
      outbox.payload_fault(i.digest, null, i.tenant_id, i.operation_id, i.tool, null, null, i.arguments, null, null));
  else
    fault := coalesce(outbox.identity_fault(i.tenant_id, i.operation_id, i.principal_id), outbox.option_fault(i),
      outbox.payload_fault(i.digest, i.redacted_at, i.tenant_id, i.operation_id, i.tool, i.resource, i.expected_version, i.arguments,
        i.content_type, i.body));
  end if;
  if fault is null then
    return true;
  end if;
  raise exception 'the intent is refused: %', fault
    using errcode = '23514', schema = 'outbox', table = 'intent', constraint = 'intent_is_sound', column = pg_catalog.split_part(fault, ' ', 1);
end $$;
CREATE FUNCTION outbox.is_cause(name text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    begin
      return name operator(pg_catalog.=) any ('{accepted,ambiguous,cancelled,confirmed,connection_lost,contract_unreadable,contradiction,duplicate,ended,expired,failover,forbidden,in_flight,late_receipt,lease_lost,left_alone,mismatch,name_unresolved,no_connection,no_effect,no_route,not_processed,not_sent,orphaned,partial,person,policy_changed,precondition_failed,proven_absent,receiver_fault,refused,resend,revoked,scope_changed,secret_missing,shutdown,stale_fence,stored_failure,tampered,target_changed,throttled,timeout,tls_failed,too_late,unplaced,unsafe_target,window_closed}'::pg_catalog.text[]);
    end $$;
CREATE FUNCTION outbox.keep_feed_order() RETURNS void
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION outbox.ordering_hash(tenant_id text, key text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended(key, hashtextextended(tenant_id, (0)::bigint));
CREATE FUNCTION outbox.lane_of(lanes integer, tenant_id text, key text) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (((outbox.ordering_hash(tenant_id, key) & '9223372036854775807'::bigint) % (lanes)::bigint))::integer;
CREATE FUNCTION outbox.must_be_seen() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform pg_advisory_xact_lock(hashtextextended('outbox.must_be_seen', 0));
  perform setval('outbox.must_be_seen', pg_current_xact_id()::text::bigint);
end $$;
CREATE FUNCTION outbox.option_fault(i outbox.intent) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN ((octet_length((i).compensates) > 200) OR ((i).compensates !~ '^[!-~]+$'::text)) THEN 'compensates is not 1 to 200 characters from ! to ~'::text WHEN ((octet_length((i).revision_of) > 200) OR ((i).revision_of !~ '^[!-~]+$'::text)) THEN 'revision_of is not 1 to 200 characters from ! to ~'::text WHEN ((octet_length((i).on_behalf_of) > 200) OR ((i).on_behalf_of !~ '^[!-~]+$'::text)) THEN 'on_behalf_of is not 1 to 200 characters from ! to ~'::text WHEN ((octet_length((i).resource) < 1) OR (octet_length((i).resource) > 2000)) THEN 'resource is not 1 to 2000 bytes'::text WHEN ((octet_length((i).ordering_key) < 1) OR (octet_length((i).ordering_key) > 2000)) THEN 'ordering_key is not 1 to 2000 bytes'::text WHEN (octet_length((i).body) > 262144) THEN 'body is more than 262144 bytes'::text WHEN ((octet_length((i).content_type) > 200) OR ((i).content_type !~ '^[ -~]+$'::text)) THEN 'content_type is not 1 to 200 characters from space to ~'::text WHEN ((octet_length((i).expected_version) > 200) OR ((i).expected_version !~ '^[ -~]+$'::text)) THEN 'expected_version is not 1 to 200 characters from space to ~'::text WHEN ((i).traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'::text) THEN 'traceparent is not that of W3C Trace Context'::text ELSE NULL::text END;
CREATE FUNCTION outbox.pause_add(p_kind text, p_name text, p_by text, p_reason text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if (p_kind = 'receiver' and not exists (select from outbox.receiver r where r.name = p_name))
     or (p_kind = 'tool' and not exists (select from outbox.tool t where t.name = p_name)) then
    raise exception 'no % is called %', p_kind, p_name using errcode = 'OB404', hint = 'See: outbox contracts';
  end if;
  insert into outbox.pause (kind, name, paused_by, reason) values (p_kind, p_name, p_by, p_reason) on conflict do nothing;
  if not found then
    return false;
  end if;
  perform outbox.record_act('pause', p_kind || ' ' || p_name, p_by, p_reason);
  return true;
end $$;
CREATE FUNCTION outbox.pause_end(p_kind text, p_name text, p_by text, p_reason text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  ended boolean;
begin
  delete from outbox.pause z where z.kind = p_kind and z.name = p_name;
  ended := found;
  if p_kind = 'receiver' then
    update outbox.receiver r set circuit_retry_at = outbox.now() where r.name = p_name and r.circuit_opened_at is not null;
    ended := ended or found;
  end if;
  if ended then
    perform outbox.record_act('resume', p_kind || ' ' || p_name, p_by, p_reason);
  end if;
  return ended;
end $$;
CREATE FUNCTION outbox.payload_fault(digest bytea, redacted_at timestamp with time zone, tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN (octet_length(arguments) > 262144) THEN 'arguments are more than 262144 bytes'::text WHEN (redacted_at IS NOT NULL) THEN NULL::text WHEN ((arguments IS NULL) = (body IS NULL)) THEN 'arguments or body: exactly one of them is the payload'::text WHEN ((body IS NULL) <> (content_type IS NULL)) THEN 'content_type belongs to a body, and to nothing else'::text WHEN (digest <> outbox.digest_of(tenant_id, operation_id, tool, resource, expected_version, arguments, content_type, body)) THEN 'digest is not that of this intent: see outbox.intent_digest()'::text ELSE NULL::text END;
CREATE FUNCTION outbox.pending_fault(p outbox.pending) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN ((p).state = ANY (ARRAY['succeeded'::outbox.state, 'rejected'::outbox.state])) THEN 'only_open_operations'::text WHEN (((p).state <> ALL (ARRAY['executing'::outbox.state, 'unknown'::outbox.state])) AND ((p).unresolved_at IS NOT NULL)) THEN 'only_executing_and_unknown_hide_an_effect'::text WHEN (((p).state = 'unknown'::outbox.state) AND (((p).unresolved_at IS NULL) OR ((p).first_sent_at IS NULL) OR ((p).resend_until IS NULL))) THEN 'unknown_is_unresolved'::text WHEN (((p).state = 'executing'::outbox.state) AND (((p).attempt < 1) OR ((p).fence IS NULL) OR ((p).begun_at IS NULL) OR ((p).first_sent_at IS NULL) OR ((p).resend_until IS NULL))) THEN 'executing_is_exposed'::text ELSE NULL::text END;
CREATE FUNCTION outbox.pending_is_sound(p outbox.pending) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
  fault pg_catalog.text := coalesce(outbox.pending_fault(p), case when not outbox.is_cause(p.cause) then 'pending_cause' end);
begin
  if fault is null then
    return true;
  end if;
  raise exception 'a pending operation breaks the rule %', fault
    using errcode = '23514', schema = 'outbox', table = 'pending', constraint = fault;
end $$;
CREATE FUNCTION outbox.permitted(held outbox.pending) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
  select (held.expires_at is null or held.expires_at > outbox.now())
    and exists (select from outbox.intent i join outbox.tool t on t.name = i.tool where i.seq = held.seq and t.policy_version = held.policy_version) $$;
CREATE FUNCTION outbox.place() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
begin
  -- Above READ COMMITTED the snapshot may be older than a purge, whose tombstones are invisible: an old id would have a second effect. Or
  -- than the move of a tool: its operation would lie where nobody looks for it.
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    -- Apart: a condition that looks into a table is run as a statement.
    if not pg_visible_in_snapshot((select s.last_value::text::xid8 from outbox.must_be_seen s), pg_current_snapshot()) then
      raise exception 'operations were purged, or a tool was moved, since this transaction began'
        using errcode = '40001', hint = 'Retry the transaction.';
    end if;
  end if;
  insert into outbox.pending (receiver_id, lane, seq, state, next_at, ord, expires_at, policy_version)
    select coalesce(t.receiver_id, outbox.refuse_tool(n.tool)),
           outbox.lane_of(t.lanes, n.tenant_id, coalesce(n.ordering_key, n.operation_id)), n.seq,
           case when t.requires_approval then 'proposed'::outbox.state else 'authorized' end,
           coalesce(n.not_before, n.created_at), outbox.ordering_hash(n.tenant_id, n.ordering_key), n.expires_at, t.policy_version
    from inserted n
    left join outbox.tool t on t.name = n.tool
    left join outbox.tombstone s on s.tenant_id = n.tenant_id and s.operation_id = n.operation_id
    where s.operation_id is null or outbox.refuse_purged(n.tenant_id, n.operation_id);
  -- Nobody is idle while there is work, and few lanes have a crowd: the short question first.
  if exists (select from outbox.lane l where l.bell is not null and (l.idle or l.crowd <> '{}')) then
    perform pg_notify(w.bell, w.receiver_id || '/' || w.lane || case when w.idle or w.several then '' else '/' || w.seq end)
      from (select l.bell, l.receiver_id, l.lane, l.idle, count(*) > 1 as several, min(n.seq) as seq
        from inserted n join outbox.tool t on t.name = n.tool join outbox.receiver r on r.receiver_id = t.receiver_id and r.doorbell
        join outbox.lane l on l.receiver_id = t.receiver_id
          and l.lane = outbox.lane_of(t.lanes, n.tenant_id, coalesce(n.ordering_key, n.operation_id))
        where l.bell is not null and (l.idle or (l.crowd <> '{}' and n.tenant_id <> all(l.crowd)))
        group by l.receiver_id, l.lane) w;
  end if;
  return null;
end $$;
CREATE FUNCTION outbox.place_of(p_seq bigint) RETURNS TABLE(receiver_id integer, lane integer)
    LANGUAGE sql STABLE
    AS $$
  select r.receiver_id, outbox.lane_of(r.lanes, i.tenant_id, coalesce(i.ordering_key, i.operation_id))
  from outbox.intent i join outbox.tool t on t.name = i.tool join outbox.receiver r on r.receiver_id = t.receiver_id
  where i.seq = p_seq $$;
CREATE FUNCTION outbox.proven(p_seq bigint) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$ select exists (select from outbox.evidence e where e.seq = p_seq and (e.kind = 'receipt' or e.verdict = 'confirmed')) $$;
CREATE FUNCTION outbox.purge(p_after bigint, p_upto bigint, p_before timestamp with time zone, p_limit integer, p_by text) RETURNS TABLE(purged integer, kept integer, passed bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  gone bigint[];
begin
  if p_limit < 1 then
    raise exception 'a batch has one row at least' using errcode = 'OB400';
  end if;
  perform set_config('outbox.act', 'purge', true);
  lock table outbox.intent in row exclusive mode; -- as hold_writers() does: first this lock, then that one
  perform outbox.must_be_seen();
  select coalesce(array_agg(v.seq) filter (where v.verdict = 'purge'), '{}'),
         count(*) filter (where v.verdict in ('unsettled', 'contradicted')), case when count(*) = p_limit then max(v.seq) end
    into gone, kept, passed from outbox.purgeable(p_after, p_upto, least(p_before, outbox.now()), p_limit) v;
  -- What outbox.witness() holds stays, and so does what it has contradicted meanwhile.
  select coalesce(array_agg(c.seq), '{}') into gone
    from (select o.seq from outbox.outcome o where o.seq = any (gone) for update skip locked) c;
  select coalesce(array_agg(g.seq), '{}') into gone from unnest(gone) g (seq)
    where not exists (select from outbox.contradiction x where x.seq = g.seq);
  insert into outbox.tombstone (tenant_id, operation_id, seq, tool, principal_id, digest, state, cause, external_id, receipt_digest, ended_at)
    select i.tenant_id, i.operation_id, i.seq, i.tool, i.principal_id, i.digest, o.state, o.cause, o.external_id,
           sha256(convert_to(o.receipt, 'UTF8')), o.ended_at
    from outbox.outcome o join outbox.intent i on i.seq = o.seq where o.seq = any (gone);
  delete from outbox.evidence e where e.seq = any (gone);
  delete from outbox.objection s where s.seq = any (gone);
  delete from outbox.attempt a where a.seq = any (gone);
  delete from outbox.approval a where a.seq = any (gone);
  delete from outbox.outcome o where o.seq = any (gone);
  delete from outbox.intent i where i.seq = any (gone);
  perform set_config('outbox.act', '', true);
  purged := cardinality(gone);
  if purged > 0 then
    perform outbox.record_act('purge', purged || ' operations', p_by, 'ended before ' || p_before);
  end if;
  return next;
end $$;
CREATE FUNCTION outbox.purgeable(p_after bigint, p_upto bigint, p_before timestamp with time zone, p_limit integer) RETURNS TABLE(seq bigint, verdict text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  select o.seq, case
      when o.ended_at >= p_before then 'young'
      when coalesce(o.started_at, o.ended_at)
             + case when t.name is null then interval '30 days' else greatest(t.settle, t.person_settle, interval '1 hour') end >= present.at
        or exists (select from outbox.landing g where g.receiver_id = t.receiver_id and g.ord = outbox.ordering_hash(i.tenant_id, i.ordering_key)
                   and g.seq = o.seq and g.until > present.at) then 'unsettled'
      when exists (select from outbox.contradiction x where x.seq = o.seq) then 'contradicted'
      else 'purge' end
  from (select outbox.now() as at) present
  cross join lateral (select c.* from outbox.outcome c where c.seq > p_after and c.seq <= p_upto order by c.seq limit p_limit) o
  join outbox.intent i on i.seq = o.seq
  left join outbox.tool t on t.name = i.tool
  order by o.seq $$;
CREATE FUNCTION outbox.put(p_tenant_id text, p_operation_id text, p_tool text, p_principal_id text, p_arguments text, p_digest bytea, p_resource text DEFAULT NULL::text, p_expected_version text DEFAULT NULL::text, p_ordering_key text DEFAULT NULL::text, p_not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, p_expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, p_compensates text DEFAULT NULL::text, p_revision_of text DEFAULT NULL::text, p_on_behalf_of text DEFAULT NULL::text, p_traceparent text DEFAULT NULL::text, p_content_type text DEFAULT NULL::text, p_body bytea DEFAULT NULL::bytea) RETURNS outbox.put_result
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  answer outbox.put_result;
  old outbox.intent;
  known record;
begin
  p_tenant_id := outbox.check_tenant(p_tenant_id);
  for tries in 1..5 loop
    -- In one snapshot, an id that was purged is in exactly one of both places.
    select (select i.seq from outbox.intent i where i.tenant_id = p_tenant_id and i.operation_id = p_operation_id) as seq,
           (select g from outbox.tombstone g where g.tenant_id = p_tenant_id and g.operation_id = p_operation_id) as grave,
           (select t.requires_approval from outbox.tool t where t.name = p_tool) as asks into known;
    if (known.grave).seq is not null then
      answer.seq := (known.grave).seq;
      answer.created := false;
      answer.differs := array_remove(array[case when (known.grave).digest <> p_digest then 'digest' end,
                                           case when (known.grave).principal_id <> p_principal_id then 'principal_id' end], null);
      if answer.differs = '{}' then
        answer.state := (known.grave).state; answer.cause := (known.grave).cause; answer.external_id := (known.grave).external_id;
        answer.ended_at := (known.grave).ended_at; answer.purged := true;
      end if;
      return answer;
    end if;
    if known.seq is null then
      insert into outbox.intent (tenant_id, operation_id, tool, resource, arguments, content_type, body, expected_version, ordering_key,
          principal_id, expires_at, not_before, compensates, revision_of, on_behalf_of, traceparent, digest)
        values (p_tenant_id, p_operation_id, p_tool, p_resource, p_arguments, p_content_type, p_body, p_expected_version, p_ordering_key,
          p_principal_id, p_expires_at, p_not_before, p_compensates, p_revision_of, p_on_behalf_of, p_traceparent, p_digest)
        on conflict (tenant_id, operation_id) do nothing
        returning intent.seq, true, '{}', case when known.asks then 'proposed' else 'authorized' end, null, 0, null, null,
          intent.created_at, null, false into answer;
      if found then
        return answer;
      end if;
    end if;
    select * into old from outbox.intent i where i.tenant_id = p_tenant_id and i.operation_id = p_operation_id;
    if found then
      answer.seq := old.seq; answer.created := false;
      answer.differs := array_remove(array[
        case when old.tool is distinct from p_tool then 'tool' end,
        case when old.resource is distinct from p_resource then 'resource' end,
        case when old.redacted_at is null and old.arguments is distinct from p_arguments then 'arguments' end,
        case when old.redacted_at is null and old.content_type is distinct from p_content_type then 'content_type' end,
        case when old.redacted_at is null and old.body is distinct from p_body then 'body' end,
        case when old.expected_version is distinct from p_expected_version then 'expected_version' end,
        case when old.redacted_at is not null and old.digest is distinct from p_digest then 'digest' end,
        case when old.principal_id is distinct from p_principal_id then 'principal_id' end,
        case when old.ordering_key is distinct from p_ordering_key then 'ordering_key' end,
        case when old.not_before is distinct from p_not_before then 'not_before' end,
        case when old.expires_at is distinct from p_expires_at then 'expires_at' end,
        case when old.compensates is distinct from p_compensates then 'compensates' end,
        case when old.revision_of is distinct from p_revision_of then 'revision_of' end,
        case when old.on_behalf_of is distinct from p_on_behalf_of then 'on_behalf_of' end], null);
      if answer.differs = '{}' and old.digest is distinct from p_digest then
        answer.differs := array['digest'];
      end if;
      if answer.differs = '{}' then
        select g.state, g.cause, g.attempt, g.receipt, g.external_id, g.created_at, g.ended_at, g.purged
          into answer.state, answer.cause, answer.attempt, answer.receipt, answer.external_id, answer.created_at, answer.ended_at, answer.purged
          from outbox.get_operation(p_tenant_id, p_operation_id) g;
      end if;
      return answer;
    end if;
    -- Neither inserted nor found: a purge has just moved it into its tombstone, or an insert was rolled back. Look again.
  end loop;
  raise exception 'operation % of tenant % keeps changing under this put', p_operation_id, p_tenant_id using errcode = '40001';
end $$;
CREATE FUNCTION outbox.record_act(p_act text, p_target text, p_by text, p_reason text) RETURNS void
    LANGUAGE sql
    AS $$ insert into outbox.audit (act, target, acted_by, reason) values (p_act, p_target, p_by, p_reason) $$;
CREATE FUNCTION outbox.redact(p_tenant_id text, p_operation_id text, p_by text, p_reason text) RETURNS outbox.state
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  the_seq bigint;
  ended outbox.state;
begin
  select i.seq, o.state into the_seq, ended from outbox.intent i left join outbox.outcome o on o.seq = i.seq
    where i.tenant_id = p_tenant_id and i.operation_id = p_operation_id;
  if not found then
    select s.seq, s.state into the_seq, ended from outbox.tombstone s where s.tenant_id = p_tenant_id and s.operation_id = p_operation_id;
  end if;
  if the_seq is null then
    raise exception 'no operation % of tenant %', p_operation_id, p_tenant_id using errcode = 'OB404', hint = 'See: outbox list';
  elsif ended is null then
    raise exception 'operation % has not ended: it may need its arguments', p_operation_id using errcode = 'OB409',
      hint = 'Wait for its end, or end it: outbox why ' || p_operation_id;
  end if;
  perform set_config('outbox.act', 'redact', true);
  update outbox.intent i set arguments = null, body = null, content_type = null, redacted_at = outbox.now()
    where i.seq = the_seq and i.redacted_at is null;
  update outbox.outcome o set receipt = outbox.redacted(o.receipt), excerpt = null where o.seq = the_seq;
  update outbox.attempt a set excerpt = null where a.seq = the_seq;
  update outbox.evidence e set receipt = outbox.redacted(e.receipt), excerpt = null, note = null where e.seq = the_seq;
  perform set_config('outbox.act', '', true);
  perform outbox.record_act('redact', p_tenant_id || ' ' || p_operation_id, p_by, p_reason);
  return ended;
end $$;
CREATE FUNCTION outbox.redacted(v text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $_$ select case when v ~ '^redacted, sha256 [0-9a-f]{64}$' then v else 'redacted, sha256 ' || encode(sha256(convert_to(v, 'UTF8')), 'hex') end $_$;
CREATE FUNCTION outbox.redecide(p_limit integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if tg_op <> 'TRUNCATE' and coalesce(current_setting('outbox.act', true), '') = any (tg_argv) then
    return case when tg_op = 'DELETE' then old else new end;
  end if;
  raise exception '% on outbox.% is refused: its rows are history', lower(tg_op), tg_table_name
    using errcode = '42501', hint = 'Use outbox purge or outbox redact.';
end $$;
CREATE FUNCTION outbox.refuse_displacement() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform outbox.hold_writers();
  perform outbox.must_be_seen();
  if exists (select from outbox.pending p join outbox.intent i on i.seq = p.seq where p.receiver_id = old.receiver_id and i.tool = old.name) then
    raise exception 'tool % has open operations', old.name using errcode = 'OB409', hint = 'See: outbox list --tool ' || old.name;
  end if;
  return case when tg_op = 'DELETE' then old else new end;
end $$;
CREATE FUNCTION outbox.refuse_identity_change() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  raise exception 'the place of an operation never changes: %',
    (select i.operation_id || ' of tenant ' || i.tenant_id from outbox.intent i where i.seq = old.seq) using errcode = 'OB409';
end $$;
CREATE FUNCTION outbox.refuse_lanes() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  raise exception 'the lanes of receiver % are fixed', old.name
    using errcode = 'OB409', hint = 'Declare a second receiver with as many lanes as you want, and move its tools there.';
end $$;
CREATE FUNCTION outbox.refuse_move() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  raise exception 'illegal move % -> % of operation %', old.state, new.state,
    (select i.operation_id || ' of tenant ' || i.tenant_id from outbox.intent i where i.seq = old.seq) using errcode = 'OB409';
end $$;
CREATE FUNCTION outbox.refuse_purged(tenant_id text, operation_id text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
  raise exception 'operation % of tenant % has ended and was purged', operation_id, tenant_id
    using errcode = '23505', hint = 'Use a new operation id for a new effect; outbox.put answers for an old one.';
end $$;
CREATE FUNCTION outbox.refuse_tool(tool text) RETURNS integer
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
  raise exception 'unknown tool %', tool
    using errcode = 'OB404', hint = 'Declare [tools."' || tool || '"] in outbox.toml and run: outbox apply outbox.toml';
end $$;
CREATE FUNCTION outbox.repair(p_after bigint, p_limit integer, p_by text) RETURNS TABLE(placed integer, toolless integer, passed bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  lost record;
  found_ int := 0;
begin
  placed := 0;
  toolless := 0;
  for lost in
    -- Where somebody has to approve, nobody has, as far as we know: policy version 0 permits nothing, and is decided again.
    select u.seq, i.tenant_id, i.ordering_key, i.created_at, i.expires_at, case when t.requires_approval then 0 else t.policy_version end as policy_version,
      t.contract_id, t.settle, w.receiver_id, w.lane
    from outbox.unplaced(p_after, p_limit) u join outbox.intent i on i.seq = u.seq left join outbox.tool t on t.name = i.tool
    left join lateral outbox.place_of(u.seq) w on true
    order by u.seq
  loop
    found_ := found_ + 1;
    passed := lost.seq;
    if lost.receiver_id is null then
      toolless := toolless + 1;
      continue;
    end if;
    insert into outbox.pending (receiver_id, lane, seq, state, attempt, fence, begun_at, first_sent_at, resend_until, unresolved_at, next_at, ord,
        expires_at, policy_version, contract_id, cause)
      select lost.receiver_id, lost.lane, lost.seq, 'unknown', 1, 0, outbox.now(), lost.created_at, lost.created_at, lost.created_at,
        outbox.now(), outbox.ordering_hash(lost.tenant_id, lost.ordering_key), lost.expires_at, lost.policy_version, lost.contract_id, 'unplaced'
      where not exists (select from outbox.outcome o where o.seq = lost.seq) -- another repair placed it, and it has ended
      on conflict do nothing;
    continue when not found;
    perform outbox.doubt_upsert(lost.seq, lost.receiver_id, lost.lane, 1, outbox.now(), lost.settle, 'look', outbox.now(), false, false, null);
    placed := placed + 1;
  end loop;
  if found_ < p_limit then
    passed := null;
  end if;
  if placed > 0 then
    perform outbox.record_act('repair', placed || ' operations', p_by, 'intents that no trigger had placed');
  end if;
  return next;
end $$;
CREATE TABLE outbox.tool (
    name text NOT NULL,
    receiver_id integer NOT NULL,
    lanes integer NOT NULL,
    contract_id integer NOT NULL,
    requires_approval boolean DEFAULT false NOT NULL,
    policy_version integer DEFAULT 1 NOT NULL,
    retention interval DEFAULT '00:00:00'::interval NOT NULL,
    key_forever boolean DEFAULT false NOT NULL,
    margin interval DEFAULT '00:00:00'::interval NOT NULL,
    reach interval NOT NULL,
    deadline interval NOT NULL,
    settle interval,
    person_settle interval DEFAULT '01:00:00'::interval NOT NULL,
    identity_retention interval,
    repeat_safe boolean DEFAULT false NOT NULL,
    resend_safe boolean DEFAULT false NOT NULL,
    stores_key_on_execution boolean DEFAULT false NOT NULL,
    lands_late boolean DEFAULT false NOT NULL,
    applied_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    applied_by text DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT tool_name_check CHECK ((name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'::text))
);
CREATE FUNCTION outbox.resend_open(p outbox.pending, t outbox.tool) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
  select outbox.now() + t.reach < least(p.resend_until, case when t.key_forever then 'infinity' else p.first_sent_at + t.retention end) - t.margin $$;
CREATE FUNCTION outbox.resolve(p_tenant_id text, p_operation_id text, p_attempt integer, p_to outbox.state, p_external_id text, p_by text, p_evidence text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.retry(p_tenant_id text, p_operation_id text, p_by text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.revoke(p_tenant_id text, p_operation_id text, p_by text, p_reason text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.ring(p_receiver_id integer, p_lane integer, p_seq bigint) RETURNS void
    LANGUAGE sql
    AS $$
  select pg_notify(l.bell, l.receiver_id || '/' || l.lane || '/' || p_seq)
  from outbox.lane l where l.receiver_id = p_receiver_id and l.lane = p_lane and l.bell is not null $$;
CREATE FUNCTION outbox.seize(p_seq bigint, p_receiver_id integer, p_lane integer) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform from outbox.pending p
    where p.receiver_id = p_receiver_id and p.lane = p_lane and p.seq = p_seq for no key update skip locked;
  if not found then
    return false;
  end if;
  perform from outbox.doubt d where d.seq = p_seq for no key update skip locked;
  return found;
end $$;
CREATE FUNCTION outbox.seq_at(p_at timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  low bigint := coalesce((select min(i.seq) from outbox.intent i), 0) - 1;
  high bigint := coalesce((select max(i.seq) from outbox.intent i), 0);
  middle bigint;
  at record;
begin
  while low < high loop
    middle := low + (high - low) / 2;
    select i.seq, i.created_at into at from outbox.intent i where i.seq > middle order by i.seq limit 1;
    if found and at.created_at < p_at then
      low := at.seq;
    else
      high := middle;
    end if;
  end loop;
  return low;
end $$;
CREATE FUNCTION outbox.settle(p_seq bigint, p_attempt integer, p_to outbox.state, p_cause text, p_decided_by text, p_evidence_id bigint, p_external_id text, p_receipt text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return (select s.answer from outbox.settle_all(array[p_seq], array[p_attempt], array[p_to], array[p_cause], array[p_decided_by],
    array[p_evidence_id], array[p_external_id], array[p_receipt], null) s);
end $$;
CREATE FUNCTION outbox.settle_all(p_seqs bigint[], p_attempts integer[], p_tos outbox.state[], p_causes text[], p_decided_bys text[], p_evidence_ids bigint[], p_external_ids text[], p_receipts text[], p_looks outbox.evidence[]) RETURNS TABLE(seq bigint, evidence_id bigint, answer text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.settled(p_seq bigint) RETURNS TABLE(settled boolean, at timestamp with time zone, bound boolean)
    LANGUAGE sql STABLE
    AS $$
  select outbox.now() >= w.at, w.at, w.bound
  from (select case when d.settle_at is null then d.gave_up_at + t.person_settle when later.is_so then greatest(d.settle_at, d.gave_up_at + t.person_settle)
                    else d.settle_at end as at,
               d.settle_at is not null and not later.is_so as bound
        from outbox.doubt d join outbox.tool t on t.name = d.tool
        cross join lateral (select d.accepted
          or exists (select from outbox.contract c where c.contract_id = t.contract_id and c.body #>> '{config,contract,acceptance}' = 'async')
          or exists (select from outbox.evidence e where e.seq = d.seq and e.kind = 'late_answer' and starts_with(e.note, 'Accepted')) as is_so) later
        where d.seq = p_seq) w $$;
CREATE FUNCTION outbox.sweep_era(p_limit integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.sweep_orphans(p_older_than interval) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.swept() RETURNS boolean
    LANGUAGE sql STABLE
    AS $$ select n.swept_era = n.era from outbox.instance n $$;
CREATE FUNCTION outbox.take(p_receiver_id integer, p_lane integer, p_owner uuid, p_member_id uuid, p_ttl interval) RETURNS TABLE(fence bigint, made_unknown integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION outbox.timeline() RETURNS integer
    LANGUAGE sql
    AS $$ select case when not pg_is_in_recovery() then ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int end $$;
CREATE FUNCTION outbox.unblock(p_tenant_id text, p_operation_id text, p_by text, p_reason text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  held outbox.pending := outbox.held(p_tenant_id, p_operation_id);
  waiting int;
begin
  if held.ord is null then
    raise exception 'operation % has no ordering key: it blocks nothing', p_operation_id using errcode = 'OB409',
      hint = 'What an operation waits for says: outbox why ' || p_operation_id;
  end if;
  update outbox.pending p set passed = true where p.receiver_id = held.receiver_id and p.lane = held.lane and p.seq = held.seq;
  perform outbox.record_act('unblock', p_tenant_id || ' ' || p_operation_id, p_by, p_reason);
  perform outbox.ring(p.receiver_id, p.lane, p.seq) from outbox.pending p
    where p.receiver_id = held.receiver_id and p.ord = held.ord and p.seq > held.seq order by p.seq limit 1;
  select count(*) into waiting from outbox.pending p where p.receiver_id = held.receiver_id and p.ord = held.ord and p.seq > held.seq;
  return waiting;
end $$;
CREATE FUNCTION outbox.unplaced(p_after bigint, p_limit integer) RETURNS TABLE(seq bigint, tenant_id text, operation_id text, tool text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  select i.seq, i.tenant_id, i.operation_id, i.tool from (
    -- Nearly all have ended, which is asked first: to ask for the place of each one would take eight times as long.
    select n.seq, n.tenant_id, n.operation_id, n.tool from outbox.intent n
    where n.seq > p_after and not exists (select from outbox.outcome o where o.seq = n.seq and o.seq > p_after) order by n.seq offset 0) i
  where not exists (select from outbox.place_of(i.seq) w join outbox.pending p
                    on p.receiver_id = w.receiver_id and p.lane = w.lane and p.seq = i.seq)
  order by i.seq limit p_limit $$;
CREATE FUNCTION outbox.witness(p_seq bigint, p_attempt integer, p_fence bigint, p_kind text, p_verdict text, p_external_id text, p_receipt text, p_duplicates integer, p_status integer, p_excerpt text, p_request_id text, p_sent_at timestamp with time zone, p_source text, p_stated_by text, p_note text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE TABLE outbox.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE outbox.approval (
    approval_id bigint NOT NULL,
    seq bigint NOT NULL,
    digest bytea NOT NULL,
    decision text NOT NULL,
    policy_version integer NOT NULL,
    expires_at timestamp with time zone,
    decided_by text NOT NULL,
    decided_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    reason text,
    CONSTRAINT approval_decision_check CHECK ((decision = ANY (ARRAY['approved'::text, 'refused'::text, 'revoked'::text])))
);
ALTER TABLE outbox.approval ALTER COLUMN approval_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox.approval_approval_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE outbox.attempt (
    seq bigint NOT NULL,
    attempt integer NOT NULL,
    fence bigint NOT NULL,
    owner uuid,
    cause text NOT NULL,
    contract_id integer,
    sent_key uuid,
    wire_digest bytea,
    started_at timestamp with time zone,
    ended_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    status integer,
    excerpt text,
    request_id text,
    peer text,
    withdrawn boolean DEFAULT false NOT NULL,
    CONSTRAINT attempt_cause CHECK (outbox.is_cause(cause)),
    CONSTRAINT attempt_excerpt_check CHECK ((octet_length(excerpt) <= 4096)),
    CONSTRAINT attempt_request_id_check CHECK ((octet_length(request_id) <= 300))
);
CREATE TABLE outbox.outcome (
    seq bigint NOT NULL,
    xid xid8 DEFAULT outbox.feed_xid() NOT NULL,
    ended_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    from_state outbox.state NOT NULL,
    state outbox.state NOT NULL,
    fence bigint,
    owner uuid,
    first_sent_at timestamp with time zone,
    started_at timestamp with time zone,
    sent_key uuid,
    approval_id bigint,
    attempt integer NOT NULL,
    contract_id integer,
    policy_version integer,
    throttled integer DEFAULT 0 NOT NULL,
    not_sent integer DEFAULT 0 NOT NULL,
    status integer,
    cause text,
    wire_digest bytea,
    excerpt text,
    request_id text,
    peer text,
    receipt text,
    external_id text,
    decided_by text,
    evidence_id bigint,
    CONSTRAINT outcome_cause CHECK (outbox.is_cause(cause)),
    CONSTRAINT outcome_excerpt_check CHECK ((octet_length(excerpt) <= 4096)),
    CONSTRAINT outcome_external_id_check CHECK ((octet_length(external_id) <= 500)),
    CONSTRAINT outcome_move_is_legal CHECK ((((from_state = 'executing'::outbox.state) AND (state = ANY (ARRAY['succeeded'::outbox.state, 'rejected'::outbox.state]))) OR ((from_state = 'unknown'::outbox.state) AND (state = ANY (ARRAY['succeeded'::outbox.state, 'rejected'::outbox.state]))) OR ((from_state = ANY (ARRAY['proposed'::outbox.state, 'authorized'::outbox.state])) AND (state = 'rejected'::outbox.state)))),
    CONSTRAINT outcome_receipt_check CHECK ((octet_length(receipt) <= 8192)),
    CONSTRAINT outcome_request_id_check CHECK ((octet_length(request_id) <= 300)),
    CONSTRAINT rejection_has_a_cause CHECK (((state <> 'rejected'::outbox.state) OR (cause IS NOT NULL)))
);
CREATE VIEW outbox.attempt_log AS
 SELECT a.seq,
    a.attempt,
    a.fence,
    a.owner,
    a.cause,
    a.contract_id,
    a.sent_key,
    a.wire_digest,
    a.started_at,
    a.ended_at,
    a.status,
    a.excerpt,
    a.request_id,
    a.peer
   FROM outbox.attempt a
UNION ALL
 SELECT o.seq,
    o.attempt,
    o.fence,
    o.owner,
    COALESCE(o.cause, (o.state)::text) AS cause,
    o.contract_id,
    o.sent_key,
    o.wire_digest,
    o.started_at,
    o.ended_at,
    o.status,
    COALESCE(o.excerpt, o.receipt) AS excerpt,
    o.request_id,
    o.peer
   FROM outbox.outcome o
  WHERE (o.from_state = 'executing'::outbox.state);
CREATE TABLE outbox.audit (
    audit_id bigint NOT NULL,
    at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    act text NOT NULL,
    target text NOT NULL,
    acted_by text NOT NULL,
    reason text,
    CONSTRAINT audit_reason_check CHECK ((octet_length(reason) <= 4096))
);
ALTER TABLE outbox.audit ALTER COLUMN audit_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox.audit_audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE outbox.cause (
    name text NOT NULL
);
CREATE TABLE outbox.chore (
    name text NOT NULL,
    next_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    took interval DEFAULT '00:00:00'::interval NOT NULL,
    CONSTRAINT chore_took_check CHECK (((took >= '00:00:00'::interval) AND (took <= '1 day'::interval)))
);
CREATE TABLE outbox.contract (
    contract_id integer NOT NULL,
    digest bytea NOT NULL,
    tool text NOT NULL,
    version integer NOT NULL,
    body jsonb NOT NULL,
    applied_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    applied_by text DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT contract_digest_check CHECK ((octet_length(digest) = 32))
);
ALTER TABLE outbox.contract ALTER COLUMN contract_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox.contract_contract_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE outbox.tombstone (
    tenant_id text NOT NULL,
    operation_id text NOT NULL,
    seq bigint NOT NULL,
    tool text NOT NULL,
    principal_id text NOT NULL,
    digest bytea NOT NULL,
    state outbox.state NOT NULL,
    cause text,
    external_id text,
    receipt_digest bytea,
    ended_at timestamp with time zone NOT NULL,
    purged_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    CONSTRAINT tombstone_state_check CHECK ((state = ANY (ARRAY['succeeded'::outbox.state, 'rejected'::outbox.state])))
);
CREATE VIEW outbox.evidence_against AS
 SELECT e.seq,
    e.evidence_id,
    (w.state IS NOT NULL) AS ended,
    outbox.against(w.state, w.external_id, e.*) AS what
   FROM (((outbox.evidence e
     LEFT JOIN outbox.outcome o ON ((o.seq = e.seq)))
     LEFT JOIN outbox.tombstone s ON ((s.seq = e.seq)))
     CROSS JOIN LATERAL ( SELECT COALESCE(o.state, s.state) AS state,
            COALESCE(o.external_id, s.external_id) AS external_id) w);
CREATE TABLE outbox.objection (
    seq bigint NOT NULL,
    evidence_id bigint NOT NULL
);
CREATE VIEW outbox.contradiction AS
 SELECT s.seq,
    s.evidence_id,
    a.what
   FROM (outbox.objection s
     CROSS JOIN LATERAL ( SELECT x.what
           FROM outbox.evidence_against x
          WHERE (x.evidence_id = s.evidence_id)
         OFFSET 0) a)
  WHERE (a.what IS NOT NULL);
CREATE TABLE outbox.doubt (
    seq bigint NOT NULL,
    receiver_id integer NOT NULL,
    lane integer NOT NULL,
    tenant_id text NOT NULL,
    tool text NOT NULL,
    attempt integer NOT NULL,
    since timestamp with time zone DEFAULT outbox.now() NOT NULL,
    last_exposed_at timestamp with time zone,
    gave_up_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    settle_at timestamp with time zone,
    step outbox.step DEFAULT 'look'::outbox.step NOT NULL,
    next_at timestamp with time zone NOT NULL,
    reads integer DEFAULT 0 NOT NULL,
    last_read_at timestamp with time zone,
    accepted boolean DEFAULT false NOT NULL,
    no_resend boolean DEFAULT false NOT NULL,
    needs_person boolean DEFAULT false NOT NULL,
    reason text,
    claimed_by uuid,
    claimed_until timestamp with time zone,
    CONSTRAINT doubt_reads_check CHECK ((reads >= 0))
);
ALTER TABLE outbox.evidence ALTER COLUMN evidence_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox.evidence_evidence_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE outbox.instance (
    only_row boolean DEFAULT true NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    system_identifier bigint NOT NULL,
    timeline integer NOT NULL,
    database_oid oid NOT NULL,
    era bigint DEFAULT 1 NOT NULL,
    swept_era bigint DEFAULT 1 NOT NULL,
    era_seq bigint DEFAULT 0 NOT NULL,
    schema_version integer NOT NULL,
    min_daemon integer NOT NULL,
    feed_offset bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    CONSTRAINT instance_check CHECK ((swept_era <= era)),
    CONSTRAINT instance_era_check CHECK (((era >= 1) AND (era <= 4194303))),
    CONSTRAINT instance_feed_offset_check CHECK ((feed_offset >= 0)),
    CONSTRAINT instance_only_row_check CHECK (only_row)
);
ALTER TABLE outbox.intent ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox.intent_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE outbox.landing (
    receiver_id integer NOT NULL,
    ord bigint NOT NULL,
    seq bigint NOT NULL,
    until timestamp with time zone NOT NULL
);
CREATE TABLE outbox.lane (
    receiver_id integer NOT NULL,
    lane integer NOT NULL,
    owner uuid,
    member_id uuid,
    fence bigint NOT NULL,
    receiver_fence bigint DEFAULT 0 NOT NULL,
    expires_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    renewed_at timestamp with time zone,
    idle boolean DEFAULT false NOT NULL,
    bell text,
    crowd text[] DEFAULT '{}'::text[] NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE outbox.member (
    member_id uuid NOT NULL,
    kind text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    receivers text[],
    started_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    seen_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    left_at timestamp with time zone,
    counters jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT member_kind_check CHECK ((kind = ANY (ARRAY['relay'::text, 'reconciler'::text])))
)
WITH (fillfactor='50');
CREATE SEQUENCE outbox.must_be_seen
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;
CREATE TABLE outbox.receiver (
    receiver_id integer NOT NULL,
    name text NOT NULL,
    transport text NOT NULL,
    lanes integer NOT NULL,
    doorbell boolean DEFAULT true NOT NULL,
    config jsonb NOT NULL,
    circuit_opened_at timestamp with time zone,
    circuit_reason text,
    circuit_retry_at timestamp with time zone,
    circuit_probes integer DEFAULT 0 NOT NULL,
    applied_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    applied_by text DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT receiver_lanes_check CHECK (((lanes >= 1) AND (lanes <= 1024))),
    CONSTRAINT receiver_name_check CHECK ((name ~ '^[a-z][a-z0-9_-]{0,62}$'::text))
);
CREATE VIEW outbox.operation AS
 SELECT i.seq,
    i.tenant_id,
    i.operation_id,
    COALESCE(o.state, p.state) AS state,
        CASE
            WHEN (o.seq IS NULL) THEN p.cause
            ELSE o.cause
        END AS cause,
    i.tool,
    i.resource,
    i.arguments,
    i.content_type,
    i.expected_version,
    i.ordering_key,
    i.principal_id,
    i.on_behalf_of,
    i.compensates,
    i.revision_of,
    i.written_by,
    i.digest,
    i.traceparent,
    i.created_at,
    i.not_before,
    COALESCE(p.expires_at, i.expires_at) AS expires_at,
    i.redacted_at,
    t.receiver_id,
    r.name AS receiver,
    COALESCE(p.lane, outbox.lane_of(r.lanes, i.tenant_id, COALESCE(i.ordering_key, i.operation_id))) AS lane,
    COALESCE(o.attempt, p.attempt) AS attempt,
    COALESCE(o.fence, p.fence) AS fence,
    COALESCE(o.sent_key, p.sent_key) AS sent_key,
    COALESCE(o.wire_digest, p.wire_digest) AS wire_digest,
    COALESCE(o.contract_id, p.contract_id) AS contract_id,
    t.contract_id AS contract_in_force,
    COALESCE(o.approval_id, p.approval_id) AS approval_id,
    COALESCE(o.policy_version, p.policy_version) AS policy_version,
    COALESCE(o.first_sent_at, p.first_sent_at) AS first_sent_at,
    p.resend_until,
    p.unresolved_at,
    COALESCE(o.started_at, p.begun_at) AS begun_at,
    p.step,
    p.next_at,
    p.ord,
    p.passed,
    COALESCE(o.throttled, p.throttled) AS throttled,
    COALESCE(o.not_sent, p.not_sent) AS not_sent,
    o.from_state,
    o.ended_at,
    o.status,
    o.excerpt,
    o.request_id,
    o.peer,
    o.receipt,
    o.external_id,
    o.decided_by,
    o.evidence_id
   FROM ((((outbox.intent i
     LEFT JOIN outbox.outcome o ON ((o.seq = i.seq)))
     LEFT JOIN outbox.tool t ON ((t.name = i.tool)))
     LEFT JOIN outbox.receiver r ON ((r.receiver_id = t.receiver_id)))
     LEFT JOIN outbox.pending p ON (((p.receiver_id = r.receiver_id) AND (p.lane = outbox.lane_of(r.lanes, i.tenant_id, COALESCE(i.ordering_key, i.operation_id))) AND (p.seq = i.seq))));
CREATE TABLE outbox.pause (
    kind text NOT NULL,
    name text NOT NULL,
    paused_at timestamp with time zone DEFAULT outbox.now() NOT NULL,
    paused_by text NOT NULL,
    reason text NOT NULL,
    CONSTRAINT pause_kind_check CHECK ((kind = ANY (ARRAY['receiver'::text, 'tool'::text, 'tenant'::text])))
);
ALTER TABLE outbox.receiver ALTER COLUMN receiver_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox.receiver_receiver_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE VIEW outbox.stuck AS
 SELECT seq,
    tenant_id,
    tool,
    receiver_id,
    lane,
    attempt,
    since,
    settle_at,
    step,
    next_at,
    reads,
    needs_person,
    reason,
    (outbox.now() - since) AS age
   FROM outbox.doubt d;
ALTER TABLE ONLY outbox.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY outbox.approval
    ADD CONSTRAINT approval_pkey PRIMARY KEY (approval_id);
ALTER TABLE ONLY outbox.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (seq, attempt);
ALTER TABLE ONLY outbox.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (audit_id);
ALTER TABLE ONLY outbox.cause
    ADD CONSTRAINT cause_pkey PRIMARY KEY (name);
ALTER TABLE ONLY outbox.chore
    ADD CONSTRAINT chore_pkey PRIMARY KEY (name);
ALTER TABLE ONLY outbox.contract
    ADD CONSTRAINT contract_contract_id_key UNIQUE (contract_id);
ALTER TABLE ONLY outbox.contract
    ADD CONSTRAINT contract_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY outbox.contract
    ADD CONSTRAINT contract_tool_version_key UNIQUE (tool, version);
ALTER TABLE ONLY outbox.doubt
    ADD CONSTRAINT doubt_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY outbox.evidence
    ADD CONSTRAINT evidence_pkey PRIMARY KEY (evidence_id);
ALTER TABLE ONLY outbox.instance
    ADD CONSTRAINT instance_pkey PRIMARY KEY (only_row);
ALTER TABLE outbox.intent
    ADD CONSTRAINT intent_is_sound CHECK (outbox.intent_is_sound(intent.*));
ALTER TABLE ONLY outbox.intent
    ADD CONSTRAINT intent_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY outbox.intent
    ADD CONSTRAINT intent_tenant_id_operation_id_key UNIQUE (tenant_id, operation_id);
ALTER TABLE ONLY outbox.landing
    ADD CONSTRAINT landing_pkey PRIMARY KEY (receiver_id, ord, seq);
ALTER TABLE ONLY outbox.lane
    ADD CONSTRAINT lane_pkey PRIMARY KEY (receiver_id, lane);
ALTER TABLE ONLY outbox.lane
    ADD CONSTRAINT lane_receiver_id_lane_fence_key UNIQUE (receiver_id, lane, fence);
ALTER TABLE ONLY outbox.member
    ADD CONSTRAINT member_pkey PRIMARY KEY (member_id);
ALTER TABLE ONLY outbox.objection
    ADD CONSTRAINT objection_pkey PRIMARY KEY (seq, evidence_id);
ALTER TABLE ONLY outbox.outcome
    ADD CONSTRAINT outcome_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY outbox.pause
    ADD CONSTRAINT pause_pkey PRIMARY KEY (kind, name);
ALTER TABLE outbox.pending
    ADD CONSTRAINT pending_is_sound CHECK (outbox.pending_is_sound(pending.*));
ALTER TABLE ONLY outbox.pending
    ADD CONSTRAINT pending_pkey PRIMARY KEY (receiver_id, lane, seq);
ALTER TABLE ONLY outbox.receiver
    ADD CONSTRAINT receiver_name_key UNIQUE (name);
ALTER TABLE ONLY outbox.receiver
    ADD CONSTRAINT receiver_pkey PRIMARY KEY (receiver_id);
ALTER TABLE ONLY outbox.tombstone
    ADD CONSTRAINT tombstone_pkey PRIMARY KEY (tenant_id, operation_id);
ALTER TABLE ONLY outbox.tool
    ADD CONSTRAINT tool_pkey PRIMARY KEY (name);
CREATE INDEX approval_decided_at ON outbox.approval USING btree (decided_at);
CREATE INDEX approval_seq ON outbox.approval USING btree (seq);
CREATE INDEX audit_at ON outbox.audit USING btree (at);
CREATE INDEX doubt_due ON outbox.doubt USING btree (receiver_id, next_at);
CREATE INDEX doubt_tenant ON outbox.doubt USING btree (tenant_id, seq);
CREATE INDEX evidence_observed_at ON outbox.evidence USING brin (observed_at);
CREATE INDEX evidence_seq ON outbox.evidence USING btree (seq);
CREATE INDEX evidence_statement ON outbox.evidence USING btree (observed_at) WHERE (kind = 'statement'::text);
CREATE INDEX intent_created_at ON outbox.intent USING brin (created_at);
CREATE INDEX intent_resource ON outbox.intent USING btree (resource, seq) WHERE (resource IS NOT NULL);
CREATE INDEX outcome_cancelled ON outbox.outcome USING btree (ended_at) WHERE (cause = 'cancelled'::text);
CREATE INDEX outcome_ended_at ON outbox.outcome USING brin (ended_at);
CREATE INDEX outcome_external_id ON outbox.outcome USING btree (hashtextextended(external_id, (0)::bigint)) WHERE (external_id IS NOT NULL);
CREATE INDEX outcome_xid ON outbox.outcome USING btree (xid, seq);
CREATE INDEX pending_expiry ON outbox.pending USING btree (expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX pending_order ON outbox.pending USING btree (receiver_id, ord, seq) WHERE (ord IS NOT NULL);
CREATE INDEX tombstone_age ON outbox.tombstone USING btree (tool, ended_at);
CREATE INDEX tombstone_seq ON outbox.tombstone USING btree (seq);
CREATE TRIGGER compared AFTER INSERT ON outbox.evidence REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION outbox.compare_evidence();
CREATE TRIGGER compared AFTER INSERT ON outbox.outcome FOR EACH ROW WHEN (((new.attempt > 1) OR (new.from_state <> 'executing'::outbox.state))) EXECUTE FUNCTION outbox.compare_end();
CREATE TRIGGER has_lanes BEFORE INSERT OR UPDATE OF receiver_id, lanes ON outbox.tool FOR EACH ROW EXECUTE FUNCTION outbox.inherit_lanes();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON outbox.approval FOR EACH ROW EXECUTE FUNCTION outbox.refuse_change('purge');
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON outbox.attempt FOR EACH ROW EXECUTE FUNCTION outbox.refuse_change('purge', 'redact');
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON outbox.audit FOR EACH ROW EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON outbox.contract FOR EACH ROW EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON outbox.evidence FOR EACH ROW EXECUTE FUNCTION outbox.refuse_change('purge', 'redact');
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON outbox.intent FOR EACH ROW EXECUTE FUNCTION outbox.refuse_change('purge', 'redact');
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON outbox.outcome FOR EACH ROW EXECUTE FUNCTION outbox.refuse_change('purge', 'redact');
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON outbox.tombstone FOR EACH ROW EXECUTE FUNCTION outbox.refuse_change('forget');
CREATE TRIGGER lanes_are_fixed BEFORE UPDATE OF lanes ON outbox.receiver FOR EACH ROW WHEN ((old.lanes IS DISTINCT FROM new.lanes)) EXECUTE FUNCTION outbox.refuse_lanes();
CREATE TRIGGER moves BEFORE UPDATE OF state ON outbox.pending FOR EACH ROW WHEN (((old.state IS DISTINCT FROM new.state) AND ((((((((old.state <> 'proposed'::outbox.state) OR (new.state <> 'authorized'::outbox.state)) AND ((old.state <> 'authorized'::outbox.state) OR (new.state <> 'executing'::outbox.state))) AND ((old.state <> 'authorized'::outbox.state) OR (new.state <> 'proposed'::outbox.state))) AND ((old.state <> 'executing'::outbox.state) OR (new.state <> 'unknown'::outbox.state))) AND ((old.state <> 'executing'::outbox.state) OR (new.state <> 'authorized'::outbox.state))) AND ((old.state <> 'unknown'::outbox.state) OR (new.state <> 'authorized'::outbox.state))) AND ((old.state <> 'unknown'::outbox.state) OR (new.state <> 'executing'::outbox.state))))) EXECUTE FUNCTION outbox.refuse_move();
CREATE TRIGGER place AFTER INSERT ON outbox.intent REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION outbox.place();
CREATE TRIGGER place_is_fixed BEFORE UPDATE ON outbox.pending FOR EACH ROW WHEN (((((old.receiver_id IS DISTINCT FROM new.receiver_id) OR (old.lane IS DISTINCT FROM new.lane)) OR (old.seq IS DISTINCT FROM new.seq)) OR (old.ord IS DISTINCT FROM new.ord))) EXECUTE FUNCTION outbox.refuse_identity_change();
CREATE TRIGGER stays_where_it_is BEFORE UPDATE OF name, receiver_id ON outbox.tool FOR EACH ROW WHEN (((old.name IS DISTINCT FROM new.name) OR (old.receiver_id IS DISTINCT FROM new.receiver_id))) EXECUTE FUNCTION outbox.refuse_displacement();
CREATE TRIGGER stays_while_needed BEFORE DELETE ON outbox.tool FOR EACH ROW EXECUTE FUNCTION outbox.refuse_displacement();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON outbox.approval FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON outbox.attempt FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON outbox.audit FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON outbox.contract FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON outbox.evidence FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON outbox.intent FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON outbox.outcome FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON outbox.pending FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON outbox.tombstone FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();
ALTER TABLE ONLY outbox.lane
    ADD CONSTRAINT lane_receiver_id_fkey FOREIGN KEY (receiver_id) REFERENCES outbox.receiver(receiver_id);
ALTER TABLE ONLY outbox.tool
    ADD CONSTRAINT tool_contract_id_fkey FOREIGN KEY (contract_id) REFERENCES outbox.contract(contract_id);
ALTER TABLE ONLY outbox.tool
    ADD CONSTRAINT tool_receiver_id_fkey FOREIGN KEY (receiver_id) REFERENCES outbox.receiver(receiver_id);
GRANT USAGE ON SCHEMA outbox TO outbox_writer;
GRANT USAGE ON SCHEMA outbox TO outbox_relay;
GRANT USAGE ON SCHEMA outbox TO outbox_reconciler;
GRANT USAGE ON SCHEMA outbox TO outbox_approver;
GRANT USAGE ON SCHEMA outbox TO outbox_operator;
GRANT USAGE ON SCHEMA outbox TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.abandon(p_receiver_id integer, p_lane integer, p_below_fence bigint, p_begun_before timestamp with time zone, p_cause text) FROM PUBLIC;
GRANT SELECT,DELETE ON TABLE outbox.pending TO outbox_relay;
GRANT SELECT ON TABLE outbox.pending TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.pending TO outbox_approver;
GRANT SELECT ON TABLE outbox.pending TO outbox_operator;
GRANT SELECT ON TABLE outbox.pending TO outbox_viewer;
GRANT UPDATE(next_at) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(step) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(state) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(attempt) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(fence) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(begun_at) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(first_sent_at) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(resend_until) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(unresolved_at) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(contract_id) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(throttled) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(not_sent) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(sent_key) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(wire_digest) ON TABLE outbox.pending TO outbox_relay;
GRANT UPDATE(cause) ON TABLE outbox.pending TO outbox_relay;
REVOKE ALL ON FUNCTION outbox.admit_effect(held outbox.pending, p_attempt integer, p_fence bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.now() FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.now() TO outbox_writer;
GRANT ALL ON FUNCTION outbox.now() TO outbox_relay;
GRANT ALL ON FUNCTION outbox.now() TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.now() TO outbox_approver;
GRANT ALL ON FUNCTION outbox.now() TO outbox_operator;
GRANT ALL ON FUNCTION outbox.now() TO outbox_viewer;
GRANT SELECT ON TABLE outbox.evidence TO outbox_relay;
GRANT SELECT ON TABLE outbox.evidence TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.evidence TO outbox_approver;
GRANT SELECT ON TABLE outbox.evidence TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.against(state outbox.state, external_id text, e outbox.evidence) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.against(state outbox.state, external_id text, e outbox.evidence) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.against(state outbox.state, external_id text, e outbox.evidence) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.against(state outbox.state, external_id text, e outbox.evidence) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.against(state outbox.state, external_id text, e outbox.evidence) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.against(state outbox.state, external_id text, e outbox.evidence) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.against(state outbox.state, external_id text, e outbox.evidence) TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.allow_resend(p_seq bigint, p_attempt integer, p_at timestamp with time zone, p_look_again_at timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.allow_resend(p_seq bigint, p_attempt integer, p_at timestamp with time zone, p_look_again_at timestamp with time zone) TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.approve(p_tenant_id text, p_operation_id text, p_digest bytea, p_by text, p_expires_at timestamp with time zone, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.approve(p_tenant_id text, p_operation_id text, p_digest bytea, p_by text, p_expires_at timestamp with time zone, p_reason text) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.approve(p_tenant_id text, p_operation_id text, p_digest bytea, p_by text, p_expires_at timestamp with time zone, p_reason text) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.as_tenant(p_tenant_id text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.as_tenant(p_tenant_id text) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.as_tenant(p_tenant_id text) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.cancel(p_tenant_id text, p_operation_id text, p_by text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.cancel(p_tenant_id text, p_operation_id text, p_by text) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.check_tenant(p_tenant_id text) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.chore_took(p_name text, p_took interval) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.chore_took(p_name text, p_took interval) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.chore_took(p_name text, p_took interval) TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.claim_chore(p_name text, p_every interval) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.claim_chore(p_name text, p_every interval) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.claim_chore(p_name text, p_every interval) TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.compare_end() FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.compare_evidence() FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.database_oid() FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.database_oid() TO outbox_relay;
GRANT ALL ON FUNCTION outbox.database_oid() TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.lp(v text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.lp(v text) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.lp(v text) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.lp(v text) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.lp(v text) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.lp(v text) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.lp(v text) TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.digest_of(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.digest_of(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.digest_of(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.digest_of(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.digest_of(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.digest_of(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.digest_of(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.doubt_upsert(p_seq bigint, p_receiver_id integer, p_lane integer, p_attempt integer, p_exposed_at timestamp with time zone, p_settle interval, p_step outbox.step, p_next_at timestamp with time zone, p_accepted boolean, p_no_resend boolean, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.doubt_upsert(p_seq bigint, p_receiver_id integer, p_lane integer, p_attempt integer, p_exposed_at timestamp with time zone, p_settle interval, p_step outbox.step, p_next_at timestamp with time zone, p_accepted boolean, p_no_resend boolean, p_reason text) TO outbox_relay;
REVOKE ALL ON FUNCTION outbox.end_unexposed(held outbox.pending, p_cause text, p_by text) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.enter_era(p_system_identifier bigint, p_timeline integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.enter_era(p_system_identifier bigint, p_timeline integer) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.enter_era(p_system_identifier bigint, p_timeline integer) TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.expedite(p_tenant_id text, p_operation_id text, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.expedite(p_tenant_id text, p_operation_id text, p_by text, p_reason text) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.expire(p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.expire(p_limit integer) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.expire(p_limit integer) TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.feed(p_tenant_id text, p_after text, p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.feed(p_tenant_id text, p_after text, p_limit integer) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.feed(p_tenant_id text, p_after text, p_limit integer) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.feed_of_all(p_after text, p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.feed_of_all(p_after text, p_limit integer) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.feed_rows(p_tenant_id text, p_after text, p_limit integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.feed_xid() FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.feed_xid() TO outbox_relay;
REVOKE ALL ON FUNCTION outbox.fence_of(era bigint, counter bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.fence_of(era bigint, counter bigint) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.forget(p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.forget(p_limit integer) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.forget(p_limit integer) TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.get_operation(p_tenant_id text, p_operation_id text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.get_operation(p_tenant_id text, p_operation_id text) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.get_operation(p_tenant_id text, p_operation_id text) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.get_operation(p_tenant_id text, p_operation_id text) TO outbox_approver;
REVOKE ALL ON FUNCTION outbox.held(p_tenant_id text, p_operation_id text) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.hold_writers() FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.hold_writers() TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.identity_fault(tenant_id text, operation_id text, principal_id text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.identity_fault(tenant_id text, operation_id text, principal_id text) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.identity_fault(tenant_id text, operation_id text, principal_id text) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.identity_fault(tenant_id text, operation_id text, principal_id text) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.identity_fault(tenant_id text, operation_id text, principal_id text) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.identity_fault(tenant_id text, operation_id text, principal_id text) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.identity_fault(tenant_id text, operation_id text, principal_id text) TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.inherit_lanes() FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.intent_digest(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.intent_digest(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.intent_digest(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.intent_digest(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.intent_digest(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.intent_digest(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.intent_digest(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_viewer;
GRANT SELECT ON TABLE outbox.intent TO outbox_relay;
GRANT SELECT ON TABLE outbox.intent TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.intent TO outbox_approver;
GRANT SELECT ON TABLE outbox.intent TO outbox_operator;
GRANT INSERT(tenant_id) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(operation_id) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(tool) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(resource) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(arguments) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(content_type) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(body) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(expected_version) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(ordering_key) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(principal_id) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(expires_at) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(not_before) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(compensates) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(revision_of) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(on_behalf_of) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(traceparent) ON TABLE outbox.intent TO outbox_writer;
GRANT INSERT(digest) ON TABLE outbox.intent TO outbox_writer;
REVOKE ALL ON FUNCTION outbox.intent_is_sound(i outbox.intent) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.intent_is_sound(i outbox.intent) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.intent_is_sound(i outbox.intent) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.intent_is_sound(i outbox.intent) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.intent_is_sound(i outbox.intent) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.intent_is_sound(i outbox.intent) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.intent_is_sound(i outbox.intent) TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.is_cause(name text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.is_cause(name text) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.is_cause(name text) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.is_cause(name text) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.is_cause(name text) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.is_cause(name text) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.is_cause(name text) TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.keep_feed_order() FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.ordering_hash(tenant_id text, key text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.ordering_hash(tenant_id text, key text) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.ordering_hash(tenant_id text, key text) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.ordering_hash(tenant_id text, key text) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.ordering_hash(tenant_id text, key text) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.ordering_hash(tenant_id text, key text) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.ordering_hash(tenant_id text, key text) TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.lane_of(lanes integer, tenant_id text, key text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.lane_of(lanes integer, tenant_id text, key text) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.lane_of(lanes integer, tenant_id text, key text) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.lane_of(lanes integer, tenant_id text, key text) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.lane_of(lanes integer, tenant_id text, key text) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.lane_of(lanes integer, tenant_id text, key text) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.lane_of(lanes integer, tenant_id text, key text) TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.must_be_seen() FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.option_fault(i outbox.intent) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.option_fault(i outbox.intent) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.option_fault(i outbox.intent) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.option_fault(i outbox.intent) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.option_fault(i outbox.intent) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.option_fault(i outbox.intent) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.option_fault(i outbox.intent) TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.pause_add(p_kind text, p_name text, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.pause_add(p_kind text, p_name text, p_by text, p_reason text) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.pause_add(p_kind text, p_name text, p_by text, p_reason text) TO outbox_relay;
REVOKE ALL ON FUNCTION outbox.pause_end(p_kind text, p_name text, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.pause_end(p_kind text, p_name text, p_by text, p_reason text) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.payload_fault(digest bytea, redacted_at timestamp with time zone, tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.payload_fault(digest bytea, redacted_at timestamp with time zone, tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.payload_fault(digest bytea, redacted_at timestamp with time zone, tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.payload_fault(digest bytea, redacted_at timestamp with time zone, tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.payload_fault(digest bytea, redacted_at timestamp with time zone, tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.payload_fault(digest bytea, redacted_at timestamp with time zone, tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.payload_fault(digest bytea, redacted_at timestamp with time zone, tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text, content_type text, body bytea) TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.pending_fault(p outbox.pending) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.pending_fault(p outbox.pending) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.pending_fault(p outbox.pending) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.pending_fault(p outbox.pending) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.pending_fault(p outbox.pending) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.pending_fault(p outbox.pending) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.pending_fault(p outbox.pending) TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.pending_is_sound(p outbox.pending) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.pending_is_sound(p outbox.pending) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.pending_is_sound(p outbox.pending) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.pending_is_sound(p outbox.pending) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.pending_is_sound(p outbox.pending) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.pending_is_sound(p outbox.pending) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.pending_is_sound(p outbox.pending) TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.permitted(held outbox.pending) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.place() FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.place_of(p_seq bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.place_of(p_seq bigint) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.place_of(p_seq bigint) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.place_of(p_seq bigint) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.proven(p_seq bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.purge(p_after bigint, p_upto bigint, p_before timestamp with time zone, p_limit integer, p_by text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.purge(p_after bigint, p_upto bigint, p_before timestamp with time zone, p_limit integer, p_by text) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.purgeable(p_after bigint, p_upto bigint, p_before timestamp with time zone, p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.purgeable(p_after bigint, p_upto bigint, p_before timestamp with time zone, p_limit integer) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.put(p_tenant_id text, p_operation_id text, p_tool text, p_principal_id text, p_arguments text, p_digest bytea, p_resource text, p_expected_version text, p_ordering_key text, p_not_before timestamp with time zone, p_expires_at timestamp with time zone, p_compensates text, p_revision_of text, p_on_behalf_of text, p_traceparent text, p_content_type text, p_body bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.put(p_tenant_id text, p_operation_id text, p_tool text, p_principal_id text, p_arguments text, p_digest bytea, p_resource text, p_expected_version text, p_ordering_key text, p_not_before timestamp with time zone, p_expires_at timestamp with time zone, p_compensates text, p_revision_of text, p_on_behalf_of text, p_traceparent text, p_content_type text, p_body bytea) TO outbox_writer;
GRANT ALL ON FUNCTION outbox.put(p_tenant_id text, p_operation_id text, p_tool text, p_principal_id text, p_arguments text, p_digest bytea, p_resource text, p_expected_version text, p_ordering_key text, p_not_before timestamp with time zone, p_expires_at timestamp with time zone, p_compensates text, p_revision_of text, p_on_behalf_of text, p_traceparent text, p_content_type text, p_body bytea) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.record_act(p_act text, p_target text, p_by text, p_reason text) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.redact(p_tenant_id text, p_operation_id text, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.redact(p_tenant_id text, p_operation_id text, p_by text, p_reason text) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.redacted(v text) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.redecide(p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.redecide(p_limit integer) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.redecide(p_limit integer) TO outbox_reconciler;
GRANT ALL ON FUNCTION outbox.redecide(p_limit integer) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.refuse_change() FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.refuse_displacement() FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.refuse_identity_change() FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.refuse_lanes() FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.refuse_move() FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.refuse_purged(tenant_id text, operation_id text) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.refuse_tool(tool text) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.repair(p_after bigint, p_limit integer, p_by text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.repair(p_after bigint, p_limit integer, p_by text) TO outbox_operator;
GRANT SELECT ON TABLE outbox.tool TO outbox_relay;
GRANT SELECT ON TABLE outbox.tool TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.tool TO outbox_approver;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE outbox.tool TO outbox_operator;
GRANT SELECT ON TABLE outbox.tool TO outbox_viewer;
REVOKE ALL ON FUNCTION outbox.resend_open(p outbox.pending, t outbox.tool) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.resolve(p_tenant_id text, p_operation_id text, p_attempt integer, p_to outbox.state, p_external_id text, p_by text, p_evidence text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.resolve(p_tenant_id text, p_operation_id text, p_attempt integer, p_to outbox.state, p_external_id text, p_by text, p_evidence text) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.retry(p_tenant_id text, p_operation_id text, p_by text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.retry(p_tenant_id text, p_operation_id text, p_by text) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.revoke(p_tenant_id text, p_operation_id text, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.revoke(p_tenant_id text, p_operation_id text, p_by text, p_reason text) TO outbox_approver;
GRANT ALL ON FUNCTION outbox.revoke(p_tenant_id text, p_operation_id text, p_by text, p_reason text) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.ring(p_receiver_id integer, p_lane integer, p_seq bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.seize(p_seq bigint, p_receiver_id integer, p_lane integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.seize(p_seq bigint, p_receiver_id integer, p_lane integer) TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.seq_at(p_at timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.seq_at(p_at timestamp with time zone) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.settle(p_seq bigint, p_attempt integer, p_to outbox.state, p_cause text, p_decided_by text, p_evidence_id bigint, p_external_id text, p_receipt text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.settle(p_seq bigint, p_attempt integer, p_to outbox.state, p_cause text, p_decided_by text, p_evidence_id bigint, p_external_id text, p_receipt text) TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.settle_all(p_seqs bigint[], p_attempts integer[], p_tos outbox.state[], p_causes text[], p_decided_bys text[], p_evidence_ids bigint[], p_external_ids text[], p_receipts text[], p_looks outbox.evidence[]) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.settle_all(p_seqs bigint[], p_attempts integer[], p_tos outbox.state[], p_causes text[], p_decided_bys text[], p_evidence_ids bigint[], p_external_ids text[], p_receipts text[], p_looks outbox.evidence[]) TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.settled(p_seq bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.settled(p_seq bigint) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.sweep_era(p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.sweep_era(p_limit integer) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.sweep_era(p_limit integer) TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.sweep_orphans(p_older_than interval) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.sweep_orphans(p_older_than interval) TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.swept() FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox.take(p_receiver_id integer, p_lane integer, p_owner uuid, p_member_id uuid, p_ttl interval) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.take(p_receiver_id integer, p_lane integer, p_owner uuid, p_member_id uuid, p_ttl interval) TO outbox_relay;
REVOKE ALL ON FUNCTION outbox.timeline() FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.timeline() TO outbox_relay;
GRANT ALL ON FUNCTION outbox.timeline() TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.unblock(p_tenant_id text, p_operation_id text, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.unblock(p_tenant_id text, p_operation_id text, p_by text, p_reason text) TO outbox_operator;
REVOKE ALL ON FUNCTION outbox.unplaced(p_after bigint, p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.unplaced(p_after bigint, p_limit integer) TO outbox_operator;
GRANT ALL ON FUNCTION outbox.unplaced(p_after bigint, p_limit integer) TO outbox_reconciler;
REVOKE ALL ON FUNCTION outbox.witness(p_seq bigint, p_attempt integer, p_fence bigint, p_kind text, p_verdict text, p_external_id text, p_receipt text, p_duplicates integer, p_status integer, p_excerpt text, p_request_id text, p_sent_at timestamp with time zone, p_source text, p_stated_by text, p_note text) FROM PUBLIC;
GRANT ALL ON FUNCTION outbox.witness(p_seq bigint, p_attempt integer, p_fence bigint, p_kind text, p_verdict text, p_external_id text, p_receipt text, p_duplicates integer, p_status integer, p_excerpt text, p_request_id text, p_sent_at timestamp with time zone, p_source text, p_stated_by text, p_note text) TO outbox_relay;
GRANT ALL ON FUNCTION outbox.witness(p_seq bigint, p_attempt integer, p_fence bigint, p_kind text, p_verdict text, p_external_id text, p_receipt text, p_duplicates integer, p_status integer, p_excerpt text, p_request_id text, p_sent_at timestamp with time zone, p_source text, p_stated_by text, p_note text) TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.alembic_version TO outbox_approver;
GRANT SELECT ON TABLE outbox.alembic_version TO outbox_operator;
GRANT SELECT ON TABLE outbox.alembic_version TO outbox_viewer;
GRANT SELECT ON TABLE outbox.approval TO outbox_relay;
GRANT SELECT ON TABLE outbox.approval TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.approval TO outbox_approver;
GRANT SELECT ON TABLE outbox.approval TO outbox_operator;
GRANT SELECT,INSERT ON TABLE outbox.attempt TO outbox_relay;
GRANT SELECT ON TABLE outbox.attempt TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.attempt TO outbox_approver;
GRANT SELECT ON TABLE outbox.attempt TO outbox_operator;
GRANT SELECT,INSERT ON TABLE outbox.outcome TO outbox_relay;
GRANT SELECT ON TABLE outbox.outcome TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.outcome TO outbox_approver;
GRANT SELECT ON TABLE outbox.outcome TO outbox_operator;
GRANT SELECT ON TABLE outbox.attempt_log TO outbox_approver;
GRANT SELECT ON TABLE outbox.attempt_log TO outbox_operator;
GRANT SELECT(seq) ON TABLE outbox.attempt_log TO outbox_viewer;
GRANT SELECT(attempt) ON TABLE outbox.attempt_log TO outbox_viewer;
GRANT SELECT(fence) ON TABLE outbox.attempt_log TO outbox_viewer;
GRANT SELECT(cause) ON TABLE outbox.attempt_log TO outbox_viewer;
GRANT SELECT(started_at) ON TABLE outbox.attempt_log TO outbox_viewer;
GRANT SELECT(ended_at) ON TABLE outbox.attempt_log TO outbox_viewer;
GRANT SELECT(status) ON TABLE outbox.attempt_log TO outbox_viewer;
GRANT SELECT(request_id) ON TABLE outbox.attempt_log TO outbox_viewer;
GRANT SELECT(peer) ON TABLE outbox.attempt_log TO outbox_viewer;
GRANT SELECT ON TABLE outbox.audit TO outbox_operator;
GRANT SELECT ON TABLE outbox.audit TO outbox_viewer;
GRANT SELECT ON TABLE outbox.audit TO outbox_approver;
GRANT SELECT ON TABLE outbox.cause TO outbox_approver;
GRANT SELECT ON TABLE outbox.cause TO outbox_operator;
GRANT SELECT ON TABLE outbox.chore TO outbox_approver;
GRANT SELECT ON TABLE outbox.chore TO outbox_operator;
GRANT SELECT ON TABLE outbox.contract TO outbox_relay;
GRANT SELECT ON TABLE outbox.contract TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.contract TO outbox_approver;
GRANT SELECT,INSERT ON TABLE outbox.contract TO outbox_operator;
GRANT SELECT ON TABLE outbox.contract TO outbox_viewer;
GRANT SELECT ON TABLE outbox.tombstone TO outbox_approver;
GRANT SELECT ON TABLE outbox.tombstone TO outbox_operator;
GRANT SELECT(tenant_id) ON TABLE outbox.tombstone TO outbox_viewer;
GRANT SELECT(operation_id) ON TABLE outbox.tombstone TO outbox_viewer;
GRANT SELECT(seq) ON TABLE outbox.tombstone TO outbox_viewer;
GRANT SELECT(tool) ON TABLE outbox.tombstone TO outbox_viewer;
GRANT SELECT(state) ON TABLE outbox.tombstone TO outbox_viewer;
GRANT SELECT(cause) ON TABLE outbox.tombstone TO outbox_viewer;
GRANT SELECT(external_id) ON TABLE outbox.tombstone TO outbox_viewer;
GRANT SELECT(ended_at) ON TABLE outbox.tombstone TO outbox_viewer;
GRANT SELECT(purged_at) ON TABLE outbox.tombstone TO outbox_viewer;
GRANT SELECT ON TABLE outbox.contradiction TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.contradiction TO outbox_approver;
GRANT SELECT ON TABLE outbox.contradiction TO outbox_operator;
GRANT SELECT ON TABLE outbox.contradiction TO outbox_viewer;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE outbox.doubt TO outbox_relay;
GRANT SELECT ON TABLE outbox.doubt TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.doubt TO outbox_approver;
GRANT SELECT ON TABLE outbox.doubt TO outbox_operator;
GRANT SELECT ON TABLE outbox.doubt TO outbox_viewer;
GRANT UPDATE(step) ON TABLE outbox.doubt TO outbox_reconciler;
GRANT UPDATE(next_at) ON TABLE outbox.doubt TO outbox_reconciler;
GRANT UPDATE(reads) ON TABLE outbox.doubt TO outbox_reconciler;
GRANT UPDATE(last_read_at) ON TABLE outbox.doubt TO outbox_reconciler;
GRANT UPDATE(needs_person) ON TABLE outbox.doubt TO outbox_reconciler;
GRANT UPDATE(reason) ON TABLE outbox.doubt TO outbox_reconciler;
GRANT UPDATE(claimed_by) ON TABLE outbox.doubt TO outbox_reconciler;
GRANT UPDATE(claimed_until) ON TABLE outbox.doubt TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.instance TO outbox_relay;
GRANT SELECT ON TABLE outbox.instance TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.instance TO outbox_approver;
GRANT SELECT ON TABLE outbox.instance TO outbox_operator;
GRANT SELECT ON TABLE outbox.instance TO outbox_viewer;
GRANT SELECT,INSERT ON TABLE outbox.landing TO outbox_relay;
GRANT SELECT,DELETE ON TABLE outbox.landing TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.landing TO outbox_approver;
GRANT SELECT ON TABLE outbox.landing TO outbox_operator;
GRANT SELECT ON TABLE outbox.landing TO outbox_viewer;
GRANT SELECT ON TABLE outbox.lane TO outbox_relay;
GRANT SELECT ON TABLE outbox.lane TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.lane TO outbox_approver;
GRANT SELECT,INSERT ON TABLE outbox.lane TO outbox_operator;
GRANT SELECT ON TABLE outbox.lane TO outbox_viewer;
GRANT UPDATE(owner) ON TABLE outbox.lane TO outbox_relay;
GRANT UPDATE(member_id) ON TABLE outbox.lane TO outbox_relay;
GRANT UPDATE(receiver_fence) ON TABLE outbox.lane TO outbox_relay;
GRANT UPDATE(expires_at) ON TABLE outbox.lane TO outbox_relay;
GRANT UPDATE(renewed_at) ON TABLE outbox.lane TO outbox_relay;
GRANT UPDATE(idle) ON TABLE outbox.lane TO outbox_relay;
GRANT UPDATE(bell) ON TABLE outbox.lane TO outbox_relay;
GRANT UPDATE(crowd) ON TABLE outbox.lane TO outbox_relay;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE outbox.member TO outbox_relay;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE outbox.member TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.member TO outbox_approver;
GRANT SELECT ON TABLE outbox.member TO outbox_operator;
GRANT SELECT ON TABLE outbox.member TO outbox_viewer;
GRANT SELECT ON TABLE outbox.receiver TO outbox_relay;
GRANT SELECT ON TABLE outbox.receiver TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.receiver TO outbox_approver;
GRANT SELECT,INSERT,UPDATE ON TABLE outbox.receiver TO outbox_operator;
GRANT SELECT ON TABLE outbox.receiver TO outbox_viewer;
GRANT UPDATE(circuit_opened_at) ON TABLE outbox.receiver TO outbox_relay;
GRANT UPDATE(circuit_reason) ON TABLE outbox.receiver TO outbox_relay;
GRANT UPDATE(circuit_retry_at) ON TABLE outbox.receiver TO outbox_relay;
GRANT UPDATE(circuit_probes) ON TABLE outbox.receiver TO outbox_relay;
GRANT SELECT ON TABLE outbox.operation TO outbox_approver;
GRANT SELECT ON TABLE outbox.operation TO outbox_operator;
GRANT SELECT(seq) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(tenant_id) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(operation_id) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(state) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(cause) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(tool) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(resource) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(ordering_key) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(principal_id) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(digest) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(created_at) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(not_before) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(expires_at) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(receiver_id) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(receiver) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(lane) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(attempt) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(fence) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(sent_key) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(first_sent_at) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(resend_until) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(unresolved_at) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(begun_at) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(step) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(next_at) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(throttled) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(not_sent) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(ended_at) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(status) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(request_id) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(external_id) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(decided_by) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT(evidence_id) ON TABLE outbox.operation TO outbox_viewer;
GRANT SELECT ON TABLE outbox.pause TO outbox_relay;
GRANT SELECT ON TABLE outbox.pause TO outbox_reconciler;
GRANT SELECT ON TABLE outbox.pause TO outbox_approver;
GRANT SELECT ON TABLE outbox.pause TO outbox_operator;
GRANT SELECT ON TABLE outbox.pause TO outbox_viewer;
GRANT SELECT ON TABLE outbox.stuck TO outbox_approver;
GRANT SELECT ON TABLE outbox.stuck TO outbox_operator;
GRANT SELECT ON TABLE outbox.stuck TO outbox_viewer;
