"""From an empty database to a registry, by the commands that a person types."""

import re
from pathlib import Path

import pytest

from tests.support.commands import CommandLine
from tests.support.postgres import Database, Role, url

EXAMPLE = (Path(__file__).parents[2] / "outbox.example.toml").read_text()
DSN = "postgresql://outbox@localhost/app"


@pytest.fixture
def run(empty_database: Database, tmp_path: Path) -> CommandLine:
    config = tmp_path / "outbox.toml"
    config.write_text(EXAMPLE.replace(DSN, empty_database.dsn))
    return CommandLine(tmp_path, config)


def test_migrate_says_what_it_did_and_finds_nothing_to_do_the_second_time(run: CommandLine) -> None:
    error = run.refused("migrate", "--check", code=5)
    assert error["code"] == "schema_mismatch"
    assert error["hint"] == "Run: outbox migrate"
    report = run.json("migrate")
    assert (report["before"], report["pending"]) == (None, [])
    assert run.json("migrate")["before"] == report["after"]
    assert run.json("migrate", "--check")["after"] == report["after"]


def test_migrate_prints_its_sql_for_other_tools(run: CommandLine) -> None:
    text = run("migrate", "--sql").out
    assert "create schema if not exists outbox" in text
    assert "create role" in text
    assert run.json("migrate", "--sql")["sql"].strip() == text.strip()


def test_before_it_is_migrated_every_command_says_so(run: CommandLine) -> None:
    for arguments in (("list",), ("stuck",), ("show", "x"), ("contracts",), ("apply",)):
        error = run.refused(*arguments, code=5)
        assert "outbox migrate" in error["hint"], arguments
    error = run.refused("put", "--tenant", "t", "--principal", "p", "--tool", "mail.send", code=5)
    assert "outbox migrate" in error["hint"]


def test_apply_reports_each_receiver_and_tool_with_its_guarantee(run: CommandLine) -> None:
    run("migrate")
    would = run.json("apply", "--dry-run")
    assert run.json("contracts") == {"items": [], "next": None}
    report = run.json("apply")
    assert report == would | {"dry_run": False}
    assert report["changed"]
    items = {item["name"]: item for item in report["items"]}
    assert (items["mail.send"]["change"], items["mail.send"]["guarantee"]) == ("created", "a person decides")
    again = run.json("apply")
    assert not again["changed"]
    assert {item["change"] for item in again["items"]} == {"unchanged"}


def test_apply_warns_of_a_key_that_nothing_rests_on_and_stores_it_all_the_same(run: CommandLine) -> None:
    run("migrate")
    run.config.write_text(re.sub(r"key_retention = .*\n", "", run.config.read_text()))
    words = run("apply")
    assert words.code == 0
    assert "warning: inventory.set_available: the key is sent, and nothing rests on it: key_retention" in words.out
    items = {item["name"]: item["warnings"] for item in run.json("apply")["items"]}
    assert [len(items[name]) for name in ("warehouse", "inventory.set_available", "mail.send")] == [0, 1, 0]
    assert len(run.json("contracts", "inventory.set_available")["items"][0]["warnings"]) == 1


def test_an_answer_rule_that_is_never_reached_is_not_applied(run: CommandLine) -> None:
    run("migrate")
    rule = '\n[[tools."mail.send".contract.answers]]\nstatus = [202]\nmeans = "refused"\n'
    run.config.write_text(run.config.read_text() + rule)
    (problem,) = run.refused("apply", code=2)["problems"]
    assert problem["place"].startswith('tools."mail.send".contract.answers[1] (')
    assert "never reached" in problem["message"]
    assert run.json("contracts")["items"] == []


def test_apply_says_what_differs_and_contracts_shows_what_is_in_force(run: CommandLine) -> None:
    run("migrate")
    run("apply")
    run.config.write_text(run.config.read_text().replace('key_retention = "24h"', 'key_retention = "12h"'))
    items = {item["name"]: item for item in run.json("apply")["items"]}
    changed = items["inventory.set_available"]
    assert (changed["change"], changed["version"], changed["new_version"]) == ("changed", 2, True)
    assert changed["fields"] == ["config.contract.key_retention"]
    (contract,) = run.json("contracts", "inventory.set_available")["items"]
    assert (contract["version"], contract["key_retention_seconds"]) == (2, 43_200)


def test_apply_takes_another_file_as_its_argument(run: CommandLine, tmp_path: Path) -> None:
    run("migrate")
    other = tmp_path / "other.toml"
    other.write_text(run.config.read_text().replace("mail.send", "post.send"))
    assert run("apply", str(other)).code == 0
    assert [item["tool"] for item in run.json("contracts")["items"]] == ["inventory.set_available", "post.send"]


