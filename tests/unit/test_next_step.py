"""
What follows from doubt. Every interleaving that once led to a second effect, a false state or a dead end has its test.

The wirings: deadline 5 s, pause 2 s, in-flight bound 10 s (so an attempt has landed after 17 s), lag 8 s where there is
one, window 600 s less margin 24 s and reach 10 s.
"""

from dataclasses import replace
from typing import Any

import pytest

from outbox.decide import (
    FOREVER,
    Authorize,
    Decision,
    Look,
    NoResend,
    Person,
    Reason,
    Reject,
    Resend,
    Step,
    Succeed,
    after_attempt,
    next_step,
    no_resend,
    proof_at,
    settle_at,
    statement_counts_from,
    window_closes_at,
)
from outbox.evidence import Evidence, Kind, Verdict
from outbox.outcome import Ambiguous
from outbox.states import Cause, State
from tests.support.contracts import BOUND, CLASSES, KEY, STRONG, of_class, wiring
from tests.support.facts import T0, at, doubt, late, look, seconds, statement

LOOKED = {"reads": 1}


def step(name: str, now: float, *evidence: Evidence, **facts: Any) -> Decision:
    made = of_class(name)
    return next_step(doubt(made, **facts), made, evidence, at(now))


# -------------------------------------------------------------------------------- 1: the effect was shown


@pytest.mark.parametrize("name", CLASSES)
def test_a_late_receipt_settles_whatever_the_contract_says_about_looks(name: str) -> None:
    """The lease was lost, the answer came: we hold the receipt, so nobody is asked."""
    proof = late(Kind.RECEIPT, receipt="{}", external_id="r-1")
    assert step(name, 60, proof) == Succeed(proof, Cause.LATE_RECEIPT)


def test_a_record_that_carries_our_identity_settles() -> None:
    shown = look(Verdict.CONFIRMED, 3)
    assert step("look that proves nothing", 4, shown) == Succeed(shown, Cause.CONFIRMED)


def test_a_person_who_has_seen_the_effect_settles_at_any_time() -> None:
    stated = statement(Verdict.CONFIRMED, 1)
    assert step("nothing", 2, stated) == Succeed(stated, Cause.PERSON)


@pytest.mark.parametrize(
    "contrary",
    [
        [look(Verdict.NOT_FOUND, 30)],
        [look(Verdict.ENDED, 30)],
        [look(Verdict.PARTIAL, 30)],
        [statement(Verdict.NOT_FOUND, 4_000)],
        [late(Kind.NOT_SENT)],
    ],
)
def test_a_receipt_outweighs_everything_that_speaks_against_it(contrary: list[Evidence]) -> None:
    proof = late(Kind.RECEIPT)
    assert isinstance(step("key and strong look", 5_000, *contrary, proof), Succeed)


def test_a_receipt_survives_the_permission_that_produced_it() -> None:
    proof = late(Kind.RECEIPT)
    assert isinstance(step("strong look", 60, proof, permission_holds=False, permission_until=at(10)), Succeed)


def test_after_a_mismatch_a_record_under_our_key_may_be_somebody_elses() -> None:
    shown = look(Verdict.CONFIRMED, 30)
    decided = step("key and strong look", 31, shown, mismatch=True, no_more_resends=True, cause=Cause.MISMATCH)
    assert isinstance(decided, Person)
    assert decided.reason is Reason.MISMATCH


def test_after_a_mismatch_neither_an_end_nor_an_absence_is_read_from_records() -> None:
    for verdict in (Verdict.ENDED, Verdict.NOT_FOUND, Verdict.PARTIAL):
        decided = step("key and strong look", 31, look(verdict, 30), mismatch=True, no_more_resends=True)
        assert isinstance(decided, Person)
        assert decided.reason is Reason.MISMATCH


# ----------------------------------------------------------------------------- 2: how the receiver says it ended


def test_work_that_was_accepted_and_declined_ends_as_no_effect() -> None:
    ended = look(Verdict.ENDED, 3)
    assert step("later, pending shown", 4, ended, accepted=True) == Reject(ended, Cause.ENDED)


