"""Many operations in doubt at once: what it costs, and that none of them stands or falls with another."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest

from outbox.errors import DatabaseUnavailable
from outbox.evidence import Observation
from outbox.receivers import Question
from reconciler.act import Done
from reconciler.service import Reconciler
from tests.support.doubts import (
    CONFIRMED,
    NOT_FOUND,
    SETTLE_SECONDS,
    UNKNOWN,
    Records,
    another_receiver,
    configuration,
    in_doubt,
    reconciler_on,
    register,
    resent,
)
from tests.support.eventually import eventually_async
from tests.support.postgres import Database
from tests.support.stage import Clock, Holder, Stage

T = TypeVar("T")

MANY = 12
# What a pass asks once, however many operations there are.
CLAIM = ["claim_doubt", "read_evidence"]
LOOK = ["count_read", "read_evidence"]


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database, configuration(concurrency=64))
    with Stage(database) as stage:
        yield stage


@pytest.fixture
def clock(stage: Stage) -> Clock:
    return Clock(stage.database)


@pytest.fixture
def holder(stage: Stage) -> Holder:
    return stage.holder().taken(ttl_seconds=1_000_000)


@pytest.fixture
def seqs(stage: Stage, holder: Holder, clock: Clock) -> list[int]:
    """So many operations of which nothing is heard, so long ago that a look can prove absence."""
    made = [in_doubt(stage, holder, "thing.looked_up", f"op-{number}") for number in range(MANY)]
    clock.advance(SETTLE_SECONDS + 1)
    return made


class Together:
    """Answers nobody before all have asked, and then all at once; `before` happens in between."""

    def __init__(self, number: int, answer: Observation, before: Callable[[], object] = bool) -> None:
        self._all = asyncio.Barrier(number)
        self._answer = answer
        self._before = before

    async def __call__(self, question: Question) -> Observation:
        if await self._all.wait() == 0:
            self._before()
        await self._all.wait()
        return self.about(question)

    def about(self, question: Question) -> Observation:
        return self._answer


def statements_of(reconciler: Reconciler) -> list[str]:
    """The statements that run from now on."""
    store, ran = reconciler.sweep._store, []

    def counted(method: Callable[..., T]) -> Callable[..., T]:
        def run(statement: str, *given: Any, **parameters: Any) -> T:
            ran.append(statement)
            return method(statement, *given, **parameters)

        return run

    store.dicts = counted(store.dicts)  # type: ignore[method-assign]
    return ran


async def swept(reconciler: Reconciler) -> Counter[Done]:
    return Counter(await reconciler.sweep.run_once())


def states(stage: Stage, seqs: list[int]) -> Counter[str]:
    return Counter(stage.state(seq) for seq in seqs)


# ---------------------------------------------------------------------------------------------------------- statements


@pytest.mark.parametrize(
    ("tool", "answer", "then"),
    [
        ("thing.looked_up", CONFIRMED, ["settle", Done.SUCCEEDED]),
        ("thing.looked_up", NOT_FOUND, ["settle", Done.AUTHORIZED]),
        ("thing.unbounded", NOT_FOUND, ["keep_look", "reschedule", Done.LATER]),
        ("thing.unbounded", UNKNOWN, ["keep_look", "reschedule", Done.LATER]),
        ("thing.keyed_and_looked_up", UNKNOWN, ["keep_look", "allow_resend", Done.RESEND]),
    ],
    ids=["found", "proven absent", "not found", "no answer", "sent again"],
)
async def test_operations_that_are_answered_together_take_as_many_statements_as_one(
    stage: Stage, clock: Clock, tool: str, answer: Observation, then: list[str]
) -> None:
    holder = stage.holder().taken(ttl_seconds=1_000_000)
    for number in (1, MANY):
        for n in range(number):
            in_doubt(stage, holder, tool, f"op-{number}-{n}")
        clock.advance(SETTLE_SECONDS + 1 if tool == "thing.looked_up" else 2)
        async with reconciler_on(stage.database, Records(Together(number, answer))) as reconciler:
            ran = statements_of(reconciler)
            assert await swept(reconciler) == {then[-1]: number}
        assert ran == [*CLAIM, *LOOK, *then[:-1]]
        stage.rows("update outbox.doubt set next_at = 'infinity'")


async def test_a_claim_takes_no_more_than_the_receiver_takes_at_a_time(database: Database) -> None:
    await register(database, configuration(concurrency=3))
    with Stage(database) as stage:
        clock, holder = Clock(database), stage.holder().taken(ttl_seconds=1_000_000)
        for number in range(5):
            in_doubt(stage, holder, "thing.looked_up", f"op-{number}")
        clock.advance(2)
        async with reconciler_on(database, Records(CONFIRMED), concurrency=64) as reconciler:
            assert await swept(reconciler) == {Done.SUCCEEDED: 3}
        async with reconciler_on(database, Records(CONFIRMED), concurrency=1) as reconciler:
            assert await swept(reconciler) == {Done.SUCCEEDED: 1}


async def test_places_that_are_free_are_filled_without_waiting_for_the_next_poll(
    stage: Stage, holder: Holder, clock: Clock
) -> None:
    """Single ones are not worth a claim; the second is not overlooked because another receiver has nothing to do."""
    await register(stage.database, another_receiver())
    for number in range(20):
        in_doubt(stage, holder, "thing.looked_up", f"op-{number}")
    clock.advance(2)
    gates: list[asyncio.Event] = []

    async def look(_: Question) -> Observation:
        gates.append(asyncio.Event())
        await gates[-1].wait()
        return CONFIRMED

    async with reconciler_on(stage.database, Records(look), concurrency=16) as reconciler:
        stop = asyncio.Event()
        running = asyncio.create_task(reconciler.sweep.run(stop, 3_600))

        async def asked(number: int, ended: int) -> bool:
            ends = stage.value("select count(*) from outbox.outcome")
            return (len(gates), ends, len(reconciler.sweep._running)) == (number, ended, number - ended)

        await eventually_async(lambda: asked(16, 0))
        gates[0].set()
        await eventually_async(lambda: asked(16, 1))
        gates[1].set()
        await eventually_async(lambda: asked(18, 2))
        stop.set()
        await running
        await reconciler.sweep.finish(0.0, asyncio.Event())
    assert stage.value("select count(*) from outbox.doubt where claimed_by is not null") == 0


async def test_what_has_been_looked_up_holds_no_place_while_it_is_written(stage: Stage, seqs: list[int]) -> None:
    """Rows that a person holds are waited for; others are looked up meanwhile, as long as there are not too many."""
    first, others, records = stage.connect(), stage.connect(), Records(CONFIRMED)
    for person, held in ((first, seqs[:2]), (others, seqs[2:])):
        person.execute("begin")
        person.execute("select from outbox.pending where seq = any(%s) for update", [held])

    async with reconciler_on(stage.database, records, concurrency=2) as reconciler:
        stop = asyncio.Event()
        running = asyncio.create_task(reconciler.sweep.run(stop, 0.01))

        async def asked(number: int, ended: int) -> bool:
            return (len(records.questions), stage.value("select count(*) from outbox.outcome")) == (number, ended)

        await eventually_async(lambda: asked(4, 0))
        assert reconciler.sweep._free_places(reconciler._served()) == {}
        others.execute("rollback")
        await eventually_async(lambda: asked(MANY, MANY - 2))
        first.execute("rollback")
        await eventually_async(lambda: asked(MANY, MANY))
        stop.set()
        await running


# --------------------------------------------------------------------------------------------- one among many is wrong


async def test_what_cannot_be_stored_of_one_operation_stops_no_other(stage: Stage, seqs: list[int]) -> None:
    """A fence that no column holds, from a receiver of a third party; and the others are settled all the same."""

    class Hostile(Together):
        def about(self, question: Question) -> Observation:
            return dataclasses.replace(CONFIRMED, fence=2**70) if question.seq == seqs[4] else CONFIRMED

    async with reconciler_on(stage.database, Records(Hostile(MANY, CONFIRMED))) as reconciler:
        assert await swept(reconciler) == {Done.SUCCEEDED: MANY - 1, Done.FAILED: 1}
    assert states(stage, seqs) == {"succeeded": MANY - 1, "unknown": 1}
    assert stage.state(seqs[4]) == "unknown"
    assert stage.value("select count(*) from outbox.evidence") == MANY - 1, "each look is kept once"


async def test_each_operation_of_a_group_hears_what_has_become_of_it(
    stage: Stage, holder: Holder, clock: Clock, seqs: list[int]
) -> None:
    """While all looks are on their way, and when all are judged: nobody is overruled, and nobody else is disturbed."""
    ended, proven, overtaken = seqs[2], seqs[5], seqs[7]
    resent_one = in_doubt(stage, holder, "thing.keyed_and_looked_up", "resent", steps="resend")
    clock.advance(SETTLE_SECONDS + 1)

    def meanwhile() -> None:
        stage.as_role("operator").execute(
            "select outbox.resolve('acme', 'op-2', 1, 'succeeded', 'w-3', 'ann', 'I saw it in their console')"
        )
        stage.rows("update outbox.doubt set claimed_by = gen_random_uuid() where seq = %s", overtaken)
        assert resent(stage, holder, resent_one) == 2

    async with reconciler_on(stage.database, Records(Together(MANY + 1, NOT_FOUND, meanwhile))) as reconciler:
        settle = reconciler.sweep._store.dicts

        async def witnessed_first(statement: str, /, **parameters: Any) -> list[dict[str, Any]]:
            if statement == "settle" and not stage.rows("select from outbox.evidence where kind = 'receipt'"):
                stage.witness(proven, "receipt", attempt=1, fence=holder.fence, external_id="w-9")
            return await settle(statement, **parameters)

        reconciler.sweep._store.dicts = witnessed_first  # type: ignore[method-assign]
        counts = await swept(reconciler)
    assert counts[Done.AUTHORIZED] == MANY - 3
    assert counts[Done.SUCCEEDED] == 1, "the proof that came in"
    assert counts[Done.OVERTAKEN] == 3
    assert (stage.outcome(ended)["external_id"], stage.outcome(proven)["external_id"]) == ("w-3", "w-9")
    assert stage.state(overtaken) == "unknown"
    pending = stage.pending(resent_one)
    assert (pending["state"], pending["attempt"]) == ("unknown", 2), "one look says nothing of a later attempt"


@pytest.mark.parametrize("locked", ["pending", "doubt"])
async def test_a_row_that_a_person_holds_delays_no_other_operation(
    stage: Stage, clock: Clock, seqs: list[int], locked: str
) -> None:
    person = stage.connect()
    held = seqs[6]

    def hold() -> None:
        person.execute("begin")
        person.execute(f"select from outbox.{locked} where seq = %s for update".encode(), [held])

    async with reconciler_on(stage.database, Records(Together(MANY, CONFIRMED, hold))) as reconciler:
        sweeping = asyncio.create_task(swept(reconciler))

        async def others_settled() -> bool:
            return bool(stage.value("select count(*) from outbox.outcome") == MANY - 1)

        await eventually_async(others_settled)
        assert not sweeping.done()
        person.execute("rollback")
        assert await sweeping == {Done.SUCCEEDED: MANY}


# --------------------------------------------------------------------------------------------------- a group that fails


class Losing:
    """Loses an answer of a statement, after its commit or before it was ever sent."""

    def __init__(self, reconciler: Reconciler, statement: str, *, committed: bool) -> None:
        self._dicts = reconciler.sweep._store.dicts
        self._statement, self._committed = statement, committed
        reconciler.sweep._store.dicts = self.dicts  # type: ignore[method-assign]

    async def dicts(self, statement: str, /, **parameters: Any) -> list[dict[str, Any]]:
        loses = statement == self._statement
        rows = await self._dicts(statement, **parameters) if self._committed or not loses else []
        if loses:
            self._statement = ""
            raise DatabaseUnavailable("the connection broke")
        return rows


@pytest.mark.parametrize("committed", [True, False])
async def test_the_commit_of_a_group_that_was_not_heard_of_is_found_out_by_reading(
    stage: Stage, clock: Clock, seqs: list[int], *, committed: bool
) -> None:
    records = Records(Together(MANY, CONFIRMED))
    async with reconciler_on(stage.database, records, claim="60s") as reconciler:
        Losing(reconciler, "settle", committed=committed)
        with pytest.raises(DatabaseUnavailable):
            await reconciler.sweep.run_once()
        assert states(stage, seqs) == {"succeeded" if committed else "unknown": MANY}
        # They are taken up at once, not when their claims have run out; the look that was counted has its interval.
        assert await swept(reconciler) == ({} if committed else {Done.LATER: MANY})
        clock.advance(2)
        assert await swept(reconciler) == ({} if committed else {Done.SUCCEEDED: MANY})
    assert states(stage, seqs) == {"succeeded": MANY}
    assert stage.value("select count(*) from outbox.evidence") == MANY, "each look that counts is kept once"


async def test_what_was_claimed_and_could_not_be_read_is_claimed_again_at_once(
    stage: Stage, clock: Clock, seqs: list[int]
) -> None:
    async with reconciler_on(stage.database, Records(Together(MANY, CONFIRMED)), claim="60s") as reconciler:
        Losing(reconciler, "read_evidence", committed=False)
        with pytest.raises(DatabaseUnavailable):
            await reconciler.sweep.run_once()
        assert await swept(reconciler) == {Done.SUCCEEDED: MANY}


async def test_whoever_stops_after_a_lost_connection_gives_back_what_it_had_claimed(
    stage: Stage, clock: Clock, seqs: list[int]
) -> None:
    async with reconciler_on(stage.database, Records(Together(MANY, CONFIRMED)), claim="60s") as reconciler:
        Losing(reconciler, "settle", committed=False)
        with pytest.raises(DatabaseUnavailable):
            await reconciler.sweep.run_once()
        await reconciler.sweep.finish(1.0, asyncio.Event())
    assert stage.value("select count(*) from outbox.doubt where claimed_by is not null") == 0


async def test_a_look_and_what_was_decided_because_of_it_are_one_commit(
    stage: Stage, clock: Clock, seqs: list[int]
) -> None:
    """Whoever dies between them, or never hears of either, leaves both or none."""
    async with reconciler_on(stage.database, Records(Together(MANY, CONFIRMED)), claim="60s") as reconciler:
        Losing(reconciler, "settle", committed=False)
        with pytest.raises(DatabaseUnavailable):
            await reconciler.sweep.run_once()
    assert stage.value("select count(*) from outbox.evidence") == 0
    assert stage.value("select count(*) from outbox.outcome") == 0


async def test_two_reconcilers_that_settle_the_same_group_settle_each_operation_once(
    stage: Stage, clock: Clock, seqs: list[int]
) -> None:
    """The first is stopped while its looks are on their way, until its claims have run out."""
    go_on = asyncio.Event()

    def held() -> tuple[Records, asyncio.Event]:
        all_asked = asyncio.Event()

        async def look(_: Question) -> Observation:
            if len(records.questions) == MANY:
                all_asked.set()
            await go_on.wait()
            return CONFIRMED

        records = Records(look)
        return records, all_asked

    (slow_records, slow_asked), (quick_records, quick_asked) = held(), held()
    async with (
        reconciler_on(stage.database, slow_records, claim="60s") as slow,
        reconciler_on(stage.database, quick_records) as quick,
    ):
        first = asyncio.create_task(swept(slow))
        await slow_asked.wait()
        clock.advance(61)
        second = asyncio.create_task(swept(quick))
        await quick_asked.wait()
        go_on.set()
        assert (await first, await second) == ({Done.OVERTAKEN: MANY}, {Done.SUCCEEDED: MANY})
    assert states(stage, seqs) == {"succeeded": MANY}
