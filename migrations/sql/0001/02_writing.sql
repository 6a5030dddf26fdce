-- The write path: one INSERT places a row in its lane; outbox.put answers for an id that exists already.

create function outbox.ordering_hash(tenant_id text, key text) returns bigint language sql immutable parallel safe
  return hashtextextended(key, hashtextextended(tenant_id, 0));

-- The one function that decides a lane. The mask, not abs(): abs(-2^63) raises.
create function outbox.lane_of(lanes int, tenant_id text, key text) returns int
  language sql immutable parallel safe
  return ((outbox.ordering_hash(tenant_id, key) & 9223372036854775807) % lanes)::int;

-- The latest transaction that every placement must see: a purge (its tombstones), or the move or removal of a tool (where its operations
-- lie). A sequence, since it is read as it is now, whatever the snapshot of the reader.
create sequence outbox.must_be_seen minvalue 0 start 0;
-- One after the other: who sees the latest has to see every one before it.
create function outbox.must_be_seen() returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('outbox.must_be_seen', 0));
  perform setval('outbox.must_be_seen', pg_current_xact_id()::text::bigint);
end $$;

-- Why an intent cannot be placed. Called in the midst of the statement below, which so needs no second look at what it has placed.
create function outbox.refuse_tool(tool text) returns int language plpgsql immutable as $$
begin
  raise exception 'unknown tool %', tool
    using errcode = 'OB404', hint = 'Declare [tools."' || tool || '"] in outbox.toml and run: outbox apply outbox.toml';
end $$;
create function outbox.refuse_purged(tenant_id text, operation_id text) returns boolean language plpgsql immutable as $$
begin
  raise exception 'operation % of tenant % has ended and was purged', operation_id, tenant_id
    using errcode = '23505', hint = 'Use a new operation id for a new effect; outbox.put answers for an old one.';
end $$;

-- Statement trigger with a transition table: right for one row, many rows, COPY, MERGE and ON CONFLICT alike. Two looks by key per row,
-- whatever the statistics say: to make a hash table of the tools and the tombstones costs more, for one row and for many.
create function outbox.place() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
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

create trigger place after insert on outbox.intent referencing new table as inserted
  for each statement execute function outbox.place();

-- Whom a transaction acts for. Row-level security (sql/rls.sql) replaces both functions; without it they are inlined and cost nothing.
-- The library calls as_tenant() in the statement that needs it: it names the tenant of a transaction that has not named one itself.
create function outbox.as_tenant(p_tenant_id text) returns text language sql immutable parallel safe return p_tenant_id;
-- Called by every function through which somebody reaches the rows of one tenant: with security on it raises 42501 for another tenant.
create function outbox.check_tenant(p_tenant_id text) returns text language sql immutable parallel safe return p_tenant_id;

-- What the caller learns of an operation. `differs` names what a second put under the same id would have changed.
create type outbox.put_result as (seq bigint, created boolean, differs text[], state text, cause text, attempt int,
  receipt text, external_id text, created_at timestamptz, ended_at timestamptz, purged boolean);

create function outbox.get_operation(p_tenant_id text, p_operation_id text)
  returns table (seq bigint, tool text, resource text, arguments text, principal_id text, digest bytea, state text, cause text,
                 attempt int, receipt text, external_id text, created_at timestamptz, ended_at timestamptz, purged boolean)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
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

-- Insert, or answer for what exists. Loops because each statement inside has its own snapshot (READ COMMITTED); it waits
-- as long as another writer of the same id, and never commits. Above READ COMMITTED a race raises 40001.
create function outbox.put(p_tenant_id text, p_operation_id text, p_tool text, p_principal_id text, p_arguments text, p_digest bytea,
    p_resource text default null, p_expected_version text default null, p_ordering_key text default null,
    p_not_before timestamptz default null, p_expires_at timestamptz default null, p_compensates text default null,
    p_revision_of text default null, p_on_behalf_of text default null, p_traceparent text default null,
    p_content_type text default null, p_body bytea default null)
  returns outbox.put_result language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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

-- Append-only tables refuse change, whoever asks. Purge and redaction are functions that declare themselves.
create function outbox.refuse_change() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op <> 'TRUNCATE' and coalesce(current_setting('outbox.act', true), '') = any (tg_argv) then
    return case when tg_op = 'DELETE' then old else new end;
  end if;
  raise exception '% on outbox.% is refused: its rows are history', lower(tg_op), tg_table_name
    using errcode = '42501', hint = 'Use outbox purge or outbox redact.';
end $$;

