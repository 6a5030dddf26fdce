"""
When a receiver that does not answer is left alone, and who tries it again. Pure.

    closed     attempts begin.
    open       several attempts in a row, over different operations, met nobody. Nothing begins until `retry_at`.
    half-open  somebody has the right to one probe: an ordinary attempt, with every check. An answer closes the
               circuit, whatever it says; another miss opens it again, for longer.

There is one circuit per receiver, not per process: its state stands in `outbox.receiver`, the right to probe is given
out there, and each relay keeps here what it knows of it. Operations that do not begin stay where they are, before the
cursor and without an attempt: an outage costs no doubt and no person's time.
"""

from enum import Enum, auto
from typing import Final, assert_never

from outbox.outcome import (
    Accepted,
    Ambiguous,
    InFlight,
    Mismatch,
    NotSent,
    Outcome,
    Receipt,
    ReceiverFault,
    Refused,
    StaleFence,
    StoredFailure,
    Throttled,
)
from outbox.states import Cause

# So many misses in a row over different operations, and none answered between them, are the receiver's.
MISSES_MAX: Final = 5
# The first wait after it opened, and the longest: an outage that ends is noticed within a minute.
RETRY_SECONDS_FIRST: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0
# A right to probe lasts so long, and is renewed while its probe runs. After the death of its holder others have it.
RIGHT_SECONDS: Final = 10.0
# A probe begins early in that time, so that the renewal comes before the end of it.
USE_SECONDS: Final = RIGHT_SECONDS / 2
# Whoever had the right and nothing to begin leaves it to others for a while.
POLITE_SECONDS: Final = 1.5 * RIGHT_SECONDS

_SERVER_ERRORS: Final = 500


class Signal(Enum):
    """What an attempt says of the receiver, whatever it says of its operation."""

    ANSWERED = auto()
    """It is there: it said something about an operation, or about us."""
    MISSED = auto()
    """Nobody was there, or only a proxy in front of it, or it failed itself."""
    NOTHING = auto()
    """It was not asked."""


def signal_of(outcome: Outcome) -> Signal:
    """What an outcome says of the receiver."""
    match outcome:
        case NotSent():
            if outcome.unreachable:
                return Signal.MISSED
            return Signal.NOTHING if outcome.answer.status is None else Signal.ANSWERED
        case Ambiguous():
            return _signal_of_silence(outcome)
        case Receipt() | Accepted() | Refused() | Throttled() | InFlight() | Mismatch() | StoredFailure():
            return Signal.ANSWERED
        case ReceiverFault() | StaleFence():
            return Signal.ANSWERED
    assert_never(outcome)


def _signal_of_silence(outcome: Ambiguous) -> Signal:
    if outcome.answer.status is not None:
        return Signal.MISSED if outcome.answer.status >= _SERVER_ERRORS else Signal.ANSWERED
    return Signal.MISSED if outcome.cause in {Cause.TIMEOUT, Cause.CONNECTION_LOST} else Signal.NOTHING


def retry_seconds(probes: int, jitter: float) -> float:
    """How long to wait after so many failed probes: between half and all of a pause that doubles up to its bound."""
    # The exponent is cut long before a float overflows.
    pause = min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * 2.0 ** min(probes, 32))
    return pause * (0.5 + 0.5 * jitter)


class Change(Enum):
    """What others must hear of."""

    OPENED = auto()
    REOPENED = auto()
    CLOSED = auto()


class Circuit:
    """What one relay knows of the circuit of one receiver. Times are `boottime()`."""

    def __init__(self) -> None:
        self.is_open = False
        self.probes = 0
        """How many probes have failed since it opened."""
        self.retry_at = 0.0
        """While it is open: from when the right to probe is given out."""
        self._misses: set[int] = set()
        self._right_until = 0.0
        self._polite_until = 0.0
        self._reserved = False
        self._probe: int | None = None

    # ------------------------------------------------------------------------------------------------ what was heard

    def heard(self, seq: int, signal: Signal, now: float, jitter: float) -> Change | None:
        """Take in the end of an attempt. Whoever began before it opened may still close it, but not open it further."""
        is_probe = self._probe == seq
        if is_probe:
            self._probe = None
        if signal is Signal.ANSWERED:
            self._misses.clear()
            return self._close()
        if self.is_open:
            if is_probe and signal is Signal.MISSED:
                return self._reopen(now, jitter)
            if is_probe:
                self.retry_at = now
            return None
        if signal is Signal.MISSED:
            self._misses.add(seq)
            if len(self._misses) >= MISSES_MAX:
                return self._open(now, jitter)
        return None

    def dropped(self, seq: int) -> None:
        """Nothing will be heard of this attempt."""
        if self._probe == seq:
            self._probe = None

    def _close(self) -> Change | None:
        if not self.is_open:
            return None
        self.is_open, self.probes, self._probe = False, 0, None
        self._right_until = self._polite_until = 0.0
        return Change.CLOSED

    def _open(self, now: float, jitter: float) -> Change:
        self._misses.clear()
        self.is_open, self.probes = True, 0
        self.retry_at = now + retry_seconds(0, jitter)
        return Change.OPENED

    def _reopen(self, now: float, jitter: float) -> Change:
        self.probes += 1
        self.retry_at = now + retry_seconds(self.probes, jitter)
        return Change.REOPENED

    # ------------------------------------------------------------------------------------------------------- the probe

    @property
    def probing(self) -> bool:
        """A probe of ours runs."""
        return self._probe is not None

    def has_right(self, now: float) -> bool:
        """Whether a probe may begin now: by us, and by nobody else."""
        return self.is_open and not self.probing and now < self._right_until

    def wants_right(self, now: float) -> bool:
        """Whether it is time to ask for the right to probe."""
        return self.is_open and not self.probing and now >= max(self.retry_at, self._right_until, self._polite_until)

    def granted(self, asked_at: float) -> None:
        """The right is ours, counted from before it was asked for. If nothing comes of it, others have it next."""
        self._right_until = asked_at + USE_SECONDS
        self._polite_until = asked_at + POLITE_SECONDS

    def reserve(self, now: float) -> bool:
        """One lane of ours takes the right; until it has begun a probe or released it, no other lane can."""
        if self._reserved or not self.has_right(now):
            return False
        self._reserved = True
        return True

    def began(self, seq: int) -> None:
        """The lane that had reserved the right has begun this attempt."""
        self._probe = seq
        self._right_until = self._polite_until = 0.0

    def release(self) -> None:
        """It is done; if it had nothing to begin, the right goes to the next lane that asks."""
        self._reserved = False

    # ------------------------------------------------------------------------------------------- what others have said

    def learned(self, *, is_open: bool, probes: int, retry_at: float) -> Change | None:
        """Take in what stands in the database."""
        if not is_open:
            return self._close()
        was_open, self.is_open = self.is_open, True
        self.probes, self.retry_at = probes, retry_at
        self._misses.clear()
        return None if was_open else Change.OPENED

    def hurried(self) -> None:
        """Somebody has set another date, such as a person who resumes it: nothing is left to others any more."""
        self._polite_until = 0.0
