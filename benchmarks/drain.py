"""How fast a backlog is drained by an instant receiver, and what that costs."""

import statistics
import time
from collections.abc import Iterator

import psycopg

from benchmarks import peers
from benchmarks.house import Cost, House, Place
from benchmarks.measure import Result, Scale, in_turns, ratio

UNIT = "operations/s"


def drained(house: House, number: int, *, backlog: int = 0, relays: int = 1, receiver: str = "") -> Cost:
    """Enqueue, and drain so many of them."""
    with house.database() as place:
        place.apply(receiver)
        place.enqueue(max(number, backlog))
        return place.drain(number, relays)


def costs(house: House, scale: Scale) -> Iterator[Result]:
    """CPU, statements and log of one operation. What is exact is asserted in tests/integration/test_costs.py."""
    found = [drained(house, scale.of(40_000)) for _ in range(scale.rounds)]
    for name, unit, goal in (
        ("relay_us", "us of CPU", None),
        ("server_us", "us of CPU", None),
        ("wal_bytes", "bytes", 700.0),
        ("statements_per_500", "per 500", 2.0),
    ):
        samples = [float(getattr(cost, name)) for cost in found]
        middle = statistics.median(samples)
        note = "with full-page images of hints" if name == "wal_bytes" else ""
        if name == "statements_per_500":
            note = "with leases, heartbeats and partly filled groups"
        yield Result(
            measure=f"one operation: {name.removesuffix('_us')}",
            against="-",
            ours=middle,
            unit=unit,
            value=middle,
            value_unit=unit,
            goal=goal,
            sense="<=",
            note=note,
            samples={"ours": samples},
        )


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


def _bare(place: Place, number: int) -> float:
    with psycopg.connect(place.database.dsn, autocommit=True) as connection:
        connection.execute("set enable_hashjoin = off")
        connection.execute("set enable_mergejoin = off")
        done, started, after = 0, time.monotonic(), dict.fromkeys(range(4), 0)
        while done < number:
            for lane in after:
                rows = connection.execute(BARE_BEGIN, {"lane": lane, "after": after[lane]}).fetchall()
                if not rows:
                    continue
                seqs = [row[0] for row in rows]
                after[lane] = max(seqs)
                connection.execute(BARE_FINISH, {"lane": lane, "seqs": seqs})
                done += len(seqs)
        return done / (time.monotonic() - started)


def bare(house: House, number: int) -> float:
    """The loop over both statements, in the same tables."""
    with house.database() as place:
        place.apply()
        place.enqueue(number)
        return _bare(place, number)


def checks(house: House, scale: Scale) -> Iterator[Result]:
    """What every check, the attempt itself, its receipt and Python cost on top of two statements."""
    number = scale.of(40_000)
    ours, theirs = in_turns(scale.rounds, lambda: drained(house, number).rate, lambda: bare(house, number))
    yield ratio("drain with every check, 1 process", "bare SQL begin + finish, 1 connection", UNIT, ours, theirs, 0.8)


def backlog(house: House, scale: Scale) -> Iterator[Result]:
    """Does a long queue cost more than a short one?"""
    number, large = scale.of(10_000), scale.of(300_000, full=5_000_000)
    ours, theirs = in_turns(
        scale.rounds,
        lambda: drained(house, number, backlog=large).rate,
        lambda: drained(house, number, backlog=number).rate,
    )
    yield ratio(f"drain at a backlog of {large:,}", f"of {number:,}", UNIT, ours, theirs, 0.9)


def snapshot(house: House, scale: Scale) -> Iterator[Result]:
    """A forgotten transaction keeps every dead row: does the queue walk over them again and again?"""
    number = scale.of(60_000, full=1_000_000)

    def held() -> float:
        with house.database() as place, psycopg.connect(place.database.dsn) as foreign:
            place.apply()
            place.enqueue(number)
            foreign.execute("set transaction isolation level repeatable read")
            foreign.execute("select count(*) from outbox.tool")
            return place.drain(number).rate

    ours, theirs = in_turns(scale.rounds, held, lambda: drained(house, number).rate)
    yield ratio("drain under a foreign snapshot", "without", UNIT, ours, theirs, 0.7)
    first, second = in_turns(
        scale.rounds, lambda: peers.skip_locked(house, number, held=True), lambda: peers.skip_locked(house, number)
    )
    yield ratio("a SKIP LOCKED queue under it", "without", UNIT, first, second, 0.0, "for comparison, not ours")


def memory(house: House, scale: Scale) -> Iterator[Result]:
    """What a relay holds does not depend on what waits."""
    number = scale.of(10_000)
    for size in (number, scale.of(300_000, full=1_000_000)):
        cost = drained(house, number, backlog=size)
        yield Result(
            measure="memory of a relay",
            against=f"backlog of {size:,}",
            ours=cost.memory_mb,
            unit="MB",
            value=cost.memory_mb,
            value_unit="MB",
            goal=150.0,
            sense="<=",
            samples={"ours": [cost.memory_mb]},
        )
