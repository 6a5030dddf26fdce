"""Who may take which slot of a receiver: in his own lane, past a crowd, in another lane's; and that nobody starves."""

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.crowd import WINDOW, Crowd
from relay.share import Pace
from relay.slots import PATIENCE, Slots
from relay.turns import Turns

INFINITE = 2_000
NOW = 0.0
numbers = itertools.count()


def bound(tenant: str) -> Any:
    return SimpleNamespace(begun=SimpleNamespace(tenant_id=tenant, name=(next(numbers), 1)))


class Lane:
    """A lane whose slots are used as `Flight` uses them, without a loop: a woken lane starts what it may at once."""

    def __init__(self, slots: Slots, own: int, crowd: str | None = None, rate: float | None = None) -> None:
        self.crowd = Crowd(poll_seconds=0.5, pass_seconds=5.0, now=NOW, slots=slots)
        for _ in range(WINDOW if crowd else 0):
            self.crowd.began([str(crowd)], NOW)
        self.turns = Turns(slots, self.crowd, own=own, pace=Pace(rate), wake=self.pump)
        self.running: list[Any] = []
        self.served: list[str] = []
        self.woken = 0

    def add(self, *tenants: str) -> None:
        for tenant in tenants:
            self.turns.add(bound(tenant))
        self.pump()

    def pump(self) -> None:
        self.woken += 1
        while len(self.turns) and self._start(again=False):
            pass

    def end(self, tenant: str | None = None) -> None:
        """The oldest of its attempts ends (of this tenant); its worker takes the next, or leaves the slot to others."""
        index = 0 if tenant is None else [one.begun.tenant_id for one in self.running].index(tenant)
        self.turns.ended(self.running.pop(index))
        if not self._start(again=True):
            self.turns.freed(NOW)
        self.pump()

    def _start(self, *, again: bool) -> bool:
        started = self.turns.next(NOW, again=again)
        if started is not None:
            self.running.append(started)
            self.served.append(started.begun.tenant_id)
        return started is not None

    def count(self, tenant: str) -> int:
        return sum(one.begun.tenant_id == tenant for one in self.running)


@pytest.fixture
def slots() -> Slots:
    return Slots()


# ------------------------------------------------------------------------------------------------------------ one lane


def test_without_a_crowd_it_is_first_come_first_served(slots: Slots) -> None:
    lane = Lane(slots, 2)
    lane.add(*"abab")
    assert lane.served == ["a", "b"]
    lane.end()
    lane.end()
    assert lane.served == ["a", "b", "a", "b"]
    assert (slots.running, slots.claimed, len(lane.turns)) == (2, 0, 0)


def test_others_do_not_stand_behind_the_crowd_and_leave_it_a_turn(slots: Slots) -> None:
    lane = Lane(slots, 1, "big")
    lane.add(*["big"] * 4, *["small"] * (PATIENCE + 1))
    for _ in range(PATIENCE + 4):
        lane.end()
    assert lane.served == ["small"] * PATIENCE + ["big", "small", "big", "big", "big"]


@pytest.mark.parametrize(("total", "kept"), [(1, 0), (2, 1), (4, 1), (16, 2), (64, 8)])
def test_one_slot_in_eight_is_kept_free_and_one_at_least_for_a_minute_after_others_were_seen(
    slots: Slots, total: int, kept: int
) -> None:
    lane = Lane(slots, total, "big")
    assert (slots.total, slots.kept(NOW)) == (total, 0)
    lane.crowd.met(["small"], 10.0)
    assert (slots.kept(69.9), slots.kept(70.0)) == (kept, 0)


def test_the_crowd_leaves_a_slot_to_others_and_takes_all_where_there_are_none(slots: Slots) -> None:
    lane = Lane(slots, 4, "big")
    lane.add(*["big"] * 9)
    assert lane.count("big") == 4
    lane.crowd.met(["small"], NOW)
    lane.end()
    assert lane.count("big") == 3
    lane.add("small")
    assert (lane.count("big"), lane.count("small")) == (3, 1)


