"""Slots that lanes lend to each other: nobody waits beside a free one, none is used twice, and nothing stands still."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from outbox.outcome import Answer, Outcome, Throttled
from outbox.receivers import Attempt
from relay import crowd as crowds
from relay.lane import Lane
from tests.integration.test_relay_crowd import NEVER, RECEIPT, Order
from tests.support.doubts import register
from tests.support.eventually import eventually_async
from tests.support.postgres import Database
from tests.support.relays import BLIND, KEYED, Held, Running, put_many, registry, relay_on
from tests.support.stage import Stage

# Long after whatever a test waits for.
SLOW_TOOL = {"deadline": "20s"}


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    with Stage(database) as stage:
        yield stage


def put_in(stage: Stage, lane: int, number: int, tool: str, tenant: str) -> None:
    """So many intents of a tenant in one of two lanes."""
    stage.rows(
        """
        insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest)
        select %s, o, %s, 'svc', '{}', outbox.intent_digest(%s, o, %s, null, null, '{}')
        from (select 'op-' || n as o from generate_series(1, 10000) n) x where outbox.lane_of(2, %s, o) = %s limit %s
        """,
        *(tenant, tool, tenant, tool, tenant, lane, number),
    )


class Script(Order):
    """Remembers whose attempts have started, too."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[str] = []
        self.stuck, self.own_may_end = asyncio.Event(), asyncio.Event()

    async def deliver(self, attempt: Attempt) -> Outcome:
        self.started.append(attempt.tenant_id)
        if attempt.tenant_id == "own":
            await self.own_may_end.wait()
        return await super().deliver(attempt)


def lanes_of(running: Running) -> dict[int, Lane]:
    return {lane.holding.lane: lane for lane in running.relay.lanes}


def crowd_of_first(stage: Stage) -> object:
    return stage.value("select crowd from outbox.lane where lane = 0")


async def test_a_crowd_that_has_used_up_its_rate_stops_nobody(stage: Stage) -> None:
    """A call of the crowd is slow, the other slot is kept, and more small operations come than the rate allows."""
    await register(stage.database, registry(KEYED, concurrency=2, rate=20))

    class Half(Script):
        async def deliver(self, attempt: Attempt) -> Outcome:
            if attempt.tenant_id == "acme" and len(self.tenants) > 45:
                await self.stuck.wait()
            return await super().deliver(attempt)

    order = Half()
    put_many(stage, 200, KEYED)
    stage.put("first", KEYED, tenant="small")
    async with relay_on(stage.database, order, poll="200ms") as running, running.running():
        await eventually_async(lambda: len(order.tenants) > 45 and "small" in order.tenants)
        turns = running.lane.flight.turns
        await eventually_async(lambda: turns.running == 1 and len(turns) >= 2)
        for n in range(40):
            stage.put("op", KEYED, tenant=f"t-{n}")
        await eventually_async(lambda: sum(tenant.startswith("t-") for tenant in order.tenants) == 40)
        order.stuck.set()


async def test_who_fills_what_lies_behind_takes_no_slot_of_another_lane(stage: Stage) -> None:
    """Two crowds one behind the other; the second is found by looking ahead, and begins no more than its lane has."""
    await register(stage.database, registry(BLIND, concurrency=8, lanes=2, tool=SLOW_TOOL))

    class Stuck(Script):
        async def deliver(self, attempt: Attempt) -> Outcome:
            if attempt.tenant_id == "zeta":
                await self.stuck.wait()
            return await super().deliver(attempt)

    order = Stuck()
    put_in(stage, 0, 100, BLIND, "acme")
    put_in(stage, 0, 400, BLIND, "zeta")
    async with relay_on(stage.database, order, bell=True, **NEVER) as running, running.running():
        await eventually_async(lambda: order.tenants.count("acme") == 100)
        await eventually_async(lambda: lanes_of(running)[0].flight.turns.own_running == 4)
        put_in(stage, 1, 1, BLIND, "own")
        order.own_may_end.set()
        await eventually_async(lambda: "own" in order.tenants, claim="it has four slots of its own, all free")
        assert stage.value("select count(*) from outbox.pending where state = 'executing'") == 4
        order.stuck.set()


