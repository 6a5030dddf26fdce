-- What `outbox apply` runs, all of it in one transaction.

-- name: apply_lock
-- One apply at a time; the second one finds the work of the first done. The number is only a name.
select pg_advisory_xact_lock(4287031577216804220)

-- name: applied_receivers
-- The receivers that are there.
select r.receiver_id, r.name, r.transport, r.lanes, r.doorbell, r.config from outbox.receiver r

-- name: applied_tools
-- The tools that are there, with what is in force.
select t.name, r.name as receiver, t.receiver_id, t.contract_id, c.version, c.digest, c.body, t.requires_approval, t.policy_version
from outbox.tool t join outbox.receiver r on r.receiver_id = t.receiver_id join outbox.contract c on c.contract_id = t.contract_id

-- name: insert_receiver
-- A new receiver.
insert into outbox.receiver (name, transport, lanes, doorbell, config, applied_by)
values (%(name)s, %(transport)s, %(lanes)s, %(doorbell)s, %(config)s::jsonb, %(by)s) returning receiver_id

-- name: insert_lanes
-- Its lanes, whose fences begin in the present life of the database.
insert into outbox.lane (receiver_id, lane, fence)
select %(receiver_id)s, k.lane, outbox.fence_of(n.era, 0) from outbox.instance n, generate_series(0, %(lanes)s - 1) as k(lane)
on conflict do nothing

-- name: update_receiver
-- A receiver that is configured anew. Never its lanes. Whether it answers under this configuration is to be seen.
update outbox.receiver set transport = %(transport)s, doorbell = %(doorbell)s, config = %(config)s::jsonb, applied_at = outbox.now(),
  applied_by = %(by)s, circuit_opened_at = null, circuit_reason = null, circuit_probes = 0, circuit_retry_at = null where receiver_id = %(receiver_id)s

-- name: find_contract
-- A version that says exactly this, however old.
select c.contract_id, c.version from outbox.contract c where c.digest = %(digest)s

-- name: insert_contract
-- A new version of a tool's contract.
insert into outbox.contract (digest, tool, version, body, applied_by)
select %(digest)s, %(tool)s, coalesce(max(c.version), 0) + 1, %(body)s::jsonb, %(by)s from outbox.contract c where c.tool = %(tool)s
returning contract_id, version

-- name: put_tool
-- A tool with its contract in force, and the numbers that the begin statement judges a batch by.
insert into outbox.tool (name, receiver_id, contract_id, requires_approval, policy_version, retention, key_forever, margin, reach, deadline,
  settle, person_settle, identity_retention, repeat_safe, resend_safe, stores_key_on_execution, lands_late, applied_by)
select %(name)s, %(receiver_id)s, %(contract_id)s, %(requires_approval)s, %(policy_version)s, %(retention)s * s, %(key_forever)s, %(margin)s * s,
  %(reach)s * s, %(deadline)s * s, %(settle)s * s, %(person_settle)s * s, %(identity_retention)s * s, %(repeat_safe)s, %(resend_safe)s,
  %(stores_key_on_execution)s, %(lands_late)s, %(by)s from (values (interval '1 second')) as unit(s)
on conflict (name) do update set receiver_id = excluded.receiver_id, contract_id = excluded.contract_id,
  requires_approval = excluded.requires_approval, policy_version = excluded.policy_version, retention = excluded.retention,
  key_forever = excluded.key_forever, margin = excluded.margin, reach = excluded.reach, deadline = excluded.deadline, settle = excluded.settle,
  person_settle = excluded.person_settle, identity_retention = excluded.identity_retention, repeat_safe = excluded.repeat_safe,
  resend_safe = excluded.resend_safe, stores_key_on_execution = excluded.stores_key_on_execution, lands_late = excluded.lands_late,
  applied_at = outbox.now(), applied_by = excluded.applied_by

-- name: remove_tool
-- A tool that has no open operation. Its contracts and its history stay.
delete from outbox.tool t where t.name = %(name)s

-- name: hold_writers
-- Before the check below: wait for every open transaction that has written an intent, and let no other begin one until we commit.
select outbox.hold_writers()

-- name: open_operations
-- How many operations of a tool have not ended; counted up to a bound.
select count(*) from (select from outbox.pending p join outbox.intent i on i.seq = p.seq
  where p.receiver_id = %(receiver_id)s and i.tool = %(name)s limit %(count_max)s) as open

-- name: redecide_some
-- After the commit: operations that were permitted under another policy are decided again. Daemons do the same, in their own time.
select outbox.redecide(%(batch_max)s)
