"""
A contract: what a receiver promises for one tool. Data with a source and a date, never code.

Every default is the safe side: what nobody states is taken as not promised, and a fact listed in `unverified` counts as
not stated. The key's retention is zero unless it is known; "not found" proves nothing unless the contract says so.
"""

import datetime as dt
import math
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from outbox.contract.answers import AnswerRule
from outbox.contract.base import HeaderName, Later, Part, word_or_part
from outbox.contract.parts import (
    Fencing,
    Key,
    KeyGrammar,
    Lookup,
    Precondition,
    ReplayMarker,
    Retry,
    ScopeWord,
)
from outbox.duration import Duration

# The assumption about lateness where a contract states no bound: printed with the guarantee, never hidden.
MARGIN_SECONDS_ASSUMED = 300.0


class Contract(Part):
    """
    What one tool's receiver promises.

    `key_retention` counts from the first exposure whatever `key_anchor` says (every other anchor is later, so this is
    the safe side). `in_flight_bound` is how long a request may still land after we gave up on it; without it absence
    proves nothing. `margin` is kept free at the end of the key's window; unstated, it is twice what may be late
    (`pause_bound + in_flight_bound`, the other half is for the two clocks), or, where no bound is stated, five minutes:
    then the margin *is* the assumption, and the guarantee says so.
    """

    key: Annotated[Literal["none", "ignored"] | Key, word_or_part("none", "ignored")] = "none"
    key_grammar: KeyGrammar = KeyGrammar()
    key_scope: tuple[ScopeWord, ...] | None = None
    """What the key is valid in. Unstated: everything that we can pin."""
    key_retention: Duration = 0.0
    key_anchor: Literal["first_request", "first_completion", "creation", "forever"] = "first_request"
    stores_key: Literal["on_arrival", "on_execution"] = "on_arrival"
    stored_outcomes: Literal["all", "success", "non_retryable", "state"] | None = None
    on_mismatch: Literal["error", "replay", "execute", "new_identity", "swallow"] | None = None
    duplicate_guard: Literal["none", "resource"] = "none"
    key_checked_first: bool = False
    replay_marker: ReplayMarker | None = None
    resend_after: Duration = 0.0
    margin: Duration | None = None

    answers: tuple[AnswerRule, ...] = Field(default=(), max_length=100)
    request_id_header: HeaderName | None = None
    lookup: Annotated[Literal["none"] | Lookup, word_or_part("none")] = "none"
    in_flight_bound: Duration | None = None
    precondition: Annotated[Literal["none"] | Precondition, word_or_part("none")] = "none"
    acceptance: Literal["sync", "async"] = "sync"
    fencing: Annotated[Literal["none"] | Fencing, word_or_part("none")] = "none"
    repeat_safe: bool = False
    replays: bool = False
    """The path can repeat a request by itself (service meshes do): then no refusal proves anything."""
    retry: Retry | None = None

    source: str = Field(default="", max_length=2_000)
    verified_at: dt.date | None = None
    unverified: tuple[str, ...] = ()

    window_enforced_by_receiver: Later = None
    first_sent: Later = None
    retry_advice: Later = None
    status: Later = None
    callback: Later = None
    stuck_key: Later = None
    silent_loss: Later = None
    cancel_by_key: Later = None

    @field_validator("unverified")
    @classmethod
    def _names_fields(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in cls.model_fields or name in {"source", "verified_at", "unverified", "retry"}:
                raise ValueError(f"{name!r} is no fact of a contract")
        return names

    @model_validator(mode="after")
    def _has_no_loose_ends(self) -> Self:
        if math.isinf(self.key_retention) and self.key_anchor not in {"forever", "first_request"}:
            raise ValueError("a key kept for ever has no anchor")
        if self.key_anchor == "forever" and self.key_retention not in {0.0, math.inf}:
            raise ValueError('key_anchor = "forever" and a finite key_retention contradict each other')
        if self.in_flight_bound is not None and math.isinf(self.in_flight_bound):
            raise ValueError("an in_flight_bound that is no bound: leave it out")
        if self.margin is not None and math.isinf(self.margin):
            raise ValueError("a margin that never ends leaves no window: set key_retention to 0s")
        return self

    @property
    def retrying(self) -> Retry:
        """The back-off in force."""
        return self.retry or Retry()

    def trusted(self) -> "Contract":
        """
        Return the contract with every unverified fact on its safe side: what answers, decisions and guarantees rest on.

        Only requests are built from what is stated: sending a key that is perhaps ignored costs nothing, trusting it
        does.
        """
        if not self.unverified:
            return self
        safe = {name: type(self).model_fields[name].get_default(call_default_factory=True) for name in self.unverified}
        if "replays" in safe:
            safe["replays"] = True
        if "acceptance" in safe:
            safe["acceptance"] = "async"
        return self.model_copy(update=safe)
