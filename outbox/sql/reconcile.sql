-- What a reconciler sends. Nothing here begins an attempt. A claim is a random token: every later write of a doubt row compares it, so
-- whoever was overtaken (by another reconciler, by a relay that sends again, by a person) changes nothing.
--
-- Statements with `alone` act on a group: each other parameter is a column, with one value per operation. A group waits for no row that
-- somebody else has locked (nor can it be part of a deadlock, therefore): it leaves that operation out. `alone`: wait, for a group of one.

-- fragment: facts
d.seq, d.receiver_id, d.lane, d.tenant_id, i.operation_id, d.tool, i.resource, i.expected_version, i.traceparent, outbox.now() as now, d.next_at,
d.needs_person, d.step::text as step, p.state::text as state, coalesce(p.attempt, d.attempt) as attempt, p.fence, p.cause,
p.begun_at, p.first_sent_at, p.sent_key, p.throttled, p.not_sent, p.contract_id, {{doubt}}

-- fragment: sources
join outbox.intent i on i.seq = d.seq
join outbox.tool t on t.name = i.tool
left join outbox.pending p on p.receiver_id = d.receiver_id and p.lane = d.lane and p.seq = d.seq

-- fragment: claims
-- What is asked for of claimed rows that nobody else has locked; all of it where one is asked for alone.
free as materialized (
  select x.* from x cross join lateral (
    select from outbox.doubt b where b.seq = x.seq and b.claimed_by = x.claim and not %(alone)s for no key update skip locked
  ) y
  union all select x.* from x where %(alone)s
)

-- fragment: look_columns
%(look_attempt)s::int[], %(look_fence)s::bigint[], %(look_verdict)s::text[], %(look_external_id)s::text[], %(look_receipt)s::text[],
%(look_duplicates)s::int[], %(look_status)s::int[], %(look_excerpt)s::text[], %(look_request_id)s::text[], %(look_sent_at)s::timestamptz[],
%(look_note)s::text[]

-- fragment: look_names
look_attempt, look_fence, look_verdict, look_external_id, look_receipt, look_duplicates, look_status, look_excerpt, look_request_id, look_sent_at,
look_note

-- fragment: witness_look
outbox.witness(x.seq, x.look_attempt, x.look_fence, 'lookup', x.look_verdict, x.look_external_id, x.look_receipt, x.look_duplicates, x.look_status,
  x.look_excerpt, x.look_request_id, x.look_sent_at, 'reconciler', null, x.look_note)

-- name: claim_doubt
-- Claim what is due, oldest date first, each receiver up to its free places. The clock of the answer is not later than any read sent after it.
-- The lower bound says nothing, and keeps a planner with the statistics of an empty table from sorting all that is due for each claim.
with free as materialized (
  select x.receiver_id, x.places from unnest(%(receiver_ids)s::int[], %(places)s::int[]) as x(receiver_id, places)
), due as materialized (
  select q.seq from free f cross join lateral (
    select b.seq from outbox.doubt b
    where b.receiver_id = f.receiver_id and b.next_at >= '-infinity' and b.next_at <= (select outbox.now())
      and (b.claimed_until is null or b.claimed_until <= (select outbox.now()))
    order by b.next_at limit f.places for no key update skip locked
  ) q
), mine as (
  update outbox.doubt b set claimed_by = %(claim)s, claimed_until = outbox.now() + %(claim_seconds)s * interval '1 second'
  from due u where b.seq = u.seq
  returning b.*
)
select {{facts}} from mine d {{sources}} order by d.next_at, d.seq

-- name: count_read
-- Looks have been made: count them, and read the operations again, as they are now. No row: the claim was overtaken.
with x as materialized (
  select x.* from unnest(%(seq)s::bigint[], %(claim)s::uuid[], %(sent_at)s::timestamptz[]) as x(seq, claim, sent_at)
), {{claims}}, mine as (
  update outbox.doubt b set reads = b.reads + 1, last_read_at = x.sent_at
  from free x where b.seq = x.seq and b.claimed_by = x.claim returning b.*
)
select {{facts}} from mine d {{sources}}

