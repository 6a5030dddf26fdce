"""A backlog that waits longer than keys are kept: nothing is sent again, whoever slept."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox.demo.faults import Fault
from tests.support.arena import HEAL_SECONDS_MAX, Arena, arena, stopped_at
from tests.support.eventually import eventually
from tests.support.kinds import configuration
from tests.support.merchant import Merchant, merchant
from tests.support.postgres import Database
from tests.support.stage import Clock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

RECEIVERS = {"keyed": "keyed", "keyed_seen": "keyed_seen"}
# The first resend is planned for later than the relay lives.
RETENTION_SECONDS = 3600.0
LATER = {"retry": {"first": "60s", "max": "60s", "attempts": 10}}
# Not so many in a row that the receiver would be left alone, as one that is not there.
EACH = 2


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Merchant]:
    with merchant(tmp_path) as started:
        yield started


def test_relays_that_were_down_for_longer_than_keys_are_kept_send_nothing_again(
    database: Database, shop: Merchant, tmp_path: Path
) -> None:
    """The merchant has forgotten every key by then: one resend more, and something has happened twice."""
    config = configuration(shop.url, RECEIVERS, contract=LATER)
    clock = Clock(database)
    with arena(database, shop, tmp_path / "arena", RECEIVERS, config=config) as made:
        for receiver in RECEIVERS:
            made.put(receiver, EACH, fault=Fault.LOSE_ANSWER)
            made.put(receiver, EACH, fault=Fault.LOSE_REQUEST)
        exposed = list(made.committed)
        relay = made.relay()
        eventually(lambda: {one.state for one in made.operations().values()} == {"unknown"}, HEAL_SECONDS_MAX)
        relay.signal(signal.SIGKILL)
        sent = made.requests()
        assert sent == dict.fromkeys(exposed, 1)
        never_sent = [one for receiver in RECEIVERS for one in made.put(receiver, EACH)]
        clock.advance(RETENTION_SECONDS)
        shop.restart(key_retention_seconds=0)
        # Nothing can be asked about what has a key and nothing else: a person decides.
        made.may_wait |= set(exposed[: 2 * EACH])
        made.heal()
        assert made.violations() == []
        operations, requests = made.operations(), made.requests()
        assert {operations[one].state for one in exposed[: 2 * EACH]} == {"unknown"}
        assert {requests[one] for one in exposed[: 2 * EACH]} == {1}, "the window governs resends"
        assert {operations[one].state for one in never_sent} == {"succeeded"}, "and nothing else"
        found, absent = exposed[2 * EACH : 3 * EACH], exposed[3 * EACH :]
        assert {(operations[one].cause, requests[one]) for one in found} == {("confirmed", 1)}
        # Absence was proven, by a look that was sent late enough: what begins then is a first attempt.
        assert {(operations[one].state, requests[one]) for one in absent} == {("succeeded", 2)}
        _nobody_can_make_it_be_sent_again(made, exposed[0])


def _nobody_can_make_it_be_sent_again(made: Arena, operation_id: str) -> None:
    """Not by a command either; and why, it says."""
    refused = made.operator("retry", operation_id)
    assert refused.returncode == 4
    assert "window" in refused.stderr
    assert made.requests()[operation_id] == 1


def test_a_relay_that_sleeps_between_begin_and_first_byte_until_its_window_has_closed_sends_nothing(
    database: Database, shop: Merchant, tmp_path: Path
) -> None:
    """The database had permitted that resend; who wakes looks at the clock once more before the first byte."""
    # Margin 1.2 s (twice what may be late), reach 1 s: resends may begin for 3.8 s after the first exposure.
    bounds = {
        "in_flight_bound": "300ms",
        "key_retention": "6s",
        "retry": {"first": "50ms", "max": "50ms", "attempts": 2},
    }
    shop.restart(key_retention_seconds=6)
    # Nothing is begun but what is written (once) and what is due: the second begin is the resend.
    config = configuration(shop.url, {"keyed": "keyed"}, pause_bound="300ms", doorbell=False, contract=bounds)
    with arena(database, shop, tmp_path / "arena", {"keyed": "keyed"}, config=config) as made:
        (operation_id,) = made.put("keyed", fault=Fault.LOSE_ANSWER)
        sleeper = made.relay(crash="after_begin:stop:2", poll="60s", look_behind="60s")
        stopped_at(sleeper, "after_begin")
        assert made.operation(operation_id).attempts == 2, "the resend is begun, inside the window"
        assert made.requests()[operation_id] == 1
        over = "select resend_until < outbox.now() from outbox.pending"
        eventually(lambda: database.value(over), claim="the merchant has forgotten the key")
        sleeper.signal(signal.SIGCONT)
        made.may_wait.add(operation_id)
        made.heal(sleeper)
        assert made.violations() == []
        assert made.requests()[operation_id] == 1
        assert made.operation(operation_id).needs_person
