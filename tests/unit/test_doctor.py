"""Each judgement of the doctor, on what a check has read."""

from datetime import UTC, datetime
from typing import Any

import pytest

from outbox.doctor import Finding, Level
from outbox.doctor.foundation import judge_clock, judge_role, judge_server, judge_version
from outbox.doctor.storage import judge_holder, judge_replication, judge_table
from outbox.doctor.work import judge_daemons, judge_doubts, judge_receiver
from outbox.schema import SCHEMA_VERSION

NOW = datetime(2026, 11, 30, 3, tzinfo=UTC)
SAFE = {
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "statement_timeout": "30s",
    "lock_timeout": "3s",
    "idle_in_transaction_session_timeout": "1s",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
}


def role(*, made: bool = True, logs_in: bool = True, may_enter: bool = True, **settings: str) -> list[Finding]:
    rows: list[dict[str, Any]] = [
        {"made": made, "logs_in": logs_in, "may_enter": may_enter, "setting": name, "value": value}
        for name, value in (SAFE | settings).items()
    ]
    return judge_role("outbox_relay", rows)


def levels(found: list[Finding]) -> list[Level]:
    return [finding.level for finding in found]


def test_a_role_with_what_promises_rest_on_is_not_mentioned() -> None:
    assert role() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"synchronous_commit": "off"}, "synchronous_commit"),
        ({"default_transaction_isolation": "serializable"}, "serializable"),
        ({"statement_timeout": "0"}, "statement_timeout"),
        ({"lock_timeout": "0ms"}, "lock_timeout"),
        ({"idle_in_transaction_session_timeout": "0"}, "idle_in_transaction"),
        ({"enable_hashjoin": "on"}, "hashjoin"),
        ({"enable_mergejoin": "on"}, "mergejoin"),
        ({"enable_seqscan": "on"}, "seqscan"),
        ({"made": False}, "there is no role"),
        ({"may_enter": False}, "may not use the schema"),
    ],
    ids=str,
)
def test_a_role_that_promises_cannot_rest_on_is_a_problem_with_a_remedy(change: dict[str, Any], words: str) -> None:
    (finding,) = role(**change)
    assert (finding.level, words in finding.what) == (Level.PROBLEM, True)
    assert "outbox migrate" in (finding.advice or "")


def test_a_role_that_cannot_log_in_is_a_warning() -> None:
    assert levels(role(logs_in=False)) == [Level.WARNING]


KEEPING = {"standby": False, "fsync": "on", "full_page_writes": "on", "autovacuum": "on", "track_counts": "on"}


def test_a_server_that_keeps_what_it_commits_and_cleans_up_is_fine() -> None:
    assert levels(judge_server(KEEPING)) == [Level.OK]


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"standby": True}, "name the primary"),
        ({"fsync": "off"}, "set fsync = on"),
        ({"full_page_writes": "off"}, "set full_page_writes = on"),
        ({"autovacuum": "off"}, "turn autovacuum"),
        ({"track_counts": "off"}, "turn autovacuum and track_counts on"),
    ],
    ids=str,
)
def test_a_server_that_does_not_is_a_problem_with_what_to_set(change: dict[str, Any], advice: str) -> None:
    (finding,) = judge_server(KEEPING | change)
    assert (finding.level, advice in (finding.advice or "")) == (Level.PROBLEM, True)


def test_an_old_schema_is_a_problem_and_a_newer_one_a_warning() -> None:
    assert judge_version(SCHEMA_VERSION) == []
    assert levels(judge_version(SCHEMA_VERSION - 1)) == [Level.PROBLEM]
    assert levels(judge_version(SCHEMA_VERSION + 1)) == [Level.WARNING]


@pytest.mark.parametrize(
    ("own", "shift", "uncertain", "level"),
    [
        (0.0, 0.01, 0.1, Level.OK),
        (0.0, 6.0, 0.1, Level.WARNING),
        (0.0, -3600.0, 0.1, Level.WARNING),
        (0.0, 6.0, 4.0, Level.OK),  # the answer took so long that nobody knows
        (86_400.0, 0.0, 0.0, Level.PROBLEM),
    ],
)
def test_clocks_are_judged_within_what_can_be_known(own: float, shift: float, uncertain: float, level: Level) -> None:
    (finding,) = judge_clock(own_shift_seconds=own, shift_seconds=shift, uncertain_seconds=uncertain)
    assert finding.level is level


