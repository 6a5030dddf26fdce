"""The suite that third parties import finds every receiver that lies; a right one passes all of it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from outbox.evidence import Observation, Verdict
from outbox.outcome import Ambiguous, Answer, NotSent, Outcome, Receipt, Refused
from outbox.receivers import Attempt, Question, TooLate
from outbox.receivers.conformance import Bench, Gate, ReceiverConformance
from tests.support.attempts import attempt, question, receiver

CONFIG = receiver("", transport="scripted")
SECRET = "the-secret-of-a-test"


class World:
    """Where effects happen; it honours keys."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.next = ""

    def send(self, key: str) -> "asyncio.Future[str]":
        """A request; its answer comes later, or not."""
        self.requests[key] += 1
        act, self.next = self.next, ""
        answer = asyncio.get_running_loop().create_future()
        if act == "refuse":
            answer.set_result("refused")
            return answer
        self.effects[key] = 1
        if act == "lose":
            answer.set_exception(ConnectionResetError(f"{SECRET} was used"))
        elif act != "hang":
            answer.set_result(key)
        return answer

    def read(self, key: str) -> bool:
        act, self.next = self.next, ""
        if act == "break":
            raise ConnectionResetError
        return bool(self.effects[key])


class Right:
    """Keeps every rule."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def deliver(self, attempt: Attempt) -> Outcome:
        attempt.gate.sending()
        try:
            attempt.gate.check()
            answer = self._world.send(attempt.sent_key)
        except TooLate as late:
            return NotSent(reason=late.reason)
        finally:
            attempt.gate.sent()
        return await self._answered(attempt, answer)

    async def _answered(self, attempt: Attempt, answer: "asyncio.Future[str]") -> Outcome:
        try:
            async with asyncio.timeout(attempt.deadline_seconds):
                said = await answer
        except (TimeoutError, ConnectionError):
            return Ambiguous(reason="no answer")
        return Refused(answer=Answer(422)) if said == "refused" else Receipt(answer=Answer(200), receipt=said)

    async def lookup(self, question: Question) -> Observation:
        try:
            found = self._world.read(question.sent_key)
        except ConnectionError:
            return Observation(verdict=Verdict.UNKNOWN)
        return Observation(verdict=Verdict.CONFIRMED if found else Verdict.NOT_FOUND)

    async def aclose(self) -> None:
        pass

    def __repr__(self) -> str:
        return type(self).__name__


class RetriesInside(Right):
    async def _answered(self, attempt: Attempt, answer: "asyncio.Future[str]") -> Outcome:
        said = await super()._answered(attempt, answer)
        if isinstance(said, Ambiguous):
            said = await super()._answered(attempt, self._world.send(attempt.sent_key))
        return said


class RetriesInsideAndSaysNothing(Right):
    async def _answered(self, attempt: Attempt, answer: "asyncio.Future[str]") -> Outcome:
        said = await super()._answered(attempt, answer)
        if isinstance(said, Ambiguous):
            await super()._answered(attempt, self._world.send(attempt.sent_key))
        return said


class RaisesForALostAnswer(Right):
    async def _answered(self, attempt: Attempt, answer: "asyncio.Future[str]") -> Outcome:
        return Receipt(answer=Answer(200), receipt=await answer)


class CallsFailedWhatIsUnknown(Right):
    async def _answered(self, attempt: Attempt, answer: "asyncio.Future[str]") -> Outcome:
        said = await super()._answered(attempt, answer)
        return Refused(answer=Answer()) if isinstance(said, Ambiguous) else said


class CallsUnsentWhatIsUnknown(Right):
    async def _answered(self, attempt: Attempt, answer: "asyncio.Future[str]") -> Outcome:
        said = await super()._answered(attempt, answer)
        return NotSent(reason="timeout") if isinstance(said, Ambiguous) else said


class CallsUnknownWhatWasRefused(Right):
    async def _answered(self, attempt: Attempt, answer: "asyncio.Future[str]") -> Outcome:
        said = await super()._answered(attempt, answer)
        return Ambiguous(reason="?") if isinstance(said, Refused) else said


class SendsBeforeTheGate(Right):
    async def deliver(self, attempt: Attempt) -> Outcome:
        answer = self._world.send(attempt.sent_key)
        attempt.gate.sending()
        try:
            attempt.gate.check()
        except TooLate as late:
            return NotSent(reason=late.reason)
        finally:
            attempt.gate.sent()
        return await self._answered(attempt, answer)


class AsksNoGate(Right):
    async def deliver(self, attempt: Attempt) -> Outcome:
        return await self._answered(attempt, self._world.send(attempt.sent_key))


class WaitsForEver(Right):
    async def _answered(self, attempt: Attempt, answer: "asyncio.Future[str]") -> Outcome:
        said = await answer
        return Receipt(answer=Answer(200), receipt=said)


class SwallowsCancellation(Right):
    async def _answered(self, attempt: Attempt, answer: "asyncio.Future[str]") -> Outcome:
        try:
            return await super()._answered(attempt, answer)
        except asyncio.CancelledError:
            return Ambiguous(reason="cancelled")


class SaysWhatTheDriverSaid(Right):
    async def _answered(self, attempt: Attempt, answer: "asyncio.Future[str]") -> Outcome:
        try:
            return Receipt(answer=Answer(200), receipt=await answer)
        except ConnectionError as error:
            return Ambiguous(reason=str(error))


class ChangesTheKey(Right):
    async def deliver(self, attempt: Attempt) -> Outcome:
        attempt.gate.sending()
        attempt.gate.check()
        answer = self._world.send(f"{attempt.sent_key}-{attempt.attempt}")
        self._world.effects[attempt.sent_key] += 1
        attempt.gate.sent()
        return await self._answered(attempt, answer)


class CallsABrokenLookAbsence(Right):
    async def lookup(self, question: Question) -> Observation:
        seen = await super().lookup(question)
        return Observation(verdict=Verdict.NOT_FOUND) if seen.verdict is Verdict.UNKNOWN else seen


class ConfirmsAnything(Right):
    async def lookup(self, question: Question) -> Observation:
        self._world.read(question.sent_key)
        return Observation(verdict=Verdict.CONFIRMED if self._world.effects else Verdict.NOT_FOUND)


class LooksBySending(Right):
    async def lookup(self, question: Question) -> Observation:
        found = self._world.read(question.sent_key)
        self._world.send(question.sent_key)
        return Observation(verdict=Verdict.CONFIRMED if found else Verdict.NOT_FOUND)


class WorldBench(Bench):
    secrets = (SECRET,)

    def __init__(self, kind: type[Right]) -> None:
        self._world = World()
        self.receiver = kind(self._world)

    def attempt(self, sent_key: str, gate: Gate) -> Attempt:
        return attempt(CONFIG, sent_key=sent_key, gate=gate)

    def question(self, sent_key: str) -> Question:
        return question(CONFIG, sent_key=sent_key)

    async def effects(self, sent_key: str) -> int:
        return self._world.effects[sent_key]

    async def requests(self, sent_key: str) -> int:
        return self._world.requests[sent_key]

    async def lose_next_answer(self) -> None:
        self._world.next = "lose"

    async def refuse_next(self) -> None:
        self._world.next = "refuse"

    async def hang_next(self) -> None:
        self._world.next = "hang"

    async def break_next_look(self) -> None:
        self._world.next = "break"


def suite_for(kind: type[Right]) -> ReceiverConformance:
    class Suite(ReceiverConformance):
        @asynccontextmanager
        async def bench(self) -> AsyncIterator[Bench]:
            yield WorldBench(kind)

    return Suite()


CLAIMS = [name for name in dir(ReceiverConformance) if name.startswith("test_")]


@pytest.mark.parametrize("claim", CLAIMS)
async def test_a_right_receiver_breaks_no_claim(claim: str) -> None:
    await getattr(suite_for(Right), claim)()


WRONG: dict[type[Right], str] = {
    RetriesInside: "test_a_lost_answer_is_ambiguous_and_nothing_is_repeated",
    RetriesInsideAndSaysNothing: "test_a_lost_answer_is_ambiguous_and_nothing_is_repeated",
    RaisesForALostAnswer: "test_a_lost_answer_is_ambiguous_and_nothing_is_repeated",
    CallsFailedWhatIsUnknown: "test_silence_is_ambiguous_and_bounded",
    CallsUnsentWhatIsUnknown: "test_silence_is_ambiguous_and_bounded",
    CallsUnknownWhatWasRefused: "test_a_refusal_has_no_effect",
    SendsBeforeTheGate: "test_what_is_too_late_is_not_sent",
    AsksNoGate: "test_the_gate_is_asked_in_its_order_before_anything_happens",
    WaitsForEver: "test_silence_is_ambiguous_and_bounded",
    SwallowsCancellation: "test_a_cancelled_attempt_closes_its_bracket",
    SaysWhatTheDriverSaid: "test_it_says_no_secret_and_closes_twice",
    ChangesTheKey: "test_a_resend_under_the_same_key_has_no_second_effect",
    CallsABrokenLookAbsence: "test_a_look_that_fails_proves_nothing",
    ConfirmsAnything: "test_a_look_finds_what_happened_and_nothing_else",
    LooksBySending: "test_a_look_causes_nothing",
}


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
async def test_a_receiver_that_lies_is_found(kind: type[Right], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox.receivers.conformance.SILENCE_SECONDS_MAX", 3.0)
    with pytest.raises((AssertionError, ConnectionError)):
        await getattr(suite_for(kind), WRONG[kind])()
