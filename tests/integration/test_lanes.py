"""Where operations lie: one function places them, and everybody finds them there."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outbox.receivers.scripted import ScriptedReceiver
from tests.support.doubts import register
from tests.support.postgres import Database
from tests.support.relays import KEYED, registry, relay_on
from tests.support.stage import Stage

LANES = 16
NAME = st.text(min_size=1, max_size=30).filter(lambda text: "\0" not in text)


@pytest.fixture
async def stage(database: Database) -> "Stage":
    await register(database, registry(KEYED, lanes=LANES, concurrency=64))
    return Stage(database)


@pytest.fixture
def opened(stage: Stage) -> Iterator[Stage]:
    with stage:
        yield stage


def put(stage: Stage, tenants: int, each: int, ordering_key: str | None = None) -> None:
    stage.rows(
        """
        insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, ordering_key, digest)
        select 't' || t, 'op-' || n, %s, 'svc', '{}', %s,
          outbox.intent_digest('t' || t, 'op-' || n, %s, null, null, '{}')
        from generate_series(1, %s) t, generate_series(1, %s) n
        """,
        KEYED,
        ordering_key,
        KEYED,
        tenants,
        each,
    )


def lanes_by_tenant(stage: Stage) -> dict[str, set[int]]:
    rows = stage.rows(
        "select i.tenant_id, array_agg(distinct p.lane) as lanes"
        " from outbox.pending p join outbox.intent i on i.seq = p.seq group by 1"
    )
    return {row["tenant_id"]: set(row["lanes"]) for row in rows}


def test_the_operations_of_a_tenant_lie_in_every_lane(opened: Stage) -> None:
    put(opened, 5, 300)
    assert all(lanes == set(range(LANES)) for lanes in lanes_by_tenant(opened).values())


def test_what_is_ordered_lies_in_one_lane(opened: Stage) -> None:
    put(opened, 5, 10, ordering_key="account-7")
    assert all(len(lanes) == 1 for lanes in lanes_by_tenant(opened).values())


def test_an_operation_is_found_where_it_lies_by_everybody(opened: Stage) -> None:
    put(opened, 10, 3)
    placed = {row["seq"]: row["lane"] for row in opened.rows("select seq, lane from outbox.pending")}
    for row in opened.rows("select seq, tenant_id, operation_id from outbox.intent"):
        assert opened.value("select lane from outbox.operation where seq = %s", row["seq"]) == placed[row["seq"]]
        assert opened.value("select lane from outbox.place_of(%s)", row["seq"]) == placed[row["seq"]]
        found = opened.rows("select state from outbox.get_operation(%s, %s)", row["tenant_id"], row["operation_id"])
        assert found == [{"state": "authorized"}]


async def test_everything_is_delivered(opened: Stage) -> None:
    put(opened, 10, 3)
    receiver = ScriptedReceiver()
    async with relay_on(opened.database, receiver) as running:
        await running.rounds()
    assert len(receiver.effects) == 30
    assert opened.value("select count(*) from outbox.pending") == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(tenant=NAME, key=NAME, lanes=st.integers(1, 1024))
def test_every_key_has_a_lane(database: Database, tenant: str, key: str, lanes: int) -> None:
    lane = database.value("select outbox.lane_of(%s, %s, %s)", lanes, tenant, key)
    assert 0 <= lane < lanes
