"""A holder looks often while it must, and asks writers to ring when it need not."""

import pytest

from relay.rhythm import Rhythm

POLL = 0.5


@pytest.fixture
def rhythm() -> Rhythm:
    return Rhythm(POLL, now=100.0)


def test_the_first_look_is_at_once(rhythm: Rhythm) -> None:
    assert rhythm.next_look_at == 100.0
    assert not rhythm.should_idle(100.0)


def test_while_there_is_more_than_fits_there_is_no_pause(rhythm: Rhythm) -> None:
    rhythm.looked(101.0, emptied=False, found=10, xmin=1)
    assert rhythm.next_look_at == 101.0


def test_without_a_bell_pauses_grow_up_to_the_poll_and_shrink_when_something_comes(rhythm: Rhythm) -> None:
    pauses = []
    for _ in range(8):
        now = rhythm.next_look_at
        rhythm.looked(now, emptied=True, found=0, xmin=1)
        pauses.append(rhythm.next_look_at - now)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(POLL)
    now = rhythm.next_look_at
    rhythm.looked(now, emptied=True, found=1, xmin=1)
    assert rhythm.next_look_at - now < POLL / 10


def test_a_lane_that_was_empty_for_a_while_goes_idle_and_a_burst_does_not_toggle_it(rhythm: Rhythm) -> None:
    rhythm.looked(101.0, emptied=True, found=0, xmin=1)
    assert not rhythm.should_idle(101.01)
    assert rhythm.should_idle(101.06)
    rhythm.went_idle(horizon=50, now=101.06)
    assert not rhythm.should_idle(101.2)
    rhythm.looked(101.2, emptied=True, found=1, xmin=60)
    assert not rhythm.should_be_busy(101.2, room=3), "a trickle rings, and is cheaper than two writes of the flag"
    rhythm.looked(101.3, emptied=False, found=3, xmin=60)
    assert rhythm.should_be_busy(101.3, room=3)
    rhythm.went_busy()
    assert not rhythm.should_idle(101.4)


def test_after_going_idle_it_looks_on_until_every_writer_of_that_time_has_ended(rhythm: Rhythm) -> None:
    rhythm.looked(101.0, emptied=True, found=0, xmin=1)
    rhythm.went_idle(horizon=50, now=101.1)
    assert rhythm.next_look_at == 101.1
    rhythm.looked(101.1, emptied=True, found=0, xmin=49)
    assert rhythm.next_look_at < 101.2
    rhythm.looked(101.2, emptied=True, found=0, xmin=50)
    assert rhythm.next_look_at == pytest.approx(101.2 + POLL)


def test_a_foreign_transaction_that_stays_open_does_not_keep_it_looking(rhythm: Rhythm) -> None:
    rhythm.looked(101.0, emptied=True, found=0, xmin=1)
    rhythm.went_idle(horizon=50, now=101.1)
    rhythm.looked(104.0, emptied=True, found=0, xmin=2)
    assert rhythm.next_look_at == pytest.approx(104.0 + POLL)


def test_whoever_rings_is_heard_and_bells_without_room_are_switched_off(rhythm: Rhythm) -> None:
    rhythm.looked(101.0, emptied=True, found=0, xmin=1)
    rhythm.went_idle(horizon=1, now=101.1)
    rhythm.looked(101.1, emptied=True, found=0, xmin=1)
    rhythm.rung(101.2)
    assert rhythm.next_look_at == 101.2
    assert rhythm.should_be_busy(101.2, room=0)
    assert not rhythm.should_be_busy(101.2, room=1)
