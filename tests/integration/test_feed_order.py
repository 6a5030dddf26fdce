"""Nothing is ever skipped or told twice, however late a transaction commits, and whatever else is open."""

import contextlib
import itertools
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox import Intent, Outbox
from tests.support.postgres import Cluster, Database
from tests.support.tools import end_on, register

BOX = Outbox("acme", "checkout")
SESSIONS = 3
NUMBERS = itertools.count()

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def shared(postgres: Cluster, template: Database) -> Iterator[Database]:
    with postgres.database(template) as made:
        register(made, "mail.send")
        yield made


@pytest.fixture(scope="module")
def sessions(shared: Database) -> Iterator[list[Connection]]:
    """Daemons, each with a transaction of its own; the last connection is the reader's."""
    with contextlib.ExitStack() as stack:
        ending = [stack.enter_context(shared.connect(autocommit=False)) for _ in range(SESSIONS)]
        yield [*ending, stack.enter_context(shared.connect("writer"))]
        for connection in ending:
            connection.rollback()


def put(database: Database, count: int, box: Outbox = BOX) -> list[int]:
    names = [f"o-{next(NUMBERS)}" for _ in range(count)]
    with database.connect("writer") as connection:
        operations = box.put_many(connection, [Intent(tool="mail.send", operation_id=name) for name in names])
    return [operation.seq for operation in operations]


def test_an_end_that_commits_late_is_told_in_its_turn_and_nothing_passes_it(
    shared: Database, sessions: list[Connection]
) -> None:
    slow, quick, _, reader = sessions
    first, second = put(shared, 2)
    feed = BOX.feed(reader)
    list(feed)
    end_on(slow, first)
    end_on(quick, second)
    quick.commit()
    assert list(feed) == []
    slow.commit()
    assert [ended.seq for ended in feed] == [first, second]


def test_whatever_transaction_of_anybody_has_written_holds_the_feed_back_until_it_is_over(
    shared: Database, sessions: list[Connection]
) -> None:
    stranger, quick, _, reader = sessions
    (seq,) = put(shared, 1)
    feed = BOX.feed(reader)
    list(feed)
    stranger.execute("create temporary table something_else (n int) on commit drop")
    end_on(quick, seq)
    quick.commit()
    assert list(feed) == []
    stranger.rollback()
    assert [ended.seq for ended in feed] == [seq]


def test_a_prepared_transaction_is_open_until_it_is_decided(shared: Database, sessions: list[Connection]) -> None:
    slow, quick, _, reader = sessions
    first, second = put(shared, 2)
    feed = BOX.feed(reader)
    list(feed)
    xid = slow.xid(1, "feed", "end")
    slow.tpc_begin(xid)
    end_on(slow, first)
    slow.tpc_prepare()
    end_on(quick, second)
    quick.commit()
    assert list(feed) == []
    slow.tpc_commit()
    assert [ended.seq for ended in feed] == [first, second]


def test_a_reader_above_read_committed_sees_one_moment_and_goes_on_in_the_next(shared: Database) -> None:
    first, second = put(shared, 2)
    with shared.connect("writer", autocommit=False) as reader, shared.connect() as daemon:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        feed = BOX.feed(reader, batch_max=1)
        list(feed)
        end_on(daemon, first)
        assert list(feed) == []
        reader.commit()
        assert [ended.seq for ended in feed] == [first]
        end_on(daemon, second)
        assert list(feed) == []
        reader.commit()
        assert [ended.seq for ended in feed] == [second]


SESSION = st.integers(0, SESSIONS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("end"), SESSION),
        st.tuples(st.just("end"), SESSION),
        st.tuples(st.just("end in a savepoint"), SESSION),
        st.tuples(st.just("end in a savepoint that is rolled back"), SESSION),
        st.tuples(st.just("commit"), SESSION),
        st.tuples(st.just("rollback"), SESSION),
    ),
    min_size=4,
    max_size=40,
)


class Schedule:
    """Daemons and a reader, step by step, and what must have been told in the end."""

    def __init__(self, database: Database, sessions: list[Connection], ends: int) -> None:
        *self.daemons, self.reader = sessions
        self.open: list[set[int]] = [set() for _ in self.daemons]
        self.left = put(database, ends)
        self.committed: set[int] = set()
        self.told: list[int] = []
        feed = BOX.feed(self.reader)
        list(feed)
        self.cursor = feed.cursor

    def read(self, batch_max: int) -> None:
        """Read all there is, with a cursor that was stored: a new reader each time."""
        for ended in BOX.feed(self.reader, after=self.cursor, batch_max=batch_max):
            assert ended.seq in self.committed
            self.told.append(ended.seq)
            self.cursor = ended.cursor

    def step(self, what: str, number: int) -> None:
        daemon, its = self.daemons[number], self.open[number]
        if what == "commit":
            daemon.commit()
            self.committed |= its
            its.clear()
            self.read(2)
        elif what == "rollback":
            daemon.rollback()
            its.clear()
        elif self.left and what == "end in a savepoint that is rolled back":
            with daemon.transaction(force_rollback=True):
                end_on(daemon, self.left[-1])
        elif self.left:
            seq = self.left.pop()
            with daemon.transaction() if what == "end in a savepoint" and its else contextlib.nullcontext():
                end_on(daemon, seq)
            its.add(seq)


@given(steps=STEPS)
@settings(max_examples=60)
def test_in_every_schedule_what_is_committed_is_told_once(
    shared: Database, sessions: list[Connection], steps: list[tuple[str, int]]
) -> None:
    schedule = Schedule(shared, sessions, sum(what.startswith("end") for what, _ in steps))
    for what, number in steps:
        schedule.step(what, number)
    for number in range(SESSIONS):
        schedule.step("rollback", number)
    schedule.read(2)
    assert sorted(schedule.told) == sorted(schedule.committed)


def test_eight_daemons_commit_at_a_barrier_while_a_reader_reads(shared: Database) -> None:
    daemons, rounds = 8, 12
    operations = [put(shared, rounds) for _ in range(daemons)]
    all_written, done = threading.Barrier(daemons, timeout=30), threading.Event()
    kept: set[int] = set()

    def work(number: int) -> None:
        chance, its = random.Random(number), []
        with shared.connect(autocommit=False) as connection:
            for seq in operations[number]:
                end_on(connection, seq)
                its.append(seq)
                all_written.wait()
                if chance.random() < 0.6:  # else it stays open over the next round
                    connection.commit()
                    kept.update(its)
                    its.clear()
            connection.rollback()

    def read() -> list[int]:
        heard: list[int] = []
        with shared.connect("writer") as connection:
            feed = BOX.feed(connection, batch_max=3)
            list(feed)
            ready.set()
            while not done.is_set():
                heard += [ended.seq for ended in feed]
            return heard + [ended.seq for ended in feed]

    ready = threading.Event()
    with ThreadPoolExecutor(daemons + 1) as pool:
        reading = pool.submit(read)
        assert ready.wait(30)
        for future in [pool.submit(work, number) for number in range(daemons)]:
            future.result(60)
        done.set()
        heard = reading.result(60)
    assert len(heard) == len(set(heard))
    assert set(heard) == kept
    assert len(kept) > daemons * rounds / 2
