"""
What the outcome of one attempt makes of its operation.

The law behind the table: an answer about attempt n says nothing about attempt n-1. So whatever says "not executed"
(Refused, NotSent, Throttled, ReceiverFault) ends or frees an operation only where no earlier attempt is unresolved;
otherwise it withdraws its own exposure, and the operation goes back to the doubt in which it was.
"""

from dataclasses import dataclass, replace
from typing import assert_never

from outbox.contract import Wiring
from outbox.decide.facts import Reason, Step
from outbox.outcome import (
    Accepted,
    Ambiguous,
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
from outbox.states import Cause, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """
    The move that follows, and what to do next.

    `withdraw`: this attempt is proven to have had no effect; its exposure is taken back and what stood before it is
    restored, never more. `delay_seconds`: how long until `step`, None in a terminal state; an authorized operation that
    waits for a person waits for ever. `reason`: why a person. `no_more_resends`: another one would teach nothing.
    `accepted`, `mismatch`: from now on "not found", or a record under our key, proves nothing. `pause_receiver`: counts
    towards a pause of the whole receiver. `lease_lost`: leave the lane. `alarm`: tell people.
    """

    state: State
    cause: Cause | None = None
    withdraw: bool = False
    step: Step = Step.NONE
    delay_seconds: float | None = None
    reason: Reason | None = None
    no_more_resends: bool = False
    accepted: bool = False
    mismatch: bool = False
    pause_receiver: bool = False
    lease_lost: bool = False
    alarm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    wiring: Wiring
    attempt: int
    earlier_unresolved: bool
    earlier_settled: bool
    throttled: int
    not_sent: int
    jitter: float

    def back_off(self, failures: int) -> float:
        """Between half and all of the pause: many operations that failed together do not come back together."""
        return self.wiring.retrying.pause_seconds(failures) * (0.5 + 0.5 * self.jitter)

    @property
    def failures(self) -> int:
        """Attempts before this one that left, and were not throttled."""
        return max(0, self.attempt - 1 - self.throttled - self.not_sent)


def after_attempt(
    outcome: Outcome,
    *,
    wiring: Wiring,
    attempt: int,
    earlier_unresolved: bool,
    earlier_settled: bool = False,
    throttled: int = 0,
    not_sent: int = 0,
    jitter: float = 0.5,
) -> Transition:
    """
    Decide what follows from one outcome. Pure; total over all outcomes.

    `earlier_unresolved`: an attempt before this one is unresolved (this one is a resend). `earlier_settled`: all of
    those had reached their settle time before this one began. `throttled` and `not_sent` count earlier attempts that
    ended so. `jitter` is in [0, 1).
    """
    if isinstance(outcome, Receipt):
        return _SUCCEEDED
    one = _Attempt(
        wiring=wiring,
        attempt=attempt,
        earlier_unresolved=earlier_unresolved,
        earlier_settled=earlier_settled,
        throttled=throttled,
        not_sent=not_sent,
        jitter=jitter,
    )
    return _follow(outcome, one)


# Proof ends an operation whatever else is known of it.
_SUCCEEDED = Transition(state=State.SUCCEEDED)


def _follow(outcome: Outcome, one: _Attempt) -> Transition:
    match outcome:
        case Receipt():
            return _SUCCEEDED
        case Accepted():
            return _doubt(Cause.ACCEPTED, one, accepted=True)
        case Refused():
            return _refused(outcome, one)
        case NotSent():
            return _not_executed(outcome.cause, one, one.back_off(one.not_sent), proven=True)
        case Throttled():
            delay = max(_clamped(outcome.retry_after_seconds, one), one.back_off(one.throttled))
            return _not_executed(Cause.THROTTLED, one, delay, proven=not one.wiring.trusted.replays)
        case InFlight():
            delay = max(_clamped(outcome.retry_after_seconds, one), one.wiring.trusted.resend_after)
            return _doubt(Cause.IN_FLIGHT, one, wait_seconds=delay)
        case Mismatch():
            return _mismatch()
        case StoredFailure():
            return _doubt(Cause.STORED_FAILURE, one, no_more_resends=True)
        case ReceiverFault():
            return _receiver_fault(outcome, one)
        case StaleFence():
            return _doubt(Cause.STALE_FENCE, one, lease_lost=True)
        case Ambiguous():
            return _doubt(outcome.cause, one)
    assert_never(outcome)


def _mismatch() -> Transition:
    """Nothing is looked up first: a record under our key could be somebody else's."""
    return Transition(
        state=State.UNKNOWN,
        cause=Cause.MISMATCH,
        step=Step.PERSON,
        delay_seconds=0.0,
        reason=Reason.MISMATCH,
        no_more_resends=True,
        mismatch=True,
        alarm=True,
    )


def _refused(outcome: Refused, one: _Attempt) -> Transition:
    trusted = one.wiring.trusted
    if trusted.replays:
        # This copy was refused. Another copy of the same attempt may have been executed.
        return _doubt(outcome.cause, one, no_more_resends=one.earlier_unresolved)
    if not one.earlier_unresolved:
        return Transition(state=State.REJECTED, cause=outcome.cause, withdraw=True)
    stored = outcome.replayed and trusted.stored_outcomes == "all"
    if trusted.key_checked_first and (one.earlier_settled or stored):
        # The receiver looked for the key before it refused: no earlier attempt has executed, and none can any more.
        return Transition(state=State.REJECTED, cause=outcome.cause, withdraw=True)
    return _doubt(outcome.cause, one, withdraw=True, no_more_resends=True)


def _not_executed(cause: Cause, one: _Attempt, delay_seconds: float, *, proven: bool) -> Transition:
    if not proven:
        return _doubt(cause, one, wait_seconds=delay_seconds)
    if one.earlier_unresolved:
        return _doubt(cause, one, withdraw=True, wait_seconds=delay_seconds, again=True)
    return Transition(state=State.AUTHORIZED, cause=cause, withdraw=True, delay_seconds=delay_seconds)


def _receiver_fault(outcome: ReceiverFault, one: _Attempt) -> Transition:
    cause = Cause.FORBIDDEN if outcome.forbidden else Cause.RECEIVER_FAULT
    after = _not_executed(cause, one, one.back_off(one.failures), proven=not one.wiring.trusted.replays)
    spent = outcome.forbidden and one.failures + 1 >= one.wiring.retrying.forbidden_attempts
    if spent and after.state is State.AUTHORIZED:
        return replace(after, step=Step.PERSON, reason=Reason.FORBIDDEN)
    return replace(after, no_more_resends=spent, pause_receiver=not outcome.forbidden)


def _clamped(retry_after_seconds: float | None, one: _Attempt) -> float:
    """What the receiver asks for, within the contract's bound: a hostile Retry-After parks nothing for ever."""
    return min(max(retry_after_seconds or 0.0, 0.0), one.wiring.retrying.retry_after_max)


def _doubt(
    cause: Cause,
    one: _Attempt,
    *,
    wait_seconds: float = 0.0,
    withdraw: bool = False,
    again: bool = False,
    no_more_resends: bool = False,
    accepted: bool = False,
    lease_lost: bool = False,
) -> Transition:
    """
    Go (back) to `unknown`, with a first step that `next_step` would choose too.

    `again`: this attempt taught nothing (it was withdrawn), and the look that comes first has been made before it.
    """
    wiring, lookup = one.wiring, one.wiring.lookup
    reason = None
    # As often as `next_step` would: an attempt that taught nothing is none.
    spent = one.failures + (not again) >= wiring.retrying.attempts
    sends = wiring.resend_safe and not no_more_resends and not accepted and not spent
    if sends and (again or lookup is None or wiring.config.recover == "resend_first"):
        step = Step.RESEND
        delay = max(wait_seconds, wiring.trusted.resend_after, one.back_off(one.failures))
    elif lookup is not None:
        step, delay = Step.LOOK, max(wait_seconds, lookup.interval)
    else:
        step, delay, reason = Step.PERSON, 0.0, Reason.NO_LOOKUP
    return Transition(
        state=State.UNKNOWN,
        cause=cause,
        withdraw=withdraw,
        step=step,
        delay_seconds=delay,
        reason=reason,
        no_more_resends=no_more_resends,
        accepted=accepted,
        lease_lost=lease_lost,
    )
