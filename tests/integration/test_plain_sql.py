"""Any language may write: each way of inserting gives the same rows in the same lanes, and no digest can be a lie."""

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any, LiteralString

import psycopg
import pytest

from outbox import Intent, Outbox
from tests.support.postgres import Database
from tests.support.tools import register

COLUMNS: LiteralString = (
    "tenant_id, operation_id, tool, resource, arguments, content_type, body, expected_version, ordering_key,"
    " principal_id, expires_at, not_before, compensates, revision_of, on_behalf_of, traceparent, digest"
)
NAMES = COLUMNS.replace(",", "").split()
VALUES: LiteralString = ", ".join(["%s"] * 17)
INTENTS = [
    Intent(tool="mail.send", operation_id="o-1", arguments={"to": "ä"}, resource="r-1", expected_version="7"),
    Intent(tool="mail.send", operation_id="o-2", ordering_key="k-1", traceparent=f"00-{'1' * 32}-{'2' * 16}-01"),
    Intent(tool="mail.publish", operation_id="o-3", body=b"\x00\xff", content_type="application/avro"),
    Intent(tool="mail.publish", operation_id="o-4", compensates="o-1", revision_of="o-2", on_behalf_of="alice"),
]

Connection = psycopg.Connection[Any]
Rows = list[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def tools(database: Database) -> None:
    register(database, "mail.send")
    register(database, "mail.publish", requires_approval=True)


def row(intent: Intent, tenant_id: str = "acme") -> tuple[Any, ...]:
    stated = intent.model_dump() | {
        "tenant_id": tenant_id,
        "principal_id": "checkout",
        "digest": intent.digest(tenant_id),
    }
    return tuple(stated[name] for name in NAMES)


def by_put(connection: Connection, rows: Rows) -> None:
    for intent in INTENTS:
        Outbox("acme", "checkout").put(connection, intent)


def by_put_many(connection: Connection, rows: Rows) -> None:
    Outbox("acme", "checkout").put_many(connection, INTENTS)


def by_single_inserts(connection: Connection, rows: Rows) -> None:
    for values in rows:
        connection.execute(f"insert into outbox.intent ({COLUMNS}) values ({VALUES})", values)


def by_one_insert_of_many(connection: Connection, rows: Rows) -> None:
    lines: LiteralString = ", ".join([f"({VALUES})"] * len(rows))
    values = [value for line in rows for value in line]
    connection.execute(f"insert into outbox.intent ({COLUMNS}) values {lines}", values)


def by_insert_on_conflict(connection: Connection, rows: Rows) -> None:
    for values in [*rows, *rows]:
        connection.execute(f"insert into outbox.intent ({COLUMNS}) values ({VALUES}) on conflict do nothing", values)


def by_merge(connection: Connection, rows: Rows) -> None:
    kinds = {"body": "bytea", "digest": "bytea", "not_before": "timestamptz", "expires_at": "timestamptz"}
    given: LiteralString = ", ".join(f"cast(%s as {kinds.get(name, 'text')}) as {name}" for name in NAMES)
    for values in rows:
        connection.execute(
            f"merge into outbox.intent t using (select {given}) s on false"
            f" when not matched then insert ({COLUMNS}) values ({COLUMNS})",
            values,
        )


def by_copy(connection: Connection, rows: Rows) -> None:
    with connection.cursor().copy(f"copy outbox.intent ({COLUMNS}) from stdin") as copy:
        for values in rows:
            copy.write_row([f"\\x{value.hex()}" if isinstance(value, bytes) else value for value in values])


WAYS: list[Callable[[Connection, Rows], None]] = [
    by_put,
    by_put_many,
    by_single_inserts,
    by_one_insert_of_many,
    by_insert_on_conflict,
    by_merge,
    by_copy,
]


def written(database: Database) -> Rows:
    intents: Rows = database.rows(f"select {COLUMNS}, redacted_at from outbox.intent order by operation_id")
    placed: Rows = database.rows(
        "select i.operation_id, to_jsonb(p) - 'seq' - 'next_at', p.next_at = i.created_at"
        " from outbox.pending p join outbox.intent i using (seq) order by 1"
    )
    return intents + placed


@pytest.fixture
def expected(database: Database) -> Rows:
    """What the rows must be, said without the code under test: lanes by the one function that decides them."""
    lanes = database.rows(
        "select outbox.lane_of(4, 'acme', v.place), outbox.ordering_hash('acme', v.ord)"
        " from (values ('o-1', null), ('k-1', 'k-1'), ('o-3', null), ('o-4', null)) v (place, ord)"
    )
    states = ["authorized", "authorized", "proposed", "proposed"]
    blank = database.value("select to_jsonb(p) - 'seq' - 'next_at' from (select (null::outbox.pending).*) p")
    defaults = {"step": "none", "attempt": 0, "throttled": 0, "not_sent": 0, "passed": False}
    facts = {"receiver_id": 1, "policy_version": 1}
    placed = [
        (f"o-{number}", blank | defaults | facts | {"lane": lane, "ord": order, "state": state}, True)
        for number, (lane, order), state in zip(range(1, 5), lanes, states, strict=True)
    ]
    return [(*row(intent), None) for intent in INTENTS] + placed


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_of_writing_gives_the_same_rows_in_the_same_lanes(
    database: Database, way: Callable[[Connection, Rows], None], expected: Rows
) -> None:
    with database.connect("writer", autocommit=False) as connection:
        way(connection, [row(intent) for intent in INTENTS])
    assert written(database) == expected


@pytest.mark.parametrize("way", WAYS[2:], ids=lambda way: way.__name__)
def test_a_wrong_digest_is_refused_whoever_writes_it(
    database: Database, way: Callable[[Connection, Rows], None]
) -> None:
    rows = [row(intent) for intent in INTENTS]
    rows[-1] = (*rows[-1][:-1], INTENTS[0].digest("acme"))
    with database.connect("writer", autocommit=False) as connection:
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            way(connection, rows)
        assert refused.value.diag.constraint_name == "intent_is_sound"
    assert written(database) == []


@pytest.mark.parametrize("way", WAYS[2:], ids=lambda way: way.__name__)
def test_an_unknown_tool_is_refused_with_what_to_do_whoever_writes_it(
    database: Database, way: Callable[[Connection, Rows], None]
) -> None:
    rows = [*(row(intent) for intent in INTENTS), row(Intent(tool="mail.shred"))]
    with database.connect("writer", autocommit=False) as connection:
        with pytest.raises(psycopg.Error, match=r"unknown tool mail\.shred") as refused:
            way(connection, rows)
        assert refused.value.sqlstate == "OB404"
        assert "outbox apply" in (refused.value.diag.message_hint or "")
    assert written(database) == []


@pytest.mark.parametrize("column", ["seq", "authorization_id", "created_at", "written_by", "redacted_at"])
def test_what_a_writer_must_not_choose_it_cannot(database: Database, column: str) -> None:
    with database.connect("writer") as connection:
        insert = psycopg.sql.SQL("insert into outbox.intent ({}) overriding system value values (null)")
        with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedColumn)):
            connection.execute(insert.format(psycopg.sql.Identifier(column)))


def test_the_shipped_vectors_hold_in_the_database_too(database: Database) -> None:
    vectors = json.loads((files("outbox") / "vectors" / "digest.json").read_text(encoding="utf-8"))
    for vector in vectors["intent_digest"]:
        names = ("tenant_id", "operation_id", "tool", "resource", "expected_version", "arguments", "content_type")
        body = bytes.fromhex(vector["body_hex"]) if "body_hex" in vector else None
        values = [vector.get(name) for name in names]
        digest = database.value(f"select outbox.intent_digest({', '.join(['%s'] * 8)})", *values, body)
        assert digest.hex() == vector["sha256"], vector["note"]
