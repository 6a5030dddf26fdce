"""Whether an operation in doubt may be sent again now, and by whom: what `why`, `stuck` and `retry` all say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outbox.contract import Wiring
from outbox.decide import NoResend, OperationFacts, Reason, no_resend, window_closes_at
from outbox.doubt import facts_of
from outbox.errors import NotFound, SchemaMismatch
from outbox.evidence import Evidence
from outbox.inspect.words import NO_RESEND, REASONS
from outbox.registry import Wirings
from outbox.states import State
from outbox.store import Store


@dataclass(frozen=True, slots=True)
class Again:
    """
    `refusal`: why nobody may; None: it may be sent again.

    `spent`: the back-off of the contract is used up. It bounds what daemons do by themselves: a person may go beyond
    it, as long as the window is open. `closes`: when that is; None where a repeat is harmless at any time.
    """

    refusal: NoResend | None
    spent: bool
    closes: datetime | None


def judged(
    facts: OperationFacts, wiring: Wiring, evidence: Sequence[Evidence], now: datetime, in_force: Wiring | None
) -> Again:
    """Judge one operation in doubt."""
    reason = no_resend(facts, wiring, evidence, now, in_force=in_force)
    spent = reason is NoResend.ATTEMPTS_SPENT
    return Again(None if spent else reason, spent, window_closes_at(facts, wiring, in_force))


def why_a_person(reason: Reason, again: Again | None) -> str:
    """Say why somebody must decide. Where the receiver cannot be asked, this is why nothing is sent again either."""
    if reason is not Reason.NO_LOOKUP or again is None:
        return REASONS[reason]
    if again.refusal is not None:
        return f"{REASONS[reason]}, and {NO_RESEND[again.refusal]}"
    spent = f"{NO_RESEND[NoResend.ATTEMPTS_SPENT]}: " if again.spent else ""
    return f"{REASONS[reason]}, and {spent}it is not sent again by itself, while a person may send it again"


async def read_judgements(store: Store, seqs: Sequence[int], now: datetime) -> Mapping[int, Again]:
    """
    Judge many that wait for a person. What nobody here can judge (its contract is a newer program's) is left out.

    From what whoever may see that something is stuck may read: no evidence. So it may be refused to be sent again for
    an answer that came late, which `retry` says.
    """
    found: dict[int, Again] = {}
    wirings = Wirings(store)
    for row in await store.dicts("stuck_facts", seqs=list(seqs)) if seqs else []:
        if row["state"] == State.UNKNOWN:
            try:
                pinned, in_force = [await wirings.get(row[name]) for name in ("contract_id", "contract_in_force")]
            except (NotFound, SchemaMismatch):
                continue
            found[row["seq"]] = judged(facts_of(row), pinned, (), now, in_force)
    return found


def reason_of(row: Mapping[str, Any], again: Again | None) -> str | None:
    """The reason that a row gives for asking a person, in words; None: it gives none."""
    if row["reason"] in set(Reason):
        return why_a_person(Reason(row["reason"]), again)
    return None if row["reason"] is None else str(row["reason"])
