"""What a service holds: `Outbox`, which binds who asks once, puts intents, and tells what became of them."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from outbox.canonical import canonical_object
from outbox.digest import derived_id
from outbox.dsn import dsn_problem
from outbox.errors import (
    ConfigError,
    DatabaseUnavailable,
    IntentConflict,
    InvalidIntent,
    JsonRefused,
    Problem,
    UnsupportedConnection,
)
from outbox.feed import BATCH_MAX, AsyncFeed, Feed
from outbox.intent import Id, Intent, Name, ToolName
from outbox.operation import Operation
from outbox.put import Row, arun, run
from outbox.query import get_one, put_many, put_one
from outbox.waiting import Puts, Steps, steps

if TYPE_CHECKING:
    import psycopg

    from outbox.connection import AsyncConnection, SyncConnection

WAIT_DEFAULT_SECONDS = 30.0
FEED_CONNECT_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Outbox:
    """
    One tenant and one principal of it, from the authenticated context of the caller: nothing in an intent changes them.

    A connection is a Session or Connection of SQLAlchemy, a Connection or Cursor of psycopg 3, or Django's. Every
    method has an asynchronous twin (`aput`, `aput_many`, `aget`, `await_`, `afeed`) for an AsyncSession or
    AsyncConnection of SQLAlchemy, an AsyncConnection or AsyncCursor of psycopg, or a connection of asyncpg.
    They run in the transaction that the connection is in, and never commit.
    `dsn` is for `wait` and `feed`, which then open a connection of their own; ConfigError if it is no connection string
    of libpq. May be shared by threads and tasks.
    """

    tenant_id: str
    principal_id: str
    dsn: str | None = field(default=None, repr=False)
    _puts: Puts = field(default_factory=Puts, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _valid(_ID, tenant_id=self.tenant_id, principal_id=self.principal_id)
        if self.dsn is not None and (problem := dsn_problem(self.dsn)):
            raise ConfigError.at("dsn", problem)

    def put(self, connection: "SyncConnection", intent: Intent) -> Operation:
        """
        Put an intent into the caller's transaction, in one round trip; return the operation.

        When that transaction commits, and not before, the effect is under way; if it rolls back, nothing was asked.
        An id that exists already, with the same action and the same asker, answers with that operation and changes
        nothing. While another transaction is writing that id, this waits for its end (the caller's lock_timeout).

        IntentConflict: the id exists with something else; nothing was written and the transaction is still good.
        UnknownTool, IntentRace (above READ COMMITTED, or a deadlock), InvalidIntent, NotPermitted, SchemaMismatch:
        the statement failed, and with it the transaction or savepoint. Other errors are the driver's own.
        """
        (row,) = run(connection, put_one(self.tenant_id, self.principal_id, intent))
        return self._answer(intent, row)

    async def aput(self, connection: "AsyncConnection", intent: Intent) -> Operation:
        """Put an intent into the caller's transaction, as `put` does."""
        (row,) = await arun(connection, put_one(self.tenant_id, self.principal_id, intent))
        return self._answer(intent, row)

    def put_many(self, connection: "SyncConnection", intents: Sequence[Intent]) -> list[Operation]:
        """
        Put many intents in one round trip (one per 1,000, or per 16 MiB); return their operations in the same order.

        IntentConflict speaks of the first that differs; the others *are* then in the transaction, which is still good:
        roll back, or go on without that one.
        """
        queries = put_many(self.tenant_id, self.principal_id, intents)
        return self._answers(intents, [row for query in queries for row in run(connection, query)])

    async def aput_many(self, connection: "AsyncConnection", intents: Sequence[Intent]) -> list[Operation]:
        """Put many intents, as `put_many` does."""
        queries = put_many(self.tenant_id, self.principal_id, intents)
        return self._answers(intents, [row for query in queries for row in await arun(connection, query)])

    def get(self, connection: "SyncConnection", operation_id: str) -> Operation | None:
        """Tell what this transaction can see of an operation of this tenant; None if it sees none."""
        (row,) = run(connection, get_one(self.tenant_id, _valid(_ID, operation_id=operation_id)))
        return self._seen(operation_id, row)

    async def aget(self, connection: "AsyncConnection", operation_id: str) -> Operation | None:
        """Tell what is seen of an operation, as `get` does."""
        (row,) = await arun(connection, get_one(self.tenant_id, _valid(_ID, operation_id=operation_id)))
        return self._seen(operation_id, row)

    def wait(
        self,
        operation_id: str,
        timeout_seconds: float = WAIT_DEFAULT_SECONDS,
        *,
        connection: "SyncConnection | None" = None,
    ) -> Operation:
        """
        Wait until an operation has ended, or the time is up: then it is returned as it is, `unknown` for instance.

        Looks on `connection`, or on one of its own if the Outbox has a `dsn`. NotFound if there is no such operation
        when the time is up. WaitInsideTransaction if the transaction that put it is still open in the thread (or task)
        that waits, or if the transaction of `connection` is above READ COMMITTED and so could never see the end.
        """
        plan = self._plan(operation_id, timeout_seconds)
        with self._own(timeout_seconds) if connection is None else contextlib.nullcontext(connection) as handle:
            step = next(plan)
            while not isinstance(step, Operation):
                if isinstance(step, float):
                    time.sleep(step)
                    step = next(plan)
                else:
                    step = plan.send(run(handle, step))
            return step

    async def await_(
        self,
        operation_id: str,
        timeout_seconds: float = WAIT_DEFAULT_SECONDS,
        *,
        connection: "AsyncConnection | None" = None,
    ) -> Operation:
        """Wait until an operation has ended or the time is up, as `wait` does."""
        plan = self._plan(operation_id, timeout_seconds)
        own = self._own_async(timeout_seconds) if connection is None else contextlib.nullcontext(connection)
        async with own as handle:
            step = next(plan)
            while not isinstance(step, Operation):
                step = plan.send(await (asyncio.sleep(step) if isinstance(step, float) else arun(handle, step)))
            return step

    def feed(
        self,
        connection: "SyncConnection | None" = None,
        *,
        after: str | None = None,
        follow: bool = False,
        batch_max: int = BATCH_MAX,
    ) -> Feed:
        """
        Tell how operations of this tenant ended: each end once, in an order in which nothing comes in behind a reader.

        `after` is the cursor of the last end that was handled; None is the beginning. Save it in the transaction in
        which you handle the end, and the two can never disagree, whatever crashes.
        Reads in batches on `connection`, or on one of its own if the Outbox has a `dsn`. Stops at the last end there
        is, or with `follow` waits for the next ones. What an open transaction of anybody may still end is told when
        that transaction is over; your own is one of them, once it has written.

        FeedReset if the cursor is of another life of the database. WaitInsideTransaction if `follow` would wait inside
        of an open transaction.
        """

        def opened() -> "contextlib.AbstractContextManager[SyncConnection]":
            return self._own(FEED_CONNECT_SECONDS_MAX) if connection is None else contextlib.nullcontext(connection)

        return Feed(self.tenant_id, opened, after=after, follow=follow, batch_max=batch_max)

    def afeed(
        self,
        connection: "AsyncConnection | None" = None,
        *,
        after: str | None = None,
        follow: bool = False,
        batch_max: int = BATCH_MAX,
    ) -> AsyncFeed:
        """Tell how operations of this tenant ended, as `feed` does, to `async for`."""

        def opened() -> "contextlib.AbstractAsyncContextManager[AsyncConnection]":
            if connection is None:
                return self._own_async(FEED_CONNECT_SECONDS_MAX)
            return contextlib.nullcontext(connection)

        return AsyncFeed(self.tenant_id, opened, after=after, follow=follow, batch_max=batch_max)

    def operation_id(self, run_id: str, tool: str, arguments: Mapping[str, Any] | str) -> str:
        """
        Derive the id of one step of an agent's run: the same call, repeated after a crash, is the same operation.

        A step that is meant to happen twice needs two ids: make the step part of the run id (`run-17/step-4`).
        """
        _valid(_NAME, run_id=run_id)
        _valid(_TOOL, tool=tool)
        try:
            return derived_id(run_id, tool, canonical_object(arguments))
        except JsonRefused as refused:
            raise InvalidIntent.at(f"arguments{refused.place}", refused.detail, refused.reason) from None

    def _answer(self, intent: Intent, row: Row) -> Operation:
        if row["differs"]:
            raise IntentConflict(intent.operation_id, row["differs"])
        if row["created"]:
            self._puts.remember(intent.operation_id, row["xid"])
        return Operation.from_row(self.tenant_id, intent.operation_id, intent.tool, row)

    def _answers(self, intents: Sequence[Intent], rows: Sequence[Row]) -> list[Operation]:
        by_place = {row["place"]: row for row in rows}
        return [self._answer(intent, by_place[place]) for place, intent in enumerate(intents)]

    def _seen(self, operation_id: str, row: Row) -> Operation | None:
        return Operation.from_row(self.tenant_id, operation_id, row["tool"], row) if row["state"] else None

    def _plan(self, operation_id: str, timeout_seconds: float) -> Steps:
        _valid(_ID, operation_id=operation_id)
        return steps(self.tenant_id, operation_id, self._puts.find(operation_id), timeout_seconds)

    @contextlib.contextmanager
    def _own(self, timeout_seconds: float) -> "Iterator[psycopg.Connection[Any]]":
        import psycopg

        dsn, options = self._opening(timeout_seconds)
        try:
            with psycopg.connect(dsn, **options) as connection:
                yield connection
        except psycopg.OperationalError as error:
            raise DatabaseUnavailable(str(error)) from None

    @contextlib.asynccontextmanager
    async def _own_async(self, timeout_seconds: float) -> "AsyncIterator[psycopg.AsyncConnection[Any]]":
        import psycopg

        dsn, options = self._opening(timeout_seconds)
        try:
            async with await psycopg.AsyncConnection.connect(dsn, **options) as connection:
                yield connection
        except psycopg.OperationalError as error:
            raise DatabaseUnavailable(str(error)) from None

    def _opening(self, timeout_seconds: float) -> tuple[str, dict[str, Any]]:
        if self.dsn is None:
            raise UnsupportedConnection("There is no connection.", hint="Give a connection, or Outbox a dsn.")
        # Never prepared: the DSN may lead to a pooler. libpq's own shortest bound is two seconds.
        return self.dsn, {
            "autocommit": True,
            "prepare_threshold": None,
            "connect_timeout": max(2, math.ceil(timeout_seconds)),
        }


_ID, _NAME, _TOOL = (TypeAdapter[str](kind) for kind in (Id, Name, ToolName))


def _valid(kind: TypeAdapter[str], **named: str) -> str:
    """Check values by name and return the last; InvalidIntent with every problem."""
    problems = []
    for name, text in named.items():
        try:
            kind.validate_python(text, strict=True)
        except ValidationError as error:
            problems += [Problem(name, detail["msg"].removeprefix("Value error, ")) for detail in error.errors()]
    if problems:
        raise InvalidIntent(problems)
    return text
