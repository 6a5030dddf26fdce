-- What people read. Nothing here changes anything, and nothing scans a backlog or a history without a bound.
-- Dates that may be infinite come as null beside a flag, or as null where infinity means "never".

-- name: database_clock
-- The time that a look is made at, and that spans count back from.
select outbox.now() as now

-- name: find_in_tenant
-- One operation of one tenant by its id, purged or not.
select i.seq, i.tenant_id, false as purged from outbox.intent i
where i.tenant_id = %(tenant_id)s and i.operation_id = %(operation_id)s
union all
select s.seq, s.tenant_id, true from outbox.tombstone s where s.tenant_id = %(tenant_id)s and s.operation_id = %(operation_id)s

-- name: find_anywhere
-- The operations of that id, of whichever tenant: the unique index is walked from tenant to tenant, one probe each.
with recursive tenants(tenant_id) as (
  (select i.tenant_id from outbox.intent i order by i.tenant_id limit 1)
  union all
  select (select i.tenant_id from outbox.intent i where i.tenant_id > t.tenant_id order by i.tenant_id limit 1)
  from tenants t where t.tenant_id is not null
), graves(tenant_id) as (
  (select s.tenant_id from outbox.tombstone s order by s.tenant_id limit 1)
  union all
  select (select s.tenant_id from outbox.tombstone s where s.tenant_id > g.tenant_id order by s.tenant_id limit 1)
  from graves g where g.tenant_id is not null
)
select i.seq, i.tenant_id, false as purged from tenants t
join outbox.intent i on i.tenant_id = t.tenant_id and i.operation_id = %(operation_id)s
union all
select s.seq, s.tenant_id, true from graves g
join outbox.tombstone s on s.tenant_id = g.tenant_id and s.operation_id = %(operation_id)s
order by tenant_id limit %(limit)s

-- name: read_tombstone
-- What is left of a purged operation.
select s.tenant_id, s.operation_id, s.seq, s.tool, s.principal_id, s.digest, s.state::text as state, s.cause, s.external_id, s.ended_at, s.purged_at
from outbox.tombstone s where s.tenant_id = %(tenant_id)s and s.operation_id = %(operation_id)s

-- name: read_operation
-- Everything in one row that is known once: intent, permission, state, doubt, outcome, and who holds the lane.
select i.seq, i.tenant_id, i.operation_id, i.tool, i.resource, i.arguments, i.content_type, octet_length(i.body) as body_bytes, i.expected_version,
  i.ordering_key, i.principal_id, i.on_behalf_of, i.compensates, i.revision_of, i.written_by, i.traceparent, i.created_at, i.redacted_at, i.digest,
  case when isfinite(i.not_before) then least(greatest(i.not_before, '0001-01-03 00:00:00+00'), '9999-12-29 00:00:00+00') end as not_before,
  outbox.now() as now,
  coalesce(o.state, p.state)::text as state, case when o.seq is null then p.cause else o.cause end as cause,
  r.name as receiver, r.config ->> 'base_url' as base_url, r.config -> 'auth' as auth, outbox.lane_of(r.lanes, i.tenant_id, coalesce(i.ordering_key, i.operation_id)) as lane, r.receiver_id, coalesce(o.attempt, p.attempt) as attempt, coalesce(o.fence, p.fence) as fence,
  coalesce(o.sent_key, p.sent_key) as sent_key, coalesce(o.wire_digest, p.wire_digest) as wire_digest,
  coalesce(o.contract_id, p.contract_id) as contract_id, t.contract_id as contract_in_force,
  coalesce(o.approval_id, p.approval_id) as approval_id, coalesce(o.policy_version, p.policy_version) as policy_version,
  t.policy_version as policy_in_force, coalesce(t.requires_approval, false) as requires_approval,
  coalesce(o.first_sent_at, p.first_sent_at) as first_sent_at, coalesce(o.started_at, p.begun_at) as begun_at, {{doubt}},
  p.step::text as pending_step, coalesce(p.next_at <= outbox.now(), false) as due,
  p.ord, coalesce(p.passed, false) as passed, coalesce(o.throttled, p.throttled) as throttled, coalesce(o.not_sent, p.not_sent) as not_sent,
  o.seq is not null as ended,
  case when o.seq is null then (select a.status from outbox.attempt_log a where a.seq = p.seq and a.attempt = p.attempt) end as answered, o.from_state::text as from_state, o.ended_at, o.status, o.excerpt, o.request_id, o.peer, o.receipt, o.external_id,
  o.decided_by, o.evidence_id,
  d.seq is not null as doubted, d.since, d.step::text as doubt_step,
  case when isfinite(d.next_at) then d.next_at end as doubt_at, coalesce(d.needs_person, false) as needs_person, d.reason,
  coalesce(d.claimed_until > outbox.now(), false) as being_looked_at,
  l.fence as lane_fence, l.owner is not null and l.expires_at > outbox.now() as lane_held, l.renewed_at as lane_renewed_at,
  case when isfinite(l.expires_at) then l.expires_at end as lane_expires_at, m.host as holder_host, m.pid as holder_pid
