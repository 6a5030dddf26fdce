"""Attempts that have begun and wait for a slot. Pure."""

from collections import deque
from collections.abc import Collection, Iterator

from relay.begun import Bound
from relay.crowd import PATIENCE, Crowd


class Turns:
    """
    First come, first served; but others than the crowd do not stand behind it.

    Others come first, `PATIENCE` of them in a row at most. The crowd leaves them what is kept free, unless they have
    taken more than that.
    """

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._waiting: deque[Bound] = deque()
        self._others: deque[Bound] = deque()
        self._in_a_row = 0
        """So many others were served while the crowd waited."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._others)

    @property
    def others(self) -> int:
        """How many others wait."""
        return len(self._others)

    def add(self, bound: Bound) -> None:
        """Wait."""
        crowd = self._crowd.tenants
        (self._others if crowd and bound.begun.tenant_id not in crowd else self._waiting).append(bound)

    def may_start(self, slots: int, running: int, now: float) -> bool:
        """Whether one of them may take a slot."""
        if running >= slots:
            return False
        if self._others or not self._crowd.tenants:
            return bool(self._others or self._waiting)
        return bool(self._waiting) and slots - running > self._crowd.kept_free(slots, now)

    def take(self, slots: int, running: Collection[Bound], now: float) -> Bound:
        """Take whose turn it is; somebody must wait, and a slot be free."""
        if self._others and not (self._in_a_row >= PATIENCE and self._crowd_may(slots, running, now)):
            self._in_a_row += 1
            return self._others.popleft()
        self._in_a_row = 0
        return self._waiting.popleft()

    def end(self) -> Iterator[Bound]:
        """Take all of them, whoever's turn it is."""
        for waiting in (self._waiting, self._others):
            while waiting:
                yield waiting.popleft()

    def _crowd_may(self, slots: int, running: Collection[Bound], now: float) -> bool:
        """Whether one of the crowd may take a slot although others wait."""
        kept = self._crowd.kept_free(slots, now)
        return bool(self._waiting) and (slots - len(running) > kept or self.of_crowd(running) < slots - kept)

    def of_crowd(self, running: Collection[Bound]) -> int:
        """How many of these are the crowd's."""
        return sum(bound.begun.tenant_id in self._crowd.tenants for bound in running)
