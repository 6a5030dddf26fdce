insert into outbox.cause (name) values ('expired'), ('revoked'), ('cancelled'), ('tampered'), ('refused'), ('precondition_failed'),
  ('no_effect'), ('ended'), ('lease_lost'), ('ambiguous'), ('timeout'), ('connection_lost'), ('accepted'), ('in_flight'), ('mismatch'),
  ('stored_failure'), ('throttled'), ('not_sent'), ('receiver_fault'), ('forbidden'), ('stale_fence'), ('failover'), ('unplaced'),
  ('window_closed'), ('target_changed'), ('scope_changed'), ('policy_changed'), ('resend'), ('proven_absent'), ('confirmed'),
  ('late_receipt'), ('person'), ('partial'), ('orphaned'), ('shutdown'), ('duplicate'), ('contradiction'), ('no_route'),
  ('secret_missing'), ('unsafe_target'), ('name_unresolved'), ('no_connection'), ('tls_failed'), ('left_alone'), ('too_late'), ('not_processed'), ('contract_unreadable');
-- One list, three CHECKs. On the hot path the cause is null, which costs nothing.
do $$
declare
  holder text;
begin
  foreach holder in array array['pending', 'outcome', 'attempt'] loop
    execute format('alter table outbox.%I add constraint %I check (cause in (%s))', holder, holder || '_cause',
      (select string_agg(quote_literal(name), ', ' order by name) from outbox.cause));
  end loop;
end $$;
insert into outbox.instance (system_identifier, timeline, database_oid, schema_version, min_daemon)
  select s.system_identifier, outbox.timeline(), outbox.database_oid(), 1, 1 from pg_control_system() s;
