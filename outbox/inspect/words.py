"""What the closed vocabularies mean, in words; and dates and spans as people read them."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from outbox.decide import FOREVER, NoResend, Reason
from outbox.states import Cause

CAUSES: Final[Mapping[Cause, str]] = MappingProxyType(
    {
        Cause.EXPIRED: "its permission expired before anything was sent",
        Cause.REVOKED: "its permission was withdrawn",
        Cause.CANCELLED: "somebody cancelled it",
        Cause.POLICY_CHANGED: "the policy of its tool changed, so it is decided again",
        Cause.TAMPERED: "its arguments are not those that were permitted",
        Cause.REFUSED: "the receiver refused it",
        Cause.PRECONDITION_FAILED: "the resource no longer has the version that was expected",
        Cause.FORBIDDEN: "the receiver forbids it",
        Cause.THROTTLED: "the receiver asked us to come back later",
        Cause.ACCEPTED: "the receiver accepted it, and does it later",
        Cause.IN_FLIGHT: "the receiver says that an earlier request with this key still runs",
        Cause.MISMATCH: "the receiver knows this key with other bytes",
        Cause.STORED_FAILURE: "the receiver repeated a failure that it had stored",
        Cause.RECEIVER_FAULT: "our credential or the receiver's configuration is at fault, not the operation",
        Cause.WINDOW_CLOSED: "the receiver no longer knows the key",
        Cause.DUPLICATE: "the receiver holds more than one record with our identity",
        Cause.AMBIGUOUS: "the answer proves nothing",
        Cause.TIMEOUT: "no answer came in time",
        Cause.CONNECTION_LOST: "the connection was lost",
        Cause.NOT_SENT: "nothing left the relay's machine",
        Cause.SECRET_MISSING: "nothing left the relay's machine: a credential is missing there",
        Cause.UNSAFE_TARGET: "nothing left the relay's machine: the receiver's address may not be called",
        Cause.NAME_UNRESOLVED: "nothing left the relay's machine: the receiver's name does not resolve there",
        Cause.NO_CONNECTION: "nothing left the relay's machine: the receiver could not be reached",
        Cause.TLS_FAILED: "nothing left the relay's machine: no TLS connection to the receiver could be made",
        Cause.LEFT_ALONE: "nothing left the relay's machine: its receiver is left alone",
        Cause.TOO_LATE: "nothing left the relay's machine: too little time was left for it",
        Cause.NOT_PROCESSED: "the receiver says that it did not process it",
        Cause.CONTRACT_UNREADABLE: "nothing left the relay's machine: that relay could not read its contract",
        Cause.NO_ROUTE: "no relay serves its receiver",
        Cause.TARGET_CHANGED: "the request would not be the one that was sent before",
        Cause.SCOPE_CHANGED: "the credential or the host is not the one of the first attempt",
        Cause.LEASE_LOST: "the relay lost its lane before it recorded an answer",
        Cause.STALE_FENCE: "the receiver has seen a newer fence",
        Cause.ORPHANED: "the relay that made the attempt never recorded an answer",
        Cause.SHUTDOWN: "the relay was stopped while the attempt ran",
        Cause.FAILOVER: "the database failed over, and what was sent just before may have left no trace",
        Cause.UNPLACED: "no trigger had placed it, so nobody knows whether it was attempted",
        Cause.RESEND: "it is sent again with the same key",
        Cause.CONFIRMED: "the receiver's records show the effect under our identity",
        Cause.LATE_RECEIPT: "a receipt arrived after the lease was lost, and was kept",
        Cause.ENDED: "the receiver's own record says that it ended without effect",
        Cause.PARTIAL: "a part of the effect exists",
        Cause.PROVEN_ABSENT: "a look proved that there was no effect",
        Cause.NO_EFFECT: "a look proved that there was no effect, and it may not be tried again",
        Cause.PERSON: "a person said so",
        Cause.CONTRADICTION: "a receipt exists for an operation that should hide no effect",
    }
)

# What to do about an attempt that had no effect and is made again; the last of it is a command. {receiver}, {target}
# and {secret} are put in (unsent.py).
REMEDIES: Final[Mapping[Cause, str]] = MappingProxyType(
    {
        Cause.NOT_SENT: "its relay's log says more (event attempt_failed). See: outbox doctor",
        Cause.SECRET_MISSING: (
            "give the relay's process {secret}; then: outbox retry --receiver {receiver} --cause secret_missing"
        ),
        Cause.UNSAFE_TARGET: (
            "correct base_url ({target}) of receivers.{receiver}, or set allow_private_addresses = true there; then:"
            " outbox apply"
        ),
        Cause.NAME_UNRESOLVED: (
            "is {target} written rightly, and does the relay's host resolve it? It is tried again by itself; at once:"
            " outbox retry --receiver {receiver} --cause name_unresolved"
        ),
        Cause.NO_CONNECTION: (
            "does {target} resolve and answer from the relay's host? It is tried again by itself; at once: outbox retry"
            " --receiver {receiver} --cause no_connection"
        ),
        Cause.TLS_FAILED: (
            "does the relay's host trust the certificate of {target}? Then: outbox retry --receiver {receiver} --cause"
            " tls_failed"
        ),
        Cause.LEFT_ALONE: (
            "it is tried every minute at least; at once: outbox resume receiver {receiver} --reason TEXT"
        ),
        Cause.TOO_LATE: (
            "it is tried again by itself. If it stays so, deadline and lease of {receiver} are too short for its load:"
            " outbox top"
        ),
        Cause.NOT_PROCESSED: "it is tried again by itself. If it stays so, is {target} the right address? outbox show",
        Cause.RECEIVER_FAULT: (
            "is {secret} right, and is {target} the receiver's address? Then: outbox retry --receiver {receiver}"
            " --cause receiver_fault"
        ),
        Cause.FORBIDDEN: (
            "whoever runs {target} must permit it to {secret}; then: outbox retry --receiver {receiver} --cause"
            " forbidden"
        ),
        Cause.CONTRACT_UNREADABLE: (
            "another release applied it: run that release's relay, or: outbox apply (with this one)"
        ),
    }
)

NO_RESEND: Final[Mapping[NoResend, str]] = MappingProxyType(
    {
        NoResend.NO_KEY: "the receiver honours no key, so nobody would notice that it is a repeat",
        NoResend.WINDOW_CLOSED: "the window is closed: the receiver may have forgotten the key and execute again",
        NoResend.PERMISSION_GONE: "its permission does not hold any more",
        NoResend.TEACHES_NOTHING: "another attempt would be answered as the last one was, and prove nothing",
        NoResend.ACCEPTED: "the receiver has the work: it does it, or not",
        NoResend.RECORD_EXISTS: "the receiver's records show it already, ended or in part",
        NoResend.ATTEMPTS_SPENT: "it was sent as often as the back-off of the contract allows",
    }
)

REASONS: Final[Mapping[Reason, str]] = MappingProxyType(
    {
        Reason.MISMATCH: "the receiver knows our key with other bytes: nothing under that key speaks of this operation",
        Reason.PARTIAL: "a part of the effect exists",
        Reason.NO_LOOKUP: "the receiver cannot be asked",
        Reason.NOT_PROVABLE: "looks find nothing, and under this contract that is no proof",
        Reason.LOOKS_FAILED: "no look has shown anything that decides",
        Reason.HORIZON_PASSED: 'it is too late for "not found" to prove anything',
        Reason.NOT_CONFIRMED: "work that was accepted has not shown up in time",
        Reason.FORBIDDEN: "the receiver forbids it again and again",
    }
)

# Which clauses of a contract such a sentence rests on.
CLAUSES: Final[Mapping[NoResend | Reason, tuple[str, ...]]] = MappingProxyType(
    {
        NoResend.NO_KEY: ("key",),
        NoResend.WINDOW_CLOSED: ("key_retention", "margin", "in_flight_bound"),
        NoResend.PERMISSION_GONE: (),
        NoResend.TEACHES_NOTHING: ("answers", "precondition"),
        NoResend.ACCEPTED: ("answers", "stored_outcomes"),
        NoResend.RECORD_EXISTS: ("lookup",),
        NoResend.ATTEMPTS_SPENT: ("retry",),
        Reason.MISMATCH: ("answers", "on_mismatch"),
        Reason.PARTIAL: ("lookup",),
        Reason.NO_LOOKUP: ("key", "lookup"),
        Reason.NOT_PROVABLE: ("lookup", "in_flight_bound"),
        Reason.LOOKS_FAILED: ("lookup",),
        Reason.HORIZON_PASSED: ("lookup",),
        Reason.NOT_CONFIRMED: ("lookup", "acceptance"),
        Reason.FORBIDDEN: ("retry",),
    }
)


def in_words(cause: Cause | None) -> str:
    """What a cause means; empty for none."""
    return CAUSES[cause] if cause is not None else ""


def clock(date: datetime) -> str:
    """A date in UTC, to the second: `2026-11-30 08:12:31Z`."""
    return "for ever" if date == FOREVER else f"{date.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def when(date: datetime, now: datetime) -> str:
    """The same, and how far away it is: `2026-11-30 08:12:31Z (in 5 min)`."""
    if date == FOREVER:
        return "for ever"
    seconds = (date - now).total_seconds()
    return f"{clock(date)} ({f'in {span(seconds)}' if seconds > 0 else f'{span(-seconds)} ago'})"


def span(seconds: float) -> str:
    """A span of time, rounded to what matters: `3 s`, `5 min`, `2 h`, `3 d`."""
    if math.isinf(seconds):
        return "for ever"
    for unit, length, enough in (("s", 1, 120), ("min", 60, 120), ("h", 3_600, 48)):
        if seconds < enough * length:
            return f"{round(seconds / length)} {unit}"
    return f"{round(seconds / 86_400)} d"


def lanes_of(numbers: Sequence[int]) -> str:
    """Lanes by their numbers: `lane 3`, `lanes 1, 2`."""
    return f"lane{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
