"""How long a doubt can last: the promise that nothing is unknown for ever without somebody being asked."""

import math

from outbox.contract import Wiring


def liveness_bound(wiring: Wiring) -> float:
    """
    Return seconds from the first exposure of a doubt until it has ended or a person is asked.

    "Ended" is a terminal state, or `authorized` by proof. Provided that relay and reconciler act at the dates that they
    are given: whatever they are late (polling, queues, an outage) comes on top, once per step. Always finite.
    """
    one = _after_one_exposure(wiring)
    if not wiring.resend_safe:
        return one
    resends = wiring.retrying.attempts * one
    if wiring.repeat_safe or math.isinf(wiring.retention_seconds):
        return resends
    # The window ends all resends, and only what follows from the last exposure remains.
    return min(resends, wiring.retention_seconds + one)


def _after_one_exposure(wiring: Wiring) -> float:
    """Until the next exposure, the end, or a person."""
    trusted, retry, lookup = wiring.trusted, wiring.retrying, wiring.lookup
    # The attempt ends by its deadline, or its lease does and somebody makes it unknown.
    executing = wiring.deadline_seconds + wiring.receiver.lease + wiring.margin_seconds
    back_off = max(trusted.resend_after, retry.max, retry.retry_after_max)
    if lookup is None:
        # Without a resend there is nothing to wait for: a person is asked as soon as the attempt has ended.
        return executing + (back_off if wiring.resend_safe else 0.0)
    looks = sum(lookup.pause_seconds(number) for number in range(lookup.reads_max))
    settled = (wiring.settle_seconds or 0.0) + wiring.lag_seconds
    return executing + back_off + looks + settled + lookup.confirm_within
