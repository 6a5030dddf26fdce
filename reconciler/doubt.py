"""One operation in doubt, as the database has it, and as decisions want it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from outbox.decide import FOREVER, OperationFacts
from outbox.evidence import Evidence, Kind, Observation, Verdict
from outbox.outcome import Answer
from outbox.states import Cause, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """
    A claimed row of doubt with its operation; the columns of the fragment `facts` of reconcile.sql.

    `now` is the database's clock when this was read, and so not later than anything that is sent afterwards. `state` is
    None if the operation is no longer open. `resend_until` is None before the first exposure, and for a key that is
    honoured for ever.
    """

    seq: int
    receiver_id: int
    tenant_id: str
    operation_id: str
    tool: str
    resource: str | None
    expected_version: str | None
    traceparent: str | None
    now: datetime
    next_at: datetime
    since: datetime
    last_exposed_at: datetime | None
    gave_up_at: datetime
    settle_at: datetime | None
    reads: int
    last_read_at: datetime | None
    accepted: bool
    needs_person: bool
    step: str
    reason: str | None
    state: str | None
    attempt: int
    fence: int | None
    cause: str | None
    begun_at: datetime | None
    first_sent_at: datetime | None
    unresolved_at: datetime | None
    sent_key: UUID | None
    throttled: int | None
    not_sent: int | None
    contract_id: int | None
    policy_holds: bool
    resend_until: datetime | None
    key_forever: bool | None
    permission_until: datetime | None
    not_before: datetime | None
    no_resend: bool | None
    mismatch: bool

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
            accepted=self.accepted,
            mismatch=self.mismatch,
            no_more_resends=bool(self.no_resend),
            permission_holds=self.policy_holds,
            permission_until=self.permission_until,
            reads=self.reads,
            last_read_at=self.last_read_at,
            not_before=self.not_before,
            throttled=self.throttled or 0,
            not_sent=self.not_sent or 0,
        )

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


def evidence_of(row: Mapping[str, Any]) -> Evidence:
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
