"""The attempts of one lane: those that wait for a slot, those that run, and those whose answer is not recorded yet."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from outbox.lease import boottime
from outbox.observe import Meters, emit
from outbox.outcome import NotSent, Outcome, Receipt
from relay.attempt import Scene, attempt, followed, stopped
from relay.begun import Begun, Bound, Finished
from relay.holding import Holding
from relay.share import Pace
from relay.shared import Memory

# What one attempt is thought to take before any has ended, and how much the newest one counts afterwards.
_SECONDS_GUESSED: Final = 0.1
_NEWEST_PART: Final = 0.1
# Claiming ahead must not eat the deadline, which counts from the begin: a row waits for a slot at most this part of it.
_AHEAD_PART: Final = 0.25


class Flight:
    """Attempts between their begin and their record.

    `ended` takes each one that is over, exactly once; `dropped` instead the seq of one of which nothing can be said.
    """

    def __init__(
        self,
        holding: Holding,
        meters: Meters,
        memory: Memory,
        *,
        scene: Callable[[], Scene],
        slots: int,
        pace: Pace,
        ended: Callable[[Finished], None],
        dropped: Callable[[int], None],
    ) -> None:
        self.open: dict[int, int] = {}
        """Attempt by seq: everything that was begun and is not recorded."""
        self.abandoned: set[int] = set()
        """Of those that are no longer open: their answer could not be recorded."""
        self.slots = slots
        self.pace = pace
        self._holding = holding
        self._meters = meters
        self._memory = memory
        self._scene = scene
        self._ended = ended
        self._dropped = dropped
        self._waiting: deque[Bound] = deque()
        self._running: dict[asyncio.Task[Finished], tuple[Bound, float]] = {}
        self._seconds = _SECONDS_GUESSED

    @property
    def free_slots(self) -> int:
        """How many more could run right now."""
        return self.slots - len(self._running) - len(self._waiting)

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiting)

    def ahead(self, deadline_seconds: float) -> int:
        """How many may wait for a slot, if each is to get one long before its deadline."""
        return max(self.slots, int(self.slots * _AHEAD_PART * deadline_seconds / self._seconds))

    def begin(self, rows: Iterable[Begun]) -> None:
        """These were exposed: from now on each of them has an end."""
        for begun in rows:
            self.open[begun.seq] = begun.attempt
            self._memory.attempts += 1

    def forget(self, seq: int) -> None:
        """This one is recorded, or nobody will ever hear of it."""
        if self.open.pop(seq, None) is not None:
            self._memory.attempts -= 1

    def add(self, bound: Bound) -> None:
        """Start it as soon as a slot is free."""
        self._waiting.append(bound)
        self.pump()

    def pump(self) -> None:
        """Start what waits, as far as slots and pace allow."""
        while self._waiting and len(self._running) < self.slots and self.pace.take(boottime()):
            bound = self._waiting.popleft()
            task = asyncio.create_task(attempt(bound, self._scene()))
            self._running[task] = bound, boottime()
            task.add_done_callback(self._over)

    def dismiss(self, outcome: Outcome) -> None:
        """End everything that waits, unsent."""
        while self._waiting:
            self._end(followed(self._waiting.popleft(), outcome, self._scene().jitter()))

    def break_off(self) -> None:
        """End everything, at once: what has been sent is unknown, what has not is known not to have been."""
        self.dismiss(stopped(sent=False))
        for task in self._running:
            task.cancel()

    def _over(self, task: asyncio.Task[Finished]) -> None:
        bound, started = self._running.pop(task)
        if task.cancelled():  # before its first step: no line of it has run
            self._end(followed(bound, stopped(sent=False), self._scene().jitter()))
        elif (error := task.exception()) is not None:
            emit("attempt_unforeseen", seq=bound.begun.seq, tool=bound.begun.tool, error=type(error).__name__)
            self._dropped(bound.begun.seq)
        else:
            self._seconds += _NEWEST_PART * (boottime() - started - self._seconds)
            self._end(task.result())
        self.pump()

    def _end(self, finished: Finished) -> None:
        self._report(finished)
        self._ended(finished)

    def _report(self, finished: Finished) -> None:
        begun, outcome = finished.begun, finished.outcome
        seconds = boottime() - begun.sent_at
        receiver = self._holding.receiver
        self._meters.count("attempts", receiver=receiver, outcome=type(outcome).__name__)
        self._meters.observe("attempt_seconds", seconds, receiver=receiver)
        if isinstance(outcome, Receipt):
            return
        emit(
            "attempt_failed",
            receiver=receiver,
            tool=begun.tool,
            seq=begun.seq,
            attempt=begun.attempt,
            outcome=type(outcome).__name__,
            cause=finished.transition.cause,
            reason=outcome.reason if isinstance(outcome, NotSent) else None,
            status=outcome.answer.status,
            request_id=outcome.answer.request_id,
            seconds=round(seconds, 3),
        )
