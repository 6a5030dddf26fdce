"""Lanes are shared evenly, renewed in time, taken over when their holder is gone, and given back when it leaves."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outbox.errors import DatabaseUnavailable
from outbox.lease import LocalLease, boottime
from outbox.outcome import Answer, Receipt, ReceiverFault, StaleFence
from outbox.receivers.scripted import ScriptedReceiver
from tests.support.doubts import register
from tests.support.eventually import eventually_async
from tests.support.postgres import Database
from tests.support.relays import BLIND, KEYED, Held, Running, put_many, registry, relay_on
from tests.support.stage import Stage

RECEIPT = Receipt(answer=Answer(200), receipt="r")
SHORT: dict[str, Any] = {"lease": "3s"}
BEAT: dict[str, Any] = {"heartbeat": "100ms", "look_behind": "10ms", "poll": "20ms"}


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database, registry(KEYED, lanes=4, concurrency=16, tool={"deadline": "1s"}, **SHORT))
    with Stage(database) as stage:
        yield stage


def held(stage: Stage, *relays: Running) -> list[int]:
    counted = {row["member_id"]: row["lanes"] for row in stage.rows(
        "select member_id, count(*) as lanes from outbox.lane where expires_at > outbox.now() group by 1")}  # fmt: skip
    return [counted.get(one.member.member_id, 0) for one in relays]


async def until(condition: Any) -> None:
    await eventually_async(condition)


# ----------------------------------------------------------------------------------------------------------- sharing


async def test_lanes_are_shared_evenly_when_a_relay_joins_and_when_one_leaves(stage: Stage) -> None:
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(relay_on(stage.database, **BEAT))
        two = await stack.enter_async_context(relay_on(stage.database, **BEAT))
        three = await stack.enter_async_context(relay_on(stage.database, **BEAT))
        await stack.enter_async_context(one.running())
        await until(lambda: held(stage, one) == [4])
        async with two.running():
            await until(lambda: held(stage, one, two) == [2, 2])
            async with three.running():
                await until(lambda: sorted(held(stage, one, two, three)) == [1, 1, 2])
            await until(lambda: held(stage, one, two, three) == [2, 2, 0])
        await until(lambda: held(stage, one, two) == [4, 0])


async def test_a_lane_is_given_back_only_when_its_last_attempt_is_recorded(stage: Stage) -> None:
    """No effect happens twice because somebody joined: what is in flight ends under the lease that it began under."""
    put_many(stage, 40)
    receiver = Held(RECEIPT)
    async with relay_on(stage.database, receiver, **BEAT) as one, relay_on(stage.database, receiver, **BEAT) as two:
        async with one.running():
            await until(lambda: len(receiver.attempts) == 16)
            async with two.running():
                await until(lambda: sum(lane.closing for lane in one.relay.lanes) == 2)
                assert held(stage, one, two) == [4, 0]
                receiver.let_go.set()
                await until(lambda: held(stage, one, two) == [2, 2])
                await until(lambda: stage.value("select count(*) from outbox.outcome") == 40)
        assert (one.counted("fenced_writes"), two.counted("fenced_writes")) == (0, 0)
    assert max(Counter(attempt.sent_key for attempt in receiver.attempts).values()) == 1
    assert stage.value("select count(*) from outbox.outcome where state = 'succeeded' and attempt = 1") == 40


async def test_relays_that_serve_different_receivers_do_not_share_lanes(database: Database) -> None:
    both = registry(KEYED, lanes=2, concurrency=4)
    other = registry(BLIND, lanes=2, concurrency=4)
    mail = {"receivers": {**both.receivers, "mail": other.receivers["warehouse"]}}
    tools = {**both.tools, BLIND: other.tools[BLIND].model_copy(update={"receiver": "mail"})}
    await register(database, both.model_copy(update={**mail, "tools": tools}))
    with Stage(database) as stage:
        async with (
            relay_on(database, only=("warehouse",), **BEAT) as one,
            relay_on(database, only=("mail",), **BEAT) as two,
            one.running(),
            two.running(),
        ):
            await until(lambda: held(stage, one, two) == [2, 2])
            receivers = stage.rows("select distinct member_id, receiver_id from outbox.lane")
            assert len(receivers) == 2


# ---------------------------------------------------------------------------------------------------------- renewing


async def test_leases_are_renewed_for_as_long_as_it_takes(stage: Stage) -> None:
    """An attempt that lasts longer than the lease would have lasted is nobody's orphan."""
    await register(stage.database, registry(KEYED, lanes=4, concurrency=16, tool={"deadline": "2s"}, **SHORT))
    async with relay_on(stage.database, **BEAT) as one, one.running():
        await until(lambda: held(stage, one) == [4])
        fences = stage.rows("select lane, fence from outbox.lane order by 1")
        began = boottime()
        await until(lambda: boottime() > began + 4)
        assert stage.rows("select lane, fence from outbox.lane order by 1") == fences
        assert all(lane.lease.until > boottime() for lane in one.relay.lanes)
        assert one.counted("leases_lost") == 0


