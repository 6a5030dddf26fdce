-- The whole write API for any language is one INSERT, in a transaction of yours:
--
--     psql -v ON_ERROR_STOP=1 -v order=17 -f examples/plain_sql.sql postgresql://shop@/app
\set arguments '{"cents":1999}'

create table if not exists sql_orders (id int primary key, state text not null);

begin;
insert into sql_orders values (:order, 'refund asked for');
insert into outbox.intent (tenant_id, operation_id, tool, resource, principal_id, arguments, digest)
values ('acme', 'sql-order-' || :order, 'payment.refund', 'order-' || :order, 'billing', :'arguments',
        outbox.intent_digest('acme', 'sql-order-' || :order, 'payment.refund', 'order-' || :order, null, :'arguments'));
commit;

-- An INSERT of an id that exists fails with a unique violation. outbox.put() answers with the operation instead, or names
-- in `differs` what another action under the same id would have changed. It writes nothing then, and never commits.
begin;
select created, differs, state
from outbox.put('acme', 'sql-order-' || :order, 'payment.refund', 'billing', :'arguments',
                outbox.intent_digest('acme', 'sql-order-' || :order, 'payment.refund', 'order-' || :order, null, :'arguments'),
                p_resource => 'order-' || :order);
commit;

-- What is known of one operation. `executing` and `unknown` are answers: it may have happened.
select state, cause, attempt, external_id from outbox.get_operation('acme', 'sql-order-' || :order);

-- How operations ended, each once and in order. Keep the cursor of the last row that you have handled, in the
-- transaction in which you handle it, and give it as the second argument. The last row is a bookmark and has no operation.
select operation_id, state, cursor from outbox.feed('acme', null, 100);
