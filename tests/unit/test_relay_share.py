"""Everybody computes the same shares, and all of them together are what there is."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.share import UNPACED, Pace, quota, slots

members = st.lists(st.uuids(), min_size=1, max_size=12, unique=True)


@given(receiver_id=st.integers(1, 10_000), lanes=st.integers(1, 1024), members=members)
def test_shares_cover_every_lane_and_differ_by_one_at_most(receiver_id: int, lanes: int, members: list[UUID]) -> None:
    shares = [quota(receiver_id, lanes, members, me) for me in members]
    assert sum(shares) == lanes
    assert max(shares) - min(shares) <= 1


def test_many_receivers_with_one_lane_are_spread() -> None:
    both = [UUID(int=1), UUID(int=2)]
    assert sum(quota(receiver_id, 1, both, both[0]) for receiver_id in range(1, 101)) == 50


def test_a_member_that_is_not_listed_yet_counts_itself() -> None:
    assert quota(1, 4, [UUID(int=1)], UUID(int=2)) == 2


@given(lanes=st.integers(1, 200), extra=st.integers(0, 5000))
def test_slots_of_all_lanes_are_the_concurrency_of_the_receiver(lanes: int, extra: int) -> None:
    each = [slots(lanes + extra, lanes, lane) for lane in range(lanes)]
    assert sum(each) == lanes + extra
    assert min(each) >= 1


def test_a_pace_never_exceeds_its_rate() -> None:
    pace = Pace(10.0)
    started = sum(pace.take(now / 1000) for now in range(10_000))
    assert started <= 10 + 10 * 10
    assert started >= 100


def test_a_slow_pace_says_when_the_next_one_may_start() -> None:
    pace = Pace(0.5)
    assert pace.take(0.0)
    assert (pace.room(0.0), pace.free_at(0.0)) == (0, 2.0)
    assert not pace.take(1.9)
    assert pace.take(2.0)


def test_without_a_rate_there_is_always_room() -> None:
    pace = Pace(None)
    assert pace.take(0.0)
    assert (pace.room(0.0), pace.free_at(5.0)) == (UNPACED, 5.0)


@pytest.mark.parametrize("rate", [0.5, 3.0, 200.0])
def test_an_idle_pace_saves_up_one_second_at_most(rate: float) -> None:
    pace = Pace(rate)
    pace.room(0.0)
    assert pace.room(1_000_000.0) == max(1, int(rate))
