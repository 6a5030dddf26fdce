"""Wirings for tests of the core: one short call per class of contract, made from what a user would write."""

import functools
from typing import Any

from outbox.contract import ReceiverConfig, ToolConfig, Wiring

SENT_KEY = "8e03978e-40d5-53dd-8c93-6894a57f9324"

KEY = {"in": "header", "name": "Idempotency-Key"}
# deadline 5 s + pause 2 s + bound 10 s: an attempt has landed 17 s after it began; margin 24 s, reach 10 s.
BOUND = {"in_flight_bound": "10s"}
STRONG = {"by": "reference", "consistency": "strong", "absence_is_proof": True}
EVENTUAL = {"by": "reference", "consistency": "eventual", "lag": "8s", "absence_is_proof": True}
HEARSAY = {"by": "reference"}
TOMBSTONE = {"in": "column", "raised_by_lookup": True}

# The classes of contract of which it is known what can be promised.
CLASSES: dict[str, dict[str, Any]] = {
    "key for ever": {"key": KEY, "key_retention": "forever"},
    "key with a window": {"key": KEY, "key_retention": "10m", **BOUND},
    "key, no bound": {"key": KEY, "key_retention": "1h"},
    "key and strong look": {"key": KEY, "key_retention": "10m", "lookup": STRONG, **BOUND},
    "key and strong look, no bound": {"key": KEY, "key_retention": "1h", "lookup": STRONG},
    "strong look": {"lookup": STRONG, **BOUND},
    "strong look, no bound": {"lookup": STRONG},
    "eventual look": {"lookup": EVENTUAL, **BOUND},
    "look that proves nothing": {"lookup": HEARSAY, **BOUND},
    "nothing": {},
    "nothing but a bound": {**BOUND},
    "later, pending shown": {"acceptance": "async", "lookup": {**STRONG, "sees_pending": True}, **BOUND},
    "later, blind": {"acceptance": "async", "lookup": STRONG, **BOUND},
    "later, key": {"acceptance": "async", "key": KEY, "key_retention": "10m", "lookup": STRONG, **BOUND},
    "later, key, pending shown": {
        "acceptance": "async",
        "key": KEY,
        "key_retention": "10m",
        "lookup": {**STRONG, "sees_pending": True},
        **BOUND,
    },
    "later, over a path that repeats": {
        "acceptance": "async",
        "lookup": {**STRONG, "sees_pending": True},
        "replays": True,
        **BOUND,
    },
    "version": {"precondition": {"header": "If-Match"}, **BOUND},
    "version, repeat-safe": {"precondition": {"header": "If-Match"}, "repeat_safe": True, **BOUND},
    "repeat-safe": {"repeat_safe": True, **BOUND},
    "repeat-safe and look": {"repeat_safe": True, "lookup": STRONG, **BOUND},
    "key over a path that repeats": {"key": KEY, "key_retention": "10m", "replays": True, **BOUND},
    "look over a path that repeats": {"lookup": STRONG, "replays": True, **BOUND},
    "key checked first": {"key": KEY, "key_retention": "10m", "key_checked_first": True, **BOUND},
    "guard": {"key": KEY, "duplicate_guard": "resource", **BOUND},
    "fence raised": {"fencing": {"raised_by_lookup": True}, "lookup": STRONG},
    "tombstone left": {"fencing": TOMBSTONE, "lookup": STRONG},
    "tombstone left, key for ever": {
        "fencing": TOMBSTONE,
        "lookup": STRONG,
        "key": {"in": "column"},
        "key_retention": "forever",
    },
    "tombstone left, key with a window": {
        "fencing": TOMBSTONE,
        "lookup": STRONG,
        "key": {"in": "column"},
        "key_retention": "10m",
        **BOUND,
    },
}


def receiver(**changes: Any) -> ReceiverConfig:
    given = {"transport": "scripted", "lease": "20s", "pause_bound": "2s", **changes}
    return ReceiverConfig.model_validate(given)


def tool(contract: dict[str, Any] | None = None, **changes: Any) -> ToolConfig:
    given = {"receiver": "warehouse", "deadline": "5s", "contract": contract, **changes}
    return ToolConfig.model_validate(given)


def wiring(
    contract: dict[str, Any] | None = None, *, lease: str = "20s", pause_bound: str = "2s", **changes: Any
) -> Wiring:
    """A tool with this contract; `changes` are the tool's own."""
    return Wiring.of("stock.set", tool(contract, **changes), receiver(lease=lease, pause_bound=pause_bound))


@functools.cache
def _of_class(name: str) -> Wiring:
    return wiring(CLASSES[name])


def of_class(name: str, **changes: Any) -> Wiring:
    """The wiring of one class; `changes` are the contract's."""
    return wiring({**CLASSES[name], **changes}) if changes else _of_class(name)
