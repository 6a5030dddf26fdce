"""`wait` returns at the end, is honest when the time is up, and refuses to wait for what cannot come."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from outbox import Intent, NotFound, Outbox, State, WaitInsideTransaction
from outbox.errors import DatabaseUnavailable, UnsupportedConnection
from tests.support.callers import CALLERS, Caller
from tests.support.eventually import eventually
from tests.support.postgres import Database
from tests.support.tools import end, register

INTENT = Intent(tool="mail.send", operation_id="order-17/mail")
SOON = 0.05  # seconds: for waits that are meant to run out
LONG = 30.0  # seconds: for waits that are meant to be ended


@pytest.fixture(autouse=True)
def tools(database: Database) -> None:
    register(database, "mail.send")


@pytest.fixture
def box(database: Database) -> Outbox:
    return Outbox("acme", "checkout", dsn=database.dsn_for("writer"))


@pytest.fixture(params=CALLERS)
async def caller(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Caller]:
    async with CALLERS[request.param](database.dsn_for("writer")) as opened:
        yield opened


def put(database: Database, box: Outbox) -> int:
    with database.connect("writer") as connection:
        return box.put(connection, INTENT).seq


@contextmanager
def looked_at(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event that is set when somebody has looked, seen no end, and is about to pause."""
    pausing = threading.Event()

    def sleep(seconds: float) -> None:
        pausing.set()
        threading.Event().wait(seconds)

    with monkeypatch.context() as patched:
        patched.setattr("outbox.client.time.sleep", sleep)
        yield pausing


async def test_an_end_that_is_there_is_returned_at_once(database: Database, box: Outbox, caller: Caller) -> None:
    end(database, put(database, box))
    assert (await caller.wait(box, INTENT.operation_id, 0)).state is State.SUCCEEDED


async def test_when_the_time_is_up_the_state_is_told_as_it_is(database: Database, box: Outbox, caller: Caller) -> None:
    put(database, box)
    operation = await caller.wait(box, INTENT.operation_id, SOON)
    assert (operation.state, operation.ended) == (State.AUTHORIZED, False)


async def test_waiting_inside_the_transaction_that_put_is_refused(box: Outbox, caller: Caller) -> None:
    await caller.put(box, INTENT)
    with pytest.raises(WaitInsideTransaction, match="Commit, then wait"):
        await caller.wait(box, INTENT.operation_id, LONG)
    await caller.commit()
    assert (await caller.wait(box, INTENT.operation_id, 0)).state is State.AUTHORIZED


async def test_waiting_inside_the_transaction_that_put_many_is_refused(box: Outbox, caller: Caller) -> None:
    await caller.put_many(box, [INTENT])
    await caller.execute("savepoint inner_part")
    with pytest.raises(WaitInsideTransaction):
        await caller.wait(box, INTENT.operation_id, LONG)


async def test_waiting_elsewhere_while_ones_own_transaction_is_open_is_refused(box: Outbox, caller: Caller) -> None:
    await caller.put(box, INTENT)
    with pytest.raises(WaitInsideTransaction):
        box.wait(INTENT.operation_id, LONG)
    with pytest.raises(WaitInsideTransaction):
        await box.await_(INTENT.operation_id, LONG)
    await caller.commit()
    assert not (await box.await_(INTENT.operation_id, 0)).ended


def test_another_thread_may_wait_for_a_transaction_that_is_about_to_commit(
    database: Database, box: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        looked_at(database, monkeypatch) as pausing,
        ThreadPoolExecutor(1) as pool,
        database.connect("writer", autocommit=False) as connection,
    ):
        seq = box.put(connection, INTENT).seq
        waiting = pool.submit(box.wait, INTENT.operation_id, LONG)
        assert pausing.wait(LONG)
        connection.commit()
        end(database, seq)
        assert waiting.result().state is State.SUCCEEDED


async def test_a_task_awaits_the_end_while_others_go_on(database: Database, box: Outbox) -> None:
    seq = put(database, box)
    waiting = asyncio.create_task(box.await_(INTENT.operation_id, LONG))
    await asyncio.sleep(0)
    await asyncio.to_thread(end, database, seq)
    operation = await waiting
    assert (operation.state, operation.external_id) == (State.SUCCEEDED, "m-1")


def test_a_wait_on_a_given_connection_sees_an_end_that_comes_later(
    database: Database, box: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    seq = put(database, box)
    with (
        looked_at(database, monkeypatch) as pausing,
        ThreadPoolExecutor(1) as pool,
        database.connect("writer", autocommit=False) as connection,
    ):
        waiting = pool.submit(box.wait, INTENT.operation_id, LONG, connection=connection)
        assert pausing.wait(LONG)
        end(database, seq)
        assert waiting.result().ended


def test_a_snapshot_that_can_never_see_the_end_is_no_place_to_wait(database: Database, box: Outbox) -> None:
    put(database, box)
    with database.connect("writer", autocommit=False) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(WaitInsideTransaction, match="repeatable read transaction sees one moment only"):
            box.wait(INTENT.operation_id, LONG, connection=connection)
        connection.rollback()
        connection.autocommit = True
        assert not box.wait(INTENT.operation_id, SOON, connection=connection).ended


def test_what_nobody_put_is_not_found_when_the_time_is_up(box: Outbox) -> None:
    with pytest.raises(NotFound, match="no operation 'nobody'"):
        box.wait("nobody", SOON)


def test_a_wait_needs_a_connection_or_a_dsn(database: Database) -> None:
    with pytest.raises(UnsupportedConnection, match="Give a connection, or Outbox a dsn"):
        Outbox("acme", "checkout").wait(INTENT.operation_id, SOON)


async def test_a_database_that_is_not_there_is_said_without_the_password(free_port: int) -> None:
    box = Outbox("acme", "checkout", dsn=f"postgresql://u:hush@127.0.0.1:{free_port}/db")
    for attempt in (box.await_("o", SOON), asyncio.to_thread(box.wait, "o", SOON)):
        with pytest.raises(DatabaseUnavailable) as unavailable:
            await attempt
        assert "hush" not in str(unavailable.value)
    assert "hush" not in repr(box)


def test_a_connection_of_its_own_is_closed_again(database: Database, box: Outbox) -> None:
    put(database, box)
    box.wait(INTENT.operation_id, SOON)
    query = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    eventually(lambda: database.value(query) == 0)
