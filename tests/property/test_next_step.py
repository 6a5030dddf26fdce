"""
`next_step` over facts and evidence of any kind, also such as no run of the system would produce.

The oracle below is written from the design, not from the code: what each decision must be able to show for itself.
"""

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from outbox.contract import Wiring
from outbox.decide import (
    FOREVER,
    Authorize,
    Look,
    OperationFacts,
    Person,
    Reject,
    Resend,
    Succeed,
    next_step,
)
from outbox.evidence import Evidence, Kind, Verdict
from outbox.states import Cause
from tests.support.contracts import CLASSES, of_class
from tests.support.facts import T0, at

TIMES = st.floats(-100, 5_000).map(at)
NAMES = st.sampled_from(sorted(CLASSES))
PAUSE_AND_BOUND = timedelta(seconds=2 + 10)
DEADLINE = timedelta(seconds=5)


@st.composite
def pieces(draw: st.DrawFn) -> Evidence:
    kind = draw(st.sampled_from(Kind))
    has_verdict = kind in {Kind.LOOKUP, Kind.CALLBACK, Kind.STATEMENT}
    sent = draw(TIMES)
    return Evidence(
        kind=kind,
        attempt=draw(st.integers(1, 3)),
        fence=draw(st.sampled_from([None, 1, 2, 3, 6, 7, 8])),
        verdict=draw(st.sampled_from(Verdict)) if has_verdict else None,
        sent_at=sent if kind is Kind.LOOKUP else None,
        observed_at=sent + timedelta(seconds=draw(st.floats(0, 500))),
        id=draw(st.integers(1, 9)),
    )


@st.composite
def situations(draw: st.DrawFn) -> tuple[OperationFacts, Wiring, list[Evidence], float]:
    wiring = of_class(draw(NAMES))
    retention = wiring.retention_seconds
    exposed = draw(st.floats(0, 900))
    now = draw(st.floats(exposed, 6_000))
    op = OperationFacts(
        attempt=draw(st.integers(1, 3)),
        first_sent_at=T0,
        resend_until=FOREVER if retention == float("inf") else at(retention),
        last_exposed_at=at(exposed),
        unresolved_at=T0,
        gave_up_at=draw(st.none() | st.just(at(exposed + 5))),
        earlier_unresolved=draw(st.booleans()),
        fence=draw(st.sampled_from([None, 7])),
        accepted=draw(st.booleans()),
        mismatch=draw(st.booleans()),
        no_more_resends=draw(st.booleans()),
        cause=draw(st.sampled_from([None, Cause.REFUSED, Cause.TARGET_CHANGED])),
        permission_holds=draw(st.booleans()),
        permission_until=draw(st.none() | TIMES),
        reads=draw(st.integers(0, 20)),
        last_read_at=draw(st.none() | st.floats(exposed, now).map(at)),
        not_before=draw(st.none() | TIMES),
        throttled=draw(st.integers(0, 2)),
    )
    return op, wiring, draw(st.lists(pieces(), max_size=4)), now


def proves_absence(item: Evidence, op: OperationFacts, wiring: Wiring) -> bool:
    """By the design: never left, looked for when everything had landed, or behind a raised fence, or stated."""
    contract, lookup = wiring.trusted, wiring.lookup
    if item.attempt != op.attempt:
        return False
    bounded = contract.in_flight_bound is not None
    assert op.last_exposed_at is not None
    landed = op.last_exposed_at + DEADLINE + PAUSE_AND_BOUND
    match item.kind:
        case Kind.NOT_SENT:
            return item.fence == op.fence and not op.earlier_unresolved
        case Kind.STATEMENT:
            hour = (op.gave_up_at or op.last_exposed_at) + timedelta(hours=1)
            later = op.accepted or contract.acceptance == "async"
            return item.observed_at >= (max(landed, hour) if bounded and later else landed if bounded else hour)
        case Kind.LOOKUP if lookup is not None and lookup.absence_is_proof and not op.mismatch:
            if (op.accepted or contract.acceptance == "async") and not lookup.sees_pending:
                return False
            raised = contract.fencing != "none" and contract.fencing.raised_by_lookup
            if raised and contract.fencing != "none" and contract.fencing.in_ == "column":
                if item.fence == op.attempt:
                    return True
            elif raised and item.fence is not None and op.fence is not None and item.fence > op.fence:
                return True
            visible = landed + timedelta(seconds=lookup.lag or 0)
            return bounded and item.sent_at is not None and item.sent_at >= visible
    return False


