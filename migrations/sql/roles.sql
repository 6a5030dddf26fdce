-- Roles with least privilege, and the settings that the daemons' guarantees rest on. Idempotent: run by every `outbox migrate`,
-- and by hand (psql -f) where the migrating role may not create roles.
do $$
declare
  role text;
begin
  foreach role in array array['outbox_writer', 'outbox_approver', 'outbox_operator', 'outbox_viewer'] loop
    if not exists (select from pg_roles where rolname = role) then
      execute format('create role %I nologin', role);
    end if;
  end loop;
  foreach role in array array['outbox_relay', 'outbox_reconciler'] loop
    if not exists (select from pg_roles where rolname = role) then
      execute format('create role %I login', role);
    end if;
    -- synchronous_commit: an asynchronous commit loses a committed exposure. The three timeouts: a process that is stopped
    -- inside a statement must not hold a lane. Hash and merge joins, and reading whole tables: with statistics from before a burst, or a
    -- plan made before it and kept, a finish was 100 times slower, and a look at evidence 20 times.
    execute format('alter role %I in database %I set synchronous_commit = on', role, current_database());
    execute format('alter role %I in database %I set default_transaction_isolation = %L', role, current_database(), 'read committed');
    execute format('alter role %I in database %I set statement_timeout = %L', role, current_database(), '30s');
    execute format('alter role %I in database %I set lock_timeout = %L', role, current_database(), '3s');
    execute format('alter role %I in database %I set idle_in_transaction_session_timeout = %L', role, current_database(), '1s');
    execute format('alter role %I in database %I set enable_hashjoin = off', role, current_database());
    execute format('alter role %I in database %I set enable_mergejoin = off', role, current_database());
    execute format('alter role %I in database %I set enable_seqscan = off', role, current_database());
    -- What the driver can read, whatever the database's own default is.
    execute format('alter role %I in database %I set datestyle = %L', role, current_database(), 'ISO');
    execute format('alter role %I in database %I set intervalstyle = %L', role, current_database(), 'postgres');
  end loop;
end $$;

revoke all on schema outbox from public;
revoke all on all tables in schema outbox from public;
revoke all on all sequences in schema outbox from public;
revoke execute on all functions in schema outbox from public;
grant usage on schema outbox to outbox_writer, outbox_relay, outbox_reconciler, outbox_approver, outbox_operator, outbox_viewer;

-- Whoever writes evaluates the CHECKs and the defaults; whoever reads the views evaluates their functions.
grant execute on function outbox.now(), outbox.lp(text), outbox.digest_of(text, text, text, text, text, text, text, bytea),
  outbox.intent_digest(text, text, text, text, text, text, text, bytea), outbox.identity_fault(text, text, text),
  outbox.option_fault(outbox.intent), outbox.payload_fault(bytea, timestamptz, text, text, text, text, text, text, text, bytea),
  outbox.intent_is_sound(outbox.intent),
  outbox.pending_fault(outbox.pending), outbox.pending_is_sound(outbox.pending), outbox.is_cause(text),
  outbox.ordering_hash(text, text), outbox.lane_of(int, text, text), outbox.against(outbox.state, text, outbox.evidence)
  to outbox_writer, outbox_relay, outbox_reconciler, outbox_approver, outbox_operator, outbox_viewer;

-- writer: one INSERT, column by column, so that nobody chooses seq or says who wrote it; answers come through functions.
grant insert (tenant_id, operation_id, tool, resource, arguments, content_type, body, expected_version, ordering_key, principal_id,
  expires_at, not_before, compensates, revision_of, on_behalf_of, traceparent, digest) on outbox.intent to outbox_writer;
grant execute on function outbox.get_operation(text, text) to outbox_writer, outbox_operator, outbox_approver;
grant execute on function outbox.place_of(bigint) to outbox_approver;
grant execute on function outbox.put(text, text, text, text, text, bytea, text, text, text, timestamptz, timestamptz, text, text, text,
  text, text, bytea) to outbox_writer, outbox_operator;

-- relay: leases, attempts, receipts. No update of payload, target or identity anywhere.
grant select on outbox.instance, outbox.receiver, outbox.contract, outbox.tool, outbox.pause, outbox.intent, outbox.pending, outbox.doubt,
  outbox.outcome, outbox.attempt, outbox.evidence, outbox.approval, outbox.lane, outbox.member, outbox.landing to outbox_relay;
grant update (expires_at, renewed_at, idle, bell, crowd, owner, member_id, receiver_fence) on outbox.lane to outbox_relay;
grant update (state, step, attempt, fence, begun_at, first_sent_at, resend_until, unresolved_at, next_at, contract_id, throttled, not_sent,
  sent_key, wire_digest, cause) on outbox.pending to outbox_relay;
grant delete on outbox.pending to outbox_relay;
grant insert on outbox.outcome, outbox.attempt, outbox.landing, outbox.doubt to outbox_relay;
grant update, delete on outbox.doubt to outbox_relay;
grant update (circuit_opened_at, circuit_reason, circuit_retry_at, circuit_probes) on outbox.receiver to outbox_relay;
grant insert, update, delete on outbox.member to outbox_relay, outbox_reconciler;
grant execute on function outbox.timeline(), outbox.database_oid() to outbox_relay, outbox_reconciler;
grant execute on function outbox.take(int, int, uuid, uuid, interval), outbox.enter_era(bigint, int), outbox.sweep_era(int), outbox.claim_chore(text, interval),
  outbox.chore_took(text, interval),
  outbox.expire(int), outbox.redecide(int),
  outbox.doubt_upsert(bigint, int, int, int, timestamptz, interval, outbox.step, timestamptz, boolean, boolean, text),
  outbox.witness(bigint, int, bigint, text, text, text, text, int, int, text, text, timestamptz, text, text, text) to outbox_relay;

