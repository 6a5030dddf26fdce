"""What begins, and when: nothing is skipped, nothing begins too early, and nobody reads what is done already."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from outbox.lease import boottime
from outbox.outcome import NO_ANSWER, Answer, NotSent, Outcome, Receipt, Throttled
from outbox.receivers import Attempt
from outbox.receivers.scripted import ScriptedReceiver, lost_answer
from relay import position as positions
from tests.support.doubts import register
from tests.support.eventually import eventually_async
from tests.support.postgres import Database
from tests.support.relays import BLIND, KEYED, put_many, registry, relay_on, seqs
from tests.support.stage import Clock, Stage, insert_intent

RECEIPT = Receipt(answer=Answer(200), receipt="r")
# So rarely that within a test only other ways lead to a row.
NEVER: dict[str, Any] = {"look_behind": "1h", "poll": "60s"}
SOON: dict[str, Any] = {"look_behind": "10ms", "poll": "10ms"}
QUICK = {"retry": {"first": "1ms", "max": "2ms"}}


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database, registry(contract=QUICK, concurrency=50))
    with Stage(database) as stage:
        yield stage


# -------------------------------------------------------------------------------------------------------- the cursor


async def test_a_lane_is_read_once_and_not_from_its_start_each_time(stage: Stage) -> None:
    """Under a snapshot that holds back every dead row, a claim from the start would read all of them again."""
    put_many(stage, 300)
    holding = stage.session()
    holding.execute("begin isolation level repeatable read")
    holding.execute("select count(*) from outbox.pending")
    async with relay_on(stage.database, batch_max=50, **NEVER) as running:
        while await running.rounds():
            pass
        ranges = [given["after"] for name, given in running.store.asked if name == "begin_range" and given["frontier"]]
        assert ranges == sorted(ranges)
        assert len(set(ranges)) >= 6
        assert ranges[-1] == stage.value("select max(seq) from outbox.intent")
    holding.execute("commit")


async def test_a_row_that_committed_late_is_found_behind_the_cursor(stage: Stage) -> None:
    """Its number was given out before the others', its transaction took longer; ten looks behind have passed since."""
    slow = stage.session("writer")
    slow.execute("begin")
    intent = {"resource": None, "expected_version": None, "arguments": "{}", "principal_id": "svc"}
    slow.execute(insert_intent(intent), intent | {"tenant_id": "acme", "operation_id": "slow", "tool": KEYED})
    receiver = ScriptedReceiver([RECEIPT])
    async with relay_on(stage.database, receiver, **SOON) as running:
        await running.take_lanes()
        for n in range(10):
            quick = stage.put(f"quick-{n}", KEYED)
            await eventually_async(lambda: one_round(running))
            assert stage.state(quick) == "succeeded"
        slow.execute("commit")
        found = stage.value("select seq from outbox.intent where operation_id = 'slow'")
        assert found < running.lane.claims.position.cursor
        await eventually_async(lambda: one_round(running))
    assert stage.state(found) == "succeeded"


async def one_round(running: Any) -> int:
    begun: int = await running.rounds()
    return begun


async def test_the_floor_rises_behind_what_is_done_and_never_above_what_may_still_commit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "FLOOR_DELAY_SECONDS", 0.0)
    async with relay_on(stage.database, **SOON) as running:
        await running.take_lanes()
        place = running.lane.claims.position
        done = stage.put("done", KEYED)
        slow = stage.session("writer")
        slow.execute("begin")
        intent = {"resource": None, "expected_version": None, "arguments": "{}", "principal_id": "svc"}
        slow.execute(insert_intent(intent), intent | {"tenant_id": "acme", "operation_id": "slow", "tool": KEYED})
        later = stage.put("later", KEYED)
        await eventually_async(lambda: settled(running, stage, later))
        for _ in range(20):
            await one_round(running)
        assert place.floor <= done + 1
        slow.execute("commit")
        await eventually_async(lambda: floor_above(running, later))


async def settled(running: Any, stage: Stage, seq: int) -> bool:
    await running.rounds()
    return stage.state(seq) == "succeeded"


async def floor_above(running: Any, seq: int) -> bool:
    await running.rounds()
    return bool(running.lane.claims.position.floor > seq)


async def test_looking_at_an_empty_lane_writes_nothing(stage: Stage) -> None:
    """A begin locks its lane, and so costs a commit also where it finds nothing."""
    async with relay_on(stage.database, **SOON) as running:
        await running.rounds(2)
        xid = stage.value("select pg_snapshot_xmax(pg_current_snapshot())::text")
        running.store.ran.clear()
        for lane in running.relay.lanes:
            for _ in range(50):
                await lane.claims.step()
        assert set(running.store.ran) <= {"peek", "lane_bounds", "own_executing"}
        assert stage.value("select pg_snapshot_xmax(pg_current_snapshot())::text") == xid