@pytest.mark.parametrize(
    ("row", "words", "advice"),
    [
        ({"kind": "session", "name": "42", "detail": "psql", "transactions": 5, "seconds": 7_200.0}, "2 h", "(42)"),
        ({"kind": "session", "name": "42", "detail": "x", "transactions": 2_000_000, "seconds": None}, "2000000", "42"),
        ({"kind": "prepared", "name": "tx-1", "detail": "a", "transactions": 9, "seconds": 900.0}, "tx-1", "rollback"),
        ({"kind": "slot", "name": "s1", "detail": "logical", "transactions": 9, "seconds": None}, "s1", "consumer"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else None,
)
def test_whoever_keeps_dead_rows_is_named_with_how_to_end_it(row: dict[str, Any], words: str, advice: str) -> None:
    finding = judge_holder(row)
    assert finding.level is Level.WARNING
    assert words in finding.what
    assert advice in (finding.advice or "")


@pytest.mark.parametrize(
    ("dead", "live", "is_bad"),
    [(10_000, 0, False), (60_000, 100_000, False), (60_000, 1_000, True), (5_000_000, 5_000_001, False)],
)
def test_a_table_is_bloated_when_more_of_it_is_dead_than_alive(dead: int, live: int, is_bad: bool) -> None:
    row = {"name": "pending", "bytes": 2**30, "dead": dead, "live": live, "vacuumed_at": None}
    assert (judge_table(row) is not None) is is_bad


@pytest.mark.parametrize(
    ("tools", "standbys", "synchronous", "level"),
    [
        ([], 2, False, Level.OK),
        (["mail.send"], 0, False, Level.OK),
        (["mail.send"], 1, True, Level.OK),
        (["mail.send"], 1, False, Level.PROBLEM),
    ],
)
def test_tools_without_a_key_need_a_standby_that_is_waited_for(
    tools: list[str], standbys: int, synchronous: bool, level: Level
) -> None:
    (finding,) = judge_replication(tools, standbys=standbys, synchronous=synchronous)
    assert finding.level is level
    assert (level is Level.OK) or "mail.send" in finding.what


RELAY = {"kind": "relay", "receivers": None, "version": "1"}
RECONCILER = {"kind": "reconciler", "receivers": None, "version": "1"}
BUSY, QUIET = {"name": "warehouse", "has_work": True}, {"name": "mail", "has_work": False}


@pytest.mark.parametrize(
    ("members", "receivers", "expected"),
    [
        ([RELAY, RECONCILER], [BUSY, QUIET], [Level.OK]),
        ([], [BUSY], [Level.PROBLEM, Level.PROBLEM]),
        ([], [QUIET], [Level.WARNING, Level.WARNING]),
        ([RELAY], [BUSY], [Level.PROBLEM]),
        ([{**RELAY, "receivers": ["mail"]}, RECONCILER], [BUSY, QUIET], [Level.PROBLEM]),
        ([RELAY, {**RECONCILER, "version": "2"}], [BUSY], [Level.WARNING]),
        ([], [], [Level.OK]),
    ],
    ids=["all", "none, busy", "none, quiet", "no reconciler", "serves another", "two versions", "nothing"],
)
def test_every_receiver_needs_a_relay_and_a_reconciler(
    members: list[dict[str, Any]], receivers: list[dict[str, Any]], expected: list[Level]
) -> None:
    assert levels(judge_daemons(members, receivers)) == expected


WELL = {"name": "warehouse", "paused_at": None, "circuit_opened_at": None}
PAUSED = WELL | {"paused_at": NOW, "paused_by": "ann", "pause_reason": "their release"}
LEFT_ALONE = WELL | {"circuit_opened_at": NOW, "circuit_reason": "no answer", "circuit_seconds": 299.0}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (WELL, []),
        (PAUSED, [Level.WARNING]),
        (PAUSED | {"paused_by": "relay"}, [Level.PROBLEM]),
        (LEFT_ALONE, [Level.WARNING]),
        (LEFT_ALONE | {"circuit_seconds": 301.0}, [Level.PROBLEM]),
    ],
    ids=["well", "paused by a person", "paused by a relay", "left alone for minutes", "left alone for longer"],
)
def test_what_stands_still_until_somebody_acts_is_a_problem(row: dict[str, Any], expected: list[Level]) -> None:
    found = judge_receiver(row)
    assert levels(found) == expected
    assert all("outbox resume receiver warehouse" in (finding.advice or "") for finding in found)


def test_doubts_are_judged_by_who_must_act() -> None:
    calm = {"open": 3, "needs_person": 0, "late": 0, "closing": 0, "waiting_seconds": 9.0, "closes_at": None}
    assert levels(judge_doubts(calm, 0)) == [Level.OK]
    assert levels(judge_doubts(calm | {"needs_person": 1}, 0)) == [Level.WARNING]
    assert levels(judge_doubts(calm | {"needs_person": 1, "waiting_seconds": 901.0}, 0)) == [Level.PROBLEM]
    assert levels(judge_doubts(calm | {"late": 1}, 0)) == [Level.PROBLEM]
    assert levels(judge_doubts(calm | {"closing": 2, "closes_at": NOW}, 0)) == [Level.WARNING]
    assert levels(judge_doubts(calm, 1)) == [Level.PROBLEM]
    everything = judge_doubts(calm | {"needs_person": 1, "late": 1, "closing": 1, "closes_at": NOW}, 1)
    assert len(everything) == 4
    assert all(finding.advice for finding in everything)
