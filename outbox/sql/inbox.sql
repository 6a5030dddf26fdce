-- What is asked of an inbox in another database (inbox/schema.sql). Sent by outbox/receivers/postgres, never by a Store.

-- name: receive
-- Have the effect of one operation, at most once.
select r.said, r.receipt, r.external_id
from inbox.receive(%(inbox)s::text, %(sent_key)s::uuid, %(attempt)s::int, %(lane)s::text, %(fence)s::bigint, %(digest)s::bytea,
  %(tenant_id)s::text, %(operation_id)s::text, %(tool)s::text, %(resource)s::text, %(arguments)s::text, %(expected_version)s::text,
  %(content_type)s::text, %(body)s::bytea) r;

-- name: look
-- Say what became of one operation; with an attempt, after shutting out every attempt up to it.
select l.said, l.refused_to, l.receipt, l.external_id
from inbox.look(%(inbox)s::text, %(sent_key)s::uuid, %(attempt)s::int, %(tenant_id)s::text, %(operation_id)s::text, %(tool)s::text) l;
