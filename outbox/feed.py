"""
The feed: how operations ended, told once each, in an order in which nothing is ever inserted behind a reader.

Numbers are given out when a transaction begins to write and become visible when it commits, in another order: who reads
"everything above the last number that I saw" skips what commits late. So `outbox.feed` tells only what was ended by
transactions older than the oldest that is still open, in the order of these. What it has told, it never tells behind.

A cursor names the last end that was told. A reader that stores it in the transaction in which it changes its own rows
has handled each end exactly once, whatever crashes in between.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from outbox.errors import Misuse, WaitInsideTransaction
from outbox.put import Row, arun, run
from outbox.query import Query, feed_batch
from outbox.states import Cause, State

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from outbox.connection import AsyncConnection, SyncConnection

BATCH_MAX = 500  # ends that are read in one statement, unless told otherwise
BATCH_LIMIT = 10_000  # what the database allows
PAUSE_FIRST_SECONDS = 0.05
PAUSE_MAX_SECONDS = 1.0
PAUSE_GROWTH = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """
    The end of one operation. Its state is `succeeded` or `rejected`, and never changes.

    `cursor` is opaque: what to give as `after` to go on behind this end.
    """

    cursor: str
    tenant_id: str
    operation_id: str
    tool: str
    resource: str | None
    principal_id: str
    state: State
    cause: Cause | None
    attempt: int
    receipt: str | None = field(repr=False)
    external_id: str | None
    decided_by: str | None
    created_at: datetime
    ended_at: datetime
    seq: int

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `outbox.feed` that is not the bookmark."""
        facts = {name: row[name] for name in cls.__dataclass_fields__}
        return cls(**facts | {"state": State(row["state"]), "cause": row["cause"] and Cause(row["cause"])})


Steps: TypeAlias = Generator[Query | float | Ended, Sequence[Row] | None, None]


class _Reader:
    """Where somebody has arrived. Neither sleeps nor has a connection: `steps` yields what to do next."""

    def __init__(self, tenant_id: str, *, after: str | None, follow: bool, batch_max: int) -> None:
        if not 1 <= batch_max <= BATCH_LIMIT:
            raise Misuse(f"A batch has a bound: give batch_max as a number from 1 to {BATCH_LIMIT}.")
        self._tenant_id = tenant_id
        self._follow = follow
        self._batch_max = batch_max
        self._cursor = after

    @property
    def cursor(self) -> str | None:
        """
        What to give as `after` to go on here: behind the end that was told last, or farther, behind what was skipped.

        Farther only where the iteration has ended, or waits: then a tenant with few ends of its own among many others'
        has them behind it.
        """
        return self._cursor

    def steps(self) -> Steps:
        """
        Read on, batch by batch.

        Yields a query, to be sent its rows; or a number of seconds to pause; or an end that is to be told.
        """
        pause, looked_at = PAUSE_FIRST_SECONDS, None
        while True:
            *rows, bookmark = (yield feed_batch(self._tenant_id, self._cursor, self._batch_max)) or ()
            for row in rows:
                ended = Ended.from_row(row)
                self._cursor = ended.cursor
                yield ended
            self._cursor = bookmark["cursor"]
            if bookmark["more"]:
                continue
            if not self._follow:
                return
            if bookmark["began_at"] == looked_at:
                raise WaitInsideTransaction(
                    "A feed that follows inside of one transaction keeps that open for ever.",
                    hint="Give it a connection in autocommit, or Outbox a dsn; handle what it tells on another one.",
                )
            looked_at = bookmark["began_at"]
            pause = PAUSE_FIRST_SECONDS if rows else min(pause * PAUSE_GROWTH, PAUSE_MAX_SECONDS)
            yield pause


class Feed(_Reader):
    """The ends of one tenant's operations, to iterate over; iterated over again, it goes on where it is."""

    def __init__(
        self, tenant_id: str, opened: "Callable[[], AbstractContextManager[SyncConnection]]", **how: Any
    ) -> None:
        super().__init__(tenant_id, **how)
        self._opened = opened

    def __iter__(self) -> Iterator[Ended]:
        """Tell each end. Each batch is a statement of its own, so the caller may commit after any end."""
        with self._opened() as connection:
            plan, answer = self.steps(), None
            while (step := _next(plan, answer)) is not None:
                answer = None
                if isinstance(step, Query):
                    answer = run(connection, step)
                elif isinstance(step, Ended):
                    yield step
                else:
                    time.sleep(step)


class AsyncFeed(_Reader):
    """
    The same, to iterate over with `async for`.

    Leave a loop that follows with `contextlib.aclosing`, or its own connection closes only when Python collects it.
    """

    def __init__(
        self, tenant_id: str, opened: "Callable[[], AbstractAsyncContextManager[AsyncConnection]]", **how: Any
    ) -> None:
        super().__init__(tenant_id, **how)
        self._opened = opened

    async def __aiter__(self) -> AsyncIterator[Ended]:
        """Tell each end, as `Feed` does."""
        async with self._opened() as connection:
            plan, answer = self.steps(), None
            while (step := _next(plan, answer)) is not None:
                answer = None
                if isinstance(step, Query):
                    answer = await arun(connection, step)
                elif isinstance(step, Ended):
                    yield step
                else:
                    await asyncio.sleep(step)


def _next(plan: Steps, answer: Sequence[Row] | None) -> Query | float | Ended | None:
    try:
        return plan.send(answer)
    except StopIteration:
        return None
