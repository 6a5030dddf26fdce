"""`outbox demo` as a person runs it: what it prints, what it leaves, and how it ends."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.arena import CHECKOUT
from tests.support.eventually import eventually
from tests.support.postgres import Cluster
from tests.support.processes import lives

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

INTENTS = 300
# Nothing here may ever be led to a real outbox: this one would be noticed.
ELSEWHERE = "postgresql://nobody@/somebodys_real_outbox?host=/nowhere"
FIELDS = {
    "intents",
    "effects",
    "duplicates",
    "lost",
    "resolved_by_lookup",
    "resolved_by_resend",
    "needs_person",
    "succeeded",
    "rejected",
    "fenced_writes",
    "late_answers",
    "kills",
    "pauses",
    "seconds",
}


def demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "outbox", "demo", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, "OUTBOX_DATABASE__DSN": ELSEWHERE, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def databases(postgres: Cluster) -> set[str]:
    with psycopg.connect(postgres.dsn) as connection:
        rows = connection.execute("select datname from pg_database where datname like 'outbox_demo%'").fetchall()
    return {name for (name,) in rows}


def test_it_breaks_two_relays_and_shows_that_nothing_happened_twice_or_was_lost(postgres: Cluster) -> None:
    """In a database that it makes on the given server and drops again; the last line is the verdict of the ledger."""
    before = databases(postgres)
    done = demo("--json", "--intents", str(INTENTS), OUTBOX_DEMO_DSN=postgres.dsn)
    assert done.returncode == 0, done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert verdict.keys() >= FIELDS
    assert (verdict["intents"], verdict["duplicates"], verdict["lost"]) == (INTENTS, 0, 0)
    assert (verdict["kills"], verdict["pauses"], verdict["failures"]) == (1, 1, [])
    assert verdict["effects"] >= INTENTS - verdict["rejected"] - verdict["needs_person"]
    assert verdict["faults"]["lose_answer"] > 0
    assert verdict["faults"]["lose_request"] > 0
    assert verdict["resolved_by_lookup"] > 0
    assert verdict["resolved_by_resend"] > 0
    assert verdict["needs_person"] == sum(verdict["persons_why"].values())
    assert verdict["seconds"] > 0
    assert "Read from the receiver's ledger" in done.stderr
    assert databases(postgres) == before


def test_it_leaves_everything_running_on_request_and_says_how_to_look_around_and_how_to_end_it() -> None:
    """On an embedded PostgreSQL: each command that it prints works, an effect goes on, and one line ends all of it."""
    done = demo("--keep", "--json", "--intents", "400")
    assert done.returncode == 0, done.stderr
    commands = [line.strip() for line in done.stderr.splitlines() if line.startswith("    outbox ")]
    stop = re.search(r"^Stop it: (.*)$", done.stderr, re.MULTILINE)
    assert stop is not None, done.stderr
    pids = [int(word) for word in stop[1].partition(";")[0].split()[1:]]
    folders = [Path(word) for word in stop[1].partition("rm -r ")[2].split()]
    try:
        assert len(commands) >= 3
        for command in commands:
            assert outbox(*shlex.split(command)[1:]).returncode == 0
        options = shlex.split(commands[0])[1:3]
        put = [*options, "--tenant", "demo", "put", "--principal", "me", "--tool", "mail.send", "--id", "late"]
        assert outbox(*put).returncode == 0
        show = [*options, "--tenant", "demo", "show", "late", "--json"]
        eventually(lambda: json.loads(outbox(*show).stdout)["state"] not in {"authorized", "executing"}, 60)
    finally:
        subprocess.run(["sh", "-c", stop[1]], check=True, timeout=60)
    eventually(lambda: not any(lives(pid) for pid in pids), 60, claim="that line ends everything")
    for folder in folders:
        assert not folder.exists()
        left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(folder).encode() in _read(path)]
        assert left == []


def outbox(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "outbox", *arguments],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""
