-- Fragments that several files include.

-- fragment: doubt
-- What decisions about an operation in doubt are made from (outbox/doubt.py), of a doubt d, its open row p, its intent i and its tool t.
-- Beside it stand what an ended operation has too: seq, state, attempt, fence, cause, begun_at, first_sent_at, throttled, not_sent.
-- The limit keeps the planner from hashing every attempt that there ever was, which it would do for an `exists`.
-- What an answer says of later looks counts also if it came late; the note of a late answer begins with what it was.
p.unresolved_at, d.last_exposed_at, d.gave_up_at, d.settle_at, d.reads, d.last_read_at,
d.accepted or (select e.seq from outbox.evidence e where e.seq = i.seq and e.kind = 'late_answer' and starts_with(e.note, 'Accepted') limit 1) is not null
  as accepted,
d.no_resend or p.next_at = 'infinity' as no_resend,
(select a.seq from outbox.attempt a where a.seq = i.seq and a.cause = 'mismatch' limit 1) is not null
  or (select e.seq from outbox.evidence e where e.seq = i.seq and e.kind = 'late_answer' and starts_with(e.note, 'Mismatch') limit 1) is not null
  as mismatch,
p.policy_version is not distinct from t.policy_version as policy_holds,
-- Within the years that every program has: one date that cannot be read would stop everybody's operations.
case when isfinite(coalesce(p.expires_at, i.expires_at))
  then least(greatest(coalesce(p.expires_at, i.expires_at), '0001-01-03 00:00:00+00'), '9999-12-29 00:00:00+00') end as permission_until,
case when isfinite(p.resend_until) then p.resend_until end as resend_until, p.resend_until = 'infinity' as key_forever,
case when isfinite(p.next_at) then p.next_at end as pending_at
