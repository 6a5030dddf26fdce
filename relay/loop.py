"""All of a relay together: lanes that come and go, receivers that change, and an end in order."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from outbox.daemon import Crew, Heart, Member, Stopping, cancelled, do_chores
from outbox.errors import ConfigError, DatabaseError, DatabaseUnavailable, SchemaMismatch
from outbox.lease import boottime
from outbox.observe import emit
from outbox.registry import Registry, read_registry
from outbox.store import Store
from relay.breaker import WATCH_SECONDS
from relay.circuit import RIGHT_SECONDS, Change
from relay.doorbell import Doorbell
from relay.lane import Lane
from relay.leases import Leases
from relay.services import OpenReceiver, Services
from relay.shared import Shared

# After a statement without an answer: well within a third of the shortest lease. After one that was refused: later.
_AGAIN_SECONDS: Final = 0.2
_REFUSED_SECONDS: Final = 1.0
CHORES_SECONDS: Final = 5.0
# Who asks for an end at once gets it. So long may the database take to hear of the last answers.
_LAST_WORDS_SECONDS: Final = 3.0


class Relay:
    """One relay process. `lease_store` has a connection of its own: a renewal never waits behind other statements."""

    def __init__(
        self, shared: Shared, lease_store: Store, member: Member, heart: Heart, open_receiver: OpenReceiver
    ) -> None:
        self.services = Services(member.receivers, open_receiver, self._circuit_changed)
        self.leases = Leases(lease_store, member, heart, shared, self)
        self.lanes: dict[Lane, asyncio.Task[None] | None] = {}
        """Every lane with something to do: held ones, and lost ones whose last answers are on their way."""
        self._shared = shared
        self._heart = heart
        self._registry: Registry | None = None
        self._reading = asyncio.Lock()
        self._crew: Crew | None = None
        self._pauses: dict[str, str] = {}

    def pause(self, receiver: str, reason: str) -> None:
        """Ask that nothing more begins for a receiver. It is written when leases are seen to next."""
        self._pauses[receiver] = reason

    # ------------------------------------------------------------------------------------------------------------ runs

    async def run(self, stopping: Stopping, doorbell: Doorbell | None = None) -> bool:
        """Work until asked to stop; True if everything that was heard is recorded. Raises as `read_registry`."""
        await self.read_registry()
        work: list[Callable[[], Awaitable[float]]] = [
            self._keep,
            self._follow_registry,
            self._do_chores,
            self._watch_circuits,
        ]
        crew = self._crew = Crew()
        for each in work:
            crew.start(_repeat(each))
        if doorbell is not None:
            crew.start(doorbell.run())
        clean = await crew.during(self._until_stopped(stopping))
        await self._heart.leave()
        await self.services.aclose()
        return clean

    async def run_once(self) -> int:
        """One round without background work: renew, share, begin, wait for answers, record. Returns how many began."""
        if self._registry is None:
            await self.read_registry()
        await self._keep()
        begun = 0
        for lane in list(self.lanes):
            begun += await lane.claims.step()
            await lane.settle()
            if lane.closing:
                await self._leave(lane)
        await self._write_pauses()
        return begun

    async def read_registry(self) -> None:
        """Take in what has been applied. What was read last is taken in last."""
        async with self._reading:
            await self._read_registry()

    async def _read_registry(self) -> None:
        registry = await read_registry(self._shared.store, self._shared.wirings)
        await self.services.close_retired()
        if registry == self._registry:
            return
        if self._registry is not None:
            emit("registry_changed", count=len(registry.tools))
        self._registry = registry
        self.services.update(registry)
        self.leases.services = self.services.by_name
        for lane in self.lanes:
            service = self.services.by_name.get(lane.holding.receiver)
            if service is None:
                lane.close()
            elif service is not lane.service:
                lane.serve(service)
        # Before anything begins: others may know that a receiver is not there.
        await self._watch_circuits()

    # ------------------------------------------------------------------------------------------------------- its parts

    def started(self, lane: Lane) -> None:
        """A lane was taken: let it live."""
        if self.leases.stopping:
            lane.close()
        self.lanes[lane] = None if self._crew is None else self._crew.start(self._live(lane))

    async def _live(self, lane: Lane) -> None:
        await lane.run()
        await self._leave(lane)

    async def _leave(self, lane: Lane) -> None:
        await self.leases.give_back(lane)
        self.lanes.pop(lane, None)

    async def _keep(self) -> float:
        await self.leases.tick()
        await self._write_pauses()
        for service in self.services.by_name.values():
            held = [lane for lane in self.lanes if lane.holding.receiver == service.name]
            self._shared.meters.put("in_flight", sum(len(lane.flight.open) for lane in held), receiver=service.name)
        return self.leases.next_tick_at()

    async def catch_up(self) -> None:
        """Read the registry now. Where that fails, it is read again in its own time."""
        with contextlib.suppress(DatabaseError):
            await self._reread_registry()

    async def _reread_registry(self) -> None:
        try:
            await self.read_registry()
        except (ConfigError, SchemaMismatch) as error:
            # What is in force here stays in force: a mistake in one tool stops nobody else's work.
            emit("registry_refused", reason=error.message)

    async def _follow_registry(self) -> float:
        await self._reread_registry()
        return boottime() + self._shared.settings.registry_poll_seconds

    async def _do_chores(self) -> float:
        await do_chores(self._shared.store, CHORES_SECONDS)
        return boottime() + CHORES_SECONDS

    async def _write_pauses(self) -> None:
        for receiver, reason in list(self._pauses.items()):
            await self._shared.store.value("pause_receiver", receiver=receiver, by="relay", reason=reason)
            del self._pauses[receiver]
            self._shared.meters.count("receivers_paused", receiver=receiver)
            emit("receiver_paused", receiver=receiver, reason=reason)

    async def _watch_circuits(self) -> float:
        """Take in what other relays and people have done to circuits, and keep the right of our own probes."""
        store, breakers = self._shared.store, {one.receiver_id: one.breaker for one in self.services.by_name.values()}
        probing = [receiver_id for receiver_id, breaker in breakers.items() if breaker.circuit.probing]
        if probing:
            await store.dicts("renew_probes", receiver_ids=probing, right_seconds=RIGHT_SECONDS)
        marks, read_at = {receiver_id: breaker.mark() for receiver_id, breaker in breakers.items()}, boottime()
        for row in await store.dicts("circuits", receiver_ids=list(breakers)):
            breakers[row["receiver_id"]].learn(row, marks[row["receiver_id"]], read_at)
        is_open = any(breaker.is_open for breaker in breakers.values())
        return boottime() + (WATCH_SECONDS if is_open else self._shared.settings.heartbeat_seconds)

    def _circuit_changed(self, receiver: str, change: Change, reason: str) -> None:
        meters = self._shared.meters
        meters.put("circuit_open", int(change is not Change.CLOSED), receiver=receiver)
        if change is Change.OPENED:
            meters.count("circuits_opened", receiver=receiver)
            emit("circuit_opened", receiver=receiver, reason=reason)
        elif change is Change.CLOSED:
            emit("circuit_closed", receiver=receiver, reason=reason)
        for lane in self.lanes:
            if lane.holding.receiver == receiver:
                lane.circuit_changed()

    # ---------------------------------------------------------------------------------------------------------- the end

    async def _until_stopped(self, stopping: Stopping) -> bool:
        """When asked: begin nothing more, let attempts end, give lanes back; break off what takes too long."""
        await stopping.requested.wait()
        self.leases.stopping = True
        for lane in list(self.lanes):
            lane.close()
        if not await self._lanes_end(self._shared.settings.grace_seconds, stopping.at_once):
            for lane in list(self.lanes):
                lane.flight.break_off()
            await self._lanes_end(_LAST_WORDS_SECONDS)
        clean = not any(lane.flight.open for lane in self.lanes)
        for lane in list(self.lanes):
            lane.give_up.set()
        return clean

    async def _lanes_end(self, seconds: float, hurry: asyncio.Event | None = None) -> bool:
        """Wait until every lane has ended; False if that takes longer, or somebody is in a hurry."""
        hurrying = asyncio.create_task((hurry or asyncio.Event()).wait())
        try:
            async with asyncio.timeout(seconds):
                while tasks := [task for task in self.lanes.values() if task is not None]:
                    await asyncio.wait([*tasks, hurrying], return_when=asyncio.FIRST_COMPLETED)
                    if hurrying.done():
                        return False
        except TimeoutError:
            return False
        finally:
            await cancelled(hurrying)
        return True


async def _repeat(work: Callable[[], Awaitable[float]]) -> None:
    """Do it for ever, each time when the last one said. A database that does not answer delays it."""
    while True:
        try:
            until = await work()
        except DatabaseUnavailable:  # the heart reports it, once
            until = boottime() + _AGAIN_SECONDS
        except DatabaseError as error:
            emit("statement_failed", reason=error.message)
            until = boottime() + _REFUSED_SECONDS
        await asyncio.sleep(max(0.0, until - boottime()))
