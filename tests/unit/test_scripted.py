"""The scripted receiver: what a service's own tests rely on."""

import pytest

from outbox.evidence import Observation, Verdict
from outbox.outcome import Ambiguous, Answer, NotSent, Receipt, Refused
from outbox.receivers.scripted import ScriptedReceiver, lost_answer, lost_request
from tests.support.attempts import SENT_KEY, RecordingGate, attempt, question, receiver

CONFIG = receiver("", transport="scripted")


async def test_without_a_script_everything_succeeds_and_is_found() -> None:
    scripted = ScriptedReceiver()
    assert isinstance(await scripted.deliver(attempt(CONFIG)), Receipt)
    seen = await scripted.lookup(question(CONFIG))
    assert (seen.verdict, seen.external_id) == (Verdict.CONFIRMED, SENT_KEY)
    assert (await scripted.lookup(question(CONFIG, sent_key="other"))).verdict is Verdict.NOT_FOUND


async def test_lines_are_taken_in_order_and_the_last_one_stays() -> None:
    refused = Refused(answer=Answer(422))
    scripted = ScriptedReceiver([lost_answer, lost_request, refused])
    outcomes = [await scripted.deliver(attempt(CONFIG)) for _ in range(4)]
    assert [type(outcome) for outcome in outcomes] == [Ambiguous, Ambiguous, Refused, Refused]
    assert scripted.effects[SENT_KEY] == 1
    assert len(scripted.attempts) == 4


async def test_an_exception_in_the_script_is_raised_as_a_faulty_receiver_would() -> None:
    with pytest.raises(RuntimeError, match="unforeseen"):
        await ScriptedReceiver([RuntimeError("unforeseen")]).deliver(attempt(CONFIG))


async def test_a_late_attempt_takes_no_line() -> None:
    scripted = ScriptedReceiver([lost_answer])
    late = attempt(CONFIG, gate=RecordingGate(refusal="the lease is over"))
    assert isinstance(await scripted.deliver(late), NotSent)
    assert scripted.effects[SENT_KEY] == 0


async def test_looks_can_be_scripted_too() -> None:
    pending = Observation(verdict=Verdict.UNKNOWN, note="still pending")
    scripted = ScriptedReceiver(looks=[pending, lambda _: Observation(verdict=Verdict.NOT_FOUND), OSError("down")])
    assert await scripted.lookup(question(CONFIG)) is pending
    assert (await scripted.lookup(question(CONFIG))).verdict is Verdict.NOT_FOUND
    with pytest.raises(OSError, match="down"):
        await scripted.lookup(question(CONFIG))


async def test_two_effects_of_one_operation_are_seen_as_a_duplicate() -> None:
    scripted = ScriptedReceiver()
    for _ in range(2):
        await scripted.deliver(attempt(CONFIG))
    assert (await scripted.lookup(question(CONFIG))).duplicates == 1
