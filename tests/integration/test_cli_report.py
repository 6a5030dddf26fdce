"""A report counts what happened since a date, by tool, and reads no more than that date bounds."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outbox import sql
from tests.support.desk import ASKING, BLIND, KEYED, Desk
from tests.support.postgres import Database
from tests.support.stage import Connection, Stage


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Iterator[Desk]:
    with Stage(database) as stage:
        yield Desk(database, stage, tmp_path)


def by_tool(report: Any) -> dict[str, dict[str, Any]]:
    return {item["tool"]: item for item in report["items"]}


def test_operations_are_counted_by_tool_and_by_the_state_they_are_in_now(desk: Desk) -> None:
    desk.put("authorized")
    desk.put("proposed", ASKING)
    desk.executing("executing", BLIND)
    desk.unknown("unknown", BLIND)
    desk.ended("ended", "succeeded")
    desk.ended("refused", "rejected")
    report = desk.run.json("report")
    tools = by_tool(report)
    assert {name: tools[KEYED][name] for name in ("receiver", "put", "authorized", "succeeded", "rejected")} == {
        "receiver": "warehouse",
        "put": 3,
        "authorized": 1,
        "succeeded": 1,
        "rejected": 1,
    }
    assert (tools[ASKING]["proposed"], tools[BLIND]["executing"], tools[BLIND]["unknown"]) == (1, 1, 1)
    assert (report["totals"]["put"], report["totals"]["ended"], report["totals"]["in_doubt"]) == (6, 2, 1)


def test_what_happened_before_the_date_is_left_out_but_what_is_in_doubt_is_not(desk: Desk) -> None:
    desk.ended("old", "succeeded")
    desk.unknown("old-doubt", BLIND)
    desk.clock.advance(90_000)
    desk.ended("new", "succeeded")
    report = desk.run.json("report", "--since", "24h")
    assert (report["totals"]["put"], report["totals"]["ended"]) == (1, 1)
    assert by_tool(report)[BLIND]["in_doubt"] == 1
    assert by_tool(report)[BLIND]["oldest_doubt_seconds"] > 89_000
    assert desk.run.json("report", "--since", "2d")["totals"]["put"] == 3
    date = desk.stage.value("select to_char(outbox.now() - interval '1 hour', 'YYYY-MM-DD\"T\"HH24:MI:SSOF')")
    assert desk.run.json("report", "--since", date)["totals"]["put"] == 1
    assert desk.run("report", "--since", "lately").code == 2


def test_an_answer_that_refused_our_credential_is_no_doubt(desk: Desk) -> None:
    seq = desk.executing("op")
    assert desk.holder.withdraw(seq, 1, causes="receiver_fault", not_sents=False, statuses=401, delays=0.0)
    assert desk.holder.begin_these(seq)
    assert desk.holder.end((seq, 2)) == [seq]
    assert len(desk.stage.rows("select from outbox.attempt_log where seq = %s", seq)) == 2
    assert "had been in doubt" not in desk.run("report").out


def test_the_time_to_reconcile_counts_from_the_first_doubt(desk: Desk) -> None:
    for name, seconds in (("a", 10), ("b", 20), ("c", 600)):
        seq = desk.unknown(name)
        desk.clock.advance(seconds)
        desk.stage.settle(seq, 1, "succeeded")
    desk.ended("never-in-doubt", "succeeded")
    totals = desk.run.json("report")["totals"]
    assert totals["reconciled"] == 3
    measured = {name: round(totals[f"reconcile_{name}_seconds"]) for name in ("p50", "p95", "max")}
    assert measured == {"p50": 20, "p95": 542, "max": 600}
    assert "3 of them had been in doubt, for 20 s (p50)" in desk.run("report").out


def test_attempts_are_counted_with_those_that_had_no_effect(desk: Desk) -> None:
    seq = desk.executing("op")
    desk.holder.withdraw(seq, 1, delays=0.0, not_sents=True, throttleds=False)
    desk.holder.begin_these(seq)
    desk.holder.withdraw(seq, 2, delays=0.0, not_sents=False, throttleds=True, causes="throttled")
    desk.holder.begin_these(seq)
    desk.holder.end((seq, 3))
    desk.ended("other", "succeeded")
    totals = desk.run.json("report")["totals"]
    assert {name: totals[name] for name in ("attempts_mean", "attempts_max", "throttled", "not_sent")} == {
        "attempts_mean": 2.0,
        "attempts_max": 3,
        "throttled": 1,
        "not_sent": 1,
    }


def test_duplicates_and_contradictions_are_counted(desk: Desk) -> None:
    twice, against = desk.ended("twice", "succeeded"), desk.ended("against", "rejected", BLIND)
    for _ in range(2):
        desk.stage.witness(twice, "lookup", attempt=1, fence=1, verdict="confirmed", duplicates=1)
    desk.stage.witness(against, "receipt", attempt=1, fence=1, receipt="{}")
    tools = by_tool(desk.run.json("report"))
    assert (tools[KEYED]["duplicates"], tools[KEYED]["contradictions"]) == (1, 2)
    assert (tools[BLIND]["duplicates"], tools[BLIND]["contradictions"]) == (0, 1)


def test_a_window_that_closed_while_nobody_used_it_is_counted(desk: Desk) -> None:
    """In doubt now, or ended since: a resend would have been safe for a day, and none was made."""
    desk.unknown("open-doubt")
    ended = desk.unknown("ended-late")
    used = desk.unknown("used")
    desk.unknown("no-window", BLIND)
    desk.clock.advance(100)
    desk.run("retry", "used")
    desk.holder.begin_these(used)
    desk.holder.record_unknown(used, 2)
    assert desk.run.json("report")["totals"]["windows_unused"] == 0
    desk.clock.advance(86_500)
    desk.stage.settle(ended, 1, "succeeded")
    report = desk.run.json("report", "--since", "3d")
    assert by_tool(report)[KEYED]["windows_unused"] == 2
    assert by_tool(report)[BLIND]["windows_unused"] == 0


def test_what_daemons_counted_is_there_also_when_they_are_gone(desk: Desk) -> None:
    desk.stage.rows(
        """
        insert into outbox.member (member_id, kind, host, pid, version, seen_at, left_at, counters) values
          (gen_random_uuid(), 'relay', 'a', 1, '1', outbox.now(), null, '{"fenced_writes": 2, "attempts": 10}'),
          (gen_random_uuid(), 'relay', 'b', 1, '1', '-infinity', outbox.now(), '{"fenced_writes": 3, "attempts": 5}'),
          (gen_random_uuid(), 'relay', 'c', 1, '1', '-infinity', outbox.now() - interval '9 d', '{"fenced_writes": 7}'),
          (gen_random_uuid(), 'reconciler', 'd', 1, '1', outbox.now(), null, '{}')
        """
    )
    daemons = desk.run.json("report")["daemons"]
    assert daemons == {
        "relay": {"daemons": 2, "attempts": 15, "fenced_writes": 5},
        "reconciler": {"daemons": 1},
    }
    assert "2 relays lived; they have counted: attempts 15, fenced_writes 5" in desk.run("report").out


# Every figure of a report, with what happens on the stage below: per tool, and over all.
FIGURES = {
    KEYED: {
        "receiver": "warehouse",
        "put": 6,
        "proposed": 0,
        "authorized": 1,
        "executing": 0,
        "unknown": 1,
        "succeeded": 4,
        "rejected": 0,
        "ended": 4,
        "attempts_mean": 1.0,
        "attempts_max": 1,
        "reconciled": 3,
        "p50": 20,
        "p95": 542,
        "max": 600,
        "in_doubt": 1,
        "needs_person": 0,
        "windows_unused": 0,
        "duplicates": 1,
        "contradictions": 1,
        "writes_refused": 1,
        "throttled": 0,
        "not_sent": 0,
    },
    BLIND: {
        "receiver": "warehouse",
        "put": 3,
        "proposed": 0,
        "authorized": 0,
        "executing": 1,
        "unknown": 1,
        "succeeded": 0,
        "rejected": 1,
        "ended": 1,
        "attempts_mean": 1.0,
        "attempts_max": 1,
        "reconciled": 0,
        "p50": None,
        "p95": None,
        "max": None,
        "in_doubt": 1,
        "needs_person": 1,
        "windows_unused": 0,
        "duplicates": 0,
        "contradictions": 1,
        "writes_refused": 0,
        "throttled": 0,
        "not_sent": 0,
    },
}
ALL = {
    "put": 9,
    "proposed": 0,
    "authorized": 1,
    "executing": 1,
    "unknown": 2,
    "succeeded": 4,
    "rejected": 1,
    "ended": 5,
    "attempts_mean": 1.0,
    "attempts_max": 1,
    "reconciled": 3,
    "p50": 20,
    "p95": 542,
    "max": 600,
    "in_doubt": 2,
    "needs_person": 1,
    "windows_unused": 0,
    "duplicates": 1,
    "contradictions": 2,
    "writes_refused": 1,
    "throttled": 0,
    "not_sent": 0,
}


def figures(row: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The figures of a row; durations in whole seconds, under short names."""
    short = {name.removeprefix("reconcile_").removesuffix("_seconds"): value for name, value in row.items()}
    return {name: round(short[name]) if isinstance(short[name], float) else short[name] for name in names}