async def test_what_waits_in_a_closed_lane_for_its_rate_comes_to_its_end(stage: Stage) -> None:
    await register(stage.database, registry(KEYED, concurrency=2, rate=10))
    held = Held(RECEIPT)
    put_many(stage, 10, KEYED)
    async with relay_on(stage.database, held, **NEVER) as running, running.running():
        await eventually_async(lambda: running.relay.lanes and len(running.lane.flight.turns) == 8)
        await register(stage.database, registry(KEYED, concurrency=2, rate=4))
        await running.relay.read_registry()
        lane = running.lane
        lane.close()
        held.let_go.set()
        await eventually_async(lane.drained.is_set)


async def test_more_slots_are_used_at_once(stage: Stage) -> None:
    await register(stage.database, registry(KEYED, concurrency=1))
    held = Held(RECEIPT)
    put_many(stage, 5, KEYED)
    async with relay_on(stage.database, held, **NEVER) as running, running.running():
        await eventually_async(lambda: running.relay.lanes and len(running.lane.flight.turns) == 4)
        await register(stage.database, registry(KEYED, concurrency=3))
        await running.relay.read_registry()
        await eventually_async(lambda: len(held.attempts) == 3)
        held.let_go.set()


async def test_a_retry_of_others_begins_when_a_slot_of_another_lane_is_free(stage: Stage) -> None:
    """It became due while every slot was taken."""
    await register(stage.database, registry(BLIND, concurrency=2, lanes=2, tool=SLOW_TOOL))
    asked, may_throttle = itertools.count(), asyncio.Event()

    class Throttling(Script):
        async def deliver(self, attempt: Attempt) -> Outcome:
            if attempt.tenant_id == "acme" and len(self.tenants) > 3 * crowds.WINDOW:
                await self.stuck.wait()
            if attempt.tenant_id == "small" and next(asked) == 0:
                self.started.append("small")
                await may_throttle.wait()
                return Throttled(retry_after_seconds=0.5, answer=Answer(429))
            return await super().deliver(attempt)

    order = Throttling()
    put_in(stage, 0, 200, BLIND, "acme")
    put_in(stage, 0, 1, BLIND, "early")
    async with relay_on(stage.database, order, bell=True, **NEVER) as running, running.running():
        await eventually_async(lambda: len(order.tenants) > 3 * crowds.WINDOW and "early" in order.tenants)
        lanes = lanes_of(running)
        await eventually_async(lambda: lanes[0].flight.turns.own_running == 1 and crowd_of_first(stage) == ["acme"])
        put_in(stage, 0, 1, BLIND, "small")
        await eventually_async(lambda: "small" in order.started)
        put_in(stage, 1, 1, BLIND, "own")
        own = "select count(*) from outbox.pending join outbox.intent using (seq) where tenant_id = 'own'"
        await eventually_async(lambda: stage.value(own) == 1)
        may_throttle.set()
        await eventually_async(lambda: "own" in order.started)
        due = "select count(*) from outbox.pending where throttled > 0 and next_at <= outbox.now()"
        await eventually_async(lambda: stage.value(due) == 1 and "small" not in order.tenants)
        order.own_may_end.set()
        await eventually_async(lambda: "small" in order.tenants)
        order.stuck.set()


async def test_a_look_past_the_crowd_is_made_when_a_slot_of_another_lane_is_free(stage: Stage) -> None:
    """The crowd was seen while every slot was taken."""
    await register(stage.database, registry(BLIND, concurrency=2, lanes=2, tool=SLOW_TOOL))
    asked = itertools.count(1)

    class Filled(Script):
        async def deliver(self, attempt: Attempt) -> Outcome:
            if attempt.tenant_id == "acme" and next(asked) >= crowds.WINDOW:
                await self.stuck.wait()
            return await super().deliver(attempt)

    order = Filled()
    put_in(stage, 1, 1, BLIND, "own")
    async with relay_on(stage.database, order, bell=True, **NEVER) as running, running.running():
        await eventually_async(lambda: "own" in order.started)
        stage.rows("begin")
        put_in(stage, 0, 100, BLIND, "acme")
        put_in(stage, 0, 1, BLIND, "small")
        stage.rows("commit")
        await eventually_async(lambda: order.started.count("acme") == crowds.WINDOW - 1)
        await eventually_async(lambda: crowd_of_first(stage) == ["acme"])
        order.own_may_end.set()
        await eventually_async(lambda: "small" in order.tenants, claim="a slot is free")
        order.stuck.set()
