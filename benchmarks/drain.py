"""How fast a backlog is drained by an instant receiver, and what that costs."""

import time
from collections.abc import Iterator

import psycopg

from benchmarks import bare, peers
from benchmarks.house import Cost, House
from benchmarks.measure import Result, Scale, figure, in_turns, ratio

UNIT = "operations/s"


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
    """Two processes of each peer, and one relay: on two cores, which a small machine has, two of them are no faster."""
    number = scale.of(60_000)
    goals = {"PgQueuer": 3.0, "graphile-worker": 1.0, "procrastinate": 1.0}
    for peer in peers.installed():
        theirs = number if peer.name != "procrastinate" else max(500, number // 30)
        ours, other = in_turns(
            scale.rounds,
            lambda: drained(house, number).rate,
            lambda peer=peer, theirs=theirs: peer.drain(house, theirs),  # type: ignore[misc] # mypy infers no lambda
        )
        yield ratio(
            "drain, instant receiver, 1 relay", f"{peer.label}, 2 processes", UNIT, ours, other, goals[peer.name]
        )


def checks(house: House, scale: Scale) -> Iterator[Result]:
    """What every check costs in SQL, and what the attempt itself, its receipt and Python cost on top of that."""
    number = scale.of(40_000)
    checked, relay, same, least = in_turns(
        scale.rounds,
        lambda: bare.rate(house, number, bare.checked),
        lambda: drained(house, number).rate,
        lambda: bare.rate(house, number, bare.unchecked),
        lambda: bare.rate(house, number, bare.least),
    )
    against = "bare SQL begin + finish of the same shapes, 1 connection"
    fewer = "bare SQL with 5 columns out and 1 list in, 1 connection"
    in_python = "with attempts, digests, receipts, in Python"
    yield ratio("the statements with every check, 1 connection", against, UNIT, checked, same, 0.8)
    yield ratio("a relay, 1 process", against, UNIT, relay, same, 0.8, in_python)
    yield ratio("the statements with every check, 1 connection", fewer, UNIT, checked, least, None)
    yield ratio("a relay, 1 process", fewer, UNIT, relay, least, None, in_python)


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
                # Long enough to have its part of what is done seldom, such as a chore that reads all that is open.
                long.append(place.drain(5 * number))
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
