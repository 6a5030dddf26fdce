"""Periodic work that one daemon at a time does, whichever comes first."""

from typing import Final

from outbox import crashpoints
from outbox.observe import emit
from outbox.store import Store

# (name, rows at a time)
_CHORES: Final = (("expire", 500), ("redecide", 500))


async def do_chores(store: Store, every_seconds: float) -> dict[str, int]:
    """Reject what lapsed before anything was sent, and decide again where a policy changed; if it is our turn.

    Returns how many operations moved, by chore. Raises as the store does.
    """
    moved: dict[str, int] = {}
    for chore, limit in _CHORES:
        if not await store.value("claim_chore", name=chore, every_seconds=every_seconds):
            continue
        crashpoints.reach("before_expire")
        moved[chore] = count = await store.value(chore, limit=limit)
        while count == limit:
            count = await store.value(chore, limit=limit)
            moved[chore] += count
        if moved[chore]:
            emit("chore_done", chore=chore, count=moved[chore])
    return moved
