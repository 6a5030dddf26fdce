"""How fast a backlog is drained by an instant receiver, and what that costs."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.rows import dict_row

from benchmarks import peers
from benchmarks.house import Cost, House
from benchmarks.measure import Result, Scale, figure, in_turns, ratio
from outbox.arrays import literals
from outbox.sql import load

UNIT = "operations/s"
LANES, BATCH = 4, 500


def drained(house: House, number: int, *, relays: int = 1, receiver: str = "", payload_bytes: int = 1000) -> Cost:
    """Enqueue, and drain so many of them."""
    with house.database() as place:
        place.apply(receiver)
        place.enqueue(number, payload_bytes=payload_bytes)
        return place.drain(number, relays)


def costs(house: House, scale: Scale) -> Iterator[Result]:
    """CPU, statements and log of one operation. What is exact is asserted in tests/integration/test_costs.py."""
    found = [drained(house, max(20_000, scale.of(40_000))) for _ in range(scale.rounds)]
    for name, unit, goal in (
        ("relay_us", "us of CPU", None),
        ("server_us", "us of CPU", None),
        ("wal_bytes", "bytes", 700.0),
        ("statements_per_500", "per 500", 2.0),
    ):
        note = {
            "wal_bytes": "with full-page images of hints",
            "statements_per_500": "with leases, heartbeats and partly filled groups",
        }.get(name, "")
        samples = [float(getattr(cost, name)) for cost in found]
        yield figure(f"one operation: {name.removesuffix('_us')}", unit, samples, goal, note)


def against_peers(house: House, scale: Scale) -> Iterator[Result]:
    """Two processes of each, since two cores are what a small machine has."""
    number = scale.of(60_000)
    goals = {"PgQueuer": 3.0, "graphile-worker": 1.0, "procrastinate": 1.0}
    for peer in peers.installed():
        theirs = number if peer.name != "procrastinate" else max(500, number // 30)
        ours, other = in_turns(
            scale.rounds,
            lambda: drained(house, number, relays=2).rate,
            lambda peer=peer, theirs=theirs: peer.drain(house, theirs),  # type: ignore[misc] # mypy infers no lambda
        )
        yield ratio("drain, instant receiver, 2 processes", peer.label, UNIT, ours, other, goals[peer.name])


# The shapes of begin and finish without a single check: no lane, no fence, no permission, no window, no order.
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


def _bare(connection: psycopg.Connection[dict[str, Any]]) -> Callable[[int], int]:
    after = dict.fromkeys(range(LANES), 0)

    def step(lane: int) -> int:
        seqs = [row["seq"] for row in connection.execute(BARE_BEGIN, {"lane": lane, "after": after[lane]})]
        if seqs:
            after[lane] = max(seqs)
            connection.execute(BARE_FINISH, {"lane": lane, "seqs": seqs})
        return len(seqs)

    return step


def _checked(connection: psycopg.Connection[dict[str, Any]]) -> Callable[[int], int]:
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


def statements(
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


def checks(house: House, scale: Scale) -> Iterator[Result]:
    """What every check costs in SQL, and what the attempt itself, its receipt and Python cost on top of that."""
    number = scale.of(40_000)
    checked, relay, bare = in_turns(
        scale.rounds,
        lambda: statements(house, number, _checked),
        lambda: drained(house, number).rate,
        lambda: statements(house, number, _bare),
    )
    against = "bare SQL begin + finish, 1 connection"
    yield ratio("the statements with every check, 1 connection", against, UNIT, checked, bare, 0.8)
    yield ratio("a relay, 1 process", against, UNIT, relay, bare, 0.8, "with attempts, digests, receipts, in Python")


def backlog(house: House, scale: Scale) -> Iterator[Result]:
    """Does a long queue cost more than a short one, in time or in memory?"""
    number, waiting = max(20_000, scale.of(30_000)), 0  # fewer have ended before they are looked at
    with house.database() as place:
        place.apply()
        for size in (max(60_000, scale.of(300_000, full=1_000_000)), *([5_000_000] if scale.full else [])):
            place.enqueue(size - waiting, payload_bytes=200)
            waiting = size
            long, short = [], []
            for _ in range(scale.rounds):
                long.append(place.drain(number))
                short.append(drained(house, number, payload_bytes=200))
            rates = [[cost.rate for cost in costs] for costs in (long, short)]
            yield ratio(f"drain at a backlog of {size:,}", f"of {number:,}", UNIT, rates[0], rates[1], 0.9)
            for name, costs in ((f"{size:,}", long), (f"{number:,}", short)):
                samples = [cost.memory_mb for cost in costs]
                yield figure(f"memory of a relay, backlog of {name}", "MB", samples, 150.0)


def snapshot(house: House, scale: Scale) -> Iterator[Result]:
    """A forgotten transaction keeps every dead row: does the queue walk over them again and again?"""
    number = scale.of(60_000)
    seconds = max(30, scale.of(120, full=600))

    def drained_for(limit: float, *, held: bool) -> list[float]:
        """Fill and drain again and again for so many seconds, in the same tables; the rate of each time."""
        rates: list[float] = []
        with house.database() as place, psycopg.connect(place.database.dsn) as foreign:
            place.apply()
            if held:
                foreign.execute("set transaction isolation level repeatable read")
                foreign.execute("select count(*) from outbox.tool")
            started = time.monotonic()
            while time.monotonic() < started + limit or len(rates) < 3:
                place.enqueue(number)
                rates.append(place.drain(number).rate)
        return rates

    under, without = drained_for(seconds, held=True), drained_for(seconds / 5, held=False)
    yield ratio(f"drain under a snapshot of {seconds} s", "without", UNIT, under, without, 0.7)
    third = len(under) // 3
    last, first = under[-third:], under[:third]
    yield ratio("the same: its last third", "its first third", UNIT, last, first, 0.9, "flat: it does not slow down")
    queue = scale.of(60_000)
    first, second = in_turns(
        scale.rounds, lambda: peers.skip_locked(house, queue, held=True), lambda: peers.skip_locked(house, queue)
    )
    yield ratio("a SKIP LOCKED queue under it", "without", UNIT, first, second, 0.0, "for comparison, not ours")
