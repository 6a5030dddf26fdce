"""What one attempt makes of its operation: the design's table as data, and the facts of a contract that change it."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.decide import Reason, Step, Transition, after_attempt
from outbox.outcome import (
    Accepted,
    Ambiguous,
    Answer,
    InFlight,
    Mismatch,
    NotSent,
    Outcome,
    Receipt,
    ReceiverFault,
    Refused,
    StaleFence,
    StoredFailure,
    Throttled,
)
from outbox.states import MAY_HIDE_EFFECT, MOVES, TERMINAL, Cause, State
from tests.support.contracts import BOUND, CLASSES, KEY, STRONG, of_class, wiring

A = Answer(500)
S, R, U, P = State.SUCCEEDED, State.REJECTED, State.UNKNOWN, State.AUTHORIZED

# outcome -> first attempt: (state, withdrawn), resend: (state, withdrawn), cause
TABLE: dict[str, tuple[Outcome, tuple[State, bool], tuple[State, bool], Cause | None]] = {
    "receipt": (Receipt(answer=A, receipt="{}"), (S, False), (S, False), None),
    "accepted": (Accepted(answer=A), (U, False), (U, False), Cause.ACCEPTED),
    "refused": (Refused(answer=A), (R, True), (U, True), Cause.REFUSED),
    "412": (Refused(answer=A, cause=Cause.PRECONDITION_FAILED), (R, True), (U, True), Cause.PRECONDITION_FAILED),
    "window closed": (Refused(answer=A, cause=Cause.WINDOW_CLOSED), (R, True), (U, True), Cause.WINDOW_CLOSED),
    "not sent": (NotSent(reason="refused"), (P, True), (U, True), Cause.NOT_SENT),
    "throttled": (Throttled(answer=A), (P, True), (U, True), Cause.THROTTLED),
    "in flight": (InFlight(answer=A), (U, False), (U, False), Cause.IN_FLIGHT),
    "mismatch": (Mismatch(answer=A), (U, False), (U, False), Cause.MISMATCH),
    "stored failure": (StoredFailure(answer=A), (U, False), (U, False), Cause.STORED_FAILURE),
    "receiver fault": (ReceiverFault(answer=A), (P, True), (U, True), Cause.RECEIVER_FAULT),
    "forbidden": (ReceiverFault(answer=A, forbidden=True), (P, True), (U, True), Cause.FORBIDDEN),
    "stale fence": (StaleFence(answer=A), (U, False), (U, False), Cause.STALE_FENCE),
    "ambiguous": (
        Ambiguous(reason="reset", cause=Cause.CONNECTION_LOST),
        (U, False),
        (U, False),
        Cause.CONNECTION_LOST,
    ),
}
OUTCOMES = [row[0] for row in TABLE.values()]
NOT_EXECUTED = ["refused", "412", "throttled", "receiver fault", "forbidden"]


def after(outcome: Outcome, name: str = "key with a window", **facts: Any) -> Transition:
    given_facts = {"attempt": 1, "earlier_unresolved": False, "wiring": of_class(name), **facts}
    return after_attempt(outcome, **given_facts)


def resent(outcome: Outcome, name: str = "key with a window", **facts: Any) -> Transition:
    return after(outcome, name, **{"attempt": 2, "earlier_unresolved": True, **facts})


def test_the_table_has_a_row_for_every_outcome() -> None:
    assert {type(outcome) for outcome in OUTCOMES} == set(get_args(Outcome))


@pytest.mark.parametrize("name", [name for name in CLASSES if not of_class(name).trusted.replays])
@pytest.mark.parametrize("row", TABLE)
def test_every_outcome_leads_where_the_table_says(row: str, name: str) -> None:
    outcome, first, resend, cause = TABLE[row]
    seen_first, seen_resend = after(outcome, name), resent(outcome, name)
    assert (seen_first.state, seen_first.withdraw, seen_first.cause) == (*first, cause)
    assert (seen_resend.state, seen_resend.withdraw, seen_resend.cause) == (*resend, cause)


@given(
    outcome=st.sampled_from(OUTCOMES),
    name=st.sampled_from(sorted(CLASSES)),
    earlier=st.booleans(),
    settled=st.booleans(),
    attempt=st.integers(1, 200),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_while_an_earlier_attempt_is_unresolved_no_answer_rejects_or_frees_the_operation(
    *, outcome: Outcome, name: str, earlier: bool, settled: bool, attempt: int, jitter: float
) -> None:
    """The one exception: the receiver looked for the key first, and every earlier attempt had settled."""
    made = of_class(name)
    after_it = after_attempt(
        outcome, wiring=made, attempt=attempt, earlier_unresolved=earlier, earlier_settled=settled, jitter=jitter
    )
    assert after_it.state in MOVES[State.EXECUTING]
    if earlier and not (made.trusted.key_checked_first and settled):
        assert after_it.state in MAY_HIDE_EFFECT | {State.SUCCEEDED}
    if after_it.state in {State.REJECTED, State.AUTHORIZED}:
        assert after_it.withdraw, "an effect may exist, and the state says that it cannot"
    if after_it.state is State.UNKNOWN:
        assert after_it.step is not Step.NONE
    assert (after_it.delay_seconds is None) is (after_it.state in TERMINAL)
    assert (after_it.reason is not None) is (after_it.step is Step.PERSON)


# ----------------------------------------------------------------------------------- an answer speaks for its attempt


def test_a_connection_that_was_never_made_says_nothing_about_the_attempt_before() -> None:
    """Authorized after it, and the permission runs out: rejected, while the first attempt has its effect."""
    after_it = resent(NotSent(reason="connect refused"))
    assert (after_it.state, after_it.withdraw, after_it.step) == (State.UNKNOWN, True, Step.RESEND)


def test_a_throttled_resend_says_nothing_about_the_attempt_before() -> None:
    after_it = resent(Throttled(answer=A, retry_after_seconds=7))
    assert (after_it.state, after_it.step) == (State.UNKNOWN, Step.RESEND)
    assert after_it.delay_seconds is not None
    assert after_it.delay_seconds >= 7


def test_a_refusal_on_a_resend_is_of_the_receivers_present_state_only() -> None:
    """404 because our DELETE worked, 422 because it is refunded already: the first attempt may be why."""
    after_it = resent(Refused(answer=A))
    assert (after_it.state, after_it.no_more_resends) == (State.UNKNOWN, True)


def test_a_412_on_a_resend_is_ambiguous_and_teaches_that_no_further_resend_helps() -> None:
    after_it = resent(Refused(answer=A, cause=Cause.PRECONDITION_FAILED), "version, repeat-safe")
    assert (after_it.state, after_it.no_more_resends, after_it.step) == (State.UNKNOWN, True, Step.PERSON)


def test_a_refusal_on_a_resend_is_final_where_the_key_is_checked_first_and_all_before_had_settled() -> None:
    assert resent(Refused(answer=A), "key checked first", earlier_settled=True).state is State.REJECTED
    assert resent(Refused(answer=A), "key checked first", earlier_settled=False).state is State.UNKNOWN
    assert resent(Refused(answer=A), "key with a window", earlier_settled=True).state is State.UNKNOWN


@pytest.mark.parametrize(
    ("stored", "replayed", "state"),
    [
        ("all", True, State.REJECTED),
        ("all", False, State.UNKNOWN),
        ("success", True, State.UNKNOWN),
        ("state", True, State.UNKNOWN),
    ],
)
def test_a_replayed_refusal_is_the_stored_answer_of_every_attempt_with_the_key(
    stored: str, replayed: bool, state: State
) -> None:
    """Whatever lands later is answered from the same record, so nothing has to settle first."""
    made = of_class("key checked first", stored_outcomes=stored)
    assert resent(Refused(answer=A, replayed=replayed), wiring=made).state is state


@pytest.mark.parametrize("row", NOT_EXECUTED)
@pytest.mark.parametrize("name", ["key over a path that repeats", "look over a path that repeats"])
def test_over_a_path_that_repeats_requests_no_refusal_proves_anything(row: str, name: str) -> None:
    """One copy was executed, another was refused, and we hear the refusal."""
    for after_it in (after(TABLE[row][0], name), resent(TABLE[row][0], name)):
        assert (after_it.state, after_it.withdraw) == (State.UNKNOWN, False)


def test_what_never_left_this_machine_is_proven_over_any_path() -> None:
    after_it = after(NotSent(reason="no address"), "look over a path that repeats")
    assert (after_it.state, after_it.withdraw) == (State.AUTHORIZED, True)


# -------------------------------------------------------------------------------------------------- what is done next


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("key with a window", Step.RESEND),
        ("key and strong look", Step.LOOK),
        ("strong look", Step.LOOK),
        ("look that proves nothing", Step.LOOK),
        ("repeat-safe", Step.RESEND),
        ("repeat-safe and look", Step.LOOK),
        ("nothing", Step.PERSON),
        ("version", Step.PERSON),
    ],
)
def test_a_lost_answer_is_looked_up_first_then_sent_again_and_else_somebody_is_asked(name: str, step: Step) -> None:
    after_it = after(Ambiguous(reason="timeout"), name)
    assert after_it.step is step
    assert after_it.reason is (Reason.NO_LOOKUP if step is Step.PERSON else None)


def test_a_tool_may_ask_for_the_resend_first() -> None:
    made = wiring({"key": KEY, "key_retention": "10m", "lookup": STRONG, **BOUND}, recover="resend_first")
    assert after(Ambiguous(reason="timeout"), wiring=made).step is Step.RESEND


def test_a_resend_that_never_left_is_tried_again_without_another_look() -> None:
    assert resent(NotSent(reason="no route"), "key and strong look").step is Step.RESEND


def test_a_mismatch_goes_to_a_person_and_never_to_a_look() -> None:
    """The record under our key may be somebody else's: a look would confirm it."""
    after_it = after(Mismatch(answer=A), "key and strong look")
    assert (after_it.step, after_it.reason) == (Step.PERSON, Reason.MISMATCH)
    assert after_it.alarm
    assert after_it.mismatch
    assert after_it.no_more_resends


