"""
An operation in doubt: from rows of the database to what decisions want.

The reconciler and the people's side of the house read the same columns (the fragment `doubt` of outbox/sql) and turn
them into facts here, once: what a person is told is what a daemon would do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from outbox.decide import FOREVER, OperationFacts
from outbox.evidence import Evidence, Kind, Verdict
from outbox.outcome import Answer
from outbox.states import Cause, State

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtRow:
    """
    The columns that decisions are made from.

    `state` is None if the operation is no longer open; then the rest may be None too. `resend_until` is None before the
    first exposure, and for a key that is honoured for ever. `pending_at` is when its next attempt may begin, None for
    never by itself.
    """

    seq: int
    state: str | None
    attempt: int
    fence: int | None
    cause: str | None
    begun_at: datetime | None
    first_sent_at: datetime | None
    unresolved_at: datetime | None
    resend_until: datetime | None
    key_forever: bool | None
    last_exposed_at: datetime | None
    gave_up_at: datetime | None
    settle_at: datetime | None
    reads: int | None
    last_read_at: datetime | None
    accepted: bool | None
    no_resend: bool | None
    mismatch: bool
    policy_holds: bool
    permission_until: datetime | None
    pending_at: datetime | None
    throttled: int | None
    not_sent: int | None

    @property
    def is_unknown(self) -> bool:
        """Something is to be decided. An operation that executes again has a holder, who says how that went."""
        return self.state == State.UNKNOWN

    def facts(self) -> OperationFacts:
        """What decisions are made from. ValueError unless the operation is unknown."""
        if not self.is_unknown or self.unresolved_at is None:
            raise ValueError(f"operation seq {self.seq} is {self.state or 'not open'}")
        return OperationFacts(
            attempt=self.attempt,
            first_sent_at=self.first_sent_at,
            resend_until=FOREVER if self.key_forever else self.resend_until,
            last_exposed_at=self.last_exposed_at,
            unresolved_at=self.unresolved_at,
            # Not `last_exposed_at`: a latest attempt that was withdrawn leaves the doubt about those before it.
            earlier_unresolved=self.begun_at is not None and self.unresolved_at < self.begun_at,
            cause=Cause(self.cause) if self.cause else None,
            gave_up_at=self.gave_up_at,
            settle_at=self.settle_at,
            fence=self.fence,
            accepted=bool(self.accepted),
            mismatch=self.mismatch,
            no_more_resends=bool(self.no_resend),
            permission_holds=self.policy_holds,
            permission_until=self.permission_until,
            reads=self.reads or 0,
            last_read_at=self.last_read_at,
            not_before=self.pending_at,
            throttled=self.throttled or 0,
            not_sent=self.not_sent or 0,
        )


def doubt_of(row: Row) -> DoubtRow:
    """The columns of a wider row that decisions are made from."""
    return DoubtRow(**{field.name: row[field.name] for field in fields(DoubtRow)})


def evidence_of(row: Row) -> Evidence:
    """A row of evidence as decisions want it."""
    return Evidence(
        id=row["evidence_id"],
        kind=Kind(row["kind"]),
        attempt=row["attempt"] or 0,
        fence=row["fence"],
        verdict=Verdict(row["verdict"]) if row["verdict"] else None,
        external_id=row["external_id"],
        receipt=row["receipt"],
        duplicates=row["duplicates"],
        sent_at=row["sent_at"],
        observed_at=row["observed_at"],
        source=row["source"],
        stated_by=row["stated_by"],
        note=row["note"] or "",
        answer=Answer(status=row["status"], excerpt=row["excerpt"] or "", request_id=row["request_id"]),
    )