-- reconciler: reads, records evidence, settles what is unknown. It has no statement that begins an attempt.
grant select on outbox.instance, outbox.receiver, outbox.contract, outbox.tool, outbox.pause, outbox.intent, outbox.pending, outbox.doubt,
  outbox.outcome, outbox.attempt, outbox.evidence, outbox.approval, outbox.lane, outbox.member, outbox.landing to outbox_reconciler;
grant update (step, next_at, reads, last_read_at, needs_person, reason, claimed_by, claimed_until) on outbox.doubt to outbox_reconciler;
grant select on outbox.contradiction to outbox_reconciler;
grant delete on outbox.landing to outbox_reconciler;
grant execute on function outbox.settle(bigint, int, outbox.state, text, text, bigint, text, text),
  outbox.settle_all(bigint[], int[], outbox.state[], text[], text[], bigint[], text[], text[], outbox.evidence[]),
  outbox.allow_resend(bigint, int, timestamptz, timestamptz), outbox.seize(bigint, int, int), outbox.sweep_orphans(interval),
  outbox.expire(int), outbox.redecide(int),
  outbox.enter_era(bigint, int), outbox.sweep_era(int), outbox.claim_chore(text, interval),
  outbox.chore_took(text, interval), outbox.place_of(bigint),
  outbox.witness(bigint, int, bigint, text, text, text, text, int, int, text, text, timestamptz, text, text, text) to outbox_reconciler;

-- approver, operator, viewer
grant select on outbox.instance, outbox.receiver, outbox.contract, outbox.tool, outbox.pause, outbox.pending, outbox.doubt, outbox.lane,
  outbox.member, outbox.attempt, outbox.outcome, outbox.approval, outbox.evidence, outbox.tombstone, outbox.landing, outbox.intent,
  outbox.operation, outbox.attempt_log, outbox.contradiction, outbox.stuck, outbox.cause, outbox.chore to outbox_approver, outbox_operator;
-- Whether there is something to migrate may be asked by everybody who looks.
grant select on outbox.alembic_version to outbox_approver, outbox_operator, outbox_viewer;
grant select on outbox.instance, outbox.receiver, outbox.contract, outbox.tool, outbox.pause, outbox.pending, outbox.doubt, outbox.lane,
  outbox.member, outbox.contradiction, outbox.stuck, outbox.landing to outbox_viewer;
grant select (seq, tenant_id, operation_id, state, cause, tool, resource, ordering_key, principal_id, created_at, not_before, expires_at,
  receiver, receiver_id, lane, attempt, fence, sent_key, first_sent_at, resend_until, unresolved_at, begun_at, step, next_at, throttled,
  not_sent, ended_at, status, request_id, external_id, decided_by, evidence_id, digest) on outbox.operation to outbox_viewer;
grant select (tenant_id, operation_id, seq, tool, state, cause, external_id, ended_at, purged_at) on outbox.tombstone to outbox_viewer;
grant select (seq, attempt, fence, cause, started_at, ended_at, status, request_id, peer) on outbox.attempt_log to outbox_viewer;
grant execute on function outbox.approve(text, text, bytea, text, timestamptz, text), outbox.revoke(text, text, text, text) to outbox_approver, outbox_operator;
grant execute on function outbox.resolve(text, text, int, outbox.state, text, text, text), outbox.retry(text, text, text),
  outbox.cancel(text, text, text), outbox.settled(bigint), outbox.place_of(bigint) to outbox_operator;
-- The registry is written by `outbox apply`.
grant insert, update, delete on outbox.tool to outbox_operator;
grant insert, update on outbox.receiver to outbox_operator;
grant insert on outbox.contract, outbox.lane to outbox_operator;
grant execute on function outbox.fence_of(bigint, bigint), outbox.redecide(int), outbox.hold_writers() to outbox_operator;
-- upkeep
grant select on outbox.audit to outbox_operator, outbox_viewer, outbox_approver;
grant execute on function outbox.pause_add(text, text, text, text), outbox.pause_end(text, text, text, text),
  outbox.unblock(text, text, text, text), outbox.expedite(text, text, text, text), outbox.seq_at(timestamptz),
  outbox.purgeable(bigint, bigint, timestamptz, int), outbox.purge(bigint, bigint, timestamptz, int, text), outbox.forget(int),
  outbox.redact(text, text, text, text), outbox.unplaced(bigint, int), outbox.repair(bigint, int, text) to outbox_operator;
grant execute on function outbox.unplaced(bigint, int), outbox.forget(int) to outbox_reconciler;
grant execute on function outbox.pause_add(text, text, text, text) to outbox_relay;
grant execute on function outbox.as_tenant(text), outbox.feed(text, text, int) to outbox_writer, outbox_operator;
grant execute on function outbox.feed_of_all(text, int) to outbox_operator;
grant execute on function outbox.feed_xid() to outbox_relay;