@given(situations())
@settings(max_examples=800)
def test_every_decision_can_show_what_it_rests_on(
    situation: tuple[OperationFacts, Wiring, list[Evidence], float],
) -> None:
    op, wiring, evidence, seconds = situation
    now = at(seconds)
    holds = op.permission_holds and (op.permission_until is None or now < op.permission_until)
    receipts = [item for item in evidence if item.kind is Kind.RECEIPT]
    decision = next_step(op, wiring, evidence, now)
    if receipts:
        assert isinstance(decision, Succeed), "a receipt that we hold outweighs everything"
    match decision:
        case Succeed(proof):
            assert proof.kind is Kind.RECEIPT or proof.verdict is Verdict.CONFIRMED
            assert not (op.mismatch and proof.kind in {Kind.LOOKUP, Kind.CALLBACK})
        case Authorize(proof):
            assert holds
            assert proves_absence(proof, op, wiring)
            assert proof.kind is Kind.NOT_SENT or proof.verdict is Verdict.NOT_FOUND
        case Reject(proof, Cause.ENDED):
            assert proof.verdict is Verdict.ENDED
            assert proof.attempt == op.attempt
        case Reject(proof):
            assert proves_absence(proof, op, wiring)
            assert proof.kind is Kind.NOT_SENT or proof.verdict is Verdict.NOT_FOUND
        case Resend(date, look_at):
            assert now <= date < look_at
            assert op.permission_holds
            assert op.permission_until is None or date < op.permission_until
            assert not op.no_more_resends
            assert not op.mismatch
            if not wiring.trusted.repeat_safe:
                assert op.resend_until is not None
                open_until = op.resend_until if op.resend_until == FOREVER else at(wiring.retention_seconds)
                margin = timedelta(seconds=24 if wiring.settle_seconds else 300)
                reach = timedelta(seconds=10 if wiring.settle_seconds else 5)
                assert date < open_until - margin - reach
        case Look(date):
            assert wiring.lookup is not None
            assert date >= now
        case Person(look_at=date):
            assert (date is None) is (wiring.lookup is None)
            assert date is None or date >= now


@given(situations())
@settings(max_examples=200)
def test_what_is_proven_stays_proven_when_time_passes(
    situation: tuple[OperationFacts, Wiring, list[Evidence], float],
) -> None:
    """Success is never taken back by waiting, and no mere waiting turns doubt into a state."""
    op, wiring, evidence, seconds = situation
    first = next_step(op, wiring, evidence, at(seconds))
    later = next_step(op, wiring, evidence, at(seconds + 10_000))
    if isinstance(first, Succeed):
        assert later == first
    if isinstance(first, Look | Person | Resend):
        assert isinstance(later, Look | Person | Resend)


@given(situations())
@settings(max_examples=200)
def test_more_failures_to_look_never_decide_anything(
    situation: tuple[OperationFacts, Wiring, list[Evidence], float],
) -> None:
    op, wiring, evidence, seconds = situation
    failed = Evidence(
        kind=Kind.LOOKUP, attempt=op.attempt, verdict=Verdict.UNKNOWN, sent_at=at(seconds), observed_at=at(seconds)
    )
    states: Any = (Succeed, Reject, Authorize)
    before = next_step(op, wiring, evidence, at(seconds))
    after = next_step(op, wiring, [*evidence, failed], at(seconds))
    assert isinstance(before, states) is isinstance(after, states)


@given(situations(), st.permutations(range(4)))
@settings(max_examples=200)
def test_the_order_in_which_evidence_arrived_does_not_change_the_state_that_follows(
    situation: tuple[OperationFacts, Wiring, list[Evidence], float], order: list[int]
) -> None:
    op, wiring, evidence, seconds = situation
    shuffled = [evidence[index] for index in order if index < len(evidence)]
    assert type(next_step(op, wiring, evidence, at(seconds))) is type(next_step(op, wiring, shuffled, at(seconds)))


@given(situations())
@settings(max_examples=200)
def test_a_permission_that_goes_never_leads_to_another_attempt(
    situation: tuple[OperationFacts, Wiring, list[Evidence], float],
) -> None:
    op, wiring, evidence, seconds = situation
    gone = op._replace(permission_holds=False)
    assert not isinstance(next_step(gone, wiring, evidence, at(seconds)), Resend | Authorize)
