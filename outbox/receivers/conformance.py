"""What every receiver must keep, as a suite that yours can run too.

    from outbox.receivers.conformance import Bench, ReceiverConformance

    class TestMine(ReceiverConformance):
        @asynccontextmanager
        async def bench(self) -> AsyncIterator[Bench]:
            yield MyBench(...)

pytest collects the tests from your subclass (with pytest-asyncio in its auto mode). A `Bench` is a receiver, a way to
make attempts for it, and a judge: how many effects there *really* were, counted where they happen and not by the
receiver under test. What a receiver cannot do (deduplicate, be asked) its bench says, and those tests are skipped.
"""

import asyncio
import unittest
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import get_args

from outbox.evidence import Observation, Verdict
from outbox.outcome import Ambiguous, NotSent, Outcome, Receipt, Refused
from outbox.receivers import Attempt, Question, Receiver, TooLate

# A receiver ends an attempt by its deadline. What has not ended so long after it never will.
SILENCE_SECONDS_MAX = 20.0
KEY = "8e03978e-40d5-53dd-8c93-6894a57f9324"
OTHER_KEY = "0f6b2c3d-1a2b-5c4d-8e5f-60718293a4b5"


class Gate:
    """Remembers what it was asked, and refuses if it is told to."""

    def __init__(self, refusal: str | None = None) -> None:
        self.calls: list[str] = []
        self._refusal = refusal

    def sending(self) -> None:
        """See `outbox.receivers.Gate`."""
        self.calls.append("sending")

    def check(self) -> None:
        """See `outbox.receivers.Gate`."""
        self.calls.append("check")
        if self._refusal is not None:
            raise TooLate(self._refusal)

    def sent(self) -> None:
        """See `outbox.receivers.Gate`."""
        self.calls.append("sent")


class Bench(ABC):
    """A receiver under test and its judge."""

    receiver: Receiver
    honours_keys = True
    """A second request with the same key has no second effect."""
    can_look = True
    """Its tool has a look-up that finds effects at once, and whose "not found" is said clearly."""
    secrets: tuple[str, ...] = ()
    """What the receiver was given to prove who it is."""

    @abstractmethod
    def attempt(self, sent_key: str, gate: Gate) -> Attempt:
        """A first attempt whose effect is identified by this key."""

    @abstractmethod
    def question(self, sent_key: str) -> Question:
        """The question what happened under this key."""

    @abstractmethod
    async def effects(self, sent_key: str) -> int:
        """How many effects there were, says whoever had them."""

    @abstractmethod
    async def requests(self, sent_key: str) -> int:
        """How many requests for an effect arrived, also those that had none, says the same judge."""

    @abstractmethod
    async def lose_next_answer(self) -> None:
        """The next request has its effect, and its answer is lost."""

    @abstractmethod
    async def refuse_next(self) -> None:
        """The next request is refused for good, without effect."""

    @abstractmethod
    async def hang_next(self) -> None:
        """The next request has its effect, and is never answered."""

    @abstractmethod
    async def break_next_look(self) -> None:
        """The next look fails: by an error, a refusal or silence. Not called where `can_look` is false."""


