"""
The states of an operation, and the moves between them. Everything that names a state lives here and in `decide.py`.

The law: **only `executing` and `unknown` may hide an effect.** From it follows the rest.

- `authorized` is entered only when no attempt is unresolved, so everything that ends an authorized operation (expiry,
  a revocation, a cancel, another policy) may honestly end in `rejected`.
- An answer about attempt n says nothing about attempt n-1. While an earlier attempt is unresolved, a refusal, a
  throttle or a connection that was never made leads back to `unknown`, never to `rejected` or `authorized`.
- A resend is an act inside the doubt: `unknown -> executing`. It needs a permission that still holds; if the
  permission lapses while an operation is unknown, it stays unknown.
- Terminal rows never change. Evidence that contradicts them raises an alarm and changes nothing.

The database holds the same table (a trigger for open rows, a CHECK for ends) and the law
(`check (state in ('executing', 'unknown') or unresolved_at is null)`); a test compares them pair by pair.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from outbox.errors import IllegalMove


class State(StrEnum):
    """What is known about an operation. Six states, and no seventh; a `Cause` says why."""

    PROPOSED = "proposed"
    """There are candidate arguments; somebody has to permit them."""
    AUTHORIZED = "authorized"
    """Exactly this action is permitted, and no attempt is unresolved."""
    EXECUTING = "executing"
    """An attempt has begun; its exposure is committed."""
    SUCCEEDED = "succeeded"
    """There is proof of the effect."""
    REJECTED = "rejected"
    """No effect, and none will be tried."""
    UNKNOWN = "unknown"
    """The effect may have happened."""


class Cause(StrEnum):
    """Why an operation is where it is: a closed vocabulary, also a table in the database."""

    # The permission.
    EXPIRED = "expired"
    REVOKED = "revoked"
    CANCELLED = "cancelled"
    POLICY_CHANGED = "policy_changed"
    TAMPERED = "tampered"
    # What the receiver said.
    REFUSED = "refused"
    PRECONDITION_FAILED = "precondition_failed"
    FORBIDDEN = "forbidden"
    THROTTLED = "throttled"
    ACCEPTED = "accepted"
    IN_FLIGHT = "in_flight"
    MISMATCH = "mismatch"
    STORED_FAILURE = "stored_failure"
    RECEIVER_FAULT = "receiver_fault"
    WINDOW_CLOSED = "window_closed"
    DUPLICATE = "duplicate"
    # What we did not hear.
    AMBIGUOUS = "ambiguous"
    TIMEOUT = "timeout"
    CONNECTION_LOST = "connection_lost"
    # Why nothing left, and so nothing happened (UNSENT).
    NOT_SENT = "not_sent"
    SECRET_MISSING = "secret_missing"  # noqa: S105 - a word, no secret
    UNSAFE_TARGET = "unsafe_target"
    NAME_UNRESOLVED = "name_unresolved"
    NO_CONNECTION = "no_connection"
    TLS_FAILED = "tls_failed"
    LEFT_ALONE = "left_alone"
    TOO_LATE = "too_late"
    NOT_PROCESSED = "not_processed"
    CONTRACT_UNREADABLE = "contract_unreadable"
    # What happened on our side.
    NO_ROUTE = "no_route"
    TARGET_CHANGED = "target_changed"
    SCOPE_CHANGED = "scope_changed"
    LEASE_LOST = "lease_lost"
    STALE_FENCE = "stale_fence"
    ORPHANED = "orphaned"
    SHUTDOWN = "shutdown"
    FAILOVER = "failover"
    UNPLACED = "unplaced"
    RESEND = "resend"
    # What evidence showed.
    CONFIRMED = "confirmed"
    LATE_RECEIPT = "late_receipt"
    ENDED = "ended"
    PARTIAL = "partial"
    PROVEN_ABSENT = "proven_absent"
    NO_EFFECT = "no_effect"
    PERSON = "person"
    CONTRADICTION = "contradiction"


STARTS: Final = frozenset({State.PROPOSED, State.AUTHORIZED})
TERMINAL: Final = frozenset({State.SUCCEEDED, State.REJECTED})
# What an attempt ends with of which nothing was processed: it is tried again after a back-off.
UNSENT: Final = frozenset(
    {
        Cause.NOT_SENT,
        Cause.SECRET_MISSING,
        Cause.UNSAFE_TARGET,
        Cause.NAME_UNRESOLVED,
        Cause.NO_CONNECTION,
        Cause.TLS_FAILED,
        Cause.LEFT_ALONE,
        Cause.TOO_LATE,
        Cause.NOT_PROCESSED,
        Cause.CONTRACT_UNREADABLE,
    }
)
MAY_HIDE_EFFECT: Final = frozenset({State.EXECUTING, State.UNKNOWN})

# Every state is listed, also those without a way out.
MOVES: Final[Mapping[State, frozenset[State]]] = MappingProxyType(
    {
        State.PROPOSED: frozenset({State.AUTHORIZED, State.REJECTED}),
        # Back to `proposed`: the policy changed, decide again.
        State.AUTHORIZED: frozenset({State.EXECUTING, State.REJECTED, State.PROPOSED}),
        # `rejected` and `authorized` only if no earlier attempt is unresolved.
        State.EXECUTING: frozenset({State.SUCCEEDED, State.UNKNOWN, State.REJECTED, State.AUTHORIZED}),
        # `rejected` and `authorized` by proof (absence, or the receiver's own final record); `executing` is a resend.
        State.UNKNOWN: frozenset({State.SUCCEEDED, State.REJECTED, State.AUTHORIZED, State.EXECUTING}),
        State.SUCCEEDED: frozenset(),
        State.REJECTED: frozenset(),
    }
)


def check_move(before: State, after: State) -> None:
    """Raise IllegalMove unless the table has this move. Staying is not a move."""
    if after not in MOVES[before]:
        allowed = ", ".join(sorted(MOVES[before])) or "nothing: it is terminal"
        raise IllegalMove(f"{before} -> {after} is not a move: from {before} leads only {allowed}.")
