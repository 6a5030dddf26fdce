"""Every statement of outbox/sql against the migrated schema, as the role that runs it; and what the hot ones read."""

import re
from collections.abc import Callable, Iterator
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus

from outbox import sql
from relay.begun import Begun
from tests.support.postgres import Cluster, Database, Role
from tests.support.stage import RELAY, Connection, Holder, Stage

# Who runs each file. A new file without a line here fails the test below.
RUN_BY: dict[str, tuple[Role, ...]] = {
    "act": ("operator",),
    "apply": ("operator",),
    "daemon": ("relay", "reconciler"),
    "doctor": ("operator",),
    "feed": ("operator",),
    "inspect": ("operator", "approver"),
    "reconcile": ("reconciler",),
    "registry": ("relay", "reconciler", "operator"),
    "relay": ("relay",),
    "report": ("operator", "approver"),
    "upkeep": ("operator",),
    "write": ("writer", "operator"),
}
# What approvers run, of what operators run.
APPROVERS = {"approve", "revoke"}
# The demo brings a database of its own and is its superuser; an inbox lies in somebody else's database.
OWNERS = {"demo", "inbox"}
# What runs in another database: tests/integration/test_inbox.py tries it there.
ELSEWHERE = {"inbox"}

STATEMENTS = [(group, name) for group in sql.groups() if group not in ELSEWHERE for name in sql.load(group)]


@pytest.fixture(scope="module")
def shared(postgres: Cluster, template: Database) -> Iterator[Stage]:
    with postgres.database(template) as made, Stage(made) as stage:
        stage.register()
        for statement in ("create_orders", "allow_service"):
            stage.admin.execute(sql.load("demo")[statement])
        stage.admin.execute(sql.script("inbox/schema").encode())
        yield stage


