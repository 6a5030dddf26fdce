"""
Periodic work that one daemon at a time does, whichever comes first.

Some of it reads all that is open, which takes a second where that are millions. What takes long is done more seldom: a
fiftieth of the time is spent on it (`outbox.claim_chore`).
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from outbox import crashpoints
from outbox.lease import boottime
from outbox.observe import emit
from outbox.store import Store

# (name, rows at a time)
_CHORES: Final = (("expire", 500), ("redecide", 5_000))


@contextlib.asynccontextmanager
async def timed(store: Store, chore: str) -> AsyncIterator[None]:
    """Say how long this takes, where it is done."""
    started = boottime()
    yield
    await store.value("chore_took", name=chore, seconds=boottime() - started)


async def do_chores(store: Store, every_seconds: float) -> dict[str, int]:
    """Reject what lapsed before anything was sent, and decide again where a policy changed; if it is our turn.

    Returns how many operations moved, by chore. Raises as the store does.
    """
    moved: dict[str, int] = {}
    for chore, limit in _CHORES:
        if not await store.value("claim_chore", name=chore, every_seconds=every_seconds):
            continue
        crashpoints.reach("before_expire")
        moved[chore], count = 0, limit
        while count == limit:
            async with timed(store, chore):
                count = await store.value(chore, limit=limit)
            moved[chore] += count
        if moved[chore]:
            emit("chore_done", chore=chore, count=moved[chore])
    return moved
