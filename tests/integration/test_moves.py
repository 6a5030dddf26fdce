"""The table of states.py and the law above it, as the database enforces them: every pair tried in both."""

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from outbox.errors import IllegalMove
from outbox.states import MAY_HIDE_EFFECT, MOVES, STARTS, TERMINAL, Cause, State, check_move
from tests.support.postgres import Cluster, Database
from tests.support.stage import Row, Stage

OPEN = [state for state in State if state not in TERMINAL]
PAIRS = [pytest.param(*pair, id="-".join(pair)) for pair in itertools.product(State, State)]

# What each state needs beside its name. An unknown operation has the facts of its attempt, and an unresolved one.
EXPOSED = "attempt = 1, fence = 1, begun_at = outbox.now(), first_sent_at = outbox.now(), resend_until = outbox.now()"
FACTS = {
    State.PROPOSED: "unresolved_at = null",
    State.AUTHORIZED: "unresolved_at = null",
    State.EXECUTING: EXPOSED,
    State.UNKNOWN: f"{EXPOSED}, unresolved_at = outbox.now()",
}


@pytest.fixture(scope="module")
def shared(postgres: Cluster, template: Database) -> Iterator[Stage]:
    with postgres.database(template) as made, Stage(made) as stage:
        stage.register()
        yield stage


@pytest.fixture
def stage(shared: Stage) -> Iterator[Stage]:
    """One database for the module: each test is rolled back."""
    shared.admin.execute("begin")
    yield shared
    shared.admin.execute("rollback")


def bring_to(stage: Stage, state: State) -> int:
    """Make an open operation in a state, by legal moves only, and return its seq."""
    seq = 1
    stage.rows("insert into outbox.pending (receiver_id, lane, seq, state, next_at, policy_version)"
               " values (1, 0, %s, 'proposed', outbox.now(), 1)", seq)  # fmt: skip
    path = {
        State.PROPOSED: [],
        State.AUTHORIZED: [State.AUTHORIZED],
        State.EXECUTING: [State.AUTHORIZED, State.EXECUTING],
        State.UNKNOWN: [State.AUTHORIZED, State.EXECUTING, State.UNKNOWN],
    }
    for step in path[state]:
        move(stage, seq, step)
    return seq


def move(stage: Stage, seq: int, state: State) -> None:
    facts = FACTS.get(state, "unresolved_at = null")
    stage.admin.execute(f"update outbox.pending set state = %s, {facts} where seq = %s".encode(), [state, seq])


def end(stage: Stage, before: State, after: State) -> None:
    stage.rows(
        "insert into outbox.outcome (seq, from_state, state, cause, attempt) values (1, %s, %s, 'person', 1)",
        before,
        after,
    )


def refused(stage: Stage, act: Any, *arguments: Any) -> str | None:
    """Try something in a savepoint; returns the SQLSTATE, and nothing if it was done."""
    before = stage.everything()
    try:
        with stage.admin.transaction():
            act(stage, *arguments)
    except psycopg.Error as error:
        assert stage.everything() == before
        return error.sqlstate
    return None


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_database_and_python_allow_the_same_moves(stage: Stage, before: State, after: State) -> None:
    if after is before:
        # Staying is not a move: Python refuses to call it one, the database lets a row be written again as it is.
        with pytest.raises(IllegalMove):
            check_move(before, after)
        return
    try:
        check_move(before, after)
        allowed = True
    except IllegalMove:
        allowed = False
    assert allowed == (after in MOVES[before])

    if after in TERMINAL:
        sqlstate = refused(stage, end, before, after)
        assert sqlstate == (None if allowed else "23514")
    elif before in TERMINAL:
        end(stage, State.EXECUTING, before)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="history"), stage.admin.transaction():
            stage.rows("update outbox.outcome set state = %s", after)
        assert not allowed
    else:
        seq = bring_to(stage, before)
        sqlstate = refused(stage, move, seq, after)
        assert sqlstate == (None if allowed else "OB409")


