"""Relays on a real database, one round at a time or running, with receivers whose answers a test writes itself."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from outbox.daemon import ClockWatch, Heart, Life, Member, Stopping, opened
from outbox.errors import DatabaseUnavailable
from outbox.lease import DeadMan
from outbox.observe import Meters
from outbox.outcome import Outcome
from outbox.receivers import Attempt, Receiver
from outbox.receivers.scripted import ScriptedReceiver
from outbox.registry import Wirings
from outbox.settings import Configuration, DatabaseSettings, RelaySettings
from outbox.store import Store
from relay.doorbell import Doorbell, channel_of
from relay.lane import Lane
from relay.loop import Relay
from relay.metrics import METRICS
from relay.shared import Shared
from tests.support.doubts import CONTRACTS, RECEIVER
from tests.support.postgres import Database
from tests.support.stage import Stage

KEYED, BLIND, LOOKED_UP = "thing.keyed", "thing.blind", "thing.looked_up"


def registry(
    *tools: str, contract: dict[str, Any] | None = None, tool: dict[str, Any] | None = None, **receiver: Any
) -> Configuration:
    """One receiver with some of the tools of `tests.support.doubts`; `tool` and `contract` change all of them."""
    return Configuration.model_validate(
        {
            "receivers": {RECEIVER: {"transport": "scripted", "lanes": 1, **receiver}},
            "tools": {
                name: {
                    "receiver": RECEIVER,
                    "deadline": "5s",
                    "contract": {**CONTRACTS[name], **(contract or {})},
                    **(tool or {}),
                }
                for name in tools or (KEYED, BLIND, LOOKED_UP)
            },
        }
    )


class CountingStore(Store):
    """A store that remembers which statements it ran, and loses answers where a test says so."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.ran: list[str] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.loses: Counter[str] = Counter()
        """So many answers of a statement are lost: it is committed, and nobody hears of it."""
        self.when_lost: Callable[[], object] = bool
        """What happens in the database while nobody hears of that commit."""
        self.refuses: Counter[str] = Counter()
        """So many times a statement does not even reach the database."""

    async def fetch(self, statement: str, rows: Any, /, **parameters: Any) -> list[Any]:
        self.ran.append(statement)
        self.asked.append((statement, parameters))
        if self.refuses[statement]:
            self.refuses[statement] -= 1
            raise DatabaseUnavailable("no connection")
        found = await super().fetch(statement, rows, **parameters)
        if self.loses[statement]:
            self.loses[statement] -= 1
            self.when_lost()
            raise DatabaseUnavailable("the connection broke after the commit")
        return found


@dataclass(slots=True)
class Running:
    """A relay with what a test looks at."""

    relay: Relay
    store: CountingStore
    member: Member
    meters: Meters
    stopping: Stopping
    doorbell: Doorbell | None
    crashed: bool = False
    """Keep its lanes at the end, as a process does that dies."""

    async def rounds(self, number: int = 1) -> int:
        """Do some rounds; returns how many attempts began."""
        return sum([await self.relay.run_once() for _ in range(number)])

    async def take_lanes(self) -> None:
        """Read the registry and take our share of lanes; nothing begins."""
        await self.relay.read_registry()
        await self.relay.leases.tick()

    @property
    def lane(self) -> Lane:
        """The only lane."""
        (lane,) = self.relay.lanes
        return lane

    def counted(self, name: str) -> int:
        return self.meters.totals()[name]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[bool]]:
        """Let it run, and stop it in order."""
        task = asyncio.create_task(self.relay.run(self.stopping, self.doorbell))
        try:
            yield task
        finally:
            self.stopping.ask("test")
            async with asyncio.timeout(40):
                await task


@asynccontextmanager
async def relay_on(
    database: Database,
    receiver: Receiver | None = None,
    *,
    only: tuple[str, ...] | None = None,
    bell: bool = False,
    pooler: bool = False,
    **settings: Any,
) -> AsyncIterator[Running]:
    """A relay under its own role. `receiver` stands for every receiver; without one, each attempt gets a receipt."""
    dsn, member, life, meters, clock = (
        database.dsn_for("relay"),
        Member("relay", only),
        Life(),
        Meters(*METRICS),
        ClockWatch(),
    )
    stands = receiver or ScriptedReceiver()
    async with contextlib.AsyncExitStack() as stack:
        lease_store = await stack.enter_async_context(
            opened(dsn, member, life, DatabaseSettings(pooler=pooler), groups=("relay",), connections_max=1)
        )
        store = CountingStore(dsn, "daemon", "registry", "relay", name="relay test", connected=life.look, pooler=pooler)
        await stack.enter_async_context(store)
        assert life.instance_id is not None
        shared = Shared(
            store=store,
            instance_id=life.instance_id,
            settings=RelaySettings(**settings),
            meters=meters,
            clock=clock,
            wirings=Wirings(store),
            dead_man=DeadMan(set_timer=lambda _: None),
            channel=channel_of(member.member_id) if bell else None,
        )
        heart = Heart(lease_store, member, meters, clock, life if pooler else None)
        relay = Relay(shared, lease_store, member, heart, lambda *_: stands)
        doorbell = Doorbell(store, shared.channel, dsn, lambda: relay.lanes, meters) if shared.channel else None
        running = Running(relay, store, member, meters, Stopping(), doorbell)
        yield running
        if not running.crashed:
            for lane in list(relay.lanes):
                lane.close()
                await relay.leases.give_back(lane)
            await relay._heart.leave()


class Held:
    """A receiver that answers when it is told to; it lets every attempt reach its first byte."""

    def __init__(self, answer: Outcome, *, asks_gate: bool = True) -> None:
        self.begun: asyncio.Queue[Attempt] = asyncio.Queue()
        self.attempts: list[Attempt] = []
        self.let_go = asyncio.Event()
        self._answer = answer
        self._asks_gate = asks_gate

    async def deliver(self, attempt: Attempt) -> Outcome:
        if self._asks_gate:
            attempt.gate.sending()
            attempt.gate.check()
            attempt.gate.sent()
        self.attempts.append(attempt)
        self.begun.put_nowait(attempt)
        await self.let_go.wait()
        return self._answer

    async def lookup(self, question: Any) -> Any:
        raise AssertionError("a relay never looks")

    async def aclose(self) -> None:
        """Nothing is open."""


def seqs(attempts: Iterable[Attempt]) -> list[int]:
    return [attempt.seq for attempt in attempts]


def put_many(stage: Stage, number: int, tool: str = KEYED) -> None:
    """Write so many intents in one transaction."""
    stage.rows(
        """
        insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest)
        select 'acme', 'op-' || n, %s, 'svc', '{}', outbox.intent_digest('acme', 'op-' || n, %s, null, null, '{}')
        from generate_series(1, %s) n
        """,
        tool,
        tool,
        number,
    )