async def test_a_lease_is_counted_from_when_its_renewal_was_sent(stage: Stage) -> None:
    async with relay_on(stage.database, **BEAT) as one:
        await one.take_lanes()
        leases = one.relay.leases
        before = boottime()
        await leases.renew(before + 2)
        assert all(before + 3 <= lane.lease.until <= boottime() + 3 for lane in one.relay.lanes)
        async with asyncio.timeout(5):
            blocked = stage.session()
            blocked.execute("begin")
            blocked.execute("select from outbox.lane for update")
            sent = boottime()
            renewing = asyncio.create_task(leases.renew(sent + 4))
            await until(
                lambda: stage.value("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") == 1
            )
            held_back_until = boottime()
            blocked.execute("commit")
            await renewing
        assert all(lane.lease.until <= held_back_until + 3 for lane in one.relay.lanes)


async def test_a_lane_that_somebody_else_took_is_lost_at_the_next_renewal(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async with relay_on(stage.database, **BEAT) as one:
        await one.take_lanes()
        stage.rows("update outbox.lane set expires_at = '-infinity' where lane = 2")
        assert stage.holder(2).take() is not None
        await one.relay.leases.renew(boottime() + 2)
        assert sorted(lane.holding.lane for lane in one.relay.lanes if lane.lost) == [2]
        assert sorted(lane for _, lane in one.relay.leases.lanes) == [0, 1, 3]
        assert one.counted("leases_lost") == 1
        assert [record.levelname for record in caplog.records if record.message == "lane_lost"] == ["WARNING"]


@pytest.mark.parametrize("first", ["the renewal is counted up", "the renewal is answered"])
async def test_a_lane_that_is_given_back_while_leases_are_renewed_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, first: str
) -> None:
    """A warning is for a lease that somebody else has. What we give back ourselves is no news."""
    caplog.set_level("INFO", "outbox")
    async with relay_on(stage.database, **BEAT) as one:
        await one.take_lanes()
        leases, (lane, *_) = one.relay.leases, one.relay.lanes
        ask = leases._store.dicts

        async def asked(statement: str, /, **parameters: Any) -> list[dict[str, Any]]:
            if statement != "renew_leases":
                return await ask(statement, **parameters)
            if first == "the renewal is counted up":
                await leases.give_back(lane)
                return await ask(statement, **parameters)
            rows = await ask(statement, **parameters)
            await leases.give_back(lane)
            return rows

        monkeypatch.setattr(leases._store, "dicts", asked)
        lane.close()
        await leases.renew(boottime() + 2)
        await leases.renew(boottime() + 4)
        assert not lane.lost
        assert len(leases.lanes) == 3
        assert one.counted("leases_lost") == 0
        assert [record.levelname for record in caplog.records if record.message == "lane_given_back"] == ["INFO"]
        assert "lane_lost" not in caplog.messages


async def test_a_lane_whose_return_was_not_heard_of_is_not_renewed_any_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be somebody else's already, or its lease runs out. Neither is a loss."""
    async with relay_on(stage.database, **BEAT) as one:
        await one.take_lanes()
        leases, (lane, *_) = one.relay.leases, one.relay.lanes
        ask = leases._store.dicts

        async def lost(statement: str, /, **parameters: Any) -> list[dict[str, Any]]:
            rows = await ask(statement, **parameters)
            if statement == "give_back_lane" and not lane.give_up.is_set():
                lane.give_up.set()
                raise DatabaseUnavailable("the connection broke after the commit")
            return rows

        monkeypatch.setattr(leases._store, "dicts", lost)
        lane.close()
        await leases.give_back(lane)
        await leases.renew(boottime() + 2)
        assert "lane_lost" not in caplog.messages
        assert len(leases.lanes) == 3


