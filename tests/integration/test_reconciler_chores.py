"""The belt and the watches: what is left behind is picked up, by one daemon per period."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from psycopg.errors import UniqueViolation

from outbox.registry import Registry
from reconciler import chores
from reconciler.chores import ORPHAN_MARGIN_SECONDS_MAX, SLOW_FACTOR, Chores
from reconciler.service import Reconciler
from tests.support.doubts import DEADLINE_SECONDS, NOT_FOUND, Records, in_doubt, reconciler_on, register
from tests.support.postgres import Database
from tests.support.stage import Clock, Holder, Stage

LEASE_SECONDS = 30.0
BELT_SECONDS = 10.0


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database)
    with Stage(database) as stage:
        yield stage


@pytest.fixture
def clock(stage: Stage) -> Clock:
    return Clock(stage.database)


@pytest.fixture
def holder(stage: Stage, clock: Clock) -> Holder:
    return stage.holder().taken(ttl_seconds=1_000_000)


@pytest.fixture
async def reconciler(stage: Stage, clock: Clock) -> AsyncIterator[Reconciler]:
    async with reconciler_on(stage.database, Records(NOT_FOUND), belt=f"{BELT_SECONDS}s") as started:
        yield started


def gauge(reconciler: Reconciler, name: str) -> float | None:
    return reconciler.meters.registry.get_sample_value(f"outbox_{name}")


async def test_of_two_reconcilers_one_does_each_chore_in_a_period(
    stage: Stage, clock: Clock, reconciler: Reconciler
) -> None:
    names = {chore.name for chore in reconciler.chores.all} | {"expire", "redecide"}
    async with reconciler_on(stage.database, Records(), belt=f"{BELT_SECONDS}s") as other:
        done = await asyncio.gather(reconciler.chores.run_once(), other.chores.run_once())
        assert done[0].keys() | done[1].keys() == names
        assert done[0].keys() & done[1].keys() == set()
        clock.advance(BELT_SECONDS + 1)
        again = await other.chores.run_once()
    assert {"sweep_orphans", "expire", "redecide", "end_landings", "watch_doubt"} == again.keys()
    took = stage.rows("select name from outbox.chore where took > interval '0'")
    assert {row["name"] for row in took} == names


async def test_an_attempt_that_nobody_holds_any_more_becomes_unknown_also_in_a_lane_that_is_held(
    stage: Stage, holder: Holder, clock: Clock, reconciler: Reconciler
) -> None:
    """Its task died, or the answer to its begin was lost, in a relay that lives and renews its lease."""
    seq = stage.put("op", "thing.looked_up")
    holder.begin_these(seq)
    older_than = reconciler.chores.orphan_seconds()
    assert older_than > LEASE_SECONDS + DEADLINE_SECONDS
    clock.advance(older_than - 1)
    assert (await reconciler.chores.run_once())["sweep_orphans"] == 0
    assert stage.state(seq) == "executing"
    clock.advance(BELT_SECONDS + 2)
    assert (await reconciler.chores.run_once())["sweep_orphans"] == 1
    assert (stage.state(seq), stage.pending(seq)["cause"]) == ("unknown", "orphaned")
    assert holder.end((seq, 1)) == [], "its late answer is recorded as evidence, never as a state"
    assert stage.doubt(seq)["step"] == "look"


async def test_the_belt_waits_for_the_slowest_tool_and_not_for_ever(reconciler: Reconciler) -> None:
    longest = max(tool.wiring.deadline_seconds + LEASE_SECONDS for tool in reconciler._known().tools.values())
    assert longest < reconciler.chores.orphan_seconds() <= longest + ORPHAN_MARGIN_SECONDS_MAX
    nothing = Registry({}, {}, reconciler._known().wirings)
    chores = Chores(reconciler._store, lambda: nothing, reconciler.meters, BELT_SECONDS)
    assert chores.orphan_seconds() == ORPHAN_MARGIN_SECONDS_MAX


async def test_a_permission_that_lapsed_before_anything_was_sent_ends_its_operation(
    stage: Stage, clock: Clock, reconciler: Reconciler
) -> None:
    soon = stage.value("select outbox.now() + interval '5 s'")
    seq = stage.put("op", "thing.blind", expires_at=soon)
    clock.advance(6)
    assert (await reconciler.chores.run_once())["expire"] == 1
    assert (stage.state(seq), stage.outcome(seq)["cause"]) == ("rejected", "expired")


async def test_marks_of_what_can_no_longer_land_are_removed_in_batches(
    stage: Stage, clock: Clock, reconciler: Reconciler
) -> None:
    stage.rows(
        """
        insert into outbox.landing (receiver_id, ord, seq, until)
        select 1, n, n, outbox.now() + case when n <= 1500 then interval '1 s' else interval '1 h' end
        from generate_series(1, 1510) n
        """
    )
    clock.advance(2)
    assert (await reconciler.chores.run_once())["end_landings"] == 1500
    assert stage.value("select count(*) from outbox.landing") == 10


async def test_identities_are_forgotten_in_batches_when_they_are_due_and_never_before(
    stage: Stage, clock: Clock, reconciler: Reconciler
) -> None:
    """A forgotten id is free: whoever puts it again has a new operation. One that is kept still gets its answer."""
    day = 86_400.0
    stage.rows("update outbox.tool set identity_retention = interval '30 days' where name = 'thing.blind'")
    stage.rows(
        """
        insert into outbox.tombstone (tenant_id, operation_id, seq, tool, principal_id, digest, state, ended_at)
        select 'acme', tool || n, -n - 5000 * (tool = 'thing.keyed')::int, tool, 'svc', 'd', 'succeeded',
          outbox.now() - case when n <= 2500 then interval '20 days' else interval '10 days' end
        from generate_series(1, 2510) n, unnest('{thing.blind,thing.keyed}'::text[]) tool
        """
    )

    async def forgotten() -> int:
        return (await reconciler.chores.run_once())["forget"]

    def kept(tool: str) -> int:
        return int(stage.value("select count(*) from outbox.tombstone where tool = %s", tool))

    clock.advance(10 * day - 60)
    assert await forgotten() == 0
    with pytest.raises(UniqueViolation, match="has ended"):
        stage.put("thing.blind1", "thing.blind")
    clock.advance(120)
    assert await forgotten() == 2_500
    assert (kept("thing.blind"), kept("thing.keyed")) == (10, 2_510)
    assert stage.state(stage.put("thing.blind1", "thing.blind")) == "authorized"
    with pytest.raises(UniqueViolation, match="has ended"):
        stage.put("thing.blind2510", "thing.blind")
    clock.advance(10_000 * day)
    assert await forgotten() == 10
    assert (kept("thing.blind"), kept("thing.keyed")) == (0, 2_510), "for ever is for ever"


async def test_more_identities_than_fit_a_period_are_forgotten_in_the_next_ones(
    stage: Stage, clock: Clock, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.chores.BATCH_MAX", 2)
    monkeypatch.setattr("reconciler.chores.ROUNDS_MAX", 3)
    stage.rows("update outbox.tool set identity_retention = interval '1 day' where name = 'thing.blind'")
    stage.rows(
        "insert into outbox.tombstone (tenant_id, operation_id, seq, tool, principal_id, digest, state, ended_at)"
        " select 'acme', n, n, 'thing.blind', 'svc', 'd', 'rejected', outbox.now() - interval '9 days'"
        " from generate_series(1, 10) n"
    )
    assert (await reconciler.chores.run_once())["forget"] == 6
    clock.advance(SLOW_FACTOR * BELT_SECONDS + 1)
    assert (await reconciler.chores.run_once())["forget"] == 4


async def test_daemons_that_were_not_heard_of_for_a_week_are_forgotten_and_no_others(
    stage: Stage, clock: Clock, reconciler: Reconciler
) -> None:
    """A daemon that dies again and again leaves a row each time."""
    stage.rows(
        """
        insert into outbox.member (member_id, kind, host, pid, version, seen_at, left_at)
        select gen_random_uuid(), 'relay', name, n, '1', seen_at, left_at
        from generate_series(1, 1100) n, (values
          ('died', outbox.now() - interval '8 days', null),
          ('left', '-infinity', outbox.now() - interval '8 days'),
          ('left lately', '-infinity', outbox.now() - interval '6 days'),
          ('silent', outbox.now() - interval '6 days', null),
          ('lives', outbox.now(), null)) as x(name, seen_at, left_at)
        where n <= 1 or name in ('died', 'left')
        """
    )
    assert (await reconciler.chores.run_once())["forget_members"] == 2_200
    hosts = {row["host"] for row in stage.rows("select host from outbox.member where kind = 'relay'")}
    assert hosts == {"left lately", "silent", "lives"}


async def test_what_is_in_doubt_is_counted(stage: Stage, holder: Holder, clock: Clock, reconciler: Reconciler) -> None:
    in_doubt(stage, holder, "thing.blind", "one", steps="person")
    in_doubt(stage, holder, "thing.looked_up", "two")
    clock.advance(100)
    await reconciler.chores.run_once()
    assert gauge(reconciler, "in_doubt") == 2
    assert gauge(reconciler, "in_doubt_for_a_person") == 1
    assert gauge(reconciler, "in_doubt_late") == 2
    assert (gauge(reconciler, "oldest_doubt_seconds") or 0) >= 100
    assert gauge(reconciler, "lanes_unheld") == 0
    holder.give_back()
    clock.advance(BELT_SECONDS + 1)
    await reconciler.chores.run_once()
    assert gauge(reconciler, "lanes_unheld") == 1


async def test_contradictions_are_counted(
    stage: Stage, holder: Holder, clock: Clock, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "READ_BATCH_MAX", 3)
    seqs = [in_doubt(stage, holder, "thing.looked_up", f"op-{number}") for number in range(4)]
    for seq in seqs:
        stage.settle(seq, 1, "rejected")
    for number, seq in enumerate(seqs):
        stage.witness(seq, "receipt", attempt=1, external_id=f"w-{number}")
        stage.witness(seq, "late_answer", attempt=1, status=500)
        clock.advance(400)
        counted = min(number + 1, 3)
        assert (await reconciler.chores.run_once())["watch_contradictions"] == counted
        assert gauge(reconciler, "contradictions") == counted


async def test_intents_that_are_too_young_to_be_passed_are_read_once_and_not_in_each_round(
    stage: Stage, clock: Clock, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "READ_BATCH_MAX", 2)
    store, ran = reconciler.chores._store, []
    dicts = store.dicts

    async def counted(statement: str, /, **parameters: Any) -> list[dict[str, Any]]:
        ran.append(statement)
        return await dicts(statement, **parameters)

    store.dicts = counted  # type: ignore[method-assign]
    for age, rounds in (("old", 3), ("young", 1)):
        for number in range(5):
            stage.put(f"{age}-{number}", "thing.blind")
        if age == "old":
            clock.advance(700)
        ran.clear()
        assert (await reconciler.chores.run_once())["watch_placement"] == 0
        assert ran.count("find_unplaced") == rounds
        assert gauge(reconciler, "unplaced") == 0
        clock.advance(SLOW_FACTOR * BELT_SECONDS + 1)
    newest_old = stage.value("select seq from outbox.intent where operation_id = 'old-4'")
    assert reconciler.chores._placed_upto == newest_old


async def test_an_intent_that_no_trigger_placed_is_found_and_what_is_placed_is_passed(
    stage: Stage, clock: Clock, reconciler: Reconciler
) -> None:
    for number in range(3):
        stage.put(f"placed-{number}", "thing.blind")
    clock.advance(700)
    assert (await reconciler.chores.run_once())["watch_placement"] == 0
    floor = reconciler.chores._placed_upto
    assert floor == stage.value("select max(seq) from outbox.intent")
    stage.rows("set session_replication_role = replica")
    stage.rows(
        "insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest)"
        " values ('acme', 'lost', 'thing.blind', 'svc', '{}',"
        " outbox.intent_digest('acme', 'lost', 'thing.blind', null, null, '{}'))"
    )
    stage.rows("set session_replication_role = origin")
    stage.put("placed-later", "thing.blind")
    for _ in range(2):
        clock.advance(700)
        assert (await reconciler.chores.run_once())["watch_placement"] == 1
    assert reconciler.chores._placed_upto < stage.value("select seq from outbox.intent where operation_id = 'lost'")
    stage.rows("select outbox.repair(0, 10, 'ann')")
    clock.advance(700)
    assert (await reconciler.chores.run_once())["watch_placement"] == 0
    assert gauge(reconciler, "unplaced") == 0
