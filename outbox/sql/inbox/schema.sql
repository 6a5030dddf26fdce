-- An inbox: in the database where operations of an outbox have their effect, the place where each has it at most once. One row per
-- operation, written in the transaction of the effect; and functions that are all that a relay and a reconciler may call.
-- Idempotent: run by `outbox inbox`, or by hand (outbox inbox --sql | psql). READ COMMITTED is needed: every statement inside of a
-- function must see what others committed while it waited.
create schema if not exists inbox;
revoke all on schema inbox from public;

-- Which inbox this is. The name is compared by every call: a DSN that leads somewhere else proves nothing about this one.
create table if not exists inbox.identity (
  only_row boolean primary key default true check (only_row),
  name text not null check (name ~ '^[!-~]{1,200}$'),
  version int not null,
  installed_at timestamptz not null default now()
);

-- Which function carries a tool out. By name: pg_upgrade refuses tables that hold object ids of functions.
create table if not exists inbox.handler (
  tool text primary key,
  function_schema name not null,
  function_name name not null,
  registered_at timestamptz not null default now(),
  registered_by text not null default session_user
);

-- The highest fence under which an operation of a lane of an outbox has had its effect.
create table if not exists inbox.lane (
  lane text primary key,
  fence bigint not null,
  raised_at timestamptz not null default now()
);

-- An operation that has had its effect (`attempt`, `digest` and what the handler returned), or the tombstone that a look left:
-- attempts up to `refused_to` are refused for ever. A tombstone becomes an operation by a later attempt; an operation stays one.
create table if not exists inbox.operation (
  sent_key uuid primary key,
  refused_to int not null default 0,
  attempt int,
  digest bytea,
  tenant_id text not null,
  operation_id text not null,
  tool text not null,
  receipt jsonb,
  changed_at timestamptz not null default clock_timestamp(),
  check ((attempt is null) = (digest is null)),
  check (attempt is not null or receipt is null),
  check (attempt is null or attempt > refused_to)
) with (fillfactor = 80);

-- What a handler is given.
do $$
begin
  if to_regtype('inbox.request') is null then
    create type inbox.request as (
      sent_key uuid, attempt int, tenant_id text, operation_id text, tool text, resource text,
      arguments jsonb, expected_version text, content_type text, body bytea
    );
  end if;
end $$;

create or replace function inbox.call_it(p_name text, p_version int) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
declare
  known text;
begin
  insert into inbox.identity as i (name, version) values (p_name, p_version)
    on conflict (only_row) do update set version = greatest(i.version, excluded.version) returning i.name into known;
  if known <> p_name then
    raise exception 'this inbox is called %, and operations refer to it by that name', known using errcode = 'OB409';
  end if;
end $$;

-- Why a function must not be a handler; null: it may. It runs inside of a function that has the rights of the inbox's owner, so it must
-- bring rights of its own; and whoever could call it directly would have effects that no inbox knows of.
create or replace function inbox.unfit(p_function oid) returns text language plpgsql stable as $$
declare
  f pg_catalog.pg_proc;
begin
  select * into f from pg_catalog.pg_proc p where p.oid = p_function;
  return case
    when not found then 'it does not exist'
    when f.prokind <> 'f' or f.proretset or f.prorettype <> 'jsonb'::regtype then 'it is no function that returns one jsonb'
    when f.pronargs <> 1 or f.proargtypes[0] <> 'inbox.request'::regtype then 'it does not take one inbox.request'
    when not f.prosecdef then 'it is not SECURITY DEFINER, so it would run with the rights of the inbox'
    when not exists (select from unnest(f.proconfig) c where c like 'search\_path=%') then 'it does not SET search_path'
    when has_function_privilege('public', f.oid, 'execute') then 'everybody may call it past the inbox (PUBLIC has EXECUTE)'
  end;
end $$;

-- Let a function carry out a tool: inbox.handle('stock.reserve', 'shop.reserve(inbox.request)'). For the owner of the inbox.
create or replace function inbox.handle(p_tool text, p_handler regprocedure) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
declare
  place record;
  reason text;
