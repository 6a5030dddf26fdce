-- What a relay sends. Every write after a takeover is one autocommit statement that joins the FOR KEY SHARE lock of its lane row, where
-- fence and owner match: an unjoined CTE fences nothing. No row at all: the lease is lost. A row whose seq is null: held, nothing applied.
--
-- Where rows are named one by one, lane and names become one list first, and each open row is found by all three columns of its key. With
-- the lane given apart, or free to join in any order, a planner without fresh statistics (after every burst) reads a whole lane, or all
-- intents, for one row. The state that a row must have comes in the list too (`was`): compared with a constant, statistics from a moment
-- when nothing ran say that no row has it, and the whole table is read once per name.

-- fragment: held_lane
l as materialized (
  select n.receiver_id, n.lane, n.fence, n.owner, n.expires_at from outbox.lane n
  where n.receiver_id = %(receiver_id)s and n.lane = %(lane)s and n.fence = %(fence)s and n.owner = %(owner)s
  for key share
)

-- fragment: candidate
q.receiver_id, q.lane, q.seq, i.tenant_id, i.operation_id, i.tool, i.resource, i.arguments, i.content_type, i.body, i.expected_version,
i.digest, i.traceparent, t.contract_id as contract_in_force, t.retention, t.key_forever, t.margin, t.reach,
outbox.now() as exposed_at, q.first_sent_at is null as first_exposure, q.unresolved_at is not null as in_doubt, l.fence as lane_fence,
case when q.approval_id is not null then (select a.digest from outbox.approval a where a.approval_id = q.approval_id) end as approved_digest,
q.unresolved_at is not null and coalesce((select b.settle_at <= outbox.now() from outbox.doubt b where b.seq = q.seq), false) as earlier_settled

-- fragment: may_begin
q.next_at <= outbox.now()
and (q.state = 'authorized' or (%(resends)s and q.state = 'unknown' and q.step = 'resend' and (t.repeat_safe or outbox.now() + t.reach
  < least(q.resend_until, case when t.key_forever then 'infinity' else q.first_sent_at + t.retention end) - t.margin)))
and (q.expires_at is null or q.expires_at > outbox.now())
and q.policy_version = t.policy_version
and l.expires_at > outbox.now() + t.deadline
and ((select not exists (select from outbox.pause)) -- as nearly always: asked once, not for every row
  or not exists (select from outbox.pause z where (z.kind = 'tool' and z.name = i.tool) or (z.kind = 'tenant' and z.name = i.tenant_id)
    or (z.kind = 'receiver' and z.name = %(receiver)s)))
and (q.ord is null or (
  not exists (select from outbox.pending e where e.receiver_id = q.receiver_id and e.ord = q.ord and e.seq < q.seq and not e.passed)
  and not exists (select from outbox.landing g where g.receiver_id = q.receiver_id and g.ord = q.ord and g.until > outbox.now())))

-- fragment: expose
begun as (
  update outbox.pending w set state = 'executing', step = 'none', attempt = w.attempt + 1, fence = d.lane_fence, begun_at = d.exposed_at,
    first_sent_at = coalesce(w.first_sent_at, d.exposed_at),
    resend_until = coalesce(w.resend_until, case when d.key_forever then 'infinity' else d.exposed_at + d.retention end),
    contract_id = coalesce(w.contract_id, d.contract_in_force), cause = null
  from due d where w.receiver_id = d.receiver_id and w.lane = d.lane and w.seq = d.seq
  returning w.seq, w.attempt, w.first_sent_at, w.contract_id, w.sent_key::text, w.wire_digest, w.throttled, w.not_sent, w.ord is not null as ordered,
    d.tenant_id, d.operation_id, d.tool, d.resource, d.arguments, d.content_type, d.body, d.expected_version, d.digest,
    d.traceparent, d.contract_in_force, d.first_exposure, d.in_doubt, d.earlier_settled, d.approved_digest,
    -- Seconds are subtracted, not times: before PostgreSQL 17 infinity minus a time is an error.
    (extract(epoch from least(w.expires_at, 'infinity')) - extract(epoch from d.exposed_at))::float8 as permission_left_seconds,
    case when d.in_doubt then (extract(epoch from least(w.resend_until,
      case when d.key_forever then 'infinity' else w.first_sent_at + d.retention end) - d.margin - d.reach)
      - extract(epoch from d.exposed_at))::float8 end as window_left_seconds
)