def test_it_takes_a_kept_slot_only_for_one_that_others_have_taken(slots: Slots) -> None:
    """Where its own calls are slow it holds all the others already: then whoever comes would wait for one of them."""
    lane = Lane(slots, 4, "big")
    lane.crowd.met(["small"], NOW)
    lane.add(*["big"] * 9)
    lane.add(*["small"] * (3 * PATIENCE))
    for _ in range(2 * PATIENCE):
        lane.end("small")
    assert (lane.count("big"), lane.count("small")) == (3, 1), "it has its three"
    lane.end("big")
    assert (lane.count("big"), lane.count("small")) == (3, 1), "and gets the third back: others were before it"


# --------------------------------------------------------------------------------------------------------- other lanes


def test_others_take_slots_of_other_lanes_and_the_crowd_does_not(slots: Slots) -> None:
    first, second = Lane(slots, 2, "big"), Lane(slots, 2)
    first.add(*["big"] * 9)
    assert first.count("big") == 2
    first.add("small", "small")
    assert (first.count("small"), slots.free) == (2, 0)
    first.add("small")
    assert first.count("small") == 2, "no more than there are in all"
    assert second.turns.own_running == 0


def test_a_lane_gets_back_what_it_has_lent_when_the_next_attempt_ends(slots: Slots) -> None:
    first, second = Lane(slots, 2, "big"), Lane(slots, 2)
    first.add(*["big"] * 9)
    first.add(*["small"] * 9)
    second.add("a", "a", "a")
    assert second.running == []
    first.end("small")
    assert (second.count("a"), first.count("small")) == (0, 2), "the other was denied one before"
    first.end("small")
    assert (second.count("a"), first.count("small")) == (1, 1)
    first.end("small")
    first.end("small")
    assert (second.count("a"), first.count("small")) == (2, 0)
    second.end()
    assert (second.count("a"), first.count("small")) == (1, 1), "before who has just had one"


def test_what_is_kept_free_is_kept_in_all_lanes_together(slots: Slots) -> None:
    lanes = [Lane(slots, 4, "big") for _ in range(4)]
    lanes[0].crowd.met(["small"], NOW)
    for lane in lanes:
        lane.add(*["big"] * 9)
    assert (slots.free, slots.kept(NOW)) == (2, 2)
    lanes[3].add("small", "small")
    assert (lanes[3].count("small"), slots.free) == (2, 0)


def test_a_lane_whose_pace_is_used_up_stands_in_nobodys_way(slots: Slots) -> None:
    paced, other = Lane(slots, 2, "big", rate=1.0), Lane(slots, 2, "big")
    paced.add("big", "big", "big")
    assert paced.count("big") == 1
    other.add(*["big"] * 9)
    for _ in range(5):
        other.end()
    assert other.count("big") == 2


def test_a_lane_where_something_could_begin_is_woken_when_there_is_a_slot_for_it(slots: Slots) -> None:
    """Where nothing is claimed ahead nothing waits: it has to be begun first."""
    first, second = Lane(slots, 1, "big"), Lane(slots, 1, "big")
    first.add("big")
    second.add("big")
    assert (first.turns.own_room, first.turns.room_for_others(), first.turns.room(NOW)) == (0, 0, 0)
    first.turns.queue_up(hungry=True, others=True)
    woken = first.woken
    second.end()
    assert (first.woken, first.turns.was_hungry()) == (woken + 1, True)
    assert first.turns.room_for_others() == 1
    with first.turns.promised(1):
        assert second.turns.room_for_others() == 0, "nobody else begins anything for it meanwhile"
    assert second.turns.room_for_others() == 1


def test_that_something_could_begin_gives_what_waits_no_slot_of_others(slots: Slots) -> None:
    first, second = Lane(slots, 1, "big"), Lane(slots, 2)
    first.add("big", "big")
    first.turns.queue_up(hungry=True, others=True)
    first.pump()
    assert (first.count("big"), slots.free) == (1, 2)
    assert second.running == []


# -------------------------------------------------------------------------------------------------------------- its end


def test_a_lane_that_is_given_back_waits_for_what_it_has_lent(slots: Slots) -> None:
    first, second = Lane(slots, 2, "big"), Lane(slots, 2)
    first.add("big", "big", "small", "small")
    second.turns.close()
    assert (slots.total, slots.free, second.turns.left()) == (2, 0, False)
    first.end("small")
    assert not second.turns.left()
    woken = second.woken
    first.end("small")
    assert second.woken == woken + 1
    assert second.turns.left()
    first.add("small")
    assert first.count("small") == 0, "no slot of a lane that is gone"


