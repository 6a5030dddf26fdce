"""How a daemon stops, and how it goes on when the database was away."""

import asyncio
import os
import random
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

import tenacity

from outbox.errors import DatabaseUnavailable
from outbox.observe import emit

T = TypeVar("T")

# The first wait after a lost connection, and the longest: short, since every attempt in memory waits for its record.
_RETRY_SECONDS_FIRST: Final = 0.05
_RETRY_SECONDS_MAX: Final = 2.0
CANCEL_AGAIN_SECONDS: Final = 0.1
# Whoever has not ended after so many cancellations will not: it is left behind.
CANCEL_SECONDS_MAX: Final = 3.0
# What a daemon may take to end beside its grace time: last words to a database that does not answer, and connections
# to close. Then the process ends whatever hangs.
END_SECONDS_MAX: Final = 10.0
EXIT_FORCED: Final = 1
_FORCED: Final = b"Not everything ended in time, and the process ends all the same: what was in flight is looked up.\n"


async def until_answered(act: Callable[[], Awaitable[T]], stop: asyncio.Event) -> T:
    """Do this; as long as the database does not answer, do it again, at growing, random intervals.

    The last DatabaseUnavailable is raised once `stop` is set. Whoever repeats a write must know how to recognise that
    the first one was committed.
    """
    try:
        return await act()  # as nearly always: what follows costs as much as a short statement
    except DatabaseUnavailable:
        if stop.is_set():
            raise
    await asyncio.sleep(random.uniform(0.0, _RETRY_SECONDS_FIRST))  # noqa: S311 - so that not all come back at once
    again = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(DatabaseUnavailable),
        wait=tenacity.wait_random_exponential(multiplier=_RETRY_SECONDS_FIRST, max=_RETRY_SECONDS_MAX),
        stop=lambda _: stop.is_set(),
        reraise=True,
    )
    async for trial in again:
        with trial:
            return await act()
    raise AssertionError  # it ends with an answer or with what was raised


async def cancelled(*tasks: "asyncio.Task[Any]", within_seconds: float = CANCEL_SECONDS_MAX) -> bool:
    """Cancel tasks and return when all have ended, whatever they raise; False if some do not end.

    One cancellation is not enough: `asyncio.wait_for` of Python 3.11 (and so some libraries) swallows one that arrives
    together with its result, and a task that works for ever would go on.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + within_seconds
    pending = {task for task in tasks if not task.done()}
    while pending and loop.time() < until:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # heard of: nobody else asks
    if pending:
        emit("task_stuck", count=len(pending), seconds=within_seconds)
    return not pending


class Crew:
    """Tasks that end together, also those that swallow a cancellation.

    `asyncio.TaskGroup` cancels each of its tasks once, and then waits for ever.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._errors: list[BaseException] = []
        self._failed = asyncio.Event()

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Let it run until it ends by itself, or all end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this work while the crew does its own. When it is done, or somebody fails, all end.

        Raises what the first raised that failed.
        """
        own, failing = self.start(work), asyncio.create_task(self._failed.wait())
        try:
            await asyncio.wait({own, failing}, return_when=asyncio.FIRST_COMPLETED)
            failures = self._errors[:1]
        finally:
            await _undisturbed(self._end(failing))
        for failure in failures:
            raise failure
        return own.result()

    async def _end(self, failing: "asyncio.Task[bool]") -> None:
        # Somebody who is being cancelled may start one more; and who has ended is crossed off in the loop's next turn.
        while await cancelled(failing, *self._tasks):
            await asyncio.sleep(0)
            if not self._tasks:
                return

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.append(error)
            self._failed.set()


async def _undisturbed(work: Coroutine[Any, Any, None]) -> None:
    """Do it to its end, which has a bound of its own, also while being cancelled: one crew may be part of another."""
    task, disturbed = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            disturbed = True
    if disturbed:
        raise asyncio.CancelledError


class Stopping:
    """SIGTERM and SIGINT: the first asks to stop in an orderly way, the second to stop at once.

    Once the signals are taken over, the process ends after either within a bound, whatever hangs.
    """

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.at_once = asyncio.Event()
        self._last_resort: threading.Timer | None = None

    def install(self, grace_seconds: float, end_seconds_max: float = END_SECONDS_MAX) -> None:
        """Take the signals over, in the running loop."""
        loop = asyncio.get_running_loop()

        def signalled(name: str) -> None:
            if not self.at_once.is_set():
                self.ask(name)
                self.end_within(end_seconds_max + (0.0 if self.at_once.is_set() else grace_seconds))

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, signalled, number.name)

    def ask(self, why: str) -> None:
        """Ask to stop; the second time, at once."""
        if self.requested.is_set():
            self.at_once.set()
        self.requested.set()
        emit("daemon_stopping", signal=why, bound="at once" if self.at_once.is_set() else "grace")

    def end_within(self, seconds: float = END_SECONDS_MAX) -> None:
        """End this process after so long, whatever hangs, unless everything is `over` before."""
        self.over()
        # A thread, since the loop may be what hangs.
        self._last_resort = threading.Timer(seconds, _end_this_process)
        self._last_resort.daemon = True
        self._last_resort.start()

    def over(self) -> None:
        """Everything has ended by itself."""
        if self._last_resort is not None:
            self._last_resort.cancel()


def _end_this_process() -> None:
    try:
        os.set_blocking(2, False)  # a reader of our log that does not read may be why we hang
        os.write(2, _FORCED)
    finally:
        os._exit(EXIT_FORCED)
