"""A lane that is closed at an awkward moment: what was begun comes to its end, and is recorded."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from outbox.outcome import Ambiguous, Outcome
from outbox.receivers import Attempt
from outbox.receivers.scripted import ScriptedReceiver
from relay.recorder import Recorder
from tests.support.doubts import register
from tests.support.eventually import eventually_async
from tests.support.postgres import Database
from tests.support.relays import BLIND, KEYED, Held, Running, put_many, registry, relay_on
from tests.support.stage import Stage


def close_before_the_answer(running: Running, statement: str) -> Callable[..., Any]:
    """Close every lane when a statement has been committed, and before anybody has heard of it."""
    ask = running.store.fetch

    async def asked(name: str, rows: Any, /, **parameters: Any) -> list[Any]:
        found = await ask(name, rows, **parameters)
        if name == statement:
            for lane in running.relay.lanes:
                lane.close()
        return found

    return asked


async def test_attempts_whose_begin_was_on_its_way_when_the_lane_was_closed_are_recorded(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked to stop, or to give a lane up, in the middle of a begin: its effects must not be forgotten."""
    await register(database, registry(KEYED))
    with Stage(database) as stage:
        put_many(stage, 3)
        async with relay_on(database) as running:
            monkeypatch.setattr(running.store, "fetch", close_before_the_answer(running, "begin_range"))

            async def begun() -> bool:
                return running.counted("begun") > 0

            async with running.running():
                await eventually_async(begun)
        states = stage.rows("select state::text, count(*) as n from outbox.operation group by 1")
        assert states == [{"state": "succeeded", "n": 3}]


async def test_attempts_whose_begin_was_on_its_way_when_all_was_broken_off_are_not_made(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for an end at once gets no further effect; and that nothing was sent is known."""
    await register(database, registry(KEYED))
    receiver = ScriptedReceiver()
    with Stage(database) as stage:
        put_many(stage, 3)
        async with relay_on(database, receiver) as running:
            ask = running.store.fetch

            async def asked(name: str, rows: Any, /, **parameters: Any) -> list[Any]:
                found = await ask(name, rows, **parameters)
                if name == "begin_range" and any(seq for seq, *_ in found):
                    running.stopping.ask("first")
                    running.stopping.ask("second")
                    for lane in running.relay.lanes:
                        lane.close()
                        lane.flight.break_off()
                return found

            monkeypatch.setattr(running.store, "fetch", asked)
            async with running.running() as task:
                assert await task, "everything is recorded"
        assert receiver.attempts == []
        states = stage.rows("select state::text, cause, not_sent, count(*) as n from outbox.pending group by 1, 2, 3")
        assert states == [{"state": "authorized", "cause": "shutdown", "not_sent": 1, "n": 3}]


class Deaf(Held):
    """A receiver that goes on after so many cancellations, until the test is over."""

    def __init__(self, times: int) -> None:
        super().__init__(Ambiguous(reason="the test is over"))
        self._times = times

    async def deliver(self, attempt: Attempt) -> Outcome:
        for time in range(self._times):
            with contextlib.suppress(asyncio.CancelledError):
                return await (self._answered() if time else super().deliver(attempt))
        return await self._answered()

    async def _answered(self) -> Outcome:
        await self.let_go.wait()
        return Ambiguous(reason="the test is over")


@pytest.mark.parametrize("times", [1, 1_000], ids=["the first cancellation is swallowed", "all of them are"])
async def test_asked_twice_it_ends_and_what_was_in_flight_is_unknown_also_where_a_receiver_ignores_cancellation(
    database: Database, times: int
) -> None:
    await register(database, registry(KEYED, tool={"deadline": "1h"}, lease="2h"))
    receiver = Deaf(times)
    with Stage(database) as stage:
        put_many(stage, 3)
        async with relay_on(database, receiver, grace="1h") as running, running.running() as task:
            for _ in range(3):
                await receiver.begun.get()
            running.stopping.ask("first")
            running.stopping.ask("second")
            assert await task, "everything that was heard is recorded"
        states = stage.rows("select state::text, cause, count(*) as n from outbox.operation group by 1, 2")
        assert states == [{"state": "unknown", "cause": "shutdown", "n": 3}]
        receiver.let_go.set()


async def test_a_receiver_that_ignores_its_deadline_loses_its_slot(database: Database) -> None:
    await register(database, registry(BLIND, tool={"deadline": "300ms"}, concurrency=1))
    receiver = Deaf(1_000)
    with Stage(database) as stage:
        put_many(stage, 2, BLIND)
        async with relay_on(database, receiver) as running, running.running():
            first, second = await receiver.begun.get(), await receiver.begun.get()
            assert first.seq != second.seq

            async def recorded() -> bool:
                return bool(stage.value("select bool_and(state = 'unknown' and cause = 'timeout') from outbox.pending"))

            await eventually_async(recorded)
        receiver.let_go.set()


async def test_a_recorder_that_swallows_its_cancellation_does_not_keep_the_relay(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Recorder.run

    async def swallowing(recorder: Recorder) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await run(recorder)
        await asyncio.Event().wait()

    monkeypatch.setattr(Recorder, "run", swallowing)
    await register(database, registry(KEYED))
    with Stage(database) as stage:
        put_many(stage, 1)
        async with relay_on(database) as running, running.running():

            async def recorded() -> bool:
                return running.counted("recorded") == 1

            await eventually_async(recorded)
        assert stage.value("select count(*) from outbox.lane where owner is not null") == 0, "the lane is given back"
