"""What a daemon refuses, what it thinks of the database's clock, and how it is asked to stop."""

from datetime import UTC, datetime, timedelta

import pytest

from outbox import schema
from outbox.daemon import ClockWatch, Stopping, check_schema
from outbox.errors import SchemaMismatch

START = datetime(2026, 11, 30, tzinfo=UTC)


def test_a_schema_in_range_is_accepted_also_a_newer_one_that_allows_us() -> None:
    check_schema(schema.OLDEST_SCHEMA, schema.DAEMON_VERSION)
    check_schema(schema.SCHEMA_VERSION + 7, schema.DAEMON_VERSION)


def test_a_schema_that_is_too_old_names_both_versions_and_what_to_run() -> None:
    with pytest.raises(
        SchemaMismatch, match=f"schema {schema.OLDEST_SCHEMA - 1}.*{schema.OLDEST_SCHEMA}.*outbox migrate"
    ):
        check_schema(schema.OLDEST_SCHEMA - 1, schema.DAEMON_VERSION)


def test_a_schema_that_needs_newer_daemons_names_both() -> None:
    needed = schema.DAEMON_VERSION + 1
    with pytest.raises(SchemaMismatch, match=f"generation {needed}.*generation {schema.DAEMON_VERSION}"):
        check_schema(schema.SCHEMA_VERSION + 1, needed)


def observe(watch: ClockWatch, database_seconds: float, sent_at: float, took: float = 0.0) -> None:
    watch.observe(START + timedelta(seconds=database_seconds), sent_at, sent_at + took)


def test_a_clock_that_runs_like_ours_suspends_nothing() -> None:
    watch = ClockWatch()
    for second in range(100):
        observe(watch, second + 0.001 * second, float(second))
    assert not watch.suspends_resends(60.0, 100.0)


@pytest.mark.parametrize("jump", [-600.0, 600.0])
def test_a_jump_beyond_a_quarter_of_the_margin_suspends_resends_until_the_margin_has_passed(jump: float) -> None:
    watch = ClockWatch()
    observe(watch, 0.0, 0.0)
    observe(watch, 10.0 + jump, 10.0)
    assert watch.suspends_resends(60.0, 69.9)
    assert not watch.suspends_resends(60.0, 70.0)
    assert not watch.suspends_resends(3600.0, 20.0), "its margin covers this jump"
    assert not watch.suspends_resends(0.0, 20.0), "no window, nothing to protect"


def test_a_slow_answer_is_no_jump() -> None:
    watch = ClockWatch()
    observe(watch, 0.0, 0.0)
    observe(watch, 10.0, 10.0, took=40.0)
    assert not watch.suspends_resends(60.0, 60.0)


def test_a_small_jump_does_not_hide_an_earlier_large_one() -> None:
    watch = ClockWatch()
    observe(watch, 0.0, 0.0)
    observe(watch, 100.0, 1.0)
    for second in range(2, 40):
        observe(watch, 100.0 + second * 1.5, float(second))
    assert watch.suspends_resends(300.0, 40.0)


async def test_the_first_signal_asks_for_an_orderly_end_and_the_second_for_one_at_once() -> None:
    stopping = Stopping()
    stopping.ask("SIGTERM")
    assert (stopping.requested.is_set(), stopping.at_once.is_set()) == (True, False)
    stopping.ask("SIGTERM")
    assert stopping.at_once.is_set()
