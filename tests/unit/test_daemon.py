"""What a daemon refuses, what it thinks of the database's clock, and how it is asked to stop."""

import asyncio
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from outbox import schema
from outbox.daemon import ClockWatch, Crew, Stopping, cancelled, check_schema
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


# --------------------------------------------------------------------------------------- tasks that ignore cancellation


async def swallowing(times: int) -> str:
    """Work for ever, and go on after so many cancellations, as `asyncio.wait_for` of Python 3.11 lets it happen."""
    for _ in range(times):
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    await asyncio.Event().wait()
    return "never"


async def fail() -> None:
    raise OSError("the disk is gone")


async def settle() -> None:
    """Let every task that was made come to its first wait."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_task_that_swallows_its_first_cancellations_is_cancelled_until_it_has_ended() -> None:
    tasks = [asyncio.create_task(swallowing(times)) for times in (0, 1, 2)]
    await settle()
    assert await cancelled(*tasks)
    assert all(task.cancelled() for task in tasks)


async def test_a_task_that_never_ends_is_left_behind_after_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    stuck = asyncio.create_task(swallowing(1_000))
    await settle()
    with caplog.at_level("ERROR", "outbox"):
        assert not await cancelled(stuck, within_seconds=0.3)
    assert "task_stuck" in caplog.messages
    assert not stuck.done()
    for _ in range(1_000):
        stuck.cancel()
        await asyncio.sleep(0)
    assert await cancelled(stuck)


async def test_whatever_a_cancelled_task_raises_is_nobodys_error() -> None:
    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("while it was being cancelled")

    task = asyncio.create_task(failing())
    await settle()
    assert await cancelled(task)


async def test_a_crew_ends_with_its_work_also_where_one_swallows_its_cancellation() -> None:
    crew = Crew()
    beside = [crew.start(swallowing(times)) for times in (0, 1)]
    late: list[asyncio.Task[str]] = []

    async def hires_at_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            late.append(crew.start(swallowing(1)))

    crew.start(hires_at_the_end())

    async def work() -> str:
        await settle()
        return "done"

    assert await crew.during(work()) == "done"
    assert all(task.cancelled() for task in [*beside, *late])
    assert len(late) == 1


async def test_the_first_failure_in_a_crew_ends_everybody_and_is_raised() -> None:
    crew = Crew()
    beside = crew.start(swallowing(1))
    crew.start(fail())
    with pytest.raises(OSError, match="disk"):
        await crew.during(swallowing(1))
    assert beside.cancelled()


@pytest.mark.parametrize("turns", range(6))
async def test_a_failure_and_an_end_at_the_same_moment_end_the_crew(turns: int) -> None:
    """Whichever of the two the loop tells first."""

    async def later(number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)

    async def failing_later() -> None:
        await later(3)
        await fail()

    crew = Crew()
    crew.start(failing_later())
    crew.start(later(turns))
    with pytest.raises(OSError, match="disk"):
        await crew.during(swallowing(0))


async def test_the_work_of_a_crew_may_fail_itself() -> None:
    crew = Crew()
    beside = crew.start(swallowing(1))
    with pytest.raises(OSError, match="disk"):
        await crew.during(fail())
    assert beside.cancelled()


async def test_a_crew_within_a_crew_ends_whoever_swallows_many_cancellations() -> None:
    """While the outer one cancels the inner one again and again, that one goes on ending its own."""
    outer, inner = Crew(), Crew()
    deep = inner.start(swallowing(6))
    middle = outer.start(inner.during(swallowing(0)))
    await settle()

    async def done() -> str:
        return "done"

    assert await outer.during(done()) == "done"
    assert deep.cancelled()
    assert middle.cancelled()


HANGS = """
import asyncio, time
from outbox.daemon import Stopping
from outbox.observe import configure

async def main() -> None:
    configure()
    stopping = Stopping()
    stopping.install(grace_seconds={grace}, end_seconds_max=0.2)
    print("ready", flush=True)
    while True:
        try:
            await stopping.{waits}.wait()
            {hangs}
        except asyncio.CancelledError:
            pass

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("grace", "waits", "signals"),
    [(0.1, "requested", 1), (3_600, "at_once", 2)],
    ids=["after its grace time", "at the second signal"],
)
@pytest.mark.parametrize("hangs", ["await asyncio.Event().wait()", "time.sleep(3_600)"], ids=["a task", "the loop"])
def test_a_process_that_hangs_ends_all_the_same(grace: float, waits: str, signals: int, hangs: str) -> None:
    program = HANGS.format(grace=grace, waits=waits, hangs=hangs)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(signals):
            process.send_signal(signal.SIGTERM)
            assert "daemon_stopping" in process.stderr.readline()
        assert process.wait(30) == 1
        assert "ends all the same" in process.stderr.read()
