"""The inbox itself: its functions called as their roles call them, two at a time where that is the question."""

import json
import os
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.rows import dict_row

from outbox import sql
from outbox.errors import NotPermitted, Refused
from outbox.receivers.postgres import kit
from tests.support.eventually import eventually
from tests.support.inbox import NAME, TOOL, Inbox, inbox_on
from tests.support.postgres import Cluster, Database

T = TypeVar("T")
Row = dict[str, Any]
STATEMENTS = sql.load("inbox")
KEY = uuid.UUID("8e03978e-40d5-53dd-8c93-6894a57f9324")
LOCK = 71
# Roles belong to the cluster, which other tests may use at the same time.
KEEPER, NOBODY = f"outbox_test_keeper_{os.getpid()}", f"outbox_test_nobody_{os.getpid()}"


@dataclass
class Callers:
    """Logins of an inbox; what each does may block."""

    inbox: Inbox
    threads: ThreadPoolExecutor
    open: list[psycopg.Connection[Row]] = field(default_factory=list)

    def connect(self, dsn: str, *, autocommit: bool = True) -> psycopg.Connection[Row]:
        made = psycopg.connect(dsn, autocommit=autocommit, row_factory=dict_row)
        self.open.append(made)
        return made

    def receive(
        self, arguments: str = '{"quantity":1}', *, on: psycopg.Connection[Row] | None = None, **changes: Any
    ) -> Row:
        given = {
            "inbox": NAME,
            "sent_key": KEY,
            "attempt": 1,
            "lane": None,
            "fence": None,
            "digest": b"d",
            "tenant_id": "acme",
            "operation_id": "op",
            "tool": TOOL,
            "resource": "item-1",
            "arguments": arguments,
            "expected_version": None,
            "content_type": None,
            "body": None,
        }
        connection = on or self.connect(self.inbox.receiver_dsn)
        return one(connection.execute(STATEMENTS["receive"], {**given, **changes}))

    def look(self, attempt: int = 1, *, on: psycopg.Connection[Row] | None = None, **changes: Any) -> Row:
        given = {"inbox": NAME, "sent_key": KEY, "attempt": attempt, "tenant_id": "acme", "operation_id": "op"}
        connection = on or self.connect(self.inbox.looker_dsn)
        return one(connection.execute(STATEMENTS["look"], {**given, "tool": TOOL, **changes}))

    def start(self, act: Callable[[], T]) -> "Future[T]":
        return self.threads.submit(act)

    def until_waiting(self, number: int) -> None:
        eventually(lambda: self.inbox.waiting() == number, claim=f"{number} calls wait")


def one(cursor: psycopg.Cursor[Row]) -> Row:
    (row,) = cursor.fetchall()
    return row


@pytest.fixture(scope="module")
def shop(postgres: Cluster) -> Iterator[Inbox]:
    with inbox_on(postgres) as made:
        yield made


@pytest.fixture
def inbox(shop: Inbox) -> Inbox:
    shop.database.rows("truncate inbox.operation, inbox.lane, shop.movement")
    shop.database.rows("update shop.mood set refuses = false")
    return shop


@pytest.fixture
def callers(inbox: Inbox) -> Iterator[Callers]:
    with ThreadPoolExecutor() as threads:
        made = Callers(inbox, threads)
        yield made
        for connection in made.open:
            connection.close()


# --------------------------------------------------------------------------------------------------------- at most once


def test_a_repeat_is_answered_with_the_receipt_of_the_first(callers: Callers, inbox: Inbox) -> None:
    asked = '{"quantity":1,"receipt":{"external_id":"m-1","left":4}}'
    first = callers.receive(asked)
    assert first == {"said": "effect", "receipt": '{"left": 4, "external_id": "m-1"}', "external_id": "m-1"}
    assert callers.receive(asked, attempt=2) == {**first, "said": "repeated"}
    assert inbox.effects(str(KEY)) == 1


