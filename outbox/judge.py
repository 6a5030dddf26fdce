"""
What a look at the receiver's records shows. Pure: whole answers in, one observation out.

Strict in both directions. A record counts as ours only if it carries our sent key. "Not found" is said only if the
receiver says so in the way that the contract declares, or if a list was read to its end without us; whatever else
comes back (an error page, a cut body, a state that nobody declared, one page too many) is `unknown` and proves nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from outbox.contract import Lookup, Read, Wiring
from outbox.evidence import Observation, Verdict
from outbox.matching import MISSING, Seen, at, canonical, identifier, matches
from outbox.outcome import Answer

_FOUND: Final = 200

# Of several records that carry our identity, the one that decides: an effect outweighs everything.
_WEIGHT: Final = (Verdict.CONFIRMED, Verdict.PARTIAL, Verdict.UNKNOWN, Verdict.ENDED)


@dataclass(frozen=True, slots=True)
class _Record:
    """One record that carries our identity."""

    verdict: Verdict
    external_id: str | None
    text: str
    note: str


def next_cursor(seen: Seen, read: Read) -> str | None:
    """Return where the next page begins; None where this was the last one, or none that could be read on from."""
    if seen.status != _FOUND or read.items is None:
        return None
    if read.next is not None:
        return identifier(seen.at(read.next))
    if read.more is not None and read.cursor_item is not None and seen.at(read.more) is True:
        items = seen.at(read.items)
        return identifier(at(items[-1], read.cursor_item)) if isinstance(items, list) and items else None
    return None


def judge_read(pages: Sequence[Seen], *, wiring: Wiring, sent_key: str) -> Observation:
    """
    Say what one look showed: all its pages in order, at least one.

    Total: nothing is raised on what a receiver sends. Raises ValueError if the tool has no look-up at all.
    """
    read, lookup = wiring.read, wiring.lookup
    if read is None or lookup is None or not pages:
        raise ValueError(f"nothing was asked about tool {wiring.tool}")
    records: dict[str, _Record] = {}
    complete, note = False, ""
    for number, page in enumerate(pages):
        found, complete, note = _page(page, read, lookup if number == 0 else None, sent_key)
        # A list that grows while it is read may show one record twice: by its id, or else by its content, it is one.
        records |= {record.external_id or record.text: record for record in found}
    answer = pages[-1].answer(wiring.contract.request_id_header)
    if records:
        return _weigh(list(records.values()), answer)
    return Observation(verdict=Verdict.NOT_FOUND if complete else Verdict.UNKNOWN, note=note, answer=answer)


def _page(seen: Seen, read: Read, lookup: Lookup | None, sent_key: str) -> tuple[list[_Record], bool, str]:
    """
    Return our records, whether absence from all pages up to here means "not found", and a note if it does not.

    `lookup` is given for the first page: a 404 for the second is a cursor gone wrong, not the absence of anything.
    """
    if seen.truncated:
        return [], False, "the answer was cut short"
    if lookup is not None and lookup.not_found is not None and matches(lookup.not_found, seen, sent_key):
        return [], True, ""
    if seen.status != _FOUND or seen.document is MISSING:
        return [], False, f"HTTP {seen.status}" if seen.status != _FOUND else "the answer is no JSON"
    if read.items is None:
        if _is_ours(seen.document, read, sent_key):
            return [_record(seen.document, read, seen.body)], False, ""
        # The last change of a resource is another's: ours is not there to be seen. Elsewhere we asked for ours alone.
        return [], lookup is not None and lookup.by == "resource", "a record without our identity"
    items = seen.at(read.items)
    if not isinstance(items, list):
        return [], False, f"no list at {read.items}"
    ours = [_record(item, read, b"") for item in items if _is_ours(item, read, sent_key)]
    if next_cursor(seen, read) is not None:
        return ours, False, "there are more pages than are read"
    if read.next is not None and seen.at(read.next) not in (MISSING, None, "", False):
        return ours, False, "the list goes on at a cursor that is none"
    if read.more is not None and seen.at(read.more) is not False:
        return ours, False, "the receiver does not say that the list ends here"
    return ours, True, ""


def _is_ours(record: Any, read: Read, sent_key: str) -> bool:
    if not isinstance(record, dict):
        return False
    # Without an identity in the record, the path named it: a rule of `Read`.
    return read.identity is None or at(record, read.identity) == sent_key


def _record(record: Any, read: Read, body: bytes) -> _Record:
    external_id = None if read.external_id is None else identifier(at(record, read.external_id))
    verdict, note = _state(record, read)
    return _Record(verdict, external_id, canonical(record, body or repr(record).encode(errors="replace")), note)


def _state(record: Any, read: Read) -> tuple[Verdict, str]:
    if read.state is None:
        return Verdict.CONFIRMED, ""
    word = at(record, read.state)
    for words, verdict in (
        (read.confirmed, Verdict.CONFIRMED),
        (read.ended, Verdict.ENDED),
        (read.partial, Verdict.PARTIAL),
    ):
        if word in words:
            return verdict, ""
    return Verdict.UNKNOWN, "still pending" if word in read.pending else "in a state that the contract does not know"


def _weigh(records: list[_Record], answer: Answer) -> Observation:
    decisive = min(records, key=lambda record: _WEIGHT.index(record.verdict))
    effects = [record for record in records if record.verdict in {Verdict.CONFIRMED, Verdict.PARTIAL}]
    return Observation(
        verdict=decisive.verdict,
        note=decisive.note,
        external_id=decisive.external_id,
        receipt=decisive.text if decisive.verdict is Verdict.CONFIRMED else None,
        duplicates=max(0, len(effects) - 1),
        answer=answer,
    )
