-- What operators do to the system as a whole, and to many operations at once. Each act is one function of the database, which records
-- who it was.

-- name: pause
-- Begin no more attempts of a receiver, a tool or a tenant. False: it was paused already.
select outbox.pause_add(%(kind)s, %(name)s, %(by)s, %(reason)s) as changed

-- name: resume
-- Begin attempts again, and try a receiver whose circuit is open. False: there was nothing to end.
select outbox.pause_end(%(kind)s, %(name)s, %(by)s, %(reason)s) as changed

-- name: read_pause
-- Who has paused it, when, and why; and whether anything of that name is known here at all.
select z.paused_at, z.paused_by, z.reason, case %(kind)s
    when 'receiver' then exists (select from outbox.receiver r where r.name = %(name)s)
    when 'tool' then exists (select from outbox.tool t where t.name = %(name)s)
    else exists (select from outbox.intent i where i.tenant_id = %(name)s) end as known
from (select) as always left join outbox.pause z on z.kind = %(kind)s and z.name = %(name)s

-- name: unblock
-- Let later operations of an ordering key pass this one; answers how many there are.
select outbox.unblock(%(tenant_id)s, %(operation_id)s, %(by)s, %(reason)s) as waiting

-- name: expedite
-- Begin this one next.
select outbox.expedite(%(tenant_id)s, %(operation_id)s, %(by)s, %(reason)s)

-- name: redact
-- Remove what may be personal from an operation that has ended.
select outbox.redact(%(tenant_id)s, %(operation_id)s, %(by)s, %(reason)s)::text as state

-- name: purge_bounds
-- Up to which number there may be something that ended before a date (with a day to spare for clocks that were set back), and how many
-- numbers that are.
select b.upto, greatest(b.upto - coalesce((select min(o.seq) from outbox.outcome o), b.upto), 0) as numbers, outbox.now() as now,
  least(%(before)s::timestamptz, outbox.now()) as before
from (select outbox.seq_at(%(before)s::timestamptz + interval '1 day') as upto) b

-- name: purge_look
-- What a purge would do with the next ends behind a number; each verdict counted. `passed` as in purge.
select count(*) filter (where v.verdict = 'purge') as purged, count(*) filter (where v.verdict = 'unsettled') as unsettled,
  count(*) filter (where v.verdict = 'contradicted') as contradicted, case when count(*) = %(batch_max)s then max(v.seq) end as passed
from outbox.purgeable(%(after)s, %(upto)s, %(before)s, %(batch_max)s) v

-- name: purge
-- One batch of history into tombstones.
select p.purged, p.kept, p.passed from outbox.purge(%(after)s, %(upto)s, %(before)s, %(batch_max)s, %(by)s) p

-- name: find_unplaced_some
-- Intents behind a number that no trigger has placed.
select u.seq, u.tenant_id, u.operation_id, u.tool from outbox.unplaced(%(after)s, %(limit)s) u

-- name: repair
-- Place some of them, as unknown.
select r.placed, r.toolless, r.passed from outbox.repair(%(after)s, %(batch_max)s, %(by)s) r