def test_another_request_under_the_same_key_is_a_mismatch_and_shows_no_receipt(callers: Callers, inbox: Inbox) -> None:
    callers.receive('{"receipt":"mine"}')
    assert callers.receive(digest=b"other") == {"said": "mismatch", "receipt": None, "external_id": None}
    assert inbox.effects(str(KEY)) == 1


def test_two_attempts_at_once_have_one_effect(callers: Callers, inbox: Inbox) -> None:
    asked = f'{{"quantity":1,"wait_for":{LOCK}}}'
    with inbox.holding(LOCK):
        calls = [callers.start(partial(callers.receive, asked, attempt=number)) for number in (1, 2)]
        # One waits in its handler, the other for the one.
        callers.until_waiting(2)
    assert sorted(call.result()["said"] for call in calls) == ["effect", "repeated"]
    assert inbox.effects(str(KEY)) == 1


def test_an_error_of_the_handler_leaves_nothing_and_the_next_attempt_is_free(callers: Callers, inbox: Inbox) -> None:
    with pytest.raises(pg.CheckViolation):
        callers.receive('{"quantity":1000}')
    assert inbox.database.value("select count(*) from inbox.operation") == 0
    assert callers.receive(attempt=2)["said"] == "effect"


def test_an_error_at_the_commit_leaves_nothing_either(callers: Callers, inbox: Inbox) -> None:
    with pytest.raises(pg.ForeignKeyViolation):
        callers.receive('{"break_at_commit":true}')
    assert inbox.effects(str(KEY)) == 0
    assert callers.look()["said"] == "nothing"


# ---------------------------------------------------------------------------------------------------------------- looks


def test_a_look_shuts_out_the_attempts_from_before_it_and_no_others(callers: Callers, inbox: Inbox) -> None:
    assert callers.look(2) == {"said": "nothing", "refused_to": 2, "receipt": None, "external_id": None}
    assert [callers.receive(attempt=number)["said"] for number in (1, 2)] == ["shut_out", "shut_out"]
    assert inbox.effects(str(KEY)) == 0
    assert callers.receive(attempt=3)["said"] == "effect"
    # Whoever comes late is told what is true by now.
    assert callers.receive(attempt=1)["said"] == "repeated"
    assert inbox.effects(str(KEY)) == 1


def test_an_older_look_takes_nothing_back(callers: Callers) -> None:
    callers.look(5)
    assert callers.look(2)["refused_to"] == 5
    assert callers.receive(attempt=4)["said"] == "shut_out"


def test_a_look_finds_the_effect_and_changes_nothing_about_it(callers: Callers, inbox: Inbox) -> None:
    callers.receive('{"receipt":{"external_id":7}}')
    before = inbox.database.rows("select * from inbox.operation")
    assert callers.look(9) == {"said": "effect", "refused_to": 0, "receipt": '{"external_id": 7}', "external_id": "7"}
    assert inbox.database.rows("select * from inbox.operation") == before


def test_a_look_without_an_attempt_leaves_nothing(callers: Callers, inbox: Inbox) -> None:
    assert callers.look(0)["said"] == "nothing"
    assert inbox.database.value("select count(*) from inbox.operation") == 0


@pytest.mark.parametrize(("ending", "said"), [("", "effect"), (',"raise":"P0001"', "nothing")])
def test_a_look_waits_for_a_transaction_that_is_open(callers: Callers, inbox: Inbox, ending: str, said: str) -> None:
    """It never says `nothing` of an attempt that may still commit, however long that takes."""
    asked = f'{{"quantity":1,"wait_for":{LOCK}{ending}}}'
    with inbox.holding(LOCK):
        attempt = callers.start(lambda: callers.receive(asked))
        callers.until_waiting(1)
        look = callers.start(callers.look)
        callers.until_waiting(2)
        assert not look.done()
    assert look.result()["said"] == said
    assert (attempt.exception() is None) is (said == "effect")
    assert inbox.effects(str(KEY)) == (said == "effect")


