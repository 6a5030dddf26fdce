"""
Does a tenant with a large backlog delay another one?

*Shuffle sharding* (`tenant_lanes`, what is built): a tenant's operations lie in some of the lanes only. *Fair claiming*
(not built): all lanes are everybody's, and a claim passes over the tenants that fill it; only the statement that such a
holder would need is timed here.
"""

import statistics
import time
from collections.abc import Iterator

from benchmarks.house import TOOL, House, Place
from benchmarks.measure import Result, Scale

CONCURRENCY, MILLISECONDS = 64, 50
# Lanes of the receiver, and how many of them a tenant may use (None: all).
LAYOUTS = ((16, None), (16, 2), (64, 2))


def _p99(house: House, *, crowd: int, lanes: int, tenant_lanes: int | None, probes: int) -> dict[str, float]:
    """Milliseconds from commit to first byte, the 99th percentile, by tenant."""
    with house.database() as place:
        place.apply(
            f'transport = "instant"\nlanes = {lanes}\nconcurrency = {CONCURRENCY}\n'
            + (f"tenant_lanes = {tenant_lanes}\n" if tenant_lanes else "")
            + f"options = {{ milliseconds = {MILLISECONDS} }}"
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
        tenant, name = f"small-{n % 20}", f"probe-{n}"
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
    crowd, probes = scale.of(60_000, full=1_000_000), max(100, scale.of(1_000))
    for lanes, tenant_lanes in LAYOUTS:
        alone = _p99(house, crowd=0, lanes=lanes, tenant_lanes=tenant_lanes, probes=probes)
        beside = _p99(house, crowd=crowd, lanes=lanes, tenant_lanes=tenant_lanes, probes=probes)
        moved = sorted(beside[tenant] / alone[tenant] for tenant in alone)
        held = sum(1 for value in moved if value <= 1.2) / len(moved)
        yield Result(
            measure=f"p99 of a small tenant, tenant_lanes = {tenant_lanes or 'all'} of {lanes}",
            against=f"without the tenant with {crowd:,} rows",
            ours=statistics.median(beside.values()),
            theirs=statistics.median(alone.values()),
            unit="ms",
            value=statistics.median(moved),
            value_unit="x (median tenant)",
            goal=1.2,
            sense="<=",
            note=f"{100 * held:.0f} % of tenants within 20 %, worst {moved[-1]:.0f} x",
            samples={"moved": moved},
        )
    yield from _fair_claiming(house, scale)


# What a holder would ask that has noticed that one tenant fills its lane: the others, in order, past all its rows.
OTHERS = """
select q.seq from outbox.pending q
cross join lateral (select n.tenant_id from outbox.intent n where n.seq = q.seq offset 0) i
where q.receiver_id = 1 and q.lane = 0 and q.seq > 0 and i.tenant_id <> 'crowd' order by q.seq limit 10
"""


def _fair_claiming(house: House, scale: Scale) -> Iterator[Result]:
    crowd = scale.of(200_000, full=1_000_000)
    with house.database() as place:
        place.apply('transport = "instant"\nlanes = 1\nconcurrency = 64')
        place.enqueue(crowd, tenant="crowd", payload_bytes=200)
        place.enqueue(10, tenant="small")
        found = []
        for _ in range(scale.rounds + 2):
            started = time.monotonic()
            assert len(place.admin.execute(OTHERS).fetchall()) == 10
            found.append(1e6 * (time.monotonic() - started) / crowd)
    yield Result(
        measure="fair claiming (an experiment): passing over one row of a crowd",
        against="-",
        ours=statistics.median(found),
        unit="us",
        value=statistics.median(found) * crowd / 1000,
        value_unit=f"ms to pass {crowd:,} rows",
        note="once per lane and crowd, and again after a takeover",
        samples={"ours": found},
    )
