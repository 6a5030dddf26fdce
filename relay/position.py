"""
Where in its lane a holder is. Pure; it only ever decides where to look next, never what may begin.

The cursor stands behind everything that was claimed or seen, so that a full lane is read once and not from its start
each time: a million dead rows that a foreign snapshot holds back cost nothing. What lies behind it and can still begin
comes in three ways: own retries at their time, rows that somebody rang for, and the look-behind.

The look-behind starts at the floor, which lies below every row that is open or may still be committed. A sequence
number is given out before its transaction commits, so "the lowest open row" is no floor: a slower writer may hold a
lower one. It becomes the floor once every transaction that was running some time after it was seen has ended. A writer
that holds a number and no transaction id yet (the instant between the two inside one INSERT, or a process stopped
there) is what that "some time" is for, and what the rare look from zero finds in the end.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# How long after a floor was proposed the running transactions are written down.
FLOOR_DELAY_SECONDS: Final = 1.0
# How often the look-behind starts from zero, whatever the floor says.
DEEP_SECONDS: Final = 600.0
# Looking behind must not take more than this part of the time: one pass over a million dead rows takes 0.2 s.
_LOOK_BEHIND_PART: Final = 20
# Retries and rung rows that are remembered. More are not lost: the look-behind finds them.
REMEMBERED_MAX: Final = 10_000

TOP: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Range:
    """Sequence numbers after `after`, up to `upto`."""

    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class _Proposal:
    """A floor that holds once every transaction below `horizon` has ended (None: not written down yet)."""

    seq: int
    at: float
    horizon: int | None = None


class _Due:
    """What is due by name, or will be."""

    def __init__(self) -> None:
        self.rung: dict[int, None] = {}
        self._retries: list[tuple[float, int]] = []

    def retry_at(self, seq: int, at: float) -> None:
        if len(self._retries) < REMEMBERED_MAX:
            heapq.heappush(self._retries, (at, seq))

    def ring(self, seq: int) -> None:
        if len(self.rung) < REMEMBERED_MAX:
            self.rung[seq] = None

    def take(self, now: float, limit: int) -> list[int]:
        while self._retries and self._retries[0][0] <= now:
            self.rung[heapq.heappop(self._retries)[1]] = None
        chosen = list(self.rung)[:limit]
        for seq in chosen:
            del self.rung[seq]
        return chosen

    def next_at(self) -> float | None:
        if self.rung:
            return 0.0
        return self._retries[0][0] if self._retries else None


class Position:
    """The cursor of a lane, and what lies behind it. Times are `boottime()`."""

    def __init__(self, look_behind_seconds: float, now: float) -> None:
        self.cursor = 0
        self.floor = 0
        self._every = look_behind_seconds
        self._proposal: _Proposal | None = None
        self._behind: Range | None = None
        self._spent_seconds = 0.0
        self._next_pass_at = now + look_behind_seconds
        self._next_deep_at = now + DEEP_SECONDS
        # Apart what is of the crowd that fills the lane (`relay.crowd`): it does not go past it, and has other room.
        self._due = {False: _Due(), True: _Due()}
        self.reach = 0
        """The highest row that may execute without anybody who knows of it."""

    # --------------------------------------------------------------------------------------------------- the frontier

    def frontier(self) -> Range:
        """What was never seen."""
        return Range(self.cursor, TOP)

    def advanced(self, begun: list[int], limit: int, top: int | None) -> bool:
        """
        After a statement that could begin up to `limit` rows at the frontier: whether it left nothing to begin there.

        `top` is the highest open row that it saw. Rows below it that were not begun were not due, or locked: they lie
        behind the cursor from now on.
        """
        emptied = len(begun) < limit
        reached = [self.cursor, *begun]
        if emptied and top is not None:
            reached.append(top)
        self.cursor = max(reached)
        self.reach = max(self.reach, self.cursor)
        return emptied

    # ----------------------------------------------------------------------------------------------- retries and bells

    def retry_at(self, seq: int, at: float, *, of_crowd: bool = False) -> None:
        """Begin this one again at that time."""
        self._due[of_crowd].retry_at(seq, at)

    def ring(self, seq: int, *, of_crowd: bool = False) -> None:
        """Begin this one as soon as there is room: somebody made it due."""
        self._due[of_crowd].ring(seq)

    def due(self, now: float, limit: int, *, of_crowd: bool = False) -> list[int]:
        """Take what is due by name. Whatever cannot begin after all is left to the look-behind."""
        return self._due[of_crowd].take(now, max(0, limit))

    # ------------------------------------------------------------------------------------------------------- orphans

    def unheard(self, seqs: Iterable[int]) -> None:
        """These may execute without anybody who knows: begun by name, they may lie ahead of the cursor."""
        self.reach = max([self.reach, *seqs])

    def swept(self) -> None:
        """None of those is left: only what lies behind the cursor may be one from now on."""
        self.reach = self.cursor

    @property
    def remembered(self) -> int:
        """How many are due by name that are not known to be of the crowd."""
        return len(self._due[False].rung)

    def next_due_at(self, *, of_crowd: bool = False) -> float | None:
        """When something becomes due by name."""
        return self._due[of_crowd].next_at()

    # ------------------------------------------------------------------------------------------------- the look-behind

    def behind(self, now: float) -> Range | None:
        """What to look through now, behind the cursor; None: nothing, or not yet."""
        if self._behind is None and now >= self._next_pass_at:
            self._spent_seconds = 0.0
            if now >= self._next_deep_at:
                self.floor, self._proposal = 0, None
                self._next_deep_at = now + DEEP_SECONDS
            if self.floor > self.cursor:
                self.rested(now)
                return None
            self._behind = Range(self.floor - 1, self.cursor)
        return self._behind

    def looked(self, begun: list[int], limit: int, seconds: float) -> bool:
        """After a statement of so many seconds could begin up to `limit` rows there: whether the pass is at its end."""
        self._spent_seconds += seconds
        if self._behind is not None and len(begun) >= limit:
            self._behind = Range(begun[-1], self._behind.upto)
            return False
        self._behind = None
        return True

    def rested(self, now: float) -> None:
        """A pass has ended: plan the next one."""
        self._next_pass_at = now + max(self._every, _LOOK_BEHIND_PART * self._spent_seconds)

    def next_pass_at(self) -> float:
        """When to look behind again; at once while a pass is not at its end."""
        return 0.0 if self._behind is not None else self._next_pass_at

    def bounds_seen(self, lowest: int | None, xmin: int, xmax: int, now: float) -> None:
        """
        Raise the floor as far as it is certain.

        `lowest` is the lowest open row at or above the floor; transactions below `xmin` had ended by then, those from
        `xmax` on had not begun.
        """
        open_from = self.cursor + 1 if lowest is None else min(lowest, self.cursor + 1)
        proposal = self._proposal
        if proposal is not None and proposal.horizon is not None and xmin >= proposal.horizon:
            self.floor = max(self.floor, min(proposal.seq, open_from))
            proposal = None
        if proposal is None:
            self._proposal = _Proposal(open_from, now) if open_from > self.floor else None
        elif proposal.horizon is None and now >= proposal.at + FLOOR_DELAY_SECONDS:
            self._proposal = _Proposal(proposal.seq, proposal.at, xmax)
