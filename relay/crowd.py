"""
Whose operations fill a lane, and how the others get past them. Pure; it only ever decides where to look next.

A lane is first in, first out, and any tenant's operations may lie in any lane: without more, one tenant with a million
of them would delay everybody by a million. Tenants with a large part of what stands at the front, while more waits, are
the *crowd*. Past it the holder looks ahead, to the end of the lane, for operations of others, and begins those by name.
Writers who are not of the crowd ring for each of theirs (`outbox.place`).

Who may have which slot, and that nobody starves, is in `relay.slots`: a lane without others keeps nothing free.
"""

from collections import Counter, deque
from collections.abc import Collection, Sequence
from typing import Final

from relay.position import TOP, Range
from relay.slots import Slots

# So many of the operations that began last at the front are judged, and whoever has this part of them is of the crowd.
WINDOW: Final = 32
_FILLS_PART: Final = 4
# Names that the row of a lane holds. Whoever else fills it is treated like the others.
CROWD_MAX: Final = 8
# Rows that one look reads (two milliseconds, in which nothing begins), and operations of others that it returns.
ROWS_MAX: Final = 1_000
FOUND_MAX: Final = 200
# Passing over the crowds of a receiver must not take more than this part of the time: a pass reads their rows again.
_PASS_PART: Final = 50


class Crowd:
    """The tenants that fill one lane. Times are `boottime()`."""

    def __init__(self, *, poll_seconds: float, pass_seconds: float, now: float, slots: Slots) -> None:
        """Look at the end of the lane every `poll_seconds`, and past the whole crowd every `pass_seconds`."""
        self.tenants: frozenset[str] = frozenset()
        self._poll = poll_seconds
        self._every = pass_seconds
        self._window: deque[str] = deque(maxlen=WINDOW)
        self._front: frozenset[str] = frozenset()
        self._far: frozenset[str] = frozenset()
        """Those that were met behind the ones at the front."""
        self._slots = slots
        self._after = 0
        self._next_look_at = now
        self._next_pass_at = now
        self._spent_seconds = 0.0

    def began(self, tenants: Sequence[str], now: float) -> None:
        """Operations of these began at the front, in this order, and more wait there."""
        self._window.extend(tenants[-WINDOW:])
        if len(self._window) < WINDOW:
            return
        known, present = self.tenants, frozenset(self._window)
        self._consist(front=_large(self._window) | (self._front & present), far=self._far)
        if not known.issuperset(self.tenants):
            self._next_look_at = self._next_pass_at = now
        self.met(present, now)

    def met(self, tenants: Collection[str], now: float) -> None:
        """Operations of these are there, or have just begun. As long as there are others, slots are kept free."""
        if self.tenants and not self.tenants.issuperset(tenants):
            self._slots.others_seen(now)

    def dissolved(self) -> None:
        """Nothing is left to begin: there is no crowd."""
        self._window.clear()
        self._consist(front=frozenset())

    def _consist(self, *, front: frozenset[str], far: frozenset[str] = frozenset()) -> None:
        self._front, self._far = front, far - front
        self.tenants = frozenset([*sorted(front), *sorted(self._far)][:CROWD_MAX])

    # -------------------------------------------------------------------------------------------------- looking ahead

    def ahead(self, cursor: int, now: float) -> Range | None:
        """Where to look for others now; None: nowhere, or not yet."""
        if not self.tenants or now < self._next_look_at:
            return None
        if now >= self._next_pass_at:
            self._after, self._spent_seconds, self._next_pass_at = cursor, 0.0, float("inf")
            self._consist(front=self._front)
        return Range(max(self._after, cursor), TOP)

    def looked(self, others: Sequence[str], upto: int | None, seconds: float, now: float, *, more: bool) -> None:
        """
        After a look of so many seconds that found operations of these tenants, in this order.

        `upto`: the last row that it passed over (None: there was none); `more`: it stopped before the end of the lane.
        """
        if upto is not None:
            self._after = max(self._after, upto)
        self.met(others, now)
        if len(others) >= FOUND_MAX:
            self._consist(front=self._front, far=self._far | _large(others))
        self._spent_seconds += seconds
        self._next_look_at = now
        if not more:
            self._next_look_at += self._poll
            if self._next_pass_at == float("inf"):
                lanes = max(1, len(self._slots.crowds))
                self._next_pass_at = now + max(self._every, _PASS_PART * lanes * self._spent_seconds)

    def rung(self, now: float) -> None:
        """Somebody wrote at the end of the lane."""
        self._next_look_at = now

    def next_look_at(self) -> float | None:
        """When to look again; None: there is no crowd."""
        return self._next_look_at if self.tenants else None


def _large(tenants: Collection[str]) -> frozenset[str]:
    """Whoever has a large part of these."""
    return frozenset(tenant for tenant, count in Counter(tenants).items() if _FILLS_PART * count >= len(tenants))
