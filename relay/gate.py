"""What stands between a request that is ready and its first byte."""

import math
from collections.abc import Callable, Hashable
from typing import NamedTuple

from outbox.lease import DeadMan, LocalLease, boottime
from outbox.receivers import TooLate


class Terms(NamedTuple):
    """
    Until when an attempt may start, in `boottime()`: all counted from before the begin statement was sent.

    `deadline_at` is when the attempt is given up; the lease must outlast it. `window_until` is infinite where no
    earlier attempt is unresolved: the window governs resends only.
    """

    deadline_at: float
    window_until: float = math.inf
    permission_until: float = math.inf

    def refusal(self, now: float, lease: LocalLease) -> str | None:
        """Say why the attempt must not start any more; None: it may."""
        if now >= self.deadline_at:
            return "its deadline passed before it could be sent"
        if lease.until <= self.deadline_at:
            return "the lease does not outlast its deadline"
        if now >= self.window_until:
            return "the window for resends has closed"
        if now >= self.permission_until:
            return "its permission has expired"
        return None


class LaneGate:
    """The gate of one attempt. `lease` is asked at the last moment: it is renewed, or lost, while the attempt waits."""

    __slots__ = ("_armed", "_dead_man", "_key", "_lease", "_terms", "passed")

    def __init__(
        self, terms: Terms, lease: Callable[[], LocalLease], dead_man: DeadMan | None = None, key: Hashable = None
    ) -> None:
        self._terms = terms
        self._lease = lease
        self._dead_man = dead_man
        self._key = key
        self._armed = False
        self.passed = False
        """The last check said yes: from then on bytes may have left."""

    def sending(self) -> None:
        """Arm the dead man's switch. Under a lease that is over there is nothing to arm: the check says no."""
        lease = self._lease()
        if self._dead_man is not None and lease.left_seconds(boottime()) > 0:
            self._dead_man.enter(self._key, lease)
            self._armed = True

    def check(self) -> None:
        """Raise TooLate unless lease, deadline, window and permission still cover this attempt."""
        refusal = self._terms.refusal(boottime(), self._lease())
        if refusal is not None:
            raise TooLate(refusal)
        self.passed = True

    def sent(self) -> None:
        """Disarm it."""
        if self._dead_man is not None and self._armed:
            self._armed = False
            self._dead_man.leave(self._key)
