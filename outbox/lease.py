"""Time that this process may rely on: the clock, a lease on it, and a way to die in time.

The database decides who holds a lane, by its own clock and by the fence. What is here only ever makes a holder stop
*sooner*: a lease is counted from the moment its renewal was *sent*, so it ends here before it ends there, however
long the answer took.

None of it can close the gap between a last look at the clock and the first byte of a request: a process can be
stopped there for an hour and then send. `DeadMan` closes it for a process that is stopped while the machine runs: the
kernel's timer goes on, and its pending signal kills the process before it executes another instruction. It does not
help where the timer stands still too (a virtual machine that is paused or restored from a snapshot); that is a stated
assumption.
"""

import math
import signal
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass


def boottime() -> float:
    """Seconds since the machine booted, the time it slept included.

    CLOCK_MONOTONIC stands still while a machine is suspended, and a lease would look young when it wakes.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class LocalLease:
    """Until when this process may believe that it holds a lane, in seconds of `boottime()`."""

    until: float

    @classmethod
    def granted(cls, sent_at: float, lease_seconds: float) -> "LocalLease":
        """A lease that the database granted for `lease_seconds` to a statement sent at `sent_at` (boottime)."""
        if not lease_seconds > 0 or math.isinf(lease_seconds):
            raise ValueError("a lease lasts for a positive, finite number of seconds")
        return cls(sent_at + lease_seconds)

    def renewed(self, sent_at: float, lease_seconds: float) -> "LocalLease":
        """After a renewal that the database confirmed. The answer to an older renewal never shortens a newer one."""
        return LocalLease(max(self.until, LocalLease.granted(sent_at, lease_seconds).until))

    def left_seconds(self, now: float) -> float:
        """What is left of it at `now` (boottime); negative once it is over."""
        return self.until - now

    def covers(self, now: float, seconds: float) -> bool:
        """Whether something that starts at `now` and takes up to `seconds` ends within the lease."""
        return now + seconds < self.until


# A lease that is already over when an attempt reaches its last check is refused by that check, in an orderly way. The
# timer must not be quicker than the check; it still kills a process that is stopped between the two.
_TIMER_SECONDS_MIN = 0.005


class DeadMan:
    """Kills this process if a lease ends while one of its attempts stands between last check and last byte.

    `enter` before the last check, `leave` once the last byte was handed to the kernel; between the two a timer
    (ITIMER_REAL, SIGALRM with its default action) runs for the shortest lease of the lanes concerned. A process that
    merely waits, for answers or for its database, has no timer running and survives the end of its lease.

    One per process, made in its main thread (signals are set there). It takes SIGALRM for itself.
    Dying loses the answers in memory: they are unknown then, and looked up. That is the price, and the reason why
    this is an option of receivers whose repeats nobody would notice.
    """

    def __init__(
        self,
        clock: Callable[[], float] = boottime,
        set_timer: Callable[[float], object] | None = None,
    ) -> None:
        self._clock = clock
        self._set_timer = set_timer or _take_sigalrm()
        self._until: dict[Hashable, float] = {}
        self._inside: dict[Hashable, int] = {}

    def enter(self, lane: Hashable, lease: LocalLease) -> None:
        """An attempt of this lane is about to make its last check."""
        self._inside[lane] = self._inside.get(lane, 0) + 1
        self._until[lane] = lease.until
        self._rearm()

    def leave(self, lane: Hashable) -> None:
        """Its last byte was handed to the kernel, or it was given up without one."""
        if self._inside.get(lane, 0) <= 1:
            self._inside.pop(lane, None)
            self._until.pop(lane, None)
        else:
            self._inside[lane] -= 1
        self._rearm()

    def renewed(self, lane: Hashable, lease: LocalLease) -> None:
        """The lease of this lane lasts longer now. Without attempts that stand there, nothing happens."""
        if lane in self._until:
            self._until[lane] = max(self._until[lane], lease.until)
            self._rearm()

    def _rearm(self) -> None:
        if not self._until:
            self._set_timer(0.0)
            return
        self._set_timer(max(_TIMER_SECONDS_MIN, min(self._until.values()) - self._clock()))


def _take_sigalrm() -> Callable[[float], object]:
    """Give SIGALRM its default action, which ends the process and runs no handler first."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    return lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