-- name: read_claimed
-- Operations as they are now. No row: the claim was overtaken.
with mine as materialized (
  select b.* from unnest(%(seq)s::bigint[], %(claim)s::uuid[]) as x(seq, claim) join outbox.doubt b on b.seq = x.seq and b.claimed_by = x.claim
)
select {{facts}} from mine d {{sources}}

-- name: read_evidence
-- What is known about some operations, oldest first. Of each the newest, but proof before everything else.
select e.evidence_id, e.seq, e.attempt, e.fence, e.kind, e.verdict, e.external_id, e.receipt, e.duplicates, e.status, e.excerpt, e.request_id,
  e.sent_at, e.observed_at, e.source, e.stated_by, e.note
from unnest(%(seqs)s::bigint[]) as x(seq) cross join lateral (
  select v.* from outbox.evidence v where v.seq = x.seq
  order by (v.kind in ('receipt', 'not_sent', 'callback', 'statement') or v.verdict in ('confirmed', 'ended', 'partial')) desc, v.evidence_id desc
  limit %(each_max)s
) e
order by e.evidence_id

-- name: keep_look
-- Keep what looks have shown, as evidence.
with x as materialized (
  select x.* from unnest(%(seq)s::bigint[], %(receiver_id)s::int[], %(lane)s::int[], {{look_columns}}) as x(seq, receiver_id, lane, {{look_names}})
)
select x.seq, {{witness_look}} as evidence_id from x where %(alone)s or outbox.seize(x.seq, x.receiver_id, x.lane)

-- name: settle
-- End operations, or permit them again, on evidence; where that is a look that has just been made, keep it, in the same commit. Each answer:
-- applied, moved (another attempt or state than was judged), or receipt (there is proof to the contrary).
with given as materialized (
  select x.* from unnest(%(seq)s::bigint[], %(receiver_id)s::int[], %(lane)s::int[], %(attempt)s::int[], %(to)s::outbox.state[], %(cause)s::text[],
    %(evidence_id)s::bigint[], %(external_id)s::text[], %(receipt)s::text[], {{look_columns}})
    as x(seq, receiver_id, lane, attempt, to_state, cause, evidence_id, external_id, receipt, {{look_names}})
), x as materialized (
  select g.* from given g where %(alone)s or outbox.seize(g.seq, g.receiver_id, g.lane)
), g as materialized (
  select array_agg(x.seq) as seqs, array_agg(x.attempt) as attempts, array_agg(x.to_state) as tos, array_agg(x.cause) as causes,
    array_agg(null::text) as decided_bys, array_agg(x.evidence_id) as evidence_ids, array_agg(x.external_id) as external_ids,
    array_agg(x.receipt) as receipts, array_agg(case when x.look_verdict is not null then row(null, x.seq, x.look_attempt, x.look_fence, 'lookup',
      x.look_verdict, x.look_external_id, x.look_receipt, x.look_duplicates, x.look_status, x.look_excerpt, x.look_request_id, x.look_sent_at,
      null, 'reconciler', null, x.look_note)::outbox.evidence end) as looks
  from x
)
select s.seq, s.evidence_id, s.answer
from g, outbox.settle_all(g.seqs, g.attempts, g.tos, g.causes, g.decided_bys, g.evidence_ids, g.external_ids, g.receipts, g.looks) s

-- name: allow_resend
-- Let the holders of the lanes send again. Each answer: applied, or moved.
with x as materialized (
  select x.* from unnest(%(seq)s::bigint[], %(receiver_id)s::int[], %(lane)s::int[], %(attempt)s::int[], %(at)s::timestamptz[],
    %(look_again_at)s::timestamptz[]) as x(seq, receiver_id, lane, attempt, at, look_again_at)
)
select x.seq, outbox.allow_resend(x.seq, x.attempt, x.at, x.look_again_at) as answer
from x where %(alone)s or outbox.seize(x.seq, x.receiver_id, x.lane)

