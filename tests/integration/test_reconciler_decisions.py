"""What a reconciler makes of an operation in doubt, on a real database, from evidence and looks."""

import itertools
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import LiteralString

import pytest

from outbox.digest import sent_key
from outbox.evidence import Observation, Verdict
from outbox.outcome import Answer
from outbox.receivers import Question
from reconciler.act import Done
from reconciler.keep import IDLE_LOOKS_MAX
from tests.support.doubts import (
    CONFIRMED,
    ENDED,
    LAG_SECONDS,
    NOT_FOUND,
    SETTLE_SECONDS,
    UNKNOWN,
    Records,
    in_doubt,
    reconciler_on,
    register,
    resent,
)
from tests.support.postgres import Database
from tests.support.stage import Clock, Holder, Stage


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database)
    with Stage(database) as stage:
        yield stage


@pytest.fixture
def clock(stage: Stage) -> Clock:
    return Clock(stage.database)


@pytest.fixture
def holder(stage: Stage, clock: Clock) -> Holder:
    return stage.holder().taken(ttl_seconds=1_000_000)


async def swept(stage: Stage, records: Records | None = None) -> Done | None:
    """One pass of a reconciler; what came of the one operation that was due, None if none was."""
    async with reconciler_on(stage.database, records or Records()) as reconciler:
        counts = await reconciler.sweep.run_once()
    assert sum(counts.values()) <= 1
    return next(iter(counts), None)


def wait_for_next_date(stage: Stage, clock: Clock, seq: int) -> float:
    """Let time pass until the operation is due again; returns for how long. Zero if it is due already."""
    query: LiteralString = "select extract(epoch from next_at - outbox.now())::float8 from outbox.doubt where seq = %s"
    seconds = max(0.0, float(stage.value(query, seq)))
    clock.advance(seconds)
    return seconds


# ---------------------------------------------------------------------------------------------------------- evidence


async def test_a_receipt_in_evidence_settles_without_a_look(stage: Stage, holder: Holder) -> None:
    """A late answer of a lost lease is never a state, and never wasted: also where nothing could be looked up."""
    seq = in_doubt(stage, holder, "thing.blind", delays=60.0)
    proof = stage.witness(seq, "receipt", attempt=1, fence=holder.fence, external_id="w-7", receipt='{"id":"w-7"}')
    records = Records()
    assert await swept(stage, records) is Done.SUCCEEDED
    outcome = stage.outcome(seq)
    assert (outcome["state"], outcome["cause"], outcome["external_id"]) == ("succeeded", "late_receipt", "w-7")
    assert (outcome["decided_by"], outcome["evidence_id"]) == (f"evidence#{proof}", proof)
    assert outcome["receipt"] == '{"id":"w-7"}'
    assert records.questions == []
    assert stage.one("doubt", seq) is None


async def test_the_only_attempt_that_provably_never_left_is_made_anew(stage: Stage, holder: Holder) -> None:
    seq = in_doubt(stage, holder, "thing.blind", delays=60.0)
    stage.witness(seq, "not_sent", attempt=1, fence=holder.fence)
    records = Records()
    assert await swept(stage, records) is Done.AUTHORIZED
    pending = stage.pending(seq)
    assert (pending["state"], pending["unresolved_at"]) == ("authorized", None)
    assert records.questions == []


async def test_an_attempt_that_never_left_says_nothing_of_an_earlier_one(stage: Stage, holder: Holder) -> None:
    seq = in_doubt(stage, holder, "thing.keyed", steps="resend")
    assert resent(stage, holder, seq, delays=60.0) == 2
    stage.witness(seq, "not_sent", attempt=2, fence=holder.fence)
    assert await swept(stage) in {Done.RESEND, Done.LATER}
    assert stage.state(seq) == "unknown"


