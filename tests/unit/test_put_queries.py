"""The pure half of put: what is asked, of whom, and what the database's errors are called."""

import json
from typing import Any

import pytest
import sqlalchemy

from outbox import Intent, IntentRace, InvalidIntent, Outbox, UnknownTool
from outbox import query as module
from outbox.errors import FeedReset, Misuse, NotPermitted, OutboxError, SchemaMismatch, UnsupportedConnection
from outbox.put import arun, run
from outbox.query import Query, feed_batch, get_one, put_many, put_one
from outbox.sql import load, with_colons, with_numbers
from outbox.sqlstate import raise_known


def items(query: Query) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(query.parameters["intents"])
    return found


def test_every_parameter_of_a_statement_is_given_and_no_other() -> None:
    intent = Intent(tool="mail.send", body=b"\xff", content_type="a/b")
    queries = [put_one("acme", "p", intent), *put_many("acme", "p", [intent]), get_one("acme", "o")]
    queries.append(feed_batch("acme", None, 10))
    assert {query.name for query in queries} == set(load("write"))
    for query in queries:
        clause = sqlalchemy.text(with_colons(load("write")[query.name]))
        assert set(clause.compile().params) == set(query.parameters)
        text, names = with_numbers(load("write")[query.name])
        assert set(names) == set(query.parameters)
        assert "%" not in text


def test_one_and_many_state_the_same_of_an_intent() -> None:
    intent = Intent(tool="mail.send", body=b"\xff", content_type="a/b", resource="é")
    (query,) = put_many("acme", "p", [intent])
    (item,) = items(query)
    one = dict(put_one("acme", "p", intent).parameters)
    one |= {"digest": one["digest"].hex(), "body": one["body"].hex(), "place": 0}
    assert item == one


def test_many_are_sorted_by_id_and_remember_their_places() -> None:
    intents = [Intent(tool="mail.send", operation_id=name) for name in ["b", "~", "B", "a"]]
    (query,) = put_many("acme", "p", intents)
    assert [(item["operation_id"], item["place"]) for item in items(query)] == [("B", 2), ("a", 3), ("b", 0), ("~", 1)]


def test_batches_are_bounded_in_number_and_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert put_many("acme", "p", []) == []
    small = [Intent(tool="mail.send", operation_id=f"o-{number:04}") for number in range(2001)]
    assert [len(items(query)) for query in put_many("acme", "p", small)] == [1000, 1000, 1]
    monkeypatch.setattr(module, "BATCH_MAX_CHARS", 2000)
    large = [Intent(tool="mail.send", operation_id=f"o-{number}", arguments={"a": "x" * 700}) for number in range(4)]
    huge = Intent(tool="mail.send", operation_id="o-9", arguments={"a": "x" * 3000})
    assert [len(items(query)) for query in put_many("acme", "p", [huge, *large])] == [1, 1, 1, 1, 1]
    assert len({item["place"] for query in put_many("acme", "p", small) for item in items(query)}) == len(small)


def test_a_connection_of_the_wrong_colour_or_kind_is_refused_with_what_to_use() -> None:
    engine = sqlalchemy.create_engine("postgresql+psycopg://")
    box: Any = Outbox("acme", "p")
    for connection in (engine, object(), "postgresql://", None):
        with pytest.raises(UnsupportedConnection, match="Give a Session, Connection"):
            box.put(connection, Intent(tool="mail.send"))


async def test_a_synchronous_session_is_for_put_and_an_asynchronous_one_for_aput() -> None:
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    query = get_one("acme", "o")
    wrong: Any = AsyncSession()
    with pytest.raises(UnsupportedConnection, match="AsyncSession is for aput, aget, await_ and afeed"):
        run(wrong, query)
    wrong = Session()
    with pytest.raises(UnsupportedConnection, match="Session is for put, get, wait and feed"):
        await arun(wrong, query)


class Diag:
    def __init__(self, message: str, hint: str | None) -> None:
        self.message_primary, self.message_hint = message, hint


def psycopg_style(sqlstate: str, message: str, hint: str | None) -> Exception:
    error: Any = Exception(message)
    error.sqlstate, error.diag = sqlstate, Diag(message, hint)
    return error  # type: ignore[no-any-return]


def psycopg2_style(sqlstate: str, message: str, hint: str | None) -> Exception:
    error: Any = Exception(message)
    error.pgcode, error.diag = sqlstate, Diag(message, hint)
    return error  # type: ignore[no-any-return]


def pg8000_style(sqlstate: str, message: str, hint: str | None) -> Exception:
    return Exception({"C": sqlstate, "M": message} | ({"H": hint} if hint else {}))


def asyncpg_style(sqlstate: str, message: str, hint: str | None) -> Exception:
    cause: Any = Exception(message)
    cause.sqlstate, cause.message, cause.hint = sqlstate, message, hint
    error: Any = Exception("wrapped by SQLAlchemy")
    error.sqlstate = sqlstate
    error.__cause__ = cause
    return error  # type: ignore[no-any-return]


@pytest.mark.parametrize("style", [psycopg_style, psycopg2_style, pg8000_style, asyncpg_style])
@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [
        ("40001", IntentRace),
        ("40P01", IntentRace),
        ("23505", IntentRace),
        ("OB404", UnknownTool),
        ("23514", InvalidIntent),
        ("42501", NotPermitted),
        ("OB400", Misuse),
        ("OB410", FeedReset),
        ("42883", SchemaMismatch),
    ],
)
def test_an_error_of_the_database_has_one_name_under_every_driver(
    style: Any, sqlstate: str, expected: type[OutboxError]
) -> None:
    with pytest.raises(expected) as raised:
        raise_known(style(sqlstate, "something Happened", "do this"))
    assert raised.value.__cause__ is None
    if expected is UnknownTool:
        assert str(raised.value) == "Something Happened. do this"
    if expected is InvalidIntent:
        assert "something Happened" in str(raised.value)


@pytest.mark.parametrize("style", [psycopg_style, psycopg2_style, pg8000_style, asyncpg_style])
def test_an_error_without_a_name_here_is_left_to_the_driver(style: Any) -> None:
    raise_known(style("57014", "canceling statement", None))
    raise_known(Exception())
    raise_known(None)
