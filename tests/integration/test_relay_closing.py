"""A lane that is closed at an awkward moment: what was begun comes to its end, and is recorded."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.doubts import register
from tests.support.eventually import eventually_async
from tests.support.postgres import Database
from tests.support.relays import KEYED, Running, put_many, registry, relay_on
from tests.support.stage import Stage


def close_before_the_answer(running: Running, statement: str) -> Callable[..., Any]:
    """Close every lane when a statement has been committed, and before anybody has heard of it."""
    ask = running.store.dicts

    async def asked(name: str, /, **parameters: Any) -> list[dict[str, Any]]:
        rows = await ask(name, **parameters)
        if name == statement:
            for lane in running.relay.lanes:
                lane.close()
        return rows

    return asked


async def test_attempts_whose_begin_was_on_its_way_when_the_lane_was_closed_are_recorded(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked to stop, or to give a lane up, in the middle of a begin: its effects must not be forgotten."""
    await register(database, registry(KEYED))
    with Stage(database) as stage:
        put_many(stage, 3)
        async with relay_on(database) as running:
            monkeypatch.setattr(running.store, "dicts", close_before_the_answer(running, "begin_range"))

            async def begun() -> bool:
                return running.counted("begun") > 0

            async with running.running():
                await eventually_async(begun)
        states = stage.rows("select state::text, count(*) as n from outbox.operation group by 1")
        assert states == [{"state": "succeeded", "n": 3}]
