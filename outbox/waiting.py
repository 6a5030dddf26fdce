"""
Waiting for the end of an operation: how often to look, and when waiting is in vain.

`steps` neither sleeps nor has a connection: it yields what to do next, and `Outbox.wait` and `Outbox.await_` do it.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from outbox.errors import Misuse, NotFound, WaitInsideTransaction
from outbox.operation import Operation
from outbox.put import Row
from outbox.query import Query, get_one

Steps: TypeAlias = Generator[Query | float | Operation, Sequence[Row] | None, None]

PAUSE_FIRST_SECONDS = 0.02
PAUSE_MAX_SECONDS = 1.0
PAUSE_GROWTH = 1.5
PUTS_REMEMBERED_MAX = 1_000


def pauses(timeout_seconds: float) -> Iterator[float]:
    """How long to pause before each further look, in seconds, growing, until the time is up."""
    deadline = time.monotonic() + timeout_seconds
    pause = PAUSE_FIRST_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * PAUSE_GROWTH, PAUSE_MAX_SECONDS)


@dataclass(frozen=True, slots=True)
class Put:
    """Which transaction inserted an operation, and on whose behalf."""

    operation_id: str
    xid: str
    caller: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Puts:
    """The last puts of one `Outbox`. A put that is forgotten is waited for in vain until the timeout, no worse."""

    _last: deque[Put] = field(default_factory=lambda: deque(maxlen=PUTS_REMEMBERED_MAX))

    def remember(self, operation_id: str, xid: str) -> None:
        """Keep that this caller's transaction `xid` inserted the operation."""
        self._last.append(Put(operation_id, xid, _caller()))

    def find(self, operation_id: str) -> Put | None:
        """Return the last put of that operation, if it was here and not long ago."""
        return next((put for put in reversed(tuple(self._last)) if put.operation_id == operation_id), None)


def _caller() -> tuple[int, int]:
    """Who runs now: a thread, and in it a task of asyncio, if any. While it waits, it cannot commit."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), id(task)


def steps(tenant_id: str, operation_id: str, put: Put | None, timeout_seconds: float) -> Steps:
    """
    Look until the operation has ended or the time is up.

    Yields a query, to be sent its rows; or a number of seconds to pause; or, at last, the operation as it was seen.
    WaitInsideTransaction if no later look could see the end; NotFound if there is none when the time is up.
    """
    if not 0 <= timeout_seconds < math.inf:
        raise Misuse("A wait has a bound: give timeout_seconds as a finite number, 0 or more.")
    query = get_one(tenant_id, operation_id, put.xid if put else None)
    left = pauses(timeout_seconds)
    before: Row | None = None
    while True:
        (row,) = (yield query) or ()
        _check(row, put, before)
        seen = Operation.from_row(tenant_id, operation_id, row["tool"], row) if row["state"] else None
        pause = None if seen and seen.ended else next(left, None)
        if pause is not None:
            yield pause
            before = row
        elif seen:
            yield seen
        else:
            raise NotFound(f"Tenant {tenant_id!r} has no operation {operation_id!r}, or none that is committed.")


def _check(row: Row, put: Put | None, before: Row | None) -> None:
    """Raise if waiting is in vain; `row` is the answer to a look, `before` that to the one before it."""
    if put and (row["xid"] == put.xid or (row["put_is_open"] and put.caller == _caller())):
        raise WaitInsideTransaction(hint="Commit, then wait.")
    if before and row["began_at"] == before["began_at"] and row["isolation"] != "read committed":
        raise WaitInsideTransaction(
            f"A {row['isolation']} transaction sees one moment only, and no end that comes later.",
            hint="Wait on a connection of its own, or after the transaction.",
        )
