"""Why an attempt did not leave, and what to do about it: the same words for one operation and for many."""

from collections.abc import Mapping
from typing import Any

from outbox.inspect.words import CAUSES, REMEDIES
from outbox.states import UNSENT, Cause

# What is asked of a row: which receiver, where it is, and by which secret it is called (a reference, never the secret).
Row = Mapping[str, Any]


def unsent_cause(row: Row) -> Cause | None:
    """Why the latest attempt did not leave; None if it did, or if there was none."""
    cause = Cause(row["cause"]) if row["cause"] else None
    return cause if cause in UNSENT else None


def why_unsent(cause: Cause, row: Row) -> str:
    """Say it, with the name of what is missing."""
    if cause is Cause.SECRET_MISSING:
        return f"{CAUSES[cause]}, {_secret(row)}"
    if cause in {Cause.NO_CONNECTION, Cause.TLS_FAILED, Cause.UNSAFE_TARGET} and row["base_url"]:
        return f"{CAUSES[cause]} ({row['base_url']})"
    return CAUSES[cause]


def remedy(cause: Cause, row: Row) -> str:
    """Say what to do; the last of it is a command."""
    names = {"receiver": row["receiver"], "target": row["base_url"] or "its database", "secret": _secret(row)}
    return REMEDIES[cause].format(**names)


def _secret(row: Row) -> str:
    place = f"receivers.{row['receiver']}.auth"
    if row["secret"] is None:
        return f"{place}, which is not set"
    # A brace is no part of any tenant's secret: it stands for the tenant.
    return f"{row['secret'].replace('{tenant}', row['tenant_id'])} ({place})"