create trigger immutable before update or delete on outbox.intent for each row execute function outbox.refuse_change('purge', 'redact');
create trigger immutable before update or delete on outbox.outcome for each row execute function outbox.refuse_change('purge', 'redact');
create trigger immutable before update or delete on outbox.attempt for each row execute function outbox.refuse_change('purge', 'redact');
create trigger immutable before update or delete on outbox.evidence for each row execute function outbox.refuse_change('purge', 'redact');
create trigger immutable before update or delete on outbox.approval for each row execute function outbox.refuse_change('purge');
create trigger immutable before update or delete on outbox.contract for each row execute function outbox.refuse_change();
create trigger immutable before update or delete on outbox.tombstone for each row execute function outbox.refuse_change('forget');
create trigger untruncatable before truncate on outbox.intent for each statement execute function outbox.refuse_change();
create trigger untruncatable before truncate on outbox.outcome for each statement execute function outbox.refuse_change();
create trigger untruncatable before truncate on outbox.attempt for each statement execute function outbox.refuse_change();
create trigger untruncatable before truncate on outbox.evidence for each statement execute function outbox.refuse_change();
create trigger untruncatable before truncate on outbox.approval for each statement execute function outbox.refuse_change();
create trigger untruncatable before truncate on outbox.contract for each statement execute function outbox.refuse_change();
create trigger untruncatable before truncate on outbox.tombstone for each statement execute function outbox.refuse_change();
create trigger untruncatable before truncate on outbox.pending for each statement execute function outbox.refuse_change();

-- The table of states.py, enforced. The WHEN clause is constant: a look-up here would cost a third of the throughput.
create function outbox.refuse_move() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'illegal move % -> % of operation %', old.state, new.state,
    (select i.operation_id || ' of tenant ' || i.tenant_id from outbox.intent i where i.seq = old.seq) using errcode = 'OB409';
end $$;
create trigger moves before update of state on outbox.pending for each row
  when (old.state is distinct from new.state and (old.state, new.state) not in (
    ('proposed', 'authorized'), ('authorized', 'executing'), ('authorized', 'proposed'),
    ('executing', 'unknown'), ('executing', 'authorized'), ('unknown', 'authorized'), ('unknown', 'executing')))
  execute function outbox.refuse_move();
create function outbox.refuse_identity_change() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'the place of an operation never changes: %',
    (select i.operation_id || ' of tenant ' || i.tenant_id from outbox.intent i where i.seq = old.seq) using errcode = 'OB409';
end $$;
create trigger place_is_fixed before update on outbox.pending for each row
  when ((old.receiver_id, old.lane, old.seq, old.ord) is distinct from (new.receiver_id, new.lane, new.seq, new.ord))
  execute function outbox.refuse_identity_change();

-- `lanes` says where every operation of a receiver lies, open or ended: it never changes.
create function outbox.refuse_lanes() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'the lanes of receiver % are fixed', old.name
    using errcode = 'OB409', hint = 'Declare a second receiver with as many lanes as you want, and move its tools there.';
end $$;
create trigger lanes_are_fixed before update of lanes on outbox.receiver for each row
  when (old.lanes is distinct from new.lanes)
  execute function outbox.refuse_lanes();

-- A tool has its receiver's lanes, whatever somebody writes.
create function outbox.inherit_lanes() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  select r.lanes into new.lanes from outbox.receiver r where r.receiver_id = new.receiver_id;
  return new;
end $$;
create trigger has_lanes before insert or update of receiver_id, lanes on outbox.tool for each row
  execute function outbox.inherit_lanes();

-- Whoever moves or removes a tool calls this first: a writer that has read the old place of the tool and not committed yet
-- would put an operation where nobody looks for it. Waits for such writers, and holds new ones until the caller commits.
create function outbox.hold_writers() returns void
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10s' as $$
begin
  lock table outbox.intent in share mode;
exception when lock_not_available then
  raise exception 'a transaction that has written an intent stays open' using errcode = 'OB409',
    hint = 'A tool is moved or removed when no such transaction is open. Try again.';
end $$;

-- An open operation is found through its tool: the tool stays while there is one.
create function outbox.refuse_displacement() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform outbox.hold_writers();
  perform outbox.must_be_seen();
  if exists (select from outbox.pending p join outbox.intent i on i.seq = p.seq where p.receiver_id = old.receiver_id and i.tool = old.name) then
    raise exception 'tool % has open operations', old.name using errcode = 'OB409', hint = 'See: outbox list --tool ' || old.name;
  end if;
  return case when tg_op = 'DELETE' then old else new end;
end $$;
create trigger stays_while_needed before delete on outbox.tool for each row execute function outbox.refuse_displacement();
create trigger stays_where_it_is before update of name, receiver_id on outbox.tool for each row
  when ((old.name, old.receiver_id) is distinct from (new.name, new.receiver_id)) execute function outbox.refuse_displacement();
