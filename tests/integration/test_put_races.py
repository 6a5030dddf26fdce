"""Two writers and one id: who waits, who is told what, and that nobody can make a second operation of it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from outbox import Intent, IntentRace, Operation, Outbox
from outbox.query import put_many
from outbox.sql import load
from tests.support.eventually import eventually
from tests.support.postgres import Database
from tests.support.tools import register

BOX = Outbox("acme", "checkout")
ABOVE_READ_COMMITTED = [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]
EVERY_LEVEL = [psycopg.IsolationLevel.READ_COMMITTED, *ABOVE_READ_COMMITTED]


@pytest.fixture(autouse=True)
def tools(database: Database) -> None:
    register(database, "mail.send")


@contextmanager
def writer(
    database: Database, level: psycopg.IsolationLevel = psycopg.IsolationLevel.READ_COMMITTED
) -> Iterator[psycopg.Connection[Any]]:
    """A connection in no transaction yet, at that isolation level."""
    with database.connect("writer", autocommit=False) as connection:
        connection.isolation_level = level
        yield connection
        connection.rollback()


@contextmanager
def aside(database: Database, act: Callable[[], Any], connection: psycopg.Connection[Any]) -> Iterator[Future[Any]]:
    """Run `act` in a thread, and go on when the server says that its connection waits for another transaction."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(act)
        query = "select count(*) from pg_locks where pid = %s and not granted"
        eventually(lambda: database.value(query, connection.info.backend_pid) or future.done())
        assert not future.done(), future.result()
        yield future


def test_a_second_writer_waits_and_is_answered_by_the_first_ones_operation(database: Database) -> None:
    intent = Intent(tool="mail.send")
    with writer(database) as first, writer(database) as second:
        made = BOX.put(first, intent)
        with aside(database, lambda: BOX.put(second, intent), second) as waiting:
            first.commit()
        answer: Operation = waiting.result()
    assert (made.created, answer.created, answer.seq) == (True, False, made.seq)


def test_a_second_writer_waits_and_inserts_if_the_first_one_rolls_back(database: Database) -> None:
    intent = Intent(tool="mail.send")
    with writer(database) as first, writer(database) as second:
        BOX.put(first, intent)
        with aside(database, lambda: BOX.put(second, intent), second) as waiting:
            first.rollback()
        answer: Operation = waiting.result()
        second.commit()
    assert answer.created
    assert database.value("select count(*) from outbox.intent") == 1


@pytest.mark.parametrize("level", ABOVE_READ_COMMITTED)
def test_above_read_committed_the_loser_of_a_race_is_told_to_run_again(
    database: Database, level: psycopg.IsolationLevel
) -> None:
    intent = Intent(tool="mail.send")
    with writer(database, level) as first, writer(database, level) as second:
        BOX.put(first, intent)
        with aside(database, lambda: BOX.put(second, intent), second) as waiting:
            first.commit()
        with pytest.raises(IntentRace, match="run the whole transaction again") as race:
            waiting.result()
        assert race.value.sqlstate == "40001"
        second.rollback()
        again = BOX.put(second, intent)
    assert not again.created


@pytest.mark.parametrize("level", ABOVE_READ_COMMITTED)
@pytest.mark.parametrize("many", [False, True])
def test_above_read_committed_an_older_snapshot_is_a_race_too_without_any_wait(
    database: Database, level: psycopg.IsolationLevel, many: bool
) -> None:
    intent = Intent(tool="mail.send")
    with writer(database) as first, writer(database, level) as second:
        assert BOX.get(second, intent.operation_id) is None
        BOX.put(first, intent)
        first.commit()
        with pytest.raises(IntentRace):
            BOX.put_many(second, [intent]) if many else BOX.put(second, intent)


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_eight_writers_at_a_barrier_make_one_operation(database: Database, level: psycopg.IsolationLevel) -> None:
    intents = [Intent(tool="mail.send", operation_id=f"o-{number}") for number in range(5)]
    barrier = threading.Barrier(8, timeout=30)

    def write() -> list[Operation]:
        with writer(database, level) as connection:
            made = []
            for intent in intents:
                barrier.wait()
                while True:
                    try:
                        made.append(BOX.put(connection, intent))
                        connection.commit()
                        break
                    except IntentRace:
                        connection.rollback()
            return made

    with ThreadPoolExecutor(8) as pool:
        answers = [future.result() for future in [pool.submit(write) for _ in range(8)]]
    for of_one_id in zip(*answers, strict=True):
        assert len({operation.seq for operation in of_one_id}) == 1
        assert sum(operation.created for operation in of_one_id) == 1


def test_many_never_hold_a_later_id_while_they_wait_for_an_earlier_one(database: Database) -> None:
    a, b = (Intent(tool="mail.send", operation_id=name) for name in "ab")
    with writer(database) as first, writer(database) as second:
        BOX.put(first, a)
        with aside(database, lambda: BOX.put_many(second, [b, a]), second) as waiting:
            # Were `b` held by the second writer, this would close the circle.
            assert BOX.put(first, b).created
            first.commit()
        assert [operation.created for operation in waiting.result()] == [False, False]


def test_single_puts_in_opposite_orders_end_as_a_race_for_one_of_them(database: Database) -> None:
    a, b = (Intent(tool="mail.send", operation_id=name) for name in "ab")
    with writer(database) as first, writer(database) as second:
        BOX.put(first, a)
        BOX.put(second, b)
        with aside(database, lambda: BOX.put(first, b), first) as waiting:
            outcomes = [attempt(second, a)]
            # Whoever was chosen has lost the lock that the other one waits for.
        outcomes.append(attempt_of(waiting))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["IntentRace", "Operation"]
    assert [outcome.sqlstate for outcome in outcomes if isinstance(outcome, IntentRace)] == ["40P01"]


def attempt(connection: psycopg.Connection[Any], intent: Intent) -> Operation | IntentRace:
    try:
        return BOX.put(connection, intent)
    except IntentRace as race:
        connection.rollback()
        return race
    finally:
        if connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
            connection.commit()


def attempt_of(future: Future[Operation]) -> Operation | IntentRace:
    try:
        return future.result()
    except IntentRace as race:
        return race


def test_a_lock_timeout_of_the_caller_ends_the_wait_as_the_drivers_own_error(database: Database) -> None:
    intent = Intent(tool="mail.send")
    with writer(database) as first, writer(database) as second:
        BOX.put(first, intent)
        second.execute("set local lock_timeout = '10ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            BOX.put(second, intent)


def test_many_are_evaluated_one_by_one_in_their_order_and_none_is_answered_from_a_cache(database: Database) -> None:
    intents = [Intent(tool="mail.send", operation_id=f"o-{number % 50:02}") for number in range(500)]
    (query,) = put_many("acme", "checkout", intents)
    with database.connect("writer", autocommit=False) as connection:
        plan = "\n".join(
            line for (line,) in connection.execute(f"explain {load('write')['put_many']}", query.parameters)
        )
        operations = BOX.put_many(connection, intents)
    assert "Nested Loop" in plan
    assert "Memoize" not in plan
    assert "Sort" not in plan
    assert sum(operation.created for operation in operations) == 50
