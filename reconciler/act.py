"""
Writing a decision. Every write compares what was judged.

The database takes an end only for the attempt that was looked at, and refuses one that proof speaks against; a date is
written only by whoever still holds the claim. So a reconciler that was stopped for an hour between deciding and writing
changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never
from uuid import UUID

from outbox import crashpoints
from outbox.decide import Authorize, Decision, Look, Person, Reject, Resend, Step, Succeed
from outbox.errors import DatabaseError
from outbox.evidence import Evidence, contradictions
from outbox.observe import Meters, emit
from outbox.states import State
from reconciler.doubt import Doubt
from reconciler.group import Groups
from reconciler.keep import look_columns


class Done(StrEnum):
    """What came of one claim."""

    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    AUTHORIZED = "authorized"
    RESEND = "resend"
    """A relay may attempt it again, inside the doubt."""
    LATER = "later"
    """It is looked at again, at a date."""
    PERSON = "person"
    """Somebody must decide."""
    EXECUTING = "executing"
    """An attempt runs; its holder says how it went."""
    PARKED = "parked"
    """It hides no effect, and waits for a person."""
    OVERTAKEN = "overtaken"
    """Somebody else had acted first: nothing was written."""
    FAILED = "failed"
    """It could not be judged; once the claim has run out it is tried again."""


@dataclass(slots=True)
class Place:
    """One of a receiver's places: taken until its operation has been looked up, or is done with."""

    taken: bool = True


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed operation with all that is known of it."""

    token: UUID
    receiver: str
    doubt: Doubt
    evidence: Sequence[Evidence]
    place: Place = field(default_factory=Place)

    def knowing(self, doubt: Doubt, evidence: Sequence[Evidence]) -> "Claim":
        """The same claim, with what is known by now."""
        return Claim(self.token, self.receiver, doubt, evidence, self.place)


def name(doubt: Doubt) -> dict[str, object]:
    """How an event names an operation."""
    return {
        "seq": doubt.seq,
        "tenant_id": doubt.tenant_id,
        "operation_id": doubt.operation_id,
        "tool": doubt.tool,
        "attempt": doubt.attempt,
    }


class Acts:
    """Everything that a reconciler writes about an operation."""

    def __init__(self, groups: Groups, meters: Meters) -> None:
        self._groups = groups
        self._meters = meters

    async def act(self, claim: Claim, decision: Decision, look: Evidence | None = None) -> Done | None:
        """
        Write a decision. None: proof to the contrary has come in, decide again.

        `look`: what the decision rests on and what has not been kept; it is, in the same commit, whatever that says.
        """
        match decision:
            case Succeed():
                return await self._end(claim, State.SUCCEEDED, decision, look)
            case Reject():
                return await self._end(claim, State.REJECTED, decision, look)
            case Authorize():
                return await self._end(claim, State.AUTHORIZED, decision, look)
            case Resend():
                return await self._allow_resend(claim, decision)
            case Look(at):
                return await self.reschedule(claim, Done.LATER, Step.LOOK, at)
            case Person(reason, look_at):
                if not claim.doubt.needs_person:
                    emit("person_needed", reason=reason, **name(claim.doubt))
                    self._meters.count("persons_needed", receiver=claim.receiver, reason=reason)
                return await self.reschedule(claim, Done.PERSON, Step.PERSON, look_at, reason)
            case _:
                assert_never(decision)

    async def reschedule(
        self, claim: Claim, done: Done, step: Step, at: datetime | None, reason: str | None = None
    ) -> Done:
        """Give the claim back with the next date (None: none). A date that somebody else has set meanwhile stands."""
        row = await self._groups.reschedule.ask(
            seq=claim.doubt.seq,
            claim=claim.token,
            step=step,
            next_at=at,
            claimed_next_at=claim.doubt.next_at,
            reason=reason,
        )
        return done if row else self.overtaken(claim)

    async def keep(self, claim: Claim, seen: Evidence) -> Evidence:
        """Keep what a look has shown; returns it with its id."""
        doubt = claim.doubt
        row = await self._groups.keep_look.ask(
            seq=doubt.seq, receiver_id=doubt.receiver_id, lane=doubt.lane, **look_columns(seen)
        )
        seen = replace(seen, id=0 if row is None else row["evidence_id"])
        self.looked(claim, seen, seen.id)
        return seen

    def looked(self, claim: Claim, seen: Evidence, evidence_id: int) -> None:
        """Say so if a look shows more than there should be. `evidence_id`: as what it was kept; 0 if it was not."""
        if seen.duplicates:
            emit("contradiction_found", evidence_id=evidence_id, count=seen.duplicates + 1, **name(claim.doubt))

    def overtaken(self, claim: Claim) -> Done:
        """Say that somebody else had acted first."""
        emit("claim_overtaken", **name(claim.doubt))
        self._meters.count("claims_overtaken")
        return Done.OVERTAKEN

    async def _end(
        self, claim: Claim, to: State, decision: Succeed | Reject | Authorize, look: Evidence | None
    ) -> Done | None:
        doubt, proof = claim.doubt, decision.evidence
        crashpoints.reach("before_settle")
        answer = await self._groups.settle.ask(
            seq=doubt.seq,
            receiver_id=doubt.receiver_id,
            lane=doubt.lane,
            attempt=doubt.attempt,
            to=to,
            cause=decision.cause,
            evidence_id=proof.id,
            external_id=proof.external_id,
            receipt=proof.receipt,
            **look_columns(look),
        )
        crashpoints.reach("after_settle")
        if answer is None:
            raise DatabaseError("settle gave no answer")  # it has one for whatever it finds
        evidence_id = proof.id or answer["evidence_id"]
        if look is not None:
            self.looked(claim, look, evidence_id)
        if answer["answer"] == "receipt":
            return None
        if answer["answer"] == "moved":
            return await self._release(claim)
        emit("settled", state=to, cause=decision.cause, evidence_id=evidence_id, **name(doubt))
        self._meters.count("settled", receiver=claim.receiver, state=to, cause=decision.cause)
        if to is State.SUCCEEDED:
            for found in contradictions(to, proof.external_id, claim.evidence):
                # Nothing but the look has no id of its own yet.
                emit(
                    "contradiction_found",
                    evidence_id=found.evidence_id or evidence_id,
                    reason=found.what,
                    **name(doubt),
                )
        return Done(to)

    async def _allow_resend(self, claim: Claim, decision: Resend) -> Done:
        doubt = claim.doubt
        answer = await self._groups.allow_resend.ask(
            seq=doubt.seq,
            receiver_id=doubt.receiver_id,
            lane=doubt.lane,
            attempt=doubt.attempt,
            at=decision.at,
            look_again_at=decision.look_at,
        )
        if answer is None or answer["answer"] == "moved":
            return await self._release(claim)
        emit("resend_allowed", **name(doubt))
        self._meters.count("resends_allowed", receiver=claim.receiver)
        return Done.RESEND

    async def _release(self, claim: Claim) -> Done:
        """The operation is not what was judged any more. It stays due, as what it has become."""
        await self._groups.release_claims.ask(seq=claim.doubt.seq, claim=claim.token)
        return self.overtaken(claim)