async def test_a_withdrawn_resend_that_was_also_witnessed_says_nothing_of_the_attempt_before_it(
    stage: Stage, holder: Holder
) -> None:
    """The withdrawal committed, its answer and then the lease were lost: its NotSent was kept as evidence too."""
    seq = in_doubt(stage, holder, "thing.keyed", steps="resend")
    (second,) = holder.begin_these(seq)
    assert holder.withdraw(seq, second["attempt"], not_sents=True, causes="not_sent", steps="look") == [seq]
    stage.witness(seq, "not_sent", attempt=second["attempt"], fence=holder.fence)
    assert await swept(stage) in {Done.RESEND, Done.LATER}
    assert stage.state(seq) == "unknown"


async def test_a_late_answer_that_is_no_receipt_settles_nothing(stage: Stage, holder: Holder) -> None:
    seq = in_doubt(stage, holder, "thing.blind")
    stage.witness(seq, "late_answer", attempt=1, fence=holder.fence, status=500)
    assert await swept(stage) is Done.PERSON
    assert stage.state(seq) == "unknown"


@pytest.mark.parametrize(("tool", "counts_after"), [("thing.looked_up", SETTLE_SECONDS), ("thing.blind", 3_600.0)])
async def test_a_persons_no_effect_counts_from_settle_time_on(
    stage: Stage, holder: Holder, clock: Clock, tool: str, counts_after: float
) -> None:
    """A request that is still on its way overtakes whatever was true when the person looked."""
    seq = in_doubt(stage, holder, tool)
    clock.advance(counts_after - 1)
    statement = {"attempt": 1, "verdict": "not_found", "stated_by": "ann"}
    stage.witness(seq, "statement", role="reconciler", **statement)
    assert await swept(stage, Records(UNKNOWN)) in {Done.LATER, Done.PERSON}
    assert stage.state(seq) == "unknown"
    clock.advance(2)
    stage.witness(seq, "statement", role="reconciler", **statement)
    stage.rows("update outbox.doubt set next_at = outbox.now()")
    assert await swept(stage, Records(UNKNOWN)) is Done.REJECTED
    assert stage.outcome(seq)["cause"] == "person"


# ------------------------------------------------------------------------------------------------------------- looks


async def test_a_record_with_our_identity_settles_at_once(stage: Stage, holder: Holder, clock: Clock) -> None:
    seq = in_doubt(stage, holder, "thing.looked_up")
    clock.advance(2)
    assert await swept(stage, Records(CONFIRMED)) is Done.SUCCEEDED
    outcome = stage.outcome(seq)
    assert (outcome["cause"], outcome["external_id"], outcome["receipt"]) == ("confirmed", "w-1", '{"id":"w-1"}')
    (proof,) = stage.rows("select * from outbox.evidence where seq = %s", seq)
    assert (proof["verdict"], proof["attempt"], proof["source"]) == ("confirmed", 1, "reconciler")
    assert outcome["decided_by"] == f"evidence#{proof['evidence_id']}"


async def test_a_look_asks_for_the_key_that_was_sent(stage: Stage, holder: Holder, clock: Clock) -> None:
    """Also for an attempt that left no trace of its key: the key is derived from what cannot change."""
    records = Records()
    in_doubt(stage, holder, "thing.looked_up", "traceless", sent_keys=None)
    seq = in_doubt(stage, holder, "thing.looked_up", "recorded")
    clock.advance(2)
    async with reconciler_on(stage.database, records) as reconciler:
        await reconciler.sweep.run_once()
    asked = {question.operation_id: question.sent_key for question in records.questions}
    assert asked["recorded"] == str(stage.pending(seq)["sent_key"])
    instance = stage.value("select id from outbox.instance")
    assert asked["traceless"] == str(sent_key(instance, "acme", "thing.looked_up", "traceless"))


