"""
Anything observed about an effect: a receipt, a look-up, a late answer, a person's statement. Append-only.

Evidence is never a state, but it is never wasted either: `decide.next_step` reads all of it. A record that merely looks
alike proves nothing: whoever writes `confirmed` has seen our own identity in it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from outbox.outcome import (
    EXCERPT_BYTES_MAX,
    EXTERNAL_ID_BYTES_MAX,
    NO_ANSWER,
    RECEIPT_BYTES_MAX,
    Answer,
    storable,
)
from outbox.states import State


class Verdict(StrEnum):
    """What a look at the receiver's records shows."""

    CONFIRMED = "confirmed"
    """A record that carries our identity: the effect exists."""
    ENDED = "ended"
    """The receiver's own final record says that it ended without effect."""
    PARTIAL = "partial"
    """Some of the effect exists."""
    NOT_FOUND = "not_found"
    """The look worked, and shows nothing of ours. Absence only where the contract and the clock say so."""
    UNKNOWN = "unknown"
    """The look failed, or shows work that is still pending. Proves nothing."""


class Kind(StrEnum):
    """Where evidence comes from."""

    RECEIPT = "receipt"
    """An answer that the contract calls a receipt, which arrived too late to be recorded as an outcome."""
    NOT_SENT = "not_sent"
    """The process that held the attempt knows that no byte of it left."""
    LATE_ANSWER = "late_answer"
    """Any other answer that arrived after its lease was lost. Kept for people."""
    LOOKUP = "lookup"
    """A look at the receiver's records."""
    STATEMENT = "statement"
    """What a person says, with their name."""
    CALLBACK = "callback"
    """What the receiver told us by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """
    One thing that was observed. Times are the database's.

    `attempt` is the attempt that was the latest one when this was observed (for `receipt`, `not_sent` and
    `late_answer`: the attempt that was answered). `sent_at` is when a look was *sent*: only that instant says what a
    "not found" may prove. `fence` of a look is the fence that the receiver had raised before it read: the lane's, or
    (a tombstone in an inbox) the number of the attempt up to which it refuses all. `duplicates` counts further records
    that carry our identity. `stated_by` names the person of a statement.
    """

    kind: Kind
    attempt: int
    observed_at: datetime
    id: int = 0
    fence: int | None = None
    verdict: Verdict | None = None
    external_id: str | None = None
    receipt: str | None = None
    duplicates: int = 0
    sent_at: datetime | None = None
    source: str = ""
    stated_by: str | None = None
    note: str = ""
    answer: Answer = NO_ANSWER

    @property
    def shows_effect(self) -> bool:
        """A receipt, or a record, callback or statement that confirms the effect."""
        return self.kind is Kind.RECEIPT or (self.kind is not Kind.NOT_SENT and self.verdict is Verdict.CONFIRMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """
    What one whole look (all its pages) showed, before it is stored as evidence.

    `fence` is the fence that the receiver raised before it read, where it does such a thing. Every text is cleaned and
    cut to its bound here, as that of an answer is: what a look showed can be stored.
    """

    verdict: Verdict
    note: str = ""
    external_id: str | None = None
    receipt: str | None = None
    duplicates: int = 0
    answer: Answer = NO_ANSWER
    fence: int | None = None

    def __post_init__(self) -> None:
        if self.note:
            object.__setattr__(self, "note", storable(self.note, EXCERPT_BYTES_MAX))
        if self.external_id is not None:
            object.__setattr__(self, "external_id", storable(self.external_id, EXTERNAL_ID_BYTES_MAX))
        if self.receipt is not None:
            object.__setattr__(self, "receipt", storable(self.receipt, RECEIPT_BYTES_MAX))


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Evidence that a terminal (or authorized) operation cannot explain. It changes nothing, and raises an alarm."""

    evidence_id: int
    what: str


def contradictions(state: State, external_id: str | None, evidence: Iterable[Evidence]) -> tuple[Contradiction, ...]:
    """
    Find what speaks against the state: an effect of an operation that has none, or a second effect.

    `external_id` is the one in the outcome of a succeeded operation. Operations in doubt contradict nothing.
    """
    found: list[Contradiction] = []
    known = external_id
    for item in evidence:
        if item.duplicates:
            found.append(Contradiction(item.id, f"{item.duplicates + 1} records carry our identity"))
        if not item.shows_effect:
            continue
        if state in {State.REJECTED, State.AUTHORIZED, State.PROPOSED}:
            found.append(Contradiction(item.id, f"an effect was observed of an operation that is {state}"))
        elif item.external_id is not None:
            if known is not None and item.external_id != known:
                found.append(Contradiction(item.id, f"a second external id: {item.external_id}, beside {known}"))
            known = known or item.external_id
    return tuple(found)
