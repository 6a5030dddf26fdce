-- Row-level security by tenant: `outbox migrate --rls`, or psql -1 -f. Idempotent; rls_off.sql is the way back.
--
-- A transaction says whom it acts for: select set_config('outbox.tenant', 'acme', true). It then writes and reads that tenant's rows and
-- no others. The library says it in the statement that it sends anyway, unless the transaction has said it already. Daemons and operators
-- (members of outbox_relay, outbox_reconciler, outbox_operator) work for every tenant.
--
-- The owner of the tables is bound too (FORCE): a service that logs in as the owner by mistake is not an exception. So the functions that
-- work with the definer's rights, and the views, need another owner than the tables: outbox_definer, which nobody logs in as. Inside of
-- such a function current_user is outbox_definer; inside of a view current_user is whoever reads it.
set local client_min_messages = warning;
set local lock_timeout = '10s'; -- everybody who comes later would wait behind a lock that waits

do $$
begin
  if not exists (select from pg_roles where rolname = 'outbox_definer') then
    create role outbox_definer nologin;
  end if;
  -- To give functions to a role, and to replace them later, one must be a member. No policy looks at that membership.
  if not (select rolsuper from pg_roles where rolname = current_user) then
    execute format('grant outbox_definer to %I', current_user);
  end if;
end $$;

-- After COMMIT a setting made inside of a transaction is not null but the empty string, which is nobody.
create or replace function outbox.as_tenant(p_tenant_id text) returns text language sql volatile parallel unsafe
  return case when set_config('outbox.tenant', coalesce(nullif(current_setting('outbox.tenant', true), ''), p_tenant_id), true) is not null
              then p_tenant_id end;

create or replace function outbox.check_tenant(p_tenant_id text) returns text language plpgsql stable parallel unsafe as $$
declare
  acting text := nullif(current_setting('outbox.tenant', true), '');
begin
  if acting = p_tenant_id or (acting is null and pg_has_role(session_user, 'outbox_operator', 'usage')) then
    return p_tenant_id;
  elsif acting is null then
    raise exception 'this transaction does not say whom it acts for' using errcode = '42501',
      hint = 'Inside of the transaction: select set_config(''outbox.tenant'', the tenant, true)';
  end if;
  raise exception 'this transaction acts for tenant %, not for %', acting, p_tenant_id using errcode = '42501',
    hint = 'One transaction, one tenant.';
end $$;

-- Whose an operation is, for the policies of tables that have no tenant_id. Whoever reads those may ask: of others' he is told nothing.
create or replace function outbox.tenant_of(p_seq bigint) returns text
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select i.tenant_id from outbox.intent i where i.seq = p_seq and i.tenant_id = nullif(current_setting('outbox.tenant', true), '') $$;

grant usage, create on schema outbox to outbox_definer;
grant all on all tables in schema outbox to outbox_definer;
grant all on all sequences in schema outbox to outbox_definer;
grant execute on all functions in schema outbox to outbox_definer;

do $$
declare
  everybody constant text := '(select current_user = ''outbox_definer'' or pg_has_role(current_user, ''outbox_relay'', ''usage'')'
    ' or pg_has_role(current_user, ''outbox_reconciler'', ''usage'') or pg_has_role(current_user, ''outbox_operator'', ''usage''))';
  acting constant text := '(select nullif(current_setting(''outbox.tenant'', true), ''''))';
  thing record;
begin
  -- feed_xid() is replaced by outbox.keep_feed_order(), whose owner must own it.
  for thing in select p.oid::regprocedure as name from pg_proc p where p.pronamespace = 'outbox'::regnamespace
               and (p.prosecdef or p.proname = 'feed_xid') and p.proowner <> 'outbox_definer'::regrole loop
    execute format('alter function %s owner to outbox_definer', thing.name);
  end loop;
  for thing in select c.oid::regclass as name from pg_class c where c.relnamespace = 'outbox'::regnamespace
               and c.relkind = 'v' and c.relowner <> 'outbox_definer'::regrole loop
    execute format('alter view %s owner to outbox_definer', thing.name);
  end loop;
  -- Every table that holds something of a tenant, and when a row of it is his. What an audit row speaks of may be anybody's.
  for thing in select t.name, format(t.his, acting) as his from (values
      ('intent', 'tenant_id = %s'), ('doubt', 'tenant_id = %s'), ('tombstone', 'tenant_id = %s'),
      ('pending', 'outbox.tenant_of(seq) = %s'), ('outcome', 'outbox.tenant_of(seq) = %s'), ('attempt', 'outbox.tenant_of(seq) = %s'),
      ('evidence', 'outbox.tenant_of(seq) = %s'), ('objection', 'outbox.tenant_of(seq) = %s'),
      ('approval', 'outbox.tenant_of(seq) = %s'), ('landing', 'outbox.tenant_of(seq) = %s'),
      ('pause', 'kind <> ''tenant'' or name = %s'), ('audit', 'false')) as t (name, his) loop
    execute format('alter table outbox.%I enable row level security, force row level security', thing.name);
    execute format('drop policy if exists every_tenant on outbox.%I', thing.name);
    execute format('drop policy if exists own_tenant on outbox.%I', thing.name);
    -- Alone for the daemons' own statements: `true` leaves no condition in their plans.
    execute format('create policy every_tenant on outbox.%I to outbox_relay, outbox_reconciler, outbox_operator using (true) with check (true)',
                   thing.name);
    execute format('create policy own_tenant on outbox.%I using (%s or (%s)) with check (%2$s or (%3$s))', thing.name, everybody, thing.his);
  end loop;
end $$;

-- Whoever reads a table with such a policy evaluates it.
revoke execute on function outbox.tenant_of(bigint) from public;
grant execute on function outbox.tenant_of(bigint)
  to outbox_writer, outbox_relay, outbox_reconciler, outbox_approver, outbox_operator, outbox_viewer;
