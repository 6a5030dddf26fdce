"""Asking a receiver what happened: failures prove nothing, delay nobody else, and end in time."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from outbox.contract import Auth, ReceiverConfig, ToolConfig, Wiring
from outbox.errors import SecretMissing, UnknownTransport
from outbox.evidence import Observation, Verdict
from outbox.observe import Meters
from outbox.outcome import Answer, Outcome
from outbox.receivers import Attempt, Question, Receiver
from reconciler import lookup
from reconciler.lookup import FAILURES_BEFORE_PAUSE, PAUSE_SECONDS_MAX, Patience, Readers, refusal
from reconciler.metrics import METRICS

WRITE = Auth(kind="bearer", secret="env:WRITE", id="main")
READ = Auth(kind="bearer", secret="env:READ", id="read")


def config(**changes: Any) -> ReceiverConfig:
    return ReceiverConfig(**{"transport": "scripted", "auth": WRITE, "read_auth": READ, **changes})


class Scripted:
    """Answers each look with what it is told, and can do nothing else."""

    def __init__(self, look: Callable[[], Any]) -> None:
        self.look = look
        self.looks = 0
        self.closed = False

    async def deliver(self, attempt: Attempt) -> Outcome:
        raise AssertionError("a reconciler never delivers")

    async def lookup(self, question: Question) -> Observation:
        self.looks += 1
        answer = self.look()
        return cast("Observation", await answer if asyncio.iscoroutine(answer) else answer)

    async def aclose(self) -> None:
        self.closed = True


def question(deadline_seconds: float = 5.0) -> Question:
    wiring = Wiring.of("thing.do", ToolConfig(receiver="thing"), config())
    return Question(
        seq=1,
        tenant_id="t",
        operation_id="o",
        tool="thing.do",
        resource=None,
        sent_key="0" * 36,
        wiring=wiring,
        deadline_seconds=deadline_seconds,
    )


async def readers_of(*receivers: Receiver, clock: Callable[[], float] = lambda: 0.0) -> Readers:
    opened = dict(zip(("thing", "other"), receivers, strict=False))
    readers = Readers(lambda name, _: opened[name], Meters(*METRICS), clock)
    assert await readers.configure({name: config() for name in opened}, frozenset(opened)) == []
    return readers


def fail(error: Exception) -> Callable[[], Any]:
    def raising() -> Any:
        raise error

    return raising


# ------------------------------------------------------------------------------------------------------- credentials


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, False),
        ({"read_auth": None}, True),
        ({"read_auth": Auth(kind="bearer", secret="env:WRITE", id="read")}, True),
        ({"read_auth": Auth(kind="bearer", secret="env:R", id="r", secret_headers={"X-K": "env:WRITE"})}, True),
        ({"read_auth": None, "shared_credential": True}, False),
        ({"auth": None, "read_auth": None}, False),
    ],
    ids=["own", "none", "the same secret", "the same beside another", "declared as shared", "no credential at all"],
)
def test_a_reconciler_refuses_a_credential_that_can_cause_effects(changes: dict[str, Any], refused: bool) -> None:
    problem = refusal("thing", config(**changes), lookups=True)
    assert (problem is not None) is refused
    if problem is not None:
        assert problem.place == "receivers.thing"
        assert "read_auth" in problem.message
    assert refusal("thing", config(**changes), lookups=False) is None


async def test_a_refused_receiver_is_never_opened_and_its_looks_prove_nothing() -> None:
    readers = Readers(lambda *_: pytest.fail("it was opened"), Meters(*METRICS))
    (problem,) = await readers.configure({"thing": config(read_auth=None)}, frozenset({"thing"}))
    assert problem.place == "receivers.thing"
    observation = await readers.ask("thing", question())
    assert observation.verdict is Verdict.UNKNOWN
    assert "read_auth" in observation.note


async def test_a_receiver_that_cannot_be_opened_is_a_problem_and_proves_nothing() -> None:
    def broken(*_: object) -> Receiver:
        raise UnknownTransport

    readers = Readers(broken, Meters(*METRICS))
    (problem,) = await readers.configure({"thing": config()}, frozenset({"thing"}))
    assert problem.code == "not_opened"
    assert (await readers.ask("thing", question())).verdict is Verdict.UNKNOWN
    assert (await readers.ask("nobody", question())).verdict is Verdict.UNKNOWN


async def test_a_changed_receiver_answers_what_it_was_asked_before_it_is_closed() -> None:
    asked, answer = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def wait() -> Observation:
        asked.set()
        return cast("Observation", await answer)

    old, new = Scripted(wait), Scripted(lambda: Observation(verdict=Verdict.NOT_FOUND))
    opened = iter((old, new))
    readers = Readers(lambda *_: next(opened), Meters(*METRICS))
    await readers.configure({"thing": config()}, frozenset())
    await readers.configure({"thing": config()}, frozenset())
    look = asyncio.create_task(readers.ask("thing", question()))
    await asked.wait()
    await readers.configure({"thing": config(concurrency=99)}, frozenset())
    assert old.looks == 1
    was_closed_early = old.closed
    assert (await readers.ask("thing", question())).verdict is Verdict.NOT_FOUND
    answer.set_result(Observation(verdict=Verdict.CONFIRMED))
    assert (await look).verdict is Verdict.CONFIRMED
    assert (was_closed_early, old.closed) == (False, True)
    await readers.aclose()
    assert new.closed


# ---------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (ValueError("token=secret"), "the look failed: ValueError"),
        (SecretMissing("the environment variable READ is empty or not set"), "the environment variable READ is empty"),
    ],
)
async def test_an_exception_of_a_receiver_proves_nothing_and_shows_no_data(error: Exception, note: str) -> None:
    readers = await readers_of(Scripted(fail(error)))
    observation = await readers.ask("thing", question())
    assert observation.verdict is Verdict.UNKNOWN
    assert observation.note.startswith(note)
    assert "token" not in observation.note


async def test_a_look_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "CUT_OFF_SECONDS", 0.0)
    readers = await readers_of(Scripted(asyncio.Event().wait))
    observation = await readers.ask("thing", question(deadline_seconds=0.01))
    assert observation.verdict is Verdict.UNKNOWN
    assert "no answer within" in observation.note


async def test_a_look_that_goes_on_after_its_cancellation_is_cancelled_again_and_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A receiver of a third party that swallows cancellations delays its own operation, and that not for long."""
    monkeypatch.setattr(lookup, "CUT_OFF_SECONDS", 0.0)
    monkeypatch.setattr(lookup, "CANCEL_SECONDS_MAX", 0.25)
    cancellations, let_go = 0, asyncio.Event()

    async def swallow() -> None:
        nonlocal cancellations
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                cancellations += 1

    readers = await readers_of(Scripted(swallow))
    async with asyncio.timeout(5):
        observation = await readers.ask("thing", question(deadline_seconds=0.01))
    assert "no answer within" in observation.note
    assert cancellations > 1
    let_go.set()