# ------------------------------------------------------------------------------------------------------- taking over


async def test_lanes_of_a_relay_that_died_are_taken_over_and_its_attempts_become_unknown(stage: Stage) -> None:
    seq = stage.put("op", KEYED)
    receiver = Held(RECEIPT)
    async with relay_on(stage.database, receiver, **BEAT) as dead, relay_on(stage.database, **BEAT) as heir:
        dead.crashed = True
        await dead.take_lanes()
        for lane in dead.relay.lanes:
            await lane.claims.step()
        assert stage.state(seq) == "executing"
        async with heir.running():
            await until(lambda: held(stage, heir) == [4])
            await until(lambda: heir.counted("made_unknown") == 1)
            stage.as_role("reconciler").execute(
                "select outbox.allow_resend(%s, 1, outbox.now(), outbox.now() + interval '1 h')", [seq]
            )
            await until(lambda: stage.state(seq) == "succeeded")
        for lane in list(dead.relay.lanes):
            receiver.let_go.set()
            await lane.settle()
        assert dead.counted("fenced_writes") == 1
    assert stage.value("select cause from outbox.attempt where seq = %s and attempt = 1", seq) == "lease_lost"
    assert stage.value("select kind from outbox.evidence where seq = %s", seq) == "late_answer", (
        "it timed out long before"
    )


async def test_no_attempt_starts_that_its_lease_cannot_cover(stage: Stage) -> None:
    """The process was away for a while: what was claimed is withdrawn, unsent, also while the lane is still ours."""
    seq = stage.put("op", KEYED)
    receiver = ScriptedReceiver([RECEIPT])
    async with relay_on(stage.database, receiver, **BEAT) as one:
        await one.take_lanes()
        for lane in one.relay.lanes:
            lane.lease = LocalLease(boottime() + 0.5)
            await lane.claims.step()
            await lane.settle()
        assert stage.state(seq) == "authorized"
        assert stage.pending(seq)["not_sent"] == 1
        assert one.counted("leases_lost") == 0
    assert receiver.effects == Counter()


async def test_the_statement_begins_nothing_that_the_lease_in_the_database_cannot_cover(stage: Stage) -> None:
    seq = stage.put("op", KEYED)
    async with relay_on(stage.database, **BEAT) as one:
        await one.take_lanes()
        stage.rows("update outbox.lane set expires_at = outbox.now() + interval '900 ms'")
        for lane in one.relay.lanes:
            assert await lane.claims.step() == 0
    assert stage.state(seq) == "authorized"


async def test_a_receiver_that_has_seen_a_newer_fence_gets_one_that_is_newer_still(stage: Stage) -> None:
    seq = stage.put("op", KEYED)
    receiver = ScriptedReceiver([StaleFence(answer=Answer(409)), RECEIPT])
    async with relay_on(stage.database, receiver, **BEAT) as one, one.running():
        await until(lambda: stage.state(seq) == "succeeded")
    first, second = receiver.attempts
    fences = [int((attempt.fence_token or "").rpartition("=")[2]) for attempt in (first, second)]
    assert fences[1] > fences[0]


async def test_several_refusals_of_our_credential_pause_the_receiver_and_one_does_not(stage: Stage) -> None:
    put_many(stage, 30)
    receiver = ScriptedReceiver([ReceiverFault(answer=Answer(401))])
    async with relay_on(stage.database, receiver, **BEAT) as one, one.running():
        await until(lambda: one.counted("receivers_paused") == 1)
        (pause,) = stage.rows("select kind, name, paused_by, reason from outbox.pause")
        assert (pause["kind"], pause["name"], pause["paused_by"]) == ("receiver", "warehouse", "relay")
    assert stage.value("select count(*) from outbox.pending where state = 'authorized'") == 30
