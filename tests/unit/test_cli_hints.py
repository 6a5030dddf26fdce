"""Whoever is refused is told what to do, and by which command: no error of the command line is without a hint."""

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from outbox.cli import COMMANDS, cli
from outbox.cli.session import Session
from outbox.sqlstate import connection_hint
from outbox.store import translate
from tests.support.commands import CommandLine

ROOT = Path(__file__).parents[2]
FOLDERS = ("outbox/cli", "outbox/inspect", "outbox/registry", "outbox/doctor", "outbox/daemon")
MODULES = [ROOT / "outbox/migrate.py", *sorted(path for place in FOLDERS for path in (ROOT / place).glob("*.py"))]
# Problems of a configuration carry their place, usage errors the help of their command (see outbox/cli/__init__.py).
HINTED = {
    "Refused",
    "NotFound",
    "UnknownTool",
    "DatabaseUnavailable",
    "NotPermitted",
    "SchemaMismatch",
    "DatabaseError",
}
# Functions of the database that people call. What services call is told to programmers.
FUNCTIONS = ("04_people.sql", "06_upkeep.sql")
FOR_PROGRAMS = {"a feed is of one tenant", "a batch has one row", "the database has no such end any more"}


def raised(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HINTED:
            yield node


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_error_that_a_person_meets_has_a_hint(path: Path) -> None:
    bare = [call.lineno for call in raised(path) if "hint" not in {keyword.arg for keyword in call.keywords}]
    assert bare == []


def exceptions() -> list[str]:
    texts = [(ROOT / "migrations/sql/0001" / name).read_text() for name in FUNCTIONS]
    found = [
        match[0] for text in texts for match in re.finditer(r"raise exception '.*?;$", text, re.DOTALL | re.MULTILINE)
    ]
    return [text for text in found if "'OB" in text and not any(words in text for words in FOR_PROGRAMS)]


@pytest.mark.parametrize("text", exceptions(), ids=lambda text: text.partition("'")[2][:60])
def test_what_the_database_refuses_a_person_it_refuses_with_a_command(text: str) -> None:
    assert "hint = " in text
    assert "outbox " in text.partition("hint = ")[2]


def test_there_is_something_to_look_at() -> None:
    assert len(exceptions()) > 15
    assert sum(len(list(raised(path))) for path in MODULES) > 10


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ('connection failed: FATAL:  database "app" does not exist', "createdb"),
        ('FATAL:  role "me" does not exist', "createuser"),
        ('FATAL:  password authentication failed for user "me"', "password"),
        ("fe_sendauth: no password supplied", "PGPASSWORD"),
        ('no pg_hba.conf entry for host "10.0.0.7"', "pg_hba.conf"),
        ("failed to resolve host 'db': [Errno -2] Name or service not known", "name of the host"),
        ("cannot execute CREATE SCHEMA in a read-only transaction", "primary"),
        ("FATAL:  sorry, too many clients already", "max_connections"),
        ("connection refused", "PostgreSQL running"),
    ],
)
def test_a_connection_that_fails_is_told_by_what_is_wrong_and_where_the_address_is(message: str, words: str) -> None:
    assert words in connection_hint(message)
    assert "OUTBOX_DATABASE__DSN" in connection_hint(message)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("42501", "outbox_operator"),
        ("42P01", "outbox migrate"),
        ("42703", "outbox migrate"),
        ("XX000", "outbox doctor"),
    ],
)
def test_every_error_of_the_database_leads_to_a_command(state: str, words: str) -> None:
    from psycopg import errors

    assert words in str(translate(errors.lookup(state)("text")).hint)


@pytest.fixture
def run(tmp_path: Path) -> CommandLine:
    config = tmp_path / "outbox.toml"
    config.write_text('database.dsn = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=2"\n')
    return CommandLine(tmp_path, config)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("list", "--since", "yesterday"), '2026-11-30T08:00:00Z) or a span ("24h")'),
        (("list", "--since", "forever"), "a span"),
        (("list", "--cursor", "9" * 30), "`next` of an earlier page"),
        (("stuck", "--cursor", f"2026-11-30T08:00:00Z_{'9' * 30}"), "`next` of an earlier page"),
        (("stuck", "--cause", "time_out"), "did you mean 'timeout'?"),
        (("purge", "--older-than", "forever", "--yes"), 'a span that ends, such as "90d"'),
        (("purge", "--older-than", "soon", "--yes"), "--older-than"),
        (("cancel", "--all", "--older-than", "1"), "--older-than"),
        (("cancel", "--all", "--as-of", "noon"), "2026-11-30T08:00:00Z"),
        (("approve", "op", "--expires-in", "forever"), "--expires-in"),
        (("resolve", "op", "--succeeded", "--evidence", "x", "--attempt", "99999999999"), "--attempt"),
        (("resolve", "op", "--succeeded", "--evidence", "x" * 5_000), "--evidence"),
        (("resolve", "op", "--succeeded", "--evidence", "x", "--external-id", "x" * 501), "500 are kept"),
        (("pause", "tool", "mail.send", "--reason", "é" * 2_500), "it has 5000 bytes"),
        (("unblock", "op", "--reason", " "), "it is empty"),
        (("approve", "op", "--reason", "x" * 5_000), "--reason"),
        (("inbox", "--name", "shop"), "--dsn"),
        (("rela",), "did you mean 'relay'?"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_a_wrong_option_says_how_it_is_written_before_anything_is_connected(
    run: CommandLine, arguments: tuple[str, ...], words: str
) -> None:
    error = run.refused(*arguments, code=2)
    assert (error["code"], words in error["message"]) == ("usage", True), error
    assert "--help" in error["hint"]


def examples(name: str) -> list[str]:
    """The command lines under "Example" in the help of a command, without what is said beside them."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    text = inspect.cleandoc(command.help or "").partition("Example")[2].replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("outbox ")]
    return [part for line in lines for part in re.split(r" {3,}|\s[|>]\s", line)[0].split(" && ")]


@pytest.mark.parametrize("name", [name for section in COMMANDS.values() for name in section])
def test_every_example_of_a_help_is_a_command_line_that_is_understood(name: str) -> None:
    assert examples(name)
    for example in examples(name):
        words = shlex.split(example)[1:]
        context = click.Context(cli, info_name="outbox", obj=Session())
        while words[0].startswith("-"):
            words = words[2:]
        called = cli.get_command(context, words[0])
        assert called is not None, example
        parser = called.make_parser(click.Context(called, parent=context))
        options, rest, _ = parser.parse_args(words[1:])
        assert rest == [], example
        required = {parameter.name for parameter in called.params if parameter.required}
        assert required <= {given for given, value in options.items() if value is not None}, example