class ReceiverConformance:
    """Subclass it, and say what `bench` is."""

    def bench(self) -> AbstractAsyncContextManager[Bench]:
        """A bench of its own for each test, closed afterwards."""
        raise NotImplementedError

    async def test_a_success_is_one_effect_and_a_receipt(self) -> None:
        """The plain case."""
        async with self.bench() as bench:
            outcome = await bench.receiver.deliver(bench.attempt(KEY, Gate()))
            _expect(isinstance(outcome, Receipt), "a success is a receipt", outcome)
            _expect(await bench.effects(KEY) == 1, "it has one effect")

    async def test_the_gate_is_asked_in_its_order_before_anything_happens(self) -> None:
        """First the switch, then the check, then bytes, then the end of the bracket."""
        async with self.bench() as bench:
            gate = Gate()
            await bench.receiver.deliver(bench.attempt(KEY, gate))
            _expect(gate.calls == ["sending", "check", "sent"], "the gate is asked in order", gate.calls)

    async def test_what_is_too_late_is_not_sent(self) -> None:
        """TooLate from the last check: no effect, and the outcome says that nothing left."""
        async with self.bench() as bench:
            gate = Gate("the lease is over")
            outcome = await bench.receiver.deliver(bench.attempt(KEY, gate))
            _expect(isinstance(outcome, NotSent), "too late is NotSent", outcome)
            _expect(gate.calls.count("sent") == gate.calls.count("sending"), "every bracket is closed", gate.calls)
            _expect(await bench.effects(KEY) == 0, "it has no effect")

    async def test_a_lost_answer_is_ambiguous_and_nothing_is_repeated(self) -> None:
        """One attempt is one request, also when its answer is lost."""
        async with self.bench() as bench:
            await bench.lose_next_answer()
            outcome = await bench.receiver.deliver(bench.attempt(KEY, Gate()))
            _expect(isinstance(outcome, Ambiguous), "a lost answer is Ambiguous", outcome)
            _expect(await bench.requests(KEY) == 1, "the request was sent once")
            _expect(await bench.effects(KEY) == 1, "it has one effect")

    async def test_silence_is_ambiguous_and_bounded(self) -> None:
        """No answer within the deadline; no further wait."""
        async with self.bench() as bench:
            await bench.hang_next()
            made = bench.attempt(KEY, Gate())._replace(deadline_seconds=1.0)
            try:
                async with asyncio.timeout(SILENCE_SECONDS_MAX):
                    outcome = await bench.receiver.deliver(made)
            except TimeoutError:
                raise AssertionError("claim broken: an attempt ends by its deadline") from None
            _expect(isinstance(outcome, Ambiguous), "silence is Ambiguous", outcome)
            _expect(await bench.requests(KEY) == 1, "the request was sent once")

    async def test_a_cancelled_attempt_closes_its_bracket(self) -> None:
        """Whoever cancels learns from the gate whether bytes may have left."""
        async with self.bench() as bench:
            await bench.hang_next()
            gate = Gate()
            task = asyncio.create_task(bench.receiver.deliver(bench.attempt(KEY, gate)))
            await _until(lambda: "sent" in gate.calls)
            task.cancel()
            ended = (await asyncio.gather(task, return_exceptions=True))[0]
            _expect(isinstance(ended, asyncio.CancelledError), "a cancellation is passed on", ended)
            _expect(gate.calls.count("sent") == gate.calls.count("sending"), "every bracket is closed", gate.calls)

    async def test_a_refusal_has_no_effect(self) -> None:
        """Only what certainly did not happen is called refused."""
        async with self.bench() as bench:
            await bench.refuse_next()
            outcome = await bench.receiver.deliver(bench.attempt(KEY, Gate()))
            _expect(isinstance(outcome, Refused), "a refusal is Refused", outcome)
            _expect(await bench.effects(KEY) == 0, "it has no effect")

    async def test_a_resend_under_the_same_key_has_no_second_effect(self) -> None:
        """The key travels, and it is the same one."""
        async with self.bench() as bench:
            if not bench.honours_keys:
                raise unittest.SkipTest("this receiver does not honour keys")
            await bench.lose_next_answer()
            await bench.receiver.deliver(bench.attempt(KEY, Gate()))
            again = bench.attempt(KEY, Gate())._replace(attempt=2, resend=True)
            outcome = await bench.receiver.deliver(again)
            _expect(isinstance(outcome, Receipt), "the resend is answered with the receipt", outcome)
            _expect(await bench.effects(KEY) == 1, "there is one effect")

    async def test_a_look_finds_what_happened_and_nothing_else(self) -> None:
        """Confirmed means that our own identity was seen; not found means that the receiver said so."""
        async with self.bench() as bench:
            _must_look(bench)
            before = await bench.receiver.lookup(bench.question(KEY))
            _expect(before.verdict is Verdict.NOT_FOUND, "nothing is there before", before)
            await bench.lose_next_answer()
            await bench.receiver.deliver(bench.attempt(KEY, Gate()))
            after = await bench.receiver.lookup(bench.question(KEY))
            _expect(after.verdict is Verdict.CONFIRMED, "the effect is found", after)
            _expect(after.duplicates == 0, "it is found once", after)
            other = await bench.receiver.lookup(bench.question(OTHER_KEY))
            _expect(other.verdict is Verdict.NOT_FOUND, "another operation is not confirmed by it", other)

    async def test_a_look_that_fails_proves_nothing(self) -> None:
        """It is no "not found", and nothing is raised."""
        async with self.bench() as bench:
            _must_look(bench)
            await bench.lose_next_answer()
            await bench.receiver.deliver(bench.attempt(KEY, Gate()))
            await bench.break_next_look()
            seen = await bench.receiver.lookup(bench.question(KEY))
            _expect(seen.verdict is Verdict.UNKNOWN, "a look that fails is unknown", seen)

    async def test_a_look_causes_nothing(self) -> None:
        """However often."""
        async with self.bench() as bench:
            _must_look(bench)
            for _ in range(3):
                await bench.receiver.lookup(bench.question(KEY))
            _expect(await bench.requests(KEY) == 0, "looking asks for no effect")
            _expect(await bench.effects(KEY) == 0, "looking has no effect")

    async def test_attempts_at_once_do_not_mix(self) -> None:
        """Each answer belongs to its own attempt."""
        async with self.bench() as bench:
            keys = [f"{KEY[:-2]}{number:02x}" for number in range(16)]
            deliver, attempt = bench.receiver.deliver, bench.attempt
            outcomes = await asyncio.gather(*(deliver(attempt(key, Gate())) for key in keys))
            _expect(all(isinstance(outcome, Receipt) for outcome in outcomes), "all succeed", outcomes)
            _expect([await bench.effects(key) for key in keys] == [1] * len(keys), "each has one effect")

    async def test_outcomes_and_observations_are_of_the_closed_set(self) -> None:
        """A receiver invents no answers."""
        async with self.bench() as bench:
            outcome = await bench.receiver.deliver(bench.attempt(KEY, Gate()))
            _expect(type(outcome) in get_args(Outcome), "the outcome is of the closed set", outcome)
            seen = await bench.receiver.lookup(bench.question(KEY))
            _expect(type(seen) is Observation, "a look is an observation", seen)

    async def test_it_says_no_secret_and_closes_twice(self) -> None:
        """Printing a receiver, or what it said, is safe, and so is closing it again."""
        async with self.bench() as bench:
            await bench.lose_next_answer()
            outcome = await bench.receiver.deliver(bench.attempt(KEY, Gate()))
            said = repr(bench.receiver) + repr(bench.attempt(KEY, Gate())) + repr(vars(bench.receiver)) + repr(outcome)
            _expect(not any(secret in said for secret in bench.secrets), "no secret is said")
            await bench.receiver.aclose()
            await bench.receiver.aclose()


def _must_look(bench: Bench) -> None:
    if not bench.can_look:
        raise unittest.SkipTest("this receiver cannot be asked")


def _expect(held: bool, claim: str, seen: object = None) -> None:  # noqa: FBT001 - it reads as a sentence
    """Raise AssertionError unless the claim held. Not `assert`: it must hold under -O, outside a test file."""
    if not held:
        raise AssertionError(f"claim broken: {claim}" + (f" (seen: {seen!r})" if seen is not None else ""))


async def _until(condition: Callable[[], bool]) -> None:
    """Let others run until something is true."""
    async with asyncio.timeout(10):
        async for _ in _turns():
            if condition():
                return


async def _turns() -> AsyncIterator[None]:
    while True:
        yield
        await asyncio.sleep(0.001)