begin
  select n.nspname, p.proname, p.proowner,
      (select r.proowner from pg_catalog.pg_proc r where r.oid = 'inbox.unfit(oid)'::regprocedure) as inbox_owner
    into place from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace where p.oid = p_handler;
  if pg_has_role(current_user, place.proowner, 'usage') then
    execute format('revoke execute on function %s from public', p_handler);
    execute format('grant execute on function %s to %s', p_handler, place.inbox_owner::regrole);
  end if;
  reason := inbox.unfit(p_handler);
  if reason is not null then
    raise exception '% cannot be a handler: %', p_handler, reason using errcode = 'OB403';
  end if;
  insert into inbox.handler as h (tool, function_schema, function_name) values (p_tool, place.nspname, place.proname)
    on conflict (tool) do update set function_schema = excluded.function_schema, function_name = excluded.function_name,
      registered_at = now(), registered_by = session_user;
end $$;

-- Which function carries out which tool, and what is wrong with it by now: one that was fit once may have been replaced.
create or replace view inbox.handlers as
  select h.tool, format('%I.%I', h.function_schema, h.function_name) as function, inbox.unfit((
      select p.oid from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
      where n.nspname = h.function_schema and p.proname = h.function_name
        and p.pronargs = 1 and p.proargtypes[0] = 'inbox.request'::regtype)) as problem
  from inbox.handler h;

-- The function to call for a tool.
create or replace function inbox.handler_of(p_tool text) returns text language plpgsql stable as $$
declare
  handler inbox.handlers;
begin
  select * into handler from inbox.handlers h where h.tool = p_tool;
  if not found then
    raise exception 'no handler carries out the tool %', p_tool using errcode = 'OB404', hint = 'Register one: select inbox.handle(...)';
  elsif handler.problem is not null then
    raise exception 'the handler of % is not called: %', p_tool, handler.problem using errcode = 'OB403';
  end if;
  return handler.function;
end $$;

-- What the commit of this transaction rests on. Asked before a handler and after it, which may have settings of its own.
create or replace function inbox.be_durable() returns void language plpgsql volatile as $$
begin
  if current_setting('synchronous_commit') = 'off' then
    -- A crash would forget effects and tombstones that have been told already.
    perform set_config('synchronous_commit', 'on', true);
  end if;
  if current_setting('client_min_messages') = 'error' then
    -- That a commit did not wait for its standby is said in a warning, and nowhere else.
    perform set_config('client_min_messages', 'warning', true);
  end if;
end $$;

-- What must be right about every call, whatever role and settings it comes with.
create or replace function inbox.enter(p_inbox text) returns void language plpgsql volatile as $$
declare
  known text;
begin
  select i.name into known from inbox.identity i;
  if known is distinct from p_inbox then
    raise exception 'this is the inbox %, not %', known, p_inbox using errcode = 'OB421';
  elsif current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'an inbox needs READ COMMITTED, not %', upper(current_setting('transaction_isolation')) using errcode = 'OB428';
  end if;
  perform inbox.be_durable();
end $$;

-- Whether an operation of this lane has had its effect under a newer fence. If not, none under an older one has it from now on, until
-- this transaction ends. An advisory lock and no row lock: it is granted in order, so a new holder is not starved by an old one, and
-- costs no write where nothing changes. A newer fence waits for everything that is under way under older ones.
create or replace function inbox.is_stale(p_lane text, p_fence bigint) returns boolean language plpgsql volatile as $$
declare
  mark bigint;
  lock constant bigint := hashtextextended('inbox.lane ' || p_lane, 0);
begin
  select l.fence into mark from inbox.lane l where l.lane = p_lane;
  if mark is null or mark < p_fence then
    perform pg_advisory_xact_lock(lock);
    insert into inbox.lane as l (lane, fence) values (p_lane, p_fence)
      on conflict (lane) do update set fence = greatest(l.fence, excluded.fence), raised_at = now() returning l.fence into mark;
  else
    perform pg_advisory_xact_lock_shared(lock);
    select l.fence into mark from inbox.lane l where l.lane = p_lane;
  end if;
  return mark > p_fence;
end $$;

