"""Attempts that have begun and wait for a slot. Pure."""

from collections import deque

from relay.begun import Bound
from relay.crowd import PATIENCE, Crowd


class Turns:
    """
    First come, first served; but others than the crowd do not stand behind it.

    Others come first, `PATIENCE` of them in a row at most. While none waits, the crowd leaves them what is kept free.
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

    def take(self) -> Bound:
        """Take whose turn it is; somebody must wait."""
        if self._others and (self._in_a_row < PATIENCE or not self._waiting):
            self._in_a_row += 1
            return self._others.popleft()
        self._in_a_row = 0
        return self._waiting.popleft()
