"""
The SQL that runs on the caller's connection, in the caller's transaction. Nothing here commits, rolls back or retries.

`run` and `arun` execute a `Query` on whatever connection the caller has (`outbox.connection`).
"""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, LiteralString, TypeAlias
from zoneinfo import ZoneInfo

from outbox import crashpoints
from outbox.connection import kind_of, unsupported
from outbox.errors import NotInTransaction, UnsupportedConnection
from outbox.query import Query
from outbox.sql import load, with_colons, with_numbers
from outbox.sqlstate import raise_known

if TYPE_CHECKING:
    import sqlalchemy

    from outbox.connection import AsyncConnection, SyncConnection

Row: TypeAlias = Mapping[str, Any]


def run(connection: "SyncConnection", query: Query) -> list[Row]:
    """Execute on a synchronous connection. UnsupportedConnection; errors of the driver that we know are translated."""
    if not query.writes:
        return _run(connection, query)
    crashpoints.reach("before_put")
    rows = _run(connection, query)
    crashpoints.reach("after_put")
    return rows


async def arun(connection: "AsyncConnection", query: Query) -> list[Row]:
    """Execute the same on an asynchronous connection."""
    if not query.writes:
        return await _arun(connection, query)
    crashpoints.reach("before_put")
    rows = await _arun(connection, query)
    crashpoints.reach("after_put")
    return rows


def _run(connection: "SyncConnection", query: Query) -> list[Row]:
    handle: Any = connection
    match kind_of(handle.__class__):
        case "sqlalchemy":
            return _run_sqlalchemy(handle, query)
        case "psycopg":
            return _run_psycopg(handle, query)
        case "django":
            return _run_django(handle, query)
        case kind:
            raise unsupported(handle, kind)


async def _arun(connection: "AsyncConnection", query: Query) -> list[Row]:
    handle: Any = connection
    match kind_of(handle.__class__):
        case "sqlalchemy async":
            return await _arun_sqlalchemy(handle, query)
        case "psycopg async":
            return await _arun_psycopg(handle, query)
        case "asyncpg async":
            return await _arun_asyncpg(handle, query)
        case kind:
            raise unsupported(handle, kind)


# ----------------------------------------------------------------------------------------------------- one per library


def _run_sqlalchemy(handle: Any, query: Query) -> list[Row]:
    from sqlalchemy.exc import DBAPIError

    try:
        return list(handle.execute(_text_clause(query.name), query.parameters).mappings())
    except DBAPIError as error:
        raise_known(error.orig)
        raise


async def _arun_sqlalchemy(handle: Any, query: Query) -> list[Row]:
    from sqlalchemy.exc import DBAPIError

    try:
        return list((await handle.execute(_text_clause(query.name), query.parameters)).mappings())
    except DBAPIError as error:
        raise_known(error.orig)
        raise


def _run_psycopg(handle: Any, query: Query) -> list[Row]:
    import psycopg
    from psycopg.rows import dict_row

    # A cursor of our own: results, row factory and paramstyle of the caller's stay the caller's.
    owner = handle.connection if isinstance(handle, psycopg.Cursor) else handle
    try:
        with psycopg.Cursor(owner, row_factory=dict_row) as cursor:
            return list(cursor.execute(_statement(query.name), query.parameters).fetchall())
    except psycopg.Error as error:
        raise_known(error)
        raise


async def _arun_psycopg(handle: Any, query: Query) -> list[Row]:
    import psycopg
    from psycopg.rows import dict_row

    owner = handle.connection if isinstance(handle, psycopg.AsyncCursor) else handle
    try:
        async with psycopg.AsyncCursor(owner, row_factory=dict_row) as cursor:
            return list(await (await cursor.execute(_statement(query.name), query.parameters)).fetchall())
    except psycopg.Error as error:
        raise_known(error)
        raise


async def _arun_asyncpg(handle: Any, query: Query) -> list[Row]:
    import asyncpg

    text, names = _numbered(query.name)
    try:
        return [dict(record) for record in await handle.fetch(text, *(query.parameters[name] for name in names))]
    except asyncpg.PostgresError as error:
        raise_known(error)
        raise


def _run_django(handle: Any, query: Query) -> list[Row]:
    from django.db import Error

    if handle.vendor != "postgresql":
        raise UnsupportedConnection(f"This connection of Django's leads to {handle.vendor}, not to PostgreSQL.")
    # Django is in autocommit unless told otherwise, so a forgotten atomic() is the likely mistake, and a silent one.
    if query.writes and not handle.in_atomic_block:
        raise NotInTransaction(hint="Put it inside of transaction.atomic(), with the rows that it belongs to.")
    try:
        with handle.cursor() as cursor:
            cursor.execute(_statement(query.name), dict(query.parameters))
            names = [column[0] for column in cursor.description]
            # Without USE_TZ, Django takes the zone away that PostgreSQL has sent.
            zone = ZoneInfo(handle.timezone_name)
            return [dict(zip(names, (_aware(v, zone) for v in row), strict=True)) for row in cursor.fetchall()]
    except Error as error:
        raise_known(error.__cause__)
        raise


def _aware(value: Any, zone: ZoneInfo) -> Any:
    return value.replace(tzinfo=zone) if isinstance(value, datetime) and value.tzinfo is None else value


def _statement(name: str) -> LiteralString:
    return load("write")[name]


@cache
def _numbered(name: str) -> tuple[LiteralString, tuple[str, ...]]:
    return with_numbers(_statement(name))


@cache
def _text_clause(name: str) -> "sqlalchemy.TextClause":
    from sqlalchemy import text

    return text(with_colons(_statement(name)))