@pytest.mark.parametrize("state", OPEN)
@pytest.mark.parametrize("end_state", sorted(TERMINAL))
def test_an_open_row_never_holds_a_terminal_state(stage: Stage, state: State, end_state: State) -> None:
    seq = bring_to(stage, state)
    assert refused(stage, move, seq, end_state) == "OB409"
    with pytest.raises(psycopg.errors.CheckViolation, match="only_open_operations"):
        stage.rows(
            "insert into outbox.pending (receiver_id, lane, seq, state, next_at, policy_version)"
            " values (1, 0, 2, %s, now(), 1)",
            end_state,
        )


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair.values[1] not in TERMINAL])
def test_no_outcome_is_an_open_state(stage: Stage, before: State, after: State) -> None:
    assert refused(stage, end, before, after) == "23514"


@pytest.mark.parametrize("state", OPEN)
def test_only_executing_and_unknown_hide_an_effect(stage: Stage, state: State) -> None:
    seq = bring_to(stage, state)

    def hide(stage: Stage) -> None:
        stage.rows("update outbox.pending set unresolved_at = outbox.now() where seq = %s", seq)

    assert refused(stage, hide) == (None if state in MAY_HIDE_EFFECT else "23514")


@pytest.mark.parametrize("state", sorted(STARTS))
def test_a_move_out_of_the_doubt_must_say_that_nothing_is_unresolved(stage: Stage, state: State) -> None:
    seq = bring_to(stage, State.UNKNOWN)

    def keep_hiding(stage: Stage) -> None:
        stage.rows("update outbox.pending set state = %s where seq = %s", state, seq)

    assert refused(stage, keep_hiding) == ("23514" if state is State.AUTHORIZED else "OB409")


@pytest.mark.parametrize("column", ["unresolved_at", "first_sent_at", "resend_until"])
def test_an_unknown_operation_keeps_what_makes_it_unknown_and_its_window(stage: Stage, column: str) -> None:
    seq = bring_to(stage, State.UNKNOWN)

    def forget(stage: Stage) -> None:
        stage.admin.execute(f"update outbox.pending set {column} = null where seq = %s".encode(), [seq])

    assert refused(stage, forget) == "23514"


@pytest.mark.parametrize("column", ["fence", "begun_at", "first_sent_at", "resend_until"])
def test_an_executing_operation_has_every_fact_of_its_exposure(stage: Stage, column: str) -> None:
    seq = bring_to(stage, State.EXECUTING)

    def forget(stage: Stage) -> None:
        stage.admin.execute(f"update outbox.pending set {column} = null where seq = %s".encode(), [seq])

    assert refused(stage, forget) == "23514"


def test_the_place_of_an_operation_never_changes(stage: Stage) -> None:
    bring_to(stage, State.AUTHORIZED)
    for change in ("receiver_id = 2", "lane = 1", "seq = 2", "ord = 7"):

        def displace(stage: Stage, change: str = change) -> None:
            stage.admin.execute(f"update outbox.pending set {change}".encode())

        assert refused(stage, displace) == "OB409", change


def test_the_vocabulary_of_causes_is_one(stage: Stage) -> None:
    assert {row["name"] for row in stage.rows("select name from outbox.cause")} == set(Cause)


@pytest.mark.parametrize("table", ["pending", "outcome", "attempt"])
def test_every_table_with_a_cause_takes_exactly_the_vocabulary(stage: Stage, table: str) -> None:
    def write(stage: Stage, cause: str | None) -> None:
        shapes: dict[str, Row] = {
            "pending": {
                "receiver_id": 1,
                "lane": 0,
                "seq": 1,
                "state": "authorized",
                "next_at": "now",
                "policy_version": 1,
            },
            "outcome": {"seq": 1, "from_state": "executing", "state": "succeeded", "attempt": 1},
            "attempt": {"seq": 1, "attempt": 1, "fence": 1},
        }
        columns = shapes[table] | {"cause": cause}
        names, places = ", ".join(columns), ", ".join(f"%({name})s" for name in columns)
        stage.admin.execute(f"insert into outbox.{table} ({names}) values ({places})".encode(), columns)
        stage.admin.execute(f"delete from outbox.{table}".encode() if table == "pending" else "select")

    for cause in Cause:
        with stage.admin.transaction(force_rollback=True):
            write(stage, cause)
    for word in ("", "Expired", "expired ", "because"):
        assert refused(stage, write, word) == "23514", word


def test_a_rejection_always_tells_its_cause(stage: Stage) -> None:
    def reject(stage: Stage) -> None:
        stage.rows(
            "insert into outbox.outcome (seq, from_state, state, attempt) values (1, 'executing', 'rejected', 1)"
        )

    assert refused(stage, reject) == "23514"
