"""What hostile writers put into an intent, and what people see of it: all of it, as it is, and nothing else."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Result
from tests.support.desk import ASKING, Desk
from tests.support.postgres import Database
from tests.support.stage import Stage


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Iterator[Desk]:
    with Stage(database) as stage:
        yield Desk(database, stage, tmp_path)


def digest_of(desk: Desk, name: str) -> str:
    return str(desk.run.json("show", name)["digest"])


def test_text_from_elsewhere_commands_no_terminal_and_turns_no_line_around(desk: Desk) -> None:
    arguments = '{"note":"\x9b31m\u202e"}'
    desk.put("op", resource="sku\x1b[2J", arguments=arguments)
    for command in ("show op", "why op", "list", "show op --json", "list --json"):
        out = desk.run(*command.split()).out
        assert not {"\x1b", "\x9b", "\u202e"} & set(out), command
    assert desk.run.json("show", "op")["arguments"] == json.loads(arguments), "as JSON it says the same as before"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("not json", "not_json"),
        ('{"amount":1,"amount":1000000}', "duplicate_key"),
        ('{"amount":NaN}', "not_finite"),
        ('{"amount":1e999}', "not_finite"),
        ('{"amount":12345678901234567890}', "integer_too_large"),
        ('"\\ud800"', "lone_surrogate"),
        ("[" * 3_000 + "]" * 3_000, "too_deep"),
    ],
)
def test_arguments_that_not_everybody_reads_alike_are_shown_as_they_are_sent(
    desk: Desk, arguments: str, problem: str
) -> None:
    """Plain SQL writes any text. What a reader of the receiver takes out of it, nobody knows here."""
    desk.put("op", arguments=arguments)
    shown = desk.run.json("show", "op")
    assert (shown["arguments"], shown["arguments_text"], shown["arguments_problem"]) == (None, arguments, problem)
    assert arguments in desk.run("show", "op").out
    assert desk.run("why", "op").code == 0


def test_what_is_too_long_to_be_shown_says_so(desk: Desk) -> None:
    desk.put("op", arguments=f'{{"a":"{"x" * 20_000}","to":"mallory"}}')
    assert "[cut: 20026 bytes in all]" in desk.run("show", "op").out
    assert desk.run.json("show", "op")["arguments"]["to"] == "mallory"


class Keyboard(io.StringIO):
    """Somebody at a terminal who agrees to everything."""

    def isatty(self) -> bool:
        return True


def approve_at_a_terminal(desk: Desk, name: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr("sys.stdin", Keyboard("y\n"))
    return desk.run("approve", name)


def test_whoever_is_asked_sees_all_of_what_he_permits_and_nothing_that_only_looks_like_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = json.dumps({"a": "x" * 9_000, "to": "mallory"}, separators=(",", ":"))
    seq = desk.put("op", ASKING, arguments=arguments, resource='item\narguments: {"a":1}\u202e\x9b2J')
    shown = approve_at_a_terminal(desk, "op", monkeypatch)
    assert shown.code == 0, shown
    lines = shown.out.splitlines()
    assert [line.partition(":")[0] for line in lines[:5]] == [
        "tenant_id",
        "principal_id",
        "tool",
        "resource",
        "arguments",
    ], "each field is one line"
    assert lines[3] == 'resource: item\\narguments: {"a":1}\\u202e\\x9b2J'
    assert lines[4] == f"arguments: {arguments}"
    assert desk.stage.state(seq) == "authorized"


@pytest.mark.parametrize(
    "payload",
    [
        {"arguments": json.dumps({"a": "x" * 20_000, "to": "mallory"})},
        {"arguments": None, "content_type": "application/x-protobuf", "body": b"\x00\x01"},
    ],
    ids=["too much to read", "a body"],
)
def test_nobody_is_asked_to_permit_what_is_not_shown_whole(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, payload: dict[str, Any]
) -> None:
    given = {"content_type": None, "body": None, **payload}
    desk.stage.rows(
        "insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, content_type, body, digest)"
        " select 'shop', 'op', t, 'svc', a, c, b, outbox.intent_digest('shop', 'op', t, null, null, a, c, b)"
        " from (select %s::text, %s::text, %s::text, %s::bytea) as p (t, a, c, b)",
        *(ASKING, given["arguments"], given["content_type"], given["body"]),
    )
    seq = desk.stage.value("select seq from outbox.intent")
    shown = approve_at_a_terminal(desk, "op", monkeypatch)
    assert shown.code == 4, shown
    assert f"--digest {digest_of(desk, 'op')}" in shown.err
    assert desk.stage.state(seq) == "proposed"
    desk.run.json("approve", "op", "--digest", digest_of(desk, "op"))
    assert desk.stage.state(seq) == "authorized"
