"""Every kind of connection that a service may hold, behind one asynchronous face: one test speaks of them all."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import asyncpg
import django
import django.conf
import django.db
import psycopg
import pytest
import sqlalchemy
from django.db import transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from outbox import Intent, Operation, Outbox
from outbox.feed import Ended


@dataclass(frozen=True, slots=True)
class Caller:
    """A connection as a service holds it, in a transaction; `owner` is what ends that."""

    handle: Any
    owner: Any
    is_async: bool

    async def put(self, box: Outbox, intent: Intent) -> Operation:
        return await box.aput(self.handle, intent) if self.is_async else box.put(self.handle, intent)

    async def put_many(self, box: Outbox, intents: Sequence[Intent]) -> list[Operation]:
        return await box.aput_many(self.handle, intents) if self.is_async else box.put_many(self.handle, intents)

    async def get(self, box: Outbox, operation_id: str) -> Operation | None:
        return await box.aget(self.handle, operation_id) if self.is_async else box.get(self.handle, operation_id)

    async def wait(self, box: Outbox, operation_id: str, timeout_seconds: float) -> Operation:
        if self.is_async:
            return await box.await_(operation_id, timeout_seconds, connection=self.handle)
        return box.wait(operation_id, timeout_seconds, connection=self.handle)

    async def feed(self, box: Outbox, after: str | None = None, **how: Any) -> list[Ended]:
        if self.is_async:
            return [ended async for ended in box.afeed(self.handle, after=after, **how)]
        return list(box.feed(self.handle, after=after, **how))

    async def execute(self, statement: str) -> None:
        """Run a statement of the service's own."""
        is_sqlalchemy = type(self.owner).__module__.startswith("sqlalchemy") or isinstance(self.owner, Session)
        result = self.owner.execute(text(statement) if is_sqlalchemy else statement)
        if self.is_async:
            await result

    async def commit(self) -> None:
        result = self.owner.commit()
        if self.is_async:
            await result

    async def rollback(self) -> None:
        result = self.owner.rollback()
        if self.is_async:
            await result


class ShopSession(Session):
    """A service's own subclass."""


@contextlib.asynccontextmanager
async def _psycopg(dsn: str, *, cursor: bool = False) -> AsyncIterator[Caller]:
    with psycopg.connect(dsn) as connection:
        yield Caller(connection.cursor() if cursor else connection, connection, is_async=False)
        connection.rollback()


@contextlib.asynccontextmanager
async def _psycopg_async(dsn: str, *, cursor: bool = False) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        yield Caller(connection.cursor() if cursor else connection, connection, is_async=True)
        await connection.rollback()


@contextlib.asynccontextmanager
async def _sqlalchemy(dsn: str, opened: Callable[[sqlalchemy.Engine], Any]) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(dsn.replace("postgresql:", "postgresql+psycopg:", 1), poolclass=NullPool)
    handle = opened(engine)
    try:
        yield Caller(handle, handle, is_async=False)
    finally:
        handle.close()
        engine.dispose()


@contextlib.asynccontextmanager
async def _sqlalchemy_async(dsn: str, driver: str, opened: Callable[[Any], Any]) -> AsyncIterator[Caller]:
    if driver == "asyncpg":
        # asyncpg reads a URL with a socket's path by itself; SQLAlchemy would take that apart.
        engine = create_async_engine(
            "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn), poolclass=NullPool
        )
    else:
        engine = create_async_engine(dsn.replace("postgresql:", "postgresql+psycopg:", 1), poolclass=NullPool)
    handle = opened(engine)
    if not isinstance(handle, AsyncSession | async_scoped_session):
        await handle.start()
    try:
        yield Caller(handle, handle, is_async=True)
    finally:
        await handle.close()
        await engine.dispose()


class AsyncpgTransaction:
    """What ends a transaction of asyncpg, and opens the next one."""

    def __init__(self, connection: Any) -> None:
        self.execute = connection.execute
        self._connection = connection

    async def begin(self) -> None:
        self._open = self._connection.transaction()
        await self._open.start()

    async def commit(self) -> None:
        await self._open.commit()
        await self.begin()

    async def rollback(self) -> None:
        await self._open.rollback()
        await self.begin()