def test_an_end_of_one_attempt_says_nothing_about_another_that_is_still_on_its_way() -> None:
    early, late_enough = look(Verdict.ENDED, 30, attempt=2), look(Verdict.ENDED, 57, attempt=2)
    two = {"attempt": 2, "last_exposed_at": at(40), "gave_up_at": at(45), "earlier_unresolved": True, **LOOKED}
    early = replace(early, sent_at=at(50))
    assert not isinstance(step("strong look", 51, early, **two), Reject)
    assert step("strong look", 60, late_enough, **two) == Reject(late_enough, Cause.ENDED)


def test_an_end_that_was_seen_before_the_latest_attempt_is_no_end() -> None:
    stale = look(Verdict.ENDED, 30, attempt=1)
    two = {"attempt": 2, "last_exposed_at": at(40), "gave_up_at": at(45), "earlier_unresolved": True}
    assert not isinstance(step("strong look", 100, stale, **two), Reject)


def test_where_failures_are_stored_under_the_key_the_end_of_one_attempt_is_the_end_of_all() -> None:
    made = of_class("key and strong look", stored_outcomes="all")
    ended = look(Verdict.ENDED, 42, attempt=2)
    op = doubt(made, attempt=2, last_exposed_at=at(40), gave_up_at=at(41), earlier_unresolved=True)
    assert next_step(op, made, [ended], at(43)) == Reject(ended, Cause.ENDED)


def test_over_a_path_that_repeats_an_end_waits_until_no_copy_can_land() -> None:
    assert not isinstance(step("look over a path that repeats", 4, look(Verdict.ENDED, 3)), Reject)
    assert isinstance(step("look over a path that repeats", 18, look(Verdict.ENDED, 17)), Reject)


def test_a_part_of_the_effect_is_a_persons_business_and_is_never_sent_again() -> None:
    decided = step("key and strong look", 31, look(Verdict.PARTIAL, 30))
    assert isinstance(decided, Person)
    assert decided.reason is Reason.PARTIAL


@pytest.mark.parametrize("verdict", [Verdict.ENDED, Verdict.PARTIAL])
def test_what_the_receiver_has_a_record_of_is_not_sent_again(verdict: Verdict) -> None:
    made = of_class("repeat-safe and look")
    assert no_resend(doubt(made), made, [look(verdict, 3)], at(4)) is NoResend.RECORD_EXISTS


# ------------------------------------------------------------------------------------------ 3: absence is proven


@pytest.mark.parametrize(("name", "proven"), [("strong look", 17.0), ("eventual look", 25.0)])
def test_only_a_look_sent_when_every_attempt_had_landed_and_was_visible_proves_absence(
    name: str, proven: float
) -> None:
    early, late_enough = look(Verdict.NOT_FOUND, proven - 0.001), look(Verdict.NOT_FOUND, proven)
    assert isinstance(step(name, 100, early), Look)
    assert step(name, 100, late_enough) == Authorize(late_enough, Cause.PROVEN_ABSENT, anchor_anew=False)


def test_two_looks_a_lag_apart_that_straddle_the_bound_prove_nothing() -> None:
    """The effect lands at 16.9 and is visible at 24.9: both look before, and both see nothing."""
    straddling = [look(Verdict.NOT_FOUND, 16), look(Verdict.NOT_FOUND, 24)]
    assert isinstance(step("eventual look", 25, *straddling, reads=2, last_read_at=at(24)), Look)


def test_a_look_counts_from_when_it_was_sent_and_not_from_when_it_was_answered_or_decided() -> None:
    """A reconciler that was stopped for minutes between its read and its decision."""
    slow = replace(look(Verdict.NOT_FOUND, 10), observed_at=at(200))
    assert isinstance(step("strong look", 300, slow), Look)


def test_settle_time_counts_deadline_pause_and_bound_from_the_last_exposure() -> None:
    assert settle_at(at(0), of_class("strong look")) == at(17)
    assert settle_at(at(0), of_class("strong look, no bound")) is None
    later = doubt(of_class("strong look"), attempt=2, last_exposed_at=at(40), earlier_unresolved=True)
    assert proof_at(later, of_class("strong look")) == at(57)


def test_a_later_settle_time_that_was_recorded_counts() -> None:
    made = of_class("strong look")
    assert proof_at(doubt(made, settle_at=at(30)), made) == at(30)
    assert proof_at(doubt(made, settle_at=at(3)), made) == at(17)


