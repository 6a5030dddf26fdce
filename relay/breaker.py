"""The circuit of one receiver in the database, and what its relay makes of it."""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from outbox.lease import boottime
from outbox.outcome import Ambiguous, NotSent, Outcome
from outbox.store import Store
from relay.circuit import MISSES_MAX, RIGHT_SECONDS, Change, Circuit, Signal, signal_of

# How often what others have done to an open circuit is read, and the right of a running probe renewed.
WATCH_SECONDS: Final = RIGHT_SECONDS / 5

Told = Callable[[Change, str], None]
"""Hears that the circuit opened or closed, and why."""


class Breaker:
    """
    One receiver's circuit, as this relay sees it. All of the process's lanes of that receiver share it.

    What is heard changes it at once and here; it is told to the database by whichever lane comes next. What others have
    told is taken in by `learn`. `told` hears of each change, whoever caused it.
    """

    def __init__(self, receiver_id: int, told: Told, jitter: Callable[[], float] = random.random) -> None:
        self.circuit = Circuit()
        self._receiver_id = receiver_id
        self._told = told
        self._jitter = jitter
        self._changes = 0
        self._news: tuple[Change, str] | None = None
        self._asking = False
        self._retry_date: object = None
        """From when the right to probe is given out, as it stood in the database when it was last read."""

    @property
    def is_open(self) -> bool:
        """Nothing begins but a probe."""
        return self.circuit.is_open

    # ------------------------------------------------------------------------------------------------ what was heard

    def heard(self, seq: int, outcome: Outcome) -> None:
        """Take in the end of an attempt."""
        change = self.circuit.heard(seq, signal_of(outcome), boottime(), self._jitter())
        if change is None:
            return
        self._changes += 1
        self._news = change, _reason(outcome)
        self._told(*self._news)

    async def tell(self, store: Store) -> None:
        """Say in the database what is not there yet. Raises as the store does; then it is said the next time."""
        news = self._news
        if news is None:
            return
        change, reason = news
        if change is Change.CLOSED:
            await store.dicts("close_circuit", receiver_id=self._receiver_id)
        else:
            await store.dicts(
                "open_circuit",
                receiver_id=self._receiver_id,
                again=change is Change.REOPENED,
                reason=reason,
                probes=self.circuit.probes,
                retry_seconds=max(0.0, self.circuit.retry_at - boottime()),
            )
        if self._news is news:
            self._news = None

    # -------------------------------------------------------------------------------------------------------- a probe

    async def may_probe(self, store: Store) -> bool:
        """
        Whether one lane, which asks, may begin one attempt now. If so, `circuit.release` follows in any case.

        Asks the database for the right where it is time to: of all relays one gets it.
        """
        if self.circuit.reserve(boottime()):
            return True
        if self._asking or self._news is not None or not self.circuit.wants_right(boottime()):
            return False
        self._asking = True
        asked_at, changes = boottime(), self._changes
        try:
            rows = await store.dicts("claim_probe", receiver_id=self._receiver_id, right_seconds=RIGHT_SECONDS)
        finally:
            self._asking = False
        if not rows or self._changes != changes:
            return False
        if not rows[0]["granted"]:
            self._learn(rows[0], asked_at)
            return False
        self._retry_date = rows[0]["retry_date"]
        self.circuit.granted(asked_at)
        return self.circuit.reserve(boottime())

    # ------------------------------------------------------------------------------------------- what others have said

    def mark(self) -> int:
        """A mark for `learn`: what is read after it may be older than what is heard from then on."""
        return self._changes

    def learn(self, row: Mapping[str, Any], mark: int, read_at: float) -> None:
        """Take in the row of `circuits`, unless something newer was heard here."""
        if self._news is None and self._changes == mark:
            self._learn(row, read_at)

    def _learn(self, row: Mapping[str, Any], read_at: float) -> None:
        if row["retry_date"] != self._retry_date:
            self._retry_date = row["retry_date"]
            self.circuit.hurried()
        change = self.circuit.learned(
            is_open=row["open"], probes=row["probes"], retry_at=read_at + row["retry_in_seconds"]
        )
        if change is not None:
            self._changes += 1
            self._told(change, row["reason"] or "another relay says so")


def _reason(outcome: Outcome) -> str:
    """Why it opened, for people. Nothing here quotes a receiver."""
    if signal_of(outcome) is not Signal.MISSED:
        return "it answers"
    status = outcome.answer.status
    last = f"HTTP {status}" if status is not None else ""
    if isinstance(outcome, NotSent | Ambiguous):
        last = last or outcome.reason
    return f"{MISSES_MAX} attempts in a row met nobody; the last one: {last}"
