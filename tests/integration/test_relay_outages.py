"""Connections die at each statement, before and after its commit; every operation ends as if they had not."""

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from outbox.errors import DatabaseUnavailable
from outbox.outcome import NO_ANSWER, Ambiguous, Answer, NotSent, Outcome, Receipt
from outbox.receivers.scripted import ScriptedReceiver
from tests.support.doubts import register
from tests.support.eventually import eventually_async
from tests.support.postgres import Database
from tests.support.relays import BLIND, KEYED, put_many, registry, relay_on
from tests.support.stage import Stage

RECEIPT = Receipt(answer=Answer(200), receipt="r")
QUICK = {"retry": {"first": "1ms", "max": "2ms"}}
SOON: dict[str, Any] = {"look_behind": "10ms", "poll": "20ms", "heartbeat": "100ms", "registry_poll": "50ms"}
OURS = "application_name in ('relay test', 'outbox relay') and datname = current_database()"


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database, registry(contract=QUICK, concurrency=16))
    with Stage(database) as stage:
        yield stage


# ------------------------------------------------------------------------------- between the commit and its answer


@contextlib.contextmanager
def hanging_commits(stage: Stage) -> Iterator[None]:
    """Every commit is done on this server, and then waits for a standby that does not exist."""
    local = stage.connect()
    local.execute("set synchronous_commit = local")
    local.execute("alter system set synchronous_standby_names = 'nobody'")
    local.execute("select pg_reload_conf()")
    try:
        yield
    finally:
        local.execute("alter system reset synchronous_standby_names")
        local.execute("select pg_reload_conf()")


async def cut_off_after_the_commit(stage: Stage) -> None:
    """Kill the one session that has committed and has not been told so."""

    async def killed() -> bool:
        return bool(
            stage.rows(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where wait_event = 'SyncRep' and application_name = 'relay test' and datname = current_database()"
            )
        )

    await eventually_async(killed)


async def test_a_begin_that_was_committed_and_not_heard_of_is_swept_and_sent_once(stage: Stage) -> None:
    seq = stage.put("op", KEYED)
    receiver = ScriptedReceiver([RECEIPT])
    async with relay_on(stage.database, receiver, look_behind="1h") as running:
        await running.take_lanes()
        with hanging_commits(stage):
            stepping = asyncio.create_task(running.lane.claims.step())
            await cut_off_after_the_commit(stage)
            with pytest.raises(DatabaseUnavailable):
                await stepping
        assert (stage.state(seq), receiver.attempts) == ("executing", [])
        while stage.state(seq) != "succeeded":
            await running.rounds()
        assert running.counted("orphans") == 1
    assert sum(receiver.effects.values()) == 1
    assert (stage.outcome(seq)["attempt"], stage.outcome(seq)["not_sent"]) == (2, 1)


@pytest.mark.parametrize(
    ("outcome", "tool", "state"),
    [
        (RECEIPT, KEYED, "succeeded"),
        (Ambiguous(reason="x"), BLIND, "unknown"),
        (NotSent(reason="x", answer=NO_ANSWER), KEYED, "authorized"),
    ],
    ids=["end", "unknown", "withdraw"],
)
async def test_a_record_that_was_committed_and_not_heard_of_is_no_lost_lease(
    stage: Stage, outcome: Outcome, tool: str, state: str
) -> None:
    seq = stage.put("op", tool)
    async with relay_on(stage.database, ScriptedReceiver([outcome]), **SOON) as running:
        await running.take_lanes()
        await running.lane.claims.step()
        with hanging_commits(stage):
            settling = asyncio.create_task(running.lane.settle())
            await cut_off_after_the_commit(stage)
        await settling
        assert (running.lane.lost, running.counted("fenced_writes"), running.counted("late_answers")) == (False, 0, 0)
    assert stage.state(seq) == state
    assert stage.rows("select from outbox.evidence") == []


# -------------------------------------------------------------------------------------------- before the statement


@pytest.mark.parametrize(
    "statement",
    [
        "peek",
        "begin_range",
        "begin_these",
        "end_operations",
        "withdraw_attempts",
        "record_unknown",
        "lane_bounds",
        "own_executing",
        "set_bell",
        "read_receivers",
    ],
)
async def test_a_connection_that_is_dead_when_a_statement_needs_it_costs_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    first: set[int] = set()

    def answer(attempt: Any) -> Outcome:
        if attempt.seq in first:
            return RECEIPT
        first.add(attempt.seq)
        return NotSent(reason="x") if attempt.seq % 2 else Ambiguous(reason="x")

    receiver = ScriptedReceiver([answer])
    put_many(stage, 30)
    killed = Counter[str]()
    async with relay_on(stage.database, receiver, bell=True, **SOON) as running:
        real = running.store.fetch

        async def fetch(name: str, rows: Any, /, **parameters: Any) -> list[Any]:
            if name == statement and killed[name] < 2:
                killed[name] += 1
                stage.rows("select pg_terminate_backend(pid) from pg_stat_activity where " + OURS)
            return await real(name, rows, **parameters)

        monkeypatch.setattr(running.store, "fetch", fetch)
        async with running.running():
            await eventually_async(lambda: stage.value("select count(*) from outbox.outcome") == 30)
            await eventually_async(lambda: killed[statement] == 2)
    assert running.counted("fenced_writes") == 0
    assert stage.value("select count(*) from outbox.outcome where state = 'succeeded'") == 30
    assert max(receiver.effects.values()) == 1


def ended(stage: Stage, more_than: int) -> bool:
    return bool(stage.value("select count(*) from outbox.outcome") > more_than)


async def test_every_connection_dies_again_and_again_while_operations_are_delivered(stage: Stage) -> None:
    put_many(stage, 400)
    receiver = ScriptedReceiver([RECEIPT])
    async with relay_on(stage.database, receiver, bell=True, **SOON) as running, running.running():
        while (done := stage.value("select count(*) from outbox.outcome")) < 400:
            stage.rows("select pg_terminate_backend(pid) from pg_stat_activity where " + OURS)
            await eventually_async(functools.partial(ended, stage, done))
    assert max(receiver.effects.values()) == 1
    assert running.counted("fenced_writes") == 0


async def test_a_database_that_is_away_for_longer_than_the_lease_loses_no_answer(database: Database) -> None:
    """Without a successor the fence still holds: the answer is a receipt, however late it is recorded."""
    await register(database, registry(KEYED, lease="2s", tool={"deadline": "1s"}))
    with Stage(database) as stage:
        seq = stage.put("op", KEYED)
        async with relay_on(database, ScriptedReceiver([RECEIPT]), **SOON) as running:
            await running.take_lanes()
            await running.lane.claims.step()
            running.store.refuses["end_operations"] = 12
            settling = asyncio.create_task(running.lane.settle())
            await eventually_async(lambda: stage.value("select expires_at < outbox.now() from outbox.lane"))
            await settling
            assert not running.lane.lost
        assert stage.state(seq) == "succeeded"
