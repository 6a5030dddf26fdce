-- The demo's own service, and what the demo asks of the outbox while it breaks things.

-- name: create_orders
-- The service's own table: one row per order, written in the transaction of its intent.
create table if not exists public.orders (
  order_id bigint primary key,
  tool text not null,
  cents int not null,
  created_at timestamptz not null default outbox.now()
)

-- name: allow_service
-- The service has the rights of a writer: its own table and intents, no more.
grant select, insert on public.orders to outbox_writer

-- name: insert_order
-- The service's own row.
insert into public.orders (order_id, tool, cents) values (%(order_id)s, %(tool)s, %(cents)s)

-- name: progress
-- How far everything is.
select (select count(*) from outbox.intent) as intents,
  count(*) filter (where p.state = 'authorized') as authorized,
  count(*) filter (where p.state = 'executing') as executing,
  count(*) filter (where p.state = 'unknown') as uncertain,
  (select count(*) from outbox.doubt d where d.needs_person) as needs_person,
  (select count(*) from outbox.outcome o where o.state = 'succeeded') as succeeded,
  (select count(*) from outbox.outcome o where o.state = 'rejected') as rejected
from outbox.pending p

-- name: in_flight_of
-- Attempts that run in lanes that one relay process holds.
select count(*) as attempts from outbox.member m join outbox.lane l on l.member_id = m.member_id and l.expires_at > outbox.now()
join outbox.pending p on p.receiver_id = l.receiver_id and p.lane = l.lane and p.state = 'executing' and p.fence = l.fence
where m.pid = %(pid)s

-- name: lanes_of
-- Lanes that one relay process holds, with their fences.
select l.receiver_id, l.lane, l.fence from outbox.member m join outbox.lane l on l.member_id = m.member_id where m.pid = %(pid)s

-- name: lanes_passed_on
-- Whether all of these lanes have a newer fence: somebody else took them.
select count(*) filter (where l.fence > x.fence) = count(*) as taken
from unnest(%(receiver_ids)s::int[], %(lanes)s::int[], %(fences)s::bigint[]) x(receiver_id, lane, fence)
join outbox.lane l on l.receiver_id = x.receiver_id and l.lane = x.lane

-- name: operations
-- Every operation as the outbox sees it, for comparison with the receiver's ledger.
select i.operation_id, i.tool, coalesce(o.state, p.state)::text as state, coalesce(o.cause, p.cause) as cause, coalesce(o.attempt, p.attempt) as attempt,
  o.decided_by, o.from_state::text as from_state, d.needs_person, d.reason, exists (select from outbox.attempt a where a.seq = i.seq and not a.withdrawn) as was_unknown,
  exists (select from outbox.evidence e where e.seq = i.seq and e.kind = 'lookup' and e.verdict in ('confirmed', 'ended', 'not_found')) as looked_up,
  coalesce(o.cause, p.cause) = 'contradiction' or exists (select from outbox.contradiction c where c.seq = i.seq) as contradicted
from outbox.intent i left join outbox.outcome o on o.seq = i.seq left join outbox.doubt d on d.seq = i.seq
left join lateral outbox.place_of(i.seq) w on o.seq is null
left join outbox.pending p on p.receiver_id = w.receiver_id and p.lane = w.lane and p.seq = i.seq
order by i.seq

-- name: witnessed
-- Late answers that were kept as evidence, and writes that a fence refused (as the daemons counted them).
select (select count(*) from outbox.evidence e where e.kind in ('receipt', 'late_answer', 'not_sent')) as late_answers,
  (select coalesce(sum((m.counters ->> 'fenced_writes')::float8), 0) from outbox.member m)::bigint as fenced_writes

-- name: orders_without_intent
-- Orders without their intent or intents without their order: both or neither is the promise.
select count(*) from public.orders o full join outbox.intent i on i.operation_id = 'order-' || o.order_id where o.order_id is null or i.seq is null
