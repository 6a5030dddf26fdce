"""What a relay makes of answers: each becomes the state that the decisions say, with all that is known of it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outbox.outcome import (
    Accepted,
    Ambiguous,
    Answer,
    InFlight,
    Mismatch,
    NotSent,
    Outcome,
    Receipt,
    ReceiverFault,
    Refused,
    StoredFailure,
    Throttled,
)
from outbox.receivers import Attempt
from outbox.receivers.scripted import ScriptedReceiver
from outbox.states import Cause
from tests.support.doubts import register
from tests.support.postgres import Database
from tests.support.relays import BLIND, KEYED, LOOKED_UP, registry, relay_on
from tests.support.stage import Stage

ANSWER = Answer(status=503, excerpt="busy", request_id="req-1", host="127.0.0.1:80")


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database, registry())
    with Stage(database) as stage:
        yield stage


def cause_of(stage: Stage, seq: int) -> str | None:
    cause: str | None = stage.value("select cause from outbox.operation where seq = %s", seq)
    return cause


async def deliver(stage: Stage, tool: str, *script: Any, rounds: int = 1) -> tuple[int, ScriptedReceiver]:
    seq = stage.put("op", tool)
    receiver = ScriptedReceiver(script)
    async with relay_on(stage.database, receiver) as running:
        await running.rounds(rounds)
    return seq, receiver


async def test_a_receipt_ends_the_operation_with_all_that_is_known(stage: Stage) -> None:
    seq, receiver = await deliver(
        stage, KEYED, Receipt(answer=Answer(201, "made", "req-9", "h"), receipt='{"id":"x"}', external_id="x")
    )
    (attempt,) = receiver.attempts
    outcome = stage.outcome(seq)
    assert (outcome["state"], outcome["cause"], outcome["attempt"]) == ("succeeded", None, 1)
    assert (outcome["receipt"], outcome["external_id"]) == ('{"id":"x"}', "x")
    assert (outcome["status"], outcome["excerpt"], outcome["request_id"], outcome["peer"]) == (
        201,
        "made",
        "req-9",
        "h",
    )
    assert str(outcome["sent_key"]) == attempt.sent_key
    assert outcome["first_sent_at"] == outcome["started_at"] <= outcome["ended_at"]
    assert (stage.state(seq), stage.rows("select from outbox.doubt")) == ("succeeded", [])


@pytest.mark.parametrize(
    ("tool", "outcome", "follows"),
    [
        (KEYED, Refused(answer=ANSWER), ("rejected", "refused", None)),
        (KEYED, Refused(answer=ANSWER, cause=Cause.PRECONDITION_FAILED), ("rejected", "precondition_failed", None)),
        (KEYED, NotSent(reason="no route"), ("authorized", "not_sent", None)),
        (KEYED, NotSent(reason="no route", cause=Cause.NO_CONNECTION), ("authorized", "no_connection", None)),
        (KEYED, Throttled(answer=ANSWER, retry_after_seconds=60), ("authorized", "throttled", None)),
        (KEYED, ReceiverFault(answer=ANSWER), ("authorized", "receiver_fault", None)),
        (KEYED, ReceiverFault(answer=ANSWER, forbidden=True), ("authorized", "forbidden", None)),
        (KEYED, Ambiguous(reason="timeout", cause=Cause.TIMEOUT), ("unknown", "timeout", "resend")),
        (LOOKED_UP, Ambiguous(reason="timeout", cause=Cause.TIMEOUT), ("unknown", "timeout", "look")),
        (BLIND, Ambiguous(reason="lost", cause=Cause.CONNECTION_LOST), ("unknown", "connection_lost", "person")),
        (LOOKED_UP, Accepted(answer=ANSWER), ("unknown", "accepted", "look")),
        (KEYED, InFlight(answer=ANSWER), ("unknown", "in_flight", "resend")),
        (LOOKED_UP, StoredFailure(answer=ANSWER), ("unknown", "stored_failure", "look")),
        (KEYED, Mismatch(answer=ANSWER), ("unknown", "mismatch", "person")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Outcome) else None,
)
async def test_a_first_outcome_becomes_the_state_that_follows(
    stage: Stage, tool: str, outcome: Outcome, follows: tuple[str, str, str | None]
) -> None:
    seq, _ = await deliver(stage, tool, outcome)
    steps = [row["step"] for row in stage.rows("select step::text from outbox.doubt")]
    assert (stage.state(seq), cause_of(stage, seq), *(steps or [None])) == follows


async def test_an_unknown_attempt_leaves_its_row_with_what_the_support_will_ask_for(stage: Stage) -> None:
    seq, _ = await deliver(stage, BLIND, Ambiguous(reason="500", answer=ANSWER))
    (attempt,) = stage.rows("select * from outbox.attempt where seq = %s", seq)
    assert (attempt["status"], attempt["excerpt"], attempt["request_id"], attempt["peer"]) == (
        503,
        "busy",
        "req-1",
        ANSWER.host,
    )
    (doubt,) = stage.rows("select * from outbox.doubt where seq = %s", seq)
    assert (doubt["needs_person"], doubt["reason"]) == (True, "no_lookup")


@pytest.mark.parametrize("forbidden", [False, True])
async def test_an_answer_that_refuses_our_credential_is_kept_and_makes_no_doubt(
    stage: Stage, *, forbidden: bool
) -> None:
    seq, _ = await deliver(stage, KEYED, ReceiverFault(answer=ANSWER, forbidden=forbidden))
    (attempt,) = stage.rows("select * from outbox.attempt_log where seq = %s", seq)
    assert (attempt["attempt"], attempt["status"], attempt["request_id"]) == (1, ANSWER.status, "req-1")
    assert (stage.state(seq), stage.rows("select from outbox.doubt")) == ("authorized", [])


@pytest.mark.parametrize("outcome", [NotSent(reason="x"), Throttled(answer=ANSWER)], ids=["not sent", "throttled"])
async def test_what_never_left_or_was_put_off_leaves_no_row(stage: Stage, outcome: Outcome) -> None:
    await deliver(stage, KEYED, outcome)
    assert stage.rows("select from outbox.attempt_log") == []


async def test_an_exception_that_nobody_foresaw_is_ambiguous(stage: Stage) -> None:
    seq, _ = await deliver(stage, BLIND, ZeroDivisionError("a bug of a receiver"))
    assert (stage.state(seq), cause_of(stage, seq)) == ("unknown", "ambiguous")


async def test_an_attempt_that_takes_longer_than_its_deadline_is_unknown_if_bytes_may_have_left(
    database: Database,
) -> None:
    async def forever(_: Attempt) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    await register(database, registry(BLIND, tool={"deadline": "200ms"}))
    with Stage(database) as stage:
        seq, _ = await deliver(stage, BLIND, forever)
        assert (stage.state(seq), cause_of(stage, seq)) == ("unknown", "timeout")


async def test_a_withdrawn_first_attempt_leaves_no_trace_of_an_exposure(stage: Stage) -> None:
    """Only a proven NotSent of the first exposure clears the window; a throttled one may have stored the key."""
    sent = stage.put("sent", KEYED)
    throttled = stage.put("throttled", KEYED)

    def answer(attempt: Attempt) -> Outcome:
        return NotSent(reason="refused") if attempt.seq == sent else Throttled(answer=ANSWER, retry_after_seconds=60)

    async with relay_on(stage.database, ScriptedReceiver([answer])) as running:
        await running.rounds()
    assert stage.pending(sent)["first_sent_at"] is None
    assert (stage.pending(sent)["contract_id"], stage.pending(sent)["not_sent"]) == (None, 1)
    assert stage.pending(throttled)["first_sent_at"] is not None
    assert (stage.pending(throttled)["contract_id"] is None, stage.pending(throttled)["throttled"]) == (False, 1)
    assert stage.rows("select from outbox.attempt") == []