def test_a_look_at_an_earlier_attempt_decides_nothing_about_a_later_one() -> None:
    """Two reconcilers read "not found"; one authorizes, the second attempt has its effect, the other decides."""
    stale = look(Verdict.NOT_FOUND, 60, attempt=1)
    two = {"attempt": 2, "last_exposed_at": at(40), "gave_up_at": at(45)}
    assert not isinstance(step("strong look", 100, stale, **two), Reject | Authorize)


@pytest.mark.parametrize("name", ["look that proves nothing", "strong look, no bound"])
def test_without_a_bound_or_a_promise_not_found_is_never_proof(name: str) -> None:
    assert not isinstance(step(name, 100_000, look(Verdict.NOT_FOUND, 90_000)), Reject | Authorize)


def test_a_look_that_failed_proves_nothing_however_late_it_was() -> None:
    assert not isinstance(step("strong look", 100, look(Verdict.UNKNOWN, 90)), Reject | Authorize | Resend)


def test_after_an_acceptance_not_found_proves_nothing() -> None:
    """The bound says when the request has landed, not when the work is done."""
    for name in ("strong look", "later, blind"):
        assert not isinstance(step(name, 100, look(Verdict.NOT_FOUND, 90), accepted=True), Reject | Authorize)


def test_a_tool_that_works_later_may_have_accepted_without_our_hearing_it() -> None:
    assert not isinstance(step("later, blind", 100, look(Verdict.NOT_FOUND, 90)), Reject | Authorize)


def test_where_pending_work_is_shown_not_found_proves_absence_also_after_an_acceptance() -> None:
    seen = look(Verdict.NOT_FOUND, 17)
    assert step("later, pending shown", 18, seen, accepted=True) == Authorize(
        seen, Cause.PROVEN_ABSENT, anchor_anew=False
    )


def test_past_its_horizon_a_missing_record_proves_nothing() -> None:
    made = of_class("strong look", lookup={**STRONG, "horizon": "1h"})
    assert isinstance(next_step(doubt(made), made, [look(Verdict.NOT_FOUND, 3_599)], at(3_700)), Authorize)
    forgotten = doubt(made, reads=12, last_read_at=at(3_600))
    decided = next_step(forgotten, made, [look(Verdict.NOT_FOUND, 3_600)], at(3_700))
    assert isinstance(decided, Person)
    assert decided.reason is Reason.HORIZON_PASSED


def test_a_fence_that_the_look_raised_first_proves_absence_without_any_clock() -> None:
    raised = look(Verdict.NOT_FOUND, 1, fence=8)
    assert isinstance(step("fence raised", 2, raised), Authorize)


def test_a_look_under_the_attempts_own_fence_proves_nothing() -> None:
    """One relay, no takeover: both attempts carry the same fence, and a fence orders writers, it does not dedupe."""
    for fence in (None, 6, 7):
        assert not isinstance(step("fence raised", 2, look(Verdict.NOT_FOUND, 1, fence=fence)), Reject | Authorize)


def test_a_fence_that_merely_travels_proves_nothing() -> None:
    made = of_class("strong look", fencing={})
    assert isinstance(next_step(doubt(made), made, [look(Verdict.NOT_FOUND, 1, fence=9)], at(2)), Look)


@pytest.mark.parametrize(
    "gone",
    [{"permission_holds": False}, {"permission_until": at(18)}],
    ids=["revoked", "expired"],
)
def test_proven_absence_without_a_permission_is_a_rejection(gone: dict[str, Any]) -> None:
    seen = look(Verdict.NOT_FOUND, 17)
    assert step("strong look", 18, seen, **gone) == Reject(seen, Cause.NO_EFFECT)


def test_proven_absence_frees_an_operation_also_when_its_window_has_closed() -> None:
    """It hides nothing any more, so the window, which is about resends, does not hold it."""
    seen = look(Verdict.NOT_FOUND, 5_000)
    assert step("key and strong look", 5_001, seen) == Authorize(seen, Cause.PROVEN_ABSENT, anchor_anew=False)


def test_the_age_of_the_key_survives_proven_absence_unless_only_an_execution_stores_it() -> None:
    made = of_class("key and strong look", stores_key="on_execution")
    seen = look(Verdict.NOT_FOUND, 17)
    assert next_step(doubt(made), made, [seen], at(18)) == Authorize(seen, Cause.PROVEN_ABSENT, anchor_anew=True)


