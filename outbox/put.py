"""
The SQL that runs on the caller's connection, in the caller's transaction. Nothing here commits, rolls back or retries.

A `Query` is pure: the name of a statement in `sql/write.sql`, and its parameters. `run` and `arun` execute one on
whatever connection the caller has. Which that is, is told by the module of its class, so that neither SQLAlchemy nor
psycopg is imported for somebody who does not use it.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from outbox.errors import (
    IntentRace,
    InvalidIntent,
    NotPermitted,
    OutboxError,
    SchemaMismatch,
    UnknownTool,
    UnsupportedConnection,
)
from outbox.intent import Intent
from outbox.sql import load, with_colons

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy.ext.asyncio
    import sqlalchemy.orm

    SyncConnection: TypeAlias = (
        sqlalchemy.orm.Session
        | sqlalchemy.orm.scoped_session[Any]
        | sqlalchemy.Connection
        | psycopg.Connection[Any]
        | psycopg.Cursor[Any]
    )
    AsyncConnection: TypeAlias = (
        sqlalchemy.ext.asyncio.AsyncSession
        | sqlalchemy.ext.asyncio.async_scoped_session[Any]
        | sqlalchemy.ext.asyncio.AsyncConnection
        | psycopg.AsyncConnection[Any]
        | psycopg.AsyncCursor[Any]
    )

Row: TypeAlias = Mapping[str, Any]

BATCH_MAX_INTENTS = 1_000  # in one statement of put_many
BATCH_MAX_CHARS = 16 * 1024 * 1024  # far below PostgreSQL's limit of 1 GB for one parameter


# ------------------------------------------------------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True)
class Query:
    """A statement of `sql/write.sql` by name, and its parameters."""

    name: str
    parameters: Mapping[str, Any]


def put_one(tenant_id: str, principal_id: str, intent: Intent) -> Query:
    """Build the query that puts one intent."""
    return Query("put_one", _parameters(tenant_id, principal_id, intent))


def put_many(tenant_id: str, principal_id: str, intents: Iterable[Intent]) -> list[Query]:
    """
    Build the queries that put many; `place` in a row of their answers is the position among `intents`.

    One query as a rule, more where one would be too large. All of them together are sorted by operation id, whose
    ASCII characters every writer orders alike: transactions that share ids never wait for each other in a circle.
    """
    ordered = sorted(enumerate(intents), key=lambda placed: placed[1].operation_id)
    batches: list[list[str]] = []
    chars = BATCH_MAX_CHARS
    for place, intent in ordered:
        item = {"place": place} | _parameters(tenant_id, principal_id, intent)
        text = json.dumps(item, ensure_ascii=False, default=bytes.hex)
        chars += len(text)
        if chars > BATCH_MAX_CHARS or len(batches[-1]) == BATCH_MAX_INTENTS:
            batches.append([])
            chars = len(text)
        batches[-1].append(text)
    return [Query("put_many", {"intents": f"[{','.join(batch)}]"}) for batch in batches]


def get_one(tenant_id: str, operation_id: str, put_xid: str | None = None) -> Query:
    """Build the query that reads one operation; `put_xid` is the transaction that put it, where that is remembered."""
    return Query("get_one", {"tenant_id": tenant_id, "operation_id": operation_id, "put_xid": put_xid})


def _parameters(tenant_id: str, principal_id: str, intent: Intent) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "operation_id": intent.operation_id,
        "tool": intent.tool,
        "principal_id": principal_id,
        "arguments": intent.arguments,
        "digest": intent.digest(tenant_id),
        "resource": intent.resource,
        "expected_version": intent.expected_version,
        "ordering_key": intent.ordering_key,
        "not_before": _text(intent.not_before),
        "expires_at": _text(intent.expires_at),
        "compensates": intent.compensates,
        "revision_of": intent.revision_of,
        "on_behalf_of": intent.on_behalf_of,
        "traceparent": intent.traceparent,
        "content_type": intent.content_type,
        "body": intent.body,
    }


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


# ----------------------------------------------------------------------------------------------------------- executors


def run(connection: "SyncConnection", query: Query) -> list[Row]:
    """Execute on a synchronous connection. UnsupportedConnection; errors of the driver that we know are translated."""
    handle: Any = connection
    match _kind(handle.__class__):
        case "sqlalchemy":
            from sqlalchemy.exc import DBAPIError

            try:
                return list(handle.execute(_text_clause(query.name), query.parameters).mappings())
            except DBAPIError as error:
                _raise_known(error.orig)
                raise
        case "psycopg":
            import psycopg
            from psycopg.rows import dict_row

            # A cursor of our own: results, row factory and paramstyle of the caller's stay the caller's.
            owner = handle.connection if isinstance(handle, psycopg.Cursor) else handle
            try:
                with psycopg.Cursor(owner, row_factory=dict_row) as cursor:
                    return list(cursor.execute(load("write")[query.name], query.parameters).fetchall())
            except psycopg.Error as error:
                _raise_known(error)
                raise
        case kind:
            raise _unsupported(handle, kind)


async def arun(connection: "AsyncConnection", query: Query) -> list[Row]:
    """Execute the same on an asynchronous connection."""
    handle: Any = connection
    match _kind(handle.__class__):
        case "sqlalchemy async":
            from sqlalchemy.exc import DBAPIError

            try:
                return list((await handle.execute(_text_clause(query.name), query.parameters)).mappings())
            except DBAPIError as error:
                _raise_known(error.orig)
                raise
        case "psycopg async":
            import psycopg
            from psycopg.rows import dict_row

            owner = handle.connection if isinstance(handle, psycopg.AsyncCursor) else handle
            try:
                async with psycopg.AsyncCursor(owner, row_factory=dict_row) as cursor:
                    return list(await (await cursor.execute(load("write")[query.name], query.parameters)).fetchall())
            except psycopg.Error as error:
                _raise_known(error)
                raise
        case kind:
            raise _unsupported(handle, kind)


@cache
def _kind(kind: type) -> str:
    """Name the executor for a class, whoever has subclassed it; or nothing."""
    for parent in kind.__mro__:
        package = parent.__module__.partition(".")[0]
        if package == "sqlalchemy" and hasattr(kind, "execute"):
            return "sqlalchemy async" if parent.__module__.startswith("sqlalchemy.ext.asyncio") else "sqlalchemy"
        if package == "psycopg" and hasattr(kind, "execute"):
            return "psycopg async" if parent.__name__.startswith("Async") else "psycopg"
    return ""


def _unsupported(connection: object, kind: str) -> UnsupportedConnection:
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if kind:
        other = "aput, aget and await_" if kind.endswith("async") else "put, get and wait"
        return UnsupportedConnection(f"{name} is for {other}.")
    return UnsupportedConnection(
        f"{name} is no connection that an intent can be written on.",
        hint="Give a Session, Connection, AsyncSession or AsyncConnection of SQLAlchemy, "
        "or a connection or cursor of psycopg 3.",
    )


@cache
def _text_clause(name: str) -> "sqlalchemy.TextClause":
    from sqlalchemy import text

    return text(with_colons(load("write")[name]))


# -------------------------------------------------------------------------------------------------------------- errors


@dataclass(frozen=True, slots=True)
class _Report:
    """What PostgreSQL said, whichever driver brings it. Its detail is left out: it shows the row."""

    sqlstate: str
    message: str
    hint: str | None
    constraint: str | None


def _raise_known(error: BaseException | None) -> None:
    """Raise the error that has a name here. Others belong to the caller's driver, who knows how to handle them."""
    report = _report(error)
    if make := _KNOWN.get(report.sqlstate):
        # Without the driver's own error, whose text may hold the row or the parameters.
        raise make(report) from None