def test_prune_removes_what_the_file_no_longer_has_and_nothing_else_does(run: CommandLine) -> None:
    run("migrate")
    run("apply")
    run.config.write_text(run.config.read_text().partition('[tools."mail.send"]')[0])
    assert {item["name"]: item["change"] for item in run.json("apply")["items"]}["mail.send"] == "kept"
    assert {item["name"]: item["change"] for item in run.json("apply", "--prune")["items"]}["mail.send"] == "removed"


def test_an_unknown_tool_is_not_found_and_the_hint_says_how_to_register_it(run: CommandLine) -> None:
    run("migrate")
    error = run.refused("put", "--tenant", "t", "--principal", "p", "--tool", "no.such", code=3)
    assert error["code"] == "unknown_tool"
    assert "outbox apply" in error["hint"]
    run("apply")
    error = run.refused("put", "--tenant", "t", "--principal", "p", "--tool", "mail.sent", code=3)
    assert "did you mean 'mail.send'?" in error["message"]


def test_put_makes_an_id_and_the_same_id_answers_with_the_same_operation(run: CommandLine) -> None:
    run("migrate")
    run("apply")
    put = ("put", "--tenant", "t", "--principal", "p", "--tool", "mail.send", "--arguments", '{"to": "bob"}')
    first = run.json(*put)
    assert (first["created"], first["state"]) == (True, "authorized")
    again = run.json(*put, "--id", first["operation_id"])
    assert (again["created"], again["operation_id"]) == (False, first["operation_id"])
    assert run.json("show", first["operation_id"])["arguments"] == {"to": "bob"}


def test_put_takes_every_field_of_an_intent_and_arguments_from_a_file(run: CommandLine, tmp_path: Path) -> None:
    run("migrate")
    run("apply")
    (tmp_path / "arguments.json").write_text('{"n": 1}')
    fields = {
        "--id": "op",
        "--resource": "sku",
        "--arguments": "@arguments.json",
        "--expected-version": "7",
        "--ordering-key": "k",
        "--not-before": "2026-01-01T00:00:00Z",
        "--expires-at": "2999-01-01T00:00:00Z",
        "--on-behalf-of": "alice",
        "--compensates": "other",
        "--revision-of": "older",
    }
    arguments = [part for pair in fields.items() for part in pair]
    run.json("put", "--tenant", "t", "--principal", "p", "--tool", "inventory.set_available", *arguments)
    shown = run.json("show", "op")
    assert shown["arguments"] == {"n": 1}
    names = ("resource", "expected_version", "ordering_key", "on_behalf_of", "compensates", "revision_of", "not_before")
    assert [shown[name] for name in names] == ["sku", "7", "k", "alice", "other", "older", "2026-01-01T00:00:00Z"]
    assert shown["authorization"]["expires_at"] == "2999-01-01T00:00:00Z"


def test_commands_find_the_database_of_outbox_dev_in_their_folder(
    run: CommandLine, empty_database: Database, tmp_path: Path
) -> None:
    run("migrate")
    run.config.write_text("")
    run.refused("list", code=2)
    (tmp_path / ".outbox").mkdir()
    (tmp_path / ".outbox" / "dsn").write_text(f"{empty_database.dsn}\n")
    assert run("list").code == 0


@pytest.mark.parametrize("role", ["operator", "viewer", "approver"])
def test_whoever_looks_may_ask_whether_there_is_something_to_migrate(
    run: CommandLine, database: Database, role: Role
) -> None:
    run.config.write_text(run.config.read_text().replace(run_dsn(run), database.dsn_for(role)))
    assert run.json("migrate", "--check")["pending"] == []


@pytest.mark.parametrize(("arguments", "words"), [(("--check",), "outbox_operator"), ((), "owner")])
def test_a_role_that_may_not_migrate_is_told_who_may(
    run: CommandLine, database: Database, arguments: tuple[str, ...], words: str
) -> None:
    run.config.write_text(run.config.read_text().replace(run_dsn(run), database.dsn_for("writer")))
    error = run.refused("migrate", *arguments, code=5)
    assert (error["code"], words in error["hint"]) == ("not_permitted", True)


def run_dsn(run: CommandLine) -> str:
    """The address in the file."""
    return run.config.read_text().partition('dsn = "')[2].partition('"')[0]


@pytest.mark.parametrize(
    "command", [("list",), ("migrate",), ("put", "--tenant", "t", "--principal", "p", "--tool", "x")]
)
def test_an_address_that_leads_nowhere_is_told_by_what_is_missing_there(
    run: CommandLine, empty_database: Database, command: tuple[str, ...]
) -> None:
    text, dsn = run.config.read_text(), run_dsn(run)
    run.config.write_text(text.replace(dsn, url(empty_database.dsn, dbname="no_such_database")))
    assert "createdb" in run.refused(*command, code=5)["hint"]
    run.config.write_text(text.replace(dsn, "postgresql://me@no.such.host.invalid/app"))
    assert "name of the host" in run.refused(*command, code=5)["hint"]
    assert "OUTBOX_DATABASE__DSN" in run.refused(*command, code=5)["hint"]