@pytest.mark.parametrize("cause", [Cause.STORED_FAILURE, Cause.REFUSED, Cause.PRECONDITION_FAILED, Cause.WINDOW_CLOSED])
def test_a_key_that_would_be_answered_from_a_stored_failure_is_not_tried_again(cause: Cause) -> None:
    """Otherwise: authorized, stored failure, not found, authorized, and so on for ever."""
    seen = look(Verdict.NOT_FOUND, 17)
    decided = step("key and strong look", 18, seen, no_more_resends=True, cause=cause)
    assert decided == Reject(seen, Cause.NO_EFFECT)


@pytest.mark.parametrize("cause", [Cause.TARGET_CHANGED, Cause.SCOPE_CHANGED])
def test_a_changed_target_forbids_a_resend_and_not_a_new_attempt_after_proven_absence(cause: Cause) -> None:
    facts = {"no_more_resends": True, "cause": cause}
    assert not isinstance(step("key and strong look", 10, **facts, **LOOKED), Resend)
    assert isinstance(step("key and strong look", 18, look(Verdict.NOT_FOUND, 17), **facts), Authorize)


def test_an_operation_is_not_attempted_more_often_than_its_back_off_allows() -> None:
    made = of_class("strong look", retry={"attempts": 3})
    seen = look(Verdict.NOT_FOUND, 100, attempt=4)
    spent = doubt(made, attempt=4, last_exposed_at=at(50), throttled=1)
    assert next_step(spent, made, [seen], at(101)) == Reject(seen, Cause.NO_EFFECT)
    assert isinstance(next_step(spent._replace(throttled=2), made, [seen], at(101)), Authorize)


def test_an_only_attempt_that_never_left_frees_the_operation_and_its_window() -> None:
    never = late(Kind.NOT_SENT)
    assert step("nothing", 60, never) == Authorize(never, Cause.NOT_SENT, anchor_anew=True)
    assert step("nothing", 60, never, permission_holds=False) == Reject(never, Cause.NO_EFFECT)


def test_a_resend_that_never_left_says_nothing_about_the_attempt_before() -> None:
    two = {"attempt": 2, "last_exposed_at": at(40), "earlier_unresolved": True}
    assert isinstance(step("nothing", 60, late(Kind.NOT_SENT, attempt=2), **two), Person)


def test_a_resend_that_was_withdrawn_and_says_so_once_more_says_nothing_about_the_attempt_before() -> None:
    """Its withdrawal was committed, but not so that the relay knew, and its lease was lost: so it is evidence too."""
    withdrawn = {"attempt": 2, "last_exposed_at": T0, "earlier_unresolved": True, "not_sent": 1}
    assert isinstance(step("nothing", 60, late(Kind.NOT_SENT, attempt=2), **withdrawn), Person)


def test_an_attempt_that_never_left_is_known_by_number_and_fence() -> None:
    """After a failover a fence number can repeat with another attempt number, and the other way round."""
    for other in ({"attempt": 2}, {"fence": 8}):
        assert isinstance(step("nothing", 60, late(Kind.NOT_SENT, **other)), Person)


def test_an_attempt_that_never_left_does_not_restart_the_window_of_an_earlier_exposure() -> None:
    never = late(Kind.NOT_SENT, attempt=3)
    decided = step("nothing", 60, never, attempt=3, last_exposed_at=at(50))
    assert decided == Authorize(never, Cause.NOT_SENT, anchor_anew=False)


# ---------------------------------------------------------------------------------------------- a person's statement


def test_a_persons_no_effect_is_not_taken_while_the_request_may_still_land() -> None:
    assert isinstance(step("nothing but a bound", 20, statement(Verdict.NOT_FOUND, 16.9)), Person)
    stated = statement(Verdict.NOT_FOUND, 17)
    assert step("nothing but a bound", 20, stated) == Reject(stated, Cause.PERSON)


def test_where_no_bound_is_stated_a_person_waits_as_long_as_the_tool_says() -> None:
    made = of_class("nothing")
    assert statement_counts_from(doubt(made), made) == at(5 + 3_600)
    assert isinstance(step("nothing", 4_000, statement(Verdict.NOT_FOUND, 3_604)), Person)
    assert isinstance(step("nothing", 4_000, statement(Verdict.NOT_FOUND, 3_605)), Reject)


