"""
The rules, carried out in a hostile world, judged by the receiver's ledger.

Requests are lost, late up to the last moment that the contract allows, or repeated by the path; answers are lost;
daemons crash, are late, and decide on what they read long ago; permissions lapse; looks fail.
"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox.decide import liveness_bound
from tests.support.contracts import CLASSES, of_class
from tests.support.world import World

SEEDS = st.integers(0, 2**32 - 1)

# One attempt of these can have several effects: the guarantee says that no bound is promised, or that it is harmless.
SEVERAL_EFFECTS = {
    "look over a path that repeats",
    "later, over a path that repeats",
    "repeat-safe",
    "repeat-safe and look",
}
FEW = {"attempts": 6, "first": "1s", "max": "30s", "retry_after_max": "2m"}
WINDOWED = [name for name in CLASSES if 0 < of_class(name).retention_seconds < math.inf]


def world(name: str, seed: int, retention: str = "10m") -> World:
    """A world of one class; short windows let many resends meet their end."""
    window = {"key_retention": retention} if name in WINDOWED and name != "key, no bound" else {}
    return World(of_class(name, retry=FEW, **window), seed, late_daemons=True)


@pytest.mark.parametrize("name", CLASSES)
@given(seed=SEEDS, retention=st.sampled_from(["36s", "60s", "10m", "10m"]))
@settings(max_examples=200)
def test_no_state_ever_contradicts_the_ledger_and_no_second_effect_happens(
    name: str, seed: int, retention: str
) -> None:
    """`World.to` asserts that `rejected` and `authorized` hide nothing, ever, and that `succeeded` has its effect."""
    one = world(name, seed, retention)
    assert one.run() in {"succeeded", "rejected", "person"}
    if name not in SEVERAL_EFFECTS:
        assert one.ledger.at_last() <= 1, one.trace


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("hopeless", [False, True], ids=["some luck", "nothing ever answers"])
@given(seed=SEEDS)
@settings(max_examples=40)
def test_every_doubt_ends_or_reaches_a_person_within_the_bound_of_its_contract(
    name: str, hopeless: bool, seed: int
) -> None:
    made = of_class(name, retry=FEW)
    world = World(made, seed, late_daemons=False, hopeless=hopeless)
    world.run()
    assert all(lasted <= liveness_bound(made) for lasted in world.doubt_seconds), world.trace


@pytest.mark.parametrize("name", CLASSES)
def test_the_bound_holds_with_the_back_off_that_nobody_stated(name: str) -> None:
    made = of_class(name)
    world = World(made, 1, late_daemons=False, hopeless=True)
    world.run()
    assert 0 < max(world.doubt_seconds) <= liveness_bound(made) < float("inf")


@pytest.mark.parametrize("name", WINDOWED)
@given(seed=SEEDS, retention=st.sampled_from(["36s", "60s", "10m"]))
@settings(max_examples=60)
def test_no_resend_begins_outside_the_window_nor_without_a_permission_that_holds(
    name: str, seed: int, retention: str
) -> None:
    """Counted from the first exposure; only one that never left this machine is none."""
    one = world(name, seed, retention)
    one.run()
    made = one.wiring
    open_seconds = made.retention_seconds - (2 + 10) * 2 - 10 if made.settle_seconds else 3_600 - 300 - 5
    for begun, first in one.resends:
        assert begun - first < open_seconds, one.trace
        assert begun < one.permission_until, one.trace
