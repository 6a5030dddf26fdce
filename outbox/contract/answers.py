"""What an answer means: ordered rules, the first that matches wins."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, StringConstraints, field_validator, model_validator

from outbox.contract.base import HeaderName, Part, Pointer
from outbox.template import variables

Scalar: TypeAlias = str | int | float | bool

Meaning = Literal[
    "receipt",
    "accepted",
    "refused",
    "precondition_failed",
    "window_closed",
    "not_sent",
    "throttled",
    "in_flight",
    "mismatch",
    "stored_failure",
    "receiver_fault",
    "forbidden",
    "stale_fence",
    "ambiguous",
]

StatusWord = Annotated[int, Field(ge=100, le=599)] | Annotated[str, StringConstraints(pattern=r"^[1-5]xx$")]

# A SQLSTATE, or the class that its first two characters name.
SqlState = Annotated[str, StringConstraints(pattern=r"^[0-9A-Z]{2}(?:[0-9A-Z]{3})?$")]

# What an error of a database can mean: its transaction was rolled back, so never an effect.
_OF_AN_ERROR: Final = frozenset(
    {"refused", "precondition_failed", "throttled", "receiver_fault", "forbidden", "ambiguous"}
)


class Match(Part):
    """
    Conditions on an answer; all that are given must hold.

    `status` lists numbers or classes such as "4xx". A header matches by its exact value (`true`: present, `false`:
    absent). A body matches where the value at the pointer is exactly this one; `body_suffix` compares the end of a
    text; `body_present` wants something there. `{sent_key}` in a value stands for the key of this operation, so an
    answer can be bound to it.
    """

    status: tuple[StatusWord, ...] = Field(default=(), max_length=100)
    header: Mapping[HeaderName, str | bool] = Field(default_factory=dict)
    body: Mapping[Pointer, Scalar] = Field(default_factory=dict)
    body_suffix: Mapping[Pointer, str] = Field(default_factory=dict)
    body_present: tuple[Pointer, ...] = ()

    @property
    def reads_body(self) -> bool:
        """Some condition is about the body."""
        return bool(self.body or self.body_suffix or self.body_present)

    @property
    def has_conditions(self) -> bool:
        """Some answer would not match."""
        return bool(self.status or self.header or self.reads_body)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.has_conditions:
            raise ValueError("a match without conditions would match every answer")
        return self


class Verify(Part):
    """A read that must find the resource before a success signal counts as a receipt."""

    method: Literal["GET"] = "GET"
    path: str = Field(pattern=r"^/", max_length=2_000)

    @field_validator("path")
    @classmethod
    def _names_the_resource(cls, path: str) -> str:
        if not variables(path) <= {"external_id", "sent_key", "resource", "tenant_id"} or "{external_id}" not in path:
            raise ValueError("the path of a verifying read contains {external_id}")
        return path


class AnswerRule(Match):
    """
    One line of `answers`: what an answer means. The first line that matches wins; none: the default table.

    `sqlstate` lists errors of a database ("23514") or classes of them ("23"), instead of conditions on HTTP.
    """

    means: Meaning
    sqlstate: tuple[SqlState, ...] | None = Field(default=None, min_length=1, max_length=100)
    attempt: Literal["first", "resend", "any"] = "any"
    external_id: Pointer | None = None
    """Where the receiver's own id is. An answer without one there does not count as a receipt."""
    verify: Verify | None = None

    @property
    def has_conditions(self) -> bool:
        """Some answer would not match."""
        return bool(self.sqlstate) or super().has_conditions

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        if self.sqlstate and super().has_conditions:
            raise ValueError("`sqlstate` is for errors of a database, which have neither status, header nor body")
        if self.sqlstate and self.means not in _OF_AN_ERROR:
            raise ValueError(f"an error rolled everything back; it means one of: {', '.join(sorted(_OF_AN_ERROR))}")
        return self

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.verify is not None and (self.means != "receipt" or self.external_id is None):
            raise ValueError("`verify` belongs to an answer that means a receipt and has an `external_id`")
        if self.external_id is not None and self.means not in {"receipt", "accepted"}:
            raise ValueError("`external_id` belongs to an answer that means a receipt or an acceptance")
        return self


class NotFound(Match):
    """How "not found" looks. A list that was read to its end without our identity needs no declaration."""
