"""Answers are recorded in groups while their lease holds, else kept as evidence; never twice, and never not at all."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from outbox.outcome import NO_ANSWER, Accepted, Ambiguous, Answer, NotSent, Outcome, Receipt, Refused, Throttled
from outbox.receivers import Attempt
from outbox.receivers.scripted import ScriptedReceiver, lost_answer
from tests.support.doubts import register
from tests.support.postgres import Database
from tests.support.relays import BLIND, KEYED, LOOKED_UP, Held, put_many, registry, relay_on
from tests.support.stage import Stage

RECEIPT = Receipt(answer=Answer(200, "done", "req-1", "h"), receipt="r-1", external_id="x-1")


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database, registry(concurrency=1000))
    with Stage(database) as stage:
        yield stage


def unstorable(attempt: Attempt) -> Receipt:
    """A receipt that no column takes: a receiver of somebody else's, that goes around the cleaning."""
    receipt = Receipt(answer=Answer(200, "done"), receipt=f"r-{attempt.seq}", external_id=f"x-{attempt.seq}")
    object.__setattr__(receipt, "receipt", "a NUL \0 in it")
    return receipt


# ------------------------------------------------------------------------------------------------------ group commit


async def test_a_full_batch_costs_two_statements(database: Database) -> None:
    await register(database, registry(KEYED, concurrency=4))
    with Stage(database) as stage:
        put_many(stage, 600)
        async with relay_on(database, batch_max=200, bell=True) as running:
            await running.take_lanes()
            running.store.ran.clear()
            lane = running.lane
            for _ in range(3):
                assert await lane.claims.step() > 0
                await lane.settle()
        ran = [
            statement for statement in running.store.ran if statement not in {"set_bell", "read_contract", "look_ahead"}
        ]
        begun = running.counted("begun")
        assert set(ran) == {"begin_range", "end_operations"}
        assert begun / ran.count("begin_range") >= 60, "claims ahead as far as the deadline allows"
        assert stage.value("select count(*) from outbox.outcome where state = 'succeeded'") == begun


async def test_one_answer_that_cannot_be_stored_fails_no_other(stage: Stage) -> None:
    seqs = [stage.put(f"op-{n}", KEYED) for n in range(9)]

    def answer(attempt: Attempt) -> Outcome:
        return unstorable(attempt) if attempt.seq == seqs[4] else RECEIPT

    async with relay_on(stage.database, ScriptedReceiver([answer])) as running:
        await running.rounds()
        assert running.counted("isolated_rows") == 1
    assert [stage.state(seq) for seq in seqs] == ["succeeded"] * 9
    assert [stage.outcome(seq)["receipt"] for seq in seqs] == ["r-1"] * 4 + [None] + ["r-1"] * 4
    assert stage.outcome(seqs[4])["status"] == 200, "the effect is proven; only the words of the proof are lost"


async def test_an_excerpt_that_cannot_be_stored_costs_an_unknown_attempt_its_text_only(stage: Stage) -> None:
    answer = Answer(500, "boom")
    object.__setattr__(answer, "excerpt", "lone surrogate \ud800")
    good, bad = stage.put("good", BLIND), stage.put("bad", BLIND)

    def say(attempt: Attempt) -> Outcome:
        return Ambiguous(reason="500", answer=answer if attempt.seq == bad else Answer(500, "boom"))

    async with relay_on(stage.database, ScriptedReceiver([say])) as running:
        await running.rounds()
    rows = stage.rows("select seq, status, excerpt from outbox.attempt order by seq")
    assert rows == [
        {"seq": good, "status": 500, "excerpt": "boom"},
        {"seq": bad, "status": 500, "excerpt": None},
    ]


# --------------------------------------------------------------------------------- commits whose answers were lost


@pytest.mark.parametrize(
    ("tool", "outcome", "statement"),
    [
        (KEYED, RECEIPT, "end_operations"),
        (KEYED, Refused(answer=NO_ANSWER), "end_operations"),
        (BLIND, Ambiguous(reason="x"), "record_unknown"),
        (KEYED, NotSent(reason="x"), "withdraw_attempts"),
        (KEYED, Throttled(answer=NO_ANSWER), "withdraw_attempts"),
    ],
    ids=["receipt", "refusal", "doubt", "not sent", "throttled"],
)
async def test_our_own_commit_whose_answer_was_lost_is_recognised(
    stage: Stage, tool: str, outcome: Outcome, statement: str
) -> None:
    """Nothing is applied the second time: that is no lost lease, no evidence and no fenced write."""
    seq = stage.put("op", tool)
    async with relay_on(stage.database, ScriptedReceiver([outcome])) as running:
        running.store.loses[statement] = 2
        await running.rounds()
        assert running.store.ran.count(statement) == 3
        assert not running.lane.lost
        assert (running.counted("fenced_writes"), running.counted("late_answers")) == (0, 0)
    assert stage.rows("select from outbox.evidence") == []
    assert stage.state(seq) != "executing"
    assert stage.value("select count(*) from outbox.attempt_log where seq = %s", seq) == (
        statement != "withdraw_attempts"
    )


