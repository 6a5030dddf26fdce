"""The statements of a relay, on one connection and without a relay: with every check, with none, and the least."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.rows import dict_row

from benchmarks.house import House
from outbox.arrays import literals
from outbox.sql import load

LANES, BATCH = 4, 500

# Begin and finish of the same shapes - the same columns go in and come out - without a single check: no lane, no fence,
# no permission, no window, no order, no pause.
SAME_BEGIN = """
with due as materialized (
  select q.receiver_id, q.lane, q.seq, i.tenant_id, i.operation_id, i.tool, i.resource, i.arguments, i.content_type,
    i.body, i.expected_version, i.digest, i.traceparent
  from outbox.pending q cross join lateral (select n.* from outbox.intent n where n.seq = q.seq offset 0) i
  where q.receiver_id = %(receiver_id)s and q.lane = %(lane)s and q.seq > %(after)s
  order by q.seq limit %(batch_max)s for no key update of q skip locked
), begun as (
  update outbox.pending w set state = 'executing', step = 'none', attempt = w.attempt + 1, fence = 1, begun_at = now(),
    first_sent_at = now(), resend_until = now(), contract_id = 1, cause = null
  from due d where w.receiver_id = d.receiver_id and w.lane = d.lane and w.seq = d.seq
  returning w.seq, w.attempt, w.first_sent_at, w.contract_id, w.sent_key::text, w.wire_digest, w.throttled, w.not_sent,
    false as ordered, d.tenant_id, d.operation_id, d.tool, d.resource, d.arguments, d.content_type, d.body,
    d.expected_version, d.digest, d.traceparent, 1::bigint as contract_in_force, true as first_exposure,
    false as in_doubt, false as earlier_settled, null::bytea as approved_digest,
    'infinity'::float8 as permission_left_seconds, null::float8 as window_left_seconds
) select begun.*, 1::bigint as xmin, 1::bigint as top from begun order by begun.seq
"""
SAME_FINISH = """
with x as materialized (
  select %(receiver_id)s::int as receiver_id, %(lane)s::int as lane, u.*
  from unnest(%(seqs)s::bigint[], %(attempts)s::int[], %(states)s::outbox.state[], %(causes)s::text[],
    %(for_alls)s::boolean[], %(sent_keys)s::uuid[], %(wire_digests)s::bytea[], %(statuses)s::int[],
    %(excerpts)s::text[], %(request_ids)s::text[], %(peers)s::text[], %(receipts)s::text[], %(external_ids)s::text[])
    as u(seq, attempt, state, cause, for_all, sent_key, wire_digest, status, excerpt, request_id, peer, receipt,
      external_id)
), d as (
  delete from outbox.pending p using x where p.receiver_id = x.receiver_id and p.lane = x.lane and p.seq = x.seq
  returning p.seq, p.attempt, p.fence, p.first_sent_at, p.begun_at, p.contract_id, p.approval_id, p.policy_version,
    p.throttled, p.not_sent, x.sent_key, x.state, x.cause, x.wire_digest, x.status, x.excerpt, x.request_id, x.peer,
    x.receipt, x.external_id
), o as (
  insert into outbox.outcome (seq, from_state, state, cause, attempt, fence, owner, first_sent_at, started_at,
    contract_id, approval_id, policy_version, throttled, not_sent, sent_key, wire_digest, status, excerpt, request_id,
    peer, receipt, external_id)
  select d.seq, 'executing', d.state, d.cause, d.attempt, d.fence, gen_random_uuid(), d.first_sent_at, d.begun_at,
    d.contract_id, d.approval_id, d.policy_version, d.throttled, d.not_sent, d.sent_key, d.wire_digest, d.status,
    d.excerpt, d.request_id, d.peer, d.receipt, d.external_id from d
) select d.seq, null::bigint as successor from d
"""
# The least that a queue can do in these tables: five columns come out, and one list goes in.
BARE_BEGIN = """
with due as materialized (
  select receiver_id, lane, seq from outbox.pending where receiver_id = 1 and lane = %(lane)s and seq > %(after)s
  order by seq limit 500 for no key update skip locked
), w as (
  update outbox.pending p set state = 'executing', attempt = 1, fence = 1, begun_at = now(), first_sent_at = now(),
    resend_until = now(), contract_id = 1
  from due d where p.receiver_id = d.receiver_id and p.lane = d.lane and p.seq = d.seq returning p.seq
) select w.seq, i.tenant_id, i.operation_id, i.arguments, i.digest from w join outbox.intent i on i.seq = w.seq
"""
BARE_FINISH = """
with x as materialized (select 1 as receiver_id, %(lane)s::int as lane, unnest(%(seqs)s::bigint[]) as seq),
d as (
  delete from outbox.pending p using x where p.receiver_id = x.receiver_id and p.lane = x.lane and p.seq = x.seq
  returning p.seq, p.attempt, p.fence, p.first_sent_at, p.begun_at, p.contract_id, p.policy_version
) insert into outbox.outcome (seq, from_state, state, attempt, fence, owner, first_sent_at, started_at,
  contract_id, policy_version, sent_key, status, receipt, external_id)