def _report(error: BaseException | None) -> _Report:
    diag = getattr(error, "diag", None)
    if diag is not None:  # psycopg 2 and 3
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""
        return _Report(state, diag.message_primary or "", diag.message_hint, diag.constraint_name)
    fields = error.args[0] if error and error.args else None
    if isinstance(fields, Mapping):  # pg8000: the fields of the protocol, by their letters
        return _Report(fields.get("C", ""), fields.get("M", ""), fields.get("H"), fields.get("n"))
    cause = getattr(error, "__cause__", None)  # asyncpg under SQLAlchemy
    told = cause if hasattr(cause, "sqlstate") else error
    return _Report(
        getattr(told, "sqlstate", None) or "",
        getattr(told, "message", None) or "",
        getattr(told, "hint", None),
        getattr(told, "constraint_name", None),
    )


def _sentence(report: _Report) -> str:
    return f"{report.message[:1].upper()}{report.message[1:]}."


def _race(report: _Report) -> OutboxError:
    return IntentRace(sqlstate=report.sqlstate)


def _schema(report: _Report) -> OutboxError:
    return SchemaMismatch(f"This database lacks what put needs: {report.message}.", hint="Run: outbox migrate")


def _right(report: _Report) -> OutboxError:
    return NotPermitted(_sentence(report), hint="Grant outbox_writer to the role that puts intents.")


def _check(report: _Report) -> OutboxError:
    return InvalidIntent.at("", f"the database refuses it, by {report.constraint}", "check_violation")


_KNOWN: Mapping[str, Callable[[_Report], OutboxError]] = {
    "40001": _race,
    "40P01": _race,  # a deadlock: somebody else put the same ids in another order
    "23505": _race,  # the operation of that id was purged at this moment; the next try is answered by its tombstone
    "OB404": lambda report: UnknownTool(_sentence(report), hint=report.hint),
    "23514": _check,
    "42501": _right,
    "3F000": _schema,
    "42883": _schema,
    "42P01": _schema,
}
