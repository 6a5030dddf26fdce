"""The command line without a database: help, errors, exit codes, JSON."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest

import outbox.cli
from outbox import errors
from outbox.cli import COMMANDS, cli, main
from outbox.cli.output import plain, safe, write_table
from outbox.cli.session import Session, exit_code_of
from outbox.decide import FOREVER
from outbox.settings import load_configuration
from tests.support.commands import CommandLine

NAMES = [name for section in COMMANDS.values() for name in section]
# Port 1 of the loopback address: nobody listens there.
NOWHERE = 'database.dsn = "postgresql://nobody:hunter2@127.0.0.1:1/none?connect_timeout=2"\n'


@pytest.fixture
def run(tmp_path: Path) -> CommandLine:
    config = tmp_path / "outbox.toml"
    config.write_text(NOWHERE)
    return CommandLine(tmp_path, config)


# ----------------------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself_with_an_example(run: CommandLine, name: str) -> None:
    result = run(name, "--help")
    assert result.code == 0
    assert "Example" in result.out
    assert f"outbox {name}" in result.out
    assert "--config" in result.out


@pytest.mark.parametrize("dsn", ["postgresql+psycopg://u:hunter2@h/db", "postgresql://u:p@hunter2@h/db"])
def test_a_demo_on_a_dsn_that_libpq_cannot_read_is_refused_and_does_not_repeat_it(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    monkeypatch.setenv("OUTBOX_DEMO_DSN", dsn)
    error = run.refused("demo", code=2)
    assert (error["code"], "OUTBOX_DEMO_DSN" in str(error), "hunter2" in str(error)) == ("config_error", True, False)


def test_put_says_whose_operation_its_tenant_is(run: CommandLine) -> None:
    told = " ".join(run("put", "--help").out.split())
    assert "Whose operations are meant. [default: everybody's; put needs it]" in told


def test_the_help_of_all_names_every_command_and_imports_none(run: CommandLine) -> None:
    result = run("--help")
    assert all(f"\n  {name} " in result.out for name in NAMES)
    program = "import sys; from outbox.cli import main; main(['--help']); print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert not {"alembic", "aiohttp", "sqlalchemy", "outbox.cli.act", "outbox.demo.run"} & set(loaded)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_commands_and_the_commands_agree(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name


def test_the_installed_command_is_this_one() -> None:
    done = subprocess.run([sys.executable, "-m", "outbox", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("outbox, version ")


# --------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError.at("x", "wrong"), 2),
        (errors.InvalidIntent.at("x", "wrong"), 2),
        (errors.JsonRefused("nan", "", "wrong"), 2),
        (errors.AmbiguousId("a", ["t", "u"]), 2),
        (errors.NotFound(), 3),
        (errors.UnknownTool(), 3),
        (errors.Refused(), 4),
        (errors.UnknownTransport(), 4),
        (errors.DatabaseUnavailable(), 5),
        (errors.SchemaMismatch(), 5),
        (errors.NotPermitted(), 5),
        (errors.IntentConflict("a", ["tool"]), 6),
        (errors.IntentRace(), 6),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_ends_with_the_exit_code_that_is_documented(error: errors.OutboxError, code: int) -> None:
    assert exit_code_of(error) == code


def test_a_wrong_command_is_usage_and_says_what_was_meant(run: CommandLine) -> None:
    result = run("lst")
    assert (result.code, result.out) == (2, "")
    assert "did you mean 'list'" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--state", "done"),
        ("list", "--since", "yesterday"),
        ("list", "--cursor", "x"),
        ("stuck", "--cursor", "x"),
        ("list", "--limit", "0"),
        ("show",),
        ("put", "--tool", "t"),
        ("put", "--tool", "t", "--principal", "p"),
        ("resolve", "id", "--evidence", "x"),
        ("resolve", "id", "--evidence", "x", "--succeeded", "--no-effect"),
        ("resolve", "id", "--evidence", "x", "--succeeded", "--send-again"),
        ("resolve", "id", "--evidence", "x", "--no-effect", "--external-id", "e"),
        ("resolve", "id", "--succeeded"),
        ("approve", "id", "--digest", "xyz"),
        ("approve", "id", "--expires-in", "5"),
        ("--no-such-option",),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2_and_one_json_document(run: CommandLine, arguments: tuple[str, ...]) -> None:
    error = run.refused(*arguments, code=2)
    assert error["code"] == "usage"
    assert error["message"]


def test_a_wrong_file_reports_every_problem_in_json_and_in_words(run: CommandLine) -> None:
    run.config.write_text('[relay]\npol = "1s"\n[tools.x]\nreceiver = "y"\n')
    error = run.refused("apply", code=2)
    assert {problem["place"].split(" ")[0] for problem in error["problems"]} == {"relay.pol", "tools.x.receiver"}
    result = run("apply")
    assert (result.code, result.out) == (2, "")
    assert "2 problems" in result.err
    assert "did you mean 'poll'" in result.err


@pytest.mark.parametrize("arguments", [("list",), ("stuck",), ("show", "id"), ("migrate",), ("contracts",), ("apply",)])
def test_an_unreachable_database_exits_with_5_without_traceback_and_without_the_password(
    run: CommandLine, arguments: tuple[str, ...]
) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (5, "")
    assert "Traceback" not in result.err
    assert "hunter2" not in result.err


def test_put_without_a_database_exits_with_5(run: CommandLine) -> None:
    error = run.refused("put", "--tenant", "t", "--principal", "p", "--tool", "t", code=5)
    assert error["code"] == "database_unavailable"


def test_no_database_at_all_is_said_with_what_to_write(run: CommandLine) -> None:
    run.config.write_text("")
    error = run.refused("list", code=2)
    assert "OUTBOX_DATABASE__DSN" in error["hint"]


@pytest.mark.parametrize("arguments", ['{"a": NaN}', '{"a": 1, "a": 2}', "[1]", '{"a": "\\ud800"}', "@no-such-file"])
def test_arguments_that_no_intent_takes_are_refused_before_anything_is_connected(
    run: CommandLine, arguments: str
) -> None:
    error = run.refused("put", "--tenant", "t", "--principal", "p", "--tool", "t", "--arguments", arguments, code=2)
    assert error["code"] in {"invalid_intent", "json_refused"}


def test_a_fault_of_the_program_is_one_sentence_and_a_traceback_only_for_debug(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Session) -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr(Session, "settings", fail)
    program = (
        "import sys; from outbox.cli.session import Session\n"
        "def fail(_): raise ZeroDivisionError\n"
        "Session.settings = fail\n"
        "from outbox.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )

    def child(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, "-c", program, *arguments], check=False, capture_output=True, text=True)

    plainly = child("list")
    assert plainly.returncode == 1
    assert "ZeroDivisionError" in plainly.stderr
    assert "Traceback" not in plainly.stderr
    assert json.loads(child("list", "--json").stdout)["error"]["code"] == "bug"
    assert "Traceback" in child("list", "--debug").stderr


def test_an_interrupt_exits_with_130(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Session) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "settings", interrupt)
    assert run("list").code == 130


def test_a_reader_who_has_enough_is_no_error(tmp_path: Path) -> None:
    config = tmp_path / "outbox.toml"
    config.write_text((Path(__file__).parents[2] / "outbox.example.toml").read_text())
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "outbox", "--config", str(config), "contracts", "--file"],
        check=False,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


# ----------------------------------------------------------------------------------------------------------- first file


def test_init_writes_five_lines_that_are_right_and_never_overwrites_a_file(run: CommandLine) -> None:
    run.config.unlink()
    result = run("init")
    assert result.code == 0
    assert "outbox dev" in result.out
    text = run.config.read_text()
    assert len([line for line in text.splitlines() if line and not line.startswith("#")]) == 5
    assert load_configuration(run.config).tools["echo.say"].contract is not None
    refused = run.refused("init", code=4)
    assert "exists already" in refused["message"]
    assert run.config.read_text() == text


def test_the_lines_that_init_comments_out_are_right_too(run: CommandLine) -> None:
    run.config.unlink()
    run("init")
    text = run.config.read_text()
    run.config.write_text(text.replace("# contract.", "contract.").replace("# database.dsn", "database.dsn"))
    assert run.json("contracts", "--file")["items"][0]["guarantee"] == "deduplicated"


def test_contracts_are_printed_from_a_file_without_a_database(run: CommandLine) -> None:
    run.config.write_text((Path(__file__).parents[2] / "outbox.example.toml").read_text())
    items = {item["tool"]: item for item in run.json("contracts", "--file")["items"]}
    assert items["inventory.set_available"]["guarantee"] == "deduplicated"
    assert items["mail.send"]["guarantee"] == "a person decides"
    assert all(item["conditions"] and item["clauses"] for item in items.values())
    assert run.refused("contracts", "no.such", "--file", code=3)["code"] == "not_found"
    words = run("contracts", "mail.send", "--file").out
    assert words.startswith("mail.send (mail): a person decides\n")
    assert "provided that" in words


def test_what_a_contract_states_in_vain_is_a_warning_where_its_guarantee_is_printed(run: CommandLine) -> None:
    text = (Path(__file__).parents[2] / "outbox.example.toml").read_text()
    assert all(item["warnings"] == [] for item in _contracts_of(run, text))
    (warned,) = [item for item in _contracts_of(run, text.replace('"mail"', '"warehouse"')) if item["warnings"]]
    assert (warned["tool"], "a receiver of its own" in warned["warnings"][0]) == ("mail.send", True)
    items = _contracts_of(run, re.sub(r"key_retention = .*\n", "", text))
    assert ["key_retention is not stated" in " ".join(item["warnings"]) for item in items] == [True, False]
    assert "warning: the key is sent, and nothing rests on it" in run("contracts", "--file").out


def _contracts_of(run: CommandLine, text: str) -> list[dict[str, Any]]:
    run.config.write_text(text)
    items: list[dict[str, Any]] = run.json("contracts", "--file")["items"]
    return items


# ------------------------------------------------------------------------------------------------------------- programs


@pytest.mark.parametrize(
    ("arguments", "module", "passed"),
    [
        (("relay", "--receiver", "a", "--receiver", "b"), "relay.__main__", ["--receiver", "a", "--receiver", "b"]),
        (("reconciler",), "reconciler.__main__", []),
    ],
)
def test_the_daemons_are_started_with_the_file_and_their_exit_code_is_ours(
    run: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    module: str,
    passed: list[str],
) -> None:
    called: list[list[str]] = []

    class Program:
        @staticmethod
        def main(argv: list[str]) -> int:
            called.append(argv)
            return 7

    monkeypatch.setattr("importlib.import_module", _stand_in(module, Program))
    assert run(*arguments).code == 7
    assert called == [["--config", str(run.config), *passed]]


def test_the_demo_and_dev_get_what_was_asked_for(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[dict[str, Any]] = []

    class Program:
        @staticmethod
        def run(**given: Any) -> int:
            called.append(given)
            return 0

    monkeypatch.setattr("importlib.import_module", _stand_in("outbox.demo.run", Program))
    assert run("demo", "--intents", "5", "--keep", "--json").code == 0
    monkeypatch.setattr("importlib.import_module", _stand_in("outbox.demo.dev", Program))
    assert run("dev", "--folder", "data").code == 0
    assert called == [
        {"intents": 5, "as_json": True, "keep": True},
        {"folder": Path("data"), "config": run.config, "as_json": False},
    ]


def _stand_in(module: str, program: object) -> Callable[[str], object]:
    import importlib

    real = importlib.import_module
    return lambda name, package=None: program if name == module else real(name, package)  # type: ignore[misc]


def test_a_program_that_is_not_installed_is_named_with_what_to_install(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "outbox.demo.run", None)
    error = run.refused("demo", code=2)
    assert "pip install" in error["hint"]


# ----------------------------------------------------------------------------------------------------------- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_asks_this_program(run: CommandLine, shell: str) -> None:
    script = run("completion", shell).out
    assert f"_OUTBOX_COMPLETE={shell}_complete" in script
    assert run.json("completion", shell) == {"shell": shell, "script": script.removesuffix("\n")}
    checker = shutil.which(shell)
    if checker is not None:
        subprocess.run([checker, "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("outbox pau", {"pause"}),
        ("outbox re", {"relay", "reconciler", "redact", "repair", "report", "resolve", "resume", "retry", "revoke"}),
        ("outbox pause t", {"tool", "tenant"}),
        ("outbox list --sta", {"--state"}),
        ("outbox list --state un", {"unknown"}),
    ],
)
def test_commands_options_and_values_are_completed(words: str, expected: set[str]) -> None:
    environment = {
        **os.environ,
        "_OUTBOX_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    command = [sys.executable, "-m", "outbox"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == expected


# --------------------------------------------------------------------------------------------------------------- output


def test_what_json_has_no_form_for_becomes_text_that_stays_the_same() -> None:
    assert plain({"a": b"\x01\xff", "b": float("inf"), "c": FOREVER, "d": (1, None, True)}) == {
        "a": "01ff",
        "b": "forever",
        "c": "forever",
        "d": [1, None, True],
    }
    with pytest.raises(TypeError):
        plain(object())


def test_text_from_elsewhere_cannot_command_a_terminal_nor_break_a_table() -> None:
    assert safe("a\x1b[31mb\nc\td\x00") == "a\ufffd[31mb c d\ufffd"


def test_global_options_may_stand_before_and_behind_the_command(tmp_path: Path) -> None:
    config = tmp_path / "a.toml"
    for arguments in (
        ["--config", str(config), "contracts", "--file"],
        ["contracts", "--file", "--config", str(config)],
    ):
        config.unlink(missing_ok=True)
        assert main(arguments) == 2
        config.write_text("")
        assert main(arguments) == 0


def test_the_documented_exit_codes_are_those_of_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    documented = {
        line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ") and line[2].isdigit()
    }
    assert documented == {"0", "1", "2", "3", "4", "5", "6", "130"}
    assert "1 is a fault" in (outbox.cli.__doc__ or "")


@pytest.mark.parametrize("width", [40, 80, 300])
def test_a_table_on_a_terminal_folds_no_id_and_has_no_empty_column(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    name = "order-17/0b0e3f0e-5b1c-4a39-9a55-6a4f2f6f9d2e"
    since = datetime.now(UTC) - timedelta(minutes=3)
    row = (name, "unknown", since, None, "the receiver cannot be asked, and nothing may be sent again")
    write_table(("operation_id", "state", "since", "at", "why"), [row], empty="")
    head, first, *below = [re.sub(r"\x1b\[\d+m", "", line) for line in capsys.readouterr().out.splitlines()]
    assert head.split() == ["operation_id", "state", "since", *([] if below else ["why"])]
    assert first.startswith(f"{name}  unknown  3 min ago")
    assert " ".join(" ".join([first, *below]).split()).endswith(row[-1])