select d.seq, 'executing', 'succeeded', d.attempt, d.fence, gen_random_uuid(), d.first_sent_at, d.begun_at,
  d.contract_id, d.policy_version, gen_random_uuid(), 200,
  '{"at":1764500000.1234}', 'r-' || lpad(d.seq::text, 9, '0') from d
"""


def least(connection: psycopg.Connection[dict[str, Any]]) -> Callable[[int], int]:
    """A queue that knows nothing of what it carries."""
    after = dict.fromkeys(range(LANES), 0)

    def step(lane: int) -> int:
        seqs = [row["seq"] for row in connection.execute(BARE_BEGIN, {"lane": lane, "after": after[lane]})]
        if seqs:
            after[lane] = max(seqs)
            connection.execute(BARE_FINISH, {"lane": lane, "seqs": seqs})
        return len(seqs)

    return step


def unchecked(connection: psycopg.Connection[dict[str, Any]]) -> Callable[[int], int]:
    """The same rows, read and written alike, and nothing asked."""
    after = dict.fromkeys(range(LANES), 0)

    def step(lane: int) -> int:
        own = {"receiver_id": 1, "lane": lane}
        begun = connection.execute(SAME_BEGIN, {**own, "after": after[lane], "batch_max": BATCH}).fetchall()
        if begun:
            after[lane] = begun[-1]["seq"]
            connection.execute(SAME_FINISH, literals(own | _receipts(begun)))
        return len(begun)

    return step


def checked(connection: psycopg.Connection[dict[str, Any]]) -> Callable[[int], int]:
    """The statements of a relay, as it sends them: lane, fence, permission, window, order, pauses, and all columns."""
    statements = load("relay")
    after, held = dict.fromkeys(range(LANES), 0), {}
    for lane in after:
        own = {"receiver_id": 1, "lane": lane, "owner": uuid4()}
        take = {**own, "member_id": uuid4(), "ttl_seconds": timedelta(hours=1).total_seconds()}
        (taken,) = connection.execute(statements["take_lane"], take)
        held[lane] = {**own, "fence": taken["fence"]}

    def step(lane: int) -> int:
        where = {"after": after[lane], "upto": 2**62, "frontier": True, "batch_max": BATCH, "resends": True}
        rows = connection.execute(statements["begin_range"], {**held[lane], **where, "receiver": "bench"}).fetchall()
        begun = [row for row in rows if row["seq"] is not None]
        if begun:
            after[lane] = begun[-1]["seq"]
            connection.execute(statements["end_operations"], literals(held[lane] | _receipts(begun)))
        return len(begun)

    return step


def _receipts(begun: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The answers that BARE_FINISH writes, to attempts that were begun."""
    none: list[Any] = [None] * len(begun)
    return {
        "seqs": [row["seq"] for row in begun],
        "attempts": [row["attempt"] for row in begun],
        "states": ["succeeded"] * len(begun),
        "causes": none,
        "for_alls": [False] * len(begun),
        "sent_keys": [uuid4() for _ in begun],
        "wire_digests": none,
        "statuses": [200] * len(begun),
        "excerpts": none,
        "request_ids": none,
        "peers": none,
        "receipts": ['{"at":1764500000.1234}'] * len(begun),
        "external_ids": [f"r-{row['seq']:09}" for row in begun],
    }


def rate(
    house: House, number: int, loop: Callable[[psycopg.Connection[dict[str, Any]]], Callable[[int], int]]
) -> float:
    """One connection that begins and finishes one lane after the other until all is done."""
    with house.database() as place:
        place.apply()
        place.enqueue(number)
        with psycopg.connect(place.database.dsn, autocommit=True, row_factory=dict_row) as connection:
            connection.execute("set enable_hashjoin = off")
            connection.execute("set enable_mergejoin = off")
            connection.execute("set enable_seqscan = off")
            step = loop(connection)
            done, started = 0, time.monotonic()
            while done < number:
                done += sum(map(step, range(LANES)))
            return done / (time.monotonic() - started)
