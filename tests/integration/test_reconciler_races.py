"""Reconcilers beside each other, beside a relay and beside people: whoever is late changes nothing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest

from outbox import crashpoints, sql
from outbox.contract import ReceiverConfig
from outbox.errors import ConfigError
from outbox.evidence import Observation, Verdict
from outbox.receivers import Question, Receiver
from reconciler.act import Done
from reconciler.service import Reconciler
from tests.support.doubts import (
    CONFIRMED,
    NOT_FOUND,
    SETTLE_SECONDS,
    UNKNOWN,
    Held,
    Records,
    another_receiver,
    in_doubt,
    reconciler_on,
    register,
    resent,
)
from tests.support.eventually import eventually_async
from tests.support.postgres import Database
from tests.support.stage import WITNESS, Clock, Connection, Holder, Stage


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


@pytest.fixture
def at_point(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Let somebody else act when this process passes a named point, once."""
    acts: dict[str, Callable[[], object]] = {}

    def reach(name: str) -> None:
        if (act := acts.pop(name, None)) is not None:
            act()

    monkeypatch.setattr(crashpoints, "reach", reach)
    return acts.__setitem__


async def started(*reconcilers: Reconciler) -> list[Counter[Done]]:
    """Let them all sweep at once."""
    return [Counter(done) for done in await asyncio.gather(*(one.sweep.run_once() for one in reconcilers))]


# ------------------------------------------------------------------------------------------------- two reconcilers


async def test_two_reconcilers_never_read_one_operation_at_once(stage: Stage, holder: Holder, clock: Clock) -> None:
    for number in range(20):
        in_doubt(stage, holder, "thing.looked_up", f"op-{number}")
    clock.advance(2)
    reading: set[int] = set()
    everybody = asyncio.Barrier(2)

    async def look(question: Question) -> Observation:
        assert question.seq not in reading
        reading.add(question.seq)
        await asyncio.sleep(0)
        return UNKNOWN

    records = Records(look)
    async with (
        reconciler_on(stage.database, records, concurrency=20) as one,
        reconciler_on(stage.database, records, concurrency=20) as other,
    ):

        async def sweep(reconciler: Reconciler) -> Counter[Done]:
            await everybody.wait()
            return Counter(await reconciler.sweep.run_once())

        counts = await asyncio.gather(sweep(one), sweep(other))
    assert len(reading) == 20
    assert counts[0] + counts[1] == {Done.LATER: 20}


def test_a_claim_waits_for_nobody_and_takes_nothing_twice(stage: Stage, holder: Holder, clock: Clock) -> None:
    """Two claims whose transactions overlap, with more due than either takes; then one beside a resend that ends."""
    seqs = [in_doubt(stage, holder, "thing.looked_up", f"op-{number}") for number in range(5)]
    clock.advance(2)
    one, other = stage.session("reconciler"), stage.session("reconciler")
    with one.transaction():
        first = claimed(one, 3)
        with other.transaction():
            second = claimed(other, 3)
            assert (len(first), len(second)) == (3, 2)
            assert sorted(first + second) == seqs
    assert claimed(one, 3) == []
    clock.advance(61)
    # The relay learns something about an operation, and has not committed yet: it is not waited for, nor taken.
    busy = stage.session("relay")
    with busy.transaction():
        busy.execute(WITNESS, witnessed(seqs[0]))
        assert claimed(one, 10) == seqs[1:]
    assert claimed(other, 10) == [seqs[0]]


def test_a_claim_reads_no_more_than_it_takes(stage: Stage) -> None:
    """Also with the statistics of an empty table: after a large outage everything is in doubt at once."""
    stage.rows(
        """
        insert into outbox.doubt (seq, receiver_id, lane, tenant_id, tool, attempt, next_at)
        select n, 1 + mod(n, 2), 0, 'acme', 'thing.blind', 1, outbox.now() - interval '1 h'
        from generate_series(1, 20000) n
        """
    )
    given = {"receiver_ids": [1, 2], "places": [8, 8], "claim": uuid4(), "claim_seconds": 60}
    rows = stage.connect("reconciler").execute("explain " + sql.load("reconcile")["claim_doubt"], given).fetchall()
    plan = "\n".join(row["QUERY PLAN"] for row in rows)
    assert "Index Scan using doubt_due" in plan
    assert "Seq Scan" not in plan
    assert "hashed" not in plan


