"""A receiver whose answers are a script: for the tests of services that use the outbox, and for our own.

    receiver = ScriptedReceiver([lost_answer, Receipt(answer=Answer(200), receipt="r-1")])

Each attempt takes the next line; the last line is repeated. A line is an outcome, an exception to raise, or a function
of the attempt that returns one of the two (or awaits). What was asked is kept in `attempts` and `questions`; `effects`
counts, by sent key, receipts and the effects whose answers were lost (`lost_answer`).

As the transport `scripted` of a configuration, every attempt gets a receipt and every look finds what was delivered to
the same object: a dry run, in which nothing leaves the process.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from outbox import crashpoints
from outbox.evidence import Observation, Verdict
from outbox.outcome import Ambiguous, Answer, NotSent, Outcome, Receipt
from outbox.receivers import Attempt, Question, TooLate
from outbox.states import Cause

if TYPE_CHECKING:
    from outbox.contract import ReceiverConfig

T = TypeVar("T")
Line: TypeAlias = Outcome | Exception | Callable[[Attempt], "Outcome | Exception | Awaitable[Outcome | Exception]"]
Look: TypeAlias = Observation | Exception | Callable[[Question], Observation]


class ScriptedReceiver:
    """Delivers by script. It asks the gate as a real receiver does, so a late attempt is `NotSent` here too."""

    def __init__(self, script: Iterable[Line] = (), looks: Iterable[Look] = ()) -> None:
        self.attempts: list[Attempt] = []
        self.questions: list[Question] = []
        self.effects: Counter[str] = Counter()
        self.closed = False
        self._script = list(script)
        self._looks = list(looks)

    async def deliver(self, attempt: Attempt) -> Outcome:
        """The next line of the script; without one, a receipt."""
        self.attempts.append(attempt)
        gate = attempt.gate
        gate.sending()
        try:
            gate.check()
            crashpoints.reach("before_send")
        except TooLate as late:
            return NotSent(reason=f"too late to send: {late.reason}", cause=Cause.TOO_LATE)
        finally:
            gate.sent()
        line = _next(self._script)
        said = line(attempt) if callable(line) else line
        if inspect.isawaitable(said):
            try:
                async with asyncio.timeout(attempt.deadline_seconds):
                    said = await said
            except TimeoutError:
                return lost_request(attempt)
        if isinstance(said, Exception):
            raise said
        outcome = said or Receipt(answer=Answer(200), receipt=attempt.sent_key, external_id=attempt.sent_key)
        if isinstance(outcome, Receipt) or _lost_after_effect(outcome):
            self.effects[attempt.sent_key] += 1
        return outcome

    async def lookup(self, question: Question) -> Observation:
        """The next scripted look; without one, what this object delivered."""
        self.questions.append(question)
        look = _next(self._looks)
        if isinstance(look, Exception):
            raise look
        if look is not None:
            return look(question) if callable(look) else look
        if not self.effects[question.sent_key]:
            return Observation(verdict=Verdict.NOT_FOUND)
        return Observation(
            verdict=Verdict.CONFIRMED,
            external_id=question.sent_key,
            receipt=question.sent_key,
            duplicates=self.effects[question.sent_key] - 1,
        )

    async def aclose(self) -> None:
        """Nothing to close; may be called twice."""
        self.closed = True


LOST_AFTER_EFFECT = "the answer was lost after the effect"


def lost_answer(_: Attempt) -> Outcome:
    """A line: the effect happens, and its answer is lost."""
    return Ambiguous(reason=LOST_AFTER_EFFECT, cause=Cause.CONNECTION_LOST)


def lost_request(_: Attempt) -> Outcome:
    """A line: the request is lost, and nobody can know."""
    return Ambiguous(reason="no answer within the deadline", cause=Cause.TIMEOUT)


def open_scripted(name: str, config: "ReceiverConfig", *, reads_only: bool) -> ScriptedReceiver:  # noqa: ARG001
    """The factory of the transport `scripted`."""
    return ScriptedReceiver()


def _lost_after_effect(outcome: Outcome) -> bool:
    return isinstance(outcome, Ambiguous) and outcome.reason == LOST_AFTER_EFFECT


def _next(script: list[T]) -> T | None:
    """The next line; the last one stays."""
    return (script.pop(0) if len(script) > 1 else script[0]) if script else None