def prepare(connection: Connection, text: LiteralString) -> int:
    """Prepare a statement as psycopg would send it; returns its number of parameters."""
    query = PostgresQuery(Transformer(connection))
    query.convert(text, dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    connection.pgconn.exec_(b"deallocate checked")  # if there is one
    result = connection.pgconn.prepare(b"checked", query.query)
    assert result.status == ExecStatus.COMMAND_OK, result.error_message.decode()
    return connection.pgconn.describe_prepared(b"checked").nparams


def plan(connection: Connection, text: LiteralString) -> None:
    """Prepare and plan it without running it: unlike PREPARE this checks every right on tables and functions."""
    nothing = ", ".join(["null"] * prepare(connection, text))
    connection.execute("set plan_cache_mode = force_generic_plan")
    connection.execute(f"explain execute checked{f'({nothing})' if nothing else ''}".encode())


def test_every_file_of_statements_says_who_runs_it() -> None:
    assert set(sql.groups()) == RUN_BY.keys() | OWNERS | ELSEWHERE


@pytest.mark.parametrize(("group", "name"), STATEMENTS)
def test_a_statement_fits_the_schema_and_the_rights_of_whoever_runs_it(shared: Stage, group: str, name: str) -> None:
    if group in OWNERS:
        prepare(shared.admin, sql.load(group)[name])
        return
    roles = RUN_BY[group] + (("approver",) if name in APPROVERS else ())
    for role in roles:
        plan(shared.as_role(role), sql.load(group)[name])


@pytest.mark.parametrize(("role", "group", "name"),
    [("reconciler", "relay", "begin_range"), ("relay", "reconcile", "settle"), ("viewer", "act", "cancel"),
     ("approver", "act", "resolve"), ("writer", "inspect", "list_operations")],
)  # fmt: skip
def test_the_check_above_sees_a_missing_right(shared: Stage, role: Role, group: str, name: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        plan(shared.as_role(role), sql.load(group)[name])


@pytest.mark.parametrize(
    "name", ["begin_range", "begin_these", "end_operations", "withdraw_attempts", "record_unknown"]
)
def test_every_write_in_a_lane_joins_the_lock_of_its_lane(name: str) -> None:
    """By text, as the behaviour of an unjoined lock shows in a race only; the races are in test_interleavings.py."""
    text = RELAY[name]
    assert text.startswith("with l as materialized (")
    assert "n.fence = %(fence)s and n.owner = %(owner)s\n  for key share" in text
    assert re.search(r"from l (left|cross) join \w+", text.rpartition("\n)")[2])


# --------------------------------------------------------------------------------------------- reading no more than due

ROWS = 20_000
BATCH = 200


@pytest.fixture(scope="module", params=["statistics of an empty table", "fresh statistics"])
def burst(request: pytest.FixtureRequest, postgres: Cluster, template: Database) -> Iterator[Stage]:
    """One lane with a burst of open operations. Autovacuum never comes in time for a burst."""
    with postgres.database(template) as made, Stage(made) as stage:
        stage.register()
        for table in ("intent", "pending", "doubt", "outcome", "attempt", "evidence"):
            stage.admin.execute(f"alter table outbox.{table} set (autovacuum_enabled = off)".encode())
        stage.rows("analyze")
        stage.rows(
            """
            insert into outbox.intent (tenant_id, operation_id, tool, arguments, ordering_key, principal_id, digest)
            select 'acme', 'op-' || n, 'stock.set', '{}', 'k-' || n / 2, 'svc',
              outbox.intent_digest('acme', 'op-' || n, 'stock.set', null, null, '{}') from generate_series(1, %s) n
            """,
            ROWS,
        )
        # A tenth in doubt, as after the loss of a relay.
        holder = stage.holder().taken(3600)
        assert holder.begin(batch_max=ROWS // 10)
        holder.give_back()
        stage.holder().taken().give_back()
        if request.param == "fresh statistics":
            stage.rows("analyze")
        yield stage


@pytest.fixture(params=["auto", "force_generic_plan"])
def holder(request: pytest.FixtureRequest, burst: Stage) -> Iterator[Holder]:
    """A holder inside a transaction that is rolled back, whose reads are counted."""
    connection = burst.session("relay")
    connection.execute(f"set plan_cache_mode = {request.param}".encode())
    connection.prepare_threshold = None if request.param == "auto" else 0
    connection.execute("begin")
    yield burst.holder(connection=connection).taken(3600)
    connection.execute("rollback")


def reads(connection: Connection) -> dict[str, tuple[int, int]]:
    """What this transaction has read so far: of each table, rows by scanning it whole and rows by index."""
    rows = connection.execute(
        "select relname::text as name, seq_tup_read as scanned, coalesce(idx_tup_fetch, 0) as fetched"
        " from pg_stat_xact_user_tables where schemaname = 'outbox'"
    ).fetchall()
    return {row["name"]: (row["scanned"], row["fetched"]) for row in rows}


LARGE = ("pending", "intent", "doubt")


def assert_reads_at_most(connection: Connection, rows: int, act: Callable[[], Any]) -> Any:
    before = reads(connection)
    answer = act()
    after = reads(connection)
    read = {table: tuple(b - a for a, b in zip(before[table], after[table], strict=True)) for table in LARGE}
    assert all(scanned + fetched <= rows for scanned, fetched in read.values()), read
    return answer


def test_claiming_a_range_reads_what_it_claims(holder: Holder) -> None:
    begun = assert_reads_at_most(holder.connection, 8 * BATCH, lambda: holder.begin(after=ROWS // 5, batch_max=BATCH))
    assert len(begun) == BATCH // 2 or len(begun) == BATCH


def test_claiming_by_name_reads_the_named(holder: Holder) -> None:
    names = range(ROWS // 2, ROWS // 2 + 2 * BATCH, 2)
    begun = assert_reads_at_most(holder.connection, 8 * BATCH, lambda: holder.begin_these(*names, batch_max=BATCH))
    assert len(begun) == BATCH


def test_looking_past_a_crowd_reads_each_of_its_rows_once_and_no_more_than_asked_for(holder: Holder) -> None:
    given = {"after": ROWS // 5, "rows_max": BATCH, "found_max": 10}
    (past,) = assert_reads_at_most(holder.connection, BATCH, lambda: holder.run("look_ahead", **given, crowd=["acme"]))
    assert past == {"seqs": [], "tenants": [], "upto": ROWS // 5 + BATCH, "more": True}
    (found,) = assert_reads_at_most(holder.connection, BATCH, lambda: holder.run("look_ahead", **given, crowd=["x"]))
    assert (found["tenants"], found["upto"], found["more"]) == (["acme"] * 10, found["seqs"][-1], True)
    (rest,) = holder.run("look_ahead", **given | {"after": ROWS - 5}, crowd=["acme"])
    assert (rest["upto"], rest["more"]) == (ROWS, False)


def test_recording_reads_the_named(holder: Holder) -> None:
    begun = holder.begin(after=ROWS // 5, batch_max=3 * 20) or []
    attempts = [(row["seq"], row["attempt"]) for row in begun]
    ended = assert_reads_at_most(holder.connection, 8 * 20, lambda: holder.end(*attempts[:20]))
    doubted = assert_reads_at_most(holder.connection, 8, lambda: holder.record_unknown(*attempts[20]))
    withdrawn = assert_reads_at_most(holder.connection, 8, lambda: holder.withdraw(*attempts[21]))
    assert (len(ended), len(doubted), len(withdrawn)) == (20, 1, 1)


def test_recording_a_full_group_reads_the_named(holder: Holder) -> None:
    """Statistics say that nothing executes: no reason to read all of the lane once per name."""
    begun = holder.begin(after=ROWS // 5, batch_max=500) or []
    attempts = [(row["seq"], row["attempt"]) for row in begun]
    ended = assert_reads_at_most(holder.connection, 8 * len(attempts), lambda: holder.end(*attempts))
    assert len(ended) == len(attempts) > 200


def test_finding_ones_own_commit_reads_the_named(holder: Holder) -> None:
    (row,) = holder.begin(after=ROWS // 5, batch_max=1) or []
    assert holder.end((row["seq"], row["attempt"]))
    question = {"seqs": [row["seq"]], "attempts": [row["attempt"]]}
    found = assert_reads_at_most(holder.connection, 8, lambda: holder.run("recorded_attempts", **question))
    assert found == [{"seq": row["seq"], "attempt": row["attempt"]}]


ONE_BY_ONE: dict[str, tuple[Role, LiteralString]] = {
    "settle": ("reconciler", "select outbox.settle(7, 1, 'rejected', 'no_effect', 'r', null, null, null)"),
    "allow_resend": ("reconciler", "select outbox.allow_resend(7, 1, 'now', 'now')"),
    "witness": (
        "reconciler",
        "select outbox.witness(7, 1, 1, 'receipt', null, null, null, 0, 200, null, null, null, 'r', null, null)",
    ),
    "cancel": ("operator", "select outbox.cancel('acme', 'op-15000', 'eve')"),
    "revoke": ("operator", "select outbox.revoke('acme', 'op-7', 'eve', null)"),
    "retry": ("operator", "select outbox.retry('acme', 'op-7', 'eve')"),
    "get_operation": ("operator", "select * from outbox.get_operation('acme', 'op-15000')"),
    "operation": ("operator", "select * from outbox.operation where seq = 15000"),
    "put": (
        "writer",
        (
            "select outbox.put('acme', 'op-15000', 'stock.set', 'svc', '{}',"
            " outbox.intent_digest('acme', 'op-15000', 'stock.set', null, null, '{}'), p_ordering_key => 'k-7500')"
        ),
    ),
    "expire": ("relay", "select outbox.expire(100)"),
}


@pytest.mark.parametrize("act", ONE_BY_ONE)
def test_an_act_on_one_operation_reads_that_operation(burst: Stage, act: str) -> None:
    role, statement = ONE_BY_ONE[act]
    connection = burst.as_role(role)
    with connection.transaction(force_rollback=True):
        rows = assert_reads_at_most(connection, 20, lambda: connection.execute(statement).fetchall())
    assert len(rows) == 1


def test_claiming_doubts_reads_no_more_than_it_claims(burst: Stage) -> None:
    """However much is due; what is claimed already is passed by, and is no more than a process works on at a time."""
    reconciler, statement = burst.as_role("reconciler"), sql.load("reconcile")["claim_doubt"]
    claim = {"receiver_ids": [1], "places": [50], "claim": uuid4(), "claim_seconds": 60}
    with reconciler.transaction(force_rollback=True):
        for _ in range(2):
            rows = assert_reads_at_most(reconciler, 10 * 50, lambda: reconciler.execute(statement, claim).fetchall())
            assert len(rows) == 50


def test_claiming_doubts_reads_what_is_due(burst: Stage) -> None:
    due = burst.rows("select seq from outbox.doubt order by seq limit 10")
    burst.rows("update outbox.doubt set next_at = 'infinity' where seq > %s", due[-1]["seq"])
    reconciler = burst.as_role("reconciler")
    claim = {"receiver_ids": [1], "places": [50], "claim": uuid4(), "claim_seconds": 60}
    with reconciler.transaction(force_rollback=True):
        rows = assert_reads_at_most(
            reconciler, 100, lambda: reconciler.execute(sql.load("reconcile")["claim_doubt"], claim).fetchall()
        )
    assert len(rows) == 10


@pytest.mark.parametrize("plans", ["auto", "force_generic_plan"])
@pytest.mark.parametrize(
    "name", ["count_read", "read_claimed", "reschedule", "release_claims", "settle", "allow_resend"]
)
def test_a_group_of_operations_in_doubt_reads_the_named(burst: Stage, name: str, plans: str) -> None:
    connection, reconcile = burst.session("reconciler"), sql.load("reconcile")
    connection.execute(f"set plan_cache_mode = {plans}".encode())
    connection.prepare_threshold = None if plans == "auto" else 0
    burst.rows("update outbox.doubt set next_at = outbox.now() where next_at > outbox.now() and seq <= 200")
    claim = {"receiver_ids": [1], "places": [100], "claim": uuid4(), "claim_seconds": 60}
    with connection.transaction(force_rollback=True):
        rows = connection.execute(reconcile["claim_doubt"], claim).fetchall()
        columns: dict[str, Any] = {one: [row[one] for row in rows] for one in ("seq", "receiver_id", "lane", "attempt")}
        now = [row["now"] for row in rows]
        columns |= {
            "claim": [claim["claim"]] * 100,
            "step": ["look"] * 100,
            "to": ["rejected"] * 100,
            "cause": ["no_effect"] * 100,
            "evidence_id": [1] * 100,
        }
        columns |= dict.fromkeys(("sent_at", "next_at", "claimed_next_at", "at", "look_again_at"), now)
        names = set(re.findall(r"%\((\w+)\)s", reconcile[name]))
        given = {one: columns.get(one, [None] * 100) for one in names} | {"alone": False}
        done = assert_reads_at_most(connection, 12 * 100, lambda: connection.execute(reconcile[name], given).fetchall())
    assert len(done) == 100


@pytest.mark.parametrize(("group", "name"), [("doctor", "doctor_doubt"), ("report", "report_doubt")])
def test_counting_doubts_reads_their_operations_and_not_the_backlog(burst: Stage, group: str, name: str) -> None:
    operator, bounds = burst.as_role("operator"), {"late_seconds": 60.0, "within_seconds": 3600.0}
    with operator.transaction(force_rollback=True):
        before = reads(operator)["pending"]
        assert operator.execute(sql.load(group)[name], bounds).fetchall()
        scanned, fetched = (b - a for a, b in zip(before, reads(operator)["pending"], strict=True))
    assert (scanned, fetched) == (0, ROWS // 10)


def test_a_row_that_waits_for_its_predecessors_costs_an_index_probe(holder: Holder) -> None:
    """Every second operation waits for the one before it under its ordering key."""
    begun = holder.begin(after=ROWS // 5, batch_max=ROWS) or []
    assert all(row["ordered"] for row in begun)
    read = reads(holder.connection)["pending"]
    assert sum(read) < 8 * ROWS


# ------------------------------------------------------------------------------------------------- updates that are HOT


def test_no_index_holds_a_column_that_an_attempt_changes(shared: Stage) -> None:
    rows = shared.rows(
        """
        select a.attname::text as name from pg_attribute a
        where a.attrelid = 'outbox.pending'::regclass
          and has_column_privilege('outbox_relay', a.attrelid, a.attnum, 'update')
          and exists (select from pg_depend d join pg_index i on i.indexrelid = d.objid
            where i.indrelid = a.attrelid and d.refobjid = a.attrelid and d.refobjsubid = a.attnum)
        """
    )
    assert rows == []


def test_no_update_of_an_open_row_touches_an_index(database: Database) -> None:
    """An index on a column that changes would cost every attempt three index entries, and their vacuum."""
    with Stage(database) as stage:
        stage.register(lanes=4)
        stage.rows(
            "insert into outbox.intent"
            " (tenant_id, operation_id, tool, arguments, ordering_key, principal_id, expires_at, digest)"
            " select 'acme', 'op-' || n, 'stock.set', '{}', n::text, 'svc', 'infinity',"
            " outbox.intent_digest('acme', 'op-' || n, 'stock.set', null, null, '{}') from generate_series(1, 400) n"
        )
        holders = [stage.holder(lane).taken(3600) for lane in range(4)]
        updated = 0
        for _ in range(3):
            for holder in holders:
                for row in holder.begin(batch_max=500) or []:
                    attempt = (row["seq"], row["attempt"])
                    assert holder.record_unknown(*attempt) if row["seq"] % 2 else holder.withdraw(*attempt, delays=0.0)
                    updated += 2
            stage.rows("select outbox.allow_resend(seq, attempt, outbox.now(), 'infinity') from outbox.doubt")
        counted = count_updates(stage)
        assert counted["updated"] >= updated > 2_000
        assert counted["hot"] / counted["updated"] > 0.98


def count_updates(stage: Stage) -> dict[str, Any]:
    stage.rows("select pg_stat_force_next_flush()")
    for connection in stage.sessions:
        connection.execute("select pg_stat_force_next_flush()")
        connection.execute("select 1")
    (row,) = stage.rows(
        "select n_tup_upd as updated, n_tup_hot_upd as hot from pg_stat_user_tables where relname = 'pending'"
    )
    return row


@pytest.mark.parametrize("statement", ["begin_range", "begin_these"])
def test_what_a_begin_answers_stands_in_the_order_in_which_a_relay_reads_it(stage: Stage, statement: str) -> None:
    """It reads by position: a column that moved would be another one's value."""
    stage.register()
    holder = stage.holder().taken()
    given = {"batch_max": 1, "resends": True, "seqs": [1], "after": 0, "upto": 1, "frontier": True}
    wanted = re.findall(r"%\((\w+)\)s", RELAY[statement])
    mine = {"receiver_id": 1, "receiver": "warehouse", "lane": 0, "fence": holder.fence, "owner": holder.owner}
    cursor = holder.connection.execute(RELAY[statement], {name: (mine | given)[name] for name in wanted})
    assert [column.name for column in cursor.description or ()] == [*Begun._fields[:-1], "xmin", "top"]
