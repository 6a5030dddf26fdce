"""The last check before the first byte: lease, deadline, window, permission, by a clock that does not stand still."""

import math

import pytest

from outbox.lease import DeadMan, LocalLease, boottime
from outbox.receivers import TooLate
from relay.gate import LaneGate, Terms

NOW = 1000.0
FINE = {"deadline_at": NOW + 5}


@pytest.mark.parametrize(
    ("terms", "lease_until", "refusal"),
    [
        (FINE, NOW + 10, None),
        ({"deadline_at": NOW}, NOW + 10, "deadline"),
        (FINE, NOW + 5, "lease"),
        (FINE, -math.inf, "lease"),
        (FINE | {"window_until": NOW}, NOW + 10, "window"),
        (FINE | {"window_until": NOW + 0.001}, NOW + 10, None),
        (FINE | {"permission_until": NOW}, NOW + 10, "permission"),
    ],
)
def test_each_bound_refuses_by_itself(terms: dict[str, float], lease_until: float, refusal: str | None) -> None:
    said = Terms(**terms).refusal(NOW, LocalLease(lease_until))
    assert (said is None) if refusal is None else (said is not None and refusal in said)


def test_the_lease_is_asked_at_the_last_moment() -> None:
    lease = LocalLease(boottime() + 10)
    gate = LaneGate(Terms(deadline_at=boottime() + 5), lambda: lease)
    gate.sending()
    lease = LocalLease(-math.inf)
    with pytest.raises(TooLate, match="lease"):
        gate.check()
    assert not gate.passed


def test_a_gate_that_let_an_attempt_pass_remembers_it() -> None:
    gate = LaneGate(Terms(deadline_at=boottime() + 5), lambda: LocalLease(boottime() + 10))
    gate.sending()
    gate.check()
    gate.sent()
    assert gate.passed


def test_the_dead_man_is_armed_between_the_check_and_the_last_byte_only() -> None:
    timers: list[float] = []
    dead_man = DeadMan(clock=lambda: NOW, set_timer=timers.append)
    gate = LaneGate(Terms(deadline_at=boottime() + 5), lambda: LocalLease(boottime() + 10), dead_man, "lane")
    gate.sending()
    gate.check()
    assert timers[-1] > 0
    gate.sent()
    assert timers[-1] == 0


def test_a_lease_that_is_over_is_refused_in_order_and_kills_nobody() -> None:
    timers: list[float] = []
    dead_man = DeadMan(clock=lambda: NOW, set_timer=timers.append)
    gate = LaneGate(Terms(deadline_at=boottime() + 5), lambda: LocalLease(-math.inf), dead_man, "lane")
    gate.sending()
    with pytest.raises(TooLate):
        gate.check()
    gate.sent()
    assert timers == []
