"""A commit whose answer is lost, of every kind: the writer's, a begin, a receipt, a doubt, a lane, a settlement."""

import subprocess
import sys
from pathlib import Path

import pytest

from outbox.demo.faults import Fault
from tests.support.arena import CHECKOUT, arena, events
from tests.support.kinds import KINDS, configuration
from tests.support.lossy import BEGIN, COMMIT, DOUBT, END, SETTLE, TAKE, lossy_wire
from tests.support.merchant import merchant
from tests.support.postgres import Database

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LOST_BY_RELAY = {TAKE: 2, BEGIN: 6, END: 6, DOUBT: 3}
LOST_BY_RECONCILER = {SETTLE: 3}
LOST_BY_WRITER = {COMMIT: 4}
ORDERS = 12


def test_a_commit_whose_answer_is_lost_is_neither_repeated_nor_forgotten(database: Database, tmp_path: Path) -> None:
    with (
        merchant(tmp_path) as shop,
        lossy_wire(database.dsn, LOST_BY_RELAY | LOST_BY_RECONCILER | LOST_BY_WRITER) as wire,
        # Leases that nobody loses: what is refused here would be refused wrongly.
        arena(
            database,
            shop,
            tmp_path / "arena",
            config=configuration(shop.url, {kind: kind for kind in KINDS}, lease="20s"),
        ) as made,
    ):
        database.rows("create table public.orders (id text primary key)")
        database.rows("grant select, insert on public.orders to outbox_writer")
        for receiver in ("keyed", "seen", "blind"):
            made.committed += sell(wire.dsn(database.dsn_for("writer")), receiver)
        made.put_everywhere(2)
        made.put_everywhere(2, fault=Fault.LOSE_ANSWER)
        made.put_everywhere(2, fault=Fault.LOSE_REQUEST)
        relay = made.relay(dsn=wire.dsn(database.dsn_for("relay")))
        reconciler = made.reconciler(dsn=wire.dsn(database.dsn_for("reconciler")))
        made.come_to_rest()
        assert +wire.lose == {}, "every planned loss has landed"
        made.stop(relay, reconciler)
        assert made.violations() == []
        orders = {one for (one,) in database.rows("select id from public.orders")}
        assert orders == {one for one in made.operations() if one.startswith("order-")}
        # One's own earlier commit is recognised: nobody lost a lane, and nothing was refused.
        counters = database.value("select counters from outbox.member where kind = 'relay'")
        assert (counters["fenced_writes"], counters["late_answers"], counters["leases_lost"]) == (0, 0, 0)
        assert counters["orphans"] >= 1
        assert events(relay, "orphans_swept")


def sell(dsn: str, receiver: str) -> list[str]:
    """A service that does each transaction again, with the same ids, until it hears of its commit."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.shopkeeper", dsn, receiver, "order-", str(ORDERS)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
        timeout=45,
    )
    sold = done.stdout.split()
    assert len(sold) == ORDERS
    return sold
