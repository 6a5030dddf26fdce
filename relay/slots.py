"""
The slots of one receiver that this relay holds, and whose turn it is where they do not suffice. Pure.

Each lane has its own. Beside a crowd (`relay.crowd`) that is not enough: a lane of four slots would keep a quarter free
for the few others that come to it, and two of them at once would wait all the same. So what is kept free is kept for
all lanes of a receiver together, and others than a crowd may take any slot that is free, whichever lane it belongs to.

No lane is without its own for long: what it has lent comes back with the end of an attempt, whoever was denied a slot
is asked in turn when one is free, and a lane that others have passed `PATIENCE` times takes one of those kept free.
"""

from collections import deque
from typing import Final, Protocol

# One slot in so many is kept free for others, and one at least, for as long after the last of them was seen.
_KEPT_PART: Final = 8
_OTHERS_SECONDS: Final = 60.0
# So often others go first. Then it is the crowd's turn, whatever is kept free.
PATIENCE: Final = 4


class Seat(Protocol):
    """A lane, as its receiver's slots see it."""

    own: int

    @property
    def own_running(self) -> int:
        """How many run in its own slots."""

    @property
    def crowded(self) -> bool:
        """Whether there is a crowd."""

    def wants(self, now: float) -> bool:
        """Whether it still waits for one."""

    def may_have(self, now: float) -> bool:
        """Whether it may have one now."""

    @property
    def has_turn(self) -> bool:
        """Whether it may take one that is kept free."""

    def wake(self) -> None:
        """There may be one; or what it had lent when it left is back."""


class Slots:
    """The slots of all lanes of a receiver in this process. Times are `boottime()`."""

    def __init__(self) -> None:
        self.total = 0
        self.running = 0
        self.claimed = 0
        """Attempts that wait for a slot, and such as are just being begun."""
        self.others_started = 0
        self.seats: list[Seat] = []
        self._others_until = float("-inf")
        # Who needs any slot at all, and the crowds, which need one more than is kept free.
        self._first: deque[Seat] = deque()
        self._later: deque[Seat] = deque()
        self._leaving: list[Seat] = []

    @property
    def free(self) -> int:
        """Slots in which nothing runs."""
        return max(0, self.total - self.running)

    @property
    def unclaimed(self) -> int:
        """Slots that nobody has begun anything for."""
        return max(0, self.free - self.claimed)

    def others_seen(self, now: float) -> None:
        """Others than the crowd of a lane are there."""
        self._others_until = now + _OTHERS_SECONDS

    def kept(self, now: float) -> int:
        """How many slots the crowds leave free for others."""
        return _kept_of(self.total) if now < self._others_until else 0

    @property
    def crowds(self) -> list[Seat]:
        """The lanes that have one."""
        return [seat for seat in self.seats if seat.crowded]

    @property
    def crowds_are_short(self) -> bool:
        """Whether all crowds together have less than what is left when they have kept free what they should."""
        slots = sum(seat.own for seat in self.crowds)
        return sum(seat.own_running for seat in self.crowds) < slots - _kept_of(slots)

    # ----------------------------------------------------------------------------------------------- who was denied one

    def deny(self, seat: Seat, *, crowd: bool) -> None:
        """No slot for this one now: it is woken when there may be one."""
        queue = self._later if crowd else self._first
        if seat not in queue:
            queue.append(seat)

    def comes_before(self, seat: Seat, *, crowd: bool) -> bool:
        """Whether somebody else was denied a slot who comes before this one (before its crowd), which just had one."""
        if self._first and self._first[0] is not seat:
            return True
        return bool(self._later) and self._later[0] is not seat and (crowd or self._later[0].has_turn)

    def served(self, seat: Seat) -> None:
        """This one has a slot. If it wants another it stands behind the rest."""
        for queue in (self._first, self._later):
            if queue and seat in queue:
                queue.remove(seat)

    def freed(self, now: float) -> None:
        """Slots are free, and their lane has no use for them: wake as many that were denied one, in that order."""
        room = self.free
        for queue in (self._later, self._first):
            for seat in list(queue):  # whoever is woken may be denied again, and stands behind the rest then
                if not room:
                    break
                wants = seat.wants(now)
                if not wants or seat.may_have(now):
                    queue.remove(seat)
                    room -= wants
                    seat.wake()
        if not self._overdrawn:
            leaving, self._leaving = self._leaving, []
            for seat in leaving:
                seat.wake()

    def are_back(self, seat: Seat) -> bool:
        """Whether what a lane that is to be given back has lent is back; if not, it is woken when it is."""
        if self._overdrawn and seat not in self._leaving:
            self._leaving.append(seat)
        return not self._overdrawn

    @property
    def _overdrawn(self) -> bool:
        return self.running > self.total


def _kept_of(slots: int) -> int:
    return max(1, slots // _KEPT_PART) if slots > 1 else 0
