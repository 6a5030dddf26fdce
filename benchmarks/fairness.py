"""
Does a tenant with a large backlog delay another one?

A holder lets others past the tenants that fill its lane (`relay/crowd.py`). What is measured is the time from a commit
to the effect, of twenty small tenants beside one with a large backlog and without it, and what looking
past that backlog costs.
"""

import statistics
import time
from collections.abc import Iterator

from benchmarks.house import TOOL, House, Place
from benchmarks.measure import Result, Scale
from outbox.sql import load
from relay.crowd import FOUND_MAX, ROWS_MAX

MILLISECONDS = 50
# Lanes of the receiver, and how many attempts run at once in all of them together; the first are the defaults.
LAYOUTS = ((4, 16), (4, 64), (16, 64))
TENANTS = 20


def _p99(house: House, *, crowd: int, lanes: int, concurrency: int, probes: int) -> dict[str, float]:
    """Milliseconds from commit to effect, the 99th percentile, by tenant."""
    with house.database() as place:
        place.apply(
            f'transport = "instant"\nlanes = {lanes}\nconcurrency = {concurrency}\n'
            f"options = {{ milliseconds = {MILLISECONDS} }}"
        )
        if crowd:
            place.enqueue(crowd, tenant="crowd", payload_bytes=200)
        with place.daemons("relay"):
            time.sleep(5)
            committed = _probe(place, probes)
            time.sleep(3)
        return _percentiles(place, committed)


def _probe(place: Place, probes: int) -> dict[str, float]:
    committed: dict[str, float] = {}
    for n in range(probes):
        tenant, name = f"small-{n % TENANTS}", f"probe-{n}"
        place.admin.execute(
            "insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest) values"
            " (%s, %s, %s, 'svc', '{}', outbox.intent_digest(%s, %s, %s, null, null, '{}'))",
            (tenant, name, TOOL, tenant, name, TOOL),
        )
        committed[name] = time.time()
        time.sleep(0.02)
    return committed


def _percentiles(place: Place, committed: dict[str, float]) -> dict[str, float]:
    rows = place.admin.execute(
        "select i.operation_id, i.tenant_id, (o.receipt::json ->> 'at')::float8 from outbox.intent i"
        " left join outbox.outcome o on o.seq = i.seq where i.tenant_id like 'small-%'"
    ).fetchall()
    by_tenant: dict[str, list[float]] = {}
    for name, tenant, at in rows:
        waited = (at or time.time()) - committed[name]
        by_tenant.setdefault(tenant, []).append(1000 * waited)
    return {tenant: sorted(values)[int(0.99 * (len(values) - 1))] for tenant, values in by_tenant.items()}


def fairness(house: House, scale: Scale) -> Iterator[Result]:
    """Twenty small tenants beside one with a large backlog: by how much does the crowd move each one's p99?"""
    crowd, probes = scale.of(100_000, full=1_000_000), max(200, scale.of(4_000))
    for lanes, concurrency in LAYOUTS:
        alone = _p99(house, crowd=0, lanes=lanes, concurrency=concurrency, probes=probes)
        beside = _p99(house, crowd=crowd, lanes=lanes, concurrency=concurrency, probes=probes)
        moved = sorted(beside[tenant] / alone[tenant] for tenant in alone)
        held = sum(1 for value in moved if value <= 1.2) / len(moved)
        yield Result(
            measure=f"p99 of a small tenant, {lanes} lanes, {concurrency} at once",
            against=f"without the tenant with {crowd:,} rows",
            ours=statistics.median(beside.values()),
            theirs=statistics.median(alone.values()),
            unit="ms",
            value=moved[-1],
            value_unit="x (worst tenant)",
            goal=1.2,
            sense="<=",
            note=f"{100 * held:.0f} % of tenants within 20 %, median {statistics.median(moved):.2f} x",
            samples={"moved": moved},
        )
    yield from _passing(house, scale)


def _passing(house: House, scale: Scale) -> Iterator[Result]:
    """What it costs to look past a whole crowd."""
    crowd = scale.of(200_000, full=1_000_000)
    look = load("relay")["look_ahead"]
    with house.database() as place:
        place.apply('transport = "instant"\nlanes = 1\nconcurrency = 64')
        place.enqueue(crowd, tenant="crowd", payload_bytes=200)
        place.enqueue(10, tenant="small")
        given = {"receiver_id": 1, "lane": 0, "rows_max": ROWS_MAX, "found_max": FOUND_MAX, "crowd": ["crowd"]}
        found = []
        for _ in range(scale.rounds + 2):
            started, after, more, others = time.monotonic(), 0, True, 0
            while more:
                row = place.admin.execute(look, {**given, "after": after}).fetchone()
                assert row is not None
                seqs, _, after, more = row
                others += len(seqs)
            assert others == 10
            found.append(1e6 * (time.monotonic() - started) / crowd)
    yield Result(
        measure="looking past one operation of a crowd",
        against="-",
        ours=statistics.median(found),
        unit="us",
        value=statistics.median(found) * crowd / 1000,
        value_unit=f"ms to pass {crowd:,}",
        note="once when a lane has a crowd, and then at most a fiftieth of the time",
        samples={"ours": found},
    )
