"""What all lanes of one relay share."""

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from outbox.daemon import ClockWatch
from outbox.lease import DeadMan
from outbox.observe import Meters
from outbox.registry import Wirings
from outbox.settings import RelaySettings
from outbox.store import Store


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


class Hub(Protocol):
    """The relay, as its lanes see it."""

    def room(self) -> int:
        """How many more attempts may begin before too many answers would be in memory only."""

    def pause(self, receiver: str, reason: str) -> None:
        """Begin nothing more for a receiver, for this reason, until a person lets it go on."""