def test_every_figure_is_there_by_tool_by_receiver_and_in_all_as_json_and_in_the_table(desk: Desk) -> None:
    for name, seconds in (("a", 10), ("b", 20), ("c", 600)):
        seq = desk.unknown(name)
        desk.clock.advance(seconds)
        desk.stage.settle(seq, 1, "succeeded")
    twice = desk.ended("twice", "succeeded")
    desk.stage.witness(twice, "lookup", attempt=1, fence=1, verdict="confirmed", duplicates=1)
    against = desk.ended("against", "rejected", BLIND)
    desk.stage.witness(against, "receipt", attempt=1, fence=1, receipt="{}")
    late = desk.unknown("late")
    desk.stage.witness(late, "late_answer", attempt=1, fence=1, source="relay", note="Ambiguous")
    desk.unknown("person", BLIND, answer={"steps": "person", "reasons": "no_lookup"})
    waiting = desk.executing("waiting")
    desk.holder.withdraw(waiting, 1, delays=5_000.0, causes="no_connection")
    desk.executing("executing", BLIND)
    report = desk.run.json("report")
    assert {tool: figures(item, FIGURES[tool]) for tool, item in by_tool(report).items()} == FIGURES
    (warehouse,) = report["receivers"]
    assert warehouse["receiver"] == "warehouse"
    assert figures(warehouse, ALL) == figures(report["totals"], ALL) == ALL
    assert 0 <= report["totals"]["oldest_doubt_seconds"] < 60
    lines = [line.split("\t") for line in desk.run("report").out.splitlines() if "\t" in line]
    heads = [number for number, line in enumerate(lines) if line[0] == "receiver"]
    assert len(heads) == 2
    cells = {
        (line[1], name): cell
        for start, end in zip(heads, [*heads[1:], len(lines)], strict=True)
        for line in lines[start + 1 : end]
        for name, cell in zip(lines[start], line, strict=True)
    }
    assert (cells[KEYED, "reconcile_p50"], cells[KEYED, "reconcile_p95"], cells[KEYED, "reconcile_max"]) == (
        "20 s",
        "9 min",
        "10 min",
    )
    shown = [name for name in ALL if name not in {"p50", "p95", "max", "attempts_mean"}]
    assert {name: cells["all", name] for name in shown} == {name: str(ALL[name]) for name in shown}
    assert {name: cells[BLIND, name] for name in shown} == {name: str(FIGURES[BLIND][name]) for name in shown}
    assert (cells["all", "attempts_mean"], cells[BLIND, "oldest_doubt"].endswith(" s")) == ("1.00", True)


