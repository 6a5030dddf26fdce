"""One operation in doubt, as a reconciler has claimed it."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outbox.doubt import DoubtRow
from outbox.evidence import Evidence, Kind, Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt(DoubtRow):
    """
    A claimed row of doubt with its operation; the columns of the fragment `facts` of reconcile.sql.

    `now` is the database's clock when this was read, and so not later than anything that is sent afterwards.
    """

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
    since: datetime
    needs_person: bool
    step: str
    reason: str | None
    sent_key: UUID | None
    contract_id: int | None

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
