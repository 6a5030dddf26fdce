-- What every program reads of the registry. Versions of contracts never change, so a reader may keep them for ever.

-- name: read_receivers
-- Every receiver.
select r.receiver_id, r.name, r.lanes, r.doorbell, r.config from outbox.receiver r order by r.name

-- name: read_tools
-- Every tool, with the contract version in force.
select t.name, r.name as receiver, t.contract_id, c.version, c.digest, c.body, t.requires_approval, t.policy_version
from outbox.tool t join outbox.receiver r on r.receiver_id = t.receiver_id join outbox.contract c on c.contract_id = t.contract_id
order by t.name

-- name: read_contract
-- One contract version, whole.
select c.tool, c.version, c.digest, c.body from outbox.contract c where c.contract_id = %(contract_id)s