from outbox.intent i
left join outbox.outcome o on o.seq = i.seq
left join outbox.tool t on t.name = i.tool
left join outbox.receiver r on r.receiver_id = t.receiver_id
left join outbox.pending p on p.receiver_id = r.receiver_id and p.seq = i.seq
  and p.lane = outbox.lane_of(r.lanes, i.tenant_id, coalesce(i.ordering_key, i.operation_id))
left join outbox.doubt d on d.seq = i.seq
left join outbox.lane l on l.receiver_id = r.receiver_id
  and l.lane = outbox.lane_of(r.lanes, i.tenant_id, coalesce(i.ordering_key, i.operation_id))
left join outbox.member m on m.member_id = l.member_id
where i.seq = %(seq)s

-- name: read_attempts
-- Its exposures, the oldest first: those that ended, and the one that ended the operation.
select a.attempt, a.fence, a.cause, a.contract_id, a.sent_key, a.wire_digest, a.started_at, a.ended_at, a.status, a.excerpt, a.request_id, a.peer
from outbox.attempt_log a where a.seq = %(seq)s order by a.attempt limit %(limit)s

-- name: read_all_evidence
-- What was observed of it, the oldest first; proof before everything else where there is too much.
select v.* from (
  select e.evidence_id, e.seq, e.attempt, e.fence, e.kind, e.verdict, e.external_id, e.receipt, e.duplicates, e.status, e.excerpt, e.request_id,
    e.sent_at, e.observed_at, e.source, e.stated_by, e.note
  from outbox.evidence e where e.seq = %(seq)s
  order by (e.kind in ('receipt', 'not_sent', 'callback', 'statement') or e.verdict in ('confirmed', 'ended', 'partial')) desc, e.evidence_id desc
  limit %(limit)s) v
order by v.evidence_id

-- name: read_approvals
-- Who decided about it, the oldest first.
select a.approval_id, a.decision, a.digest, a.policy_version, a.decided_by, a.decided_at, a.reason,
  case when isfinite(a.expires_at) then a.expires_at end as expires_at
from outbox.approval a where a.seq = %(seq)s order by a.approval_id limit %(limit)s

-- name: read_obstacles
-- What stands in the way of an operation that is due: kill switches, a receiver that is left alone, earlier operations of its ordering key,
-- and their late attempts.
(select 'paused' as kind, z.kind || ' ' || z.name as name, z.paused_at as since, null::timestamptz as until, z.reason as detail, z.paused_by as who
 from outbox.pause z
 where (z.kind = 'tool' and z.name = %(tool)s) or (z.kind = 'tenant' and z.name = %(tenant_id)s) or (z.kind = 'receiver' and z.name = %(receiver)s)
 order by z.kind)
union all
(select 'circuit', r.name, r.circuit_opened_at, r.circuit_retry_at, r.circuit_reason, null
 from outbox.receiver r where r.name = %(receiver)s and r.circuit_opened_at is not null)
union all
(select 'blocked', i.operation_id, i.created_at, null, p.state::text, null
 from outbox.pending p join outbox.intent i on i.seq = p.seq
 where p.receiver_id = %(receiver_id)s and p.ord = %(ord)s and p.seq < %(seq)s and not p.passed order by p.seq limit 1)