-- name: reschedule
-- Give claims back with the date of the next look (null: none). A date that somebody else has set meanwhile stands: they know something new.
with x as materialized (
  select x.* from unnest(%(seq)s::bigint[], %(claim)s::uuid[], %(step)s::outbox.step[], %(next_at)s::timestamptz[], %(claimed_next_at)s::timestamptz[],
    %(reason)s::text[]) as x(seq, claim, step, next_at, claimed_next_at, reason)
), {{claims}}
update outbox.doubt b set step = x.step, needs_person = b.needs_person or x.step = 'person', reason = coalesce(x.reason, b.reason),
  next_at = case when b.next_at = x.claimed_next_at then coalesce(x.next_at, 'infinity') else b.next_at end,
  claimed_by = null, claimed_until = null
from free x where b.seq = x.seq and b.claimed_by = x.claim
returning b.seq

-- name: release_claims
-- Give claims back; the operations stay due.
with x as materialized (
  select x.* from unnest(%(seq)s::bigint[], %(claim)s::uuid[]) as x(seq, claim)
), {{claims}}
update outbox.doubt b set claimed_by = null, claimed_until = null
from free x where b.seq = x.seq and b.claimed_by = x.claim
returning b.seq

-- name: sweep_orphans
-- The belt: attempts that run longer than any lease, deadline and margin become unknown, whoever holds their lane.
select outbox.sweep_orphans(%(older_than_seconds)s * interval '1 second') as made

-- name: forget
-- Forget identities of purged operations whose tool keeps them for a time only.
select outbox.forget(%(limit)s) as forgotten

-- name: forget_members
-- Forget daemons that nobody has heard of for long: one that dies again and again leaves a row each time.
with old as materialized (
  select m.member_id from outbox.member m
  where coalesce(m.left_at, m.seen_at) < (select outbox.now()) - %(silent_seconds)s * interval '1 second' limit %(limit)s
), gone as (
  delete from outbox.member m using old o where m.member_id = o.member_id returning 1
)
select count(*) as forgotten from gone

-- name: end_landings
-- Remove the marks of ended operations of which nothing can land any more.
with over as materialized (
  select g.receiver_id, g.ord, g.seq from outbox.landing g where g.until <= (select outbox.now()) limit %(limit)s
), gone as (
  delete from outbox.landing g using over o where g.receiver_id = o.receiver_id and g.ord = o.ord and g.seq = o.seq returning 1
)
select count(*) as ended from gone

-- name: count_contradictions
-- How much evidence speaks against a state, counted up to a bound.
select count(*) as found from (select from outbox.contradiction limit %(limit)s) x

-- name: count_doubt
-- How much is in doubt, how much of it waits for a person, how much is late, and how old the oldest is.
select count(*) as open, count(*) filter (where d.needs_person) as needs_person,
  count(*) filter (where d.next_at < outbox.now() - %(late_seconds)s * interval '1 second') as late,
  coalesce(extract(epoch from outbox.now() - min(d.since)), 0)::float8 as oldest_seconds
from outbox.doubt d

-- name: count_lanes
-- Lanes that nobody holds although something is open in them.
select count(*) as unheld from outbox.lane n
where n.expires_at < outbox.now() and exists (select from outbox.pending p where p.receiver_id = n.receiver_id and p.lane = n.lane)

-- name: find_unplaced
-- Intents above a floor that are neither open nor ended, as far as one step goes, and how far the floor rises: not past the first of them, nor
-- past young ones, below which a lower seq may still be committed.
with part as materialized (
  select i.seq, i.created_at > outbox.now() - %(young_seconds)s * interval '1 second' as young
  from outbox.intent i where i.seq > %(after)s order by i.seq limit %(limit)s
), lost as materialized (
  select p.seq from part p
  where not exists (select from outbox.outcome o where o.seq = p.seq)
    and not exists (select from outbox.place_of(p.seq) w join outbox.pending q on q.receiver_id = w.receiver_id and q.lane = w.lane and q.seq = p.seq)
)
select count(*) as seen, (select count(*) from lost) as found, (select min(l.seq) from lost l) as first,
  coalesce(least(min(p.seq) filter (where p.young) - 1, (select min(l.seq) from lost l) - 1, max(p.seq)), %(after)s) as passed
from part p
