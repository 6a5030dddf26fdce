-- What happened lately, counted. Each statement reads what a date bounds (BRIN on created_at, ended_at and observed_at) and what is open.

-- fragment: ever_in_doubt
-- When an end was in doubt for the first time: null for one that its first attempt settled. The condition spares the others their probe.
left join lateral (select min(a.ended_at) as since from outbox.attempt a
  where a.seq = o.seq and not a.withdrawn and (o.from_state = 'unknown' or o.attempt > 1)) doubted on true

-- name: report_put
-- Operations that were put since then, by tool and by the state they are in now.
with put as materialized (select i.seq, i.tool from outbox.intent i where i.created_at >= %(since)s)
select u.tool, count(*) as put, count(*) filter (where coalesce(o.state, p.state) = 'proposed') as proposed,
  count(*) filter (where coalesce(o.state, p.state) = 'authorized') as authorized,
  count(*) filter (where coalesce(o.state, p.state) = 'executing') as executing,
  count(*) filter (where coalesce(o.state, p.state) = 'unknown') as unknown,
  count(*) filter (where o.state = 'succeeded') as succeeded, count(*) filter (where o.state = 'rejected') as rejected
from put u left join outbox.outcome o on o.seq = u.seq left join outbox.pending p on p.seq = u.seq
group by u.tool

-- name: report_ended
-- Operations that ended since then, by tool, by receiver, and in all: how many attempts they took, and how long their doubts lasted. A window
-- closed unused: a resend would have been deduplicated, none was made, and the doubt lasted longer than the window.
select case when grouping(i.tool) = 0 then 'tool' when grouping(r.name) = 0 then 'receiver' else 'all' end as level, i.tool, r.name as receiver, count(*) as ended, avg(o.attempt)::float8 as attempts_mean, max(o.attempt) as attempts_max,
  sum(o.throttled)::bigint as throttled, sum(o.not_sent)::bigint as not_sent, count(doubted.since) as reconciled,
  percentile_cont(0.5) within group (order by extract(epoch from o.ended_at - doubted.since))::float8 as reconcile_p50_seconds,
  percentile_cont(0.95) within group (order by extract(epoch from o.ended_at - doubted.since))::float8 as reconcile_p95_seconds,
  max(extract(epoch from o.ended_at - doubted.since))::float8 as reconcile_max_seconds,
  count(*) filter (where doubted.since is not null and t.resend_safe and not t.key_forever and t.retention > interval '0'
    and o.attempt - o.throttled - o.not_sent <= 1 and o.ended_at >= o.first_sent_at + t.retention - t.margin) as windows_unused
from outbox.outcome o join outbox.intent i on i.seq = o.seq left join outbox.tool t on t.name = i.tool
left join outbox.receiver r on r.receiver_id = t.receiver_id {{ever_in_doubt}}
where o.ended_at >= %(since)s
group by grouping sets ((i.tool), (r.name), ())

-- name: report_doubt
-- What is in doubt now, by tool, whenever it was put; each by its key, as a backlog is long.
select d.tool, count(*) as in_doubt, count(*) filter (where d.needs_person) as needs_person,
  extract(epoch from outbox.now() - min(d.since))::float8 as oldest_seconds,
  count(*) filter (where p.state = 'unknown' and t.resend_safe and isfinite(p.resend_until) and p.resend_until > p.first_sent_at
    and p.attempt - p.throttled - p.not_sent <= 1 and p.resend_until - t.margin <= outbox.now()) as windows_unused
from outbox.doubt d left join outbox.tool t on t.name = d.tool
left join lateral (select q.* from outbox.pending q where q.receiver_id = d.receiver_id and q.lane = d.lane and q.seq = d.seq offset 0) p on true
group by d.tool

-- name: report_evidence
-- What was observed since then that should not be: an effect twice, or one against a state; and answers that came back under a lost lease,
-- which were refused as writes and kept as evidence.
select coalesce(i.tool, g.tool) as tool, count(distinct e.evidence_id) filter (where e.source = 'relay') as writes_refused,
  count(distinct e.seq) filter (where e.duplicates > 0) as duplicates, count(distinct c.evidence_id) as contradictions
from outbox.evidence e left join outbox.intent i on i.seq = e.seq left join outbox.tombstone g on g.seq = e.seq
left join outbox.contradiction c on c.seq = e.seq and c.evidence_id = e.evidence_id
where e.observed_at >= %(since)s and (i.seq is not null or g.seq is not null) group by 1

-- name: report_daemons
-- The daemons that have lived since then: how many, and what they have counted in all their lives.
select m.kind, count(distinct m.member_id) as daemons, c.name, sum(c.number::numeric)::bigint as number
from outbox.member m left join lateral jsonb_each_text(m.counters) as c(name, number) on true
where coalesce(m.left_at, m.seen_at) >= %(since)s
group by m.kind, c.name

-- name: report_receivers
-- Which receiver each tool belongs to.
select t.name as tool, r.name as receiver from outbox.tool t join outbox.receiver r on r.receiver_id = t.receiver_id
