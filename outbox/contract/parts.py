"""The parts of a contract: how a key travels, what an answer means, what a look-up proves."""

import math
import re
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from outbox.contract.answers import Match, NotFound
from outbox.contract.base import (
    HeaderName,
    Later,
    Part,
    Pointer,
    check_header_value,
    refuse_words,
)
from outbox.duration import Duration
from outbox.template import variables


class Key(Part):
    """
    Where the sent key travels. `name` is the header or query field (form field, with a form body).

    In a `column`, that of an inbox, it has its own place and no name.
    """

    in_: Annotated[Literal["header", "body", "query", "path", "column"], refuse_words("message")] = Field(alias="in")
    name: Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,100}$")] | None = None
    form: Literal["bare", "quoted"] = "bare"
    """`quoted` is the structured field of the IETF draft: `Idempotency-Key: "..."`."""
    pointer: Pointer | None = None
    """Where in a JSON body."""

    @model_validator(mode="after")
    def _has_its_place(self) -> Self:
        named, pointed = self.name is not None, self.pointer is not None
        nowhere = (False, False)
        wanted = {"header": (True, False), "query": (True, False), "path": nowhere, "column": nowhere}
        if self.in_ == "body":
            if named == pointed:
                raise ValueError("a key in the body has a `pointer` (JSON) or a `name` (form field)")
        elif (named, pointed) != wanted[self.in_]:
            raise ValueError(f"a key in the {self.in_} has {'a `name` only' if wanted[self.in_][0] else 'no name'}")
        if self.in_ == "header" and not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", self.name or ""):
            raise ValueError("not the name of a header")
        if self.form == "quoted" and self.in_ != "header":
            raise ValueError("only a key in a header can be quoted")
        return self


class KeyGrammar(Part):
    """What the receiver takes as a key. The sent key is always a UUID in lower case, 36 characters."""

    min: int = Field(default=1, ge=1)
    max: int = Field(default=255, ge=1)
    pattern: str | None = Field(default=None, max_length=200)

    @model_validator(mode="after")
    def _a_uuid_fits(self) -> Self:
        samples = ("8e03978e-40d5-53dd-8c93-6894a57f9324", "00000000-0000-5000-8000-000000000000")
        if not self.min <= len(samples[0]) <= self.max:
            raise ValueError("the sent key has 36 characters (a UUID), which do not fit")
        if self.pattern is not None:
            try:
                pattern = re.compile(self.pattern, re.ASCII)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from None
            if not all(pattern.fullmatch(sample) for sample in samples):
                raise ValueError("the sent key is a UUID in lower case, which does not match")
        return self


ScopeWord = Annotated[
    Literal["account", "credential", "host", "region", "route"],
    refuse_words("cluster", "queue", "message_group", "zone", "verb", "body", "quote"),
]


class Lookup(Part):
    """
    What a look at the receiver's records proves. How the look is made is the tool's `read`.

    The first look comes after `interval`, each further one after twice the time, up to `interval_max`. After
    `reads_max` looks without proof a person is asked, while a slow look every `interval_slow` goes on.
    """

    by: Annotated[Literal["key", "reference", "resource"], refuse_words("scan")]
    consistency: Literal["strong", "eventual"] | None = None
    lag: Duration | None = None
    """Eventual: how long the effect may stay invisible."""
    absence_is_proof: bool = False
    sees_pending: bool = False
    """Work that was accepted and not done yet is visible too."""
    not_found: NotFound | None = None
    horizon: Duration = math.inf
    """How long after an attempt a missing record still means that there never was one."""
    confirm_within: Duration = 3600.0
    """How long accepted work may take before a person is asked. Patience, not proof."""
    interval: Duration = 1.0
    interval_max: Duration = 300.0
    interval_slow: Duration = 3600.0
    reads_max: int = Field(default=12, ge=1, le=1_000)

    @model_validator(mode="after")
    def _is_paced(self) -> Self:
        if not 0 < self.interval <= self.interval_max <= self.interval_slow <= 7 * 86_400:
            raise ValueError("0 < interval <= interval_max <= interval_slow <= 7d does not hold")
        if self.confirm_within > 365 * 86_400:
            raise ValueError("confirm_within is at most 365d: somebody must be asked some day")
        return self

    def pause_seconds(self, reads: int) -> float:
        """How long to wait for the next look after so many."""
        # The exponent is cut before a float overflows.
        return min(self.interval_max, self.interval * 2.0 ** min(reads, 64))


class Precondition(Part):
    """The version travels as a condition, such as `If-Match`. `format` puts it between the quotes of an ETag."""

    header: HeaderName
    format: str = Field(default='"{expected_version}"', max_length=200)
    field: Later = None
    offset: Later = None

    @field_validator("format")
    @classmethod
    def _contains_the_version(cls, text: str) -> str:
        if variables(text) != {"expected_version"}:
            raise ValueError("the format contains {expected_version} and nothing else in braces")
        return check_header_value(text)


class ReplayMarker(Part):
    """The header by which a replayed answer is known."""

    header: HeaderName
    is_: str = Field(alias="is", default="true")


class Fencing(Part):
    """
    The receiver compares fences. By itself that orders attempts; it bounds no effects.

    `raised_by_lookup`: the receiver raises its mark before it reads, so that no attempt from before the look can have
    an effect after it. Only that makes "not found" a proof that needs no clock. With a `header` a look carries the
    lane's fence. In a `column`, that of an inbox, the look leaves a tombstone: "refuse the attempts of this operation
    up to this one"; the number of the attempt is the fence, and no lane is disturbed.
    """

    in_: Annotated[Literal["header", "column"], refuse_words("epoch")] = Field(alias="in", default="header")
    stale: Match | None = None
    """How the refusal of a stale fence looks, over HTTP."""
    raised_by_lookup: bool = False

    @model_validator(mode="after")
    def _has_its_refusal(self) -> Self:
        if self.stale is not None and self.in_ != "header":
            raise ValueError("`stale` describes an answer of HTTP; an inbox says it in words of its own")
        return self


class Retry(Part):
    """
    Back-off between attempts: `first`, then `factor` times more, up to `max`, with jitter.

    `attempts` bounds the exposures of one operation; throttles and attempts that never left do not count.
    A Retry-After is obeyed up to `retry_after_max`.
    """

    first: Duration = 1.0
    factor: float = Field(default=2.0, ge=1.0, le=10.0, allow_inf_nan=False)
    max: Duration = 300.0
    attempts: int = Field(default=100, ge=1, le=1_000)
    forbidden_attempts: int = Field(default=5, ge=1, le=1_000)
    """After so many attempts a 403 is a person's business."""
    retry_after_max: Duration = 3600.0

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if not 0 < self.first <= self.max <= 7 * 86_400 or self.retry_after_max > 7 * 86_400:
            raise ValueError("0 < first <= max <= 7d and retry_after_max <= 7d do not hold")
        return self

    def pause_seconds(self, failures: int) -> float:
        """The longest pause after so many failures; jitter shortens it by up to half."""
        # The exponent is cut before a float overflows: 64 doublings exceed every bound above.
        return min(self.max, self.first * self.factor ** min(failures, 64))

    def schedule_seconds(self) -> float:
        """How long the pauses of all attempts last at most, the attempts themselves apart."""
        return sum(self.pause_seconds(number) for number in range(self.attempts - 1))
