"""Which share of a receiver's lanes, slots and rate is whose. Pure."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

# As many as anybody may want: there is no rate.
UNPACED: Final = 1_000_000_000


def quota(receiver_id: int, lanes: int, members: Sequence[UUID], me: UUID) -> int:
    """
    How many lanes of a receiver a member should hold, if all of them are to hold the same number, give or take one.

    Every member computes the same numbers from the same list. Who gets one more depends on the receiver too: with many
    receivers of one lane each, not all of them go to the same member.
    """
    order = sorted({*members, me})
    rank = (order.index(me) - receiver_id) % len(order)
    each, over = divmod(lanes, len(order))
    return each + (1 if rank < over else 0)


def slots(concurrency: int, lanes: int, lane: int) -> int:
    """How many attempts of a lane may run at once. All lanes together: `concurrency`, wherever they are held."""
    each, over = divmod(concurrency, lanes)
    return each + (1 if lane < over else 0)


class Pace:
    """A lane's part of a rate: at most one second's worth at once, and never more than the rate over time."""

    def __init__(self, per_second: float | None) -> None:
        self._rate = per_second
        self._room = max(1.0, per_second or 1.0)
        self._full = self._room
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Whether one more may start now; if so it is counted."""
        if self._rate is None:
            return True
        self._refill(now)
        if self._room < 1.0:
            return False
        self._room -= 1.0
        return True

    def room(self, now: float) -> int:
        """How many may start now."""
        if self._rate is None:
            return UNPACED
        self._refill(now)
        return int(self._room)

    def free_at(self, now: float) -> float:
        """When one more may start."""
        if self._rate is None:
            return now
        self._refill(now)
        return now + max(0.0, (1.0 - self._room) / self._rate)

    def _refill(self, now: float) -> None:
        if self._at is not None and self._rate is not None:
            self._room = min(self._full, self._room + (now - self._at) * self._rate)
        self._at = now
