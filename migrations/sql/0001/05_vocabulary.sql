insert into outbox.cause (name) values ('expired'), ('revoked'), ('cancelled'), ('tampered'), ('refused'), ('precondition_failed'),
  ('no_effect'), ('ended'), ('lease_lost'), ('ambiguous'), ('timeout'), ('connection_lost'), ('accepted'), ('in_flight'), ('mismatch'),
  ('stored_failure'), ('throttled'), ('not_sent'), ('receiver_fault'), ('forbidden'), ('stale_fence'), ('failover'), ('unplaced'),
  ('window_closed'), ('target_changed'), ('scope_changed'), ('policy_changed'), ('resend'), ('proven_absent'), ('confirmed'),
  ('late_receipt'), ('person'), ('partial'), ('orphaned'), ('shutdown'), ('duplicate'), ('contradiction'), ('no_route'),
  ('secret_missing'), ('unsafe_target'), ('name_unresolved'), ('no_connection'), ('tls_failed'), ('left_alone'), ('too_late'), ('not_processed'), ('contract_unreadable');
-- One list, in a function: in a CHECK it would be nine kilobytes that are read anew for every statement, a third of what an intent adds to
-- its transaction. Strict, so that it is not even called where there is no cause. outbox.pending_is_sound() asks it too.
do $$
begin
  execute format($function$
    create function outbox.is_cause(name text) returns boolean language plpgsql immutable strict parallel safe as $body$
    begin
      return name operator(pg_catalog.=) any (%L::pg_catalog.text[]);
    end $body$
  $function$, (select array_agg(c.name order by c.name) from outbox.cause c));
end $$;
alter table outbox.outcome add constraint outcome_cause check (outbox.is_cause(cause));
alter table outbox.attempt add constraint attempt_cause check (outbox.is_cause(cause));
insert into outbox.instance (system_identifier, timeline, database_oid, schema_version, min_daemon)
  select s.system_identifier, outbox.timeline(), outbox.database_oid(), 1, 1 from pg_control_system() s;
