"""What is known about operations in doubt, and which looks are kept: proof always, what repeats itself never."""

from collections.abc import Sequence
from typing import Final

from outbox.doubt import evidence_of
from outbox.evidence import Evidence, Kind, Verdict
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


async def keep(store: Store, seq: int, seen: Evidence) -> int:
    """Store what was seen, and return its id."""
    kept = await store.value(
        "witness",
        seq=seq,
        attempt=seen.attempt,
        fence=seen.fence,
        kind=seen.kind,
        verdict=seen.verdict,
        external_id=seen.external_id,
        receipt=seen.receipt,
        duplicates=seen.duplicates,
        status=seen.answer.status,
        excerpt=seen.answer.excerpt,
        request_id=seen.answer.request_id,
        sent_at=seen.sent_at,
        source=seen.source,
        stated_by=seen.stated_by,
        note=seen.note,
    )
    return int(kept)


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
