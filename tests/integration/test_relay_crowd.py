"""One tenant fills a lane; others get past all of it, by looking ahead and by ringing, and the crowd goes on."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outbox.outcome import Answer, Outcome, Receipt, Throttled
from outbox.receivers import Attempt
from outbox.receivers.scripted import ScriptedReceiver
from relay import crowd as crowds
from relay.slots import PATIENCE
from tests.support.doubts import register
from tests.support.eventually import eventually_async
from tests.support.postgres import Database
from tests.support.relays import BLIND, KEYED, Held, Running, put_many, registry, relay_on
from tests.support.stage import Stage

RECEIPT = Receipt(answer=Answer(200), receipt="r")
# So rarely that within a test only looking ahead, or a bell, leads to a row.
NEVER: dict[str, Any] = {"look_behind": "1h", "poll": "60s"}
SLOTS, CROWD = 4, 300


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database, registry(concurrency=SLOTS))
    with Stage(database) as stage:
        yield stage


@pytest.fixture(params=[KEYED, BLIND], ids=["claimed ahead", "a slot each"])
def tool(request: pytest.FixtureRequest) -> str:
    """Where a resend is safe, more is claimed than can run at once, and waits."""
    return str(request.param)


@pytest.fixture
async def stage_of(database: Database, tool: str) -> AsyncIterator[Stage]:
    await register(database, registry(tool, concurrency=SLOTS))
    with Stage(database) as stage:
        yield stage


class Order(ScriptedReceiver):
    """Remembers in which order tenants were served."""

    def __init__(self) -> None:
        self.tenants: list[str] = []
        super().__init__([self._served])

    def _served(self, attempt: Attempt) -> Outcome:
        self.tenants.append(attempt.tenant_id)
        return RECEIPT


class Stuck(Order):
    """Once there is a crowd, its calls do not end before they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()

    async def deliver(self, attempt: Attempt) -> Outcome:
        if attempt.tenant_id == "acme" and len(self.tenants) > 2 * crowds.WINDOW:
            await self.let_go.wait()
        return await super().deliver(attempt)


async def test_others_get_past_everything_that_one_tenant_has_written_before(stage_of: Stage, tool: str) -> None:
    put_many(stage_of, CROWD, tool)
    for n in range(3):
        stage_of.put(f"op-{n}", tool, tenant="small")
    order = Order()
    async with relay_on(stage_of.database, order, batch_max=50, **NEVER) as running, running.running():
        await eventually_async(lambda: stage_of.value("select count(*) from outbox.outcome") == CROWD + 3)
    last = max(n for n, tenant in enumerate(order.tenants) if tenant == "small")
    assert last < crowds.WINDOW + 2 * 50 + 3 * SLOTS, "what had begun before the crowd was seen, and no more"
    assert order.tenants.count("acme") == CROWD
    assert max(order.effects.values()) == 1


async def test_whoever_comes_while_a_crowd_waits_rings_and_finds_a_free_slot(stage_of: Stage, tool: str) -> None:
    """No look behind, no poll: the bell names the operation. All slots but one are taken by calls that do not end."""
    put_many(stage_of, CROWD, tool)
    order = Stuck()
    stage_of.put("first", tool, tenant="small")
    async with relay_on(stage_of.database, order, bell=True, batch_max=20, **NEVER) as running, running.running():
        await eventually_async(lambda: order.tenants.count("small") == 1, claim="it was there, past the crowd")
        await eventually_async(lambda: stage_of.value("select crowd from outbox.lane") == ["acme"])
        await eventually_async(lambda: running.lane.flight.turns.own_running == SLOTS - 1)
        rings = running.counted("rings")
        for n in range(10):
            seq = stage_of.put(f"later-{n}", tool, tenant="small")
            await eventually_async(lambda: stage_of.state(seq) == "succeeded")  # noqa: B023 - in this round only
        assert running.counted("rings") >= rings + 10
        assert running.lane.flight.turns.own_running == SLOTS - 1, "the crowd leaves it to them"
        rings = running.counted("rings")
        stage_of.put("one-more-of-the-crowd", tool)
        stage_of.put("one-of-others", tool, tenant="small")
        await eventually_async(lambda: running.counted("rings") == rings + 1)
        order.let_go.set()
        await eventually_async(lambda: stage_of.value("select count(*) from outbox.pending") == 0)
        await eventually_async(lambda: stage_of.value("select crowd from outbox.lane") == [])
    assert max(order.effects.values()) == 1


