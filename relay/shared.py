"""What all lanes of one relay share."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from outbox.daemon import ClockWatch
from outbox.lease import DeadMan
from outbox.observe import Meters
from outbox.registry import Wirings
from outbox.settings import RelaySettings
from outbox.store import Store
from relay.slots import Slots


@dataclass(slots=True)
class Memory:
    """How many attempts were begun and are not recorded: their answers are, or will be, in memory only."""

    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The database, the settings, and what this process knows as a whole.

    `channel`: where writers ring for it (None: nobody does, it polls).
    """

    store: Store
    instance_id: UUID
    settings: RelaySettings
    meters: Meters
    clock: ClockWatch
    wirings: Wirings
    dead_man: DeadMan
    channel: str | None = None
    memory: Memory = field(default_factory=Memory)
    slots: defaultdict[int, Slots] = field(default_factory=lambda: defaultdict(Slots))
    """Of each receiver, by its id."""

    @property
    def room(self) -> int:
        """How many more may begin before too many answers would be in memory only."""
        return self.settings.answers_max - self.memory.attempts


class Hub(Protocol):
    """The relay, as its lanes see it."""

    def pause(self, receiver: str, reason: str) -> None:
        """Begin nothing more for a receiver, for this reason, until a person lets it go on."""

    async def catch_up(self) -> None:
        """Read the registry now: a lane has begun something that was applied after it was read."""
