"""Where an intent goes: every way of writing it, every lane, every order, and who is told."""

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql as composing

from outbox.digest import intent_digest
from tests.support.stage import KEYED, REPEATABLE, Clock, Connection, Holder, Row, Stage, insert_intent

COLUMNS = [
    "tenant_id",
    "operation_id",
    "tool",
    "resource",
    "arguments",
    "expected_version",
    "ordering_key",
    "principal_id",
    "digest",
]


def intents(count: int = 20) -> list[Row]:
    """Rows as any writer would make them: some with an ordering key, some without, of two tenants."""
    rows: list[Row] = []
    for n in range(count):
        row: Row = {
            "tenant_id": f"tenant-{n % 2}",
            "operation_id": f"op-{n}",
            "tool": "stock.set",
            "resource": None if n % 3 else f"sku/{n}",
            "arguments": f'{{"n":{n}}}',
            "expected_version": None if n % 5 else f"v{n}",
            "ordering_key": None if n % 4 else f"key-{n % 8}",
            "principal_id": "svc",
        }
        rows.append(signed(row))
    return rows


def signed(row: Row) -> Row:
    """The row with the digest of what it states."""
    stated = ("tenant_id", "operation_id", "tool", "resource", "expected_version", "arguments")
    return row | {"digest": intent_digest(*[row[name] for name in stated])}


NAMES = composing.SQL(", ").join(map(composing.Identifier, COLUMNS))
VALUES = composing.SQL("({})").format(composing.SQL(", ").join([composing.Placeholder()] * len(COLUMNS)))


def values(rows: list[Row]) -> list[Any]:
    return [row[name] for row in rows for name in COLUMNS]


def statement(text: LiteralString, rows: int) -> composing.Composed:
    return composing.SQL(text).format(names=NAMES, values=composing.SQL(", ").join([VALUES] * rows))


def one_by_one(connection: Connection, rows: list[Row]) -> None:
    for row in rows:
        connection.execute(statement("insert into outbox.intent ({names}) values {values}", 1), values([row]))


def many_rows(connection: Connection, rows: list[Row]) -> None:
    connection.execute(statement("insert into outbox.intent ({names}) values {values}", len(rows)), values(rows))


def insert_select(connection: Connection, rows: list[Row]) -> None:
    text: LiteralString = "insert into outbox.intent ({names}) select * from (values {values}) as v"
    connection.execute(statement(text, len(rows)), values(rows))


def with_clause(connection: Connection, rows: list[Row]) -> None:
    """Two INSERTs in one statement: two statement triggers, each with its own rows."""
    half = len(rows) // 2
    first: LiteralString = "with a as (insert into outbox.intent ({names}) values {values}) "
    second: LiteralString = "insert into outbox.intent ({names}) values {values}"
    connection.execute(statement(first, half) + statement(second, len(rows) - half), values(rows))


def merge(connection: Connection, rows: list[Row]) -> None:
    """A writer may not read intents, so it cannot match on them; ON CONFLICT is for that."""
    text: LiteralString = (
        "merge into outbox.intent using (values {values}) as v ({names}) on false"
        " when not matched then insert ({names}) values (v.tenant_id, v.operation_id, v.tool, v.resource, v.arguments,"
        " v.expected_version, v.ordering_key, v.principal_id, v.digest)"
    )
    connection.execute(statement(text, len(rows)), values(rows))


def copy(connection: Connection, rows: list[Row]) -> None:
    with connection.cursor() as cursor, cursor.copy(statement("copy outbox.intent ({names}) from stdin", 0)) as stream:
        for row in rows:
            stream.write_row([row[name] for name in COLUMNS])