def test_an_attempt_waits_for_a_look_that_is_open_and_is_shut_out_by_it(callers: Callers, inbox: Inbox) -> None:
    looking = callers.connect(inbox.looker_dsn, autocommit=False)
    assert callers.look(1, on=looking)["said"] == "nothing"
    attempt = callers.start(callers.receive)
    callers.until_waiting(1)
    looking.commit()
    assert attempt.result()["said"] == "shut_out"
    assert inbox.effects(str(KEY)) == 0


def test_a_look_that_was_rolled_back_shut_nothing_out(callers: Callers, inbox: Inbox) -> None:
    looking = callers.connect(inbox.looker_dsn, autocommit=False)
    callers.look(1, on=looking)
    attempt = callers.start(callers.receive)
    callers.until_waiting(1)
    looking.rollback()
    assert attempt.result()["said"] == "effect"


def test_the_table_itself_refuses_an_effect_that_was_shut_out(inbox: Inbox) -> None:
    with pytest.raises(pg.CheckViolation):
        inbox.database.rows(
            "insert into inbox.operation (sent_key, refused_to, attempt, digest, tenant_id, operation_id, tool)"
            " values (gen_random_uuid(), 3, 3, 'd', 'acme', 'op', 'x')"
        )


def test_what_is_forgotten_can_happen_again_and_nothing_else_is_forgotten(callers: Callers, inbox: Inbox) -> None:
    callers.receive()
    callers.look(sent_key=uuid.uuid4())
    assert inbox.database.value("select inbox.forget('1 hour')") == 0
    inbox.database.rows("update inbox.operation set changed_at = changed_at - interval '2 hours'")
    callers.receive(sent_key=uuid.uuid4())
    assert inbox.database.value("select inbox.forget('1 hour', 1)") == 1
    assert inbox.database.value("select inbox.forget('1 hour')") == 1
    assert inbox.database.value("select count(*) from inbox.operation") == 1


# --------------------------------------------------------------------------------------------------------------- fences


def under(fence: int, key: int, lane: str = "a/shop/0", **changes: Any) -> Row:
    return {"lane": lane, "fence": fence, "sent_key": uuid.UUID(int=key), **changes}


def test_under_an_older_fence_nothing_has_an_effect_any_more(callers: Callers, inbox: Inbox) -> None:
    assert callers.receive(**under(7, 1))["said"] == "effect"
    assert callers.receive(**under(6, 2))["said"] == "stale_fence"
    assert callers.receive(**under(7, 3))["said"] == "effect"
    assert callers.receive(**under(6, 4, lane="a/shop/1"))["said"] == "effect"
    assert inbox.database.value("select count(*) from shop.movement") == 3


def test_an_era_puts_every_fence_of_the_life_before_behind_it(callers: Callers) -> None:
    """A failover of the outbox: fences are era << 40 | counter, and the counter may have gone back."""
    assert callers.receive(**under((3 << 40) | 900, 1))["said"] == "effect"
    assert callers.receive(**under((4 << 40) | 2, 2))["said"] == "effect"
    assert callers.receive(**under((3 << 40) | 901, 3))["said"] == "stale_fence"


def test_a_newer_fence_waits_for_what_is_under_way_under_an_older_one(callers: Callers, inbox: Inbox) -> None:
    callers.receive(**under(6, 9))
    slow = f'{{"wait_for":{LOCK}}}'
    with inbox.holding(LOCK):
        old = callers.start(lambda: callers.receive(slow, **under(6, 1)))
        callers.until_waiting(1)
        new = callers.start(lambda: callers.receive(**under(7, 2)))
        callers.until_waiting(2)
        # An old holder that goes on meanwhile gets in line behind it.
        late = callers.start(lambda: callers.receive(**under(6, 3)))
        callers.until_waiting(3)
        assert not new.done()
        assert not late.done()
    assert old.result()["said"] == "effect"
    assert new.result()["said"] == "effect"
    assert late.result()["said"] == "stale_fence"


