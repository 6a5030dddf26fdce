"""Relays that are replaced one by one under load, asked twice, or asked while they start; a database that crashes."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outbox.embedded import Server
from tests.support.arena import CHECKOUT, HEAL_SECONDS_MAX, Arena, arena, events, exit_code
from tests.support.eventually import eventually
from tests.support.kinds import configuration
from tests.support.merchant import Merchant, merchant
from tests.support.postgres import SETTINGS, Cluster, Database

if TYPE_CHECKING:
    from outbox.demo.programs import Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

RECEIVERS = {"keyed": "keyed", "seen": "seen", "blind": "blind"}
ORDERS_MAX = 100_000
RESTARTS = 6
CRASHES = 3


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Merchant]:
    with merchant(tmp_path) as started:
        yield started


@contextmanager
def market(database: Database, shop: Merchant, tmp_path: Path, **receiver: str) -> Iterator[Arena]:
    """An arena whose services sell orders, each with a row of their own."""
    config = configuration(shop.url, RECEIVERS, lanes=2, **receiver)
    with arena(database, shop, tmp_path / "arena", RECEIVERS, config=config) as made:
        database.rows("create table public.orders (id text primary key)")
        database.rows("grant select, insert on public.orders to outbox_writer")
        yield made


class Services:
    """Services that sell while other things happen."""

    def __init__(self, made: Arena) -> None:
        self._made = made
        arguments = [sys.executable, "-m", "tests.support.shopkeeper", made.database.dsn_for("writer")]
        self._running = [
            subprocess.Popen(
                [*arguments, receiver, "order-", str(ORDERS_MAX)], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
            )
            for receiver in RECEIVERS
        ]

    def close(self) -> None:
        """Ask them to end. Whatever they have heard of is what must be there."""
        for service in self._running:
            service.terminate()
        for service in self._running:
            sold, _ = service.communicate(timeout=HEAL_SECONDS_MAX)
            assert service.returncode == 0
            self._made.committed += sold.split()


def work_goes_on(made: Arena) -> None:
    """Wait until some more operations have ended."""
    count = "select count(*) from outbox.outcome"
    before = made.database.value(count)
    eventually(lambda: made.database.value(count) > before + 20, HEAL_SECONDS_MAX, claim="work goes on")


# --------------------------------------------------------------------------------------------------------- SIGTERM


def test_relays_are_replaced_one_by_one_under_load_and_nobody_notices(
    database: Database, shop: Merchant, tmp_path: Path
) -> None:
    """Each ends in order, and its lanes go on at once; no attempt is even in doubt."""
    # A deadline that no machine is too slow for: here every doubt would be made by a restart.
    with market(database, shop, tmp_path, lease="30s", deadline="10s") as made:
        relay = partial(made.relay, grace="20s", heartbeat="300ms")
        relays = [relay(), relay()]
        services = Services(made)
        for _ in range(RESTARTS):
            relays.append(relay())
            eventually(lambda: events(relays[-1], "lane_taken"), HEAL_SECONDS_MAX, claim="it gets its share")
            work_goes_on(made)
            made.stop(relays.pop(0))
        services.close()
        made.come_to_rest(look_seconds=0.5)
        made.stop(*relays)
        assert made.violations() == []
        assert {one.state for one in made.operations().values()} == {"succeeded"}
        assert database.value("select count(*) from outbox.attempt") == 0, "nothing was ever in doubt"
        counters = database.rows("select counters from outbox.member where kind = 'relay'")
        assert sum(found["fenced_writes"] + found["leases_lost"] for (found,) in counters) == 0


@pytest.mark.parametrize("moment", ["it is being started", "it is connected", "it is a member", "it takes lanes"])
def test_asked_while_it_starts_a_relay_ends_and_has_harmed_nothing(
    database: Database, shop: Merchant, tmp_path: Path, moment: str
) -> None:
    with market(database, shop, tmp_path) as made:
        made.put_everywhere(2)
        connected = "select exists (select from pg_stat_activity where usename = 'outbox_relay')"
        member = "select exists (select from outbox.member where pid = %s)"
        moments: dict[str, Callable[[Program], object]] = {
            "it is being started": lambda _: True,
            "it is connected": lambda _: database.value(connected),
            "it is a member": lambda relay: database.value(member, relay.pid),
            "it takes lanes": lambda relay: events(relay, "lane_taken"),
        }
        relay = made.relay()
        eventually(lambda: moments[moment](relay), HEAL_SECONDS_MAX)
        relay.signal(signal.SIGTERM)
        assert exit_code(relay) in {0, -signal.SIGTERM}
        assert made.doubts() == []
        made.heal()
        assert made.violations() == []


# ------------------------------------------------------------------------------------------------------- the database


def test_a_database_that_crashes_again_and_again_loses_nothing(shop: Merchant, tmp_path: Path) -> None:
    """Services, relays and reconciler go on by themselves, each time; what was committed is there."""
    with (
        Server(tmp_path / "postgres", durable=False, settings=SETTINGS) as server,
        Cluster(server.dsn()).template() as template,
        Cluster(server.dsn()).database(template) as database,
        market(database, shop, tmp_path) as made,
    ):
        relays = [made.relay(), made.relay()]
        reconciler = made.reconciler()
        # Who cannot reach a database when it starts ends, and says so.
        eventually(lambda: all(events(relay, "lane_taken") for relay in relays), HEAL_SECONDS_MAX)
        eventually(lambda: events(reconciler, "daemon_started"), HEAL_SECONDS_MAX)
        services = Services(made)
        for _ in range(CRASHES):
            work_goes_on(made)
            server.stop(immediate=True)
            server.start()
        services.close()
        made.come_to_rest(look_seconds=0.5)
        assert [len(events(relay, "bell_lost")) for relay in relays] == [CRASHES, CRASHES]
        made.stop(*relays, reconciler)
        assert made.violations() == []