async def test_our_own_commit_is_recognised_also_after_somebody_else_took_the_lane(stage: Stage) -> None:
    seq = stage.put("op", KEYED)
    async with relay_on(stage.database, ScriptedReceiver([RECEIPT])) as running:
        await running.take_lanes()
        lane = running.lane
        await lane.claims.step()
        running.store.loses["end_operations"] = 1
        running.store.when_lost = lambda: lose_the_lane(stage)
        await lane.settle()
        assert lane.lost
        assert (running.counted("fenced_writes"), running.counted("late_answers")) == (0, 0)
    assert (stage.state(seq), stage.rows("select from outbox.evidence")) == ("succeeded", [])


# ----------------------------------------------------------------------------------------------- after a lost lease


def lose_the_lane(stage: Stage) -> None:
    """Somebody takes the lane over, in the database: the holder does not know yet."""
    stage.rows("update outbox.lane set expires_at = '-infinity'")
    assert stage.holder().take() is not None


@pytest.mark.parametrize(
    ("outcome", "kind", "external_id"),
    [
        (RECEIPT, "receipt", "x-1"),
        (NotSent(reason="refused"), "not_sent", None),
        (Refused(answer=Answer(404, "no")), "late_answer", None),
        (Ambiguous(reason="reset"), "late_answer", None),
        (Accepted(answer=Answer(202, "queued"), external_id="job-1"), "late_answer", "job-1"),
    ],
    ids=["receipt", "not sent", "refused", "ambiguous", "accepted"],
)
async def test_an_answer_under_a_lost_lease_is_evidence_and_a_counted_write(
    stage: Stage, outcome: Outcome, kind: str, external_id: str | None
) -> None:
    seq = stage.put("op", BLIND)
    receiver = Held(outcome)
    async with relay_on(stage.database, receiver) as running:
        await running.take_lanes()
        lane = running.lane
        await lane.claims.step()
        await receiver.begun.get()
        lose_the_lane(stage)
        receiver.let_go.set()
        await lane.settle()
        assert lane.lost
        assert (running.counted("fenced_writes"), running.counted("late_answers")) == (1, 1)
    (evidence,) = stage.rows("select * from outbox.evidence where seq = %s", seq)
    assert (evidence["kind"], evidence["external_id"], evidence["attempt"]) == (kind, external_id, 1)
    assert evidence["fence"] < stage.value("select fence from outbox.lane")
    assert stage.state(seq) == "unknown", "never a state"
    assert stage.value("select next_at <= outbox.now() from outbox.doubt") or kind == "late_answer", "but never wasted"


async def test_what_had_not_been_sent_when_the_lease_was_lost_is_known_not_to_have_been(database: Database) -> None:
    """Nobody need be asked about rows that only waited for a slot."""
    await register(database, registry(KEYED, concurrency=1))
    with Stage(database) as stage:
        first, second = stage.put("one", KEYED), stage.put("two", KEYED)
        receiver = Held(RECEIPT)
        async with relay_on(database, receiver) as running:
            await running.take_lanes()
            lane = running.lane
            assert await lane.claims.step() == 2
            await receiver.begun.get()
            lose_the_lane(stage)
            lane.lose("a test says so")
            receiver.let_go.set()
            await lane.settle()
        kinds = stage.rows("select seq, kind from outbox.evidence order by seq")
        assert kinds == [{"seq": first, "kind": "receipt"}, {"seq": second, "kind": "not_sent"}]
        assert len(receiver.attempts) == 1


async def test_evidence_is_written_once_however_often_its_commit_must_be_tried(stage: Stage) -> None:
    seq = stage.put("op", BLIND)
    receiver = Held(RECEIPT)
    async with relay_on(stage.database, receiver) as running:
        await running.take_lanes()
        lane = running.lane
        await lane.claims.step()
        await receiver.begun.get()
        lose_the_lane(stage)
        running.store.loses["witness_late"] = 2
        receiver.let_go.set()
        await lane.settle()
    assert stage.value("select count(*) from outbox.evidence where seq = %s", seq) == 1


