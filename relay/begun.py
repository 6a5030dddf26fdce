"""An attempt at its two ends: a row whose exposure is committed, and what became of it."""

import math
from datetime import datetime
from typing import Any, Final, NamedTuple, Self

from outbox.contract import Wiring
from outbox.decide.attempt import Transition
from outbox.digest import intent_digest
from outbox.outcome import Outcome
from relay.gate import Terms

Name = tuple[int, int]
"""An attempt: the seq of its operation, and its number."""


class Begun(NamedTuple):
    """
    A row as the begin statement returned it. `sent_at` is when that statement was sent, in `boottime()`.

    A tuple and not a dataclass, as all that is made once per attempt: it takes a tenth of the time to make. Its fields
    stand in the order of the statement's columns.
    """

    seq: int
    attempt: int
    first_sent_at: datetime
    contract_id: int
    sent_key: str | None
    wire_digest: bytes | None
    throttled: int
    not_sent: int
    ordered: bool
    tenant_id: str
    operation_id: str
    tool: str
    resource: str | None
    arguments: str | None
    content_type: str | None
    body: bytes | None
    expected_version: str | None
    digest: bytes
    traceparent: str | None
    contract_in_force: int
    first_exposure: bool
    in_doubt: bool
    earlier_settled: bool
    approved_digest: bytes | None
    permission_left_seconds: float
    window_left_seconds: float | None
    sent_at: float

    @classmethod
    def of(cls, row: tuple[Any, ...], sent_at: float) -> Self:
        """Read a row; what stands in it behind these columns is not the operation's."""
        return cls._make((*row[:_COLUMNS], sent_at))

    def __repr__(self) -> str:
        return f"Begun(seq={self.seq}, attempt={self.attempt}, tool={self.tool!r})"  # never what it is made of

    @property
    def name(self) -> Name:
        """Which attempt this is."""
        return self.seq, self.attempt

    @property
    def names(self) -> dict[str, object]:
        """What a log calls it."""
        operation = {"tenant_id": self.tenant_id, "operation_id": self.operation_id}
        return operation | {"tool": self.tool, "seq": self.seq}

    @property
    def true_digest(self) -> bytes:
        """The digest of what would be executed, computed here and now."""
        return intent_digest(
            self.tenant_id,
            self.operation_id,
            self.tool,
            self.resource,
            self.expected_version,
            self.arguments,
            content_type=self.content_type,
            body=self.body,
        )


_COLUMNS: Final = len(Begun._fields) - 1


class Claimed(NamedTuple):
    """
    What a statement began.

    Transactions below `xmin` had ended by then; `top` is the highest open row that it saw, where that was asked for.
    """

    begun: list[Begun]
    xmin: int
    top: int | None

    @property
    def seqs(self) -> list[int]:
        """Their numbers, in order."""
        return [row.seq for row in self.begun]

    @property
    def tenants(self) -> list[str]:
        """Their tenants, in the same order."""
        return [row.tenant_id for row in self.begun]


class Finished(NamedTuple):
    """An attempt that is over, with what follows from it."""

    begun: Begun
    outcome: Outcome
    transition: Transition
    sent_key: str | None = None
    wire_digest: bytes | None = None
    # Until when somebody else decides, where a resend was planned and nothing came of it.
    patience_seconds: float = 0.0


class Bound(NamedTuple):
    """A begun row with both versions of its contract: the one it is pinned to, and the one in force."""

    begun: Begun
    pinned: Wiring
    in_force: Wiring

    @property
    def deadline_at(self) -> float:
        """When it is given up, in `boottime()`."""
        return self.begun.sent_at + self.pinned.deadline_seconds

    @property
    def terms(self) -> Terms:
        """Until when it may start. Everything counts from before the begin statement was sent."""
        begun, window, sent_at = self.begun, self.begun.window_left_seconds, self.begun.sent_at
        if window is None or (self.pinned.repeat_safe and self.in_force.repeat_safe):
            window = math.inf
        else:
            # The statement judged by the version in force; where the pinned one keeps more free, that counts.
            kept = self.pinned.margin_seconds + self.pinned.reach_seconds
            window -= max(0.0, kept - self.in_force.margin_seconds - self.in_force.reach_seconds)
        return Terms(
            deadline_at=self.deadline_at,
            window_until=sent_at + window,
            permission_until=sent_at + begun.permission_left_seconds,
        )
