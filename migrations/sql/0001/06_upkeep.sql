-- Upkeep: kill switches, ordering keys let past, history that leaves, and rows that a trigger never placed.

-- Who did what to the system, and why. Append-only. Decisions about one operation are not written here again: `outbox audit` reads them where
-- they are facts (approval, evidence of kind statement, outcome).
create table outbox.audit (
  audit_id bigint generated always as identity primary key,
  at timestamptz not null default outbox.now(),
  act text not null,
  target text not null,
  acted_by text not null,
  reason text check (octet_length(reason) <= 4096)
);
create index audit_at on outbox.audit (at);
create trigger immutable before update or delete on outbox.audit for each row execute function outbox.refuse_change();
create trigger untruncatable before truncate on outbox.audit for each statement execute function outbox.refuse_change();

create function outbox.record_act(p_act text, p_target text, p_by text, p_reason text) returns void language sql volatile
  as $$ insert into outbox.audit (act, target, acted_by, reason) values (p_act, p_target, p_by, p_reason) $$;

-- Stop beginning attempts of a receiver, a tool or a tenant, from the next begin statement on. Attempts that run are not touched.
create function outbox.pause_add(p_kind text, p_name text, p_by text, p_reason text) returns boolean
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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

-- Let them begin again. A receiver whose circuit is open is tried at once, also where nobody paused it.
create function outbox.pause_end(p_kind text, p_name text, p_by text, p_reason text) returns boolean
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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

-- Let later operations of an ordering key pass this one. It stays what it is; only the order is given up.
create function outbox.unblock(p_tenant_id text, p_operation_id text, p_by text, p_reason text) returns int
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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

-- Begin this one next, ahead of the backlog of its lane. Every check of the begin statement stands.
create function outbox.expedite(p_tenant_id text, p_operation_id text, p_by text, p_reason text) returns void
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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

-- Roughly the last intent that was written before a date: numbers grow with time, up to clocks that were set back.
create function outbox.seq_at(p_at timestamptz) returns bigint
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
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

-- What a purge does with each of the next p_limit ends behind p_after: `purge`; `young`: it ended since p_before; `unsettled`: a late
-- receipt may still contradict it; `contradicted`: somebody must look. Where its tool is gone nobody knows a bound, and a month is one.
create function outbox.purgeable(p_after bigint, p_upto bigint, p_before timestamptz, p_limit int)
  returns table (seq bigint, verdict text) language sql stable security definer set search_path = pg_catalog, pg_temp as $$
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

-- One batch of history into tombstones, in the caller's transaction: up to p_limit ends behind p_after are looked at. `passed` is where
-- the next batch goes on; null: there is nothing behind it.
create function outbox.purge(p_after bigint, p_upto bigint, p_before timestamptz, p_limit int, p_by text)
  returns table (purged int, kept int, passed bigint)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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

-- Forget identities whose tool keeps them for a time only (tool.identity_retention; null: for ever).
create function outbox.forget(p_limit int) returns int
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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

-- What was redacted stays as it is. By its whole form: a receiver may begin an answer with any word.
create function outbox.redacted(v text) returns text language sql immutable
  as $$ select case when v ~ '^redacted, sha256 [0-9a-f]{64}$' then v else 'redacted, sha256 ' || encode(sha256(convert_to(v, 'UTF8')), 'hex') end $$;

-- Remove what may be personal from a terminal operation: arguments, receipts, excerpts, notes. Digests stay. Of a purged one there is what
-- came in after the purge. Returns how it ended.
create function outbox.redact(p_tenant_id text, p_operation_id text, p_by text, p_reason text) returns outbox.state
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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

-- Intents that no trigger placed (restored with triggers off, replicated without `pending`): neither open nor ended.
create function outbox.unplaced(p_after bigint, p_limit int) returns table (seq bigint, tenant_id text, operation_id text, tool text)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select i.seq, i.tenant_id, i.operation_id, i.tool from (
    -- Nearly all have ended, which is asked first: to ask for the place of each one would take eight times as long.
    select n.seq, n.tenant_id, n.operation_id, n.tool from outbox.intent n
    where n.seq > p_after and not exists (select from outbox.outcome o where o.seq = n.seq and o.seq > p_after) order by n.seq offset 0) i
  where not exists (select from outbox.place_of(i.seq) w join outbox.pending p
                    on p.receiver_id = w.receiver_id and p.lane = w.lane and p.seq = i.seq)
  order by i.seq limit p_limit $$;

-- Place them as unknown, never as authorized: nobody can know whether an attempt was made. `passed` is where the next batch goes on (null:
-- there is nothing behind it), `toolless` how many cannot be placed because their tool is not registered.
create function outbox.repair(p_after bigint, p_limit int, p_by text) returns table (placed int, toolless int, passed bigint)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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

-- The end of one operation, as the feed tells it; the last row of each answer is a bookmark and has a cursor only.
create type outbox.ended as (cursor text, more boolean, seq bigint, tenant_id text, operation_id text, tool text, resource text,
  principal_id text, state text, cause text, attempt int, receipt text, external_id text, decided_by text, created_at timestamptz,
  ended_at timestamptz);

-- Ends of operations in an order in which nothing is ever inserted behind a reader: by the transaction that ended them, and only of
-- transactions below the oldest that is still open. `p_tenant_id` null: of all tenants. At most 10,000 rows are looked at in one call;
-- `more` in the bookmark says whether to ask again at once.
-- A cursor is <database>.<era>.<xid>.<seq>, and in a bookmark .<xid>.<seq> up to where all was looked at. Where the era has changed
-- (a failover may have lost commits) the row that it names must still be there: else OB410.
create function outbox.feed_rows(p_tenant_id text, p_after text, p_limit int) returns setof outbox.ended
  language plpgsql stable as $$
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
end $$;

-- Of one tenant, for services.
create function outbox.feed(p_tenant_id text, p_after text default null, p_limit int default 500) returns setof outbox.ended
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  if p_tenant_id is null or not coalesce(p_limit, 0) between 1 and 10000 then
    raise exception 'a feed is of one tenant, 1 to 10000 rows at a time' using errcode = 'OB400';
  end if;
  return query select * from outbox.feed_rows(outbox.check_tenant(p_tenant_id), p_after, p_limit);
end $$;

-- Of all tenants, for operators.
create function outbox.feed_of_all(p_after text default null, p_limit int default 500) returns setof outbox.ended
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select * from outbox.feed_rows(null, p_after, least(greatest(p_limit, 1), 10000)) $$;