async def test_a_refusal_that_meets_a_proof_of_the_effect_ends_nothing(stage: Stage) -> None:
    """The receipt of somebody who knew better came in while the attempt ran."""
    seq = stage.put("op", KEYED)
    receiver = Held(Refused(answer=Answer(404)))
    async with relay_on(stage.database, receiver) as running:
        await running.take_lanes()
        lane = running.lane
        await lane.claims.step()
        await receiver.begun.get()
        stage.witness(seq, "receipt", attempt=1, receipt="r", external_id="x")
        receiver.let_go.set()
        await lane.settle()
        assert not lane.lost
    assert (stage.state(seq), stage.doubt(seq)["step"]) == ("unknown", "look")
    assert stage.settle(seq, 1, "succeeded") == "applied"


# ------------------------------------------------------------------------------------------------ without a database


async def test_answers_are_kept_while_the_database_is_away_and_recorded_as_receipts_afterwards(stage: Stage) -> None:
    seqs = [stage.put(f"op-{n}", KEYED) for n in range(5)]
    async with relay_on(stage.database, ScriptedReceiver([RECEIPT])) as running:
        running.store.refuses["end_operations"] = 6
        await running.rounds()
        assert running.counted("late_answers") == 0
    assert [stage.state(seq) for seq in seqs] == ["succeeded"] * 5


async def test_nothing_begins_while_too_many_answers_are_in_memory_only(stage: Stage) -> None:
    for n in range(8):
        stage.put(f"op-{n}", BLIND)
    receiver = Held(RECEIPT)
    async with relay_on(stage.database, receiver, answers_max=3) as running:
        await running.take_lanes()
        assert await running.lane.claims.step() == 3
        assert await running.lane.claims.step() == 0
        receiver.let_go.set()
        await running.lane.settle()
        assert await running.lane.claims.step() == 3
        await running.lane.settle()


# ------------------------------------------------------------------------------------------------------- own orphans


async def test_what_began_without_our_hearing_of_it_was_not_sent(stage: Stage) -> None:
    """The commit of the begin was done, its answer lost: the rows execute under our fence, and nobody knows of them."""
    first, in_doubt = stage.put("first", KEYED), stage.put("doubt", KEYED)
    receiver = ScriptedReceiver([lambda a: lost_answer(a) if a.seq == in_doubt and a.attempt == 1 else RECEIPT])
    async with relay_on(stage.database, receiver, look_behind="10ms") as running:
        stage.rows("update outbox.pending set next_at = 'infinity' where seq = %s", first)
        await running.rounds()
        stage.rows("update outbox.pending set next_at = outbox.now()")
        for seq in (first, in_doubt):
            running.lane.ring(seq)
        running.store.loses["begin_these"] = 1
        with pytest.raises(Exception, match="after the commit"):
            await running.lane.claims.step()
        assert {stage.state(first), stage.state(in_doubt)} == {"executing"}
        running.store.refuses["begin_range"] = running.store.refuses["begin_these"] = 9
        with pytest.raises(Exception, match="no connection"):
            await running.lane.claims.step()
        assert (stage.state(first), stage.state(in_doubt)) == ("authorized", "unknown")
        assert stage.pending(first)["first_sent_at"] is None
        assert running.counted("orphans") == 2
        running.store.refuses.clear()
        await running.rounds(3)
    assert [len([a for a in receiver.attempts if a.seq == seq]) for seq in (first, in_doubt)] == [1, 1]
    assert (stage.state(first), stage.state(in_doubt), stage.doubt(in_doubt)["step"]) == (
        "succeeded",
        "unknown",
        "look",
    )


async def test_a_sweep_touches_nothing_that_is_in_flight(stage: Stage) -> None:
    seq = stage.put("op", LOOKED_UP)
    receiver = Held(RECEIPT)
    async with relay_on(stage.database, receiver) as running:
        await running.take_lanes()
        lane = running.lane
        await lane.claims.step()
        await receiver.begun.get()
        lane.claims._next_sweep_at = 0.0
        await lane.claims.step()
        assert "own_executing" in running.store.ran
        assert stage.state(seq) == "executing"
        receiver.let_go.set()
        await lane.settle()
    assert stage.state(seq) == "succeeded"


async def test_an_answer_that_cannot_be_recorded_at_all_becomes_unknown(stage: Stage, monkeypatch: Any) -> None:
    """Something holds back the outcome whatever is in it; the operation must not execute for ever."""
    seq = stage.put("op", KEYED)
    stage.rows(
        """
        create function outbox.refuse_seq() returns trigger language plpgsql as
          'begin raise exception using errcode = ''23514''; end';
        create trigger refuse before insert on outbox.outcome for each row execute function outbox.refuse_seq()
        """
    )
    async with relay_on(stage.database, ScriptedReceiver([RECEIPT])) as running:
        await running.rounds()
        assert stage.state(seq) == "executing"
        running.lane.claims._next_sweep_at = 0.0
        await running.rounds()
    assert (stage.state(seq), stage.pending(seq)["cause"]) == ("unknown", "orphaned")