def test_attempts_under_one_fence_do_not_wait_for_each_other(callers: Callers, inbox: Inbox) -> None:
    callers.receive(**under(7, 9))
    with inbox.holding(LOCK):
        slow = callers.start(lambda: callers.receive(f'{{"wait_for":{LOCK}}}', **under(7, 1)))
        callers.until_waiting(1)
        assert callers.receive(**under(7, 2))["said"] == "effect"
    assert slow.result()["said"] == "effect"


def test_a_fence_is_raised_by_an_effect_and_not_by_an_attempt_that_failed(callers: Callers) -> None:
    with pytest.raises(pg.RaiseException):
        callers.receive('{"raise":"P0001"}', **under(8, 1))
    assert callers.receive(**under(7, 2))["said"] == "effect"


# ------------------------------------------------------------------------------------------- what every call is held to


def test_a_call_for_another_inbox_is_refused(callers: Callers, inbox: Inbox) -> None:
    for call in (callers.receive, callers.look):
        with pytest.raises(psycopg.Error, match="this is the inbox shop, not warehouse") as refused:
            call(inbox="warehouse")
        assert refused.value.sqlstate == "OB421"
    assert inbox.database.value("select count(*) from inbox.operation") == 0


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_only_read_committed_sees_what_others_committed_meanwhile_and_so_is_asked_for(
    callers: Callers, inbox: Inbox, level: str
) -> None:
    connection = callers.connect(inbox.receiver_dsn)
    connection.execute(f"set default_transaction_isolation = '{level}'".encode())
    with pytest.raises(psycopg.Error, match="needs READ COMMITTED") as refused:
        callers.receive(on=connection)
    assert refused.value.sqlstate == "OB428"