def test_a_stored_failure_is_no_reason_to_send_again() -> None:
    after_it = resent(StoredFailure(answer=A), "key and strong look")
    assert (after_it.step, after_it.no_more_resends) == (Step.LOOK, True)
    assert resent(StoredFailure(answer=A), "key with a window").step is Step.PERSON


def test_accepted_work_is_looked_up_and_not_sent_again() -> None:
    after_it = after(Accepted(answer=A), "later, key")
    assert (after_it.step, after_it.accepted) == (Step.LOOK, True)


def test_a_request_that_still_runs_is_given_the_time_that_the_contract_names() -> None:
    made = of_class("key with a window", resend_after="30s")
    for outcome in (InFlight(answer=A), InFlight(answer=A, retry_after_seconds=5)):
        after_it = after(outcome, wiring=made)
        assert after_it.delay_seconds is not None
        assert after_it.delay_seconds >= 30


def test_a_stale_fence_means_that_the_lease_is_lost() -> None:
    assert after(StaleFence(answer=A)).lease_lost
    assert not any(after(outcome).lease_lost for outcome in OUTCOMES if not isinstance(outcome, StaleFence))


# --------------------------------------------------------------------------------------------------- faults and pauses


def test_only_a_fault_of_ours_counts_towards_a_pause_of_the_receiver() -> None:
    """One tenant's forbidden object must not stop the rest."""
    assert [row for row in TABLE if after(TABLE[row][0]).pause_receiver] == ["receiver fault"]


