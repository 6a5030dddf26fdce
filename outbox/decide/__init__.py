"""
Every decision about a state: pure functions, which relay, reconciler, CLI and simulation all call.

- `after_attempt`: what one attempt's outcome makes of its operation (`attempt.py`).
- `next_step`: what follows for an operation in doubt, from all its evidence (`doubt.py`).
- `settle_at`, `proof_at`, `statement_counts_from`, `window_closes_at`: the dates that these rest on (`times.py`).
- `liveness_bound`: how long a doubt can last before it has ended or a person is asked (`bound.py`).

No clock, randomness, connection or logger inside: `now` and `jitter` are passed in.
"""

from outbox.decide.attempt import Transition, after_attempt
from outbox.decide.bound import liveness_bound
from outbox.decide.doubt import next_step
from outbox.decide.facts import (
    Authorize,
    Decision,
    Look,
    NoResend,
    OperationFacts,
    Person,
    Reason,
    Reject,
    Resend,
    Step,
    Succeed,
)
from outbox.decide.resend import no_resend
from outbox.decide.times import (
    FOREVER,
    proof_at,
    settle_at,
    settled_from,
    statement_counts_from,
    visible_from,
    window_closes_at,
)

__all__ = [
    "FOREVER",
    "Authorize",
    "Decision",
    "Look",
    "NoResend",
    "OperationFacts",
    "Person",
    "Reason",
    "Reject",
    "Resend",
    "Step",
    "Succeed",
    "Transition",
    "after_attempt",
    "liveness_bound",
    "next_step",
    "no_resend",
    "proof_at",
    "settle_at",
    "settled_from",
    "statement_counts_from",
    "visible_from",
    "window_closes_at",
]
