"""Whether an operation in doubt may be sent again: what the reconciler, the relay and an operator all ask."""

from collections.abc import Sequence
from datetime import datetime

from outbox.contract import Wiring
from outbox.decide.facts import NoResend, OperationFacts
from outbox.decide.times import window_closes_at
from outbox.evidence import Evidence, Verdict


def no_resend(
    op: OperationFacts,
    wiring: Wiring,
    evidence: Sequence[Evidence],
    at: datetime,
    *,
    in_force: Wiring | None = None,
) -> NoResend | None:
    """Say why this operation, in doubt, may not be sent again at that date; None: it may. Also asked by operators."""
    closes = window_closes_at(op, wiring, in_force)
    if closes is not None and op.resend_until is not None and op.resend_until == op.first_sent_at:
        return NoResend.NO_KEY
    if closes is not None and at >= closes:
        return NoResend.WINDOW_CLOSED
    if not op.permits(at):
        return NoResend.PERMISSION_GONE
    if op.no_more_resends or op.mismatch:
        return NoResend.TEACHES_NOTHING
    if op.accepted and wiring.trusted.stored_outcomes != "state":
        return NoResend.ACCEPTED
    if any(item.verdict in {Verdict.ENDED, Verdict.PARTIAL} for item in evidence):
        return NoResend.RECORD_EXISTS
    return NoResend.ATTEMPTS_SPENT if op.exposures >= wiring.retrying.attempts else None