-- name: list_audit
-- Who did what, and why, the newest first: to the system, and, read where they are facts, decisions about one operation. What was purged has
-- taken its own with it.
select u.source, u.id, u.at, u.act, u.target, u.acted_by, u.reason from (
  (select 1 as source, a.audit_id as id, a.at, a.act, a.target, a.acted_by, a.reason
   from outbox.audit a
   where (%(act)s::text is null or a.act = %(act)s)
     and (%(at)s::timestamptz is null or (a.at <= %(at)s and (a.at, 1, a.audit_id) < (%(at)s, %(source)s::bigint, %(id)s::bigint)))
   order by a.at desc, a.audit_id desc limit %(limit)s)
  union all
  (select 2, p.approval_id, p.decided_at, case p.decision when 'approved' then 'approve' else 'revoke' end, i.tenant_id || ' ' || i.operation_id,
     p.decided_by, p.reason
   from outbox.approval p join outbox.intent i on i.seq = p.seq
   where (%(act)s::text is null or case p.decision when 'approved' then 'approve' else 'revoke' end = %(act)s)
     and (%(at)s::timestamptz is null or (p.decided_at <= %(at)s and (p.decided_at, 2, p.approval_id) < (%(at)s, %(source)s::bigint, %(id)s::bigint)))
   order by p.decided_at desc, p.approval_id desc limit %(limit)s)
  union all
  (select 3, e.evidence_id, e.observed_at, 'resolve', i.tenant_id || ' ' || i.operation_id, e.stated_by,
     case e.verdict when 'confirmed' then 'succeeded' else 'no effect' end || coalesce(': ' || e.note, '')
   from outbox.evidence e join outbox.intent i on i.seq = e.seq
   where e.kind = 'statement' and (%(act)s::text is null or 'resolve' = %(act)s)
     and (%(at)s::timestamptz is null or (e.observed_at <= %(at)s and (e.observed_at, 3, e.evidence_id) < (%(at)s, %(source)s::bigint, %(id)s::bigint)))
   order by e.observed_at desc, e.evidence_id desc limit %(limit)s)
  union all
  (select 4, o.seq, o.ended_at, 'cancel', i.tenant_id || ' ' || i.operation_id, o.decided_by, null
   from outbox.outcome o join outbox.intent i on i.seq = o.seq
   where o.cause = 'cancelled' and (%(act)s::text is null or 'cancel' = %(act)s)
     and (%(at)s::timestamptz is null or (o.ended_at <= %(at)s and (o.ended_at, 4, o.seq) < (%(at)s, %(source)s::bigint, %(id)s::bigint)))
   order by o.ended_at desc, o.seq desc limit %(limit)s)
) u order by u.at desc, u.source desc, u.id desc limit %(limit)s

-- fragment: selected
-- What a person selects by. The age counts from the latest attempt, or from the intent where there was none: whoever was attempted since
-- then is not selected again.
(%(tenant_id)s::text is null or i.tenant_id = %(tenant_id)s)
and (%(tool)s::text is null or i.tool = %(tool)s)
and (%(cause)s::text is null or p.cause = %(cause)s)
and (%(receiver)s::text is null or p.receiver_id = (select r.receiver_id from outbox.receiver r where r.name = %(receiver)s))
and coalesce(p.begun_at, i.created_at) <= %(upto_date)s
order by p.seq limit %(limit)s

-- name: select_for_retry
-- Operations that wait for a date or for a person: in back-off, or in doubt and not to be sent again by themselves.
select i.tenant_id, i.operation_id, p.seq, p.attempt, p.state::text as state from outbox.pending p join outbox.intent i on i.seq = p.seq
where ((p.state = 'unknown' and p.step <> 'resend')
    or (p.state = 'authorized' and p.next_at > outbox.now() and (i.not_before is null or i.not_before <= outbox.now())))
  and {{selected}}

-- name: select_for_resolve
-- Operations in doubt, each found by its keys: no backlog is read for them.
select i.tenant_id, i.operation_id, p.seq, p.attempt, p.state::text as state from outbox.doubt d
cross join lateral (select q.* from outbox.pending q where q.receiver_id = d.receiver_id and q.lane = d.lane and q.seq = d.seq offset 0) p
cross join lateral (select n.tenant_id, n.operation_id, n.tool, n.created_at from outbox.intent n where n.seq = d.seq offset 0) i
where p.state = 'unknown' and {{selected}}

-- name: select_for_cancel
-- Operations that hide no effect.
select i.tenant_id, i.operation_id, p.seq, p.attempt, p.state::text as state from outbox.pending p join outbox.intent i on i.seq = p.seq
where p.state in ('proposed', 'authorized') and {{selected}}
