-- What people decide: each is one function of the database, which compares what the person looked at and records who it was.

-- name: resolve
-- A statement about what happened settles an unknown operation. Compares the attempt; refused before settle time.
select outbox.resolve(%(tenant_id)s, %(operation_id)s, %(attempt)s, %(to)s::outbox.state, %(external_id)s, %(by)s, %(evidence)s) as answer

-- name: retry
-- End a back-off, or send again inside the doubt while the window is open.
select outbox.retry(%(tenant_id)s, %(operation_id)s, %(by)s) as state

-- name: cancel
-- End an operation that hides no effect.
select outbox.cancel(%(tenant_id)s, %(operation_id)s, %(by)s)

-- name: approve
-- Permit exactly this action: the digest is compared.
select outbox.approve(%(tenant_id)s, %(operation_id)s, %(digest)s, %(by)s, %(expires_at)s, %(reason)s) as approval_id

-- name: revoke
-- Withdraw a permission.
select outbox.revoke(%(tenant_id)s, %(operation_id)s, %(by)s, %(reason)s) as state
