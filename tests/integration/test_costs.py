"""What one operation costs where it can be counted exactly: statements, bytes of log, updates that touch no index."""

from collections.abc import AsyncIterator

import pytest

from outbox.outcome import Answer, Outcome, Receipt
from outbox.receivers import Attempt
from outbox.receivers.scripted import ScriptedReceiver
from tests.support.doubts import register
from tests.support.eventually import eventually
from tests.support.postgres import Database
from tests.support.relays import KEYED, registry, relay_on
from tests.support.stage import Row, Stage, insert_intent

BATCH, BATCHES = 500, 8
LOG_BYTES_MAX = 700
# By time, not by operation.
READ_NOW_AND_THEN = {"read_receivers", "read_tools", "circuits", "look_ahead"}


def answered(attempt: Attempt) -> Outcome:
    """As a provider answers: its own id, in a little JSON."""
    external_id = f"r-{attempt.seq:09d}"
    return Receipt(answer=Answer(200), receipt=f'{{"id":"{external_id}"}}', external_id=external_id)


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database, registry(KEYED, lanes=1, concurrency=BATCH))
    with Stage(database) as stage:
        for table in ("intent", "pending", "outcome"):
            stage.admin.execute(f"alter table outbox.{table} set (autovacuum_enabled = off)".encode())
        stage.rows(
            """
            insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest)
            select 'acme', 'op-' || n, %s, 'svc', a, outbox.intent_digest('acme', 'op-' || n, %s, null, null, a)
            from generate_series(1, %s) n cross join lateral (select '{"n":' || n || '}' as a) x
            """,
            KEYED,
            KEYED,
            BATCH * BATCHES,
        )
        stage.rows("vacuum analyze outbox.pending")
        yield stage


async def drain(stage: Stage) -> list[str]:
    """One round for each batch; the statements that ran in them."""
    receiver = ScriptedReceiver([answered])
    async with relay_on(stage.database, receiver, batch_max=BATCH, look_behind="60s") as relay:
        await relay.take_lanes()
        relay.store.ran.clear()
        assert await relay.rounds(BATCHES) == BATCH * BATCHES
        return [name for name in relay.store.ran if name not in READ_NOW_AND_THEN]


async def test_a_full_batch_is_two_statements(stage: Stage) -> None:
    assert await drain(stage) == ["begin_range", "end_operations"] * BATCHES


async def test_an_operation_takes_so_many_bytes_of_log(stage: Stage) -> None:
    """Without images of whole pages, which depend on the last checkpoint; with every index and every split."""
    stage.admin.execute("create extension pg_walinspect")
    # The first range of a new table is summarised, so each row raises its upper end; later ranges wait for a vacuum.
    stage.rows("select brin_desummarize_range('outbox.outcome_ended_at', 0)")
    before = stage.value("select pg_current_wal_insert_lsn()::text")
    await drain(stage)
    after = stage.value("select pg_current_wal_insert_lsn()::text")
    stage.rows("select pg_switch_wal()")  # whole records only are read, and only from a flushed log
    logged = stage.value("select sum(record_size)::bigint from pg_get_wal_stats(%s, %s)", before, after)
    assert logged / (BATCH * BATCHES) <= LOG_BYTES_MAX


async def test_no_update_of_an_open_row_touches_an_index(stage: Stage) -> None:
    await drain(stage)
    updates = BATCH * BATCHES

    # Statistics of a connection are there when its server process has ended.
    def counted() -> bool:
        return bool(
            stage.value("select n_tup_upd from pg_stat_user_tables where relid = 'outbox.pending'::regclass") == updates
        )

    eventually(counted)
    hot = stage.value("select n_tup_hot_upd from pg_stat_user_tables where relid = 'outbox.pending'::regclass")
    assert hot == updates


def test_what_every_insert_reads_of_its_checks_is_short(stage: Stage) -> None:
    """The stored form of a CHECK is read anew for every statement: a kilobyte costs 5 us."""
    read = stage.value(
        "select sum(length(conbin::text)) from pg_constraint"
        " where contype = 'c' and conrelid in ('outbox.intent'::regclass, 'outbox.pending'::regclass)"
    )
    assert read <= 1000


def test_an_insert_looks_for_its_tool_and_its_tombstone_by_key(stage: Stage) -> None:
    """Though both tables are so small that a plan by their statistics reads all of them, and hashes it."""
    stage.admin.execute("analyze outbox.tool, outbox.tombstone")
    row: Row = {"tenant_id": "acme", "operation_id": "one-more", "tool": KEYED, "principal_id": "svc"}
    row |= {"resource": None, "expected_version": None, "arguments": "{}"}
    with stage.admin.transaction():
        stage.admin.execute(insert_intent(row), row)
        looks = stage.rows(
            """
            select pg_stat_get_xact_numscans(indrelid) as sequential,
              pg_stat_get_xact_numscans(indexrelid) > 0 as by_key
            from pg_index where indisprimary and indrelid in ('outbox.tool'::regclass, 'outbox.tombstone'::regclass)
            """
        )
    assert [(look["sequential"], look["by_key"]) for look in looks] == [(0, True), (0, True)]
