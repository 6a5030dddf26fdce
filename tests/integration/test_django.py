"""Django: an intent lives and dies with the atomic block, and a put without one is refused instead of silent."""

from collections.abc import Iterator
from typing import Any

import django.db
import pytest
from django.db import transaction
from django.test import override_settings

from outbox import Intent, Outbox, State, UnknownTool
from outbox import django as outbox_django
from outbox.errors import NotInTransaction, UnsupportedConnection
from tests.support.callers import django_connection
from tests.support.postgres import Database
from tests.support.tools import end, register

BOX = Outbox("acme", "checkout")
INTENT = Intent(tool="mail.send", operation_id="order-17/mail")


@pytest.fixture(autouse=True)
def service(database: Database) -> None:
    register(database, "mail.send")
    database.rows("create table public.orders (id int primary key)")
    database.rows("grant insert on public.orders to outbox_writer")


@pytest.fixture
def connection(database: Database) -> Iterator[Any]:
    """The default database, of a login that may only write."""
    with django_connection(database.dsn_for("writer")) as opened:
        yield opened


def order(number: int) -> None:
    with django.db.connection.cursor() as cursor:
        cursor.execute("insert into public.orders values (%s)", [number])


def test_rows_and_intents_commit_together(database: Database, connection: Any) -> None:
    with transaction.atomic():
        order(1)
        assert outbox_django.put(BOX, INTENT).created
        assert database.value("select count(*) from outbox.intent") == 0
    assert database.rows("select id from public.orders") == [(1,)]
    assert database.value("select count(*) from outbox.pending") == 1


def test_a_block_that_fails_takes_its_intents_along_and_an_inner_one_only_its_own(
    database: Database, connection: Any
) -> None:
    def failing() -> None:
        with transaction.atomic():
            outbox_django.put(BOX, INTENT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    with transaction.atomic():
        outbox_django.put(BOX, Intent(tool="mail.send", operation_id="kept"))
        with pytest.raises(UnknownTool, match="outbox apply"), transaction.atomic():
            outbox_django.put_many(BOX, [INTENT, Intent(tool="mail.shred")])
        order(1)
    assert database.rows("select operation_id from outbox.intent") == [("kept",)]
    assert database.rows("select id from public.orders") == [(1,)]


@pytest.mark.parametrize("proxy", [False, True])
def test_a_put_outside_of_a_block_is_refused_and_writes_nothing(
    database: Database, connection: Any, proxy: bool
) -> None:
    handle = django.db.connection if proxy else connection
    for attempt in (
        lambda: outbox_django.put(BOX, INTENT),
        lambda: BOX.put(handle, INTENT),
        lambda: BOX.put_many(handle, [INTENT]),
    ):
        with pytest.raises(NotInTransaction, match=r"would commit alone.* Put it inside of transaction.atomic\(\)"):
            attempt()
    assert database.value("select count(*) from outbox.intent") == 0


def test_reading_waiting_and_the_feed_need_no_block(database: Database, connection: Any) -> None:
    with transaction.atomic():
        seq = outbox_django.put(BOX, INTENT).seq
    assert outbox_django.get(BOX, "nobody") is None
    assert outbox_django.wait(BOX, INTENT.operation_id, 0).state is State.AUTHORIZED
    end(database, seq)
    assert outbox_django.wait(BOX, INTENT.operation_id, 0).state is State.SUCCEEDED
    (ended,) = outbox_django.feed(BOX)
    assert list(outbox_django.feed(BOX, after=ended.cursor)) == []


@pytest.mark.parametrize("use_tz", [True, False])
def test_times_are_aware_and_the_same_whatever_django_does_with_zones(database: Database, use_tz: bool) -> None:
    with django_connection(database.dsn_for("writer"), TIME_ZONE=None):
        pass  # settings exist now
    with override_settings(USE_TZ=use_tz), django_connection(database.dsn_for("writer")), transaction.atomic():
        operation = outbox_django.put(BOX, INTENT)
    assert operation.created_at is not None
    assert operation.created_at == database.value("select created_at from outbox.intent")


def test_another_database_is_named_by_its_alias(database: Database) -> None:
    with django_connection(database.dsn_for("writer"), "orders"):
        with transaction.atomic(using="orders"):
            outbox_django.put(BOX, INTENT, using="orders")
        assert outbox_django.get(BOX, INTENT.operation_id, using="orders") is not None


def test_a_database_that_is_not_postgresql_is_refused(database: Database) -> None:
    with django_connection(database.dsn):
        handler = django.db.utils.ConnectionHandler(
            {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
        )
        with pytest.raises(UnsupportedConnection, match="leads to sqlite"):
            BOX.put(handler["default"], INTENT)
