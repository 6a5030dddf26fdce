"""History leaves: only what is over for good, in batches, and an old id is still answered for."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox import Intent, IntentConflict, Outbox
from tests.support.desk import BLIND, KEYED, Desk
from tests.support.eventually import eventually
from tests.support.postgres import Database
from tests.support.stage import Stage, insert_intent

DAY = 86_400
OLD = ("--older-than", "90d")
BOX = Outbox(tenant_id="shop", principal_id="svc")


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Iterator[Desk]:
    with Stage(database) as stage:
        yield Desk(database, stage, tmp_path)


def purge(desk: Desk, *arguments: str) -> Any:
    return desk.run.json("purge", *OLD, "--yes", *arguments)


def names(desk: Desk, table: Any) -> list[str]:
    return [row["operation_id"] for row in desk.stage.rows(f"select operation_id from outbox.{table} order by seq")]


def put_again(desk: Desk, name: str, **fields: Any) -> Any:
    with psycopg.connect(desk.database.dsn_for("writer")) as connection:
        return BOX.put(connection, Intent(tool=KEYED, operation_id=name, arguments={}, **fields))


# ------------------------------------------------------------------------------------------------------- what may leave


def test_what_ended_long_ago_leaves_and_nothing_else(desk: Desk) -> None:
    old = desk.ended("old", "succeeded")
    refused = desk.ended("old-too", "rejected")
    for column in ("proposed", "authorized", "executing", "unknown, a resend is safe", "unknown, no resend is"):
        desk.in_state(column, column.replace(" ", "-"))
    desk.clock.advance(91 * DAY)
    assert desk.holder.renew(ttl_seconds=DAY)
    desk.ended("young", "succeeded")
    desk.clock.advance(3 * 3600)
    open_before = desk.stage.rows("select * from outbox.pending order by seq")
    doubts_before = desk.stage.rows("select * from outbox.doubt order by seq")
    report = purge(desk)
    assert (report["purged"], report["kept"]) == (2, 0)
    assert names(desk, "tombstone") == ["old", "old-too"]
    for table in ("intent", "outcome", "attempt", "evidence", "approval"):
        assert desk.stage.rows(f"select from outbox.{table} where seq in ({old}, {refused})") == []
    assert desk.stage.rows("select * from outbox.pending order by seq") == open_before
    assert desk.stage.rows("select * from outbox.doubt order by seq") == doubts_before
    assert purge(desk)["purged"] == 0


@pytest.mark.parametrize(
    ("settle", "person_settle", "waits"),
    [("3 days", "1 hour", 3 * DAY), (None, "5 days", 5 * DAY), (None, "1 minute", 3600)],
    ids=["a stated bound", "a person's", "an hour at least"],
)
def test_nothing_leaves_while_a_late_receipt_may_still_contradict_it(
    desk: Desk, settle: str | None, person_settle: str, waits: int
) -> None:
    desk.stage.rows("update outbox.tool set settle = %s, person_settle = %s", settle, person_settle)
    desk.ended("op", "rejected")
    desk.clock.advance(waits - 60)
    now = desk.run.json("purge", "--older-than", "1ms", "--yes")
    assert (now["purged"], now["kept"]) == (0, 1)
    counted = desk.run.json("purge", "--older-than", "1ms", "--dry-run")
    assert (counted["purged"], counted["unsettled"], counted["contradicted"]) == (0, 1, 0)
    desk.clock.advance(120)
    assert desk.run.json("purge", "--older-than", "1ms", "--yes")["purged"] == 1


def test_of_a_tool_that_is_gone_nobody_knows_a_bound_so_a_month_is_one(desk: Desk) -> None:
    desk.ended("op", "succeeded", BLIND)
    desk.stage.rows("delete from outbox.tool where name = %s", BLIND)
    desk.clock.advance(29 * DAY)
    assert desk.run.json("purge", "--older-than", "1d", "--yes")["kept"] == 1
    desk.clock.advance(2 * DAY)
    assert desk.run.json("purge", "--older-than", "1d", "--yes")["purged"] == 1


@pytest.mark.parametrize(
    ("state", "evidence"),
    [
        ("rejected", {"kind": "receipt", "receipt": "{}"}),
        ("rejected", {"kind": "lookup", "verdict": "confirmed"}),
        ("succeeded", {"kind": "lookup", "verdict": "confirmed", "duplicates": 1}),
        ("succeeded", {"kind": "receipt", "receipt": "{}", "external_id": "another"}),
    ],
)
def test_what_is_contradicted_stays_until_somebody_has_looked(desk: Desk, state: str, evidence: dict[str, Any]) -> None:
    seq = desk.ended("op", state)
    desk.stage.rows("set session_replication_role = replica")
    desk.stage.rows("update outbox.outcome set external_id = 'one' where seq = %s", seq)
    desk.stage.rows("set session_replication_role = origin")
    desk.stage.witness(seq, attempt=1, fence=desk.holder.fence, **evidence)
    desk.clock.advance(400 * DAY)
    counted = desk.run.json("purge", *OLD, "--dry-run")
    assert (counted["purged"], counted["contradicted"]) == (0, 1)
    assert purge(desk)["kept"] == 1
    assert desk.run.json("show", "op")["contradictions"]


def test_evidence_that_comes_while_an_end_is_purged_is_not_purged_with_it_unseen(desk: Desk) -> None:
    seq = desk.ended("op", "rejected")
    desk.clock.advance(400 * DAY)
    relay, operator = desk.stage.session("relay"), desk.stage.session("operator")
    statement = "select purged from outbox.purge(0, 100, outbox.now(), 10, 'eve')"
    relay.execute("begin")
    relay.execute(
        "select outbox.witness(%s, 1, 1, 'receipt', null, null, '{}', 0, 200, null, null, null, 'late', null, null)",
        [seq],
    )
    assert operator.execute(statement).fetchall() == [{"purged": 0}], "it is not known yet what comes"
    relay.execute("commit")
    assert operator.execute(statement).fetchall() == [{"purged": 0}], "it is contradicted"
    assert desk.run.json("show", "op")["contradictions"]


@pytest.mark.parametrize(
    ("state", "evidence", "is_against"),
    [
        ("rejected", {"kind": "receipt", "receipt": "{}"}, True),
        ("rejected", {"kind": "lookup", "verdict": "not_found"}, False),
        ("succeeded", {"kind": "receipt", "receipt": "{}", "external_id": "another"}, True),
        ("succeeded", {"kind": "receipt", "receipt": "{}", "external_id": "one"}, False),
    ],
)
def test_evidence_against_an_end_raises_also_when_that_was_purged(
    desk: Desk, state: str, evidence: dict[str, Any], *, is_against: bool
) -> None:
    seq = desk.ended("op", state)
    if state == "succeeded":
        desk.stage.rows("set session_replication_role = replica")
        desk.stage.rows("update outbox.outcome set external_id = 'one' where seq = %s", seq)
        desk.stage.rows("set session_replication_role = origin")
    desk.clock.advance(400 * DAY)
    assert purge(desk)["purged"] == 1
    desk.stage.witness(seq, attempt=1, fence=desk.holder.fence, **evidence)
    stuck = [item for item in desk.run.json("stuck")["items"] if item["kind"] == "contradiction"]
    assert [(item["tenant_id"], item["operation_id"], item["state"]) for item in stuck] == [
        ("shop", "op", state)
    ] * is_against
    assert desk.stage.value("select count(*) from outbox.contradiction") == int(is_against)
    assert len(desk.run.json("show", "op")["contradictions"]) == int(is_against)
    assert any("somebody must look" in line for line in desk.run.json("why", "op")["known"]) is is_against
    assert desk.run.json("report", "--since", "1h")["totals"]["contradictions"] == int(is_against)


def test_what_may_still_land_in_the_order_of_its_key_stays(desk: Desk) -> None:
    seq = desk.ended("op", "succeeded", ordering_key="k")
    desk.stage.rows(
        "insert into outbox.landing (receiver_id, ord, seq, until) select 1, outbox.ordering_hash('shop', 'k'), %s,"
        " outbox.now() + interval '200 days'",
        seq,
    )
    desk.clock.advance(100 * DAY)
    assert purge(desk)["purged"] == 0
    desk.clock.advance(101 * DAY)
    assert purge(desk)["purged"] == 1


def test_a_dry_run_counts_what_a_purge_does_and_changes_nothing(desk: Desk) -> None:
    for number in range(5):
        desk.ended(f"op-{number}", "succeeded")
    desk.clock.advance(100 * DAY)
    history = desk.stage.everything()
    counted = desk.run.json("purge", *OLD, "--dry-run")
    assert desk.stage.everything() == history
    assert counted["purged"] == 5
    assert purge(desk, "--batch", "2")["purged"] == 5


def test_nothing_is_purged_unless_somebody_says_so(desk: Desk) -> None:
    error = desk.run.refused("purge", *OLD, code=2)
    assert "--yes" in error["message"]
    assert desk.run.refused("purge", "--older-than", "soon", "--yes", code=2)


# ----------------------------------------------------------------------------------------------------------- in batches


def fill(desk: Desk, number: int) -> None:
    """Write operations that ended long ago."""
    desk.stage.rows(
        """
        insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest)
          select 'shop', 'op-' || n, %s, 'svc', '{}', outbox.intent_digest('shop', 'op-' || n, %s, null, null, '{}')
          from generate_series(1, %s) n
        """,
        KEYED,
        KEYED,
        number,
    )
    desk.stage.rows(
        """
        with gone as (delete from outbox.pending returning seq)
        insert into outbox.outcome (seq, from_state, state, attempt) select seq, 'executing', 'succeeded', 1 from gone
        """
    )
    desk.clock.advance(100 * DAY)


def test_each_batch_is_a_transaction_and_is_recorded(desk: Desk) -> None:
    fill(desk, 25)
    assert purge(desk, "--batch", "10")["purged"] == 25
    rows = desk.stage.rows("select count(*) as n, count(distinct xmin::text) as batches from outbox.tombstone")
    assert rows == [{"n": 25, "batches": 3}]
    audit = desk.run.json("audit", "--act", "purge")["items"]
    assert [item["target"] for item in audit] == ["5 operations", "10 operations", "10 operations"]


def test_a_purge_reads_what_it_moves_and_stops_where_everything_is_young(desk: Desk) -> None:
    fill(desk, 2_000)
    desk.clock.advance(2 * DAY)
    for number in range(50):
        desk.put(f"young-{number}")
    operator = desk.stage.as_role("operator")
    upto = operator.execute("select outbox.seq_at(outbox.now() - interval '1 day') as upto").fetchall()[0]["upto"]
    assert upto == 2_000
    purge(desk, "--batch", "500")
    assert desk.stage.value("select count(*) from outbox.tombstone") == 2_000


@pytest.mark.parametrize("numbers", [[], [1], [1, 2, 3], [1, 5, 6, 100, 101]])
def test_the_number_of_a_date_is_found_whatever_gaps_there_are(desk: Desk, numbers: list[int]) -> None:
    desk.stage.rows("set session_replication_role = replica")
    for number in numbers:
        desk.stage.rows(
            """
            insert into outbox.intent
              (seq, tenant_id, operation_id, tool, principal_id, arguments, digest, created_at) overriding system value
            select %s::bigint, 'shop', n, 'x', 'svc', '{}', outbox.intent_digest('shop', n, 'x', null, null, '{}'),
              timestamptz '2026-01-01Z' + %s * interval '1 day' from (select %s::text as n) s
            """,
            number,
            number,
            f"n-{number}",
        )
    desk.stage.rows("set session_replication_role = origin")
    for day in range(103):
        found = desk.stage.value("select outbox.seq_at(timestamptz '2026-01-01Z' + %s * interval '1 day')", day)
        earlier = [number for number in numbers if number < day]
        assert found == max(earlier, default=min(numbers, default=0) - 1)


def test_a_purge_that_was_interrupted_stops_between_batches_and_goes_on_when_run_again(desk: Desk) -> None:
    """Ctrl-C in the middle of a real process: what is gone is gone whole, and the rest is there."""
    fill(desk, 4_000)
    command = [sys.executable, "-m", "outbox", "--config", str(desk.run.config), "purge", *OLD, "--batch", "1", "--yes"]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True) as process:
        eventually(lambda: desk.stage.value("select count(*) from outbox.tombstone") > 10)
        os.kill(process.pid, signal.SIGINT)
        report = json.loads(process.communicate(timeout=30)[0])
        assert process.returncode == 130
    assert report["interrupted"]
    left = desk.stage.value("select count(*) from outbox.intent")
    assert 0 < report["purged"] == 4_000 - left
    assert desk.stage.value("select count(*) from outbox.outcome") == left
    assert desk.stage.value("select count(*) from outbox.tombstone") == 4_000 - left
    assert purge(desk)["purged"] == left


def test_two_purges_at_once_move_everything_once(desk: Desk) -> None:
    fill(desk, 400)
    connections = [desk.stage.connect("operator") for _ in range(4)]
    barrier = threading.Barrier(len(connections))

    def work(connection: Any) -> int:
        barrier.wait()
        moved = 0
        after: int | None = 0
        while after is not None:
            statement = "select purged, passed from outbox.purge(%s, 1000000, outbox.now(), 20, 'eve')"
            (row,) = connection.execute(statement, [after]).fetchall()
            moved, after = moved + row["purged"], row["passed"]
        return moved

    with ThreadPoolExecutor(len(connections)) as pool:
        moved = sum(pool.map(work, connections))
    assert moved == desk.stage.value("select count(*) from outbox.tombstone") == 400
    assert desk.stage.value("select count(*) from outbox.intent") == 0


# ------------------------------------------------------------------------------------------------------------- old ids


@pytest.mark.parametrize("state", ["succeeded", "rejected"])
def test_an_old_id_that_is_put_again_is_answered_from_its_tombstone_and_has_no_effect(desk: Desk, state: str) -> None:
    with psycopg.connect(desk.database.dsn_for("writer")) as connection:
        first = BOX.put(connection, Intent(tool=KEYED, operation_id="op", arguments={}))
    (seq,) = (row["seq"] for row in desk.stage.rows("select seq from outbox.pending"))
    assert desk.holder.begin_these(seq)
    desk.holder.end((seq, 1), state=state)
    desk.clock.advance(100 * DAY)
    assert purge(desk)["purged"] == 1
    again = put_again(desk, "op")
    assert first.created
    assert (again.created, again.purged, again.state) == (False, True, state)
    assert desk.stage.rows("select from outbox.intent") == desk.stage.rows("select from outbox.pending") == []
    assert desk.holder.begin() == [], "there is nothing to send"
    with psycopg.connect(desk.database.dsn_for("writer")) as connection:
        assert getattr(BOX.get(connection, "op"), "state", None) == state
        with pytest.raises(IntentConflict):
            BOX.put(connection, Intent(tool=KEYED, operation_id="op", arguments={"another": "action"}))
    put = ("put", "--tenant", "shop", "--principal", "svc", "--tool", KEYED, "--id", "op")
    assert desk.run.json(*put)["purged"]


def test_show_and_why_answer_for_what_was_purged(desk: Desk) -> None:
    desk.ended("op", "rejected")
    shown = desk.run.json("show", "op")
    desk.clock.advance(100 * DAY)
    purge(desk)
    left = desk.run.json("show", "op")
    same = ("operation_id", "tenant_id", "state", "cause", "tool", "principal_id", "digest")
    assert {name: left[name] for name in same} == {name: shown[name] for name in same}
    assert (left["purged"], left["next"], left["outcome"]["state"]) == (True, None, "rejected")
    why = desk.run.json("why", "op")
    assert why["purged"]
    assert any("It was rejected" in line and "the receiver refused it" in line for line in why["known"])
    assert any(shown["digest"] in line for line in why["known"])
    assert any("causes no second effect" in line for line in why["next"])
    assert "what may happen next" in desk.run("why", "op").out
    for act in (("retry", "op"), ("cancel", "op")):
        assert "purged" in desk.run.refused(*act, code=4)["message"]


def test_puts_of_an_id_that_is_being_purged_get_its_end_before_and_after_and_never_a_second_operation(
    desk: Desk,
) -> None:
    """All of them meet at a barrier, again and again, while the id goes from the intents into the tombstones."""
    rounds, putters = 12, 3
    for number in range(rounds):
        desk.ended(f"op-{number}", "succeeded")
    desk.clock.advance(100 * DAY)
    before = desk.stage.value("select max(seq) from outbox.intent")
    barrier = threading.Barrier(putters + 1)
    answers: list[Any] = []

    def put() -> None:
        with psycopg.connect(desk.database.dsn_for("writer"), autocommit=True) as connection:
            for number in range(rounds):
                barrier.wait()
                intent = Intent(tool=KEYED, operation_id=f"op-{number}", arguments={})
                answers.extend(BOX.put(connection, intent) for _ in range(4))

    def purge_one_by_one() -> None:
        operator = desk.stage.connect("operator")
        for number in range(rounds):
            barrier.wait()
            statement = "select purged from outbox.purge(%s, 1000000, outbox.now(), 1, 'eve')"
            assert operator.execute(statement, [number]).fetchall() == [{"purged": 1}]

    threads = [threading.Thread(target=put) for _ in range(putters)] + [threading.Thread(target=purge_one_by_one)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == rounds * putters * 4
    assert {(answer.state, answer.created) for answer in answers} == {("succeeded", False)}
    assert desk.stage.value("select count(*) from outbox.pending") == 0, "no effect will follow"
    assert desk.stage.value("select count(*) from outbox.tombstone") == rounds
    assert desk.stage.value("select count(*) from outbox.intent") == 0
    assert desk.stage.value("select nextval(pg_get_serial_sequence('outbox.intent', 'seq'))") >= before


def test_an_identity_that_is_kept_for_a_time_is_forgotten_after_it_and_others_never(desk: Desk) -> None:
    desk.stage.rows("update outbox.tool set identity_retention = interval '365 days' where name = %s", KEYED)
    desk.ended("kept-for-a-year", "succeeded")
    desk.ended("kept-for-ever", "succeeded", BLIND)
    desk.clock.advance(100 * DAY)
    purge(desk)
    reconciler = desk.stage.as_role("reconciler")
    desk.clock.advance(264 * DAY)
    assert reconciler.execute("select outbox.forget(100) as n").fetchall() == [{"n": 0}]
    desk.clock.advance(2 * DAY)
    assert reconciler.execute("select outbox.forget(100) as n").fetchall() == [{"n": 1}]
    assert names(desk, "tombstone") == ["kept-for-ever"]
    assert put_again(desk, "kept-for-a-year").created


def test_of_two_purges_at_once_none_is_hidden_from_an_old_snapshot_by_the_other(desk: Desk) -> None:
    """A snapshot that sees the end of one, and not that of the other, does not take what that has purged for new."""
    desk.ended("slow", "succeeded")
    desk.ended("quick", "succeeded")
    desk.clock.advance(100 * DAY)
    statement = "select purged from outbox.purge(%s, %s, outbox.now(), 10, 'eve')"
    slow, quick = desk.stage.session("operator"), desk.stage.session("operator")
    slow.execute("begin")
    assert slow.execute(statement, [0, 1]).fetchall() == [{"purged": 1}]
    quicker = desk.stage.start(lambda: quick.execute(statement, [1, 2]).fetchall())
    desk.stage.wait_until_blocked(quick, by=slow)
    writer = desk.stage.session("writer")
    writer.execute("begin isolation level repeatable read")
    writer.execute("select outbox.get_operation('shop', 'slow')")  # the snapshot
    slow.execute("commit")
    assert quicker.result(timeout=10) == [{"purged": 1}]
    intent = {"resource": None, "expected_version": None, "arguments": "{}", "principal_id": "svc"}
    identity = {"tenant_id": "shop", "operation_id": "slow", "tool": KEYED}
    with pytest.raises(psycopg.errors.SerializationFailure):
        writer.execute(insert_intent(intent), intent | identity)
    writer.execute("rollback")
    assert desk.stage.value("select count(*) from outbox.pending") == 0, "no second effect follows"
