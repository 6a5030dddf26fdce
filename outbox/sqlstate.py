"""
What PostgreSQL says: one error of ours for each SQLSTATE that means something on a service's connection.

Every driver tells it in another way; which one did is seen by what its error has.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from outbox.errors import (
    FeedReset,
    IntentRace,
    InvalidIntent,
    Misuse,
    NotPermitted,
    OutboxError,
    SchemaMismatch,
    UnknownTool,
)

ADDRESS = "The address is OUTBOX_DATABASE__DSN, else [database] dsn of the file, else that of outbox dev."
# What PostgreSQL says of a connection that it refuses, as far as it says it in English, and what to do about it.
_REFUSALS = {
    "does not exist": "Create what is missing (in a shell: createdb, createuser), or correct the address.",
    "authentication failed": "The password or the role is wrong."
    " To give a role a password, in psql: alter role ROLE password '...'.",
    "no password supplied": "A password is needed: in the address, in PGPASSWORD, or in ~/.pgpass.",
    "no pg_hba.conf entry": "The server lets nobody in from here so: add a line to its pg_hba.conf.",
    "failed to resolve host": "Is the name of the host right?",
    "read-only": "It is a standby: name the primary.",
    "read-write": "It is a standby: name the primary.",
    "too many": "The server has no connection left: raise max_connections, or use a pooler.",
}


def connection_hint(message: str, address: str = ADDRESS) -> str:
    """What to do when a first connection fails with this message; `address` says where the DSN stands."""
    advice = next((text for words, text in _REFUSALS.items() if words in message), "Is PostgreSQL running there?")
    return f"{advice} {address}"


@dataclass(frozen=True, slots=True)
class _Report:
    """What PostgreSQL said, whichever driver brings it. Its detail is left out: it shows the row."""

    sqlstate: str
    message: str
    hint: str | None


def raise_known(error: BaseException | None) -> None:
    """Raise the error that has a name here. Others belong to the caller's driver, who knows how to handle them."""
    report = _report(error)
    if make := _KNOWN.get(report.sqlstate):
        # Without the driver's own error, whose text may hold the row or the parameters.
        raise make(report) from None


def _report(error: BaseException | None) -> _Report:
    diag = getattr(error, "diag", None)
    if diag is not None:  # psycopg 2 and 3
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""
        return _Report(state, diag.message_primary or "", diag.message_hint)
    fields = error.args[0] if error and error.args else None
    if isinstance(fields, Mapping):  # pg8000: the fields of the protocol, by their letters
        return _Report(fields.get("C", ""), fields.get("M", ""), fields.get("H"))
    cause = getattr(error, "__cause__", None)  # asyncpg under SQLAlchemy
    told = cause if hasattr(cause, "sqlstate") else error
    return _Report(
        getattr(told, "sqlstate", None) or "",
        getattr(told, "message", None) or "",
        getattr(told, "hint", None),
    )


def _sentence(report: _Report) -> str:
    return f"{report.message[:1].upper()}{report.message[1:]}."


def _race(report: _Report) -> OutboxError:
    return IntentRace(sqlstate=report.sqlstate)


def _schema(report: _Report) -> OutboxError:
    return SchemaMismatch(f"This database lacks what put needs: {report.message}.", hint="Run: outbox migrate")


def _right(report: _Report) -> OutboxError:
    return NotPermitted(_sentence(report), hint=report.hint or "Grant outbox_writer to the role of this service.")


def _check(report: _Report) -> OutboxError:
    return InvalidIntent.at("", f"the database refuses it: {report.message}", "check_violation")


_KNOWN: Mapping[str, Callable[[_Report], OutboxError]] = {
    "40001": _race,
    "40P01": _race,  # a deadlock: somebody else put the same ids in another order
    "23505": _race,  # the operation of that id was purged at this moment; the next try is answered by its tombstone
    "OB400": lambda report: Misuse(_sentence(report), hint=report.hint),
    "OB404": lambda report: UnknownTool(_sentence(report), hint=report.hint),
    "OB410": lambda report: FeedReset(hint=report.hint),
    "23514": _check,
    "42501": _right,
    "3F000": _schema,
    "42883": _schema,
    "42P01": _schema,
}