union all
(select 'landing', i.operation_id, null, g.until, null, null
 from outbox.landing g join outbox.intent i on i.seq = g.seq
 where g.receiver_id = %(receiver_id)s and g.ord = %(ord)s and g.until > outbox.now() order by g.until desc limit 1)

-- name: count_waiting
-- How many operations of its lane are due before it, and how many of its ordering key wait for it. Both counted up to a bound.
select (select count(*) from (select from outbox.pending p where p.receiver_id = %(receiver_id)s and p.lane = %(lane)s and p.seq < %(seq)s
    and p.state = 'authorized' and p.next_at <= outbox.now() limit %(limit)s) as a) as ahead,
  (select count(*) from (select from outbox.pending p where p.receiver_id = %(receiver_id)s and p.ord = %(ord)s and p.seq > %(seq)s limit %(limit)s) as b) as behind

-- name: read_members
-- The daemons: how many of each kind live, and when one was last seen.
select m.kind, count(*) filter (where m.seen_at > outbox.now() - %(seen_within_seconds)s * interval '1 second'
    and (m.receivers is null or %(receiver)s::text is null or %(receiver)s = any(m.receivers))) as living,
  max(case when isfinite(m.seen_at) then m.seen_at end) as seen_at
from outbox.member m group by m.kind

-- name: read_contradictions
-- Evidence that speaks against the state of one operation.
select c.evidence_id, c.what from outbox.contradiction c where c.seq = %(seq)s order by c.evidence_id limit %(limit)s

-- name: list_operations
-- Operations, the newest first.
select v.seq, v.tenant_id, v.operation_id, v.state::text as state, v.cause, v.tool, v.resource, v.principal_id, v.attempt, v.external_id,
  v.created_at, v.ended_at
from outbox.operation v
where (%(tenant_id)s::text is null or v.tenant_id = %(tenant_id)s)
  and (%(tool)s::text is null or v.tool = %(tool)s)
  and (%(receiver)s::text is null or v.receiver = %(receiver)s)
  and (%(cause)s::text is null or v.cause = %(cause)s)
  and (%(resource)s::text is null or v.resource = %(resource)s)
  and (%(state)s::outbox.state is null or v.state = %(state)s::outbox.state)
  and (%(external_id)s::text is null
    or (v.external_id = %(external_id)s and hashtextextended(v.external_id, 0) = hashtextextended(%(external_id)s, 0)))
  and (%(since)s::timestamptz is null or (v.created_at >= %(since)s
    and v.seq >= coalesce((select min(f.seq) from outbox.operation f where f.created_at >= %(since)s), 0)))
  and (%(before)s::bigint is null or v.seq < %(before)s)
order by v.seq desc limit %(limit)s

-- name: list_open
-- The same for a state that has not ended: read from what is open, however long the history is.
select v.seq, v.tenant_id, v.operation_id, v.state::text as state, v.cause, v.tool, v.resource, v.principal_id, v.attempt, v.external_id,
  v.created_at, v.ended_at
from outbox.pending p join outbox.operation v on v.seq = p.seq
where p.state = %(state)s::outbox.state
  and (%(tenant_id)s::text is null or v.tenant_id = %(tenant_id)s)
  and (%(tool)s::text is null or v.tool = %(tool)s)
  and (%(receiver)s::text is null or v.receiver = %(receiver)s)
  and (%(cause)s::text is null or v.cause = %(cause)s)
  and (%(resource)s::text is null or v.resource = %(resource)s)
  and (%(since)s::timestamptz is null or v.created_at >= %(since)s)
  and (%(before)s::bigint is null or p.seq < %(before)s)
order by p.seq desc limit %(limit)s

