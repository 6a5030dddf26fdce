"""
One attempt, from a row whose exposure is committed to what follows from its outcome.

    begun -> judged (is this what was permitted, and the request that it is bound to?) -> delivered -> followed

Each step takes a finished value and hands one on. I/O happens in the middle only, and nowhere is a state written. The
broad `except` of this project stands here: whatever happens to an exposed attempt that nobody foresaw, the answer is
Ambiguous, and the operation is unknown. A lost answer is never a failure.
"""

import asyncio
import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from uuid import UUID

from outbox import crashpoints
from outbox.contract import Wiring
from outbox.decide.attempt import after_attempt
from outbox.decide.unsent import after_refusal, after_unreadable
from outbox.lease import DeadMan, LocalLease, boottime
from outbox.observe import emit
from outbox.outcome import Ambiguous, Answer, NotSent, Outcome
from outbox.receivers import Attempt, Receiver, TooLate
from outbox.states import Cause
from outbox.wire import WireRequest
from relay.begun import Begun, Bound, Finished
from relay.gate import LaneGate
from relay.judge import Refusal, judge, key_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the attempts of one lane have in common."""

    instance_id: UUID
    receiver: Receiver
    way: tuple[str | bool | None, ...]
    lease: Callable[[], LocalLease]
    fence_token: str
    lane_key: Hashable
    dead_man: Callable[[Wiring], DeadMan | None]
    jitter: Callable[[], float] = random.random


async def attempt(bound: Bound, scene: Scene) -> Finished:
    """
    Make one attempt, and say what follows. Raises nothing; being cancelled in the middle is an outcome too.

    One deadline bounds the whole attempt, counted from its begin; whoever makes attempts cancels them then (`Flight`).
    """
    terms, pinned = bound.terms, bound.pinned
    gate = LaneGate(terms, scene.lease, scene.dead_man(pinned), scene.lane_key)
    key, digest = None, None
    try:
        key = key_of(bound.begun, scene.instance_id)
        if bound.in_force.receiver.way != scene.way:
            # Its account or host is another one by now, or is one that this relay has not heard of yet.
            return followed(bound, NotSent(reason="the receiver was configured anew meanwhile"), scene.jitter())
        judged = judge(bound, key)
        if isinstance(judged, Refusal):
            return _refused(bound, judged)
        digest = judged.digest
        request = _request(bound, scene, gate, key, judged.request)
        outcome = await _deliver(request, scene.receiver, gate, terms.deadline_at)
        crashpoints.reach("after_answer")
    except Exception as error:  # noqa: BLE001 - the one edge: what nobody foresaw is ambiguous, and never a failure
        emit("attempt_unforeseen", **bound.begun.names, error=type(error).__name__)
        outcome = Ambiguous(reason=f"unforeseen: {type(error).__name__}")
    return followed(bound, outcome, scene.jitter(), sent_key=key, wire_digest=digest)


def _request(bound: Bound, scene: Scene, gate: LaneGate, key: str, request: WireRequest | None) -> Attempt:
    begun = bound.begun
    return Attempt(
        seq=begun.seq,
        attempt=begun.attempt,
        tenant_id=begun.tenant_id,
        operation_id=begun.operation_id,
        tool=begun.tool,
        resource=begun.resource,
        expected_version=begun.expected_version,
        sent_key=key,
        wiring=bound.pinned,
        gate=gate,
        deadline_seconds=max(0.0, bound.deadline_at - boottime()),
        arguments=begun.arguments,
        body=begun.body,
        content_type=begun.content_type,
        resend=begun.in_doubt,
        fence_token=scene.fence_token,
        traceparent=begun.traceparent,
        first_sent_at=begun.first_sent_at,
        request=request,
    )


async def _deliver(request: Attempt, receiver: Receiver, gate: LaneGate, deadline_at: float) -> Outcome:
    """Ask the receiver, until it answers or the attempt is cancelled."""
    try:
        return await receiver.deliver(request)
    except TooLate as late:
        return NotSent(reason=late.reason, cause=Cause.TOO_LATE)
    except asyncio.CancelledError:
        # Nobody but this relay cancels an attempt: at its deadline, or because it was told to stop at once.
        if boottime() < deadline_at:
            return stopped(sent=gate.passed)
        if gate.passed:
            return Ambiguous(reason="no answer within the deadline", cause=Cause.TIMEOUT)
        return NotSent(reason="its deadline passed before it could be sent", cause=Cause.TOO_LATE)


def stopped(*, sent: bool) -> Outcome:
    """Say what is known of an attempt that this process broke off because it must stop."""
    if sent:
        return Ambiguous(reason="broken off: the relay was told to stop", cause=Cause.SHUTDOWN)
    return NotSent(reason="the relay was told to stop", cause=Cause.SHUTDOWN)


def followed(
    bound: Bound, outcome: Outcome, jitter: float, *, sent_key: str | None = None, wire_digest: bytes | None = None
) -> Finished:
    """Add what follows from an outcome."""
    begun = bound.begun
    transition = after_attempt(
        outcome,
        wiring=bound.pinned,
        attempt=begun.attempt,
        earlier_unresolved=begun.in_doubt,
        earlier_settled=begun.earlier_settled,
        throttled=begun.throttled,
        not_sent=begun.not_sent,
        jitter=jitter,
    )
    return Finished(
        begun=begun,
        outcome=outcome,
        transition=transition,
        sent_key=sent_key,
        wire_digest=wire_digest,
        patience_seconds=bound.pinned.receiver.lease + bound.pinned.deadline_seconds,
    )


def _refused(bound: Bound, refusal: Refusal) -> Finished:
    transition = after_refusal(refusal.cause, wiring=bound.pinned, earlier_unresolved=bound.begun.in_doubt)
    outcome = NotSent(reason=refusal.reason, cause=refusal.cause, answer=Answer(excerpt=refusal.reason))
    return Finished(begun=bound.begun, outcome=outcome, transition=transition)


def unreadable(begun: Begun, reason: str) -> Finished:
    """An attempt whose contract version could not be read or understood: nothing was sent."""
    transition = after_unreadable(earlier_unresolved=begun.in_doubt)
    return Finished(begun=begun, outcome=NotSent(reason=reason, cause=Cause.CONTRACT_UNREADABLE), transition=transition)
