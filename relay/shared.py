"""What all lanes of one relay share."""

from collections.abc import Callable
from dataclasses import dataclass
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

    `channel`: where writers ring for it (None: nobody does, it polls). `room`: how many attempts may begin before the
    answers that are in memory only would be too many. `pause`: begin nothing more for a receiver, for this reason.
    """

    store: Store
    instance_id: UUID
    settings: RelaySettings
    meters: Meters
    clock: ClockWatch
    wirings: Wirings
    dead_man: DeadMan
    room: Callable[[], int]
    pause: Callable[[str, str], None]
    channel: str | None = None