-- name: stuck_operations
-- Doubts that a person must end, that are late, or whose resend does not leave; the oldest first. Each row finds its others by their keys, one
-- by one: without statistics (after every burst) a join in any other order would read all intents.
with found as materialized (
  select d.seq, d.receiver_id, d.tenant_id, d.tool, d.since, d.settle_at, d.needs_person, d.reason, d.step, d.next_at, d.reads,
    p.state, p.cause, p.attempt, p.ord
  from outbox.doubt d cross join lateral (
    select q.state, q.cause, q.attempt, q.ord from outbox.pending q where q.receiver_id = d.receiver_id and q.lane = d.lane and q.seq = d.seq offset 0) p
  where (%(everything)s or d.needs_person or d.next_at < outbox.now() - %(late_seconds)s * interval '1 second'
      or (d.step = 'resend' and p.state = 'unknown' and p.cause = any(%(unsent)s::text[])
          and d.since < outbox.now() - %(late_seconds)s * interval '1 second'))
    and (%(tenant_id)s::text is null or d.tenant_id = %(tenant_id)s)
    and (%(tool)s::text is null or d.tool = %(tool)s)
    and (%(receiver)s::text is null or d.receiver_id = (select r.receiver_id from outbox.receiver r where r.name = %(receiver)s))
    and (%(cause)s::text is null or p.cause = %(cause)s)
    and (%(step)s::text is null or case when d.needs_person then 'person' else d.step::text end = %(step)s)
    and (%(after_since)s::timestamptz is null or (d.since, d.seq) > (%(after_since)s, %(after_seq)s::bigint))
  order by d.since, d.seq limit %(limit)s
)
select d.tenant_id, v.operation_id, d.tool, r.name as receiver, d.state::text as state, d.cause, d.attempt, d.seq, d.since, d.settle_at,
  d.needs_person, d.reason, d.step::text as step, case when isfinite(d.next_at) then d.next_at end as next_at, d.reads,
  r.config ->> 'base_url' as base_url, r.config -> 'auth' as auth,
  (select a.status from outbox.attempt_log a where a.seq = d.seq and a.attempt = d.attempt) as answered,
  extract(epoch from outbox.now() - d.since)::float8 as age_seconds,
  case when isfinite(d.next_at) then greatest(extract(epoch from outbox.now() - d.next_at), 0) else 0 end::float8 as late_seconds,
  (select count(*) from (select from outbox.pending b where b.receiver_id = d.receiver_id and b.ord = d.ord and b.seq > d.seq limit 1000) as x) as blocks,
  (select z.kind || ' ' || z.name from outbox.pause z where (z.kind = 'tool' and z.name = d.tool) or (z.kind = 'tenant' and z.name = d.tenant_id)
     or (z.kind = 'receiver' and z.name = r.name) order by z.kind limit 1) as paused,
  case when r.circuit_opened_at is not null then r.name end as left_alone, r.circuit_reason
from found d join outbox.receiver r on r.receiver_id = d.receiver_id
cross join lateral (select o.operation_id from outbox.operation o where o.seq = d.seq offset 0) v
order by d.since, d.seq

-- name: stuck_facts
-- Of doubts what it takes to say whether they may be sent again (outbox/doubt.py), as far as whoever may list them may read it.
select d.seq, p.state::text as state, p.attempt, p.fence, p.cause, p.begun_at, p.first_sent_at, p.throttled, p.not_sent, p.contract_id,
  t.contract_id as contract_in_force, p.unresolved_at, d.last_exposed_at, d.gave_up_at, d.settle_at, d.reads, d.last_read_at, d.accepted,
  d.no_resend or p.next_at = 'infinity' as no_resend,
  (select a.seq from outbox.attempt_log a where a.seq = d.seq and a.cause = 'mismatch' limit 1) is not null as mismatch,
  p.policy_version is not distinct from t.policy_version as policy_holds,
  case when isfinite(p.expires_at) then least(greatest(p.expires_at, '0001-01-03 00:00:00+00'), '9999-12-29 00:00:00+00') end as permission_until,
  case when isfinite(p.resend_until) then p.resend_until end as resend_until, p.resend_until = 'infinity' as key_forever,
  case when isfinite(p.next_at) then p.next_at end as pending_at
from outbox.doubt d join outbox.tool t on t.name = d.tool
cross join lateral (select * from outbox.pending q where q.receiver_id = d.receiver_id and q.lane = d.lane and q.seq = d.seq offset 0) p
where d.seq = any(%(seqs)s::bigint[])

