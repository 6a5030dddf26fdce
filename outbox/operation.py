"""The operation: an intent, plus what is known of its life."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from outbox.states import TERMINAL, Cause, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """
    What the database knew when it was asked.

    `state` is honest: `executing` and `unknown` may hide an effect, and neither is a failure.
    `attempt` is the number of the last attempt, 0 before the first.
    `receipt` is the receiver's proof, `external_id` the receiver's name for the effect.
    `created` is true in the answer to the put that inserted the intent, and in no other.
    Of a `purged` operation only the end is still known: attempt, receipt and the time of its intent are None.
    """

    tenant_id: str
    operation_id: str
    tool: str
    state: State
    cause: Cause | None
    attempt: int | None
    receipt: str | None = field(repr=False)
    external_id: str | None
    created: bool
    created_at: datetime | None
    ended_at: datetime | None
    purged: bool
    seq: int

    @property
    def ended(self) -> bool:
        """Whether this state is the last one."""
        return self.state in TERMINAL

    @classmethod
    def from_row(cls, tenant_id: str, operation_id: str, tool: str, row: Mapping[str, Any]) -> Self:
        """Read a row of `outbox.put` or of `outbox.get_operation`."""
        return cls(
            tenant_id=tenant_id,
            operation_id=operation_id,
            tool=tool,
            state=State(row["state"]),
            cause=row["cause"] and Cause(row["cause"]),
            attempt=row["attempt"],
            receipt=row["receipt"],
            external_id=row["external_id"],
            created=row.get("created", False),
            created_at=row["created_at"],
            ended_at=row["ended_at"],
            purged=row["purged"],
            seq=row["seq"],
        )
