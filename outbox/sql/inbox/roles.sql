-- Who may call an inbox: the relay's login has effects, the reconciler's only looks (a tombstone has no effect). Neither can read or
-- write a table, or call a handler. Other logins can be used: grant them these. Idempotent.
do $$
declare
  role text;
begin
  foreach role in array array['inbox_receiver', 'inbox_looker'] loop
    if not exists (select from pg_roles where rolname = role) then
      execute format('create role %I login', role);
    end if;
    execute format('alter role %I in database %I set default_transaction_isolation = %L', role, current_database(), 'read committed');
    execute format('alter role %I in database %I set synchronous_commit = on', role, current_database());
    -- Nobody waits longer. A handler that takes longer is rolled back.
    execute format('alter role %I in database %I set statement_timeout = %L', role, current_database(), '60s');
    execute format('alter role %I in database %I set idle_in_transaction_session_timeout = %L', role, current_database(), '10s');
    begin
      -- A caller that gave up, and hung up, is noticed: what waits for a lock on its behalf is rolled back.
      execute format('alter role %I in database %I set client_connection_check_interval = %L', role, current_database(), '1s');
    exception when invalid_parameter_value or feature_not_supported then
      null; -- a platform that cannot tell
    end;
  end loop;
end $$;

grant usage on schema inbox to inbox_receiver, inbox_looker;
grant execute on function inbox.receive(text, uuid, int, text, bigint, bytea, text, text, text, text, text, text, text, bytea) to inbox_receiver;
grant execute on function inbox.look(text, uuid, int, text, text, text) to inbox_looker;