class TwoLanes(Order):
    """One slot each. Once there is a crowd in both, its calls do not end before they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go, self.small_may_end = asyncio.Event(), asyncio.Event()
        self.small_may_end.set()
        self.running = self.most = 0
        self.lanes: set[str] = set()
        """Where operations of others were."""

    async def deliver(self, attempt: Attempt) -> Outcome:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if attempt.tenant_id == "small":
                self.lanes.add(str(attempt.fence_token).partition(";")[0])
                await self.small_may_end.wait()
            elif len(self.tenants) > 4 * crowds.WINDOW:
                await self.let_go.wait()
            return await super().deliver(attempt)
        finally:
            self.running -= 1


@contextlib.asynccontextmanager
async def crowded(database: Database, tool: str) -> AsyncIterator[tuple[Running, TwoLanes, Stage]]:
    """Two lanes of one slot each, a crowd in both; it holds one of the slots, and the other is kept free."""
    await register(database, registry(tool, concurrency=2, lanes=2))
    order = TwoLanes()
    with Stage(database) as stage:
        put_many(stage, CROWD, tool)
        stage.put("first", tool, tenant="small")
        async with (
            relay_on(database, order, bell=True, batch_max=20, heartbeat="300ms", **NEVER) as running,
            running.running(),
        ):
            await eventually_async(lambda: order.tenants.count("small") == 1, claim="it was there, past the crowd")
            await eventually_async(lambda: stage.value("select count(*) from outbox.lane where crowd = '{acme}'") == 2)
            await eventually_async(lambda: order.running == 1 and len(order.tenants) > 4 * crowds.WINDOW)
            yield running, order, stage
            order.let_go.set()
            order.small_may_end.set()
            await eventually_async(lambda: stage.value("select count(*) from outbox.pending") == 0)
    assert max(order.effects.values()) == 1
    assert order.most == 2, "never more at once than the receiver takes"


async def test_others_take_the_slot_of_another_lane(database: Database, tool: str) -> None:
    async with crowded(database, tool) as (_, order, stage):
        for n in range(10):
            seq = stage.put(f"later-{n}", tool, tenant="small")
            await eventually_async(lambda: stage.state(seq) == "succeeded")  # noqa: B023 - in this round only
        assert order.running == 1
        assert len(order.lanes) == 2


async def test_a_lane_is_not_given_back_before_its_slot_is(database: Database) -> None:
    """Somebody else would use it a second time."""
    async with crowded(database, BLIND) as (running, order, stage):
        (crowded_lane,) = [lane for lane in running.relay.lanes if lane.flight.turns.own_running]
        (other,) = [lane for lane in running.relay.lanes if lane is not crowded_lane]
        for n in itertools.count():
            order.small_may_end.clear()
            seq = stage.put(f"later-{n}", BLIND, tenant="small")
            await eventually_async(lambda: order.running == 2)
            if stage.value("select lane from outbox.pending where seq = %s", seq) == crowded_lane.holding.lane:
                break
            order.small_may_end.set()
            await eventually_async(lambda: stage.state(seq) == "succeeded")  # noqa: B023 - in this round only
        other.close()
        await eventually_async(lambda: not other.flight.open)
        assert not other.drained.is_set(), "its slot is lent"
        assert other in running.relay.lanes
        order.small_may_end.set()
        await eventually_async(lambda: other not in running.relay.lanes)


async def test_retries_of_the_crowd_do_not_go_past_it(stage_of: Stage, tool: str) -> None:
    """Many come due at once: they begin as far as the crowd may, the others keep their slot, and nothing piles up."""
    put_many(stage_of, CROWD, tool)
    stage_of.put("first", tool, tenant="small")
    stuck = asyncio.Event()
    asked = itertools.count()

    class Throttling(Order):
        async def deliver(self, attempt: Attempt) -> Outcome:
            if attempt.tenant_id == "acme" and (number := next(asked)) > 100:
                if number < 200:
                    return Throttled(retry_after_seconds=1.0, answer=Answer(429))
                await stuck.wait()
            return await super().deliver(attempt)

    order = Throttling()
    async with relay_on(stage_of.database, order, bell=True, batch_max=20, **NEVER) as running, running.running():
        due = "select count(*) from outbox.pending where throttled > 0 and next_at <= outbox.now()"
        await eventually_async(lambda: stage_of.value(due) == 99)
        for n in range(2):
            seq = stage_of.put(f"later-{n}", tool, tenant="small")
            await eventually_async(lambda: stage_of.state(seq) == "succeeded")  # noqa: B023 - in this round only
        assert running.lane.flight.turns.own_running == SLOTS - 1
        assert len(running.lane.flight.turns) <= (0 if tool == BLIND else 20 + SLOTS), "no more than the crowd may"
        stuck.set()
        await eventually_async(lambda: stage_of.value("select count(*) from outbox.pending") == 0)
    assert max(order.effects.values()) == 1


async def test_a_tenant_that_is_alone_has_every_slot(stage: Stage) -> None:
    put_many(stage, CROWD, BLIND)
    held = Held(RECEIPT)
    served = Order()

    class Both(Order):
        async def deliver(self, attempt: Attempt) -> Outcome:
            if len(served.tenants) <= crowds.WINDOW:
                return await served.deliver(attempt)
            return await held.deliver(attempt)

    async with relay_on(stage.database, Both(), **NEVER) as running, running.running():
        await eventually_async(lambda: len(held.attempts) == SLOTS)
        held.let_go.set()
        await eventually_async(lambda: stage.value("select count(*) from outbox.pending") == 0)
        assert running.store.ran.count("look_ahead") == 1, "it costs one look, until the next pass"


async def test_others_that_come_without_end_leave_the_crowd_its_turns(stage_of: Stage, tool: str) -> None:
    """As many small tenants as it takes, none of which fills the lane."""
    put_many(stage_of, CROWD, tool)
    stage_of.rows(
        """
        insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest)
        select 't-' || n %% 40, 'op-' || n, %s, 'svc', '{}',
          outbox.intent_digest('t-' || n %% 40, 'op-' || n, %s, null, null, '{}')
        from generate_series(1, 2000) n
        """,
        tool,
        tool,
    )
    order = Order()
    async with relay_on(stage_of.database, order, batch_max=20, **NEVER) as running, running.running():
        await eventually_async(lambda: order.tenants.count("acme") == CROWD)
    begun = [n for n, tenant in enumerate(order.tenants) if tenant == "acme"]
    gaps = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert max(gaps) <= (PATIENCE + 2) * 20, "never longer than some groups of others"


async def test_past_a_crowd_nothing_begins_that_may_not(stage: Stage) -> None:
    put_many(stage, CROWD, KEYED)
    later = stage.value("select outbox.now() + interval '1 hour'")
    paused = stage.put("paused", KEYED, tenant="paused")
    not_due = stage.put("not-due", KEYED, tenant="small", not_before=later)
    first = stage.put("first", KEYED, tenant="small", ordering_key="k")
    second = stage.put("second", KEYED, tenant="small", ordering_key="k")
    stage.rows("select outbox.pause_add('tenant', 'paused', 'eve', 'r')")
    order = ScriptedReceiver([RECEIPT])
    async with relay_on(stage.database, order, batch_max=20, **NEVER) as running:
        while await running.rounds():
            pass
    assert [stage.state(seq) for seq in (paused, not_due)] == ["authorized"] * 2
    assert [stage.state(seq) for seq in (first, second)] == ["succeeded"] * 2
    sent = [attempt.seq for attempt in order.attempts]
    assert sent.index(first) < sent.index(second)


async def test_a_begin_past_the_crowd_that_was_not_heard_of_is_swept_at_once(stage: Stage) -> None:
    """It lies far ahead of the cursor: the sweep reaches as far as anything may have begun."""
    put_many(stage, CROWD, KEYED)
    seq = stage.put("op", KEYED, tenant="small")
    order = Order()
    async with relay_on(stage.database, order, batch_max=20, look_behind="1h", poll="60s") as running:
        running.store.loses["begin_these"] = 1
        async with running.running():
            await eventually_async(lambda: stage.state(seq) == "succeeded")
            assert running.counted("orphans") == 1
    assert stage.outcome(seq)["attempt"] == 2
    assert order.tenants.count("small") == 1


async def test_what_could_not_begin_past_the_crowd_for_want_of_a_connection_begins_with_the_next(stage: Stage) -> None:
    put_many(stage, CROWD, KEYED)
    seq = stage.put("op", KEYED, tenant="small")
    order = Order()
    async with relay_on(stage.database, order, batch_max=20, **NEVER) as running:
        running.store.refuses["begin_these"] = 3
        async with running.running():
            await eventually_async(lambda: stage.state(seq) == "succeeded")
    assert order.tenants.index("small") < CROWD


@pytest.mark.parametrize("bell", [False, True], ids=["relay", "receiver"])
async def test_a_holder_without_a_bell_finds_others_by_polling(stage: Stage, bell: bool) -> None:
    """None of its own, or none for this receiver."""
    await register(stage.database, registry(concurrency=SLOTS, doorbell=not bell))
    put_many(stage, CROWD, KEYED)
    order = Stuck()
    stage.put("first", KEYED, tenant="small")
    async with (
        relay_on(stage.database, order, bell=bell, batch_max=20, look_behind="1h", poll="20ms") as running,
        running.running(),
    ):
        await eventually_async(lambda: order.tenants.count("small") == 1)
        await eventually_async(lambda: running.lane.flight.turns.own_running == SLOTS - 1)
        seq = stage.put("later", KEYED, tenant="small")
        await eventually_async(lambda: stage.state(seq) == "succeeded")
        order.let_go.set()
    assert stage.value("select crowd from outbox.lane") == [], "nobody would ring"