def on_conflict(connection: Connection, rows: list[Row]) -> None:
    """The first half twice: what is there already is not placed again."""
    text: LiteralString = "insert into outbox.intent ({names}) values {values} on conflict do nothing"
    half = rows[: len(rows) // 2]
    connection.execute(statement(text, len(half)), values(half))
    connection.execute(statement(text, len(rows)), values(rows))


def by_function(connection: Connection, rows: list[Row]) -> None:
    for row in rows:
        connection.execute(
            "select outbox.put(%(tenant_id)s, %(operation_id)s, %(tool)s, %(principal_id)s, %(arguments)s, %(digest)s,"
            " %(resource)s, %(expected_version)s, %(ordering_key)s)",
            row,
        )


def placed(stage: Stage) -> list[Row]:
    return stage.rows(
        "select i.tenant_id, i.operation_id, p.receiver_id, p.lane, p.ord, p.state, p.attempt, p.policy_version"
        " from outbox.intent i left join outbox.pending p using (seq) order by 2, 1"
    )


@pytest.mark.parametrize(
    "write",
    [one_by_one, many_rows, insert_select, with_clause, merge, copy, on_conflict, by_function],
    ids=lambda f: f.__name__,
)
def test_every_way_of_writing_places_the_same_rows_in_the_same_lanes(stage: Stage, write: Any) -> None:
    stage.register(lanes=4)
    write(stage.as_role("writer"), intents())
    rows = placed(stage)
    expected = [
        {
            "tenant_id": row["tenant_id"],
            "operation_id": row["operation_id"],
            "receiver_id": 1,
            "lane": stage.value(
                "select outbox.lane_of(4, %s, %s)", row["tenant_id"], row["ordering_key"] or row["operation_id"]
            ),
            "ord": stage.value("select outbox.ordering_hash(%s, %s)", row["tenant_id"], row["ordering_key"]),
            "state": "authorized",
            "attempt": 0,
            "policy_version": 1,
        }
        for row in sorted(intents(), key=lambda row: row["operation_id"])
    ]
    assert rows == expected
    assert len({row["lane"] for row in rows}) == 4


@pytest.mark.parametrize("write", [many_rows, copy, merge, by_function], ids=lambda f: f.__name__)
def test_one_wrong_digest_writes_nothing(stage: Stage, write: Any) -> None:
    stage.register()
    rows = intents(3)
    rows[1]["arguments"] += " "
    writer = stage.as_role("writer")
    with pytest.raises(psycopg.errors.CheckViolation, match="digest is not that of this intent"), writer.transaction():
        write(writer, rows)
    assert placed(stage) == []


@pytest.mark.parametrize("write", [many_rows, copy, by_function], ids=lambda f: f.__name__)
def test_one_unknown_tool_writes_nothing_and_says_what_to_do(stage: Stage, write: Any) -> None:
    stage.register()
    rows = intents(3)
    rows[1] = signed(rows[1] | {"tool": "stock.sett"})
    writer = stage.as_role("writer")
    with pytest.raises(psycopg.Error, match=r"unknown tool stock\.sett") as refusal, writer.transaction():
        write(writer, rows)
    assert refusal.value.sqlstate == "OB404"
    assert "outbox apply" in str(refusal.value.diag.message_hint)
    assert placed(stage) == []


@pytest.fixture
def buried(stage: Stage) -> Stage:
    """An operation that ended, was purged, and left its tombstone."""
    stage.register()
    holder = stage.holder().taken()
    stage.put("op-0", tenant="tenant-0")
    holder.begin()
    holder.end((1, 1))
    clock = Clock(stage.database)
    clock.advance(10 * 86400)
    assert stage.as_role("operator").execute(
        "select purged as n from outbox.purge(0, 1000, outbox.now(), 10, 'eve')"
    ).fetchall() == [{"n": 1}]
    return stage


@pytest.mark.parametrize("write", [many_rows, copy], ids=lambda f: f.__name__)
def test_a_purged_id_is_not_free(buried: Stage, write: Any) -> None:
    writer = buried.as_role("writer")
    with pytest.raises(psycopg.errors.UniqueViolation, match="op-0 of tenant tenant-0 has ended"), writer.transaction():
        write(writer, intents(3))
    assert placed(buried) == []


def test_a_purged_id_of_another_tenant_is_free(buried: Stage) -> None:
    many_rows(buried.as_role("writer"), [signed(row | {"tenant_id": "tenant-9"}) for row in intents(1)])
    assert [row["operation_id"] for row in placed(buried)] == ["op-0"]


BAD_VALUES: list[tuple[str, Any]] = [
    ("tenant_id", ""),
    ("tenant_id", "a b"),
    ("tenant_id", "acme\n"),
    ("tenant_id", "acmé"),
    ("tenant_id", "x" * 201),
    ("operation_id", "op\n"),
    ("operation_id", "op\x7f"),
    ("principal_id", ""),
    ("expected_version", "v\r\nX-Injected: 1"),
    ("expected_version", ""),
    ("ordering_key", ""),
    ("resource", ""),
    ("resource", "é" * 1001),
    ("arguments", "x" * 262_145),
    ("arguments", None),
    ("traceparent", "00-0-0-01"),
    ("compensates", "a b"),
    ("revision_of", ""),
    ("on_behalf_of", "x" * 201),
    ("content_type", "text/plain\n"),
    ("content_type", "text/plain"),
]


@pytest.mark.parametrize(("column", "value"), BAD_VALUES)
def test_the_database_refuses_what_must_not_travel(stage: Stage, column: str, value: Any) -> None:
    stage.register()
    row: Row = {"tenant": "acme", "operation_id": "op"} | {"tenant" if column == "tenant_id" else column: value}
    with pytest.raises(psycopg.errors.CheckViolation, match=f"the intent is refused: {column} ") as refused:
        stage.put(**row)
    assert refused.value.diag.column_name == column
    assert placed(stage) == []


OPTIONS: list[Row] = [
    {},
    {"resource": "sku-17"},
    {"expected_version": "v1"},
    {"ordering_key": "k"},
    {"compensates": "o-1", "revision_of": "o-2", "on_behalf_of": "eve"},
    {"traceparent": "00-" + 32 * "1" + "-" + 16 * "2" + "-01"},
    {"arguments": None, "content_type": "text/plain", "body": b"hello"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options) or "none")
def test_the_digest_is_recomputed_whatever_options_an_intent_has(stage: Stage, options: Row) -> None:
    stage.register()
    names = ("tenant_id", "operation_id", "tool", "resource", "expected_version", "arguments", "content_type", "body")
    row = dict.fromkeys(names) | {"tenant_id": "acme", "operation_id": "op", "tool": "stock.set", "arguments": "{}"}
    row |= {"principal_id": "svc"} | options
    right = stage.value("select outbox.intent_digest(%s, %s, %s, %s, %s, %s, %s, %s)", *[row[name] for name in names])
    insert = "insert into outbox.intent ({}, digest) values ({}, %(digest)s)".format(
        ", ".join(row), ", ".join(f"%({name})s" for name in row)
    ).encode()
    for name in names:
        changed = row | {name: b"bye" if name == "body" else f"{row[name] or ''}1"}
        with pytest.raises(psycopg.errors.CheckViolation):
            stage.admin.execute(insert, changed | {"digest": right})
    stage.admin.execute(insert, row | {"digest": right})
    assert len(placed(stage)) == 1


# ---------------------------------------------------------------------------------------------------------- lanes


@pytest.mark.parametrize("lanes", [1, 2, 3, 7, 1024])
@pytest.mark.parametrize("hashed", [0, 1, -1, 2**63 - 1, -(2**63), -(2**31), 2**31])
def test_every_hash_has_a_lane(stage: Stage, hashed: int, lanes: int) -> None:
    """abs() of the smallest integer is an error: one writer in so many billions would fail."""
    with stage.admin.transaction(force_rollback=True):
        stage.admin.execute(
            "create or replace function outbox.ordering_hash(tenant_id text, key text) returns bigint"
            f" language sql immutable as 'select ({hashed})::bigint'".encode()
        )
        assert stage.value("select outbox.lane_of(%s, 'acme', 'key')", lanes) == (hashed & (2**63 - 1)) % lanes


@given(
    tenant=st.text(max_size=20).filter(lambda s: "\0" not in s),
    key=st.text(max_size=20).filter(lambda s: "\0" not in s),
)
def test_two_tenants_never_share_an_ordering_key(tenant: str, key: str, module_stage: Stage) -> None:
    ours, theirs, null = (
        module_stage.value("select outbox.ordering_hash(%s, %s)", *pair)
        for pair in [(tenant, key), (tenant + "'", key), (tenant, None)]
    )
    assert ours != theirs
    assert null is None


@pytest.fixture(scope="module")
def module_stage(module_database: Any) -> Iterator[Stage]:
    with Stage(module_database) as stage:
        yield stage


def test_the_lanes_of_a_receiver_are_fixed(stage: Stage) -> None:
    stage.register(lanes=4)
    operator = stage.as_role("operator")
    with pytest.raises(psycopg.Error, match="lanes of receiver warehouse are fixed") as refusal:
        operator.execute("update outbox.receiver set lanes = 8")
    assert refusal.value.sqlstate == "OB409"
    operator.execute("update outbox.receiver set lanes = 4, doorbell = false")


MOVES: list[LiteralString] = [
    "update outbox.tool set receiver_id = 2 where name = 'stock.set'",
    "update outbox.tool set name = 'stock.put' where name = 'stock.set'",
    "delete from outbox.tool where name = 'stock.set'",
]


@pytest.mark.parametrize("move", MOVES)
def test_a_tool_stays_where_its_open_operations_are(stage: Stage, move: LiteralString) -> None:
    stage.register()
    stage.register("other", "second")
    seq = stage.put("op")
    operator = stage.as_role("operator")
    before = stage.everything()
    with pytest.raises(psycopg.Error, match="has open operations") as refusal:
        operator.execute(move)
    assert refusal.value.sqlstate == "OB409"
    assert stage.everything() == before
    operator.execute("select outbox.cancel('acme', 'op', 'eve')")
    operator.execute(move)
    assert stage.outcome(seq)["state"] == "rejected"


@pytest.mark.parametrize("move", MOVES)
def test_moving_a_tool_waits_for_writers_that_have_read_its_old_place(stage: Stage, move: LiteralString) -> None:
    stage.register()
    stage.register("other", "second")
    writer, mover = stage.session("writer"), stage.session("operator")
    writer.execute("begin")
    many_rows(writer, intents(1))
    moving = stage.start(lambda: mover.execute(move))
    stage.wait_until_blocked(mover, by=writer)
    writer.execute("commit")
    with pytest.raises(psycopg.Error, match="has open operations"):
        moving.result()


# ---------------------------------------------------------------------------------------------------------- order


def test_an_operation_begins_when_no_earlier_one_of_its_key_is_open(stage: Stage) -> None:
    stage.register()
    seqs = [stage.put(f"op-{n}", ordering_key="k") for n in range(3)]
    free = stage.put("free")
    other_tenant = stage.put("theirs", tenant="other", ordering_key="k")
    holder = stage.holder().taken()
    assert begun(holder) == [seqs[0], free, other_tenant]
    assert begun(holder) == []
    (answer,) = holder.run("end_operations", **_success(seqs[0]))
    assert (answer["seq"], answer["successor"]) == (seqs[0], seqs[1])
    assert begun(holder) == [seqs[1]]
    assert holder.record_unknown(seqs[1], 1)
    assert begun(holder) == []  # an unknown predecessor blocks its key, and only its key
    assert stage.settle(seqs[1], 1, "rejected") == "applied"
    assert begun(holder) == [seqs[2]]


def begun(holder: Holder) -> list[int]:
    return [row["seq"] for row in holder.begin() or []]


def _success(seq: int) -> dict[str, Any]:
    names = "causes wire_digests statuses excerpts request_ids peers receipts external_ids sent_keys"
    return {name: [None] for name in names.split(" ")} | {
        "seqs": [seq],
        "attempts": [1],
        "states": ["succeeded"],
        "for_alls": [False],
    }


def test_a_key_that_a_person_lets_pass_blocks_no_longer(stage: Stage) -> None:
    stage.register()
    first, second = (stage.put(f"op-{n}", ordering_key="k") for n in range(2))
    holder = stage.holder().taken()
    assert begun(holder) == [first]
    assert holder.record_unknown(first, 1)
    stage.as_role("operator").execute("select outbox.unblock('acme', 'op-0', 'eve', 'their support says wait')")
    assert begun(holder) == [second]
    assert stage.state(first) == "unknown"


@pytest.mark.parametrize("end", ["receipt", "settled", "ended"])
def test_where_an_attempt_may_land_late_its_successor_waits_until_it_cannot(stage: Stage, end: str) -> None:
    """Repeatable: attempt 1 is lost, the operation ends by attempt 2, and attempt 1 lands over the next value."""
    stage.register(**REPEATABLE)
    clock = Clock(stage.database)
    holder = stage.holder().taken(3600)
    first, second = (stage.put(f"op-{n}", ordering_key="k") for n in range(2))
    assert begun(holder) == [first]
    assert holder.record_unknown(first, 1, steps="resend", delays=0.0)
    assert begun(holder) == [first]
    if end == "receipt":
        assert holder.end((first, 2)) == [first]
    else:
        assert holder.record_unknown(first, 2)
        assert stage.settle(first, 2, "succeeded" if end == "settled" else "rejected", cause="confirmed" if end == "settled" else "ended") == "applied"  # fmt: skip  # noqa: E501
    assert begun(holder) == []
    clock.advance(30)
    assert begun(holder) == []
    clock.advance(11)
    assert begun(holder) == [second]


@pytest.mark.parametrize("act", ["cancel", "revoke", "expire"])
def test_whoever_ends_an_operation_wakes_the_next_of_its_key(stage: Stage, act: str) -> None:
    stage.register()
    soon = stage.value("select outbox.now() + interval '10 seconds'")
    stage.put("op-0", ordering_key="k", expires_at=soon)
    second = stage.put("op-1", ordering_key="k")
    holder = stage.holder().taken()
    holder.run("set_bell", idle=False, bell="bell_here", crowd=[])
    listener = stage.connect()
    listener.execute("listen bell_here")
    acts: dict[str, LiteralString] = {
        "cancel": "select outbox.cancel('acme', 'op-0', 'eve')",
        "revoke": "select outbox.revoke('acme', 'op-0', 'eve', null)",
        "expire": "select outbox.expire(10)",
    }
    if act == "expire":
        Clock(stage.database).advance(11)
        holder.connection.execute(acts[act])
    else:
        stage.as_role("operator").execute(acts[act])
    assert heard(listener) == [f"1/0/{second}"]
    assert begun(holder) == [second] or act == "expire"


# ------------------------------------------------------------------------------------------------------------ bells


def heard(listener: Connection) -> list[str]:
    """What was rung before now: notifications are delivered in the order of commits, so ours is the last."""
    listener.execute("select pg_notify('bell_here', 'end')")
    found: list[str] = []
    for notification in listener.notifies(timeout=10):
        if notification.payload == "end":
            break
        found.append(notification.payload)
    return sorted(found)


@pytest.fixture
def belfry(stage: Stage) -> tuple[Stage, list[Holder], Connection]:
    """Four lanes, each held by somebody who can be rung."""
    stage.register(lanes=4)
    holders = [stage.holder(lane).taken() for lane in range(4)]
    listener = stage.connect()
    listener.execute("listen bell_here")
    return stage, holders, listener


def test_a_writer_rings_for_idle_lanes_only_and_once_for_each(belfry: tuple[Stage, list[Holder], Connection]) -> None:
    stage, holders, listener = belfry
    holders[0].run("set_bell", idle=True, bell="bell_here", crowd=[])
    holders[1].run("set_bell", idle=True, bell="bell_here", crowd=[])
    holders[2].run("set_bell", idle=False, bell="bell_here", crowd=[])
    holders[3].run("set_bell", idle=True, bell=None, crowd=[])
    many_rows(stage.as_role("writer"), intents(40))
    assert heard(listener) == ["1/0", "1/1"]


def test_whoever_is_not_of_the_crowd_rings_with_the_number_of_what_he_wrote(
    belfry: tuple[Stage, list[Holder], Connection],
) -> None:
    """One statement rings once for a lane, however many rows it writes there."""
    stage, holders, listener = belfry
    for holder in holders:
        holder.run("set_bell", idle=False, bell="bell_here", crowd=["tenant-0", "tenant-1"])
    many_rows(stage.as_role("writer"), intents(40))
    assert heard(listener) == [], "of the crowd"
    seq = stage.put("one", tenant="small")
    lane = stage.value("select lane from outbox.pending where seq = %s", seq)
    assert heard(listener) == [f"1/{lane}/{seq}"]
    stage.rows("update outbox.lane set crowd = '{}' where lane <> 0")
    stage.rows(
        """
        insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest)
        select 'small', 'op-' || n, 'stock.set', 'svc', '{}',
          outbox.intent_digest('small', 'op-' || n, 'stock.set', null, null, '{}') from generate_series(1, 100) n
        """
    )
    assert heard(listener) == ["1/0"], "the holder looks for all of them; the other lanes have no crowd"


def test_a_bell_is_heard_when_the_intent_is_committed_and_never_when_it_is_not(
    belfry: tuple[Stage, list[Holder], Connection],
) -> None:
    stage, holders, listener = belfry
    for holder in holders:
        holder.run("set_bell", idle=True, bell="bell_here", crowd=[])
    writer = stage.session("writer")
    writer.execute("begin")
    many_rows(writer, intents())
    assert heard(listener) == []
    writer.execute("rollback")
    assert heard(listener) == []
    writer.execute("begin")
    many_rows(writer, intents())
    writer.execute("commit")
    assert heard(listener) == ["1/0", "1/1", "1/2", "1/3"]


def test_a_receiver_without_a_bell_is_never_rung_so_its_writers_can_commit_in_two_phases(
    belfry: tuple[Stage, list[Holder], Connection],
) -> None:
    """PREPARE TRANSACTION fails after NOTIFY: it would fail whenever the lane happens to be idle."""
    stage, holders, listener = belfry
    for holder in holders:
        holder.run("set_bell", idle=True, bell="bell_here", crowd=[])
    stage.as_role("operator").execute("update outbox.receiver set doorbell = false")
    writer = stage.session("writer")
    writer.execute("begin")
    many_rows(writer, intents())
    writer.execute("prepare transaction 'two phases'")
    writer.execute("commit prepared 'two phases'")
    assert heard(listener) == []
    assert len(placed(stage)) == 20


RUNG: dict[str, LiteralString] = {
    "approve": "select outbox.approve('acme', 'op', (select digest from outbox.intent), 'eve', null, null)",
    "retry": "select outbox.retry('acme', 'op', 'eve')",
    "expedite": "select outbox.expedite('acme', 'op', 'eve', null)",
    "settle": "select outbox.settle(1, 1, 'authorized', 'proven_absent', 'r', null, null, null)",
    "allow_resend": "select outbox.allow_resend(1, 1, outbox.now(), outbox.now())",
}


@pytest.mark.parametrize("act", RUNG)
def test_whoever_makes_a_row_due_rings_with_its_number(stage: Stage, act: str) -> None:
    """Behind the cursor of its holder nobody would look for it soon."""
    stage.register(**KEYED | {"requires_approval": act == "approve"})
    stage.put("op")
    holder = stage.holder().taken()
    if act in {"settle", "allow_resend"}:
        assert holder.begin()
        assert holder.record_unknown(1, 1)
    holder.run("set_bell", idle=False, bell="bell_here", crowd=[])
    listener = stage.connect()
    listener.execute("listen bell_here")
    stage.rows(RUNG[act])
    assert heard(listener) == ["1/0/1"]
    assert begun(holder) == [1]


def test_a_takeover_silences_the_bell_of_the_one_before(belfry: tuple[Stage, list[Holder], Connection]) -> None:
    stage, holders, listener = belfry
    for holder in holders:
        holder.run("set_bell", idle=True, bell="bell_here", crowd=[])
        holder.give_back()
        stage.holder(holder.lane).taken()
    many_rows(stage.as_role("writer"), intents())
    assert heard(listener) == []


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize(
    "act",
    [
        "delete from outbox.tool where name = 'stock.set'",
        "update outbox.tool set receiver_id = {other} where name = 'stock.set'",
    ],
    ids=["removed", "moved"],
)
def test_an_old_snapshot_does_not_place_an_operation_where_its_tool_was(
    stage: Stage, level: LiteralString, act: LiteralString
) -> None:
    """Nobody would look for it there, or two relays would: it is told to run again."""
    stage.register()
    other = stage.register("stock.count", "second")
    writer = stage.session("writer")
    writer.execute(f"begin isolation level {level}")
    writer.execute("select outbox.get_operation('acme', 'op')")
    stage.as_role("operator").execute(composing.SQL(act).format(other=composing.Literal(other)))
    intent = {"resource": None, "expected_version": None, "arguments": "{}", "principal_id": "svc"}
    identity = {"tenant_id": "acme", "operation_id": "op", "tool": "stock.set"}
    with pytest.raises(psycopg.errors.SerializationFailure):
        writer.execute(insert_intent(intent), intent | identity)
    writer.execute("rollback")
    assert stage.value("select count(*) from outbox.pending") == 0


def test_a_purge_and_a_move_at_once_wait_for_each_other_in_one_order(stage: Stage) -> None:
    """Each takes the lock on intents first, so neither holds what the other waits for."""
    stage.register()
    other = stage.register("stock.count", "second")
    purging, moving = stage.session("operator"), stage.session("operator")
    purging.execute("begin")
    purging.execute("select outbox.purge(0, 100, outbox.now(), 10, 'eve')")
    moved = stage.start(
        lambda: moving.execute("update outbox.tool set receiver_id = %s where name = 'stock.set'", [other])
    )
    stage.wait_until_blocked(moving, by=purging)
    purging.execute("select outbox.purge(0, 100, outbox.now(), 10, 'eve')")
    purging.execute("commit")
    moved.result(timeout=15)
