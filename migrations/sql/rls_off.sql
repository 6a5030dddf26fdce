-- The way back from rls.sql: `outbox migrate --no-rls`, or psql -1 -f. Idempotent. The role outbox_definer stays: other databases of the
-- cluster may use it.
set local client_min_messages = warning;
set local lock_timeout = '10s';

do $$
declare
  owner constant text := (select quote_ident(rolname) from pg_class c join pg_roles r on r.oid = c.relowner
                          where c.oid = 'outbox.intent'::regclass);
  thing record;
begin
  for thing in select p.polname, p.polrelid::regclass as place from pg_policy p join pg_class c on c.oid = p.polrelid
               where c.relnamespace = 'outbox'::regnamespace and p.polname in ('every_tenant', 'own_tenant') loop
    execute format('drop policy %I on %s', thing.polname, thing.place);
  end loop;
  for thing in select c.oid::regclass as name from pg_class c where c.relnamespace = 'outbox'::regnamespace and c.relrowsecurity loop
    execute format('alter table %s disable row level security, no force row level security', thing.name);
  end loop;
  if exists (select from pg_roles where rolname = 'outbox_definer') then
    for thing in select p.oid::regprocedure as name from pg_proc p
                 where p.pronamespace = 'outbox'::regnamespace and p.proowner = 'outbox_definer'::regrole loop
      execute format('alter function %s owner to %s', thing.name, owner);
    end loop;
    for thing in select c.oid::regclass as name from pg_class c where c.relnamespace = 'outbox'::regnamespace
                 and c.relkind = 'v' and c.relowner = 'outbox_definer'::regrole loop
      execute format('alter view %s owner to %s', thing.name, owner);
    end loop;
    revoke all on all tables in schema outbox from outbox_definer;
    revoke all on all sequences in schema outbox from outbox_definer;
    revoke all on all functions in schema outbox from outbox_definer;
    revoke all on schema outbox from outbox_definer;
  end if;
end $$;

drop function if exists outbox.tenant_of(bigint);
create or replace function outbox.as_tenant(p_tenant_id text) returns text language sql immutable parallel safe return p_tenant_id;
create or replace function outbox.check_tenant(p_tenant_id text) returns text language sql immutable parallel safe return p_tenant_id;
