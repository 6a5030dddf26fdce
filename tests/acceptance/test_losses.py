"""
Hundreds of lost answers and lost requests in one run, and answers that come too late.

Every operation ends as the merchant's books have it, or waits for a person where its contract leaves nothing else; and
what the daemons have counted is what the books have counted.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from outbox.demo.ledger import Request
from tests.support.arena import Arena, Operation, arena, events
from tests.support.kinds import configuration
from tests.support.merchant import merchant
from tests.support.once import made_once
from tests.support.postgres import Cluster, Database

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("losses"), pytest.mark.timeout(180)]

# Every fourth request meets a fault: with more of them the receiver would be left alone, as one that is not there.
RATES = {"lose_answer": 0.12, "lose_request": 0.12, "slow": 0.02}
# Slow is later than the deadline, and not later than the bound.
PLAN: dict[str, Any] = {"seed": 2, "rates": {"*": RATES}, "faulty_requests": 3, "slow_seconds": 2.5}
BOUNDS: dict[str, Any] = {"deadline": "2s", "contract": {"in_flight_bound": "2s"}}
NUMBERS = {
    "keyed": 900,
    "keyed_seen": 400,
    "seen": 900,
    "blind": 100,
    "guarded": 100,
    "guarded_once": 100,
    "repeatable": 100,
}
LOST_AT_LEAST = 300


@dataclass
class Story:
    """What came of everything, once it rests."""

    operations: dict[str, Operation]
    violations: list[str]
    writes: list[Request]
    reads: list[Request]
    faults: dict[str, int]
    relay: dict[str, int]
    reconciler: dict[str, int]
    proven_absent: Counter[str]


@pytest.fixture(scope="module")
def story(postgres: Cluster, template: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    made_once(tmp_path_factory, "losses")
    root = tmp_path_factory.mktemp("losses")
    with postgres.database(template) as database, merchant(root, **PLAN) as shop:
        # Leases that nobody loses, however slow this machine is: what is counted here is losses on the way.
        config = configuration(
            shop.url, {kind: kind for kind in NUMBERS}, lanes=2, concurrency=16, lease="20s", **BOUNDS
        )
        with arena(database, shop, root / "arena", config=config) as made:
            yield play(made)


def play(made: Arena) -> Story:
    for receiver, number in NUMBERS.items():
        made.put(receiver, number)
    made.heal(seconds=120, look_seconds=1.0)
    settled = [event for program in made.programs.started for event in events(program, "settled")]
    counters: dict[str, dict[str, int]] = dict(made.database.rows("select kind, counters from outbox.member"))
    return Story(
        operations=made.operations(),
        violations=made.violations(),
        writes=made.merchant.writes(),
        reads=made.merchant.reads(),
        faults=dict(made.merchant.faults()),
        relay=counters["relay"],
        reconciler=counters["reconciler"],
        proven_absent=Counter(event["tool"] for event in settled if event["cause"] == "proven_absent"),
    )


def test_the_faults_have_landed(story: Story) -> None:
    assert story.faults["lose_answer"] >= LOST_AT_LEAST
    assert story.faults["lose_request"] >= LOST_AT_LEAST
    assert story.faults["slow"] >= 20


def test_every_operation_is_what_the_books_say(story: Story) -> None:
    """Once where the receiver deduplicates or can be asked, never twice, never unnoticed; and with its receipts."""
    assert story.violations == []
    assert len(story.operations) == sum(NUMBERS.values())


def test_a_person_is_asked_only_about_what_was_lost(story: Story) -> None:
    lost = {one.operation for one in story.writes if one.fault is not None}
    assert {one.operation_id for one in story.operations.values() if one.needs_person} <= lost


def test_each_attempt_that_is_written_down_is_one_request(story: Story) -> None:
    """Connections are closed under every second request, and nothing below us sends again by itself."""
    sent = sum(one.attempts - one.not_sent for one in story.operations.values())
    assert len(story.writes) == sent
    assert story.relay["begun"] == story.relay["attempts"] == sum(one.attempts for one in story.operations.values())


def test_what_was_counted_is_what_happened(story: Story) -> None:
    operations = story.operations.values()
    assert story.reconciler["looks"] == len(story.reads)
    assert story.relay["fenced_writes"] == story.relay["late_answers"] == story.relay["leases_lost"] == 0
    assert story.relay["recorded"] == story.relay["attempts"]
    found = sum(one.cause == "confirmed" for one in operations)
    assert story.reconciler["settled"] == found + story.proven_absent.total()
    # A tool without a key sends again after a proof of absence, and for no other reason.
    assert story.proven_absent["seen"] == sum(
        one.attempts - one.not_sent - 1 for one in operations if one.tool == "seen"
    )
