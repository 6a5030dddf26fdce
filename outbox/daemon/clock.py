"""Whether the database's clock can be trusted to measure a window."""

from datetime import datetime

from outbox.observe import emit


class ClockWatch:
    """The database's clock, as this machine sees it.

    It is compared with CLOCK_BOOTTIME of this machine, which nobody sets. After a jump (a failover to a node whose
    clock is behind, an administrator) beyond a quarter of a window's margin, resends wait until that margin has passed:
    by then what the jump may have added to the window is over.
    """

    def __init__(self) -> None:
        self._offset: float | None = None
        self._jumps: list[tuple[float, float]] = []  # (boottime, seconds)

    def observe(self, database_now: datetime, sent_at: float, received_at: float) -> None:
        """Take in the database's time, asked for at `sent_at` and answered at `received_at` (boottime)."""
        offset = database_now.timestamp() - (sent_at + received_at) / 2
        uncertain = (received_at - sent_at) / 2
        if self._offset is not None:
            jump = abs(offset - self._offset) - uncertain
            if jump > 1.0:
                emit("clock_jumped", seconds=round(offset - self._offset, 3))
            if jump > 0:
                # The largest few are enough: smaller ones suspend nothing that these do not.
                self._jumps = sorted([*self._jumps, (received_at, jump)], key=lambda one: -one[1])[:8]
        self._offset = offset

    def suspends_resends(self, margin_seconds: float, now: float) -> bool:
        """Whether a resend of a tool with this margin must wait. A margin of zero has no window to protect."""
        return margin_seconds > 0 and any(
            jump > margin_seconds / 4 and now < at + margin_seconds for at, jump in self._jumps
        )
