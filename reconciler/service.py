"""One reconciler: its parts put together, and its life."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from outbox.contract import ReceiverConfig
from outbox.daemon import ClockWatch, Crew, Heart, Life, Member, Stopping, cancelled, opened, until_answered
from outbox.errors import ConfigError, DatabaseUnavailable, Problem, SchemaMismatch
from outbox.observe import Meters, emit
from outbox.receivers import Receiver, open_receiver
from outbox.registry import ReceiverEntry, Registry, Wirings, read_registry
from outbox.settings import ReconcilerSettings, Settings
from outbox.settings.problems import did_you_mean
from outbox.store import Store
from reconciler.act import Done
from reconciler.chores import Chores
from reconciler.group import Groups
from reconciler.lookup import OpenForReading, Readers, receivers_that_look
from reconciler.metrics import METRICS
from reconciler.settle import Settler
from reconciler.sweep import Bounds, Sweep

STATEMENTS = "reconcile"
# Claiming is one statement; a database that takes longer is not waited for.
_LAST_CLAIM_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Counts:
    """What one pass did: claims by what came of them, and chores by name."""

    done: Mapping[Done, int] = field(default_factory=dict)
    chores: Mapping[str, int] = field(default_factory=dict)


def open_for_reading(name: str, config: ReceiverConfig) -> Receiver:
    """Open a receiver so that it resolves no credential but the one that can only read."""
    return open_receiver(name, config, reads_only=True)


class Reconciler:
    """Claims, looks, decides and writes; and does the chores. `start` first, `aclose` last."""

    def __init__(
        self,
        store: Store,
        life: Life,
        settings: ReconcilerSettings,
        *,
        member: Member | None = None,
        meters: Meters | None = None,
        open_receivers: OpenForReading = open_for_reading,
    ) -> None:
        if life.instance_id is None:
            raise ValueError("the store has not been opened: nobody has looked at its database yet")
        self._store = store
        self._settings = settings
        self._member = member or Member("reconciler")
        self.meters = meters or Meters(*METRICS)
        self._heart = Heart(store, self._member, self.meters, ClockWatch())
        self._readers = Readers(open_receivers, self.meters)
        self._wirings = Wirings(store)
        self._registry: Registry | None = None
        settler = Settler(
            Groups(store, settings.batch_max, settings.connections_max // 2),
            self._readers,
            self._known,
            self.meters,
            instance_id=life.instance_id,
            # A whole look, cut off and written down, fits into a claim.
            look_seconds_max=settings.claim_seconds / 2,
        )
        bounds = Bounds(settings.concurrency, settings.batch_max, settings.claim_seconds)
        self.sweep = Sweep(store, settler, self._served, self.meters, bounds)
        self.chores = Chores(store, self._known, self.meters, settings.belt_seconds)

    async def start(self) -> None:
        """
        Read the registry and open the receivers.

        Raises ConfigError with everything for which this process must not start: a receiver that could only be asked
        with a credential that can cause effects, one that cannot be opened, a contract that contradicts itself.
        """
        problems = await self._refresh()
        problems += [
            Problem(
                f"receivers.{name}",
                f"there is no such receiver{did_you_mean(name, self._known().receivers)}",
                "not_found",
            )
            for name in self._member.receivers or ()
            if name not in self._known().receivers
        ]
        if problems:
            raise ConfigError(problems)

    async def run_once(self) -> Counts:
        """One pass: the chores that are due, then what is due of the doubts, to its end."""
        chores = await self.chores.run_once()
        return Counts(await self.sweep.run_once(), chores)

    async def run(self, stopping: Stopping) -> None:
        """
        Work until asked to stop; then end what runs, or give it back.

        Goes on when the database was away. Raises DatabaseError for what will not pass by itself.
        """
        stop, settings = stopping.requested, self._settings
        crew = Crew()
        sweeping = crew.start(_persistently(stop, lambda: self.sweep.run(stop, settings.poll_seconds)))
        crew.start(_every(stop, settings.belt_seconds / 2, self.chores.run_once))
        crew.start(_every(stop, settings.registry_poll_seconds, self._refresh_or_keep))
        crew.start(_every(stop, settings.heartbeat_seconds, self._heart.beat))
        try:
            # The first that fails ends the process: whoever watches over it starts another.
            await crew.during(_until_stopped(stopping, sweeping))
        finally:
            stop.set()
            with contextlib.suppress(DatabaseUnavailable):
                await self.sweep.finish(settings.grace_seconds, stopping.at_once)
            await self._heart.leave()

    async def aclose(self) -> None:
        """Close the receivers."""
        await self._readers.aclose()

    def _known(self) -> Registry:
        if self._registry is None:
            raise RuntimeError("start() was not called")
        return self._registry

    def _served(self) -> dict[int, ReceiverEntry]:
        """The receivers that are asked, by id."""
        only = self._member.receivers
        entries = self._known().receivers.values()
        return {entry.receiver_id: entry for entry in entries if only is None or entry.name in only}

    async def _refresh(self) -> list[Problem]:
        registry = await read_registry(self._store, self._wirings)
        if self._registry is not None and registry != self._registry:
            emit("registry_changed", count=len(registry.tools))
        self._registry = registry
        configs = {entry.name: entry.config for entry in self._served().values()}
        looking = receivers_that_look({name: tool.wiring for name, tool in registry.tools.items()})
        return await self._readers.configure(configs, looking)

    async def _refresh_or_keep(self) -> None:
        """While running, what cannot be taken over is refused: looks at such a receiver fail, and prove nothing."""
        try:
            for problem in await self._refresh():
                emit("registry_refused", reason=str(problem))
        except (ConfigError, SchemaMismatch) as error:
            emit("registry_refused", reason=error.message)


async def _until_stopped(stopping: Stopping, sweeping: "asyncio.Task[None]") -> None:
    """Wait to be asked; and for a claim that is on its way, which would stand until it has run out."""
    await stopping.requested.wait()
    hurrying = asyncio.create_task(stopping.at_once.wait())
    await asyncio.wait({sweeping, hurrying}, timeout=_LAST_CLAIM_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    await cancelled(hurrying)


async def _persistently(stop: asyncio.Event, work: Callable[[], Awaitable[object]]) -> None:
    """Do it; again where the database was away; not again once asked to stop."""
    try:
        await until_answered(work, stop)
    except DatabaseUnavailable:
        if not stop.is_set():
            raise


async def _every(stop: asyncio.Event, seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    """Do it at once, and again after each period, until asked to stop."""
    while not stop.is_set():
        await _persistently(stop, work)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stop.wait()


@contextlib.asynccontextmanager
async def reconciling(settings: Settings, receivers: Sequence[str] = ()) -> AsyncIterator[Reconciler]:
    """
    A reconciler that has started; it asks these receivers only, or all.

    Raises what `daemon.opened` and `Reconciler.start` raise.
    """
    life, member, own = Life(), Member("reconciler", tuple(receivers) or None), settings.reconciler
    async with opened(
        settings.reconciler_dsn,
        member,
        life,
        settings.database,
        groups=[STATEMENTS],
        connections_max=own.connections_max,
        address=settings.address("reconciler"),
    ) as store:
        reconciler = Reconciler(store, life, own, member=member)
        try:
            await reconciler.start()
            yield reconciler
        finally:
            await reconciler.aclose()
