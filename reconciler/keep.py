"""What is known about operations in doubt, and which looks are kept: proof always, what repeats itself never."""

from collections.abc import Sequence
from typing import Any, Final

from outbox.doubt import evidence_of
from outbox.evidence import Evidence, Kind, Verdict
from outbox.outcome import NO_ANSWER
from outbox.store import Store

# Of one operation, so much evidence is read (proof first) ...
EVIDENCE_MAX: Final = 50
# ... and so many looks that decide nothing are kept: they may alternate for as long as nobody decides.
IDLE_LOOKS_MAX: Final = 20

_PROVES: Final = frozenset({Verdict.CONFIRMED, Verdict.ENDED, Verdict.PARTIAL})


async def read_evidence(store: Store, seqs: Sequence[int]) -> dict[int, list[Evidence]]:
    """Everything that is known about some operations, the oldest first, as much of each as decisions need."""
    known: dict[int, list[Evidence]] = {seq: [] for seq in seqs}
    for row in await store.dicts("read_evidence", seqs=list(seqs), each_max=EVIDENCE_MAX):
        known[row["seq"]].append(evidence_of(row))
    return known


def look_columns(seen: Evidence | None) -> dict[str, Any]:
    """Return a look as the statements take it that keep one; None: there is none to keep."""
    answer = NO_ANSWER if seen is None else seen.answer
    return {
        "look_attempt": seen and seen.attempt,
        "look_fence": seen and seen.fence,
        "look_verdict": seen and seen.verdict,
        "look_external_id": seen and seen.external_id,
        "look_receipt": seen and seen.receipt,
        "look_duplicates": seen and seen.duplicates,
        "look_status": answer.status,
        "look_excerpt": answer.excerpt,
        "look_request_id": answer.request_id,
        "look_sent_at": seen and seen.sent_at,
        "look_note": seen and seen.note,
    }


def is_worth_keeping(seen: Evidence, known: Sequence[Evidence]) -> bool:
    """Whether a look tells something new. An operation may be looked at for years."""
    looks = [item for item in known if item.kind is Kind.LOOKUP]
    if looks and _content(looks[-1]) == _content(seen):
        return False
    if seen.verdict in _PROVES or seen.duplicates:
        return all(_content(item) != _content(seen) for item in looks)
    return sum(item.verdict not in _PROVES for item in looks) < IDLE_LOOKS_MAX


def _content(item: Evidence) -> tuple[object, ...]:
    return item.attempt, item.verdict, item.external_id, item.duplicates, item.answer.status
