"""How a daemon stops, and how it goes on when the database was away."""

import asyncio
import signal
from typing import Any, Final

import tenacity

from outbox.errors import DatabaseUnavailable
from outbox.observe import emit

# The first wait after a lost connection, and the longest: short, since every attempt in memory waits for its record.
_RETRY_SECONDS_FIRST: Final = 0.05
_RETRY_SECONDS_MAX: Final = 2.0
_CANCEL_AGAIN_SECONDS: Final = 0.1


def retrying(stop: asyncio.Event | None = None) -> tenacity.AsyncRetrying:
    """Try again as long as the database does not answer, at growing, random intervals.

    With `stop`, the last DatabaseUnavailable is raised once it is set. Whoever repeats a write must know how to
    recognise that the first one was committed.
    """
    return tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(DatabaseUnavailable),
        wait=tenacity.wait_random_exponential(multiplier=_RETRY_SECONDS_FIRST, max=_RETRY_SECONDS_MAX),
        stop=tenacity.stop_never if stop is None else (lambda _: stop.is_set()),
        reraise=True,
    )


async def cancelled(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and return when all have ended, whatever they raise.

    One cancellation is not enough: `asyncio.wait_for` of Python 3.11 (and so psycopg) swallows one that arrives
    together with its result, and a task that works for ever would go on.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_AGAIN_SECONDS)


class Stopping:
    """SIGTERM and SIGINT: the first asks to stop in an orderly way, the second to stop at once."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.at_once = asyncio.Event()

    def install(self) -> None:
        """Take the signals over, in the running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask, number.name)

    def ask(self, why: str) -> None:
        """Ask to stop; the second time, at once."""
        if self.requested.is_set():
            self.at_once.set()
        self.requested.set()
        emit("daemon_stopping", signal=why, bound="at once" if self.at_once.is_set() else "grace")