@contextlib.asynccontextmanager
async def _asyncpg(dsn: str, *, pool: bool = False) -> AsyncIterator[Caller]:
    async with contextlib.AsyncExitStack() as stack:
        if pool:
            lender = await stack.enter_async_context(asyncpg.create_pool(dsn, min_size=1, max_size=2))
            connection = await stack.enter_async_context(lender.acquire())
        else:
            connection = await asyncpg.connect(dsn)
            stack.push_async_callback(connection.close)
        owner = AsyncpgTransaction(connection)
        await owner.begin()
        yield Caller(connection, owner, is_async=True)
        await owner._open.rollback()


class DjangoAtomic:
    """What ends an atomic block of Django's, and opens the next one."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._begin()

    def _begin(self) -> None:
        self._atomic = transaction.atomic(using=self._alias)
        self._atomic.__enter__()

    def end(self) -> None:
        self._atomic.__exit__(None, None, None)

    def execute(self, statement: str) -> None:
        with django.db.connections[self._alias].cursor() as cursor:
            cursor.execute(statement)

    def commit(self) -> None:
        self.end()
        self._begin()

    def rollback(self) -> None:
        transaction.set_rollback(True, using=self._alias)
        self.commit()


@contextlib.contextmanager
def django_connection(dsn: str, alias: str = "default", **options: Any) -> Iterator[Any]:
    """One of `django.db.connections`, outside of any transaction."""
    if not django.conf.settings.configured:
        django.conf.settings.configure(USE_TZ=True, TIME_ZONE="Europe/Berlin")
        django.setup()
    parts = conninfo_to_dict(dsn)
    place = {
        "NAME": parts["dbname"],
        "USER": parts.get("user") or "",
        "HOST": parts["host"],
        "PORT": parts.get("port", ""),
    }
    handler = django.db.utils.ConnectionHandler(
        {"default": {}, alias: {"ENGINE": "django.db.backends.postgresql", **place, **options}}
    )
    django.db.connections[alias] = connection = handler[alias]
    try:
        yield connection
    finally:
        connection.close()
        del django.db.connections[alias]


@contextlib.asynccontextmanager
async def _django(dsn: str) -> AsyncIterator[Caller]:
    # Django refuses to block an event loop; here nothing else runs on it.
    with pytest.MonkeyPatch.context() as patch, django_connection(dsn) as connection:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        owner = DjangoAtomic("default")
        yield Caller(connection, owner, is_async=False)
        transaction.set_rollback(True)
        owner.end()


Open = Callable[[str], AbstractAsyncContextManager[Caller]]

CALLERS: dict[str, Open] = {
    "psycopg connection": _psycopg,
    "psycopg cursor": lambda dsn: _psycopg(dsn, cursor=True),
    "psycopg async connection": _psycopg_async,
    "psycopg async cursor": lambda dsn: _psycopg_async(dsn, cursor=True),
    "Session": lambda dsn: _sqlalchemy(dsn, Session),
    "subclass of Session": lambda dsn: _sqlalchemy(dsn, ShopSession),
    "scoped_session": lambda dsn: _sqlalchemy(dsn, lambda engine: scoped_session(sessionmaker(engine))),
    "Connection": lambda dsn: _sqlalchemy(dsn, lambda engine: engine.connect()),
    "Django's connection": _django,
    "asyncpg connection": _asyncpg,
    "asyncpg connection of a pool": lambda dsn: _asyncpg(dsn, pool=True),
    "AsyncSession of psycopg": lambda dsn: _sqlalchemy_async(dsn, "psycopg", AsyncSession),
    "AsyncConnection of psycopg": lambda dsn: _sqlalchemy_async(dsn, "psycopg", lambda engine: engine.connect()),
    "AsyncSession of asyncpg": lambda dsn: _sqlalchemy_async(dsn, "asyncpg", AsyncSession),
    "AsyncConnection of asyncpg": lambda dsn: _sqlalchemy_async(dsn, "asyncpg", lambda engine: engine.connect()),
    "async_scoped_session": lambda dsn: _sqlalchemy_async(
        dsn, "psycopg", lambda engine: async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 0)
    ),
}
