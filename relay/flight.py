"""The attempts of one lane: those that wait for a slot, those that run, and those whose answer is not recorded yet."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from outbox.daemon import CANCEL_AGAIN_SECONDS
from outbox.deadline import CATCH_UP_SECONDS, STOOD_STILL_SECONDS
from outbox.lease import boottime
from outbox.observe import Meters, emit
from outbox.outcome import Ambiguous, NotSent, Outcome, Receipt
from outbox.states import Cause
from relay.attempt import Scene, attempt, followed, stopped
from relay.begun import Begun, Bound, Finished, Name
from relay.holding import Holding
from relay.shared import Memory
from relay.turns import Turns

# What one attempt is thought to take before any has ended, and how much the newest one counts afterwards.
_SECONDS_GUESSED: Final = 0.1
_NEWEST_PART: Final = 0.1
# Attempts that end at once are made in a row; after so many of them everybody else gets a turn.
_TURNS_MAX: Final = 50
# A receiver that goes on after so many cancellations is left behind; less than what the end of a relay waits for it.
_CANCELS_MAX: Final = 20
_TIMEOUT: Final = Ambiguous(reason="no end, long after the deadline", cause=Cause.TIMEOUT)


class Flight:
    """Attempts between their begin and their record.

    `ended` takes each one that is over, exactly once; `dropped` instead one of which nothing can be said.
    """

    def __init__(
        self,
        holding: Holding,
        meters: Meters,
        memory: Memory,
        *,
        scene: Callable[[], Scene],
        turns: Turns,
        ended: Callable[[Finished], None],
        dropped: Callable[[Begun], None],
    ) -> None:
        self.open: set[Name] = set()
        """Everything that was begun and is not recorded: two attempts of one operation, where the answer to the commit
        of the first was lost and the second has begun meanwhile."""
        self.abandoned: set[int] = set()
        """Of those that are no longer open: their answer could not be recorded."""
        self.turns = turns
        self._holding = holding
        self._meters = meters
        self._memory = memory
        self._scene = scene
        self._ended = ended
        self._dropped = dropped
        self._workers: set[asyncio.Task[None]] = set()
        self._running: dict[asyncio.Task[None], Bound] = {}
        self._fresh: asyncio.Task[None] | None = None
        """Somebody who was hired and has not begun."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._paced: asyncio.TimerHandle | None = None
        self._caught_up = False
        self._broken_off = False
        self.attempt_seconds = _SECONDS_GUESSED
        """What one attempt takes, lately."""

    def begin(self, rows: Iterable[Begun]) -> None:
        """These were exposed: from now on each of them has an end."""
        for begun in rows:
            self.open.add(begun.name)
            self._memory.attempts += 1

    def forget(self, name: Name) -> None:
        """This one is recorded, or nobody will ever hear of it."""
        if name in self.open:
            self.open.remove(name)
            self._memory.attempts -= 1

    def add(self, bound: Bound) -> None:
        """Start it as soon as a slot is free. What was on its way here when all was broken off does not start."""
        self.turns.add(bound)
        if self._broken_off:
            self.dismiss(stopped(sent=False))
        self.pump()

    def pump(self) -> None:
        """Start what waits, as far as slots and pace allow."""
        turns = self.turns
        if self._fresh is not None or not len(turns):
            return
        now = boottime()
        if not turns.may_start(now):
            turns.queue_up()
        elif turns.pace.room(now):
            self._fresh = asyncio.create_task(self._work())
            self._workers.add(self._fresh)
            self._fresh.add_done_callback(self._left)
        elif self._paced is None or self._paced.when() <= asyncio.get_running_loop().time():
            # Also of a lane that is closed, and has nobody else who would come back to it.
            later = turns.pace.free_at(now) - now
            self._paced = asyncio.get_running_loop().call_later(later, self.pump)

    def dismiss(self, outcome: Outcome) -> None:
        """End everything that waits, unsent."""
        for bound in self.turns.dismiss():
            self._end(followed(bound, outcome, self._scene().jitter()))
        self.turns.freed(boottime())

    def break_off(self) -> None:
        """End everything, at once: what has been sent is unknown, what has not is known not to have been."""
        self._broken_off = True
        self.dismiss(stopped(sent=False))
        for worker in list(self._workers):
            self._cancel(worker)

    # ------------------------------------------------------------------------------------------------------- workers

    async def _work(self) -> None:
        """
        Make one attempt after another, as one slot of this lane.

        Another worker is hired for what still waits, and gets its turn when this one has to wait for an answer. So a
        receiver that answers at once costs no task and no switch per attempt, and one that does not gets all slots.
        """
        self._fresh = None
        me = asyncio.current_task()
        assert me is not None  # noqa: S101 - a coroutine that runs as a task
        turns = 0
        while not me.cancelling() and (bound := self.turns.next(boottime(), again=turns > 0)) is not None:
            self.pump()
            self._running[me] = bound
            self._watch(bound.deadline_at)
            started = boottime()
            finished = await attempt(bound, self._scene())
            if self._running.pop(me, None) is None:
                return  # it was left behind
            self.turns.ended(bound)
            self.attempt_seconds += _NEWEST_PART * (boottime() - started - self.attempt_seconds)
            self._end(finished)
            turns += 1
            if turns % _TURNS_MAX == 0:
                await asyncio.sleep(0)
        self.turns.freed(boottime())  # before this lane's own next step: it has just had its turn

    def _left(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if worker is self._fresh:  # it was cancelled before its first step
            self._fresh = None
        bound = self._running.pop(worker, None)
        error = None if worker.cancelled() else worker.exception()
        if bound is not None:
            self.turns.ended(bound)
            if error is not None:
                emit("attempt_unforeseen", **bound.begun.names, error=type(error).__name__)
                self._dropped(bound.begun)
        self.turns.freed(boottime())
        self.pump()

    def _watch(self, until: float) -> None:
        """Wake up at that deadline, or earlier: one timer for all attempts, since almost all of them end before."""
        if self._timer is None or until < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = until
            self._timer = asyncio.get_running_loop().call_later(max(0.0, until - boottime()), self._give_up_late)

    def _give_up_late(self) -> None:
        self._timer = None
        now = boottime()
        if now - self._timer_at > STOOD_STILL_SECONDS and not self._caught_up:
            # This process stood still. Answers may lie in its sockets: they are read before anything is given up.
            self._caught_up = True
            self._timer_at = now + CATCH_UP_SECONDS
            self._timer = asyncio.get_running_loop().call_later(CATCH_UP_SECONDS, self._give_up_late)
            return
        self._caught_up = False
        for worker, bound in self._running.items():
            if bound.deadline_at > now:
                self._watch(bound.deadline_at)
            elif not worker.cancelling():
                self._cancel(worker)

    def _cancel(self, worker: "asyncio.Task[None]", times: int = _CANCELS_MAX) -> None:
        """Cancel it until it has ended: somebody's receiver, or a library, may swallow a cancellation."""
        if worker.done():
            return
        if times:
            worker.cancel()
            asyncio.get_running_loop().call_later(CANCEL_AGAIN_SECONDS, self._cancel, worker, times - 1)
            return
        # Its gate lets nothing begin any more. Of what it has sent nothing is known, and somebody else has its slot.
        self._workers.discard(worker)
        if (bound := self._running.pop(worker, None)) is not None:
            self.turns.ended(bound)
            emit("attempt_unforeseen", **bound.begun.names, reason="its receiver ignores cancellation")
            outcome = stopped(sent=True) if boottime() < bound.deadline_at else _TIMEOUT
            self._end(followed(bound, outcome, self._scene().jitter()))
        self.turns.freed(boottime())
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
            **begun.names,
            attempt=begun.attempt,
            outcome=type(outcome).__name__,
            cause=finished.transition.cause,
            reason=outcome.reason if isinstance(outcome, NotSent) else None,
            status=outcome.answer.status,
            request_id=outcome.answer.request_id,
            seconds=round(seconds, 3),
        )
