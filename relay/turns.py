"""One lane's part of a receiver's slots: attempts that have begun and wait for one, and those that run. Pure."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator

from relay.begun import Bound, Name
from relay.crowd import Crowd
from relay.share import Pace
from relay.slots import PATIENCE, Slots


class Turns:
    """
    First come, first served, in the lane's own slots; but others than its crowd do not stand behind it.

    Others take any slot of the receiver that is free. The crowd leaves free what is kept for them. `wake` is called
    when there may be a slot after one was denied, or what was lent when the lane was closed is back.
    """

    def __init__(self, slots: Slots, crowd: Crowd, *, own: int, pace: Pace, wake: Callable[[], None]) -> None:
        self.own = 0
        """How many slots are this lane's; while it is being given back, how many of them it still needs."""
        self.pace = pace
        self.wake = wake
        # Nothing waits, but something could begin if there were a slot for it: of its own, of others.
        self._hungry = self._hungry_others = False
        self._slots = slots
        self._crowd = crowd
        self._quota = own
        self._closing = False
        self._waiting: deque[Bound] = deque()
        self._others: deque[Bound] = deque()
        self._running = 0
        self._guests: set[Name] = set()
        """Of what runs: others than the crowd, in whoever's slots."""
        self._promised = 0
        self._mark = slots.others_started
        """How many others had started when this lane had a turn last."""
        slots.seats.append(self)
        self._fit()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._others)

    @property
    def others(self) -> int:
        """How many others wait."""
        return len(self._others)

    @property
    def running(self) -> int:
        """How many run, in its own slots and in others'."""
        return self._running + len(self._guests)

    @property
    def crowded(self) -> bool:
        """Whether there is a crowd."""
        return bool(self._crowd.tenants)

    @property
    def own_running(self) -> int:
        """How many run that count against its own slots: the crowd's, or without one all of them."""
        return self._running

    # -------------------------------------------------------------------------------------------------- its own slots

    def serve(self, own: int, pace: Pace) -> None:
        """So many slots are this lane's from now on, and this is its part of the rate."""
        self._quota, self.pace = own, pace
        self._fit()

    def close(self) -> None:
        """Nothing begins here any more: what it does not need is nobody's here, for the lane is to be given back."""
        self._closing = True
        self._fit()

    def left(self) -> bool:
        """
        Whether none of its slots is lent, and nothing is being begun for one. If not, it is woken when they are back.

        A lane that is lost cannot wait for that: what runs in its slots elsewhere ends at its own deadline.
        """
        if self._promised or not self._slots.are_back(self):
            return False
        if self in self._slots.seats:
            self._slots.seats.remove(self)
        return True

    def _fit(self) -> None:
        own = min(self._quota, self.running + len(self)) if self._closing else self._quota
        self._slots.total += own - self.own
        self.own = own

    # ------------------------------------------------------------------------------------------------------------ room

    @property
    def own_room(self) -> int:
        """How many of its own slots nobody has begun anything for."""
        return self.own - self._running - len(self._waiting) - self._promised

    def room(self, now: float) -> int:
        """How many would start at once if they began now."""
        slots = self._slots
        return min(self.own_room, slots.unclaimed - (0 if self.has_turn else slots.kept(now)))

    def room_for_others(self) -> int:
        """How many of others than the crowd would."""
        return self._slots.unclaimed

    @contextlib.contextmanager
    def promised(self, number: int) -> Iterator[None]:
        """While so many are being begun nobody else has their slots. Those that have begun then wait for one."""
        self._promise(number)
        try:
            yield
        finally:
            self._promise(-number)

    def _promise(self, number: int) -> None:
        self._promised += number
        self._slots.claimed += number

    def keeps_free(self, now: float) -> bool:
        """Whether there is a crowd here, and others somewhere for whom it leaves slots free."""
        return self.crowded and self._slots.kept(now) > 0

    @property
    def has_turn(self) -> bool:
        """Whether it may take what is kept free for others: there is no crowd here, or it was passed often enough."""
        return not self.crowded or self._was_passed

    @property
    def _was_passed(self) -> bool:
        return self._slots.others_started - self._mark >= PATIENCE and self._slots.crowds_are_short

    # ----------------------------------------------------------------------------------------------------------- turns

    def add(self, bound: Bound) -> None:
        """Wait."""
        crowd = self._crowd.tenants
        (self._others if crowd and bound.begun.tenant_id not in crowd else self._waiting).append(bound)
        self._slots.claimed += 1
        self._fit()

    def may_start(self, now: float) -> bool:
        """Whether one that waits may take a slot now, pace aside."""
        return self._slots.free > 0 and (bool(self._others) or (bool(self._waiting) and self._own_may(now)))

    def _own_may(self, now: float) -> bool:
        return self._running < self.own and (self.has_turn or self._slots.free > self._slots.kept(now))

    def next(self, now: float, *, again: bool = False) -> Bound | None:
        """
        Take a slot for whoever's turn it is. None: nobody may have one now, or pace forbids it.

        `again`: this lane has just had one. Whoever was denied one before comes first.
        """
        slots = self._slots
        if not len(self):
            return None
        if not self.may_start(now) or (again and slots.comes_before(self, crowd=not self._others)):
            self.queue_up()
            return None
        if not self.pace.take(now):
            return None
        slots.served(self)
        slots.claimed -= 1
        slots.running += 1
        if self._others and not (self._waiting and self.crowded and self._was_passed and self._own_may(now)):
            slots.others_started += 1
            bound = self._others.popleft()
            self._guests.add(bound.begun.name)
            return bound
        self._mark = slots.others_started
        self._running += 1
        return self._waiting.popleft()

    def ended(self, bound: Bound) -> None:
        """It is over, and its slot is free."""
        self._slots.running -= 1
        if bound.begun.name in self._guests:
            self._guests.remove(bound.begun.name)
        else:
            self._running -= 1
        self._fit()

    def dismiss(self) -> Iterator[Bound]:
        """Take all that wait, whoever's turn it is."""
        for waiting in (self._waiting, self._others):
            while waiting:
                self._slots.claimed -= 1
                yield waiting.popleft()
        self._fit()

    # ------------------------------------------------------------------------------------------------- to be denied one

    def queue_up(self, *, hungry: bool = False, others: bool = False) -> None:
        """
        Be woken when there may be a slot, unless it is this lane's own attempts that must end first.

        `hungry`: nothing waits, but something could begin; `others`: of others than the crowd.
        """
        self._hungry |= hungry and not others
        self._hungry_others |= hungry and others
        others |= bool(self._others)
        if others or self._running < self.own:
            self._slots.deny(self, crowd=not others and not self.has_turn)

    def wants(self, now: float) -> bool:
        """Whether something waits for a slot, or could begin if there were one."""
        return (self._hungry or self._hungry_others or len(self) > 0) and self.pace.room(now) > 0

    def may_have(self, now: float) -> bool:
        """Whether it may have a slot now for what waits, or could begin."""
        hungry = self._hungry_others or (self._hungry and self._own_may(now))
        return self.may_start(now) or (hungry and self._slots.free > 0)

    def was_hungry(self) -> bool:
        """Whether something could begin now that could not before; asked once."""
        hungry = self._hungry or self._hungry_others
        self._hungry = self._hungry_others = False
        return hungry

    def freed(self, now: float) -> None:
        """This lane has no use for a slot that is free: somebody else may."""
        self._slots.freed(now)