async def test_what_is_not_due_yet_lies_behind_the_cursor_and_begins_when_it_is(stage: Stage) -> None:
    clock = Clock(stage.database)
    later = stage.put("later", KEYED, not_before=stage.value("select outbox.now() + interval '1 h'"))
    now = stage.put("now", KEYED)
    receiver = ScriptedReceiver([RECEIPT])
    async with relay_on(stage.database, receiver, **SOON) as running:
        await running.rounds()
        assert running.lane.claims.position.cursor == now
        clock.advance(3601)
        await running.relay.leases.renew(boottime() + 30)  # for the database it has run out
        await eventually_async(lambda: one_round(running))
    assert seqs(receiver.attempts) == [now, later]


async def test_own_retries_come_back_at_their_time_without_a_look_behind(stage: Stage) -> None:
    script: list[Outcome] = [NotSent(reason="refused"), Throttled(answer=NO_ANSWER), RECEIPT]
    receiver = ScriptedReceiver(script)
    seq = stage.put("op", KEYED)
    async with relay_on(stage.database, receiver, **NEVER) as running:
        await eventually_async(lambda: settled(running, stage, seq))
        assert running.store.ran.count("begin_these") == 2
    assert (stage.outcome(seq)["not_sent"], stage.outcome(seq)["throttled"]) == (1, 1)


async def test_a_resend_inside_the_window_comes_back_without_a_reconciler(stage: Stage) -> None:
    receiver = ScriptedReceiver([lost_answer, RECEIPT])
    seq = stage.put("op", KEYED)
    async with relay_on(stage.database, receiver, **NEVER) as running:
        await eventually_async(lambda: settled(running, stage, seq))
    first, second = receiver.attempts
    assert (first.resend, second.resend, first.sent_key == second.sent_key) == (False, True, True)
    assert stage.rows("select from outbox.doubt") == []


@pytest.mark.parametrize("kind", ["receiver", "tool", "tenant"])
async def test_nothing_begins_for_what_is_paused(stage: Stage, kind: str) -> None:
    name = {"receiver": "warehouse", "tool": KEYED, "tenant": "acme"}[kind]
    stage.rows("insert into outbox.pause (kind, name, paused_by, reason) values (%s, %s, 'me', 'why')", kind, name)
    stage.put("op", KEYED)
    other = stage.put("other", BLIND, tenant="globex")
    receiver = ScriptedReceiver([RECEIPT])
    async with relay_on(stage.database, receiver, **SOON) as running:
        await running.rounds(3)
        assert seqs(receiver.attempts) == ([] if kind == "receiver" else [other])
        stage.rows("delete from outbox.pause")
        await eventually_async(lambda: one_round(running))


async def test_where_an_ambiguity_costs_a_person_no_more_begins_than_can_be_sent_at_once(database: Database) -> None:
    await register(database, registry(BLIND, KEYED, concurrency=3))
    with Stage(database) as stage:
        put_many(stage, 10)
        async with relay_on(database, batch_max=100) as running:
            await running.take_lanes()
            assert await running.lane.claims.step() == 3
            await running.lane.settle()


async def test_a_rate_is_obeyed_by_not_beginning(database: Database) -> None:
    await register(database, registry(KEYED, rate=2, concurrency=50))
    with Stage(database) as stage:
        put_many(stage, 10)
        async with relay_on(database) as running:
            await running.take_lanes()
            assert await running.lane.claims.step() == 2
            await running.lane.settle()
            assert await running.lane.claims.step() == 0


# ------------------------------------------------------------------------------------------------------------- order


async def test_operations_of_one_key_begin_one_after_the_other_and_at_once(stage: Stage) -> None:
    """The successor of one that ended is fetched by name: it lies behind the cursor."""
    ours = [stage.put(f"a-{n}", KEYED, ordering_key="a") for n in range(4)]
    other = stage.put("b", KEYED, ordering_key="b")
    receiver = ScriptedReceiver([RECEIPT])
    async with relay_on(stage.database, receiver, **NEVER) as running:
        assert await running.rounds() == 2
        while await running.rounds():
            pass
    assert [seq for seq in seqs(receiver.attempts) if seq != other] == ours
    assert seqs(receiver.attempts).index(other) == 1


async def test_a_doubt_blocks_its_own_key_only_until_somebody_lets_the_key_pass(stage: Stage) -> None:
    stuck = stage.put("stuck", BLIND, ordering_key="a")
    behind = stage.put("behind", BLIND, ordering_key="a")
    free = stage.put("free", BLIND, ordering_key="b")
    tenant = stage.put("theirs", BLIND, ordering_key="a", tenant="globex")
    receiver = ScriptedReceiver([lambda a: lost_answer(a) if a.seq == stuck else RECEIPT])
    async with relay_on(stage.database, receiver, **SOON) as running:
        await running.rounds(3)
        assert seqs(receiver.attempts) == [stuck, free, tenant]
        stage.rows("select outbox.unblock('acme', 'stuck', 'me', 'it can wait')")
        await eventually_async(lambda: one_round(running))
    assert seqs(receiver.attempts)[-1] == behind


