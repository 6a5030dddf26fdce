"""What is left of a purged operation: its identity, its digest and its end."""

from typing import Any

from outbox.inspect.dossier import Row
from outbox.inspect.explain import Explanation, ended
from outbox.inspect.words import clock


def tombstone(row: Row) -> dict[str, Any]:
    """Return it under the names of `document`, as far as they have a value."""
    outcome = {name: row[name] for name in ("state", "cause", "external_id", "ended_at")}
    names = ("operation_id", "tenant_id", "state", "cause", "tool", "principal_id", "digest")
    return {
        **{name: row[name] for name in names},
        "outcome": outcome,
        "contradictions": [
            {"evidence_id": item["evidence_id"], "what": item["what"]} for item in row["contradictions"]
        ],
        "next": None,
        "purged": True,
        "purged_at": row["purged_at"],
    }


def explain_tombstone(row: Row) -> Explanation:
    """Say it in sentences. What is not in it, nobody knows any more."""
    return Explanation(
        known=(
            f"{row['principal_id']} of tenant {row['tenant_id']} asked for {row['tool']}.",
            ended(row),
            f"It was purged at {clock(row['purged_at'])}. Its id and its end are kept, and its digest:",
            f"{row['digest'].hex()}.",
            *(f"Since then there is {item['what']}: somebody must look." for item in row["contradictions"]),
        ),
        not_known=("What it was asked to do, and what the receiver answered: that was purged with it.",),
        next=(
            "Nothing: a terminal state never changes.",
            "Whoever puts the same id again is told this end, and causes no second effect.",
        ),
        contract=(),
        lane=(),
        reconciler=(),
        support=(),
    )