def test_an_operation_that_is_forbidden_again_and_again_becomes_somebodys_business() -> None:
    made = of_class("nothing", retry={"forbidden_attempts": 3})
    forbidden = ReceiverFault(answer=A, forbidden=True)
    steps = [after(forbidden, wiring=made, attempt=number).step for number in (1, 2, 3, 4)]
    assert steps == [Step.NONE, Step.NONE, Step.PERSON, Step.PERSON]
    last = after(forbidden, wiring=made, attempt=3)
    assert (last.state, last.reason) == (State.AUTHORIZED, Reason.FORBIDDEN)


def test_throttles_do_not_count_towards_what_a_person_must_see() -> None:
    made = of_class("nothing", retry={"forbidden_attempts": 3})
    forbidden = ReceiverFault(answer=A, forbidden=True)
    assert after(forbidden, wiring=made, attempt=50, throttled=40, not_sent=9).step is Step.NONE


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_back_off_grows_and_is_bounded(failures: int, jitter: float) -> None:
    made = of_class("nothing", retry={"first": "2s", "factor": 3.0, "max": "1m"})
    outcome = NotSent(reason="refused")
    delay = after(outcome, wiring=made, attempt=failures + 1, not_sent=failures, jitter=jitter).delay_seconds
    longest = min(60.0, 2.0 * 3.0 ** min(failures, 20))
    assert delay is not None
    assert longest / 2 <= delay <= longest


@pytest.mark.parametrize("asked", [0.0, 5.0, 3_600.0, 1e9, -5.0])
def test_a_retry_after_is_obeyed_within_the_contracts_bound(asked: float) -> None:
    made = of_class("nothing", retry={"first": "1s", "max": "10s", "retry_after_max": "1h"})
    delay = after(Throttled(answer=A, retry_after_seconds=asked), wiring=made).delay_seconds
    assert delay is not None
    assert min(max(asked, 0.5), 3_600.0) <= delay <= max(min(asked, 3_600.0), 1.0)
