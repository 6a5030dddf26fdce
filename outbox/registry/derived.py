"""The columns of outbox.tool that follow from a wiring."""

import math
from typing import Any

from outbox.contract import Wiring


def derived(wiring: Wiring) -> dict[str, Any]:
    """
    Return the columns of outbox.tool that follow from a wiring; times in seconds.

    A statement that begins a batch cannot ask Python about each row: it judges by these.
    """
    retention = wiring.retention_seconds
    identity = wiring.config.identity_retention
    return {
        "requires_approval": wiring.config.requires_approval,
        "policy_version": wiring.config.policy_version,
        "retention": 0.0 if math.isinf(retention) else retention,
        "key_forever": math.isinf(retention),
        "margin": wiring.margin_seconds,
        "reach": wiring.reach_seconds,
        "deadline": wiring.deadline_seconds,
        "settle": wiring.settle_seconds,
        "person_settle": wiring.person_settle_seconds,
        "identity_retention": None if math.isinf(identity) else identity,
        "repeat_safe": wiring.repeat_safe,
        "resend_safe": wiring.resend_safe,
        "stores_key_on_execution": wiring.stores_key_on_execution,
        "lands_late": wiring.lands_late,
    }
