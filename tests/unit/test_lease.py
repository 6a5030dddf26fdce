"""A lease ends here before it ends in the database, and a process that is stopped at the wrong place dies in time."""

import math
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.lease import DeadMan, LocalLease, boottime
from tests.support.eventually import eventually
from tests.support.processes import is_stopped


def test_time_is_that_of_the_machine_also_while_it_slept() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boottime() <= time.clock_gettime(time.CLOCK_BOOTTIME)


@given(st.floats(0, 1e9), st.floats(0.001, 86_400), st.floats(0, 100))
def test_a_lease_counts_from_when_it_was_asked_for_and_not_from_the_answer(
    sent_at: float, lease_seconds: float, answer_took: float
) -> None:
    lease = LocalLease.granted(sent_at, lease_seconds)
    assert lease.left_seconds(sent_at + answer_took) <= lease_seconds - answer_took + 1e-3


@given(st.lists(st.floats(0, 1_000), min_size=1))
def test_answers_in_the_wrong_order_never_shorten_a_lease(sent: list[float]) -> None:
    lease = LocalLease.granted(0, 10)
    for sent_at in sent:
        lease = lease.renewed(sent_at, 10)
    assert lease.until == max(0, *sent) + 10


def test_what_ends_with_the_lease_is_not_covered_by_it() -> None:
    lease = LocalLease.granted(100, 30)
    assert lease.covers(100, 29.9)
    assert not lease.covers(100, 30)
    assert not lease.covers(125, 5)
    assert lease.left_seconds(131) == -1


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
def test_a_lease_without_a_length_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        LocalLease.granted(0, seconds)


# ------------------------------------------------------------------------------------------------------- the dead man


def watched(now: float = 100.0) -> tuple[DeadMan, list[float]]:
    timers: list[float] = []
    return DeadMan(clock=lambda: now, set_timer=timers.append), timers


def test_the_timer_runs_for_the_shortest_lease_while_somebody_stands_there_and_only_then() -> None:
    dead_man, timers = watched()
    dead_man.enter("lane 1", LocalLease(130))
    dead_man.enter("lane 2", LocalLease(110))
    dead_man.enter("lane 2", LocalLease(110))
    dead_man.leave("lane 2")
    dead_man.leave("lane 2")
    dead_man.leave("lane 1")
    assert timers == [30, 10, 10, 10, 30, 0]


def test_a_renewal_gives_those_who_stand_there_more_time_and_arms_nothing_for_others() -> None:
    dead_man, timers = watched()
    dead_man.renewed("lane 1", LocalLease(200))
    assert timers == []
    dead_man.enter("lane 1", LocalLease(110))
    dead_man.renewed("lane 1", LocalLease(140))
    dead_man.renewed("lane 1", LocalLease(120))
    dead_man.renewed("lane 2", LocalLease(105))
    assert timers == [10, 40, 40]


def test_a_lease_that_is_over_leaves_the_check_the_time_to_refuse() -> None:
    dead_man, timers = watched()
    dead_man.enter("lane 1", LocalLease(1))
    assert timers[0] > 0


PROGRAM = """
import sys
from outbox.lease import DeadMan, LocalLease, boottime
dead_man, act = DeadMan(), sys.argv[1]
if act == "inside":
    dead_man.enter("lane", LocalLease(boottime() + 0.5))
if act == "left":
    dead_man.enter("lane", LocalLease(boottime() + 0.5))
    dead_man.leave("lane")
print("ready", flush=True)
sys.stdin.readline()
print("sent", flush=True)
"""


def stop_past_the_lease(act: str) -> tuple[bytes, int]:
    """Stop a process that holds a lease of half a second, for longer; what it still did when it was woken."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, act], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        eventually(lambda: is_stopped(process.pid))
        woken_at = boottime() + 0.7
        eventually(lambda: boottime() > woken_at)
        process.stdin.write(b"go on\n")
        process.stdin.flush()
        os.kill(process.pid, signal.SIGCONT)
        rest = process.stdout.read()
    return rest, process.returncode


def test_a_process_stopped_past_its_lease_between_check_and_byte_executes_nothing_more() -> None:
    assert stop_past_the_lease("inside") == (b"", -signal.SIGALRM)


@pytest.mark.parametrize("act", ["waiting", "left"])
def test_a_process_stopped_anywhere_else_goes_on(act: str) -> None:
    assert stop_past_the_lease(act) == (b"sent\n", 0)