def test_nothing_is_a_report_too(desk: Desk) -> None:
    report = desk.run.json("report")
    assert (report["items"], report["totals"]["put"], report["totals"]["reconcile_p50_seconds"]) == ([], 0, None)
    assert desk.run("report").code == 0


def history(desk: Desk) -> None:
    """Many operations that ended long ago, and one that ended now."""
    desk.stage.rows(
        """
        insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest)
        select 'shop', 'op-' || n, %s, 'svc', '{}', outbox.intent_digest('shop', 'op-' || n, %s, null, null, '{}')
        from generate_series(1, 40000) n
        """,
        KEYED,
        KEYED,
    )
    desk.stage.rows(
        """
        with gone as (delete from outbox.pending returning seq)
        insert into outbox.outcome (seq, from_state, state, attempt) select seq, 'executing', 'succeeded', 1 from gone
        """
    )
    desk.clock.advance(10 * 86_400)
    desk.ended("new", "succeeded")
    desk.stage.rows("vacuum analyze outbox.intent, outbox.outcome")
    desk.stage.rows(
        "select brin_summarize_new_values(i) from unnest(%s::regclass[]) i",
        ["outbox.intent_created_at", "outbox.outcome_ended_at"],
    )


def read(connection: Connection, *tables: str) -> dict[str, int]:
    """Rows that this transaction has read of each table, by scanning it whole and by index."""
    (row,) = connection.execute(
        "select sum(seq_tup_read)::int as scanned, sum(coalesce(idx_tup_fetch, 0))::int as fetched"
        " from pg_stat_xact_user_tables where schemaname = 'outbox' and relname = any(%s)",
        [list(tables)],
    ).fetchall()
    return row


def test_a_report_and_a_rate_read_the_part_of_history_that_their_date_bounds(desk: Desk) -> None:
    history(desk)
    since = desk.stage.value("select outbox.now() - interval '1 day'")
    operator = desk.stage.as_role("operator")
    asked = [("report", "report_put"), ("report", "report_ended"), ("inspect", "top_ends")]
    with operator.transaction(force_rollback=True):
        before = read(operator, "intent", "outcome")
        for group, name in asked:
            assert operator.execute(sql.load(group)[name], {"since": since, "seconds": 60}).fetchall()
        after = read(operator, "intent", "outcome")
    assert after["scanned"] == before["scanned"], "no scan of a whole table"


def test_looking_for_what_was_never_placed_asks_for_the_place_of_what_has_not_ended(desk: Desk) -> None:
    history(desk)
    desk.put("open")
    operator = desk.stage.as_role("operator")
    with operator.transaction(force_rollback=True):
        before = read(operator, "tool", "receiver")
        assert operator.execute(sql.load("doctor")["doctor_unplaced"], {"newest": None}).fetchall() == []
        after = read(operator, "tool", "receiver")
    assert sum(after.values()) - sum(before.values()) <= 20
