"""Two of a kind at the same instant, and one against the other: a crash point that stops both is the barrier."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox.demo.faults import Fault
from outbox.demo.programs import Program
from tests.support.arena import HEAL_SECONDS_MAX, Arena, arena, events, stopped_at
from tests.support.crashes import lanes_of, lanes_pass_on
from tests.support.eventually import eventually
from tests.support.kinds import KINDS, configuration
from tests.support.merchant import Merchant, merchant
from tests.support.postgres import Database

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Merchant]:
    with merchant(tmp_path) as started:
        yield started


def at_the_barrier(point: str, *programs: Program) -> None:
    """Wait until all of them stand there, and let all go on."""
    for program in programs:
        stopped_at(program, point)
    for program in programs:
        program.signal(signal.SIGCONT)


def total(made: Arena, counter: str) -> int:
    found: int = made.database.value("select coalesce(sum((counters ->> %s)::int), 0) from outbox.member", counter)
    return found


# ------------------------------------------------------------------------------------------------------------- relays


def test_two_relays_that_reach_for_the_same_lanes_at_once_share_them(
    database: Database, shop: Merchant, tmp_path: Path
) -> None:
    """Nobody loses a lane, no attempt is in doubt, and each lane has had one holder at a time."""
    config = configuration(shop.url, {kind: kind for kind in KINDS}, lanes=3, lease="30s", deadline="10s")
    with arena(database, shop, tmp_path / "arena", config=config) as made:
        made.put_everywhere(9)
        relays = [made.relay(heartbeat="300ms", crash="before_take:stop:1") for _ in range(2)]
        at_the_barrier("before_take", *relays)
        made.come_to_rest()
        made.put_everywhere(3)
        made.come_to_rest()
        assert all(events(relay, "lane_taken") for relay in relays)
        made.stop(*relays)
        assert made.violations() == []
        assert {(one.state, one.attempts) for one in made.operations().values()} == {("succeeded", 1)}
        assert (total(made, "leases_lost"), total(made, "fenced_writes"), total(made, "made_unknown")) == (0, 0, 0)
        assert total(made, "begun") == total(made, "recorded") == len(made.committed)


def test_a_relay_that_was_about_to_begin_when_its_lanes_were_taken_begins_nothing(
    database: Database, shop: Merchant, tmp_path: Path
) -> None:
    with arena(database, shop, tmp_path / "arena", {"blind": "blind", "keyed": "keyed"}) as made:
        sleepers = [made.relay(receiver, crash="before_begin:stop:1") for receiver in made.receivers]
        for sleeper in sleepers:
            stopped_at(sleeper, "before_begin")
        held = lanes_of(made, *sleepers)
        made.put_everywhere(5)
        heir = made.relay()
        lanes_pass_on(made, held)
        for sleeper in sleepers:
            sleeper.signal(signal.SIGCONT)
        eventually(lambda: all(events(sleeper, "lane_lost") for sleeper in sleepers))
        made.come_to_rest()
        made.stop(*sleepers, heir)
        assert made.violations() == []
        assert {(one.state, one.attempts) for one in made.operations().values()} == {("succeeded", 1)}


# -------------------------------------------------------------------------------------------------------- reconcilers


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.LOSE_REQUEST])
def test_of_two_reconcilers_with_the_same_finding_at_the_same_instant_one_settles(
    database: Database, shop: Merchant, tmp_path: Path, fault: Fault
) -> None:
    """The first had slept past its claim; both have looked, both have decided, both are about to write."""
    with arena(database, shop, tmp_path / "arena", {"seen": "seen"}) as made:
        (operation_id,) = made.put("seen", fault=fault)
        relay = made.relay()
        reconcilers = []
        for _ in range(2):
            reconcilers.append(made.reconciler(claim="1s", crash="before_settle:stop:1"))
            stopped_at(reconcilers[-1], "before_settle")
        at_the_barrier("before_settle", *reconcilers)
        eventually(lambda: any(events(one, "claim_overtaken") for one in reconcilers), HEAL_SECONDS_MAX)
        made.come_to_rest()
        made.stop(relay, *reconcilers)
        assert made.violations() == []
        assert total(made, "settled") == 1
        assert made.requests()[operation_id] == (1 if fault is Fault.LOSE_ANSWER else 2)


def test_what_a_reconciler_has_decided_about_an_earlier_attempt_changes_nothing(
    database: Database, shop: Merchant, tmp_path: Path
) -> None:
    """It was absent, rightly; before that is written a person sends it again, and then an answer is lost."""
    with arena(database, shop, tmp_path / "arena", {"seen": "seen"}) as made:
        (operation_id,) = made.put("seen", fault=Fault.LOSE_REQUEST)
        shop.break_next(Fault.LOSE_ANSWER, operation_id)
        relay = made.relay()
        reconciler = made.reconciler(crash="before_settle:stop:1")
        stopped_at(reconciler, "before_settle")
        person = made.operator(
            "resolve", operation_id, "--no-effect", "--send-again", "--evidence", "asked by telephone"
        )
        assert person.returncode == 0, person.stderr
        eventually(
            lambda: made.operation(operation_id).attempts == 2 and made.operation(operation_id).state == "unknown"
        )
        reconciler.signal(signal.SIGCONT)
        eventually(lambda: events(reconciler, "claim_overtaken"), HEAL_SECONDS_MAX)
        made.come_to_rest()
        made.stop(relay, reconciler)
        assert made.violations() == []
        one = made.operation(operation_id)
        assert (one.state, one.cause, made.requests()[operation_id]) == ("succeeded", "confirmed", 2)


def test_a_relay_that_sends_again_while_a_reconciler_decides_is_not_overruled(
    database: Database, shop: Merchant, tmp_path: Path
) -> None:
    """Its receipt is the end; what the reconciler has read by then changes nothing, and nothing happens twice."""
    with arena(database, shop, tmp_path / "arena", {"keyed_seen": "keyed_seen"}) as made:
        (operation_id,) = made.put("keyed_seen", fault=Fault.LOSE_ANSWER)
        relay = made.relay()
        reconciler = made.reconciler(crash="after_lookup:stop:1")
        stopped_at(reconciler, "after_lookup")
        again = made.operator("retry", operation_id)
        assert again.returncode == 0, again.stderr
        eventually(lambda: made.operation(operation_id).ended, HEAL_SECONDS_MAX)
        ended = made.operation(operation_id)
        reconciler.signal(signal.SIGCONT)
        eventually(lambda: events(reconciler, "claim_overtaken"), HEAL_SECONDS_MAX)
        made.stop(relay, reconciler)
        assert made.violations() == []
        assert made.operation(operation_id) == ended
        assert (ended.state, ended.attempts, made.requests()[operation_id]) == ("succeeded", 2, 2)
