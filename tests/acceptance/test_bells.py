"""Notifications are a speed-up: however often they break, and without them, everything is found by looking."""

from pathlib import Path

import pytest

from tests.support.arena import HEAL_SECONDS_MAX, Arena, arena, events
from tests.support.eventually import eventually
from tests.support.kinds import configuration
from tests.support.merchant import merchant
from tests.support.postgres import Database

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

RECEIVERS = {"keyed": "keyed", "blind": "blind"}
KILLS = 20


def is_idle(made: Arena) -> bool:
    """Every lane has nothing to do, and asks writers to ring."""
    idle: bool = made.database.value("select bool_and(idle and bell is not null) from outbox.lane")
    return idle


def all_ended(made: Arena) -> bool:
    return all(one.ended for one in made.operations().values())


def test_a_bell_that_is_broken_again_and_again_loses_nothing(database: Database, tmp_path: Path) -> None:
    with merchant(tmp_path) as shop:
        config = configuration(shop.url, RECEIVERS, lease="10s")
        with arena(database, shop, tmp_path / "arena", RECEIVERS, config=config) as made:
            relay = made.relay(poll="500ms", look_behind="500ms")
            for _ in range(KILLS):
                eventually(lambda: is_idle(made), HEAL_SECONDS_MAX)
                killed = database.value(
                    "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                    " where datname = current_database() and query ilike 'listen %%'"
                )
                made.put_everywhere()
                assert killed <= 1
                eventually(lambda: all_ended(made), HEAL_SECONDS_MAX)
            made.stop(relay)
            assert made.violations() == []
            assert len(events(relay, "bell_lost")) >= KILLS // 4, "it was broken"
            assert {one.attempts for one in made.operations().values()} == {1}


def test_with_a_bell_nobody_waits_for_a_look(database: Database, tmp_path: Path) -> None:
    """A relay that looks once a minute delivers what is rung for, at once."""
    with merchant(tmp_path) as shop, arena(database, shop, tmp_path / "arena", {"keyed": "keyed"}) as made:
        relay = made.relay(poll="60s", look_behind="60s")
        for _ in range(3):
            eventually(lambda: is_idle(made), HEAL_SECONDS_MAX)
            made.put("keyed")
            eventually(lambda: all_ended(made), HEAL_SECONDS_MAX)
        made.stop(relay)
        assert database.value("select (counters ->> 'rings')::int from outbox.member") == 3


def test_without_bells_everything_is_found_by_looking(database: Database, tmp_path: Path) -> None:
    with merchant(tmp_path) as shop:
        config = configuration(shop.url, RECEIVERS, doorbell=False)
        with arena(database, shop, tmp_path / "arena", RECEIVERS, config=config) as made:
            relay = made.relay(poll="100ms")
            for _ in range(3):
                made.put_everywhere()
                eventually(lambda: all_ended(made), HEAL_SECONDS_MAX)
            made.stop(relay)
            assert made.violations() == []
            assert database.value("select (counters ->> 'rings')::int from outbox.member") == 0