-- Have the effect of one operation, at most once. It says `effect`, or why there is none now: `repeated` (it was there before, the
-- receipt is given again), `mismatch` (another request had it under this key), `shut_out` (a look was told that this attempt would have
-- none), `stale_fence`. Whatever the handler raises rolls all of it back. One row, whatever happens.
create or replace function inbox.receive(p_inbox text, p_sent_key uuid, p_attempt int, p_lane text, p_fence bigint, p_digest bytea,
    p_tenant_id text, p_operation_id text, p_tool text, p_resource text, p_arguments text, p_expected_version text,
    p_content_type text, p_body bytea)
  returns table (said text, receipt text, external_id text)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  known inbox.operation;
  result jsonb;
begin
  perform inbox.enter(p_inbox);
  if p_lane is not null and inbox.is_stale(p_lane, p_fence) then
    said := 'stale_fence';
    return next;
    return;
  end if;
  said := 'effect';
  -- This waits for whoever else is at this key: another attempt that is under way, or a look.
  insert into inbox.operation as o (sent_key, attempt, digest, tenant_id, operation_id, tool)
    values (p_sent_key, p_attempt, p_digest, p_tenant_id, p_operation_id, p_tool) on conflict (sent_key) do nothing;
  if not found then
    select o.* into known from inbox.operation o where o.sent_key = p_sent_key for update;
    if not found then
      raise exception 'the inbox forgot this operation at this moment' using errcode = '40001';
    elsif known.digest is null and p_attempt > known.refused_to then
      update inbox.operation o set attempt = p_attempt, digest = p_digest, tool = p_tool, changed_at = clock_timestamp()
        where o.sent_key = p_sent_key;
    else
      said := case when known.digest is null then 'shut_out' when known.digest = p_digest then 'repeated' else 'mismatch' end;
      result := case when said = 'repeated' then known.receipt end;
    end if;
  end if;
  if said = 'effect' then
    execute 'select ' || inbox.handler_of(p_tool) || '($1)' into result using row(p_sent_key, p_attempt, p_tenant_id, p_operation_id,
      p_tool, p_resource, p_arguments::jsonb, p_expected_version, p_content_type, p_body)::inbox.request;
    perform inbox.be_durable();
    update inbox.operation o set receipt = result where o.sent_key = p_sent_key and result is not null;
  end if;
  receipt := left(result::text, 4096);
  external_id := case when jsonb_typeof(result) = 'object' then left(result ->> 'external_id', 500) end;
  return next;
end $$;

-- What became of an operation: `effect`, with its receipt, or `nothing`. With an attempt it leaves a tombstone first, so `nothing` means
-- that no attempt up to `refused_to` has an effect any more, however late it comes: an attempt that is under way is waited for.
create or replace function inbox.look(p_inbox text, p_sent_key uuid, p_attempt int, p_tenant_id text, p_operation_id text, p_tool text)
  returns table (said text, refused_to int, receipt text, external_id text)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  known inbox.operation;
begin
  perform inbox.enter(p_inbox);
  if p_attempt > 0 then
    insert into inbox.operation as o (sent_key, refused_to, tenant_id, operation_id, tool)
      values (p_sent_key, p_attempt, p_tenant_id, p_operation_id, p_tool)
      on conflict (sent_key) do update set refused_to = greatest(o.refused_to, excluded.refused_to), changed_at = clock_timestamp()
        where o.digest is null;
  end if;
  select o.* into known from inbox.operation o where o.sent_key = p_sent_key;
  said := case when known.digest is null then 'nothing' else 'effect' end;
  refused_to := coalesce(known.refused_to, 0);
  receipt := left(known.receipt::text, 4096);
  external_id := case when jsonb_typeof(known.receipt) = 'object' then left(known.receipt ->> 'external_id', 500) end;
  return next;
end $$;

-- Forget operations that nothing has happened to for so long; returns how many. For the owner: what is forgotten can happen again, so
-- `key_retention` in the contracts must say how long an inbox remembers, and no longer.
create or replace function inbox.forget(p_older_than interval, p_rows_max int default 10000) returns int language sql volatile
  set search_path = pg_catalog, pg_temp as $$
  with old as (select o.sent_key from inbox.operation o where o.changed_at < clock_timestamp() - p_older_than
               limit p_rows_max for update skip locked),
    gone as (delete from inbox.operation o using old where o.sent_key = old.sent_key returning o.sent_key)
  select count(*)::int from gone $$;

revoke all on all tables in schema inbox from public;
revoke execute on all functions in schema inbox from public;
