"""Crash points: named, closed, free of cost until one is armed, and exact about when they act."""

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outbox import crashpoints
from outbox.crashpoints import ENVIRONMENT_VARIABLE, POINTS, WHERE
from tests.support.eventually import eventually
from tests.support.processes import is_stopped

ROOT = Path(__file__).parents[2]
PRODUCTION = [path for part in ("outbox", "relay", "reconciler") for path in sorted((ROOT / part).rglob("*.py"))]

PROGRAM = (
    "from outbox.crashpoints import reach\nfor n in range(5):\n    print(n, flush=True)\n    reach('before_send')\n"
)


def run(armed: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, ENVIRONMENT_VARIABLE: armed}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)


def test_there_are_enough_of_them_and_each_says_where_it_stands() -> None:
    assert len(POINTS) >= 20
    assert all(re.fullmatch(r"[a-z_]+", name) for name in POINTS)
    assert all(where for where in WHERE.values())


def test_the_code_reaches_every_point_and_no_others() -> None:
    calls = [
        node for path in PRODUCTION for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    ]
    reached = [call.args[0] for call in calls if ast.unparse(call.func) in {"crashpoints.reach", "reach"}]
    called = {argument.value for argument in reached if isinstance(argument, ast.Constant)}
    assert len(reached) >= 20
    assert called == set(POINTS)


def test_nothing_armed_is_nothing_done() -> None:
    ended = run("")
    assert (ended.returncode, ended.stdout.split()) == (0, ["0", "1", "2", "3", "4"])


@pytest.mark.parametrize(
    ("armed", "passed"), [("before_send", 1), ("before_send:kill", 1), ("before_send:kill:3", 3), ("mid_send", 5)]
)
def test_a_point_kills_the_nth_time_and_not_before(armed: str, passed: int) -> None:
    ended = run(armed)
    assert len(ended.stdout.split()) == passed
    assert ended.returncode == (0 if armed == "mid_send" else -signal.SIGKILL)


def test_raise_is_an_exception_that_nobody_foresaw_and_happens_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crashpoints, "_armed", crashpoints.parse("after_begin:raise:2, before_send:raise"))
    crashpoints.reach("after_begin")
    with pytest.raises(crashpoints.Reached, match="after_begin"):
        crashpoints.reach("after_begin")
    crashpoints.reach("after_begin")
    assert crashpoints.armed("before_send")
    with pytest.raises(crashpoints.Reached):
        crashpoints.reach("before_send")
    assert not crashpoints.armed("before_send")
    assert not crashpoints.armed("mid_send")


def test_stop_sleeps_there_until_it_is_continued() -> None:
    environment = {**os.environ, ENVIRONMENT_VARIABLE: "before_send:stop:2"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE) as process:
        eventually(lambda: is_stopped(process.pid))
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout is not None
        assert process.stdout.read().split() == [b"0", b"1", b"2", b"3", b"4"]
    assert process.returncode == 0


@pytest.mark.parametrize("wrong", ["before_sent", "before_send:explode", "before_send:kill:0", "before_send:kill:x"])
def test_a_misspelt_crash_stops_the_program_instead_of_testing_nothing(wrong: str) -> None:
    ended = run(wrong)
    assert ended.returncode == 1
    assert ENVIRONMENT_VARIABLE in ended.stderr