-- name: stuck_unsent
-- Operations that hide nothing, and whose latest attempt did not leave, or was refused for our credential: of the oldest so many of each
-- lane, by receiver, tool and cause. The oldest one stands for all of its kind. What waits for a person is in doubt.
select k.*, (select a.status from outbox.attempt_log a where a.seq = k.seq and a.attempt = k.attempt) as answered from (
  select v.receiver, v.tool, v.cause, count(*) as operations, min(v.seq) as seq, (array_agg(v.tenant_id order by v.seq))[1] as tenant_id,
    (array_agg(v.operation_id order by v.seq))[1] as operation_id, (array_agg(v.attempt order by v.seq))[1] as attempt,
    min(greatest(v.created_at, v.not_before)) as since,
    extract(epoch from outbox.now() - min(greatest(v.created_at, v.not_before)))::float8 as age_seconds,
    min(v.next_at) filter (where isfinite(v.next_at)) as next_at, r.config ->> 'base_url' as base_url, r.config -> 'auth' as auth
  from outbox.lane n join outbox.receiver r on r.receiver_id = n.receiver_id
  cross join lateral (select q.seq, q.state, q.cause from outbox.pending q
    where q.receiver_id = n.receiver_id and q.lane = n.lane order by q.seq limit %(looked_at_max)s) p
  cross join lateral (
    select o.seq, o.tenant_id, o.operation_id, o.tool, o.receiver, o.cause, o.attempt, o.created_at, o.not_before, o.next_at
    from outbox.operation o where o.seq = p.seq offset 0) v
  where p.state = 'authorized' and p.cause = any(%(unsent)s::text[]) and v.next_at < 'infinity'
    and (p.cause in ('receiver_fault', 'forbidden')
      or greatest(v.created_at, v.not_before) < outbox.now() - %(late_seconds)s * interval '1 second')
    and (%(tenant_id)s::text is null or v.tenant_id = %(tenant_id)s)
    and (%(tool)s::text is null or v.tool = %(tool)s)
    and (%(receiver)s::text is null or v.receiver = %(receiver)s)
    and (%(cause)s::text is null or v.cause = %(cause)s)
  group by r.receiver_id, v.receiver, v.tool, v.cause order by min(v.seq) limit %(limit)s
) k order by k.seq

-- name: stuck_lanes
-- Lanes that nobody holds although one of the oldest operations in them is due, or was begun.
select r.name as receiver, array_agg(n.lane order by n.lane) as lanes, min(case when isfinite(n.expires_at) then n.expires_at end) as since
from outbox.lane n join outbox.receiver r on r.receiver_id = n.receiver_id
cross join lateral (select min(p.next_at) as due_at from (select q.next_at from outbox.pending q
  where q.receiver_id = n.receiver_id and q.lane = n.lane and q.state in ('authorized', 'executing') order by q.seq limit 100) p) d
where n.expires_at < outbox.now() - %(late_seconds)s * interval '1 second' and d.due_at < outbox.now() - %(late_seconds)s * interval '1 second'
  and (%(receiver)s::text is null or r.name = %(receiver)s)
  and (%(tool)s::text is null or exists (select from outbox.tool t where t.name = %(tool)s and t.receiver_id = r.receiver_id))
group by r.name order by r.name limit %(limit)s

-- name: stuck_pauses
-- Kill switches that are on, and concern what is asked for.
select z.kind, z.name, z.paused_at, z.paused_by, z.reason from outbox.pause z
where (%(tenant_id)s::text is null or z.kind <> 'tenant' or z.name = %(tenant_id)s)
  and (%(tool)s::text is null or z.kind = 'tenant' or (z.kind = 'tool' and z.name = %(tool)s) or (z.kind = 'receiver' and exists (
    select from outbox.tool t join outbox.receiver r on r.receiver_id = t.receiver_id where t.name = %(tool)s and r.name = z.name)))
  and (%(receiver)s::text is null or z.kind = 'tenant' or (z.kind = 'receiver' and z.name = %(receiver)s) or (z.kind = 'tool' and exists (
    select from outbox.tool t join outbox.receiver r on r.receiver_id = t.receiver_id where t.name = z.name and r.name = %(receiver)s)))
