"""What the receiver has answered so far: what to read before one says what happened, and what its support asks for."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from outbox.evidence import Evidence, Kind, Verdict
from outbox.inspect.dossier import Dossier, Row
from outbox.inspect.words import clock
from outbox.outcome import storable
from outbox.states import State

EXCERPT_BYTES_MAX: Final = 200
# Of more the latest are told, and the others counted.
EVIDENCE_MAX: Final = 5

# Answers to an attempt that came in another way than as its end.
_CAME_LATER: Final = {
    Kind.RECEIPT: "a receipt",
    Kind.LATE_ANSWER: "a late answer",
    Kind.CALLBACK: "a call of the receiver's own",
    Kind.LOOKUP: "a look",
}
# Of looks those that showed a record of ours.
_SHOWN: Final = frozenset({Verdict.CONFIRMED, Verdict.ENDED, Verdict.PARTIAL})


def answers_on_record(dossier: Dossier) -> tuple[str, ...]:
    """Every answer that was kept, as half sentences; attempts that were answered alike are one."""
    return (*_of_attempts(dossier), *_of_evidence(dossier))


def _of_attempts(dossier: Dossier) -> Iterator[str]:
    alike: dict[int, list[Row]] = {}
    for attempt in dossier.attempts:
        if attempt["status"] is not None:
            alike.setdefault(attempt["status"], []).append(attempt)
    for status, attempts in alike.items():
        first, latest = attempts[0], attempts[-1]
        which = f"attempt {first['attempt']} was"
        if len(attempts) > 1:
            which = f"{len(attempts)} attempts ({first['attempt']} to {latest['attempt']}) were"
        yield f"{which} answered with {status}{_quoted(latest['excerpt'])}"


def _of_evidence(dossier: Dossier) -> Iterator[str]:
    shown = [
        item
        for item in dossier.evidence
        if item.kind in _CAME_LATER and (item.kind is not Kind.LOOKUP or item.verdict in _SHOWN)
    ]
    if len(shown) > EVIDENCE_MAX:
        yield f"{len(shown) - EVIDENCE_MAX} earlier observations are left out"
    yield from map(_evidence, shown[-EVIDENCE_MAX:])


def _evidence(item: Evidence) -> str:
    facts = [
        f"{name}{value}"
        for name, value in (
            ("", item.verdict),
            ("status ", item.answer.status),
            ("external id ", item.external_id),
        )
        if value is not None
    ]
    said = f": {', '.join(facts)}" if facts else ""
    return f"{_CAME_LATER[item.kind]} about attempt {item.attempt}{said}{_quoted(item.answer.excerpt)}"


def _quoted(excerpt: str | None) -> str:
    if not excerpt:
        return ""
    line = " ".join(storable(excerpt, EXCERPT_BYTES_MAX).split())
    return f" ({line})"


def support_lines(dossier: Dossier) -> Iterator[str]:
    """What the provider's support will ask for: the key, and of each attempt its times, host, status and request id."""
    if dossier.wiring is not None and not dossier.wiring.sends_key:
        if dossier.attempts or dossier.state is State.EXECUTING:
            yield f"No key was sent; the request carried Outbox-Operation: {dossier.row['operation_id']}."
    elif dossier.row["sent_key"] is not None:
        yield f"Key: {dossier.row['sent_key']}."
    for attempt in dossier.attempts:
        facts = {"host": attempt["peer"], "status": attempt["status"], "request id": attempt["request_id"]}
        known = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None) or "no answer"
        yield f"Attempt {attempt['attempt']}: {dated(attempt['started_at'])} to {dated(attempt['ended_at'])}, {known}."
    if dossier.state is State.EXECUTING:
        yield f"Attempt {dossier.row['attempt']}: since {clock(dossier.row['begun_at'])}, no answer yet."


def dated(date: datetime | None) -> str:
    """A date that may not be known."""
    return clock(date) if date is not None else "an unknown time"
