"""
Why an attempt had no effect and is made again, and what to do about it: the same words for one operation and for many.

It did not leave the relay's machine, or the receiver refused our credential. Neither hides an effect, and few of them
pass by themselves.
"""

from collections.abc import Mapping
from typing import Any, Final

from outbox.inspect.words import CAUSES, REMEDIES
from outbox.states import UNSENT, Cause

# What is asked of a row: which receiver, where it is, and by which `auth` it is called (references, never secrets).
# `answered` is the status of the latest attempt's answer, or None.
Row = Mapping[str, Any]

# What a receiver says to whoever calls it, and not of the operation.
REFUSING_US: Final = frozenset({Cause.RECEIVER_FAULT, Cause.FORBIDDEN})
WITHOUT_EFFECT: Final = UNSENT | REFUSING_US
# What depends on where the receiver is said to be.
_AT_AN_ADDRESS: Final = frozenset({Cause.NAME_UNRESOLVED, Cause.NO_CONNECTION, Cause.TLS_FAILED, Cause.UNSAFE_TARGET})


def unsent_cause(row: Row) -> Cause | None:
    """Why the latest attempt had no effect and is made again; None if that is not so, or if there was none."""
    cause = Cause(row["cause"]) if row["cause"] else None
    return cause if cause in WITHOUT_EFFECT else None


def why_unsent(cause: Cause, row: Row) -> str:
    """Say it, with the name of what is missing."""
    if cause in REFUSING_US:
        facts = [] if row["answered"] is None else [f"status {row['answered']}"]
        facts += [f"our credential is {_secret(row)}"] if row["base_url"] else []
        return f"{CAUSES[cause]} ({', '.join(facts)})" if facts else CAUSES[cause]
    if cause is Cause.SECRET_MISSING:
        return f"{CAUSES[cause]}, {_secret(row)}"
    if cause in _AT_AN_ADDRESS and row["base_url"]:
        return f"{CAUSES[cause]} ({row['base_url']})"
    return CAUSES[cause]


def remedy(cause: Cause, row: Row) -> str:
    """Say what to do; the last of it is a command."""
    names = {"receiver": row["receiver"], "target": row["base_url"] or "its database", "secret": _secret(row)}
    return REMEDIES[cause].format(**names)


def _secret(row: Row) -> str:
    place = f"receivers.{row['receiver']}.auth"
    if row["auth"] is None:
        return f"{place}, which is not set"
    references = " and ".join([row["auth"]["secret"], *row["auth"].get("secret_headers", {}).values()])
    # A brace is no part of any tenant's secret: it stands for the tenant.
    return f"{references.replace('{tenant}', row['tenant_id'])} ({place})"
