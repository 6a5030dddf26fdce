"""What decisions are made from, and what they say."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from outbox.evidence import Evidence
from outbox.states import Cause, State


class Step(StrEnum):
    """What happens next to an open operation; a column of the database."""

    NONE = "none"
    """Nothing beyond its state: an authorized operation is attempted when it is due."""
    LOOK = "look"
    """Ask the receiver's records."""
    RESEND = "resend"
    """Attempt again with the same key, inside the doubt."""
    PERSON = "person"
    """Somebody must decide; slow looks go on where there is something to look at."""


class Reason(StrEnum):
    """Why a person is needed."""

    MISMATCH = "mismatch"
    """The receiver knows our key with other bytes: nothing under that key speaks of us."""
    PARTIAL = "partial"
    """Some of the effect exists."""
    NO_LOOKUP = "no_lookup"
    """Nothing can be asked, and nothing may be sent again."""
    NOT_PROVABLE = "not_provable"
    """Looks find nothing, and under this contract that is no proof."""
    LOOKS_FAILED = "looks_failed"
    """Every look failed, or showed nothing that decides."""
    HORIZON_PASSED = "horizon_passed"
    """It is too late for "not found" to prove anything."""
    NOT_CONFIRMED = "not_confirmed"
    """Work that was accepted has not shown up in time."""
    FORBIDDEN = "forbidden"
    """The receiver forbids this operation again and again."""


class NoResend(StrEnum):
    """Why an operation in doubt may not be sent again."""

    NO_KEY = "no_key"
    """Nobody would notice that it is a repeat."""
    WINDOW_CLOSED = "window_closed"
    """The receiver may have forgotten the key: it would execute again."""
    PERMISSION_GONE = "permission_gone"
    """Expired, revoked, or permitted under another policy."""
    TEACHES_NOTHING = "teaches_nothing"
    """A stored failure, a refusal or a failed precondition on a resend: another one would say the same."""
    ACCEPTED = "accepted"
    """The receiver has the work; it does it or not."""
    RECORD_EXISTS = "record_exists"
    """The receiver's records show it, ended or in part."""
    ATTEMPTS_SPENT = "attempts_spent"
    """As often as the contract's back-off allows."""


class OperationFacts(NamedTuple):
    """
    What the database knows about one operation in doubt. Times are the database's.

    A tuple, since it is made for every decision: that takes a fifth of the time that a frozen data class takes.

    `attempt` is the number of the latest attempt. `first_sent_at` and `resend_until` were fixed at the first exposure
    (`resend_until`: FOREVER for a key that never expires, equal to `first_sent_at` where there is none).
    `last_exposed_at` is the begin of the latest attempt that is unresolved, `gave_up_at` when it was closed (or its
    lease ran out), `unresolved_at` since when there is doubt. `settle_at` is one that was recorded; a later one counts.

    `earlier_unresolved`: an attempt before the latest one is unresolved: the doubt began before the latest attempt did,
    which also holds where that attempt was withdrawn and only the earlier one is left.
    `accepted`: a 202 was seen. `mismatch`: the receiver called our key another's. `no_more_resends`: an answer showed
    that another one would teach nothing, or the target or scope changed (`cause` says which).

    `permission_holds` is about revocation and policy, `permission_until` about expiry. `reads` counts looks since the
    latest exposure, `last_read_at` is when the last one was sent. `not_before`: no resend before it (the back-off, or
    the clamped Retry-After, of the last answer).
    """

    attempt: int
    first_sent_at: datetime | None
    resend_until: datetime | None
    last_exposed_at: datetime | None
    unresolved_at: datetime
    earlier_unresolved: bool
    state: State = State.UNKNOWN
    cause: Cause | None = None
    gave_up_at: datetime | None = None
    settle_at: datetime | None = None
    fence: int | None = None
    accepted: bool = False
    mismatch: bool = False
    no_more_resends: bool = False
    permission_holds: bool = True
    permission_until: datetime | None = None
    reads: int = 0
    last_read_at: datetime | None = None
    not_before: datetime | None = None
    throttled: int = 0
    not_sent: int = 0

    @property
    def doubted_from(self) -> datetime:
        """When the latest attempt was given up."""
        return self.gave_up_at or self.last_exposed_at or self.unresolved_at

    @property
    def exposures(self) -> int:
        """How many attempts may have done something: throttled ones and those that never left do not count."""
        return max(1, self.attempt - self.throttled - self.not_sent)

    def permits(self, at: datetime) -> bool:
        """The permission still holds at that time."""
        return self.permission_holds and (self.permission_until is None or at < self.permission_until)


@dataclass(frozen=True, slots=True)
class Succeed:
    """There is proof of the effect: this evidence."""

    evidence: Evidence
    cause: Cause


@dataclass(frozen=True, slots=True)
class Reject:
    """There is proof of no effect, and none will be tried."""

    evidence: Evidence
    cause: Cause


@dataclass(frozen=True, slots=True)
class Authorize:
    """
    There is proof of no effect, and the permission holds: attempt anew.

    `anchor_anew`: the receiver never stored the key, so the next exposure fixes a new window.
    """

    evidence: Evidence
    cause: Cause
    anchor_anew: bool


@dataclass(frozen=True, slots=True)
class Resend:
    """Attempt again inside the doubt, at that date; if nothing came of it by `look_at`, decide again."""

    at: datetime
    look_at: datetime


@dataclass(frozen=True, slots=True)
class Look:
    """Ask the receiver's records at that date."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Person:
    """
    Somebody must decide. `look_at`: the next slow look, None where nothing can be asked.

    `counts_from` is the date from which a person's "no effect" is taken.
    """

    reason: Reason
    look_at: datetime | None
    counts_from: datetime


Decision: TypeAlias = Succeed | Reject | Authorize | Resend | Look | Person
