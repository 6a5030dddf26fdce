"""Two lanes whose attempts are real tasks: who has just had a slot does not take the next one before who was denied."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from outbox.lease import boottime
from relay import flight as flights
from relay.crowd import WINDOW, Crowd
from relay.flight import Flight
from relay.share import Pace
from relay.shared import Memory
from relay.slots import PATIENCE, Slots
from relay.turns import Turns
from tests.support.eventually import eventually_async


def bound(tenant: str, number: int) -> Any:
    begun = SimpleNamespace(tenant_id=tenant, name=(number, 1), names={})
    return SimpleNamespace(begun=begun, deadline_at=boottime() + 100)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts that end soon."""

    async def attempt(made: Any, _: Any) -> Any:
        loop = asyncio.get_running_loop()
        answered = loop.create_future()
        loop.call_later(0.001, answered.set_result, None)
        await answered
        return made

    monkeypatch.setattr(flights, "attempt", attempt)
    monkeypatch.setattr(Flight, "_report", lambda *_: None)


class Lane:
    """One slot, and a task that pumps when an attempt has ended, as the lane's own does."""

    def __init__(self, slots: Slots, crowd: str | None, served: list[str]) -> None:
        seen = Crowd(poll_seconds=60, pass_seconds=60, now=0.0, slots=slots)
        for _ in range(WINDOW if crowd else 0):
            seen.began([str(crowd)], boottime())
        self.served = served
        self.ended = asyncio.Event()
        turns = Turns(slots, seen, own=1, pace=Pace(None), wake=self.wake)
        given: dict[str, Any] = {"scene": lambda: None, "ended": self.end, "dropped": None}
        holding: Any = SimpleNamespace(receiver="r")
        meters: Any = None
        self.flight = Flight(holding, meters, Memory(), turns=turns, **given)

    def wake(self) -> None:
        self.flight.pump()

    def end(self, made: Any) -> None:
        self.served.append(made.begun.tenant_id)
        self.ended.set()

    async def run(self) -> None:
        while True:
            await self.ended.wait()
            self.ended.clear()
            self.flight.pump()


async def test_a_lane_gets_back_its_slot_when_an_attempt_of_others_ends() -> None:
    slots, served = Slots(), list[str]()
    first, second = Lane(slots, "big", served), Lane(slots, None, served)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(lane.run()) for lane in (first, second)]
        for number in range(200):
            first.flight.add(bound("small", number))
        await eventually_async(lambda: len(served) >= 10)
        at = len(served)
        assert at < 200
        second.flight.add(bound("own", 10_000))
        await eventually_async(lambda: len(served) == 201)
        for task in tasks:
            task.cancel()
    assert served.index("own") - at <= PATIENCE, "others went first, in its own slot"
    assert (slots.running, slots.claimed) == (0, 0)


async def test_what_waits_for_its_pace_starts_without_anybody_who_asks() -> None:
    """A lane that is closed takes no steps any more."""
    slots, served = Slots(), list[str]()
    lane = Lane(slots, None, served)
    lane.flight.turns.serve(1, Pace(50.0))
    for number in range(52):
        lane.flight.add(bound("a", number))
    await eventually_async(lambda: len(served) == 52)
