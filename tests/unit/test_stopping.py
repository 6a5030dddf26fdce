"""How daemons end: a task that works for ever is ended for certain."""

import asyncio

from outbox.daemon import cancelled


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    """As `asyncio.wait_for` of Python 3.11 does with one that arrives together with its result."""
    swallowed = 0

    async def works_for_ever() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if swallowed == 2:
                    raise
                swallowed += 1

    tasks = [asyncio.create_task(works_for_ever()), asyncio.create_task(asyncio.sleep(0))]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await cancelled(*tasks)
    assert swallowed == 2
    assert all(task.done() for task in tasks)


async def test_nothing_to_cancel_is_done_at_once() -> None:
    await cancelled()
