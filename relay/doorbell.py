"""Being woken: notifications name a lane, and an operation where somebody made one due behind the cursor.

A speed-up and nothing more. A notification may be lost, doubled or late; whatever it would have said is found by
looking. So a bell that is broken is reported and mended, and nothing waits for it.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from outbox.errors import DatabaseError
from outbox.observe import Meters, emit
from outbox.store import Store
from relay.holding import Key
from relay.lane import Lane

_AGAIN_SECONDS: Final = 1.0
_PAYLOAD: Final = re.compile(r"(\d{1,18})/(\d{1,18})(?:/(\d{1,18}))?", re.ASCII)


def channel_of(member_id: UUID) -> str:
    """The channel of one relay: one for all would wake them all."""
    return f"outbox_{member_id.hex}"


class Doorbell:
    """Rings the lanes of one relay."""

    def __init__(
        self, store: Store, channel: str, dsn: str, lanes: Callable[[], Iterable[Lane]], meters: Meters
    ) -> None:
        self._store = store
        self._channel = channel
        self._dsn = dsn
        self._lanes = lanes
        self._meters = meters
        self._broken = False

    async def run(self) -> None:
        """Listen for ever."""
        while True:
            try:
                async for payload in self._store.listen(self._channel, self._dsn):
                    self._heard(payload)
                reason = "the connection ended"
            except DatabaseError as error:
                reason = error.message
            if not self._broken:
                self._broken = True
                emit("bell_lost", reason=reason)
            await asyncio.sleep(_AGAIN_SECONDS)

    def _heard(self, payload: str) -> None:
        if not payload:  # listening from now on: whatever was rung before is found by looking
            if self._broken:
                self._broken = False
                emit("bell_back")
            for lane in self._lanes():
                lane.ring()
            return
        self._meters.count("rings")
        address = parse(payload)
        if address is not None:
            key, seq = address
            for lane in self._lanes():
                if lane.holding.key == key:
                    lane.ring(seq)


def parse(payload: str) -> tuple[Key, int | None] | None:
    """Read `receiver/lane` or `receiver/lane/seq`. Anybody may write to a channel: what is neither is ignored."""
    match = _PAYLOAD.fullmatch(payload)
    if match is None:
        return None
    return (int(match[1]), int(match[2])), int(match[3]) if match[3] else None