@pytest.mark.parametrize(("setting", "then"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
def test_no_effect_and_no_tombstone_is_committed_asynchronously(
    callers: Callers, inbox: Inbox, setting: str, then: str
) -> None:
    for dsn in (inbox.receiver_dsn, inbox.looker_dsn):
        connection = callers.connect(
            psycopg.conninfo.make_conninfo(dsn, options=f"-c synchronous_commit={setting}"), autocommit=False
        )
        act = callers.receive if dsn == inbox.receiver_dsn else callers.look
        act(on=connection)
        assert one(connection.execute("show synchronous_commit")) == {"synchronous_commit": then}
        connection.rollback()


@pytest.mark.parametrize(
    ("setting", "then"), [("synchronous_commit=off", "on"), ("client_min_messages=error", "warning")]
)
def test_a_handler_cannot_take_away_what_its_commit_rests_on(
    callers: Callers, inbox: Inbox, setting: str, then: str
) -> None:
    name, value = setting.split("=")
    connection = callers.connect(inbox.receiver_dsn, autocommit=False)
    assert callers.receive(json.dumps({"set": name, "to": value}), on=connection)["said"] == "effect"
    assert one(connection.execute("select current_setting(%s) as value", [name])) == {"value": then}
    connection.rollback()


def test_the_settings_that_promises_rest_on_are_in_force(callers: Callers, inbox: Inbox) -> None:
    for dsn in (inbox.receiver_dsn, inbox.looker_dsn):
        connection = callers.connect(dsn)
        rows = connection.execute("select name, setting from pg_settings where source = 'database user'").fetchall()
        settings = {row["name"]: row["setting"] for row in rows}
        assert settings == {
            "client_connection_check_interval": "1000",
            "default_transaction_isolation": "read committed",
            "idle_in_transaction_session_timeout": "10000",
            "statement_timeout": "60000",
            "synchronous_commit": "on",
        }


# --------------------------------------------------------------------------------------------------------------- rights

FORBIDDEN = {
    "receiver": (
        "select * from inbox.operation",
        "delete from inbox.operation",
        "insert into inbox.handler values ('x', 'shop', 'move')",
        "update inbox.lane set fence = 0",
        "select inbox.forget('0')",
        "select inbox.call_it('other', 1)",
        "select inbox.handle('x', 'shop.move(inbox.request)')",
        "select * from inbox.look('shop', gen_random_uuid(), 1, 'acme', 'op', 'stock.move')",
        "select shop.move(null)",
        "select * from shop.movement",
    ),
    "looker": (
        "select * from inbox.operation",
        "delete from inbox.operation",
        "select inbox.forget('0')",
        "select * from inbox.receive('shop', gen_random_uuid(), 1, null, null, 'd', 'a', 'o', 't', '', '', '', '', '')",
        "select shop.move(null)",
    ),
}


@pytest.mark.parametrize(("who", "statement"), [(who, text) for who, texts in FORBIDDEN.items() for text in texts])
def test_a_login_of_the_inbox_can_make_its_one_call_and_nothing_else(
    callers: Callers, inbox: Inbox, who: str, statement: str
) -> None:
    connection = callers.connect(inbox.receiver_dsn if who == "receiver" else inbox.looker_dsn)
    with pytest.raises(pg.InsufficientPrivilege):
        connection.execute(statement.encode())


def test_every_statement_that_is_sent_fits_the_inbox_and_the_rights_of_its_login(
    callers: Callers, inbox: Inbox
) -> None:
    for name, dsn in (("receive", inbox.receiver_dsn), ("look", inbox.looker_dsn)):
        text, _ = sql.with_numbers(STATEMENTS[name])
        connection = callers.connect(dsn)
        connection.execute(f"prepare checked as {text}".encode())
        nothing = ", ".join(["null"] * len(set(re.findall(r"\$\d+", text))))
        connection.execute(f"explain execute checked({nothing})".encode())


# ------------------------------------------------------------------------------------------------------------- handlers

FIT = "(asked inbox.request) returns jsonb language sql security definer set search_path = shop, pg_temp"
UNFIT = {
    "it is no function that returns one jsonb": FIT.replace("jsonb", "text"),
    "it is no function that returns one jsonb, but many": FIT.replace("returns jsonb", "returns setof jsonb"),
    "it does not take one inbox.request": FIT.replace("(asked inbox.request)", "(asked inbox.request, more int)"),
    "it is not SECURITY DEFINER": FIT.replace("security definer", "security invoker"),
    "it does not SET search_path": FIT.replace("set search_path = shop, pg_temp", ""),
}


@pytest.mark.parametrize("reason", UNFIT)
def test_what_is_not_fit_to_be_a_handler_is_refused(inbox: Inbox, reason: str) -> None:
    head, arguments = UNFIT[reason], "inbox.request, int" if "more int" in UNFIT[reason] else "inbox.request"
    with inbox.database.connect(autocommit=False) as connection:
        connection.execute(f"create function shop.unfit{head} as 'select null::{_returned(head)}'".encode())
        with pytest.raises(psycopg.Error, match=re.escape(reason.partition(",")[0])):
            connection.execute(f"select inbox.handle('other', 'shop.unfit({arguments})')".encode())
        connection.rollback()


def _returned(head: str) -> str:
    return "text" if "returns text" in head else "jsonb"


def test_a_handler_that_was_replaced_is_checked_again_before_it_is_called(callers: Callers, inbox: Inbox) -> None:
    """It would run with the rights of the inbox's owner."""
    with inbox.database.connect() as connection:
        connection.execute(f"create function shop.later{FIT} as 'select null::jsonb'".encode())
        connection.execute("select inbox.handle('stock.later', 'shop.later(inbox.request)')")
        assert callers.receive(tool="stock.later")["said"] == "effect"
        connection.execute("alter function shop.later(inbox.request) security invoker")
        with pytest.raises(psycopg.Error, match="is not SECURITY DEFINER") as refused:
            callers.receive(tool="stock.later", sent_key=uuid.uuid4())
        assert refused.value.sqlstate == "OB403"
        connection.execute("alter function shop.later(inbox.request) security definer")
        connection.execute("grant execute on function shop.later(inbox.request) to public")
        with pytest.raises(psycopg.Error, match="everybody may call it past the inbox"):
            callers.receive(tool="stock.later", sent_key=uuid.uuid4())
        connection.execute("drop function shop.later(inbox.request)")
        with pytest.raises(psycopg.Error, match="does not exist"):
            callers.receive(tool="stock.later", sent_key=uuid.uuid4())
        # What had its effect before is still answered.
        assert callers.receive(tool="stock.later")["said"] == "repeated"


def test_a_tool_that_nobody_carries_out_is_refused_by_name(callers: Callers) -> None:
    with pytest.raises(psycopg.Error, match=r"no handler carries out the tool stock\.burn") as refused:
        callers.receive(tool="stock.burn")
    assert refused.value.sqlstate == "OB404"


def test_names_that_must_be_quoted_are(callers: Callers, inbox: Inbox) -> None:
    with inbox.database.connect() as connection:
        connection.execute(
            """
            create schema "Sh""op; drop";
            create function "Sh""op; drop"."move; it's"(inbox.request) returns jsonb language sql security definer
              set search_path = pg_catalog, pg_temp as $$ select to_jsonb(($1).tool) $$;
            select inbox.handle('Tool; --', '"Sh""op; drop"."move; it''s"(inbox.request)');
            """
        )
    assert callers.receive(tool="Tool; --")["receipt"] == '"Tool; --"'


def test_a_handler_may_belong_to_somebody_else_who_grants_it_to_the_owner(callers: Callers, inbox: Inbox) -> None:
    with inbox.database.connect() as connection:
        connection.execute(f"drop role if exists {KEEPER}".encode())
        connection.execute(f"create role {KEEPER}".encode())
        try:
            connection.execute(f"grant usage on schema inbox to {KEEPER}".encode())
            connection.execute(f"create schema keeper authorization {KEEPER}".encode())
            connection.execute(f"set role {KEEPER}".encode())
            head = FIT.replace("shop", "keeper")
            connection.execute(f"create function keeper.who{head} as 'select to_jsonb(current_user)'".encode())
            connection.execute("reset role")
            connection.execute("select inbox.handle('who', 'keeper.who(inbox.request)')")
            assert callers.receive(tool="who")["receipt"] == f'"{KEEPER}"'
        finally:
            connection.execute("reset role")
            connection.execute(f"drop owned by {KEEPER} cascade".encode())
            connection.execute(f"drop role {KEEPER}".encode())


# ----------------------------------------------------------------------------------------------------------- installing


def test_installing_again_changes_nothing_and_another_name_is_refused(inbox: Inbox, callers: Callers) -> None:
    callers.receive()
    kit.install(inbox.database.dsn, NAME)
    assert callers.receive()["said"] == "repeated"
    with pytest.raises(Refused, match="This inbox is called shop"):
        kit.install(inbox.database.dsn, "warehouse")


def test_two_hosts_may_install_at_once(empty_database: Database) -> None:
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda _: kit.install(empty_database.dsn, NAME), range(3)))
    assert empty_database.rows("select name, version from inbox.identity") == [(NAME, kit.KIT_VERSION)]


def test_the_printed_sql_installs_it_too(empty_database: Database) -> None:
    with empty_database.connect() as connection:
        connection.execute(kit.sql_text("it's_mine").encode())
    assert empty_database.value("select name from inbox.identity") == "it's_mine"


def test_who_may_not_install_is_told_what_somebody_else_must_run(empty_database: Database) -> None:
    with empty_database.connect() as connection:
        connection.execute(f"drop role if exists {NOBODY}".encode())
        connection.execute(f"create role {NOBODY} login".encode())
    try:
        dsn = psycopg.conninfo.make_conninfo(empty_database.dsn, user=NOBODY)
        with pytest.raises(NotPermitted) as refused:
            kit.install(dsn, NAME)
        assert kit.sql_text(NAME) in (refused.value.hint or "")
    finally:
        with empty_database.connect() as connection:
            connection.execute(f"drop role {NOBODY}".encode())
