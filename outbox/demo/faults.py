"""What goes wrong at the demo's receiver, and how often: by seeded chance, and on request, once.

Chance is drawn per (seed, tool, operation, n-th request of it), so a run with the same seed and the same operations has
the same faults, in whatever order its requests arrive.
"""

import hashlib
from collections import defaultdict
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Fault(StrEnum):
    """What can be done to one request."""

    LOSE_REQUEST = "lose_request"
    """The connection is closed; nothing happened."""
    LOSE_ANSWER = "lose_answer"
    """The effect happens, then the connection is closed without an answer."""
    LATE_EFFECT = "late_effect"
    """The connection is closed; the effect happens later."""
    SLOW = "slow"
    """The effect happens after a while, and is answered then, whether or not anybody still listens."""
    HANG = "hang"
    """The effect happens; the connection stays open and no answer ever comes."""
    FAIL_BEFORE = "fail_before"
    """500, and nothing happened."""
    FAIL_AFTER = "fail_after"
    """500, and the effect happened."""
    REFUSE = "refuse"
    """422: the operation is at fault, nothing happened."""
    THROTTLE = "throttle"
    """429 with Retry-After, nothing happened."""
    IN_FLIGHT = "in_flight"
    """409: "the first request with this key still runs", though none does."""
    STALE_FENCE = "stale_fence"
    """409: a newer fence has been seen, though none has."""


Rate = Annotated[float, Field(ge=0, le=1)]


class FaultPlan(BaseModel):
    """What `--faults` takes, as JSON. By default nothing goes wrong and keys are kept for ever."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = 0
    rates: dict[str, dict[Fault, Rate]] = Field(default_factory=dict)
    """Per tool (`stock`, `payments`, `mail`, ...), or `*` for those that are not named."""
    faulty_requests: int = Field(default=3, ge=0)
    """Chance stays away from the later requests of one operation, so that a run ends."""
    slow_seconds: float = Field(default=0.5, ge=0)
    late_seconds: float = Field(default=1.0, ge=0)
    retry_after_seconds: int = Field(default=1, ge=0)
    key_retention_seconds: float | None = Field(default=None, ge=0)
    """A key that is older executes again. None: kept for ever."""
    lag_seconds: float = Field(default=0.0, ge=0)
    """How long an effect stays invisible in lists."""
    check_fences: bool = False
    """Refuse a request whose fence is below one that was seen of its lane."""
    write_tokens: frozenset[str] = frozenset()
    """Bearer tokens that may cause effects, and read. None given: nobody is asked."""
    read_tokens: frozenset[str] = frozenset()
    """Bearer tokens that may read and nothing else."""


class OneShot(BaseModel):
    """What `POST /_control` takes: a fault for the next request, or the next `count` requests, that it fits."""

    model_config = ConfigDict(extra="forbid")

    fault: Fault
    tool: str | None = None
    resource: str | None = None
    count: int = Field(default=1, ge=1)
    seconds: float | None = Field(default=None, ge=0)
    """For slow, late_effect and throttle; the plan's figure if it is not given."""


class Faults:
    """Decides what is done to each request."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        self.one_shots: list[OneShot] = []
        self._seen: defaultdict[tuple[str, str], int] = defaultdict(int)

    def choose(self, tool: str, operation: str, resource: str) -> tuple[Fault | None, float | None]:
        """The fault for this request, and its seconds if it was asked for with some."""
        self._seen[tool, operation] += 1
        for shot in self.one_shots:
            if shot.tool in (None, tool) and shot.resource in (None, resource):
                shot.count -= 1
                if shot.count == 0:
                    self.one_shots.remove(shot)
                return shot.fault, shot.seconds
        return self._by_chance(tool, operation), None

    def _by_chance(self, tool: str, operation: str) -> Fault | None:
        number = self._seen[tool, operation]
        if number > self.plan.faulty_requests:
            return None
        drawn = _uniform(f"{self.plan.seed}\0{tool}\0{operation}\0{number}")
        for fault, rate in self.plan.rates.get(tool, self.plan.rates.get("*", {})).items():
            if drawn < rate:
                return fault
            drawn -= rate
        return None


def _uniform(text: str) -> float:
    """A number in [0, 1) that depends on the text and on nothing else."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64
