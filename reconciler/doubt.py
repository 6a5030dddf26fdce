"""One operation in doubt, as a reconciler has claimed it."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Self
from uuid import UUID

from outbox.decide import OperationFacts
from outbox.doubt import Row, facts_of, is_unknown
from outbox.evidence import Evidence, Kind, Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """
    A claimed row of doubt with its operation; the columns of the fragment `facts` of reconcile.sql.

    `now` is the database's clock when this was read, and so not later than anything that is sent afterwards. `row` has
    the other columns, which only decisions are made from.
    """

    seq: int
    receiver_id: int
    lane: int
    tenant_id: str
    operation_id: str
    tool: str
    resource: str | None
    expected_version: str | None
    traceparent: str | None
    now: datetime
    next_at: datetime
    needs_person: bool
    step: str
    state: str | None
    attempt: int
    sent_key: UUID | None
    contract_id: int | None
    mismatch: bool
    row: Row = field(repr=False)

    @classmethod
    def of(cls, row: Row) -> Self:
        """Take it from a row."""
        return cls(
            seq=row["seq"],
            receiver_id=row["receiver_id"],
            lane=row["lane"],
            tenant_id=row["tenant_id"],
            operation_id=row["operation_id"],
            tool=row["tool"],
            resource=row["resource"],
            expected_version=row["expected_version"],
            traceparent=row["traceparent"],
            now=row["now"],
            next_at=row["next_at"],
            needs_person=row["needs_person"],
            step=row["step"],
            state=row["state"],
            attempt=row["attempt"],
            sent_key=row["sent_key"],
            contract_id=row["contract_id"],
            mismatch=row["mismatch"],
            row=row,
        )

    @property
    def is_unknown(self) -> bool:
        """Something is to be decided."""
        return is_unknown(self.row)

    def facts(self) -> OperationFacts:
        """What decisions are made from. ValueError unless the operation is unknown."""
        return facts_of(self.row)

    def looked(self, observation: Observation, sent_at: datetime) -> Evidence:
        """What a look at this operation showed, not stored yet. `sent_at`: not later than the read's first byte."""
        return Evidence(
            kind=Kind.LOOKUP,
            attempt=self.attempt,
            fence=observation.fence,
            verdict=observation.verdict,
            external_id=observation.external_id,
            receipt=observation.receipt,
            duplicates=observation.duplicates,
            sent_at=sent_at,
            observed_at=sent_at,
            source="reconciler",
            note=observation.note,
            answer=observation.answer,
        )
