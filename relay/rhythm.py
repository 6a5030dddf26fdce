"""
When a holder looks for new work in its lane, and whether writers must ring for it. Pure.

While there is work it looks again as soon as there is room. When there is none it asks writers to ring (`idle`), since
a notification on every commit would cost them most of their rate. A writer may have read "not idle" just before, and
commit just after the last look; so the holder goes on looking until every transaction that could have read the old flag
has ended. Then it is quiet: it looks when somebody rings, and every `poll_seconds` in any case, for bells are lost.
"""

from typing import Final

# Between looks while nothing is known: short, for this is what a writer waits who does not ring.
_SECONDS_MIN: Final = 0.02
# How long there must be nothing before writers are asked to ring: a burst does not turn the bell on and off.
_IDLE_AFTER_SECONDS: Final = 0.05
# A foreign transaction may stay open for hours. After this long, polling alone must do.
_VERIFY_SECONDS_MAX: Final = 2.0


class Rhythm:
    """The next look at the frontier of a lane. Times are `boottime()`."""

    def __init__(self, poll_seconds: float, now: float) -> None:
        self.next_look_at = now
        self.idle = False
        """What the lane's row says: writers ring."""
        self.hopeful = True
        """There may well be something: it is worth a statement that could begin it. Otherwise a peek comes first."""
        self._poll = poll_seconds
        self._pause = _SECONDS_MIN
        self._empty_since: float | None = None
        self._verify_until: float | None = None
        self._horizon = 0

    def looked(self, now: float, *, emptied: bool, found: int, xmin: int) -> None:
        """After a look that left nothing to begin (`emptied`) or more than there was room for.

        `xmin`: transactions below it had ended when it was made.
        """
        self.hopeful = found > 0 or not emptied
        if not emptied:
            self._empty_since, self._pause = None, _SECONDS_MIN
            self.next_look_at = now
            return
        if self._empty_since is None:
            self._empty_since = now
        if self._verify_until is not None and (xmin >= self._horizon or now >= self._verify_until):
            self._verify_until = None
        if self.idle:
            self._pause = self._poll if self._verify_until is None else _SECONDS_MIN
        elif found:
            self._pause = _SECONDS_MIN
        self.next_look_at = now + self._pause
        if not self.idle:
            self._pause = min(2 * self._pause, self._poll)

    def should_idle(self, now: float) -> bool:
        """Whether it is time to ask writers to ring."""
        return not self.idle and self._empty_since is not None and now >= self._empty_since + _IDLE_AFTER_SECONDS

    def should_be_busy(self, now: float, *, room: int) -> bool:
        """Whether writers need not ring any more: there is more than can be begun, or nobody to begin it."""
        return self.idle and (self._empty_since is None or (room == 0 and now >= self.next_look_at))

    def went_idle(self, horizon: int, now: float) -> None:
        """The flag is set, and the transactions below `horizon` may have read the old one."""
        self.idle = True
        self._horizon, self._verify_until = horizon, now + _VERIFY_SECONDS_MAX
        self.next_look_at = now

    def went_busy(self) -> None:
        """The flag is taken back."""
        self.idle = False
        self._empty_since = None

    def rung(self, now: float) -> None:
        """Somebody rang, or there may be something for another reason."""
        self.next_look_at, self.hopeful = now, True