def test_of_accepted_work_a_person_is_not_believed_as_soon_as_its_request_has_landed() -> None:
    made = of_class("later, blind")
    assert statement_counts_from(doubt(made, accepted=True), made) == at(5 + 3_600)


def test_a_statement_about_an_earlier_attempt_does_not_count() -> None:
    two = {"attempt": 2, "last_exposed_at": at(40), "gave_up_at": at(45)}
    assert isinstance(step("nothing but a bound", 5_000, statement(Verdict.NOT_FOUND, 4_000), **two), Person)


# ------------------------------------------------------------------------------------------------- 4: a resend


def test_a_lost_answer_is_sent_again_inside_the_window_as_an_act_inside_the_doubt() -> None:
    """Never by way of `authorized`, from where an expiry would lead to `rejected` while the effect exists."""
    decided = step("key with a window", 10)
    assert isinstance(decided, Resend)
    assert decided.at == at(10)


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "fence raised"])
@pytest.mark.parametrize("gone", [{"permission_holds": False}, {"permission_until": at(6)}], ids=["revoked", "expired"])
def test_a_permission_that_lapses_in_doubt_rejects_nothing_and_sends_nothing(name: str, gone: dict[str, Any]) -> None:
    for facts in ({}, LOOKED, {"accepted": True}, {"reads": 100, "last_read_at": at(90)}):
        assert isinstance(step(name, 100, **gone, **facts), Look | Person)


def test_no_resend_begins_that_could_land_when_the_key_is_forgotten() -> None:
    """600 s less a margin of 24 s, and less the 10 s (not the deadline of 5 s) that a request may be on its way."""
    made = of_class("key with a window")
    op = doubt(made)
    assert window_closes_at(op, made) == at(566)
    assert no_resend(op, made, [], at(565.999)) is None
    assert no_resend(op, made, [], at(566)) is NoResend.WINDOW_CLOSED
    assert isinstance(step("key with a window", 566), Person)


def test_a_later_attempt_does_not_move_the_window() -> None:
    made = of_class("key with a window")
    later = doubt(made, attempt=9, last_exposed_at=at(560), gave_up_at=at(565), earlier_unresolved=True)
    assert window_closes_at(later, made) == at(566)


def test_a_resend_that_back_off_would_put_behind_the_window_is_not_made() -> None:
    assert isinstance(step("key with a window", 560, not_before=at(567)), Person)


def test_a_contract_that_promises_more_by_now_moves_no_window_and_one_that_promises_less_does() -> None:
    made = of_class("key with a window")
    op = doubt(made)
    longer, shorter = (
        of_class("key with a window", key_retention="24h"),
        of_class("key with a window", key_retention="2m"),
    )
    assert window_closes_at(op, made, longer) == at(566)
    assert window_closes_at(op, made, shorter) == at(120 - 34)
    assert isinstance(next_step(op, made, [], at(100)), Resend)
    assert isinstance(next_step(op, made, [], at(100), in_force=shorter), Person)


def test_a_tool_that_is_no_longer_repeat_safe_is_not_repeated() -> None:
    made = of_class("repeat-safe")
    assert isinstance(next_step(doubt(made), made, [], at(10)), Resend)
    assert isinstance(next_step(doubt(made), made, [], at(10), in_force=of_class("nothing")), Person)


def test_an_exposure_that_nobody_knows_the_time_of_is_not_sent_again() -> None:
    """An unplaced intent, or one lost by a failover."""
    unknown = {"first_sent_at": None, "resend_until": None}
    assert isinstance(step("key with a window", 1, **unknown), Person)


@pytest.mark.parametrize("name", ["nothing", "strong look", "eventual look", "look that proves nothing", "version"])
def test_without_a_key_nothing_is_sent_again(name: str) -> None:
    for now in (0, 6, 16, 10_000):
        for facts in ({}, LOOKED, {"reads": 50, "last_read_at": at(now)}):
            assert not isinstance(step(name, now, **facts), Resend)


