"""Operations in doubt and evidence about them, with dates counted in seconds from the first exposure."""

from datetime import UTC, datetime, timedelta
from typing import Any

from outbox.contract import Wiring
from outbox.decide import FOREVER, OperationFacts
from outbox.evidence import Evidence, Kind, Verdict

T0 = datetime(2026, 11, 30, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def seconds(date: datetime) -> float:
    return (date - T0).total_seconds()


def doubt(wiring: Wiring, **changes: Any) -> OperationFacts:
    """An operation whose only attempt began at 0 and was given up when its deadline passed."""
    retention = wiring.retention_seconds
    facts: dict[str, Any] = {
        "attempt": 1,
        "first_sent_at": T0,
        "resend_until": FOREVER if retention == float("inf") else at(retention),
        "last_exposed_at": T0,
        "unresolved_at": T0,
        "gave_up_at": at(wiring.deadline_seconds),
        "earlier_unresolved": False,
        "fence": 7,
    }
    return OperationFacts(**{**facts, **changes})


def look(verdict: Verdict, sent: float, **changes: Any) -> Evidence:
    """A look of the first attempt, sent so many seconds after 0 and answered at once."""
    facts: dict[str, Any] = {"attempt": 1, "sent_at": at(sent), "observed_at": at(sent)}
    return Evidence(kind=Kind.LOOKUP, verdict=verdict, **{**facts, **changes})


def statement(verdict: Verdict, stated: float, **changes: Any) -> Evidence:
    facts: dict[str, Any] = {"attempt": 1, "observed_at": at(stated), "stated_by": "ada"}
    return Evidence(kind=Kind.STATEMENT, verdict=verdict, **{**facts, **changes})


def late(kind: Kind, **changes: Any) -> Evidence:
    """An answer to the first attempt that arrived when its lease was lost."""
    facts: dict[str, Any] = {"attempt": 1, "fence": 7, "observed_at": at(60)}
    return Evidence(kind=kind, **{**facts, **changes})
