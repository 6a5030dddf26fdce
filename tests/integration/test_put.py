"""`put` on every kind of connection: in the caller's transaction, once per id, and honest about what exists."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from outbox import Intent, IntentConflict, Operation, Outbox, State, UnknownTool
from outbox.errors import InvalidIntent, NotPermitted, SchemaMismatch
from tests.support.callers import CALLERS, Caller
from tests.support.postgres import Database
from tests.support.tools import end, register

BOX = Outbox("acme", "checkout")
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
EVERY_FIELD: dict[str, Any] = {
    "tool": "mail.send",
    "operation_id": "order-17/mail",
    "resource": "kunde/Größe 😀",
    "arguments": {"to": "ä@example.com", "n": 0.1},
    "expected_version": 'W/"7"',
    "ordering_key": "kunde/17",
    "not_before": NOON,
    "expires_at": NOON + timedelta(microseconds=1),
    "compensates": "order-16/mail",
    "revision_of": "order-17/draft",
    "on_behalf_of": "alice@example.com",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}


@pytest.fixture(autouse=True)
def tools(database: Database) -> None:
    register(database, "mail.send", "mail.recall")
    register(database, "mail.publish", requires_approval=True)


@pytest.fixture(params=CALLERS)
async def caller(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Caller]:
    """Each kind of connection in turn, of a login that may only write."""
    async with CALLERS[request.param](database.dsn_for("writer")) as opened:
        yield opened


def count(database: Database) -> int:
    rows = database.value("select count(*) from outbox.intent")
    assert rows == database.value("select count(*) from outbox.pending")
    return int(rows)


async def test_an_intent_exists_when_its_transaction_commits_and_not_before(database: Database, caller: Caller) -> None:
    operation = await caller.put(BOX, Intent(tool="mail.send"))
    assert (operation.created, operation.state, operation.attempt) == (True, State.AUTHORIZED, 0)
    assert count(database) == 0
    await caller.commit()
    assert count(database) == 1


async def test_an_intent_that_is_rolled_back_was_never_asked(database: Database, caller: Caller) -> None:
    await caller.put(BOX, Intent(tool="mail.send"))
    await caller.rollback()
    assert count(database) == 0


async def test_a_savepoint_takes_its_intents_along_and_leaves_the_others(database: Database, caller: Caller) -> None:
    kept, dropped = Intent(tool="mail.send"), Intent(tool="mail.send")
    await caller.put(BOX, kept)
    await caller.execute("savepoint inner_part")
    await caller.put(BOX, dropped)
    await caller.execute("rollback to savepoint inner_part")
    again = await caller.put(BOX, dropped)
    await caller.execute("savepoint inner_part")
    await caller.put(BOX, Intent(tool="mail.send"))
    await caller.execute("rollback to savepoint inner_part")
    await caller.commit()
    assert again.created
    assert count(database) == 2


async def test_the_same_intent_again_is_the_same_operation(database: Database, caller: Caller) -> None:
    intent = Intent(**EVERY_FIELD)
    first = await caller.put(BOX, intent)
    in_transaction = await caller.put(BOX, intent)
    await caller.commit()
    later = await caller.put(BOX, intent)
    assert (first.created, in_transaction.created, later.created) == (True, False, False)
    assert first.seq == in_transaction.seq == later.seq
    assert count(database) == 1


async def test_every_field_is_stored_as_it_was_given(database: Database, caller: Caller) -> None:
    intent = Intent(**EVERY_FIELD)
    await caller.put(BOX, intent)
    (many,) = await caller.put_many(BOX, [intent])  # the other statement agrees, or this would be a conflict
    await caller.commit()
    (stored,) = database.rows("select to_jsonb(i) from outbox.intent i")[0]
    instants = {name: datetime.fromisoformat(stored.pop(name)) for name in ("not_before", "expires_at")}
    assert instants == {name: EVERY_FIELD[name] for name in instants}
    assert json.loads(stored["arguments"]) == EVERY_FIELD["arguments"]
    assert stored["digest"] == rf"\x{intent.digest('acme').hex()}"
    assert stored["principal_id"] == "checkout"
    same = EVERY_FIELD.keys() - instants.keys() - {"arguments"}
    assert {name: stored[name] for name in same} == {name: EVERY_FIELD[name] for name in same}
    assert not many.created


async def test_a_body_arrives_byte_by_byte(database: Database, caller: Caller) -> None:
    body = bytes(range(256))
    one = Intent(tool="mail.send", body=body, content_type="application/avro")
    other = Intent(tool="mail.send", body=b"", content_type="application/avro")
    await caller.put(BOX, one)
    await caller.put_many(BOX, [one, other])
    await caller.commit()
    assert database.rows("select body, arguments from outbox.intent order by seq") == [(body, None), (b"", None)]


async def test_an_ended_operation_answers_with_its_receipt(database: Database, caller: Caller) -> None:
    intent = Intent(tool="mail.send")
    first = await caller.put(BOX, intent)
    await caller.commit()
    end(database, first.seq)
    answers = [await caller.put(BOX, intent), await caller.get(BOX, intent.operation_id)]
    for answer in answers:
        assert answer is not None
        assert (answer.state, answer.receipt, answer.external_id) == (State.SUCCEEDED, '{"id":"m-1"}', "m-1")
        assert answer.ended
        assert answer.attempt == 1


async def test_a_purged_operation_still_answers_instead_of_happening_twice(database: Database, caller: Caller) -> None:
    intent = Intent(tool="mail.send")
    first = await caller.put(BOX, intent)
    await caller.commit()
    end(database, first.seq, hours_ago=24)
    assert database.value("select purged from outbox.purge(0, 1000, outbox.now(), 10, 'a test')") == 1
    again = await caller.put(BOX, intent)
    assert (again.created, again.purged, again.state) == (False, True, State.SUCCEEDED)
    assert (again.external_id, again.attempt) == ("m-1", None)
    with pytest.raises(IntentConflict):
        await caller.put(Outbox("acme", "mallory"), intent)
    assert count(database) == 0


async def test_a_conflict_writes_nothing_and_leaves_the_transaction_good(database: Database, caller: Caller) -> None:
    intent = Intent(tool="mail.send", arguments={"to": "a"})
    await caller.put(BOX, intent)
    with pytest.raises(IntentConflict) as conflict:
        await caller.put(BOX, intent.model_copy(update={"arguments": {"to": "b"}}))
    assert (conflict.value.operation_id, conflict.value.fields) == (intent.operation_id, ("arguments",))
    assert "exists, and differs in: arguments." in str(conflict.value)
    await caller.put(BOX, Intent(tool="mail.send"))
    await caller.commit()
    assert count(database) == 2


async def test_an_unknown_tool_says_how_to_register_it(database: Database, caller: Caller) -> None:
    await caller.execute("savepoint before_mistake")
    for attempt in (caller.put(BOX, Intent(tool="Mail.Shred")), caller.put_many(BOX, [Intent(tool="Mail.Shred")])):
        with pytest.raises(UnknownTool, match=r"Unknown tool Mail.Shred. Declare \[tools.\"Mail.Shred\"\]") as unknown:
            await attempt
        assert "outbox apply" in (unknown.value.hint or "")
        await caller.execute("rollback to savepoint before_mistake")
    await caller.commit()
    assert count(database) == 0


async def test_many_are_put_in_sorted_order_and_answered_in_the_callers(database: Database, caller: Caller) -> None:
    names = ["b", "a/2", "B", "z", "a", "b", "~"]
    operations = await caller.put_many(BOX, [Intent(tool="mail.send", operation_id=name) for name in names])
    await caller.commit()
    assert [operation.operation_id for operation in operations] == names
    assert [operation.created for operation in operations] == [True, True, True, True, True, False, True]
    assert database.rows("select operation_id from outbox.intent order by seq") == [
        (name,) for name in sorted({*names})
    ]
    assert await caller.put_many(BOX, []) == []


async def test_a_conflict_among_many_names_the_first_and_keeps_the_others(database: Database, caller: Caller) -> None:
    old = Intent(tool="mail.send", operation_id="old")
    await caller.put(BOX, old)
    with pytest.raises(IntentConflict, match="'old'"):
        await caller.put_many(BOX, [Intent(tool="mail.send"), old.model_copy(update={"resource": "r"})])
    await caller.commit()
    assert count(database) == 2


async def test_get_sees_what_its_transaction_and_its_tenant_may_see(caller: Caller) -> None:
    intent = Intent(tool="mail.publish", resource="r")
    await caller.put(BOX, intent)
    seen = await caller.get(BOX, intent.operation_id)
    assert seen is not None
    assert (seen.state, seen.tool, seen.created) == (State.PROPOSED, "mail.publish", False)
    assert await caller.get(Outbox("globex", "checkout"), intent.operation_id) is None
    assert await caller.get(BOX, "nobody") is None


CHANGES: list[dict[str, Any]] = [
    {"tool": "mail.recall"},
    {"resource": None},
    {"arguments": {"to": "b"}},
    {"expected_version": "8"},
    {"ordering_key": "kunde/18"},
    {"not_before": None},
    {"expires_at": NOON + timedelta(microseconds=2)},
    {"compensates": None},
    {"revision_of": "another"},
    {"on_behalf_of": "bob@example.com"},
    {"tool": "mail.recall", "resource": "r", "not_before": NOON - timedelta(hours=1)},
]


@pytest.mark.parametrize("change", CHANGES, ids="+".join)
def test_whatever_else_is_asked_under_an_id_is_a_conflict_that_names_it(
    database: Database, change: dict[str, Any]
) -> None:
    with database.connect("writer") as connection:
        intent = Intent(**EVERY_FIELD)
        BOX.put(connection, intent)
        for put in (BOX.put, lambda where, what: BOX.put_many(where, [what])):
            with pytest.raises(IntentConflict) as conflict:
                put(connection, intent.model_copy(update=change))
            assert set(conflict.value.fields) == set(change)


def test_another_asker_or_another_payload_under_an_id_is_a_conflict_too(database: Database) -> None:
    with database.connect("writer") as connection:
        intent = Intent(tool="mail.send")
        BOX.put(connection, intent)
        with pytest.raises(IntentConflict) as conflict:
            Outbox("acme", "mallory").put(connection, intent)
        assert conflict.value.fields == ("principal_id",)
        with pytest.raises(IntentConflict) as conflict:
            BOX.put(
                connection, Intent(tool="mail.send", operation_id=intent.operation_id, body=b"", content_type="a/b")
            )
        assert set(conflict.value.fields) == {"arguments", "body", "content_type"}


def test_another_trace_is_no_other_action(database: Database) -> None:
    with database.connect("writer") as connection:
        intent = Intent(**EVERY_FIELD)
        BOX.put(connection, intent)
        assert not BOX.put(connection, intent.model_copy(update={"traceparent": None})).created


def test_two_tenants_may_use_one_id(database: Database) -> None:
    with database.connect("writer") as connection:
        intent = Intent(tool="mail.send")
        operations = [Outbox(tenant, "checkout").put(connection, intent) for tenant in ("acme", "globex")]
    assert [operation.created for operation in operations] == [True, True]


def test_a_session_with_its_own_savepoint_and_rows_commits_all_together(database: Database) -> None:
    database.rows("create table public.orders (id int primary key)")
    database.rows("grant insert on public.orders to outbox_writer")
    engine = create_engine(database.dsn_for("writer").replace("postgresql:", "postgresql+psycopg:", 1))
    with Session(engine) as session, session.begin():
        session.execute(text("insert into public.orders values (1)"))
        BOX.put(session, Intent(tool="mail.send"))
        inner = session.begin_nested()
        session.execute(text("insert into public.orders values (2)"))
        with pytest.raises(UnknownTool), inner:
            BOX.put(session, Intent(tool="mail.shred"))
    engine.dispose()
    assert database.rows("select id from public.orders") == [(1,)]
    assert count(database) == 1


def test_a_cursor_of_the_caller_keeps_its_results(database: Database) -> None:
    with database.connect("writer", autocommit=False) as connection:
        cursor = connection.execute("select generate_series(1, 3)")
        assert cursor.fetchone() == (1,)
        BOX.put(cursor, Intent(tool="mail.send"))
        assert cursor.fetchall() == [(2,), (3,)]


def test_more_than_one_batch_is_one_sorted_sequence(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox.query.BATCH_MAX_INTENTS", 3)
    intents = [Intent(tool="mail.send", operation_id=f"o-{number:02}") for number in reversed(range(10))]
    with database.connect("writer", autocommit=False) as connection:
        operations = BOX.put_many(connection, intents)
    assert [operation.operation_id for operation in operations] == [intent.operation_id for intent in intents]
    in_order = database.rows("select operation_id from outbox.intent order by seq")
    assert in_order == sorted(in_order)
    assert len(in_order) == 10


def test_the_database_refuses_what_a_dishonest_library_would_write(database: Database) -> None:
    forged = Intent.model_construct(
        **(Intent(tool="mail.send").model_dump() | {"arguments": "{}" + " " * 300_000, "operation_id": "forged"})
    )
    with (
        database.connect("writer") as connection,
        pytest.raises(InvalidIntent, match="arguments are more than 262144 bytes") as told,
    ):
        BOX.put(connection, forged)
    assert len(str(told.value)) < 200


def test_who_may_not_write_and_where_nothing_is_installed_is_said(database: Database, empty_database: Database) -> None:
    with database.connect("approver") as connection, pytest.raises(NotPermitted, match="Grant outbox_writer"):
        BOX.put(connection, Intent(tool="mail.send"))
    with empty_database.connect() as connection, pytest.raises(SchemaMismatch, match="outbox migrate"):
        BOX.put(connection, Intent(tool="mail.send"))


def test_the_receipt_of_an_operation_stays_out_of_its_repr(database: Database) -> None:
    with database.connect() as connection:
        intent = Intent(tool="mail.send")
        seq = BOX.put(connection, intent).seq
        end(database, seq, receipt='{"iban":"DE00"}')
        ended = BOX.put(connection, intent)
    assert isinstance(ended, Operation)
    assert ended.receipt == '{"iban":"DE00"}'
    assert "DE00" not in repr(ended)
