"""
A deadline that knows when this process itself stood still.

A process that was stopped for a minute (a signal, a paused machine, swapping) wakes with all its deadlines passed, and
with the answers to what it had sent lying in its sockets. An event loop that is asked now would first cancel, and then
read nothing: every answer would be thrown away, and somebody would have to find out what is lying there. So whoever is
late by himself first takes in what has come meanwhile.
"""

import asyncio
from types import TracebackType
from typing import Final, Self

# A timer that fires so late says that this process did not run, or could not keep up.
STOOD_STILL_SECONDS: Final = 0.1
# How long it may take then to read what has come. It is there already: nobody is waited for.
CATCH_UP_SECONDS: Final = 0.25


class deadline:  # noqa: N801 - used as `asyncio.timeout` is
    """
    Raise TimeoutError as `asyncio.timeout` does; later, by a moment, where this process stood still meanwhile.

    One object and one timer: every attempt has one.
    """

    __slots__ = ("_cancelling", "_expired", "_loop", "_task", "_timer", "_until")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + seconds
        self._expired = False

    def expired(self) -> bool:
        """Whether it has passed."""
        return self._expired

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline is of a task")
        self._task, self._cancelling = task, task.cancelling()
        self._timer = self._loop.call_at(self._until, self._due)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # A cancellation of ours ends here; whoever else cancels the task meanwhile has still cancelled it.
        ours_only = self._expired and self._task.uncancel() <= self._cancelling
        if ours_only and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error

    def _due(self) -> None:
        if self._loop.time() - self._until > STOOD_STILL_SECONDS:
            self._timer = self._loop.call_later(CATCH_UP_SECONDS, self._over)
        else:
            self._over()

    def _over(self) -> None:
        self._expired = True
        self._task.cancel()