-- name: peek
-- Whether anything in a range of a lane is due. Takes no lock, so it writes nothing: a holder with nothing to do asks this, since even a
-- begin that finds nothing costs a commit.
select exists (select from outbox.pending q
    where q.receiver_id = %(receiver_id)s and q.lane = %(lane)s and q.seq > %(after)s and q.seq <= %(upto)s and q.next_at <= outbox.now()
      and (q.state = 'authorized' or (q.state = 'unknown' and q.step = 'resend'))) as due,
  pg_snapshot_xmin(pg_current_snapshot())::text::bigint as xmin,
  case when %(frontier)s then (select max(q.seq) from outbox.pending q where q.receiver_id = %(receiver_id)s and q.lane = %(lane)s
    and q.seq > %(after)s and q.seq <= %(upto)s) end as top

-- name: look_ahead
-- Operations of others than the crowd that fills a lane, past all of its rows; `upto`: how far this went, `more`: not to the end. Takes no
-- lock: whoever begins them decides whether they may.
with ahead as materialized (
  select q.seq, q.next_at <= (select outbox.now()) and (q.state = 'authorized' or (q.state = 'unknown' and q.step = 'resend')) as due
  from outbox.pending q where q.receiver_id = %(receiver_id)s and q.lane = %(lane)s and q.seq > %(after)s
  order by q.seq limit %(rows_max)s
), others as materialized (
  select a.seq, i.tenant_id from ahead a cross join lateral (select n.tenant_id from outbox.intent n where n.seq = a.seq offset 0) i
  where a.due and i.tenant_id <> all(%(crowd)s::text[]) order by a.seq limit %(found_max)s
)
select o.seqs, o.tenants, case when o.many then o.last else a.last end as upto, o.many or a.many as more
from (select coalesce(array_agg(seq order by seq), '{}') as seqs, coalesce(array_agg(tenant_id order by seq), '{}') as tenants,
  max(seq) as last, count(*) >= %(found_max)s as many from others) o
cross join (select max(seq) as last, count(*) >= %(rows_max)s as many from ahead) a

-- name: begin_range
-- Claim and expose what is due in a range of a lane, oldest first: exposure is committed before the first byte leaves. `top` is the highest
-- open seq that this snapshot saw (asked for at the frontier only: behind it, the way there may lead over a million dead rows).
with {{held_lane}}, due as materialized (
  select {{candidate}}
  from outbox.pending q cross join l
  cross join lateral (select n.* from outbox.intent n where n.seq = q.seq offset 0) i
  join outbox.tool t on t.name = i.tool
  where q.receiver_id = %(receiver_id)s and q.lane = %(lane)s and q.seq > %(after)s and q.seq <= %(upto)s and {{may_begin}}
  order by q.seq limit %(batch_max)s for no key update of q skip locked
), {{expose}}
select begun.*, pg_snapshot_xmin(pg_current_snapshot())::text::bigint as xmin,
  case when %(frontier)s then (select max(q.seq) from outbox.pending q where q.receiver_id = %(receiver_id)s and q.lane = %(lane)s
    and q.seq > %(after)s and q.seq <= %(upto)s) end as top
from l left join begun on true order by begun.seq

