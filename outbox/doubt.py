"""
An operation in doubt: from rows of the database to what decisions want.

The reconciler and the people's side of the house read the same columns (the fragment `doubt` of outbox/sql) and turn
them into facts here, once: what a person is told is what a daemon would do.
"""

from collections.abc import Mapping
from typing import Any

from outbox.decide import FOREVER, OperationFacts
from outbox.evidence import Evidence, Kind, Verdict
from outbox.outcome import Answer
from outbox.states import Cause, State

Row = Mapping[str, Any]


def is_unknown(row: Row) -> bool:
    """Something is to be decided. An operation that executes again has a holder, who says how that went."""
    return bool(row["state"] == State.UNKNOWN)


def facts_of(row: Row) -> OperationFacts:
    """
    What decisions are made from. ValueError unless the operation is unknown.

    `resend_until` is null before the first exposure, and for a key that is honoured for ever. `pending_at` is when its
    next attempt may begin, null for never by itself.
    """
    unresolved_at, begun_at = row["unresolved_at"], row["begun_at"]
    if not is_unknown(row) or unresolved_at is None:
        raise ValueError(f"operation seq {row['seq']} is {row['state'] or 'not open'}")
    return OperationFacts(
        attempt=row["attempt"],
        first_sent_at=row["first_sent_at"],
        resend_until=FOREVER if row["key_forever"] else row["resend_until"],
        last_exposed_at=row["last_exposed_at"],
        unresolved_at=unresolved_at,
        # Not `last_exposed_at`: a latest attempt that was withdrawn leaves the doubt about those before it.
        earlier_unresolved=begun_at is not None and unresolved_at < begun_at,
        cause=Cause(row["cause"]) if row["cause"] else None,
        gave_up_at=row["gave_up_at"],
        settle_at=row["settle_at"],
        fence=row["fence"],
        accepted=bool(row["accepted"]),
        mismatch=row["mismatch"],
        no_more_resends=bool(row["no_resend"]),
        permission_holds=row["policy_holds"],
        permission_until=row["permission_until"],
        reads=row["reads"] or 0,
        last_read_at=row["last_read_at"],
        not_before=row["pending_at"],
        throttled=row["throttled"] or 0,
        not_sent=row["not_sent"] or 0,
    )


def evidence_of(row: Row) -> Evidence:
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
