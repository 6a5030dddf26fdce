"""The feed as one reader sees it: its tenant's ends, each once, on every kind of connection, and cursors that hold."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from outbox import Intent, Outbox, State, WaitInsideTransaction
from outbox.errors import DatabaseUnavailable, FeedReset, Misuse, UnsupportedConnection
from outbox.feed import Ended
from tests.support.callers import CALLERS, Caller
from tests.support.postgres import Database
from tests.support.tools import end, end_on, register

BOX = Outbox("acme", "checkout")
OTHER = Outbox("globex", "checkout")


@pytest.fixture(autouse=True)
def tools(database: Database) -> None:
    register(database, "mail.send")


@pytest.fixture(params=CALLERS)
async def caller(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Caller]:
    """Each kind of connection in turn, of a login that may only write."""
    async with CALLERS[request.param](database.dsn_for("writer")) as opened:
        yield opened


def put(database: Database, *names: str, box: Outbox = BOX) -> list[int]:
    with database.connect("writer") as connection:
        return [box.put(connection, Intent(tool="mail.send", operation_id=name, resource="r")).seq for name in names]


def told(database: Database, after: str | None = None, *, box: Outbox = BOX, batch_max: int = 500) -> list[Ended]:
    with database.connect("writer") as connection:
        return list(box.feed(connection, after=after, batch_max=batch_max))


def names(ends: list[Ended]) -> list[str]:
    return [ended.operation_id for ended in ends]


async def test_every_kind_of_connection_tells_the_same_ends_in_the_same_order(
    database: Database, caller: Caller
) -> None:
    a, b, c, _ = put(database, "a", "b", "c", "open")
    end(database, c)
    end(database, a, "rejected", receipt=None, external_id=None)
    end(database, b)
    first, second, third = await caller.feed(BOX)
    assert names([first, second, third]) == ["c", "a", "b"]
    assert (first.state, first.receipt, first.external_id) == (State.SUCCEEDED, '{"id":"m-1"}', "m-1")
    assert (second.state, second.cause, second.receipt) == (State.REJECTED, "confirmed", None)
    assert (first.tenant_id, first.tool, first.resource, first.principal_id) == ("acme", "mail.send", "r", "checkout")
    assert first.created_at.tzinfo is not None
    assert first.created_at <= first.ended_at
    assert names(await caller.feed(BOX, after=first.cursor)) == ["a", "b"]
    assert names(await caller.feed(BOX, after=second.cursor, batch_max=1)) == ["b"]
    assert await caller.feed(BOX, after=third.cursor) == []


@pytest.mark.parametrize("batch_max", [1, 2, 3, 500])
def test_ends_of_one_transaction_and_of_many_come_in_order_whatever_the_batch(
    database: Database, batch_max: int
) -> None:
    operations = put(database, *"abcdefg")
    with database.connect(autocommit=False) as connection:
        for seq in reversed(operations[:4]):
            end_on(connection, seq)
    for seq in reversed(operations[4:]):
        end(database, seq)
    assert names(told(database, batch_max=batch_max)) == ["a", "b", "c", "d", "g", "f", "e"]


def test_another_tenants_ends_are_never_told(database: Database) -> None:
    mine, yours = put(database, "mine", "both"), put(database, "yours", "both", box=OTHER)
    for seq in (yours[0], mine[0], yours[1], mine[1]):
        end(database, seq)
    assert [(e.tenant_id, e.operation_id) for e in told(database)] == [("acme", "mine"), ("acme", "both")]
    assert [(e.tenant_id, e.operation_id) for e in told(database, box=OTHER)] == [
        ("globex", "yours"),
        ("globex", "both"),
    ]
    with database.connect("writer") as connection, pytest.raises(psycopg.Error, match="a feed is of one tenant"):
        connection.execute("select outbox.feed(null)")
    with database.connect("writer") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("select outbox.feed_of_all()")
    with database.connect("operator") as connection:
        everybody = connection.execute("select operation_id from outbox.feed_of_all()").fetchall()
    assert everybody == [("yours",), ("mine",), ("both",), ("both",), (None,)]


def test_a_tenant_behind_many_ends_of_others_looks_at_a_bounded_number_at_a_time(database: Database) -> None:
    database.rows(
        """
        insert into outbox.intent (tenant_id, operation_id, tool, arguments, principal_id, digest)
        select tenant, id, 'mail.send', '{}', 'p', outbox.intent_digest(tenant, id, 'mail.send', null, null, '{}')
        from (select case when n = 20500 then 'acme' else 'globex' end as tenant, 'o-' || n as id
              from generate_series(1, 20500) n) made order by length(id), id
        """
    )
    database.rows(
        """
        insert into outbox.outcome (seq, from_state, state, attempt)
        select seq, 'executing', 'succeeded', 1 from outbox.intent
        """
    )
    looks: list[tuple[str, bool, int]] = []
    after = None
    with database.connect("writer") as connection:
        while not looks or looks[-1][1]:
            rows = connection.execute("select cursor, more, seq from outbox.feed('acme', %s, 10)", [after]).fetchall()
            after = rows[-1][0]
            looks.append((after, rows[-1][1], len(rows) - 1))
        feed = BOX.feed(connection)
        assert names(list(feed)) == ["o-20500"]
    assert [(more, found) for _, more, found in looks] == [(True, 0), (True, 0), (False, 1)]
    # Who saves where the feed is has the others' ends behind it too.
    assert feed.cursor is not None
    assert told(database, feed.cursor) == []


def test_a_reader_that_stops_goes_on_behind_what_it_was_told(database: Database) -> None:
    for seq in put(database, *"abc"):
        end(database, seq)
    with database.connect("writer") as connection:
        feed = BOX.feed(connection)
        for ended in feed:
            if ended.operation_id == "b":
                break
        assert feed.cursor == ended.cursor
        assert names(list(feed)) == ["c"]
        assert list(feed) == []


def test_what_the_readers_own_transaction_ends_is_told_after_it(database: Database) -> None:
    (seq,) = put(database, "a")
    with database.connect(autocommit=False) as connection:
        end_on(connection, seq)
        assert list(BOX.feed(connection)) == []
        connection.commit()
        assert names(list(BOX.feed(connection))) == ["a"]


# ---------------------------------------------------------------------------------------------------------- following


@pytest.fixture
def box(database: Database) -> Outbox:
    return Outbox("acme", "checkout", dsn=database.dsn_for("writer"))


@contextlib.contextmanager
def paused(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """A semaphore that is raised each time when a reader has seen nothing new and is about to pause."""
    pauses = threading.Semaphore(0)

    def sleep(seconds: float) -> None:
        pauses.release()
        threading.Event().wait(seconds)

    with monkeypatch.context() as patched:
        patched.setattr("outbox.feed.time.sleep", sleep)
        yield pauses


@pytest.mark.parametrize("own", [True, False])
def test_following_waits_for_the_next_end(
    database: Database, box: Outbox, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    operations = put(database, *"abc")
    heard: list[str] = []

    def follow() -> None:
        with database.connect("writer") as connection:
            for ended in box.feed(None if own else connection, follow=True):
                heard.append(ended.operation_id)
                if ended.operation_id == "c":
                    return

    with ThreadPoolExecutor(1) as pool, paused(monkeypatch) as pauses:
        following = pool.submit(follow)
        for seq in operations:
            assert pauses.acquire(timeout=30)
            assert not following.done()
            end(database, seq)
        following.result(30)
    assert heard == ["a", "b", "c"]


async def test_following_asynchronously_lets_others_run_and_ends_with_its_task(database: Database, box: Outbox) -> None:
    a, b = put(database, "a", "b")
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def follow() -> None:
        async with contextlib.aclosing(aiter(box.afeed(follow=True))) as ends:  # type: ignore[type-var]
            async for ended in ends:
                heard.put_nowait(ended.operation_id)

    following = asyncio.create_task(follow())
    for seq, name in ((a, "a"), (b, "b")):
        end(database, seq)
        assert await asyncio.wait_for(heard.get(), 30) == name
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    query = (
        "select count(*) from pg_stat_activity where datname = current_database() and usename = 'outbox_test_writer'"
    )
    assert database.value(query) == 0


async def test_following_inside_of_a_transaction_is_refused(box: Outbox, caller: Caller) -> None:
    with pytest.raises(WaitInsideTransaction, match="connection in autocommit"):
        await caller.feed(box, follow=True)


def test_a_feed_needs_a_connection_or_a_dsn_that_leads_somewhere(database: Database) -> None:
    with pytest.raises(UnsupportedConnection, match="Give a connection, or Outbox a dsn"):
        list(BOX.feed())
    nowhere = Outbox("acme", "p", dsn=database.dsn.replace(database.name, "outbox_nowhere"))
    with pytest.raises(DatabaseUnavailable):
        list(nowhere.feed())


# ------------------------------------------------------------------------------------------------------------- cursors


@pytest.mark.parametrize(
    "cursor", ["x", "1.2.3.4", "00000000.1.1", "'", "00000000.1.1.1.1", f"{'0' * 8}.1.{'9' * 19}.1"]
)
def test_what_is_no_cursor_is_refused(database: Database, cursor: str) -> None:
    with pytest.raises(Misuse, match="not a cursor"):
        told(database, cursor)


def test_an_empty_cursor_is_the_beginning(database: Database) -> None:
    (seq,) = put(database, "a")
    end(database, seq)
    assert names(told(database, "")) == ["a"]


def test_a_cursor_of_another_database_is_refused(database: Database) -> None:
    (seq,) = put(database, "a")
    end(database, seq)
    (ended,) = told(database)
    foreign = ("0" if ended.cursor[0] != "0" else "1") + ended.cursor[1:]
    with pytest.raises(FeedReset, match="Start again without a cursor"):
        told(database, foreign)


def enter_another_life(database: Database) -> None:
    """What a daemon does at the first connection to a promoted standby."""
    database.rows("update outbox.instance set timeline = 0")
    query = "select outbox.enter_era((select system_identifier from pg_control_system()), outbox.timeline())"
    assert database.value(query) is not None


def test_after_a_failover_a_cursor_whose_end_survived_goes_on(database: Database) -> None:
    operations = put(database, *"abc")
    end(database, operations[0])
    with database.connect("writer") as connection:
        feed = BOX.feed(connection)
        (first,) = feed
        enter_another_life(database)
        end(database, operations[1])
        # Both the cursor of an end, and the place where a feed has arrived.
        assert names(told(database, first.cursor)) == ["b"]
        assert names(list(feed)) == ["b"]


def test_after_a_failover_a_cursor_whose_end_was_lost_is_refused_and_nothing_is_skipped(database: Database) -> None:
    a, b, c = put(database, *"abc")
    end(database, a)
    end(database, b)
    _, lost = told(database)
    with database.connect() as connection:
        connection.execute("set session_replication_role = replica")  # no trigger protects history now
        connection.execute("delete from outbox.outcome where seq = %s", [b])
    enter_another_life(database)
    end(database, c)
    with pytest.raises(FeedReset) as reset:
        told(database, lost.cursor)
    assert reset.value.code == "feed_reset"
    assert names(told(database)) == ["a", "c"]


def test_before_the_first_end_a_failover_changes_nothing(database: Database) -> None:
    (seq,) = put(database, "a")
    with database.connect("writer") as connection:
        feed = BOX.feed(connection)
        assert list(feed) == []
        enter_another_life(database)
        end(database, seq)
        assert names(list(feed)) == ["a"]


def test_a_cursor_outlives_the_purge_of_its_end(database: Database) -> None:
    a, b = put(database, "a", "b")
    end(database, a, hours_ago=24)
    (first,) = told(database)
    assert database.value("select purged from outbox.purge(0, 1000, outbox.now(), 10, 'a test')") == 1
    end(database, b)
    assert names(told(database, first.cursor)) == ["b"]