def claimed(connection: Connection, places: int) -> list[int]:
    """Claim up to so many, for a minute."""
    given = {"receiver_ids": [1], "places": [places], "claim": uuid4(), "claim_seconds": 60}
    rows = connection.execute(sql.load("reconcile")["claim_doubt"], given).fetchall()
    return sorted(row["seq"] for row in rows)


def witnessed(seq: int) -> dict[str, object]:
    """The parameters of a receipt in evidence."""
    names = "attempt fence verdict external_id receipt duplicates status excerpt request_id sent_at stated_by note"
    return dict.fromkeys(names.split()) | {"seq": seq, "kind": "receipt", "source": "test"}


async def test_a_claim_that_outlives_its_holder_is_taken_over_and_the_late_decision_changes_nothing(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    """Both read "not found", and both were right; the first one decides when another attempt has been made."""
    seq = in_doubt(stage, holder, "thing.looked_up")
    clock.advance(SETTLE_SECONDS + 1)
    held = Held(NOT_FOUND)
    async with (
        reconciler_on(stage.database, Records(held), claim="60s") as slow,
        reconciler_on(stage.database, Records(NOT_FOUND)) as quick,
    ):
        late = asyncio.create_task(slow.sweep.run_once())
        await held.asked.wait()
        assert await quick.sweep.run_once() == {}, "it is claimed"
        clock.advance(61)
        assert await quick.sweep.run_once() == {Done.AUTHORIZED: 1}
        assert resent(stage, holder, seq) == 2, "this attempt may have an effect"
        held.released.set()
        assert await late == {Done.OVERTAKEN: 1}
    pending = stage.pending(seq)
    assert (pending["state"], pending["attempt"]) == ("unknown", 2)


@pytest.mark.parametrize("to", ["authorized", "rejected"])
async def test_the_database_refuses_a_decision_about_another_attempt(stage: Stage, holder: Holder, to: str) -> None:
    seq = in_doubt(stage, holder, "thing.keyed", steps="resend")
    assert resent(stage, holder, seq) == 2
    before = stage.everything()
    assert stage.settle(seq, 1, to) == "moved"
    assert stage.everything() == before


# ------------------------------------------------------------------------------------------------ beside a relay


async def test_a_look_that_found_nothing_changes_nothing_once_the_relay_has_a_receipt(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.keyed_and_looked_up", steps="resend")
    clock.advance(SETTLE_SECONDS + 1)
    held = Held(NOT_FOUND)
    async with reconciler_on(stage.database, Records(held)) as reconciler:
        looking = asyncio.create_task(reconciler.sweep.run_once())
        await held.asked.wait()
        (attempt,) = holder.begin_these(seq)
        assert holder.end((seq, attempt["attempt"])) == [seq]
        held.released.set()
        assert await looking == {Done.OVERTAKEN: 1}
    assert stage.state(seq) == "succeeded"
    assert stage.value("select count(*) from outbox.evidence where verdict = 'not_found'") <= 1


async def test_an_attempt_that_begins_while_its_operation_is_looked_at_keeps_it(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.keyed_and_looked_up", steps="resend")
    clock.advance(SETTLE_SECONDS + 1)

    def begin(_: Question) -> Observation:
        holder.begin_these(seq)
        return NOT_FOUND

    async with reconciler_on(stage.database, Records(begin)) as reconciler:
        assert await reconciler.sweep.run_once() == {Done.EXECUTING: 1}
    assert stage.state(seq) == "executing"
    assert holder.end((seq, 2)) == [seq]


async def test_an_attempt_that_begins_between_decision_and_write_keeps_its_operation(
    stage: Stage, holder: Holder, clock: Clock, at_point: Callable[[str, Callable[[], object]], None]
) -> None:
    seq = in_doubt(stage, holder, "thing.keyed_and_looked_up", steps="resend")
    clock.advance(SETTLE_SECONDS + 1)
    at_point("before_settle", lambda: holder.begin_these(seq))
    async with reconciler_on(stage.database, Records(NOT_FOUND)) as reconciler:
        assert await reconciler.sweep.run_once() == {Done.OVERTAKEN: 1}
        assert stage.state(seq) == "executing"
        assert await reconciler.sweep.run_once() == {Done.EXECUTING: 1}, "its claim was given back"


async def test_a_receipt_between_decision_and_write_turns_the_decision(
    stage: Stage, holder: Holder, clock: Clock, at_point: Callable[[str, Callable[[], object]], None]
) -> None:
    """Absence was proven, as far as anybody could know; then a late answer of a lost lease came in."""
    seq = in_doubt(stage, holder, "thing.looked_up")
    clock.advance(SETTLE_SECONDS + 1)
    at_point("before_settle", lambda: stage.witness(seq, "receipt", attempt=1, fence=holder.fence, external_id="w-9"))
    async with reconciler_on(stage.database, Records(NOT_FOUND)) as reconciler:
        assert await reconciler.sweep.run_once() == {Done.SUCCEEDED: 1}
    outcome = stage.outcome(seq)
    assert (outcome["cause"], outcome["external_id"]) == ("late_receipt", "w-9")


async def test_a_receipt_that_comes_in_while_the_next_date_is_written_is_not_slept_over(
    stage: Stage, holder: Holder, clock: Clock, at_point: Callable[[str, Callable[[], object]], None]
) -> None:
    seq = in_doubt(stage, holder, "thing.looked_up")
    clock.advance(2)
    async with reconciler_on(stage.database, Records(UNKNOWN)) as reconciler:
        reschedule = reconciler.sweep._settler._acts.reschedule

        async def witnessed_first(*given: object) -> Done:
            stage.witness(seq, "receipt", attempt=1, fence=holder.fence)
            return await reschedule(*given)  # type: ignore[arg-type]

        reconciler.sweep._settler._acts.reschedule = witnessed_first  # type: ignore[method-assign, assignment]
        assert await reconciler.sweep.run_once() == {Done.LATER: 1}
        assert await reconciler.sweep.run_once() == {Done.SUCCEEDED: 1}, "it is due at once"


async def test_proof_that_a_person_and_a_look_disagree_on_is_not_decided_in_a_circle(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    """A record under our key that is another's proves nothing, and still nobody may say that there is no effect."""
    seq = in_doubt(stage, holder, "thing.keyed_and_looked_up", causes="mismatch", no_resends=True)
    stage.witness(seq, "lookup", attempt=1, verdict="confirmed", external_id="w-1")
    clock.advance(SETTLE_SECONDS + 3_600)
    stage.witness(seq, "statement", role="reconciler", attempt=1, verdict="not_found", stated_by="ann")
    async with reconciler_on(stage.database, Records(NOT_FOUND)) as reconciler:
        assert await reconciler.sweep.run_once() == {Done.LATER: 1}
        assert await reconciler.sweep.run_once() == {}
    assert stage.state(seq) == "unknown"


# ------------------------------------------------------------------------------------------------ beside a person


async def test_a_person_who_decides_while_a_look_is_made_is_not_overruled(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.looked_up")
    clock.advance(SETTLE_SECONDS + 1)

    def resolve(_: Question) -> Observation:
        stage.as_role("operator").execute(
            "select outbox.resolve('acme', 'op', 1, 'succeeded', 'w-3', 'ann', 'I saw it in their console')"
        )
        return NOT_FOUND

    async with reconciler_on(stage.database, Records(resolve)) as reconciler:
        assert await reconciler.sweep.run_once() == {Done.OVERTAKEN: 1}
    outcome = stage.outcome(seq)
    assert (outcome["state"], outcome["external_id"]) == ("succeeded", "w-3")


async def test_what_is_seen_too_late_is_kept_and_raises_a_contradiction(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    seq = in_doubt(stage, holder, "thing.looked_up")
    clock.advance(SETTLE_SECONDS + 1)

    def resolve(_: Question) -> Observation:
        stage.as_role("operator").execute(
            "select outbox.resolve('acme', 'op', 1, 'rejected', null, 'ann', 'it is not in their console')"
        )
        return CONFIRMED

    async with reconciler_on(stage.database, Records(resolve)) as reconciler:
        assert await reconciler.sweep.run_once() == {Done.OVERTAKEN: 1}
        assert (await reconciler.chores.run_once())["watch_contradictions"] == 1
    assert stage.state(seq) == "rejected", "terminal operations never change"
    assert [row["seq"] for row in stage.rows("select seq from outbox.contradiction")] == [seq]


# --------------------------------------------------------------------------------------------- other receivers


async def test_a_receiver_that_does_not_answer_delays_no_other(stage: Stage, holder: Holder, clock: Clock) -> None:
    await register(stage.database, another_receiver())
    other = stage.holder(receiver="shop").taken(ttl_seconds=1_000_000)
    for number in range(5):
        in_doubt(stage, holder, "thing.looked_up", f"silent-{number}")
    answered = [in_doubt(stage, other, "shop.sell", f"answered-{number}") for number in range(5)]
    clock.advance(2)
    held = Held()
    receivers: dict[str, Receiver] = {"warehouse": Records(held), "shop": Records(CONFIRMED)}

    def opened(name: str, _: ReceiverConfig) -> Receiver:
        return receivers[name]

    async with reconciler_on(stage.database, opened, concurrency=2, batch=100) as reconciler:
        stop = asyncio.Event()
        running = asyncio.create_task(reconciler.sweep.run(stop, 0.01))
        await held.asked.wait()

        async def all_settled() -> bool:
            return not any(stage.one("doubt", seq) for seq in answered)

        await eventually_async(all_settled)
        claimed = stage.value("select count(*) from outbox.doubt where claimed_by is not null")
        assert claimed == 2, "the silent one holds its own places, and no more"
        stop.set()
        await running
        await reconciler.sweep.finish(0.0, asyncio.Event())
    assert stage.value("select count(*) from outbox.doubt where claimed_by is not null") == 0, "claims are given back"
    assert {stage.state(seq) for seq in answered} == {"succeeded"}


async def test_a_reconciler_may_be_told_to_ask_some_receivers_only(stage: Stage, holder: Holder, clock: Clock) -> None:
    await register(stage.database, another_receiver())
    other = stage.holder(receiver="shop").taken(ttl_seconds=1_000_000)
    ours, theirs = in_doubt(stage, other, "shop.sell", "ours"), in_doubt(stage, holder, "thing.looked_up", "theirs")
    clock.advance(2)
    async with reconciler_on(stage.database, Records(CONFIRMED), only=("shop",)) as reconciler:
        assert await reconciler.sweep.run_once() == {Done.SUCCEEDED: 1}
    assert (stage.state(ours), stage.state(theirs)) == ("succeeded", "unknown")
    with pytest.raises(ConfigError, match="there is no such receiver"):
        async with reconciler_on(stage.database, Records(), only=("nobody",)):
            pass


async def test_one_operation_that_cannot_be_judged_stops_no_other(stage: Stage, holder: Holder, clock: Clock) -> None:
    broken = in_doubt(stage, holder, "thing.looked_up", "broken")
    whole = in_doubt(stage, holder, "thing.looked_up", "whole")
    stage.rows(
        """
        with newer as (
          insert into outbox.contract (digest, tool, version, body)
          values (sha256('newer'), 'thing.looked_up', 99, '{"of": "a later release"}') returning contract_id
        )
        update outbox.pending set contract_id = newer.contract_id from newer where seq = %s
        """,
        broken,
    )
    clock.advance(2)
    async with reconciler_on(stage.database, Records(CONFIRMED)) as reconciler:
        assert await reconciler.sweep.run_once() == {Done.FAILED: 1, Done.SUCCEEDED: 1}
        assert await reconciler.sweep.run_once() == {}, "its claim stands: it is not tried in a circle"
    assert stage.state(whole) == "succeeded"
    assert stage.state(broken) == "unknown"


async def test_verdicts_are_counted_by_receiver(stage: Stage, holder: Holder, clock: Clock) -> None:
    in_doubt(stage, holder, "thing.looked_up")
    clock.advance(2)
    async with reconciler_on(stage.database, Records(CONFIRMED)) as reconciler:
        await reconciler.run_once()
        sample = reconciler.meters.registry.get_sample_value
        assert sample("outbox_looks_total", {"receiver": "warehouse", "verdict": Verdict.CONFIRMED}) == 1
        assert (
            sample("outbox_settled_total", {"receiver": "warehouse", "state": "succeeded", "cause": "confirmed"}) == 1
        )