def test_what_was_begun_in_a_lane_that_is_closed_comes_to_its_end(slots: Slots) -> None:
    lane, other = Lane(slots, 2), Lane(slots, 1, "big")
    lane.add(*"abc")
    lane.turns.close()
    assert slots.total == 3
    lane.add("d")
    for _ in range(4):
        lane.end()
    assert lane.served == ["a", "b", "c", "d"]
    assert (slots.total, lane.turns.left()) == (1, True)
    other.add("big", "small", "small")
    assert len(other.running) == 1


def test_what_is_dismissed_waits_no_more(slots: Slots) -> None:
    lane = Lane(slots, 1, "big")
    lane.add("big")
    lane.add("big", "small", "big")
    assert [one.begun.tenant_id for one in lane.turns.dismiss()] == ["big", "big", "small"]
    assert (len(lane.turns), slots.claimed) == (0, 0)


def test_a_lane_may_get_more_slots_and_fewer(slots: Slots) -> None:
    lane = Lane(slots, 1)
    lane.add(*"abcd")
    lane.turns.serve(3, Pace(None))
    lane.pump()
    assert (len(lane.running), slots.total) == (3, 3)
    lane.turns.serve(1, Pace(None))
    lane.end()
    assert (len(lane.running), slots.total, slots.free) == (2, 1, 0)


# -------------------------------------------------------------------------------------------------------------- waking


def test_waking_ends_where_a_crowd_has_used_up_its_pace(slots: Slots) -> None:
    """One of the crowd runs, another waits, the slot that is free is kept: whoever is woken is denied again."""
    lane = Lane(slots, 2, "big", rate=1.0)
    lane.crowd.met(["small"], NOW)
    lane.add("big", "big")
    assert (lane.count("big"), slots.free, slots.kept(NOW), lane.turns.pace.room(NOW)) == (1, 1, 1, 0)
    woken = lane.woken
    lane.turns.freed(NOW)
    assert lane.woken == woken + 1


def test_who_may_not_have_the_kept_slot_keeps_it_from_nobody(slots: Slots) -> None:
    """A lane was denied its own slot before it had a crowd; now it has one, and others stand behind it."""
    lender, late, third = Lane(slots, 1, "big"), Lane(slots, 1), Lane(slots, 1, "big")
    lender.crowd.met(["small"], NOW)
    lender.add("small", "small", "small")
    late.add("x")
    third.add("small")
    late.crowd.began(["x"] * WINDOW, NOW)
    lender.end("small")
    settled(slots, [lender, late, third])


def test_the_same_where_nothing_is_claimed_ahead(slots: Slots) -> None:
    lender, late, third = Lane(slots, 1, "big"), Lane(slots, 1), Lane(slots, 1, "big")
    lender.crowd.met(["small"], NOW)
    lender.add("small", "small", "small")
    late.turns.queue_up(hungry=True)
    third.turns.queue_up(hungry=True, others=True)
    late.crowd.began(["x"] * WINDOW, NOW)
    woken = third.woken
    lender.end("small")
    assert (third.turns.room_for_others(), third.woken) == (1, woken + 1)


def test_a_lane_in_which_something_is_being_begun_has_not_left(slots: Slots) -> None:
    lane = Lane(slots, 1)
    with lane.turns.promised(1):
        lane.turns.close()
        assert not lane.turns.left()
    assert lane.turns.left()
    assert slots.seats == []


# --------------------------------------------------------------------------------------------------------- properties

LANES = st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=5)


def settled(slots: Slots, lanes: Sequence[Lane]) -> None:
    """No more runs than there are slots, and nobody waits who may start."""
    assert slots.running == sum(len(lane.running) for lane in lanes) <= slots.total
    assert slots.claimed == sum(len(lane.turns) for lane in lanes)
    for lane in lanes:
        assert not (len(lane.turns) and lane.turns.may_start(NOW)), "nobody woke it"