async def test_whoever_is_cancelled_during_a_look_ends_the_look_first() -> None:
    ended, waiting = False, asyncio.Event()

    async def look() -> None:
        nonlocal ended
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended = True

    readers = await readers_of(Scripted(look))
    asking = asyncio.create_task(readers.ask("thing", question()))
    await waiting.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert ended


async def test_a_receiver_that_does_not_answer_is_left_alone_and_another_is_not() -> None:
    now = 0.0
    dead, alive = Scripted(fail(OSError())), Scripted(lambda: Observation(verdict=Verdict.NOT_FOUND))
    readers = await readers_of(dead, alive, clock=lambda: now)
    for _ in range(FAILURES_BEFORE_PAUSE + 10):
        assert (await readers.ask("thing", question())).verdict is Verdict.UNKNOWN
        assert (await readers.ask("other", question())).verdict is Verdict.NOT_FOUND
    assert dead.looks == FAILURES_BEFORE_PAUSE
    assert alive.looks == FAILURES_BEFORE_PAUSE + 10
    now += PAUSE_SECONDS_MAX
    await asyncio.gather(*(readers.ask("thing", question()) for _ in range(10)))
    assert dead.looks == FAILURES_BEFORE_PAUSE + 1
    totals = readers._meters.totals()
    assert (totals["looks"], totals["looks_skipped"]) == (dead.looks + alive.looks, 10 + 9)


@pytest.mark.parametrize(
    ("observation", "speaks"),
    [
        (Observation(verdict=Verdict.UNKNOWN), False),
        (Observation(verdict=Verdict.UNKNOWN, answer=Answer(status=503)), False),
        (Observation(verdict=Verdict.UNKNOWN, answer=Answer(status=401)), False),
        (Observation(verdict=Verdict.UNKNOWN, answer=Answer(status=200)), True),
        (Observation(verdict=Verdict.NOT_FOUND, answer=Answer(status=404)), True),
        (Observation(verdict=Verdict.CONFIRMED), True),
    ],
)
async def test_what_counts_as_an_answer_of_the_receiver(observation: Observation, speaks: bool) -> None:
    receiver = Scripted(lambda: observation)
    readers = await readers_of(receiver)
    for _ in range(FAILURES_BEFORE_PAUSE + 3):
        await readers.ask("thing", question())
    assert receiver.looks == (FAILURES_BEFORE_PAUSE + 3 if speaks else FAILURES_BEFORE_PAUSE)


def test_pauses_grow_to_a_bound_and_end_with_the_first_answer() -> None:
    patience = Patience()
    now, pauses = 0.0, []
    for _ in range(FAILURES_BEFORE_PAUSE + 5_000):
        assert patience.may_ask(now)
        patience.failed(now)
        pauses.append(patience.asked_again_at - now)
        now = max(now, patience.asked_again_at)
    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE_SECONDS_MAX
    patience.answered()
    assert [patience.may_ask(now) for _ in range(3)] == [True, True, True]