def test_a_key_kept_for_ever_and_a_guard_are_sent_again_at_any_time() -> None:
    assert isinstance(step("key for ever", 10_000_000), Resend)
    assert isinstance(step("guard", 10_000_000), Resend)
    assert window_closes_at(doubt(of_class("guard")), of_class("guard")) == FOREVER


def test_a_look_comes_before_a_resend() -> None:
    assert step("key and strong look", 5) == Look(at(6))
    assert isinstance(step("key and strong look", 6, **LOOKED), Resend)
    assert isinstance(step("key and strong look", 7, look(Verdict.NOT_FOUND, 6)), Resend)


def test_a_look_from_before_the_latest_attempt_is_not_the_look_that_comes_first() -> None:
    two = {"attempt": 2, "last_exposed_at": at(40), "gave_up_at": at(45), "earlier_unresolved": True}
    assert isinstance(step("key and strong look", 46, look(Verdict.NOT_FOUND, 30), last_read_at=at(30), **two), Look)


def test_a_tool_may_recover_by_a_resend_first() -> None:
    made = wiring({"key": KEY, "key_retention": "10m", "lookup": STRONG, **BOUND}, recover="resend_first")
    assert isinstance(next_step(doubt(made), made, [], at(10)), Resend)


def test_a_resend_waits_for_the_pause_that_the_contract_asks_for() -> None:
    """A provider may fail the second request while the first one runs."""
    made = of_class("key with a window", resend_after="30s")
    decided = next_step(doubt(made), made, [], at(6))
    assert isinstance(decided, Resend)
    assert decided.at == at(35)


def test_resends_back_off() -> None:
    made = of_class("key for ever", retry={"first": "2s", "factor": 2.0, "max": "1m"})
    dates = []
    for attempt in range(1, 9):
        decided = next_step(doubt(made, attempt=attempt), made, [], at(5))
        assert isinstance(decided, Resend)
        dates.append(seconds(decided.at) - 5)
    assert dates == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_failed_precondition_on_a_resend_ends_resends_although_a_repeat_is_safe() -> None:
    """A precondition makes a resend safe, not informative: without this it is sent again for ever."""
    decided = step("version, repeat-safe", 10, no_more_resends=True, cause=Cause.PRECONDITION_FAILED)
    assert isinstance(decided, Person)


def test_accepted_work_is_not_sent_again_unless_the_receiver_replays_its_state() -> None:
    made = of_class("later, key")
    assert no_resend(doubt(made, accepted=True), made, [], at(6)) is NoResend.ACCEPTED
    replaying = of_class("later, key", stored_outcomes="state")
    assert no_resend(doubt(replaying, accepted=True), replaying, [], at(6)) is None


def test_without_a_bound_a_resend_inside_the_window_comes_before_the_waiting_for_a_proof_that_never_comes() -> None:
    assert isinstance(step("key and strong look, no bound", 7, look(Verdict.NOT_FOUND, 6)), Resend)


@pytest.mark.parametrize(
    ("facts", "refusal"),
    [
        ({"permission_holds": False}, NoResend.PERMISSION_GONE),
        ({"no_more_resends": True}, NoResend.TEACHES_NOTHING),
        ({"attempt": 100}, NoResend.ATTEMPTS_SPENT),
        ({"attempt": 100, "not_sent": 1}, None),
        ({"resend_until": T0}, NoResend.NO_KEY),
    ],
)
def test_why_nothing_is_sent_again_is_said(facts: dict[str, Any], refusal: NoResend | None) -> None:
    made = of_class("key with a window")
    assert no_resend(doubt(made, **facts), made, [], at(6)) is refusal


# ----------------------------------------------------------------------------------------------- 5: look again


def test_looks_back_off_and_one_is_sent_as_soon_as_it_can_prove_something() -> None:
    dates, now, reads = [], 5.0, 0
    while now < 17:
        decided = step("strong look", now, reads=reads, last_read_at=at(now) if reads else None)
        assert isinstance(decided, Look)
        now, reads = seconds(decided.at), reads + 1
        dates.append(now)
    assert dates == [6, 8, 12, 17]


def test_a_long_wait_for_proof_does_not_use_up_the_looks() -> None:
    made = of_class("strong look", in_flight_bound="2h")
    waiting = doubt(made, reads=12, last_read_at=at(600))
    assert next_step(waiting, made, [], at(601)) == Look(at(7_207))