@given(LANES, st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["big", "small", "end"])), max_size=80))
def test_a_slot_is_free_only_if_nobody_may_have_it(
    shapes: list[tuple[int, bool]], events: list[tuple[int, str]]
) -> None:
    slots = Slots()
    lanes = [Lane(slots, own, "big" if crowd else None) for own, crowd in shapes]
    for number, event in events:
        lane = lanes[number % len(lanes)]
        if event == "end":
            if lane.running:
                lane.end()
        else:
            lane.crowd.met([event], NOW)
            lane.add(event)
        settled(slots, lanes)
    while busy := [lane for lane in lanes if lane.running]:
        busy[0].end()
        settled(slots, lanes)
    assert not any(len(lane.turns) for lane in lanes)


@given(LANES, st.sets(st.integers(0, 4)), st.integers(1, 12), st.booleans(), st.booleans())
def test_whoever_waits_is_served_while_others_come_without_end(
    shapes: list[tuple[int, bool]], floods: set[int], rows: int, seen: bool, full: bool
) -> None:
    """Others come without end to lanes with a crowd, and whoever it is to lanes without one (`full`)."""
    slots = Slots()
    lanes = [Lane(slots, own, "big" if crowd else None) for own, crowd in shapes]
    flooded = [lanes[number] for number in floods if number < len(lanes) and shapes[number][1]]
    for lane in lanes:
        if seen:
            lane.crowd.met(["small"], NOW)
        for one in flooded:
            one.add("small", "small")
        lane.add(*["big"] * rows)
    for turn in range(INFINITE):
        for lane, (_, crowd) in zip(lanes, shapes, strict=True):
            if lane in flooded or (full and not crowd):
                lane.add("small")
        busy = [lane for lane in lanes if lane.running]
        if not busy:
            break
        busy[turn % len(busy)].end()
        settled(slots, lanes)
    assert [lane.served.count("big") for lane in lanes] == [rows] * len(lanes)


class Mortal(Lane):
    """A lane that is closed one day, and leaves when all is over."""

    def __init__(self, slots: Slots, own: int, crowd: str | None) -> None:
        self.closing = self.gone = False
        super().__init__(slots, own, crowd)

    def pump(self) -> None:
        super().pump()
        if self.closing and not (self.gone or self.running or len(self.turns)):
            self.gone = self.turns.left()

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self.turns.close()
            self.pump()

    def happen(self, event: str) -> None:
        match event:
            case "big" | "small" if not self.closing:
                self.crowd.met([event], NOW)
                self.add(event, event)
            case "end" if self.running:
                self.end()
            case "crowd":
                self.crowd.began(["big"] * WINDOW, NOW)
            case "no crowd":
                self.crowd.dissolved()
            case "more" | "fewer":
                self.turns.serve(5 if event == "more" else 1, Pace(None))
            case "dismiss":
                list(self.turns.dismiss())
            case "hungry" | "hungry for others":
                self.turns.queue_up(hungry=True, others="others" in event)
            case "close":
                self.close()


KINDS = ("big", "small", "end", "crowd", "no crowd", "more", "fewer", "dismiss", "hungry", "hungry for others", "close")
EVENTS = st.tuples(st.integers(0, 4), st.sampled_from(KINDS))


@given(LANES, st.lists(EVENTS, max_size=120))
def test_whatever_happens_the_counters_add_up_and_all_ends_at_zero(
    shapes: list[tuple[int, bool]], events: list[tuple[int, str]]
) -> None:
    slots = Slots()
    lanes = [Mortal(slots, own, "big" if crowd else None) for own, crowd in shapes]
    for number, event in events:
        lanes[number % len(lanes)].happen(event)
        assert slots.running == sum(len(one.running) for one in lanes)
        assert slots.claimed == sum(len(one.turns) for one in lanes)
        assert slots.total == sum(one.turns.own for one in lanes)
    for lane in lanes:
        lane.close()
    while busy := [lane for lane in lanes if lane.running]:
        busy[0].end()
    for lane in lanes:
        lane.pump()
    assert all(lane.gone for lane in lanes)
    assert (slots.total, slots.running, slots.claimed, slots.seats) == (0, 0, 0, [])
