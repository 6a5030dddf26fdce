"""One operation as a document with stable names: what `outbox show --json` prints."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from outbox import canonical
from outbox.decide import FOREVER
from outbox.errors import JsonRefused
from outbox.evidence import Evidence
from outbox.inspect.ahead import next_of
from outbox.inspect.dossier import Dossier, Row
from outbox.states import STARTS, State

_OPERATION: Final = (
    "operation_id",
    "tenant_id",
    "state",
    "cause",
    "tool",
    "receiver",
    "lane",
    "resource",
    "content_type",
    "body_bytes",
    "expected_version",
    "ordering_key",
    "principal_id",
    "on_behalf_of",
    "compensates",
    "revision_of",
    "written_by",
    "traceparent",
    "created_at",
    "not_before",
    "redacted_at",
    "attempt",
    "throttled",
    "not_sent",
    "first_sent_at",
    "digest",
    "wire_digest",
)
_ATTEMPT: Final = ("attempt", "fence", "cause", "started_at", "ended_at", "status", "request_id", "excerpt")
_OUTCOME: Final = (
    *("state", "cause", "from_state", "attempt", "ended_at", "external_id", "receipt", "status", "request_id"),
    *("excerpt", "decided_by", "evidence_id"),
)
_DOUBT: Final = ("since", "settle_at", "reads", "accepted", "needs_person", "reason", "being_looked_at")


def document(dossier: Dossier) -> dict[str, Any]:
    """Return everything about it; names are added in later versions, never changed. Dates are datetimes still."""
    row = dossier.row
    step = next_of(dossier)
    return {
        **_picked(row, *_OPERATION),
        "sent_key": row["sent_key"] if dossier.wiring is None or dossier.wiring.sends_key else None,
        **_arguments(row["arguments"]),
        "authorization": _authorization(dossier),
        "contract": _contract(dossier),
        "resend_until": _window(row),
        "attempts": [_attempt(attempt) for attempt in dossier.attempts] + _running(dossier),
        "evidence": [_evidence(item) for item in dossier.evidence],
        "outcome": _outcome(row) if row["ended"] else None,
        "doubt": _doubt(row) if row["doubted"] else None,
        "contradictions": [
            {"evidence_id": item["evidence_id"], "what": item["what"]} for item in dossier.contradictions
        ],
        "next": None if step is None else {"step": step.step, "at": step.at, "reason": step.reason},
    }


def _window(row: Row) -> datetime | None:
    """Until when the key is honoured; none where there is none, which is stored as a window of no length."""
    if row["key_forever"]:
        return FOREVER
    until: datetime | None = row["resend_until"]
    return None if until == row["first_sent_at"] else until


def _arguments(text: str | None) -> dict[str, Any]:
    """
    Return them as JSON; or, where not everybody would read the same in them, as the text that is stored and sent.

    A writer of plain SQL is not stopped from stating a key twice: one reader takes the first, another the last.
    """
    if text is None:
        return {"arguments": None}
    try:
        value = canonical.parse(text)
        canonical.canonical(value)
    except JsonRefused as error:
        return {"arguments": None, "arguments_text": text, "arguments_problem": str(error.reason)}
    return {"arguments": value}


def _authorization(dossier: Dossier) -> dict[str, Any]:
    """Who permitted it, on which version of the policy, and whether that holds now."""
    row = dossier.row
    last = dossier.approvals[-1] if dossier.approvals else None
    expired = row["permission_until"] is not None and row["permission_until"] <= dossier.now
    decided = {
        "kind": "approval" if last or dossier.state is State.PROPOSED or row["approval_id"] else "insert",
        "decision": last["decision"] if last else None if dossier.state is State.PROPOSED else "approved",
        "by": last["decided_by"] if last else None if dossier.state is State.PROPOSED else row["written_by"],
        "at": last["decided_at"] if last else None if dossier.state is State.PROPOSED else row["created_at"],
    }
    return {
        **decided,
        "requires_approval": row["requires_approval"],
        "policy_version": row["policy_version"],
        "policy_version_in_force": row["policy_in_force"],
        "expires_at": row["permission_until"],
        "holds": None if row["ended"] else dossier.state is not State.PROPOSED and row["policy_holds"] and not expired,
        "history": [
            {
                "decision": approval["decision"],
                "by": approval["decided_by"],
                "at": approval["decided_at"],
                "digest": approval["digest"],
                "policy_version": approval["policy_version"],
                "expires_at": approval["expires_at"],
                "reason": approval["reason"],
            }
            for approval in dossier.approvals
        ],
    }


def _contract(dossier: Dossier) -> dict[str, Any] | None:
    if dossier.wiring is None or dossier.guarantee is None:
        return None
    pinned = dossier.row["contract_id"] is not None
    return {
        "version": dossier.version,
        "pinned": pinned and dossier.state not in STARTS,
        "guarantee": dossier.guarantee.name,
        "source": dossier.wiring.contract.source or None,
        "verified_at": dossier.wiring.contract.verified_at,
    }


def _attempt(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**_picked(row, *_ATTEMPT), "host": row["peer"], "running": False}


def _running(dossier: Dossier) -> list[dict[str, Any]]:
    if dossier.state is not State.EXECUTING:
        return []
    row = dossier.row
    nothing = dict.fromkeys(("cause", "ended_at", "status", "request_id", "excerpt", "host"))
    begun = {"attempt": row["attempt"], "fence": row["fence"], "started_at": row["begun_at"]}
    return [{**begun, **nothing, "running": True}]


def _evidence(item: Evidence) -> dict[str, Any]:
    return {
        "evidence_id": item.id,
        "kind": item.kind,
        "verdict": item.verdict,
        "attempt": item.attempt,
        "fence": item.fence,
        "external_id": item.external_id,
        "receipt": item.receipt,
        "duplicates": item.duplicates,
        "status": item.answer.status,
        "request_id": item.answer.request_id,
        "excerpt": item.answer.excerpt or None,
        "sent_at": item.sent_at,
        "observed_at": item.observed_at,
        "source": item.source,
        "stated_by": item.stated_by,
        "note": item.note or None,
    }


def _outcome(row: Row) -> dict[str, Any]:
    return {**_picked(row, *_OUTCOME), "host": row["peer"]}


def _doubt(row: Row) -> dict[str, Any]:
    return {**_picked(row, *_DOUBT), "step": row["doubt_step"], "next_at": row["doubt_at"]}


def _picked(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}
