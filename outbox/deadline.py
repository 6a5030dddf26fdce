"""
A deadline that knows when this process itself stood still.

A process that was stopped for a minute (a signal, a paused machine, swapping) wakes with all its deadlines passed, and
with the answers to what it had sent lying in its sockets. An event loop that is asked now would first cancel, and then
read nothing: every answer would be thrown away, and somebody would have to find out what is lying there. So whoever is
late by himself first takes in what has come meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

# A timer that fires so late says that this process did not run, or could not keep up.
STOOD_STILL_SECONDS: Final = 0.1
# How long it may take then to read what has come. It is there already: nobody is waited for.
CATCH_UP_SECONDS: Final = 0.25


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Raise TimeoutError as `asyncio.timeout` does; later, by a moment, where this process stood still meanwhile."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        until = loop.time() + seconds
        timers: list[asyncio.TimerHandle] = []

        def over() -> None:
            limit.reschedule(loop.time())

        def due() -> None:
            if loop.time() - until > STOOD_STILL_SECONDS:
                timers.append(loop.call_later(CATCH_UP_SECONDS, over))
            else:
                over()

        timers.append(loop.call_at(until, due))
        try:
            yield limit
        finally:
            for timer in timers:
                timer.cancel()