async def test_a_look_that_was_sent_before_the_settle_time_proves_no_absence(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.looked_up")
    clock.advance(SETTLE_SECONDS - 1)
    assert await swept(stage) is Done.LATER
    doubt = stage.doubt(seq)
    assert stage.state(seq) == "unknown"
    assert doubt["next_at"] == doubt["settle_at"], "the next look is sent as soon as it can prove something"
    assert (doubt["reads"], doubt["claimed_by"]) == (1, None)
    wait_for_next_date(stage, clock, seq)
    assert await swept(stage) is Done.AUTHORIZED
    assert stage.pending(seq)["cause"] == "proven_absent"


async def test_a_look_that_was_sent_too_early_and_answered_late_proves_no_absence(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    """The request of the attempt may land between the two: only the instant of sending counts."""
    seq = in_doubt(stage, holder, "thing.looked_up")
    clock.advance(SETTLE_SECONDS - 1)

    def answer_late(_: Question) -> Observation:
        clock.advance(10)
        return NOT_FOUND

    assert await swept(stage, Records(answer_late)) is Done.LATER
    assert stage.state(seq) == "unknown"
    wait_for_next_date(stage, clock, seq)
    assert await swept(stage) is Done.AUTHORIZED
    proof = stage.rows("select * from outbox.evidence where seq = %s order by evidence_id", seq)[-1]
    assert proof["sent_at"] >= proof["observed_at"] - timedelta(seconds=10)


async def test_the_recorded_instant_of_sending_is_never_later_than_the_sending(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.looked_up")
    clock.advance(2)
    sent = []

    def record_the_time(_: Question) -> Observation:
        sent.append(stage.value("select outbox.now()"))
        return CONFIRMED

    await swept(stage, Records(record_the_time))
    assert stage.value("select sent_at from outbox.evidence where seq = %s", seq) <= sent[0]


async def test_an_eventual_look_proves_absence_only_after_settle_time_and_lag(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    """Two looks a lag apart would prove absence as of the first one; one look after both delays proves it."""
    seq = in_doubt(stage, holder, "thing.lagging")
    clock.advance(SETTLE_SECONDS + 1)
    assert await swept(stage) is Done.LATER
    clock.advance(LAG_SECONDS - 2)
    assert await swept(stage) in {Done.LATER, None}
    assert stage.state(seq) == "unknown"
    wait_for_next_date(stage, clock, seq)
    assert await swept(stage) is Done.AUTHORIZED
    doubt_settled = stage.rows("select sent_at from outbox.evidence where seq = %s order by evidence_id", seq)[-1][
        "sent_at"
    ]
    assert doubt_settled >= stage.pending(seq)["begun_at"] + timedelta(seconds=SETTLE_SECONDS + LAG_SECONDS)


async def test_proven_absence_without_a_permission_ends_the_operation(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.looked_up", expires_in=20)
    clock.advance(SETTLE_SECONDS + 1)
    assert await swept(stage) is Done.REJECTED
    outcome = stage.outcome(seq)
    assert (outcome["from_state"], outcome["state"], outcome["cause"]) == ("unknown", "rejected", "no_effect")


async def test_a_lapsed_permission_rejects_nothing_that_may_hide_an_effect(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.looked_up", expires_in=20)
    clock.advance(21)
    async with reconciler_on(stage.database, Records(UNKNOWN)) as reconciler:
        counts = await reconciler.run_once()
    assert counts.done == {Done.LATER: 1}
    assert counts.chores["expire"] == 0
    assert stage.state(seq) == "unknown"


async def test_the_receivers_own_final_record_ends_the_operation(stage: Stage, holder: Holder, clock: Clock) -> None:
    seq = in_doubt(stage, holder, "thing.looked_up")
    clock.advance(2)
    assert await swept(stage, Records(ENDED)) is Done.REJECTED
    assert stage.outcome(seq)["cause"] == "ended"


async def test_a_partial_effect_is_a_persons_business(stage: Stage, holder: Holder, clock: Clock) -> None:
    seq = in_doubt(stage, holder, "thing.looked_up")
    clock.advance(2)
    assert await swept(stage, Records(Observation(verdict=Verdict.PARTIAL))) is Done.PERSON
    doubt = stage.doubt(seq)
    assert (doubt["needs_person"], doubt["reason"]) == (True, "partial")
    assert stage.state(seq) == "unknown"


async def test_after_an_acceptance_absence_is_never_proven(stage: Stage, holder: Holder, clock: Clock) -> None:
    """The bound says when the request has landed, not when the work ends."""
    seq = in_doubt(stage, holder, "thing.looked_up", accepteds=True, causes="accepted")
    clock.advance(SETTLE_SECONDS + 1)
    for _ in range(40):
        assert await swept(stage) in {Done.LATER, Done.PERSON}
        wait_for_next_date(stage, clock, seq)
    assert stage.state(seq) == "unknown"
    assert stage.doubt(seq)["needs_person"]
    assert await swept(stage, Records(CONFIRMED)) is Done.SUCCEEDED


async def test_work_that_is_done_later_is_waited_for_as_long_as_the_contract_says(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.accepting")
    clock.advance(2)
    waited = 0.0
    while await swept(stage) is Done.LATER:
        waited += wait_for_next_date(stage, clock, seq)
    assert 300 < waited <= 600
    assert stage.doubt(seq)["reason"] == "not_confirmed"


# ---------------------------------------------------------------------------------------------------------- liveness


async def test_without_a_bound_looks_end_with_a_person_and_slow_looks_go_on(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    """Absence is never proven here, so looking again for ever would be the alternative."""
    seq = in_doubt(stage, holder, "thing.unbounded")
    clock.advance(2)
    made = []
    while (done := await swept(stage)) is Done.LATER:
        made.append(done)
        wait_for_next_date(stage, clock, seq)
    assert done is Done.PERSON
    assert len(made) + 1 == 4, "as many looks as the contract allows"
    assert stage.doubt(seq)["reason"] == "not_provable"
    for _ in range(3):
        assert wait_for_next_date(stage, clock, seq) == pytest.approx(3600, abs=5)
        assert await swept(stage) is Done.PERSON
    wait_for_next_date(stage, clock, seq)
    assert await swept(stage, Records(CONFIRMED)) is Done.SUCCEEDED


async def test_where_nothing_can_be_asked_or_sent_again_a_person_is_asked_at_once(stage: Stage, holder: Holder) -> None:
    seq = in_doubt(stage, holder, "thing.blind")
    records = Records()
    assert await swept(stage, records) is Done.PERSON
    doubt = stage.doubt(seq)
    assert (doubt["step"], doubt["needs_person"], doubt["reason"]) == ("person", True, "no_lookup")
    assert doubt["next_at"].year == 9999, "nothing will be known later that is not known now"
    assert records.questions == []
    assert await swept(stage) is None


@pytest.mark.parametrize(
    "failure", [UNKNOWN, OSError("no route"), Observation(verdict=Verdict.UNKNOWN, answer=Answer(503))]
)
async def test_looks_that_fail_prove_nothing_and_end_with_a_person(
    stage: Stage, holder: Holder, clock: Clock, failure: Observation | Exception
) -> None:
    seq = in_doubt(stage, holder, "thing.looked_up")
    records = Records(failure)
    for _ in range(60):
        if await swept(stage, records) is Done.PERSON:
            break
        wait_for_next_date(stage, clock, seq)
    assert stage.state(seq) == "unknown"
    doubt = stage.doubt(seq)
    assert (doubt["needs_person"], doubt["reason"]) == (True, "looks_failed")
    assert stage.value("select outbox.now()") > doubt["settle_at"]


# ------------------------------------------------------------------------------------------------------------ resend


async def test_a_key_without_a_look_up_is_sent_again_inside_its_window(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.keyed")
    clock.advance(2)
    assert await swept(stage) is Done.RESEND
    assert stage.state(seq) == "unknown"
    assert (stage.pending(seq)["step"], stage.doubt(seq)["step"]) == ("resend", "resend")
    assert resent(stage, holder, seq) == 2


async def test_a_look_comes_before_a_resend_each_time(stage: Stage, holder: Holder, clock: Clock) -> None:
    seq = in_doubt(stage, holder, "thing.keyed_and_looked_up")
    records = Records()
    for attempt in (2, 3):
        asked = len(records.questions)
        for _ in range(5):
            clock.advance(5)
            if await swept(stage, records) is Done.RESEND:
                break
        assert len(records.questions) > asked
        assert resent(stage, holder, seq) == attempt


async def test_a_resend_that_runs_is_left_to_its_holder(stage: Stage, holder: Holder, clock: Clock) -> None:
    seq = in_doubt(stage, holder, "thing.keyed")
    clock.advance(2)
    assert await swept(stage) is Done.RESEND
    holder.begin_these(seq)
    wait_for_next_date(stage, clock, seq)
    assert await swept(stage, Records(CONFIRMED)) is Done.EXECUTING
    assert stage.state(seq) == "executing"
    assert wait_for_next_date(stage, clock, seq) > 30


async def test_a_resend_that_nobody_made_is_decided_again_and_a_closed_window_needs_a_person(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.keyed")
    clock.advance(2)
    assert await swept(stage) is Done.RESEND
    wait_for_next_date(stage, clock, seq)
    assert await swept(stage) is Done.RESEND
    clock.advance(24 * 3600)
    assert await swept(stage) is Done.PERSON
    assert holder.begin_these(seq) == [], "the receiver may have forgotten the key"
    assert stage.state(seq) == "unknown"


async def test_while_nobody_sends_again_the_records_are_asked_again(stage: Stage, holder: Holder, clock: Clock) -> None:
    """The tool is paused, or no relay lives; the first attempt may have landed meanwhile."""
    seq = in_doubt(stage, holder, "thing.keyed_and_looked_up")
    records = Records(UNKNOWN)
    clock.advance(2)
    while await swept(stage, records) is not Done.RESEND:
        wait_for_next_date(stage, clock, seq)
    asked = len(records.questions)
    for cycle in range(1, 4):
        wait_for_next_date(stage, clock, seq)
        assert await swept(stage, records) is Done.RESEND
        assert len(records.questions) == asked + cycle
    wait_for_next_date(stage, clock, seq)
    assert await swept(stage, Records(CONFIRMED)) is Done.SUCCEEDED


async def test_without_its_permission_an_operation_is_not_sent_again(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.keyed", expires_in=20)
    clock.advance(21)
    assert await swept(stage) is Done.PERSON
    assert stage.state(seq) == "unknown"


async def test_an_answer_that_makes_resends_pointless_is_remembered(stage: Stage, holder: Holder, clock: Clock) -> None:
    """A stored failure, or a precondition that failed on a resend: one more would say the same."""
    seq = in_doubt(stage, holder, "thing.keyed", no_resends=True)
    clock.advance(2)
    assert await swept(stage) is Done.PERSON
    assert stage.state(seq) == "unknown"


# ---------------------------------------------------------------------------------------------------- what is stored


async def test_looks_that_say_the_same_are_counted_and_stored_once(stage: Stage, holder: Holder, clock: Clock) -> None:
    seq = in_doubt(stage, holder, "thing.unbounded")
    clock.advance(2)
    for _ in range(30):
        await swept(stage)
        wait_for_next_date(stage, clock, seq)
    assert stage.doubt(seq)["reads"] == 30
    assert stage.value("select count(*) from outbox.evidence where seq = %s", seq) == 1


async def test_looks_that_alternate_without_end_are_stored_up_to_a_bound(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.unbounded")
    clock.advance(2)
    answers = itertools.cycle([NOT_FOUND, UNKNOWN])
    for _ in range(2 * IDLE_LOOKS_MAX):
        await swept(stage, Records(next(answers)))
        wait_for_next_date(stage, clock, seq)
    assert stage.value("select count(*) from outbox.evidence where seq = %s", seq) == IDLE_LOOKS_MAX
    assert await swept(stage, Records(CONFIRMED)) is Done.SUCCEEDED, "proof is kept however much there is"


async def test_two_records_with_our_identity_succeed_and_are_a_contradiction(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.looked_up")
    clock.advance(2)
    twice = Observation(verdict=Verdict.CONFIRMED, external_id="w-1", duplicates=1)
    async with reconciler_on(stage.database, Records(twice)) as reconciler:
        await reconciler.sweep.run_once()
        await reconciler.chores.run_once()
        assert reconciler.meters.registry.get_sample_value("outbox_contradictions") == 1
    assert stage.state(seq) == "succeeded"
    (found,) = stage.rows("select * from outbox.contradiction")
    assert found["seq"] == seq
