"""What the row of a lane tells writers: where to ring, and whether all of them or only who is not of the crowd."""

from typing import Protocol

from outbox.lease import boottime
from relay.crowd import Crowd
from relay.holding import Holding
from relay.rhythm import Rhythm
from relay.service import Service
from relay.shared import Shared


class RungHost(Protocol):
    """The lane that the bell is for."""

    @property
    def service(self) -> Service:
        """Its receiver."""

    @property
    def closing(self) -> bool:
        """Nothing begins here any more."""

    def lose(self, why: str) -> None:
        """The lease is lost."""


class Bell:
    """The bell of one lane. Without a channel there is none, and polling does."""

    def __init__(self, holding: Holding, shared: Shared, rhythm: Rhythm, crowd: Crowd, host: RungHost) -> None:
        self._holding = holding
        self._shared = shared
        self._rhythm = rhythm
        self._crowd = crowd
        self._host = host
        self._hung = False
        self._told: frozenset[str] = frozenset()
        """The crowd, as the row says it."""

    async def hang(self) -> None:
        """Say where to ring, once."""
        if self._shared.channel is not None and not self._hung:
            self._hung = await self._set(idle=False)

    async def mind(self, room: int) -> None:
        """Say what has changed; `room`: how many could begin now."""
        if self._shared.channel is None or not self._host.service.doorbell or self._host.closing:
            return
        rhythm = self._rhythm
        if rhythm.should_be_busy(boottime(), room=room):
            if await self._set(idle=False):
                rhythm.went_busy()
        elif self._crowd.tenants != self._told:
            await self._set(idle=rhythm.idle)
        elif rhythm.should_idle(boottime()) and await self._set(idle=True):
            horizon = await self._shared.store.value("horizon")
            rhythm.went_idle(horizon, boottime())

    async def _set(self, *, idle: bool) -> bool:
        crowd, channel = self._crowd.tenants, self._shared.channel
        given = {"idle": idle, "bell": channel, "crowd": sorted(crowd)}
        rows = await self._shared.store.dicts("set_bell", **self._holding.parameters, **given)
        self._told = crowd
        if not rows:
            self._host.lose("the lane has another fence")
        return bool(rows)
