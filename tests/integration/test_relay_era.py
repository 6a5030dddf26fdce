"""A failover and a clock that jumps: a relay notices both, and sends nothing blindly."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from outbox.outcome import Answer, Receipt
from outbox.receivers.scripted import ScriptedReceiver, lost_answer
from tests.support.doubts import register
from tests.support.eventually import eventually_async
from tests.support.postgres import Database
from tests.support.relays import BLIND, KEYED, registry, relay_on
from tests.support.stage import Clock, Stage

RECEIPT = Receipt(answer=Answer(200), receipt="r")
QUICK = {"retry": {"first": "1ms", "max": "2ms"}}
SOON: dict[str, Any] = {"look_behind": "10ms", "poll": "20ms", "heartbeat": "100ms"}
OURS = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where application_name in ('relay test', 'outbox relay') and datname = current_database()"
)


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database, registry(contract=QUICK, concurrency=4, lease="3s", tool={"deadline": "1s"}))
    with Stage(database) as stage:
        yield stage


async def test_a_relay_that_reconnects_to_another_life_enters_it_before_it_sends_anything(stage: Stage) -> None:
    """What may have been exposed without a trace is unknown where no resend is safe, and goes on where one is."""
    receiver = ScriptedReceiver([RECEIPT])
    stage.rows("insert into outbox.pause (kind, name, paused_by, reason) values ('tenant', 'acme', 'me', 'a test')")
    async with relay_on(stage.database, receiver, **SOON) as running, running.running():
        await eventually_async(lambda: bool(running.relay.lanes))
        fence = stage.value("select fence from outbox.lane")
        blind, keyed = stage.put("blind", BLIND), stage.put("keyed", KEYED)
        stage.rows("update outbox.instance set timeline = 99")
        stage.rows(OURS)
        await eventually_async(lambda: stage.value("select era from outbox.instance") == 2)
        stage.rows("delete from outbox.pause")
        await eventually_async(lambda: stage.state(keyed) == "succeeded")
        assert stage.value("select fence from outbox.lane") >> 40 == 2 > fence >> 40
        assert running.counted("leases_lost") == 1
    assert stage.value("select timeline from outbox.instance") == 1
    assert (stage.state(blind), stage.pending(blind)["cause"]) == ("unknown", "failover")
    assert [attempt.seq for attempt in receiver.attempts] == [keyed]


async def test_after_a_jump_of_the_databases_clock_resends_wait_and_first_attempts_do_not(stage: Stage) -> None:
    """A window measured by a clock that was set back looks longer than it is."""
    clock = Clock(stage.database)
    doubtful = stage.put("doubtful", KEYED)
    receiver = ScriptedReceiver([lost_answer, RECEIPT])
    async with relay_on(stage.database, receiver, **SOON) as running:
        await running.take_lanes()
        lane = running.lane
        await lane.claims.step()
        await lane.settle()
        assert stage.state(doubtful) == "unknown"
        clock.advance(3600)
        running.relay.leases._next_beat_at = 0.0
        await running.relay.leases.tick()
        stage.rows("update outbox.lane set expires_at = 'infinity'")
        fresh = stage.put("fresh", KEYED)
        lane.ring(doubtful)
        lane.ring()
        await lane.claims.step()
        await lane.settle()
    assert (stage.state(doubtful), stage.state(fresh)) == ("unknown", "succeeded")
    assert [attempt.resend for attempt in receiver.attempts] == [False, False]


async def test_behind_a_pooler_a_new_life_is_noticed_with_the_next_heartbeat(stage: Stage) -> None:
    """Its connections outlive the server's: nothing that is new here tells of a failover there."""
    async with relay_on(stage.database, pooler=True, **SOON) as running, running.running():
        await eventually_async(lambda: bool(running.relay.lanes))
        stage.rows("update outbox.instance set timeline = 99")
        await eventually_async(lambda: stage.value("select era from outbox.instance") == 2)
