"""`outbox inbox`: the other half of the transport postgres, by the command that a person types."""

from pathlib import Path

import pytest

from tests.support.commands import CommandLine
from tests.support.postgres import Database

HANDLER = """
create schema shop;
create function shop.reserve(asked inbox.request) returns jsonb
  language sql security definer set search_path = shop, pg_temp as $$ select '{}'::jsonb $$;
select inbox.handle('stock.reserve', 'shop.reserve(inbox.request)');
"""


@pytest.fixture
def run(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, tmp_path / "no-such.toml")


def test_it_is_installed_and_its_handlers_are_shown(
    run: CommandLine, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWNER", empty_database.dsn)
    arguments = ("inbox", "--name", "shop", "--dsn", "env:OWNER")
    assert run.json(*arguments) == {"name": "shop", "version": 1, "roles": True, "handlers": []}
    with empty_database.connect() as connection:
        connection.execute(HANDLER)
    (handler,) = run.json(*arguments)["handlers"]
    assert handler == {"tool": "stock.reserve", "function": "shop.reserve", "problem": None}
    empty_database.rows("grant execute on function shop.reserve(inbox.request) to public")
    (handler,) = run.json(*arguments)["handlers"]
    assert "everybody may call it" in handler["problem"]
    text = run(*arguments).out
    assert "stock.reserve\tshop.reserve" in text


def test_its_sql_can_be_printed_without_a_database(run: CommandLine, empty_database: Database) -> None:
    text = run("inbox", "--name", "shop", "--sql").out
    assert run.json("inbox", "--name", "shop", "--sql")["sql"].strip() == text.strip()
    with empty_database.connect() as connection:
        connection.execute(text.encode())
    assert empty_database.value("select name from inbox.identity") == "shop"


def test_what_is_wrong_is_said_without_the_secret(run: CommandLine, empty_database: Database) -> None:
    assert run.refused("inbox", "--name", "shop", code=2)["code"] == "usage"
    assert "NOWHERE" in run.refused("inbox", "--name", "shop", "--dsn", "env:NOWHERE", code=4)["message"]
    dsn = "postgresql://u:pa55word@127.0.0.1:1/x"
    error = run.refused("inbox", "--name", "shop", "--dsn", dsn, code=5)
    assert "pa55word" not in str(error)
    for wrong in ("nonsense pa55word", "postgresql+psycopg://u:pa55word@h/x", "postgresql://u:p@pa55word@h/x"):
        error = run.refused("inbox", "--name", "shop", "--dsn", wrong, code=2)
        assert (error["code"], "pa55word" in str(error)) == ("config_error", False)
    run.json("inbox", "--name", "shop", "--dsn", empty_database.dsn)
    error = run.refused("inbox", "--name", "warehouse", "--dsn", empty_database.dsn, code=4)
    assert "This inbox is called shop" in error["message"]
    name = run.refused("inbox", "--name", "two words", "--dsn", empty_database.dsn, code=2)
    assert name["code"] == "config_error"