def test_a_look_is_never_planned_for_the_past() -> None:
    assert step("strong look", 5_000, reads=1, last_read_at=at(10)) == Look(at(5_000))


def test_accepted_work_is_looked_for_as_long_as_the_contract_is_patient() -> None:
    tired = {"accepted": True, "reads": 40}
    assert isinstance(step("later, blind", 3_000, last_read_at=at(2_900), **tired), Look)
    decided = step("later, blind", 3_700, last_read_at=at(3_600), **tired)
    assert isinstance(decided, Person)
    assert decided.reason is Reason.NOT_CONFIRMED


# -------------------------------------------------------------------------------------------- 6: a person


def test_an_operation_that_is_never_proven_reaches_a_person_and_does_not_look_for_ever() -> None:
    """Without a bound "not found" is never proof; the window has closed; so somebody must decide."""
    closed = {"reads": 12, "last_read_at": at(4_000)}
    for name in ("key and strong look, no bound", "strong look, no bound", "look that proves nothing"):
        decided = step(name, 4_001, look(Verdict.NOT_FOUND, 4_000), **closed)
        assert isinstance(decided, Person)
        assert decided.reason is Reason.NOT_PROVABLE


def test_looks_that_all_fail_end_with_a_person() -> None:
    decided = step("strong look", 4_001, reads=12, last_read_at=at(4_000))
    assert isinstance(decided, Person)
    assert decided.reason is Reason.LOOKS_FAILED


def test_while_a_person_is_asked_slow_looks_go_on_where_something_can_be_asked() -> None:
    decided = step("strong look", 4_001, reads=12, last_read_at=at(4_000))
    assert isinstance(decided, Person)
    assert decided.look_at == at(4_000 + 3_600)
    nobody = step("nothing", 6)
    assert isinstance(nobody, Person)
    assert (nobody.look_at, nobody.reason) == (None, Reason.NO_LOOKUP)


def test_a_slow_look_that_proves_absence_settles_after_a_person_was_asked() -> None:
    seen = look(Verdict.NOT_FOUND, 8_000)
    assert isinstance(step("strong look", 8_001, seen, reads=13, last_read_at=at(8_000)), Authorize)


# --------------------------------------------------------------------------------------------- the order of the rules


def test_the_six_rules_speak_in_their_order() -> None:
    """From below: each further fact lets an earlier rule speak, and what was decided before no longer counts."""
    made = of_class("key and strong look")
    tired = {"reads": 12, "last_read_at": at(700)}
    op = doubt(made, **tired)
    known: list[Evidence] = []
    kinds = [type(next_step(op, made, known, at(701)))]
    op = op._replace(reads=0)
    kinds.append(type(next_step(op, made, known, at(701))))
    inside = op._replace(resend_until=at(2_000))
    longer = of_class("key and strong look", key_retention="2000s")
    kinds.append(type(next_step(inside, longer, known, at(701))))
    known.append(look(Verdict.NOT_FOUND, 100))
    kinds.append(type(next_step(inside, longer, known, at(701))))
    known.append(look(Verdict.ENDED, 200))
    kinds.append(type(next_step(inside, longer, known, at(701))))
    known.append(late(Kind.RECEIPT))
    kinds.append(type(next_step(inside, longer, known, at(701))))
    assert kinds == [Person, Look, Resend, Authorize, Reject, Succeed]


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "fence raised"])
def test_the_first_step_after_a_lost_answer_is_the_one_that_is_decided_again_at_its_date(name: str) -> None:
    made = of_class(name)
    after = after_attempt(Ambiguous(reason="timeout"), wiring=made, attempt=1, earlier_unresolved=False)
    assert after.delay_seconds is not None
    then = 5 + after.delay_seconds
    decided = next_step(doubt(made, not_before=at(then)), made, [], at(then))
    assert type(decided) is {Step.LOOK: Look, Step.RESEND: Resend, Step.PERSON: Person}[after.step]


@pytest.mark.parametrize("state", [state for state in State if state is not State.UNKNOWN])
def test_only_an_operation_in_doubt_is_decided_here(state: State) -> None:
    made = of_class("nothing")
    with pytest.raises(ValueError, match="in doubt"):
        next_step(doubt(made, state=state), made, [], T0)
