"""The cursor never goes back, the floor never rises above what may still commit, and the look-behind reaches it."""

import pytest

from relay.position import DEEP_SECONDS, FLOOR_DELAY_SECONDS, REMEMBERED_MAX, TOP, Position, Range


@pytest.fixture
def position() -> Position:
    return Position(look_behind_seconds=5.0, now=0.0)


def test_a_full_batch_moves_the_cursor_to_its_last_row_only(position: Position) -> None:
    assert not position.advanced([3, 7], limit=2, top=99)
    assert position.frontier() == Range(7, TOP)


def test_a_batch_that_left_nothing_moves_the_cursor_over_all_that_was_seen(position: Position) -> None:
    assert position.advanced([3], limit=2, top=99)
    assert position.cursor == 99
    assert position.advanced([], limit=2, top=None)
    assert position.cursor == 99


def test_a_look_behind_goes_from_the_floor_to_the_cursor_in_steps(position: Position) -> None:
    position.advanced([100], limit=2, top=100)
    assert position.behind(4.9) is None
    assert position.behind(5.0) == Range(-1, 100)
    assert not position.looked([10, 20], limit=2, seconds=0.0)
    assert position.behind(5.0) == Range(20, 100)
    assert position.next_pass_at() == 0.0, "a pass that has begun is not postponed"
    assert position.looked([30], limit=2, seconds=0.0)
    position.rested(6.0)
    assert position.next_pass_at() == 11.0


def test_looking_behind_takes_a_small_part_of_the_time_only(position: Position) -> None:
    position.advanced([100], limit=2, top=100)
    position.behind(5.0)
    position.looked([], limit=2, seconds=2.0)
    position.rested(7.0)
    assert position.next_pass_at() == 7.0 + 40.0


def test_the_floor_rises_when_every_transaction_of_that_time_has_ended(position: Position) -> None:
    position.advanced([100], limit=2, top=100)
    position.bounds_seen(lowest=None, xmin=500, xmax=505, now=10.0)
    assert position.floor == 0
    position.bounds_seen(lowest=None, xmin=500, xmax=510, now=10.0 + FLOOR_DELAY_SECONDS)
    assert position.floor == 0
    position.bounds_seen(lowest=None, xmin=509, xmax=520, now=20.0)
    assert position.floor == 0, "one of them is still running, and may hold a lower number"
    position.bounds_seen(lowest=None, xmin=510, xmax=520, now=30.0)
    assert position.floor == 101


def test_the_transactions_are_written_down_some_time_after_the_floor_was_proposed(position: Position) -> None:
    """A writer can hold a number for an instant before it has a transaction id."""
    position.advanced([100], limit=2, top=100)
    position.bounds_seen(lowest=None, xmin=500, xmax=505, now=10.0)
    position.bounds_seen(lowest=None, xmin=600, xmax=605, now=10.0 + FLOOR_DELAY_SECONDS / 2)
    position.bounds_seen(lowest=None, xmin=700, xmax=705, now=10.0 + FLOOR_DELAY_SECONDS / 2)
    assert position.floor == 0


def test_an_open_row_that_committed_late_keeps_the_floor_down(position: Position) -> None:
    position.advanced([100], limit=2, top=100)
    position.bounds_seen(lowest=None, xmin=500, xmax=505, now=10.0)
    position.bounds_seen(lowest=None, xmin=500, xmax=510, now=12.0)
    position.bounds_seen(lowest=40, xmin=510, xmax=520, now=14.0)
    assert position.floor == 40


def test_what_is_above_the_cursor_is_no_floor(position: Position) -> None:
    """The frontier will see it; what committed below it meanwhile would be forgotten."""
    position.advanced([100], limit=2, top=100)
    for step in range(1, 5):
        position.bounds_seen(lowest=900, xmin=500 * step, xmax=500 * step, now=10.0 * step)
    assert position.floor == 101


def test_an_empty_range_is_not_looked_through_but_from_zero_now_and_then(position: Position) -> None:
    position.advanced([100], limit=2, top=100)
    for step in range(1, 5):
        position.bounds_seen(lowest=None, xmin=500 * step, xmax=500 * step, now=10.0 * step)
    assert position.floor == 101
    assert position.behind(50.0) is None
    assert position.next_pass_at() == 55.0
    assert position.behind(DEEP_SECONDS) == Range(-1, 100)


def test_retries_come_at_their_time_and_rung_rows_at_once_each_once(position: Position) -> None:
    position.retry_at(7, 20.0)
    position.retry_at(5, 10.0)
    assert position.next_due_at() == 10.0
    position.ring(9)
    position.ring(9)
    assert position.next_due_at() == 0.0
    assert position.due(15.0, limit=10) == [9, 5]
    assert position.due(15.0, limit=10) == []
    assert position.due(20.0, limit=10) == [7]


def test_what_finds_no_room_stays_due(position: Position) -> None:
    for seq in (1, 2, 3):
        position.ring(seq)
    assert position.due(0.0, limit=2) == [1, 2]
    assert position.next_due_at() == 0.0
    assert position.due(0.0, limit=2) == [3]


def test_what_is_of_the_crowd_is_due_apart(position: Position) -> None:
    position.ring(1, of_crowd=True)
    position.retry_at(2, 5.0, of_crowd=True)
    position.ring(3)
    assert (position.remembered, position.due(9.0, limit=10)) == (1, [3])
    assert (position.next_due_at(), position.next_due_at(of_crowd=True)) == (None, 0.0)
    assert position.due(9.0, limit=-1, of_crowd=True) == []
    assert position.due(9.0, limit=10, of_crowd=True) == [1, 2]


def test_memory_is_bounded(position: Position) -> None:
    for seq in range(2 * REMEMBERED_MAX):
        position.ring(seq)
        position.retry_at(seq, 1.0)
    assert len(position.due(0.0, limit=10 * REMEMBERED_MAX)) == REMEMBERED_MAX


def test_what_may_execute_unheard_of_is_within_reach_until_it_was_swept(position: Position) -> None:
    position.advanced([100], limit=1, top=100)
    position.unheard([7, 5_000])
    assert (position.reach, position.cursor) == (5_000, 100)
    position.swept()
    assert position.reach == 100
