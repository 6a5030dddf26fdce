"""A live view: what it counts, and that it ends when it is asked to."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.desk import ASKING, BLIND, KEYED, Desk
from tests.support.eventually import eventually
from tests.support.postgres import Database
from tests.support.stage import Stage


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Iterator[Desk]:
    with Stage(database) as stage:
        yield Desk(database, stage, tmp_path)


def test_one_look_counts_what_is_open_who_lives_and_how_fast_it_goes(desk: Desk) -> None:
    desk.put("authorized")
    desk.put("later", not_before="2100-01-01")
    desk.put("proposed", ASKING)
    desk.executing("executing")
    desk.unknown("unknown", BLIND, answer={"steps": "person", "reasons": "no_lookup"})
    for name in "abcde":
        desk.ended(name, "succeeded")
    desk.stage.rows(
        "insert into outbox.member (member_id, kind, host, pid, version, counters)"
        " values (gen_random_uuid(), 'relay', 'here', 42, '1', '{\"attempts\": 7}')"
    )
    found = desk.run.json("top", "--once")
    (receiver,) = found["receivers"]
    counted = {name: receiver[name] for name in ("open", "due", "executing", "unknown", "proposed", "needs_person")}
    assert counted == {"open": 5, "due": 1, "executing": 1, "unknown": 1, "proposed": 1, "needs_person": 1}
    assert (receiver["held"], receiver["lanes"], receiver["more"]) == (1, 1, False)
    (daemon,) = found["daemons"]
    assert (daemon["kind"], daemon["pid"], daemon["counters"]) == ("relay", 42, {"attempts": 7})
    assert found["ended_per_second"] == {"succeeded": 0.5, "rejected": 0.0}


def test_what_is_paused_or_left_alone_is_seen_at_a_glance(desk: Desk) -> None:
    assert "\tok\t" in desk.run("top", "--once").out
    desk.stage.rows("update outbox.receiver set circuit_opened_at = outbox.now()")
    assert "\tleft alone\t" in desk.run("top").out, "into a pipe it looks once"
    desk.run.json("pause", "receiver", "warehouse", "--reason", "x")
    assert "\tpaused\t" in desk.run("top").out


def test_whoever_fills_a_lane_is_named(desk: Desk) -> None:
    assert desk.run.json("top", "--once")["receivers"][0]["crowd"] == []
    desk.executing("executing")
    desk.stage.rows("update outbox.lane set crowd = array['globex', 'acme']")
    assert desk.run.json("top", "--once")["receivers"][0]["crowd"] == ["acme", "globex"]
    assert "acme, globex" in desk.run("top", "--once").out
    desk.stage.rows("update outbox.lane set expires_at = '-infinity'")
    assert desk.run.json("top", "--once")["receivers"][0]["crowd"] == [], "nobody holds it"


def test_a_long_backlog_is_counted_up_to_a_bound(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox.cli.top.COUNTED_MAX", 3)
    for name in "abcde":
        desk.put(name)
    (receiver,) = desk.run.json("top", "--once")["receivers"]
    assert (receiver["open"], receiver["more"]) == (3, True)
    assert "\t3+\t" in desk.run("top", "--once").out


def test_on_a_terminal_it_goes_on_looking_until_somebody_presses_ctrl_c(desk: Desk) -> None:
    desk.put("first", KEYED)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "outbox", "--config", str(desk.run.config), "top", "--every", "0.2"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"}
    shown = ""
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)

        def read(words: str) -> bool:
            nonlocal shown
            shown += os.read(ours, 65_536).decode(errors="replace")
            return words in shown

        eventually(lambda: read("outbox doctor"), claim="the first screen")
        desk.run.json("pause", "receiver", "warehouse", "--reason", "x")
        eventually(lambda: read("paused"), claim="another one, with what has changed meanwhile")
        os.kill(process.pid, signal.SIGINT)
        while process.poll() is None:
            try:
                os.read(ours, 65_536)
            except OSError:  # the terminal is closed from the other side
                break
        assert process.wait(timeout=20) == 0
    os.close(ours)
    assert "Traceback" not in shown
