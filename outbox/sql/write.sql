-- What runs on the connection of a service, inside its transaction. Casts spare every driver from guessing types; times
-- travel as text, since SQLAlchemy declares a datetime to be a timestamp without time zone, and JSON as text, since a
-- service may have taught its driver to encode what it takes for JSON.
-- as_tenant() says in the same statement whom the transaction acts for, where row-level security wants to know.

-- name: put_one
-- Put one intent; answers with the operation, or with the fields in which an earlier one of that id differs.
select p.*, cast(pg_current_xact_id_if_assigned() as text) as xid
from outbox.put(
  p_tenant_id => outbox.as_tenant(cast(%(tenant_id)s as text)),
  p_operation_id => cast(%(operation_id)s as text),
  p_tool => cast(%(tool)s as text),
  p_principal_id => cast(%(principal_id)s as text),
  p_arguments => cast(%(arguments)s as text),
  p_digest => cast(%(digest)s as bytea),
  p_resource => cast(%(resource)s as text),
  p_expected_version => cast(%(expected_version)s as text),
  p_ordering_key => cast(%(ordering_key)s as text),
  p_not_before => cast(cast(%(not_before)s as text) as timestamptz),
  p_expires_at => cast(cast(%(expires_at)s as text) as timestamptz),
  p_compensates => cast(%(compensates)s as text),
  p_revision_of => cast(%(revision_of)s as text),
  p_on_behalf_of => cast(%(on_behalf_of)s as text),
  p_traceparent => cast(%(traceparent)s as text),
  p_content_type => cast(%(content_type)s as text),
  p_body => cast(%(body)s as bytea)
) as p;

-- name: put_many
-- Put a list of intents in its order, which the caller sorts: two writers then meet on their first common id only.
select i.place, p.*, cast(pg_current_xact_id_if_assigned() as text) as xid
from json_to_recordset(cast(cast(%(intents)s as text) as json)) as i (
  place int, tenant_id text, operation_id text, tool text, principal_id text, arguments text, digest text,
  resource text, expected_version text, ordering_key text, not_before timestamptz, expires_at timestamptz,
  compensates text, revision_of text, on_behalf_of text, traceparent text, content_type text, body text
)
cross join lateral outbox.put(
  p_tenant_id => outbox.as_tenant(i.tenant_id),
  p_operation_id => i.operation_id,
  p_tool => i.tool,
  p_principal_id => i.principal_id,
  p_arguments => i.arguments,
  p_digest => decode(i.digest, 'hex'),
  p_resource => i.resource,
  p_expected_version => i.expected_version,
  p_ordering_key => i.ordering_key,
  p_not_before => i.not_before,
  p_expires_at => i.expires_at,
  p_compensates => i.compensates,
  p_revision_of => i.revision_of,
  p_on_behalf_of => i.on_behalf_of,
  p_traceparent => i.traceparent,
  p_content_type => i.content_type,
  p_body => decode(i.body, 'hex')
) as p;

-- name: get_one
-- What is known of one operation; one row also where there is none, with what a wait must know of its transaction.
select g.*,
       cast(pg_current_xact_id_if_assigned() as text) as xid,
       current_setting('transaction_isolation') as isolation,
       transaction_timestamp() as began_at,
       not pg_visible_in_snapshot(cast(cast(%(put_xid)s as text) as xid8), pg_current_snapshot()) as put_is_open
from (values (1)) as always (one)
left join lateral outbox.get_operation(
  p_tenant_id => outbox.as_tenant(cast(%(tenant_id)s as text)),
  p_operation_id => cast(%(operation_id)s as text)
) as g on true;

-- name: feed
-- Ends of a tenant's operations behind a cursor, oldest first; the last row is a bookmark and has no operation.
select f.*, transaction_timestamp() as began_at
from outbox.feed(
  p_tenant_id => outbox.as_tenant(cast(%(tenant_id)s as text)),
  p_after => cast(%(after)s as text),
  p_limit => cast(%(batch_max)s as int)
) as f;
