"""The database as the daemons and the CLI see it: named statements, one round trip each, autocommit.

No transaction is ever left open on the client: a process that is stopped inside one would hold a lane. Whoever needs
several changes to be one calls a function in the database.

Behind a transaction-mode pooler nothing here depends on a session: settings come from the role, statements are not
prepared, notifications have a connection of their own (`listen`).
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Final, LiteralString, Self, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg import sql as composing
from psycopg.conninfo import make_conninfo
from psycopg.rows import AsyncRowFactory, dict_row, tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from outbox import sql
from outbox.arrays import literals
from outbox.errors import (
    DatabaseError,
    DatabaseUnavailable,
    FeedReset,
    Misuse,
    NotFound,
    NotPermitted,
    OutboxError,
    Refused,
    UnknownTool,
    Unstorable,
)
from outbox.sqlstate import ADDRESS, connection_hint

Row = TypeVar("Row")

# A dead peer must be noticed well within a lease; the kernel's defaults take two hours.
CONNECTION_OPTIONS: Mapping[str, str | int] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "target_session_attrs": "read-write",
}
# Named notifications only: a channel name is an identifier and travels outside of any parameter.
_CHANNEL = re.compile(r"^[a-z_][a-z0-9_]{0,62}$")

# How long it may take to find out that a database can be used, the handshake of TLS and a failover's names included.
_OPEN_SECONDS_MAX = 15


class Store:
    """A pool of connections and the statements of some groups (files of `outbox/sql`).

    Every method raises `DatabaseUnavailable` if the database does not answer (what was sent may have been committed:
    the caller finds out by reading), `NotPermitted` for SQLSTATE 42501, `Refused` or `NotFound` for what a function in
    the database refused, `Unstorable` for a value that cannot be stored, and `DatabaseError` for the rest. Messages
    carry no parameters.

    `connected` looks at every new connection before anything else uses it; what it raises refuses that connection.
    `address` tells a person where the DSN stands.
    """

    def __init__(
        self,
        dsn: str,
        *groups: str,
        name: str = "outbox",
        connections_max: int = 4,
        pooler: bool = False,
        connected: "Callable[[Session], Awaitable[None]] | None" = None,
        acquire_seconds: float = 5.0,
        address: str = ADDRESS,
    ) -> None:
        self._statements: dict[str, LiteralString] = {}
        for group in groups:
            self._statements |= sql.load(group)
        self._dsn = make_conninfo(dsn, application_name=name, **CONNECTION_OPTIONS)
        self._prepare = None if pooler else 5
        self._connected = connected
        self._address = address
        self._pool = AsyncConnectionPool(
            self._dsn,
            kwargs={"autocommit": True, "prepare_threshold": self._prepare},
            min_size=1,
            max_size=connections_max,
            timeout=acquire_seconds,
            configure=self._configure,
            open=False,
            name=name,
        )

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect once, so that a wrong DSN or password is an error now and not a warning every second."""
        try:
            async with asyncio.timeout(_OPEN_SECONDS_MAX):
                await self._try_connection()
        except DatabaseUnavailable as error:
            hint = connection_hint(error.message, self._address)
            raise DatabaseUnavailable(f"Cannot reach the database: {error.message}", hint=hint) from None
        except TimeoutError:
            message = f"The database did not answer within {_OPEN_SECONDS_MAX} s."
            raise DatabaseUnavailable(message, hint=connection_hint(message, self._address)) from None
        await self._pool.open()

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close(timeout=2)

    async def fetch(self, statement: str, rows: AsyncRowFactory[Row], /, **parameters: Any) -> list[Row]:
        """Run a named statement; its rows are made by `rows`."""
        async with self._cursor() as connection, connection.cursor(row_factory=rows) as cursor:
            await cursor.execute(self._statements[statement], literals(parameters))
            return await cursor.fetchall() if cursor.description else []

    async def dicts(self, statement: str, /, **parameters: Any) -> list[dict[str, Any]]:
        """Run a named statement; each row becomes a dictionary."""
        return await self.fetch(statement, dict_row, **parameters)

    async def tuples(self, statement: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run a named statement; each row becomes a tuple, in the order of its columns."""
        return await self.fetch(statement, tuple_row, **parameters)

    async def value(self, statement: str, /, **parameters: Any) -> Any:
        """Run a named statement; the first column of its first row, or None."""
        async with self._cursor() as connection, connection.cursor() as cursor:
            await cursor.execute(self._statements[statement], literals(parameters))
            row = await cursor.fetchone() if cursor.description else None
            return None if row is None else row[0]

    @asynccontextmanager
    async def transaction(self, *, force_rollback: bool = False) -> AsyncIterator["Transaction"]:
        """
        Several statements as one change: committed at the end of the block, rolled back by any exception in it.

        `force_rollback`: never committed, for finding out what would happen.

        For a command that somebody waits for. A daemon that is stopped inside of one would hold its locks.
        """
        async with self._cursor() as connection, connection.transaction(force_rollback=force_rollback):
            yield Transaction(connection, self._statements)

    async def listen(self, channel: str, dsn: str | None = None) -> AsyncIterator[str]:
        """Payloads of notifications on one channel, on a connection of its own; ends when that connection does.

        The first payload is empty: it listens. What was sent before is not heard, and has to be looked for.
        Notifications are a speed-up: they may be lost, doubled or late, and polling alone must be right.
        """
        if not _CHANNEL.match(channel):
            raise ValueError("a channel is lower-case letters, digits and underscores")
        try:
            conninfo = make_conninfo(dsn, **CONNECTION_OPTIONS) if dsn else self._dsn
            async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
                await connection.execute(composing.SQL("listen {}").format(composing.Identifier(channel)))
                yield ""
                async for notification in connection.notifies():
                    yield notification.payload
        except psycopg.OperationalError as error:
            raise DatabaseUnavailable(_first_line(error)) from None

    # ------------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _cursor(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        with _translated():
            async with self._pool.connection() as connection:
                try:
                    yield connection
                except pg.ReadOnlySqlTransaction:
                    # A primary that became a standby. What is behind this connection will not write again.
                    await connection.close()
                    raise

    async def _configure(self, connection: psycopg.AsyncConnection[Any]) -> None:
        if self._connected is not None:
            with _translated():
                await self._connected(Session(connection, self._statements))

    async def _try_connection(self) -> None:
        with _translated():
            async with await psycopg.AsyncConnection.connect(
                self._dsn, autocommit=True, prepare_threshold=self._prepare
            ) as connection:
                await self._configure(connection)


class Session:
    """Named statements on one connection. Errors are translated by whoever lends the connection."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], statements: Mapping[str, LiteralString]) -> None:
        self._connection = connection
        self._statements = statements

    async def dicts(self, statement: str, /, **parameters: Any) -> list[dict[str, Any]]:
        """Run a named statement; each row becomes a dictionary."""
        async with self._connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(self._statements[statement], literals(parameters))
            return await cursor.fetchall() if cursor.description else []

    async def value(self, statement: str, /, **parameters: Any) -> Any:
        """Run a named statement; the first column of its first row, or None."""
        rows = await self.dicts(statement, **parameters)
        return next(iter(rows[0].values())) if rows else None


class Transaction(Session):
    """Named statements inside of one open transaction."""


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (psycopg.OperationalError, PoolTimeout, pg.ReadOnlySqlTransaction) as error:
        raise DatabaseUnavailable(_first_line(error)) from None
    except psycopg.Error as error:
        raise translate(error) from None
    except UnicodeEncodeError:
        # The driver's way of refusing a lone surrogate. Its message quotes the text.
        raise Unstorable("A text is not Unicode.") from None


_RIGHTS: Final = (
    "Acts and looks want a member of outbox_operator (looks without arguments: outbox_viewer; approvals:"
    " outbox_approver; put: outbox_writer). In psql: grant outbox_operator to ROLE. `outbox migrate` renews the rights."
)


def _sentence(message: str) -> str:
    """What a function of our own says, as the sentence that it is."""
    return f"{message[:1].upper()}{message[1:]}{'' if message.endswith('.') else '.'}"


def translate(error: psycopg.Error) -> OutboxError:
    """Our error for one of PostgreSQL's. Only the primary message and the hint are kept: DETAIL may quote rows."""
    message, hint = error.diag.message_primary or _first_line(error), error.diag.message_hint
    match error.sqlstate:
        case "42501":
            return NotPermitted(message, hint=hint or _RIGHTS)
        case "OB400":
            return Misuse(_sentence(message), hint=hint)
        case "OB410":
            return FeedReset(hint=hint)
        case "OB409":
            return Refused(_sentence(message), hint=hint)
        case "OB404":
            return (
                UnknownTool(_sentence(message), hint=hint)
                if message.startswith("unknown tool")
                else NotFound(_sentence(message), hint=hint)
            )
        case "3F000" | "42P01" | "42883" | "42703" | "42704":
            return DatabaseError(message, hint="Is the schema there? Run: outbox migrate")
    if isinstance(error, pg.DataError | pg.IntegrityError):
        what = error.diag.constraint_name or type(error).__name__
        message = f"A value cannot be stored: {what} ({error.sqlstate or 'refused by the driver'})."
        return Unstorable(
            message, hint=hint or "It is too long or too large for its column, or has what that cannot hold."
        )
    return DatabaseError(message, hint=hint or "See: outbox doctor")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