-- name: begin_these
-- Claim and expose named operations of a lane (due retries of the holder's own, rows rung by others), if they still may.
with {{held_lane}}, x as materialized (
  select distinct l.receiver_id, l.lane, u.seq from l cross join unnest(%(seqs)s::bigint[]) as u(seq)
), due as materialized (
  select {{candidate}}
  from x cross join lateral (
    select p.* from outbox.pending p where p.receiver_id = x.receiver_id and p.lane = x.lane and p.seq = x.seq for no key update skip locked
  ) q cross join l
  cross join lateral (select n.* from outbox.intent n where n.seq = q.seq offset 0) i
  join outbox.tool t on t.name = i.tool
  where {{may_begin}}
  order by q.seq limit %(batch_max)s
), {{expose}}
select begun.*, pg_snapshot_xmin(pg_current_snapshot())::text::bigint as xmin, null::bigint as top
from l left join begun on true order by begun.seq

-- name: end_operations
-- Attempts that settle their operation: pending row out, outcome in, in one statement. rejected only where no earlier attempt is unresolved
-- (or where this answer also proves that none of those had or can have an effect: `for_all`), and no proof of the effect has come in meanwhile.
with {{held_lane}}, x as materialized (
  select l.receiver_id, l.lane, l.fence, l.owner, 'executing'::outbox.state as was, u.*
  from l cross join unnest(%(seqs)s::bigint[], %(attempts)s::int[], %(states)s::outbox.state[], %(causes)s::text[], %(for_alls)s::boolean[], %(sent_keys)s::uuid[],
    %(wire_digests)s::bytea[], %(statuses)s::int[], %(excerpts)s::text[], %(request_ids)s::text[], %(peers)s::text[],
    %(receipts)s::text[], %(external_ids)s::text[])
    as u(seq, attempt, state, cause, for_all, sent_key, wire_digest, status, excerpt, request_id, peer, receipt, external_id)
), d as (
  delete from outbox.pending p using x
  where p.receiver_id = x.receiver_id and p.lane = x.lane and p.seq = x.seq and p.attempt = x.attempt and p.fence = x.fence
    and p.state = x.was and (x.state = 'succeeded' or ((p.unresolved_at is null or x.for_all) and p.cause is distinct from 'late_receipt'))
  returning p.receiver_id, p.seq, p.attempt, p.fence, x.owner, p.first_sent_at, p.begun_at, p.contract_id, p.approval_id,
    p.policy_version, p.throttled, p.not_sent, p.ord, p.unresolved_at, coalesce(p.sent_key, x.sent_key) as sent_key,
    x.state, x.cause, x.wire_digest, x.status, x.excerpt, x.request_id, x.peer, x.receipt, x.external_id
), o as (
  insert into outbox.outcome (seq, from_state, state, cause, attempt, fence, owner, first_sent_at, started_at, contract_id, approval_id,
    policy_version, throttled, not_sent, sent_key, wire_digest, status, excerpt, request_id, peer, receipt, external_id)
  select d.seq, 'executing', d.state, d.cause, d.attempt, d.fence, d.owner, d.first_sent_at, d.begun_at, d.contract_id, d.approval_id,
    d.policy_version, d.throttled, d.not_sent, d.sent_key, d.wire_digest, d.status, d.excerpt, d.request_id, d.peer, d.receipt, d.external_id
  from d
), c as (
  delete from outbox.doubt b using d where b.seq = d.seq
), g as (
  insert into outbox.landing (receiver_id, ord, seq, until)
  select d.receiver_id, d.ord, d.seq, greatest(b.settle_at, b.gave_up_at + t.person_settle * (b.settle_at is null)::int)
  from d join outbox.doubt b on b.seq = d.seq join outbox.tool t on t.name = b.tool
  where d.ord is not null and d.unresolved_at is not null and t.lands_late
  on conflict do nothing
)
select d.seq, (select min(e.seq) from outbox.pending e where d.ord is not null and e.receiver_id = d.receiver_id and e.ord = d.ord and e.seq > d.seq)
  as successor
from l left join d on true

-- name: withdraw_attempts
-- Attempts that proved to have no effect: what stood before this attempt is restored, and an earlier one is never forgotten. Nothing is
-- withdrawn from an operation whose effect has been proven meanwhile. An answer that refuses our credential is kept: it is what there is to
-- quote, and of one operation it comes seldom. Throttles and what never left are counted only.
with {{held_lane}}, x as materialized (
  select l.receiver_id, l.lane, l.fence, l.owner, 'executing'::outbox.state as was, u.*
  from l cross join unnest(%(seqs)s::bigint[], %(attempts)s::int[], %(causes)s::text[], %(steps)s::outbox.step[], %(delays)s::float8[],
    %(patiences)s::float8[], %(reasons)s::text[], %(no_resends)s::boolean[], %(not_sents)s::boolean[], %(throttleds)s::boolean[],
    %(firsts)s::boolean[], %(sent_keys)s::uuid[], %(wire_digests)s::bytea[], %(statuses)s::int[], %(excerpts)s::text[], %(request_ids)s::text[],
    %(peers)s::text[])
    as u(seq, attempt, cause, step, delay, patience, reason, no_resend, not_sent, throttled, first, sent_key, wire_digest, status, excerpt,
      request_id, peer)
), u as (
  update outbox.pending p set cause = x.cause,
    state = (case when p.unresolved_at is null then 'authorized' else 'unknown' end)::outbox.state,
    step = (case when p.unresolved_at is not null and x.step = 'resend' then 'resend' else 'none' end)::outbox.step,
    next_at = case when p.unresolved_at is null and x.step = 'person' then 'infinity' else outbox.now() + x.delay * interval '1 second' end,
    not_sent = p.not_sent + x.not_sent::int, throttled = p.throttled + x.throttled::int,
    first_sent_at = case when x.first and x.not_sent and p.unresolved_at is null then null else p.first_sent_at end,
    resend_until = case when x.first and x.not_sent and p.unresolved_at is null then null else p.resend_until end,
    contract_id = case when x.first and x.not_sent and p.unresolved_at is null then null else p.contract_id end
  from x
  where p.receiver_id = x.receiver_id and p.lane = x.lane and p.seq = x.seq and p.attempt = x.attempt and p.fence = x.fence and p.state = x.was
    and p.cause is distinct from 'late_receipt'
  returning p.receiver_id, p.lane, p.seq, p.attempt, p.unresolved_at is not null as in_doubt, x.step, x.delay, x.patience, x.reason, x.no_resend,
    x.cause, x.fence, x.owner, p.begun_at, p.contract_id, x.sent_key, x.wire_digest, x.status, x.excerpt, x.request_id, x.peer
), a as (
  insert into outbox.attempt (seq, attempt, fence, owner, cause, contract_id, sent_key, wire_digest, started_at, status, excerpt, request_id, peer,
    withdrawn)
  select u.seq, u.attempt, u.fence, u.owner, u.cause, u.contract_id, u.sent_key, u.wire_digest, u.begun_at, u.status, u.excerpt, u.request_id, u.peer,
    true
  from u where u.cause in ('receiver_fault', 'forbidden') on conflict do nothing
), b as (
  update outbox.doubt b set step = u.step, needs_person = b.needs_person or u.step = 'person', reason = coalesce(u.reason, b.reason),
    next_at = outbox.now() + (u.delay + u.patience) * interval '1 second', no_resend = b.no_resend or u.no_resend,
    claimed_by = null, claimed_until = null
  from u where b.seq = u.seq and u.in_doubt
), n as (
  insert into outbox.doubt (seq, receiver_id, lane, tenant_id, tool, attempt, step, next_at, needs_person, reason)
  select u.seq, u.receiver_id, u.lane, i.tenant_id, i.tool, u.attempt, 'person', 'infinity', true, u.reason
  from u join outbox.intent i on i.seq = u.seq where u.step = 'person' and not u.in_doubt
  on conflict (seq) do update set needs_person = true, step = 'person', reason = excluded.reason, next_at = 'infinity'
)
select u.seq, u.in_doubt from l left join u on true

-- name: record_unknown
-- Attempts of which nothing is proven: the operation is unknown, with a row of doubt that says what comes next, and when. Where that is a
-- resend, `patience` later somebody decides again.
with {{held_lane}}, x as materialized (
  select l.receiver_id, l.lane, l.fence, l.owner, 'executing'::outbox.state as was, u.*
  from l cross join unnest(%(seqs)s::bigint[], %(attempts)s::int[], %(causes)s::text[], %(steps)s::outbox.step[], %(delays)s::float8[],
    %(patiences)s::float8[], %(reasons)s::text[], %(no_resends)s::boolean[], %(accepteds)s::boolean[], %(sent_keys)s::uuid[],
    %(wire_digests)s::bytea[], %(statuses)s::int[], %(excerpts)s::text[], %(request_ids)s::text[], %(peers)s::text[])
    as u(seq, attempt, cause, step, delay, patience, reason, no_resend, accepted, sent_key, wire_digest, status, excerpt, request_id, peer)
), u as (
  update outbox.pending p set state = 'unknown', cause = x.cause, unresolved_at = coalesce(p.unresolved_at, p.begun_at),
    step = (case when x.step = 'resend' and p.cause is distinct from 'late_receipt' then 'resend' else 'none' end)::outbox.step,
    next_at = outbox.now() + x.delay * interval '1 second',
    sent_key = coalesce(p.sent_key, x.sent_key), wire_digest = coalesce(p.wire_digest, x.wire_digest)
  from x
  where p.receiver_id = x.receiver_id and p.lane = x.lane and p.seq = x.seq and p.attempt = x.attempt and p.fence = x.fence and p.state = x.was
  returning p.receiver_id, p.lane, p.seq, p.attempt, p.fence, x.owner, p.begun_at, p.contract_id, p.sent_key, x.wire_digest, x.cause, x.step,
    x.delay, x.patience, x.reason, x.no_resend, x.accepted, x.status, x.excerpt, x.request_id, x.peer
), a as (
  insert into outbox.attempt (seq, attempt, fence, owner, cause, contract_id, sent_key, wire_digest, started_at, status, excerpt, request_id, peer)
  select u.seq, u.attempt, u.fence, u.owner, u.cause, u.contract_id, u.sent_key, u.wire_digest, u.begun_at, u.status, u.excerpt, u.request_id, u.peer
  from u on conflict do nothing
), b as (
  select outbox.doubt_upsert(u.seq, u.receiver_id, u.lane, u.attempt, u.begun_at, t.settle, u.step,
    outbox.now() + (u.delay + u.patience) * interval '1 second', u.accepted, u.no_resend, u.reason)
  from u join outbox.intent i on i.seq = u.seq join outbox.tool t on t.name = i.tool
), done as (select count(*) as doubts from b)
select u.seq from l cross join done left join u on true

-- name: renew_leases
-- Renew every lane that this member holds. Lanes that do not come back are lost.
with x as materialized (
  select * from unnest(%(receiver_ids)s::int[], %(lanes)s::int[], %(fences)s::bigint[], %(owners)s::uuid[], %(ttls)s::float8[])
    as x(receiver_id, lane, fence, owner, ttl)
)
update outbox.lane n set expires_at = outbox.now() + x.ttl * interval '1 second', renewed_at = outbox.now()
from x where n.receiver_id = x.receiver_id and n.lane = x.lane and n.fence = x.fence and n.owner = x.owner
returning n.receiver_id, n.lane

-- name: take_lane
-- Take a free or expired lane; attempts of older fences become unknown.
select fence, made_unknown from outbox.take(%(receiver_id)s, %(lane)s, %(owner)s, %(member_id)s, %(ttl_seconds)s * interval '1 second')

-- name: give_back_lane
-- Give a lane back: the next holder need not wait for the lease to end.
update outbox.lane n set owner = null, member_id = null, expires_at = '-infinity', idle = false, bell = null, crowd = '{}'
where n.receiver_id = %(receiver_id)s and n.lane = %(lane)s and n.fence = %(fence)s and n.owner = %(owner)s
returning n.lane

-- name: lanes_of_receivers
-- Every lane of the receivers that this relay serves, with its fence and whether nobody holds it.
select n.receiver_id, n.lane, n.fence, n.expires_at < outbox.now() as free
from outbox.lane n where n.receiver_id = any(%(receiver_ids)s::int[]) order by n.receiver_id, n.lane

-- name: set_bell
-- Where to ring for this lane, and when: while its holder has nothing to do, every writer rings; while a crowd fills it, everybody else.
update outbox.lane n set idle = %(idle)s, bell = %(bell)s, crowd = %(crowd)s::text[]
where n.receiver_id = %(receiver_id)s and n.lane = %(lane)s and n.fence = %(fence)s and n.owner = %(owner)s
returning n.lane

-- name: horizon
-- Read right after declaring idle: writers below it may still have read the old flag.
select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xmax

-- name: lane_bounds
-- The lowest open seq of a lane at or above a known floor (null: none), and which transactions had ended and begun by then.
select (select min(p.seq) from outbox.pending p
        where p.receiver_id = %(receiver_id)s and p.lane = %(lane)s and p.seq >= %(floor)s) as lowest,
  pg_snapshot_xmin(s)::text::bigint as xmin, pg_snapshot_xmax(s)::text::bigint as xmax
from pg_current_snapshot() s

-- name: own_executing
-- Rows that execute under the holder's own fence: those it does not know of are orphans of a lost answer.
select p.seq, p.attempt, p.first_sent_at = p.begun_at as first from outbox.pending p
where p.receiver_id = %(receiver_id)s and p.lane = %(lane)s and p.fence = %(fence)s and p.state = 'executing'
  and p.seq > %(after)s and p.seq <= %(upto)s
order by p.seq limit %(batch_max)s

-- name: recorded_attempts
-- After "nothing applied": which of these attempts an earlier commit of ours, whose answer was lost, has recorded. A withdrawal may leave no
-- row of its own: it is the one way in which an attempt of this fence stops executing without one.
select x.seq, x.attempt from unnest(%(seqs)s::bigint[], %(attempts)s::int[]) as x(seq, attempt)
where exists (select from outbox.outcome o where o.seq = x.seq and o.attempt = x.attempt and o.fence = %(fence)s and o.owner = %(owner)s)
   or exists (select from outbox.attempt a where a.seq = x.seq and a.attempt = x.attempt and a.fence = %(fence)s and a.owner = %(owner)s)
   or (not exists (select from outbox.attempt a where a.seq = x.seq and a.attempt = x.attempt)
       and exists (select from outbox.pending p where p.receiver_id = %(receiver_id)s and p.lane = %(lane)s and p.seq = x.seq
         and p.fence = %(fence)s and (p.attempt > x.attempt or (p.attempt = x.attempt and p.state <> 'executing'))))

-- name: witness_late
-- Answers whose lease was lost, as evidence; each once, however often their commit had to be tried.
select x.seq, outbox.witness(x.seq, x.attempt, %(fence)s, x.kind, null, x.external_id, x.receipt, 0, x.status, x.excerpt, x.request_id, null,
  'relay', null, x.note) as evidence_id
from unnest(%(seqs)s::bigint[], %(attempts)s::int[], %(kinds)s::text[], %(external_ids)s::text[], %(receipts)s::text[], %(statuses)s::int[],
  %(excerpts)s::text[], %(request_ids)s::text[], %(notes)s::text[])
  as x(seq, attempt, kind, external_id, receipt, status, excerpt, request_id, note)
where not exists (select from outbox.evidence e
  where e.seq = x.seq and e.attempt = x.attempt and e.fence = %(fence)s and e.kind = x.kind and e.source = 'relay')

-- name: pause_receiver
-- Begin nothing more for a receiver that refuses our credential, until a person lets it go on.
select outbox.pause_add('receiver', %(receiver)s, %(by)s, %(reason)s) as paused

-- name: circuits
-- Which receivers are left alone, and for how much longer.
select r.receiver_id, r.circuit_opened_at is not null as open, r.circuit_probes as probes, r.circuit_reason as reason, r.circuit_retry_at as retry_date,
  coalesce(greatest(extract(epoch from r.circuit_retry_at - outbox.now()), 0), 0)::float8 as retry_in_seconds
from outbox.receiver r where r.receiver_id = any(%(receiver_ids)s::int[])

-- name: open_circuit
-- Leave a receiver alone for a while. The first time unless somebody else has said so already; again only while it is open.
update outbox.receiver r set circuit_opened_at = coalesce(r.circuit_opened_at, outbox.now()), circuit_reason = %(reason)s,
  circuit_probes = %(probes)s, circuit_retry_at = outbox.now() + %(retry_seconds)s * interval '1 second'
where r.receiver_id = %(receiver_id)s and (r.circuit_opened_at is not null) = %(again)s

-- name: close_circuit
-- It answers again.
update outbox.receiver r set circuit_opened_at = null, circuit_reason = null, circuit_probes = 0, circuit_retry_at = null
where r.receiver_id = %(receiver_id)s and r.circuit_opened_at is not null

-- name: claim_probe
-- The right to make one probe, given to one relay at a time; to the others, how it stands.
with mine as (
  update outbox.receiver r set circuit_retry_at = outbox.now() + %(right_seconds)s * interval '1 second'
  where r.receiver_id = %(receiver_id)s and r.circuit_opened_at is not null and r.circuit_retry_at <= outbox.now()
  returning r.receiver_id, r.circuit_retry_at
)
select m.receiver_id is not null as granted, r.circuit_opened_at is not null as open, r.circuit_probes as probes, r.circuit_reason as reason,
  coalesce(m.circuit_retry_at, r.circuit_retry_at) as retry_date,
  coalesce(greatest(extract(epoch from r.circuit_retry_at - outbox.now()), 0), 0)::float8 as retry_in_seconds
from outbox.receiver r left join mine m on m.receiver_id = r.receiver_id where r.receiver_id = %(receiver_id)s

-- name: renew_probes
-- Probes of ours still run: nobody else may make one.
update outbox.receiver r set circuit_retry_at = outbox.now() + %(right_seconds)s * interval '1 second'
where r.receiver_id = any(%(receiver_ids)s::int[]) and r.circuit_opened_at is not null
