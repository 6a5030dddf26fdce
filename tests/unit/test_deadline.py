"""A deadline that knows when this process itself stood still."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable

import pytest

from outbox.deadline import STOOD_STILL_SECONDS, deadline


async def test_it_ends_what_takes_too_long() -> None:
    with pytest.raises(TimeoutError):
        async with deadline(0.01) as limit:
            await asyncio.Event().wait()
    assert limit.expired()


async def test_what_ends_before_it_is_left_alone() -> None:
    async with deadline(60) as limit:
        await asyncio.sleep(0)
    assert not limit.expired()


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def work() -> None:
        async with deadline(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_from_outside_is_not_lost_in_a_deadline_that_passes_at_the_same_time() -> None:
    async def work() -> None:
        async with deadline(0.01):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                asyncio.current_task().cancel()  # type: ignore[union-attr] # a task runs this
                raise

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_whoever_goes_on_after_it_is_not_cancelled_any_more() -> None:
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with deadline(0.01):
                await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    async with deadline(60), deadline(0.01) as inner:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    assert inner.expired()
    assert not task.cancelling()


def stand_still(seconds: float, meanwhile: Callable[[], object]) -> None:
    """Nothing of this process runs, the loop of asyncio neither, while something happens elsewhere."""
    until = time.monotonic() + seconds
    meanwhile()
    while time.monotonic() < until:
        pass


LONG_SECONDS = 0.05 + 2 * STOOD_STILL_SECONDS


async def test_an_answer_that_came_while_this_process_stood_still_is_read() -> None:
    """A plain timeout cancels first: the answer lies in the socket, and nobody hears it."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    heard: list[bytes] = []
    for limit in (asyncio.timeout, deadline):
        asyncio.get_running_loop().call_soon(stand_still, LONG_SECONDS, lambda: theirs.sendall(b"201 Created\r\n"))
        with contextlib.suppress(TimeoutError):
            async with limit(0.05):
                heard.append(await reader.readline())
        if not heard:
            assert limit is asyncio.timeout
            assert await reader.readline() == b"201 Created\r\n"
    assert heard == [b"201 Created\r\n"]
    writer.close()
    theirs.close()


async def test_who_stood_still_does_not_wait_for_what_has_not_come() -> None:
    asyncio.get_running_loop().call_soon(stand_still, LONG_SECONDS, bool)
    with pytest.raises(TimeoutError):
        async with deadline(0.05):
            await asyncio.Event().wait()
