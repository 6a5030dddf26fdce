"""
What one attempt can say: a closed set.

A receiver returns one of these and raises nothing for expected trouble. Where nothing is proven the outcome is
`Ambiguous`: a lost answer is never a failure. Which state follows is decided by `decide.after_attempt`, never here.
"""

import re
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from outbox.states import Cause

EXCERPT_BYTES_MAX: Final = 2_048
RECEIPT_BYTES_MAX: Final = 4_096
EXTERNAL_ID_BYTES_MAX: Final = 500
REQUEST_ID_BYTES_MAX: Final = 300
HOST_BYTES_MAX: Final = 300

# Control characters (a terminal obeys them; PostgreSQL refuses NUL) but tab and line feed, and lone surrogates.
_UNSTORABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def storable(text: str, bytes_max: int) -> str:
    """
    Return text that PostgreSQL stores and a terminal can print, at most `bytes_max` bytes of UTF-8.

    Lone surrogates, NUL and other control characters (tab and line feed apart) become U+FFFD. Never raises: the path
    that records a failure cannot fail on what it records.
    """
    if len(text) <= bytes_max and text.isascii() and text.isprintable():
        return text  # as most are
    cleaned = _UNSTORABLE.sub("\ufffd", text[:bytes_max].replace("\r\n", "\n"))
    return cleaned.encode()[:bytes_max].decode(errors="ignore")


def _keep(frozen: object, name: str, text: str | None, bytes_max: int) -> None:
    """Put a text of an outcome that is being made into the form that can be stored; most are in it already."""
    if text is not None and (kept := storable(text, bytes_max)) is not text:
        object.__setattr__(frozen, name, kept)


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What came back, as far as it is kept: safe to store, whatever the receiver sent.

    `status` is None where there was no answer at all. `request_id` is what the provider's support will ask for, `host`
    the peer that was spoken to. Every text is cleaned and cut to its bound here.
    """

    status: int | None = None
    excerpt: str = ""
    request_id: str | None = None
    host: str | None = None

    def __post_init__(self) -> None:
        _keep(self, "excerpt", self.excerpt, EXCERPT_BYTES_MAX)
        _keep(self, "request_id", self.request_id, REQUEST_ID_BYTES_MAX)
        _keep(self, "host", self.host, HOST_BYTES_MAX)


NO_ANSWER: Final = Answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """
    Proof of the effect, bound to the sent key.

    `receipt` is canonical JSON where the answer was JSON, else text. An answer whose body is larger than
    RECEIPT_BYTES_MAX keeps its beginning: the proof is the answer, this is its record.
    """

    answer: Answer
    receipt: str
    external_id: str | None = None

    def __post_init__(self) -> None:
        _keep(self, "receipt", self.receipt, RECEIPT_BYTES_MAX)
        _keep(self, "external_id", self.external_id, EXTERNAL_ID_BYTES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The receiver took the work and will do it later. From now on "not found" proves nothing by itself."""

    answer: Answer
    external_id: str | None = None

    def __post_init__(self) -> None:
        _keep(self, "external_id", self.external_id, EXTERNAL_ID_BYTES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """
    This attempt had no effect, and the operation is at fault.

    `cause` is `refused`, `precondition_failed` (412) or `window_closed` (the receiver no longer knows the key).
    `replayed`: the receiver marked it as its stored answer to an earlier attempt with this key.
    """

    answer: Answer
    cause: Cause = Cause.REFUSED
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSent:
    """
    Nothing of this attempt was processed: no byte left this machine, or the receiver says so (421, 425).

    `reason` is for people; `cause` is one of `states.UNSENT`, or `shutdown`, `no_route`, `target_changed`,
    `scope_changed`: with it the operation waits, and `outbox why` says it.
    `unreachable`: the receiver was called and nobody was there, so it speaks of the receiver and not of this attempt.
    """

    reason: str
    answer: Answer = NO_ANSWER
    cause: Cause = Cause.NOT_SENT
    unreachable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """The receiver says that it did not execute this attempt, and when to come back. Not clamped yet."""

    answer: Answer
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """The first request with this key still runs."""

    answer: Answer
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The receiver knows this key with other bytes. Nothing that it shows under the key proves anything about us."""

    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFailure:
    """A replayed failure. No new evidence: the first one may have had its effect before it failed."""

    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverFault:
    """
    This attempt was not executed, and our credential or configuration is at fault, not the operation.

    `forbidden` (403) speaks of one operation; otherwise (401, TLS, wrong host) the receiver pauses after several.
    """

    answer: Answer
    forbidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleFence:
    """The receiver has seen a newer fence: the lease is lost."""

    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """
    Anything else after the exposure: the effect may exist.

    `reason` is for people; `cause` is `ambiguous`, `timeout`, `connection_lost`, `shutdown` or `orphaned`.
    """

    reason: str
    answer: Answer = NO_ANSWER
    cause: Cause = field(default=Cause.AMBIGUOUS)


Outcome: TypeAlias = (
    Receipt
    | Accepted
    | Refused
    | NotSent
    | Throttled
    | InFlight
    | Mismatch
    | StoredFailure
    | ReceiverFault
    | StaleFence
    | Ambiguous
)
