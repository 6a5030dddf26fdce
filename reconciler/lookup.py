"""
Asking receivers what happened: reading only, each receiver on its own.

A read that fails proves nothing, so whatever goes wrong here is an `unknown` verdict and no error. A receiver that does
not answer is left alone for a while, so that asking costs neither it nor us much; its operations go on being counted,
decided and, in the end, handed to a person, on their own dates.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from outbox import crashpoints
from outbox.contract import ReceiverConfig, Wiring
from outbox.daemon import cancelled
from outbox.errors import OutboxError, Problem, ReceiverError
from outbox.evidence import Observation, Verdict
from outbox.lease import boottime
from outbox.observe import Meters
from outbox.receivers import Question, Receiver

# So many failures in a row, over whatever operations, are the receiver's and not an operation's.
FAILURES_BEFORE_PAUSE: Final = 5
PAUSE_SECONDS_FIRST: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0
# A receiver bounds its look by itself; one that does not is cut off this much later.
CUT_OFF_SECONDS: Final = 2.0
CANCEL_SECONDS_MAX: Final = 1.0

# Answers to a read that speak of the receiver or of our credential, and not of the operation that was asked about.
_NOT_ABOUT_THE_OPERATION: Final = frozenset({401, 403, 408, 429})

OpenForReading = Callable[[str, ReceiverConfig], Receiver]


def refusal(name: str, config: ReceiverConfig, *, lookups: bool) -> Problem | None:
    """
    Why a reconciler must not ask this receiver: it could only do so with a credential that can cause effects.

    `lookups`: some tool of it has a look-up. References are compared, never secrets: `auth` is not resolved here.
    """
    if not lookups or config.auth is None or config.shared_credential:
        return None
    if config.read_auth is None:
        message = "a tool needs look-ups, and the receiver has no read_auth"
    elif config.read_auth.shares_power_with(config.auth):
        message = "read_auth holds the `secret` of auth, or auth that of read_auth"
    else:
        return None
    advice = "write one that can only read, or shared_credential = true"
    return Problem(f"receivers.{name}", f"{message}; {advice}", "no_read_auth")


def receivers_that_look(wirings: Mapping[str, Wiring]) -> frozenset[str]:
    """Names of the receivers of which some tool can be asked what happened."""
    return frozenset(wiring.receiver.name for wiring in wirings.values() if wiring.lookup is not None)


@dataclass(slots=True)
class Patience:
    """When a receiver that does not answer is asked again. Times are seconds of one clock that never runs back."""

    failures: int = 0
    asked_again_at: float = 0.0

    @property
    def exhausted(self) -> bool:
        """The receiver has failed so often in a row that it is left alone between single attempts to reach it."""
        return self.failures >= FAILURES_BEFORE_PAUSE

    def may_ask(self, now: float) -> bool:
        """Whether to ask now. While the receiver is left alone, one caller per pause is told yes."""
        if not self.exhausted:
            return True
        if now < self.asked_again_at:
            return False
        self.asked_again_at = now + self._pause_seconds()
        return True

    def answered(self) -> None:
        """It has said something about an operation."""
        self.failures = 0

    def failed(self, now: float) -> None:
        """It has not."""
        self.failures += 1
        if self.exhausted:
            self.asked_again_at = now + self._pause_seconds()

    def _pause_seconds(self) -> float:
        # The exponent is cut long before a float overflows.
        doublings = min(self.failures - FAILURES_BEFORE_PAUSE, 32)
        return min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_FIRST * 2.0**doublings)


@dataclass(slots=True)
class _Reader:
    """One receiver, open for reading; or the reason why it is not."""

    config: ReceiverConfig
    receiver: Receiver | None
    problem: str = ""
    patience: Patience = field(default_factory=Patience)
    asking: int = 0
    retired: bool = False


class Readers:
    """The receivers by name, open for reading only."""

    def __init__(self, open_for_reading: OpenForReading, meters: Meters, clock: Callable[[], float] = boottime) -> None:
        self._open = open_for_reading
        self._meters = meters
        self._clock = clock
        self._readers: dict[str, _Reader] = {}

    async def configure(self, configs: Mapping[str, ReceiverConfig], looking: frozenset[str]) -> list[Problem]:
        """
        Take a new configuration, and return why some of those that are looked at cannot be asked.

        An unchanged receiver keeps its connections; a changed one is closed once it has answered what it was asked.
        """
        problems: list[Problem] = []
        for name in self._readers.keys() - configs.keys():
            await self._retire(self._readers.pop(name))
        for name, config in configs.items():
            refused = refusal(name, config, lookups=name in looking)
            known = self._readers.get(name)
            if known is None or known.config != config or (known.receiver is None) != (refused is not None):
                if known is not None:
                    await self._retire(known)
                known = self._readers[name] = self._opened(name, config, refused)
            if known.problem and name in looking:
                problems.append(refused or Problem(f"receivers.{name}", known.problem, "not_opened"))
        return problems

    async def aclose(self) -> None:
        """Close all connections."""
        for reader in self._readers.values():
            await self._retire(reader)
        self._readers.clear()

    async def ask(self, name: str, question: Question) -> Observation:
        """Look once. What goes wrong is said in the note of an `unknown` verdict; only cancellation is raised."""
        reader = self._readers.get(name)
        if reader is None or reader.receiver is None:
            return self._skipped(name, reader.problem if reader else "the receiver is not known here")
        if not reader.patience.may_ask(self._clock()):
            return self._skipped(name, f"the receiver failed {reader.patience.failures} times in a row")
        reader.asking += 1
        started = self._clock()
        try:
            crashpoints.reach("before_lookup")
            observation = await _bounded(reader.receiver, question)
            crashpoints.reach("after_lookup")
        finally:
            reader.asking -= 1
            if reader.retired and not reader.asking:
                await reader.receiver.aclose()
        now = self._clock()
        self._meters.count("looks", receiver=name, verdict=observation.verdict)
        self._meters.observe("look_seconds", now - started, receiver=name)
        if _is_about_the_operation(observation):
            reader.patience.answered()
        else:
            reader.patience.failed(now)
        return observation

    def _skipped(self, name: str, reason: str) -> Observation:
        self._meters.count("looks_skipped", receiver=name)
        return _unknown(f"not asked: {reason}")

    def _opened(self, name: str, config: ReceiverConfig, refused: Problem | None) -> _Reader:
        if refused is not None:
            return _Reader(config, None, refused.message)
        try:
            return _Reader(config, self._open(name, config))
        except ReceiverError as error:
            return _Reader(config, None, error.message)

    async def _retire(self, reader: _Reader) -> None:
        reader.retired = True
        if reader.receiver is not None and not reader.asking:
            await reader.receiver.aclose()


async def _bounded(receiver: Receiver, question: Question) -> Observation:
    """One look that ends in time and raises nothing, whoever wrote the receiver."""
    loop = asyncio.get_running_loop()
    look, over = asyncio.ensure_future(receiver.lookup(question)), loop.create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    # What asyncio.wait does, at a third of its price.
    look.add_done_callback(end)
    cut_off = loop.call_later(question.deadline_seconds + CUT_OFF_SECONDS, end)
    try:
        await over
    finally:
        cut_off.cancel()
        await cancelled(look, within_seconds=CANCEL_SECONDS_MAX)
    if not look.done() or look.cancelled():
        return _unknown(f"no answer within {question.deadline_seconds:g} s")
    error = look.exception()
    if error is None:
        return look.result()
    # The messages of our own errors hold no data of a tenant; what others say of themselves may.
    return _unknown(error.message if isinstance(error, OutboxError) else f"the look failed: {type(error).__name__}")


def _is_about_the_operation(observation: Observation) -> bool:
    status = observation.answer.status
    if observation.verdict is not Verdict.UNKNOWN:
        return True
    return status is not None and status < 500 and status not in _NOT_ABOUT_THE_OPERATION  # noqa: PLR2004 - server errors


def _unknown(note: str) -> Observation:
    return Observation(verdict=Verdict.UNKNOWN, note=note)
