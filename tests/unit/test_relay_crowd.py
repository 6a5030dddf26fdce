"""Who fills a lane, who is let past, what is kept free for them, and that nobody starves."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.crowd import CROWD_MAX, FOUND_MAX, PATIENCE, WINDOW, Crowd
from relay.position import TOP, Range
from relay.turns import Turns

INFINITE = 1_000


@pytest.fixture
def crowd() -> Crowd:
    return Crowd(poll_seconds=0.5, pass_seconds=5.0, now=0.0)


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


# -------------------------------------------------------------------------------------------------- what is kept free


def test_nothing_is_kept_free_where_there_is_nobody_else(crowd: Crowd) -> None:
    assert filled(crowd, "big").kept_free(64, 0.0) == 0


@pytest.mark.parametrize(("slots", "kept"), [(1, 0), (2, 1), (4, 1), (16, 2), (64, 8)])
def test_a_part_is_kept_free_for_a_minute_after_others_were_seen(crowd: Crowd, slots: int, kept: int) -> None:
    filled(crowd, "big").began(["small"], 10.0)
    assert crowd.kept_free(slots, 69.0) == kept
    assert crowd.kept_free(slots, 70.0) == 0
    crowd.looked(["small"], 9, 0.0, 100.0, more=False)
    assert crowd.kept_free(slots, 101.0) == kept
    crowd.met(["big"], 150.0)
    assert crowd.kept_free(slots, 160.0) == 0
    crowd.met(["small"], 160.0)
    assert crowd.kept_free(slots, 161.0) == kept


def test_others_that_were_there_before_the_crowd_count_too(crowd: Crowd) -> None:
    crowd.began(["small", *["big"] * (WINDOW - 1)], 0.0)
    assert crowd.kept_free(4, 1.0) == 1


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


# --------------------------------------------------------------------------------------------------------------- turns


def bound(tenant: str, number: int = 0) -> Any:
    return SimpleNamespace(begun=SimpleNamespace(tenant_id=tenant), number=number)


def served(turns: Turns, slots: int = 4, running: Sequence[str] = ()) -> str:
    return str(turns.take(slots, [bound(tenant) for tenant in running], 0.0).begun.tenant_id)


def test_without_a_crowd_it_is_first_come_first_served(crowd: Crowd) -> None:
    turns = Turns(crowd)
    for tenant in "abab":
        turns.add(bound(tenant))
    assert turns.may_start(slots=4, running=3, now=0.0)
    assert not turns.may_start(slots=4, running=4, now=0.0)
    assert [served(turns) for _ in range(4)] == ["a", "b", "a", "b"]
    assert not turns.may_start(slots=4, running=0, now=0.0)


def test_others_do_not_stand_behind_the_crowd_and_leave_it_a_turn(crowd: Crowd) -> None:
    turns = Turns(filled(crowd, "big"))
    for tenant in ["big"] * 3 + ["small"] * (PATIENCE + 1):
        turns.add(bound(tenant))
    assert (len(turns), turns.others) == (PATIENCE + 4, PATIENCE + 1)
    order = [served(turns) for _ in range(PATIENCE + 4)]
    assert order == ["small"] * PATIENCE + ["big", "small", "big", "big"]


def test_the_crowd_leaves_the_kept_slot_to_others(crowd: Crowd) -> None:
    turns = Turns(filled(crowd, "big"))
    crowd.began(["small"], 0.0)
    turns.add(bound("big"))
    assert turns.may_start(slots=4, running=2, now=1.0)
    assert not turns.may_start(slots=4, running=3, now=1.0)
    turns.add(bound("small"))
    assert turns.may_start(slots=4, running=3, now=1.0)
    assert served(turns) == "small"


@pytest.mark.parametrize(
    ("running", "then"),
    [
        (["big", "big", "big"], "small"),
        (["big", "big", "small"], "big"),
        (["big", "big"], "big"),
        (["small", "small", "small"], "big"),
    ],
    ids=str,
)
def test_its_turn_gives_the_crowd_a_kept_slot_only_for_one_that_others_have_taken(
    crowd: Crowd, running: list[str], then: str
) -> None:
    """Where its own calls are slow it holds all the others already: then whoever comes would wait for one of them."""
    turns = Turns(filled(crowd, "big"))
    crowd.began(["small"], 0.0)
    for tenant in ["big"] + ["small"] * (PATIENCE + 1):
        turns.add(bound(tenant))
    assert {served(turns, 4) for _ in range(PATIENCE)} == {"small"}
    assert served(turns, 4, running) == then


@given(
    slots=st.integers(1, 20),
    crowd_rows=st.integers(0, 30),
    others=st.integers(0, 30),
    seen=st.booleans(),
)
def test_whoever_waits_is_served_while_others_come_without_end(
    slots: int, crowd_rows: int, others: int, seen: bool
) -> None:
    crowd = filled(Crowd(poll_seconds=0.5, pass_seconds=5.0, now=0.0), "big")
    if seen:
        crowd.began(["small"], 0.0)
    turns = Turns(crowd)
    running: list[Any] = []
    for _ in range(crowd_rows):
        turns.add(bound("big"))
    for _ in range(others):
        turns.add(bound("small"))
    waits = crowd_rows
    for _ in range(INFINITE):
        while turns.may_start(slots, len(running), 0.0):
            running.append(turns.take(slots, running, 0.0))
            waits -= running[-1].begun.tenant_id == "big"
            assert len(running) <= slots
        running = running[1:]
        turns.add(bound("small"))
    assert waits == 0
