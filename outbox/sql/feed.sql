-- The feed as the command line reads it: as an operator, who sees every tenant.

-- name: feed_of_all
-- Ends of everybody's operations behind a cursor, oldest first; the last row is a bookmark and has no operation.
select f.* from outbox.feed_of_all(p_after => cast(%(after)s as text), p_limit => cast(%(batch_max)s as int)) as f;

-- name: feed_of_one
-- The same of one tenant.
select f.* from outbox.feed(
  p_tenant_id => cast(%(tenant_id)s as text),
  p_after => cast(%(after)s as text),
  p_limit => cast(%(batch_max)s as int)
) as f;
