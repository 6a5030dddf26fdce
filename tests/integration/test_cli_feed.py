"""`outbox feed`: every end once, in order, for people and for scripts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outbox import Intent, Outbox
from tests.support.commands import CommandLine
from tests.support.postgres import Database
from tests.support.tools import end, register

ACME, GLOBEX = Outbox("acme", "p"), Outbox("globex", "p")


@pytest.fixture
def run(database: Database, tmp_path: Path) -> CommandLine:
    register(database, "mail.send")
    config = tmp_path / "outbox.toml"
    config.write_text(f'database.dsn = "{database.dsn_for("operator")}"\n')
    return CommandLine(tmp_path, config)


def ended(database: Database, box: Outbox, name: str) -> None:
    with database.connect() as connection:
        end(database, box.put(connection, Intent(tool="mail.send", operation_id=name)).seq)


def test_pages_follow_each_other_and_their_cursors_are_the_ends(database: Database, run: CommandLine) -> None:
    for box, name in ((ACME, "a"), (GLOBEX, "b"), (ACME, "c")):
        ended(database, box, name)
    first = run.json("feed", "--limit", "2")
    assert [(item["tenant_id"], item["operation_id"]) for item in first["items"]] == [("acme", "a"), ("globex", "b")]
    assert first["more"]
    second = run.json("feed", "--after", first["next"])
    assert [item["operation_id"] for item in second["items"]] == ["c"]
    assert not second["more"]
    third = run.json("feed", "--after", second["next"])
    assert (third["items"], third["more"]) == ([], False)
    again = run.json("feed", "--after", first["items"][0]["cursor"], "--tenant", "acme")
    assert [item["operation_id"] for item in again["items"]] == ["c"]


def test_for_people_it_is_a_list_that_says_how_to_go_on(database: Database, run: CommandLine) -> None:
    ended(database, ACME, "a")
    result = run("feed")
    header, line = result.out.splitlines()
    assert header.split("\t")[:3] == ["ended_at", "tenant_id", "operation_id"]
    assert line.split("\t")[1:] == ["acme", "a", "mail.send", "succeeded", "confirmed", "m-1"]
    assert "--after " in result.err


def test_a_wrong_cursor_says_what_to_do(database: Database, run: CommandLine) -> None:
    assert run.refused("feed", "--after", "x", code=2)["code"] == "misuse"
    error = run.refused("feed", "--after", "00000000.1.1.1", code=2)
    assert error["code"] == "feed_reset"
    assert "without a cursor" in error["hint"]


def test_following_prints_a_line_for_each_end_when_it_ends(database: Database, run: CommandLine) -> None:
    command = [sys.executable, "-c", "from outbox.cli import main; main()", "--config", str(run.config), "feed"]
    program = subprocess.Popen(
        [*command, "--follow", "--json"], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert program.stdout is not None
    try:
        for name in ("a", "b"):
            ended(database, ACME, name)
            assert json.loads(program.stdout.readline())["operation_id"] == name
    finally:
        program.terminate()
        program.communicate(timeout=30)
