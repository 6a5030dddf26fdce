"""
What type checkers must accept, and what they must refuse, in the code of a user. Never run: mypy reads it.

An unused `type: ignore` is an error, so each line that carries one proves that its mistake is found.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, assert_type

import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from outbox import Cause, Intent, Operation, Outbox, State
from outbox.feed import Ended

box = Outbox("acme", "checkout", dsn="postgresql://")
box.tenant_id = "globex"  # type: ignore[misc]


def intents(arguments: Mapping[str, int], moment: datetime) -> None:
    Intent(tool="mail.send")
    Intent(tool="mail.send", arguments={"to": ["a", 1, None]}, not_before=moment, expires_at=None)
    Intent(tool="mail.send", arguments='{"to": "a"}')
    Intent(tool="mail.send", arguments=arguments, operation_id=box.operation_id("run", "mail.send", arguments))
    intent = Intent(tool="mail.send", body=b"", content_type="text/plain")
    assert_type(intent.arguments, str | None)
    assert_type(intent.operation_id, str)
    assert_type(intent.model_copy(update={"resource": "r"}), Intent)
    Intent()  # type: ignore[call-arg]
    Intent(tool="mail.send", tenant_id="globex")  # type: ignore[call-arg]
    Intent(tool="mail.send", arguments=[1])  # type: ignore[arg-type]
    intent.tool = "mail.recall"  # type: ignore[misc]


def synchronous(
    *,
    session: Session,
    scoped: scoped_session[Session],
    connection: sqlalchemy.Connection,
    plain: psycopg.Connection[Any],
    cursor: psycopg.Cursor[dict[str, Any]],
    other: AsyncSession,
    intent: Intent,
) -> None:
    assert_type(box.put(session, intent), Operation)
    box.put(scoped, intent)
    box.put(connection, intent)
    box.put(plain, intent)
    assert_type(box.put_many(cursor, [intent]), list[Operation])
    assert_type(box.get(plain, "o"), Operation | None)
    assert_type(box.wait("o"), Operation)
    box.wait("o", 5, connection=session)
    for ended in box.feed(plain, after=None, batch_max=5):
        assert_type(ended, Ended)
    assert_type(box.feed(follow=True).cursor, str | None)
    box.feed("postgresql://")  # type: ignore[arg-type]
    box.put(other, intent)  # type: ignore[arg-type]


async def asynchronous(
    *,
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
    connection: AsyncConnection,
    plain: psycopg.AsyncConnection[Any],
    cursor: psycopg.AsyncCursor[Any],
    other: Session,
    intent: Intent,
) -> None:
    assert_type(await box.aput(session, intent), Operation)
    await box.aput(scoped, intent)
    await box.aput(connection, intent)
    await box.aput(plain, intent)
    assert_type(await box.aput_many(cursor, [intent]), list[Operation])
    assert_type(await box.aget(plain, "o"), Operation | None)
    assert_type(await box.await_("o", 5, connection=session), Operation)
    async for ended in box.afeed(plain):
        assert_type(ended.cursor, str)
    await box.aput(other, intent)  # type: ignore[arg-type]


class Asyncpg:
    """What we need of a connection of asyncpg, which has no types."""

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Any]:
        return [query, args, timeout]

    def is_in_transaction(self) -> bool:
        return True


class AsyncpgPool:
    async def fetch(self, query: str, *args: Any) -> list[Any]:
        return [query, args]


async def asyncpg(connection: Asyncpg, pool: AsyncpgPool, intent: Intent) -> None:
    await box.aput(connection, intent)
    await box.aput(pool, intent)  # type: ignore[arg-type]
    box.put(connection, intent)  # type: ignore[arg-type]


def answers(operation: Operation) -> None:
    assert_type(operation.state, State)
    assert_type(operation.cause, Cause | None)
    assert_type(operation.attempt, int | None)
    assert_type(operation.ended, bool)
    operation.state = State.SUCCEEDED  # type: ignore[misc]
