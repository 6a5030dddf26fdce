"""Who fills a lane, who is let past, and where to look for them."""

import pytest

from relay.crowd import CROWD_MAX, FOUND_MAX, WINDOW, Crowd
from relay.position import TOP, Range
from relay.share import Pace
from relay.slots import Slots
from relay.turns import Turns


@pytest.fixture
def slots() -> Slots:
    slots = Slots()
    slots.total = 4
    return slots


@pytest.fixture
def crowd(slots: Slots) -> Crowd:
    return Crowd(poll_seconds=0.5, pass_seconds=5.0, now=0.0, slots=slots)


def filled(crowd: Crowd, *tenants: str, now: float = 0.0) -> Crowd:
    for _ in range(WINDOW):
        crowd.began(tenants, now)
    return crowd


# ------------------------------------------------------------------------------------------------------- who fills it


def test_a_tenant_fills_a_lane_once_enough_of_it_was_begun(crowd: Crowd) -> None:
    crowd.began(["big"] * (WINDOW - 1), 0.0)
    assert crowd.tenants == frozenset()
    crowd.began(["big"], 0.0)
    assert crowd.tenants == {"big"}


def test_a_lane_of_many_equals_has_no_crowd(crowd: Crowd) -> None:
    filled(crowd, *(f"t{n}" for n in range(20)))
    assert crowd.tenants == frozenset()


def test_several_may_fill_it_together_but_no_more_than_its_row_can_name(crowd: Crowd) -> None:
    assert filled(crowd, "a", "b", "c").tenants == {"a", "b", "c"}
    for n in range(3 * CROWD_MAX):
        crowd.began([f"next-{n}"] * (WINDOW // 4), 0.0)
        assert len(crowd.tenants) <= CROWD_MAX


def test_whoever_filled_it_stays_until_none_of_him_is_among_the_newest(crowd: Crowd) -> None:
    filled(crowd, "big")
    crowd.began(["new"] * (WINDOW - 1), 0.0)
    assert crowd.tenants == {"big", "new"}
    crowd.began(["new"], 0.0)
    assert crowd.tenants == {"new"}


def test_whoever_fills_what_lies_behind_the_crowd_is_passed_over_too(crowd: Crowd) -> None:
    filled(crowd, "big").ahead(10, 0.0)
    crowd.looked(["next"] * (FOUND_MAX - 1), 900, 0.01, 0.0, more=False)
    assert crowd.tenants == {"big"}
    crowd.looked(["next"] * (FOUND_MAX - 1) + ["small"], 900, 0.01, 0.0, more=True)
    assert crowd.tenants == {"big", "next"}
    filled(crowd, "big")
    assert crowd.tenants == {"big", "next"}
    assert crowd.ahead(20, 5.0) == Range(20, TOP)
    assert crowd.tenants == {"big"}, "each pass finds out anew"


def test_an_empty_lane_has_no_crowd(crowd: Crowd) -> None:
    filled(crowd, "big").dissolved()
    assert (crowd.tenants, crowd.ahead(0, 1.0), crowd.next_look_at()) == (frozenset(), None, None)
    crowd.began(["big"] * (WINDOW - 1), 0.0)
    assert crowd.tenants == frozenset(), "what was begun before does not count"


# ------------------------------------------------------------------------------------------------ that others are there


def test_nothing_is_kept_free_where_there_is_nobody_else(crowd: Crowd, slots: Slots) -> None:
    filled(crowd, "big")
    assert slots.kept(0.0) == 0


def test_others_are_there_once_some_of_them_began_were_found_or_are_begun_by_name(crowd: Crowd, slots: Slots) -> None:
    filled(crowd, "big").began(["small"], 10.0)
    assert (slots.kept(69.0), slots.kept(70.0)) == (1, 0)
    crowd.looked(["small"], 9, 0.0, 100.0, more=False)
    assert slots.kept(101.0) == 1
    crowd.met(["big"], 150.0)
    assert slots.kept(160.0) == 0
    crowd.met(["small"], 160.0)
    assert slots.kept(161.0) == 1


def test_others_that_were_there_before_the_crowd_count_too(crowd: Crowd, slots: Slots) -> None:
    crowd.began(["small", *["big"] * (WINDOW - 1)], 0.0)
    assert slots.kept(1.0) == 1


# ------------------------------------------------------------------------------------------------------- looking ahead


def test_a_pass_begins_behind_the_frontier_and_goes_on_where_it_stopped(crowd: Crowd) -> None:
    filled(crowd, "big")
    assert crowd.ahead(100, 0.0) == Range(100, TOP)
    crowd.looked([], 5_000, 0.01, 0.0, more=True)
    assert crowd.ahead(130, 0.0) == Range(5_000, TOP)
    crowd.looked([], 9_000, 0.01, 0.0, more=False)
    assert crowd.ahead(130, 0.49) is None
    assert crowd.ahead(130, 0.5) == Range(9_000, TOP), "only what is new"
    crowd.looked([], None, 0.0, 0.5, more=False)
    assert crowd.ahead(20_000, 1.0) == Range(20_000, TOP), "never behind the frontier"


def test_the_whole_crowd_is_passed_over_again_for_what_was_committed_late(crowd: Crowd) -> None:
    filled(crowd, "big")
    crowd.ahead(0, 0.0)
    crowd.looked([], 9_000, 0.01, 0.0, more=False)
    assert crowd.ahead(10, 4.9) == Range(9_000, TOP)
    assert crowd.ahead(10, 5.0) == Range(10, TOP)


def test_passing_over_it_takes_a_small_part_of_the_time_only(crowd: Crowd) -> None:
    filled(crowd, "big")
    crowd.ahead(0, 0.0)
    crowd.looked([], 5_000, 1.0, 1.0, more=True)
    crowd.looked([], 9_000, 1.0, 2.0, more=False)
    assert crowd.ahead(10, 101.9) == Range(9_000, TOP)
    assert crowd.ahead(10, 102.0) == Range(10, TOP)


def test_all_lanes_of_a_receiver_together_take_no_larger_part_of_it(slots: Slots) -> None:
    lanes = [Crowd(poll_seconds=0.5, pass_seconds=5.0, now=0.0, slots=slots) for _ in range(3)]
    for lane in lanes:
        Turns(slots, filled(lane, "big"), own=1, pace=Pace(None), wake=lambda: None)
    lanes[0].ahead(0, 0.0)
    lanes[0].looked([], 9_000, 1.0, 1.0, more=False)
    assert lanes[0].ahead(10, 150.9) == Range(9_000, TOP)
    assert lanes[0].ahead(10, 151.0) == Range(10, TOP)


def test_a_bell_makes_it_look_at_once(crowd: Crowd) -> None:
    filled(crowd, "big")
    crowd.ahead(0, 0.0)
    crowd.looked([], 9_000, 0.01, 0.0, more=False)
    crowd.rung(0.1)
    assert (crowd.next_look_at(), crowd.ahead(10, 0.1)) == (0.1, Range(9_000, TOP))


def test_a_crowd_of_others_is_passed_over_from_its_start(crowd: Crowd) -> None:
    filled(crowd, "big")
    crowd.ahead(0, 0.0)
    crowd.looked([], 9_000, 0.01, 0.0, more=False)
    filled(crowd, "other")
    assert crowd.ahead(10, 0.1) == Range(10, TOP)
