insert into outbox.cause (name) values ('expired'), ('revoked'), ('cancelled'), ('tampered'), ('refused'), ('precondition_failed'),
  ('no_effect'), ('ended'), ('lease_lost'), ('ambiguous'), ('timeout'), ('connection_lost'), ('accepted'), ('in_flight'), ('mismatch'),
  ('stored_failure'), ('throttled'), ('not_sent'), ('receiver_fault'), ('forbidden'), ('stale_fence'), ('failover'), ('unplaced'),
  ('window_closed'), ('target_changed'), ('scope_changed'), ('policy_changed'), ('resend'), ('proven_absent'), ('confirmed'),
  ('late_receipt'), ('person'), ('partial'), ('orphaned'), ('shutdown'), ('duplicate'), ('contradiction'), ('no_route');
alter table outbox.outcome add constraint outcome_cause check (cause is null or cause in ('expired', 'revoked', 'cancelled', 'tampered',
  'refused', 'precondition_failed', 'no_effect', 'ended', 'lease_lost', 'ambiguous', 'timeout', 'connection_lost', 'accepted', 'in_flight',
  'mismatch', 'stored_failure', 'throttled', 'not_sent', 'receiver_fault', 'forbidden', 'stale_fence', 'failover', 'unplaced',
  'window_closed', 'target_changed', 'scope_changed', 'policy_changed', 'resend', 'proven_absent', 'confirmed', 'late_receipt', 'person',
  'partial', 'orphaned', 'shutdown', 'duplicate', 'contradiction', 'no_route'));
insert into outbox.instance (system_identifier, timeline, schema_version, min_daemon)
  select s.system_identifier, outbox.timeline(), 1, 1 from pg_control_system() s;
