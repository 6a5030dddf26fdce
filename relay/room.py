"""How many attempts of a lane may begin now."""

from collections.abc import Callable
from typing import Final, Protocol

from outbox.lease import boottime
from relay.crowd import Crowd
from relay.service import Service
from relay.shared import Shared
from relay.turns import Turns

# Claiming ahead must not eat the deadline, which counts from the begin: a row waits for a slot at most this part of it.
_AHEAD_PART: Final = 0.25
# So much, and up to twice as much, of a crowd is claimed at a time while others are there: not the same in all lanes,
# for those that claim at the same time would do so again and again.
_BESIDE_OTHERS: Final = 24


class RoomHost(Protocol):
    """The lane that the room is in."""

    @property
    def service(self) -> Service:
        """Its receiver."""

    @property
    def closing(self) -> bool:
        """Nothing begins here any more."""


class Room:
    """What slots, rate, circuit and memory leave for more attempts. `seconds`: what an attempt takes."""

    def __init__(
        self, lane: int, shared: Shared, turns: Turns, *, crowd: Crowd, host: RoomHost, seconds: Callable[[], float]
    ) -> None:
        self.probing = False
        """What begins right now is the one attempt that an open circuit allows."""
        self._beside_others = _BESIDE_OTHERS + lane % _BESIDE_OTHERS
        self._shared = shared
        self._turns = turns
        self._crowd = crowd
        self._host = host
        self._seconds = seconds

    def now(self, *, past_crowd: bool = False) -> int:
        """How many may begin now; those that are begun by name go past the crowd."""
        turns, now = self._turns, boottime()
        past_crowd = past_crowd and bool(self._crowd.tenants)
        if not self._host.service.batch:
            return self._bounded(turns.room_for_others() if past_crowd else turns.room(now), len(turns), now)
        ahead = self._ahead()
        if past_crowd:
            # Where the crowd was claimed ahead, no slot is ever free: whoever goes past it waits for the next one.
            # Who was rung for as one of others, and is of the crowd by now, waits too, and not without bound.
            room = min(turns.own - turns.others, 2 * turns.own + ahead - len(turns))
            return self._bounded(room, turns.others, now)
        if turns.keeps_free(now):  # while a large claim runs, others wait for it
            ahead = min(ahead, max(turns.own, self._beside_others))
        if 2 * len(turns) > ahead:  # a few rows at a time would cost a statement each
            return 0
        return self._bounded(turns.own_room + ahead, len(turns), now)

    def queue_up(self, *, by_name: bool) -> None:
        """
        Be woken when another lane has ended an attempt, where only that keeps something from beginning here.

        `by_name`: something of others than the crowd is due.
        """
        turns, now = self._turns, boottime()
        if self._host.service.batch:
            return  # it has begun, and waits
        others = by_name and turns.room_for_others() == 0
        if others or turns.own_room > 0 >= turns.room(now):
            turns.queue_up(hungry=True, others=others)
        else:
            turns.freed(now)

    def _ahead(self) -> int:
        """How many may wait for a slot, if each is to get one long before its deadline."""
        own, deadline = self._turns.own, self._host.service.deadline_seconds
        ahead = max(own, int(own * _AHEAD_PART * deadline / self._seconds()))
        return min(ahead, self._shared.settings.batch_max)

    def _bounded(self, room: int, waiting: int, now: float) -> int:
        """Room within what the receiver's rate, this process and the circuit allow beside what waits already."""
        room = min(room, self._turns.pace.room(now) - waiting, self._shared.settings.batch_max, self._shared.room)
        if self._host.service.breaker.is_open:
            room = min(room, int(self.probing))
        return 0 if self._host.closing else max(0, room)
