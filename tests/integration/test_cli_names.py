"""The names in what each command prints with --json: docs/cli.md has all of them, and no other. They are a promise."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from outbox.cli import COMMANDS
from outbox.receivers.postgres import kit
from tests.support.desk import ASKING, BLIND, KEYED, Desk
from tests.support.postgres import Database
from tests.support.stage import Stage

CLI: Final = Path(__file__).parents[2] / "docs/cli.md"
# They run until they are stopped, and print events; what the demo prints is for whoever looks at it.
PROGRAMS: Final = {"relay", "reconciler", "dev", "demo"}
# What stands below is named by the caller, or by a counter.
FREE: Final = {"show: arguments", "report: daemons", "top: daemons[].counters"}
HANDLER: Final = """
create schema shop;
create function shop.reserve(asked inbox.request) returns jsonb
  language sql security definer set search_path = shop, pg_temp as $$ select '{}'::jsonb $$;
select inbox.handle('stock.reserve', 'shop.reserve(inbox.request)');
"""
# Written so that no trigger sees it, as a restore without triggers does.
UNPLACED: Final = (
    "set session_replication_role = replica;"
    " insert into outbox.intent (tenant_id, operation_id, tool, arguments, principal_id, digest)"
    " values ('shop', 'lost', 'mail.send', '{}', 'svc',"
    " outbox.intent_digest('shop', 'lost', 'mail.send', null, null, '{}'))"
)
WHY: Final = ("--reason", "ticket 4711")
SAYING: Final = ("--evidence", "their log", "--yes")


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Iterator[Desk]:
    with Stage(database) as stage:
        yield Desk(database, stage, tmp_path)


def names_in(command: str, value: Any, path: str = "") -> Iterator[str]:
    """Each name with the way to it: `items[].kind`."""
    if f"{command}: {path}" in FREE:
        return
    if isinstance(value, dict):
        for name, part in value.items():
            inner = f"{path}.{name}" if path else name
            yield inner
            yield from names_in(command, part, inner)
    elif isinstance(value, list):
        for part in value:
            yield from names_in(command, part, f"{path}[]")


def furnish(desk: Desk) -> None:
    """Something of everything: what waits, runs, ended, is in doubt, contradicts itself, or does not leave."""
    desk.put("waits", ordering_key="k")
    desk.put("behind", ordering_key="k")
    desk.put("twice", arguments='{"a":1,"a":2}')
    for name in ("asked", "not-yet", "never", "many"):
        desk.put(name, ASKING)
    desk.put("unwanted")
    seq = desk.executing("far")
    assert desk.holder.withdraw(seq, 1, causes="no_connection", delays=500.0) == [seq]
    for name in ("doubted", "known", "other"):
        desk.unknown(name)
    desk.unknown("nobody", BLIND)
    desk.executing("runs")
    desk.ended("done", "succeeded")
    desk.ended("old", "succeeded")
    no = desk.ended("no", "rejected")
    desk.stage.witness(no, "receipt", attempt=1, fence=desk.holder.fence, receipt="{}")
    desk.database.rows(UNPLACED)
    desk.database.rows(
        "insert into outbox.member (member_id, kind, host, pid, version, counters)"
        " values (gen_random_uuid(), 'relay', 'h', 1, '1', '{\"attempts\": 1}')"
    )


def lines(desk: Desk, dsn: str) -> Iterator[tuple[str, ...]]:
    """Commands in the order in which they are run; those that read come again where more can be seen."""
    yield from [
        ("init", "--config", "new.toml"),
        ("completion", "bash"),
        ("migrate",),
        ("migrate", "--check"),
        ("migrate", "--sql"),
    ]
    yield from [("apply",), ("contracts",), ("inbox", "--name", "shop", "--sql")]
    yield ("inbox", "--name", "shop", "--dsn", dsn)
    yield ("put", "--tenant", "shop", "--principal", "ada", "--tool", KEYED, "--resource", "r")
    digest = desk.run.json("show", "asked")["digest"]
    yield from [("approve", "asked", *WHY, "--digest", digest), ("revoke", "never", *WHY)]
    yield from [("cancel", "unwanted", "--dry-run"), ("cancel", "unwanted")]
    yield from [("retry", "doubted", "--dry-run"), ("retry", "doubted"), ("retry", "--tool", KEYED, "--dry-run")]
    yield from [("resolve", "known", "--succeeded", *SAYING, "--dry-run"), ("resolve", "known", "--succeeded", *SAYING)]
    yield from [("cancel", "--tool", ASKING, "--yes"), ("resolve", "--tool", BLIND, "--succeeded", *SAYING)]
    yield from [("expedite", "waits", *WHY), ("unblock", "waits", *WHY), ("redact", "done", *WHY, "--yes")]
    yield from [("pause", "tool", BLIND, *WHY), ("stuck", "--all"), ("resume", "tool", BLIND, *WHY)]
    yield from [("show", name) for name in ("waits", "twice", "asked", "doubted", "known", "runs", "no", "done")]
    yield from [("why", "doubted"), ("list",), ("feed",), ("report",), ("doctor",), ("top",)]


def later() -> Iterator[tuple[str, ...]]:
    """When the lease has run out, and what has ended is old."""
    yield from [("stuck",), ("purge", "--older-than", "1d", "--yes"), ("show", "old"), ("audit",)]
    yield from [("purge", "--older-than", "1d", "--dry-run"), ("repair", "--dry-run"), ("repair",)]


def printed(desk: Desk, dsn: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)

    def look(*arguments: str) -> None:
        document = json.loads(desk.run(*arguments, "--json").out)
        assert "error" not in document, (arguments, document)
        found[arguments[0]] |= set(names_in(arguments[0], document))

    for arguments in lines(desk, dsn):
        look(*arguments)
    desk.clock.advance(200_000)
    for arguments in later():
        look(*arguments)
    return found


def documented() -> dict[str, set[str]]:
    text = CLI.read_text().partition("\n## Names in JSON\n")[2].partition("\n## ")[0]
    found: dict[str, set[str]] = defaultdict(set)
    for row in re.findall(r"^\| `(\w+)` \| (?:`(\S+)`)? ?\| (.*) \|$", text, re.MULTILINE):
        command, within, names = row
        found[command] |= {f"{within}.{name}" if within else name for name in re.findall(r"`(\w+)`", names)}
    return found


def test_every_name_that_a_command_prints_is_documented_and_no_other(desk: Desk, empty_database: Database) -> None:
    furnish(desk)
    kit.install(empty_database.dsn, "shop")
    empty_database.rows(HANDLER)
    found, said = printed(desk, empty_database.dsn), documented()
    for command in sorted({*found, *said}):
        assert sorted(found[command] ^ said[command]) == [], command


def test_every_command_has_its_names_documented() -> None:
    assert documented().keys() == {name for section in COMMANDS.values() for name in section} - PROGRAMS
