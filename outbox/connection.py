"""
The connections that a service may hold, and which library each belongs to.

That is told by the module and the name of its class, so that no driver and no framework is imported for somebody who
does not use it.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from outbox.errors import UnsupportedConnection

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy.ext.asyncio
    import sqlalchemy.orm


class DjangoConnection(Protocol):
    """`django.db.connection`, or one of `django.db.connections`. Django ships no types."""

    @property
    def vendor(self) -> str:
        """Which database it leads to."""

    @property
    def in_atomic_block(self) -> bool:
        """Whether a transaction is open."""

    def cursor(self) -> Any:
        """Open a cursor."""


class AsyncpgConnection(Protocol):
    """`asyncpg.Connection`, or what `asyncpg.Pool.acquire` lends; not the pool. asyncpg ships no types."""

    async def fetch(self, query: str, *args: Any) -> Any:
        """Run one statement."""

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open; a pool does not have this."""


if TYPE_CHECKING:
    SyncConnection: TypeAlias = (
        sqlalchemy.orm.Session
        | sqlalchemy.orm.scoped_session[Any]
        | sqlalchemy.Connection
        | psycopg.Connection[Any]
        | psycopg.Cursor[Any]
        | DjangoConnection
    )
    AsyncConnection: TypeAlias = (
        sqlalchemy.ext.asyncio.AsyncSession
        | sqlalchemy.ext.asyncio.async_scoped_session[Any]
        | sqlalchemy.ext.asyncio.AsyncConnection
        | psycopg.AsyncConnection[Any]
        | psycopg.AsyncCursor[Any]
        | AsyncpgConnection
    )


@cache
def kind_of(kind: type) -> str:
    """Name the executor for a class, whoever has subclassed it; or nothing."""
    for parent in kind.__mro__:
        package, name = parent.__module__.partition(".")[0], parent.__name__
        if package == "sqlalchemy" and hasattr(kind, "execute"):
            return "sqlalchemy async" if parent.__module__.startswith("sqlalchemy.ext.asyncio") else "sqlalchemy"
        if package == "psycopg" and hasattr(kind, "execute"):
            return "psycopg async" if name.startswith("Async") else "psycopg"
        # By name: asyncpg.Pool can execute too, each statement in a transaction of its own.
        if package == "asyncpg" and name in {"Connection", "PoolConnectionProxy"}:
            return "asyncpg async"
        if package == "django" and name in {"BaseDatabaseWrapper", "ConnectionProxy"}:
            return "django"
    return ""


def unsupported(connection: object, kind: str) -> UnsupportedConnection:
    """Make the error for a connection of the other colour (`kind`), or of none."""
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if kind:
        other = "aput, aget, await_ and afeed" if kind.endswith("async") else "put, get, wait and feed"
        return UnsupportedConnection(f"{name} is for {other}.")
    return UnsupportedConnection(
        f"{name} is no connection that an intent can be written on.",
        hint="Give a Session, Connection, AsyncSession or AsyncConnection of SQLAlchemy, a connection or cursor of "
        "psycopg 3, a connection of asyncpg (not its pool), or Django's connection.",
    )