order by z.paused_at limit %(limit)s

-- name: stuck_circuits
-- Receivers that relays leave alone, since several attempts in a row met nobody.
select r.name as receiver, r.circuit_opened_at as since, r.circuit_reason as reason, r.circuit_probes as probes, r.circuit_retry_at as retry_at
from outbox.receiver r where r.circuit_opened_at is not null
  and (%(receiver)s::text is null or r.name = %(receiver)s)
  and (%(tool)s::text is null or exists (select from outbox.tool t where t.name = %(tool)s and t.receiver_id = r.receiver_id))
order by r.circuit_opened_at limit %(limit)s

-- name: stuck_contradictions
-- Evidence that contradicts a terminal state, also of what was purged. Each finds its operation by its key, as above.
select v.tenant_id, v.operation_id, v.tool, v.receiver, v.state::text as state, v.cause, v.external_id, c.evidence_id, c.what
from outbox.contradiction c cross join lateral (
  select o.tenant_id, o.operation_id, o.tool, o.receiver, o.state, o.cause, o.external_id from outbox.operation o where o.seq = c.seq
  union all
  select s.tenant_id, s.operation_id, s.tool, r.name, s.state, s.cause, s.external_id
  from outbox.tombstone s left join outbox.tool t on t.name = s.tool left join outbox.receiver r on r.receiver_id = t.receiver_id where s.seq = c.seq
  offset 0
) v
where (%(tenant_id)s::text is null or v.tenant_id = %(tenant_id)s)
  and (%(tool)s::text is null or v.tool = %(tool)s)
  and (%(receiver)s::text is null or v.receiver = %(receiver)s)
  and (%(cause)s::text is null or v.cause = %(cause)s)
order by c.evidence_id desc limit %(limit)s

-- name: top_receivers
-- Each receiver at a glance: its lanes, and of the oldest so many of its open operations how many are in which state.
select r.name as receiver, r.lanes, r.circuit_opened_at is not null as left_alone,
  exists (select from outbox.pause z where z.kind = 'receiver' and z.name = r.name) as paused,
  (select count(*) from outbox.lane n where n.receiver_id = r.receiver_id and n.expires_at > outbox.now()) as held,
  o.open, o.due, o.executing, o.unknown, o.proposed, o.open >= %(counted_max)s as more,
  (select count(*) from outbox.doubt d where d.receiver_id = r.receiver_id and d.needs_person) as needs_person,
  array(select distinct c.tenant_id from outbox.lane n cross join unnest(n.crowd) c(tenant_id)
    where n.receiver_id = r.receiver_id and n.expires_at > outbox.now() order by 1 limit %(limit)s) as crowd
from outbox.receiver r cross join lateral (
  select count(*) as open, count(*) filter (where p.state = 'executing') as executing, count(*) filter (where p.state = 'unknown') as unknown,
    count(*) filter (where p.state = 'proposed') as proposed, count(*) filter (where p.state = 'authorized' and p.next_at <= present.at) as due
  from (select outbox.now() as at) present cross join lateral (
    select q.state, q.next_at from outbox.pending q where q.receiver_id = r.receiver_id order by q.lane, q.seq limit %(counted_max)s) p
) o
order by r.name limit %(limit)s

-- name: top_daemons
-- The daemons that live, with what they have counted.
select m.kind, m.host, m.pid, extract(epoch from outbox.now() - m.started_at)::float8 as age_seconds, m.counters,
  (select count(*) from outbox.lane n where n.member_id = m.member_id and n.expires_at > outbox.now()) as lanes
from outbox.member m where m.seen_at > outbox.now() - %(seen_within_seconds)s * interval '1 second' order by m.kind, m.host, m.pid limit %(limit)s

-- name: top_ends
-- How many operations have ended within the last so many seconds. One date for all rows: no index is read by a function that may answer
-- differently for each row.
select count(*) filter (where o.state = 'succeeded') as succeeded, count(*) filter (where o.state = 'rejected') as rejected
from outbox.outcome o where o.ended_at > (select outbox.now()) - %(seconds)s * interval '1 second'