async def test_the_next_of_a_key_waits_until_an_earlier_attempt_can_no_longer_land(database: Database) -> None:
    """A repeat that is harmless is not harmless after the next value has been written."""
    harmless = {**QUICK, "repeat_safe": True, "in_flight_bound": "30s"}
    await register(database, registry(BLIND, contract=harmless, concurrency=4))
    with Stage(database) as stage:
        clock = Clock(database)
        first, second = (stage.put(f"op-{n}", BLIND, ordering_key="a") for n in range(2))
        receiver = ScriptedReceiver([lost_answer, RECEIPT])
        async with relay_on(database, receiver, **SOON) as running:
            await eventually_async(lambda: settled(running, stage, first))
            await running.rounds(5)
            assert stage.state(second) == "authorized"
            clock.advance(70)
            await running.relay.leases.renew(boottime() + 30)  # for the database it has run out
            await eventually_async(lambda: settled(running, stage, second))


# ---------------------------------------------------------------------------------------------------------- the bell


async def test_a_writer_that_read_the_old_flag_is_not_missed(stage: Stage) -> None:
    """It inserted while the lane was busy, so it does not ring; it commits after the holder said that it is idle."""
    receiver = ScriptedReceiver([RECEIPT])
    async with relay_on(stage.database, receiver, bell=True, **NEVER) as running, running.running():
        await eventually_async(lambda: stage.value("select count(*) from outbox.lane where bell is not null"))
        stage.rows("update outbox.lane set idle = false")
        writer = stage.session("writer")
        writer.execute("begin")
        intent = {"resource": None, "expected_version": None, "arguments": "{}", "principal_id": "svc"}
        writer.execute(insert_intent(intent), intent | {"tenant_id": "acme", "operation_id": "op", "tool": KEYED})
        running.lane.claims.rhythm.went_busy()
        running.lane.ring()
        await eventually_async(lambda: stage.value("select bool_and(idle) from outbox.lane"))
        writer.execute("commit")
        await eventually_async(lambda: len(receiver.attempts) == 1)


async def test_a_quiet_lane_is_woken_by_the_commit_of_an_intent(stage: Stage) -> None:
    receiver = ScriptedReceiver([RECEIPT])
    async with relay_on(stage.database, receiver, bell=True, **NEVER) as running, running.running():
        await eventually_async(lambda: running.relay.lanes and quiet(running))
        for n in range(3):
            seq = stage.put(f"op-{n}", KEYED)
            await eventually_async(lambda seq=seq: stage.state(seq) == "succeeded")  # type: ignore[misc]
        assert running.counted("rings") >= 3


def quiet(running: Any) -> bool:
    rhythm = running.lane.claims.rhythm
    return bool(rhythm.idle and rhythm._verify_until is None)


async def test_somebody_who_makes_an_operation_due_behind_the_cursor_rings_for_it(stage: Stage) -> None:
    receiver = ScriptedReceiver([Throttled(answer=NO_ANSWER, retry_after_seconds=3000), RECEIPT])
    async with relay_on(stage.database, receiver, bell=True, **NEVER) as running, running.running():
        seq = stage.put("op", KEYED)
        await eventually_async(lambda: stage.state(seq) == "authorized" and bool(receiver.attempts))
        stage.as_role("operator").execute("select outbox.retry('acme', 'op', 'me')")
        await eventually_async(lambda: stage.state(seq) == "succeeded")


async def test_a_bell_that_broke_delays_and_loses_nothing(stage: Stage) -> None:
    receiver = ScriptedReceiver([RECEIPT])
    settings = {**NEVER, "poll": "100ms"}
    async with relay_on(stage.database, receiver, bell=True, **settings) as running, running.running():
        await eventually_async(lambda: running.relay.lanes and quiet(running))
        assert stage.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where left(query, 6) = 'listen' and datname = current_database()"
        )
        seq = stage.put("op", KEYED)
        await eventually_async(lambda: stage.state(seq) == "succeeded")


async def test_without_a_bell_polling_is_enough(stage: Stage) -> None:
    receiver = ScriptedReceiver([RECEIPT])
    async with relay_on(stage.database, receiver, poll="50ms") as running, running.running():
        await eventually_async(lambda: bool(running.relay.lanes))
        seq = stage.put("op", KEYED)
        await eventually_async(lambda: stage.state(seq) == "succeeded")
        assert not stage.value("select bool_or(idle) from outbox.lane"), "nobody listens, so nobody need ring"


async def test_writers_need_not_ring_while_there_is_work(stage: Stage) -> None:
    seen: list[bool] = []

    def answer(_: Attempt) -> Outcome:
        seen.append(stage.value("select idle from outbox.lane"))
        return RECEIPT

    put_many(stage, 400)
    async with relay_on(stage.database, ScriptedReceiver([answer]), bell=True, **NEVER) as running, running.running():
        await eventually_async(lambda: len(seen) == 400)
    assert not any(seen)
