"""What the demo breaks: one relay is killed, one is stopped past its lease; both with requests in flight."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from outbox.demo.programs import Program
from outbox.store import Store

# A relay that has nothing in flight is let go, and looked at again this much later.
LOOK_AGAIN_SECONDS = 0.05
TAKEOVER_SECONDS_MAX = 30.0


@dataclass
class Breakage:
    """What was really done: a fault that did not land has shown nothing."""

    kills: int = 0
    pauses: int = 0
    killed_in_flight: int = 0
    paused_in_flight: int = 0


async def kill_in_flight(store: Store, relay: Program, done: Breakage) -> None:
    """SIGKILL a relay while attempts of its own run."""
    await _stop_in_flight(store, relay)
    relay.signal(signal.SIGKILL)
    relay.process.wait()
    # Its rows say `executing` until somebody takes its lanes.
    done.killed_in_flight = await store.value("in_flight_of", pid=relay.pid) or 0
    done.kills += 1


async def pause_in_flight(store: Store, relay: Program, done: Breakage) -> None:
    """SIGSTOP a relay while attempts of its own run, until others have taken all its lanes; then SIGCONT."""
    done.paused_in_flight = await _stop_in_flight(store, relay)
    lanes = await store.dicts("lanes_of", pid=relay.pid)
    columns = {f"{name}s": [lane[name] for lane in lanes] for name in ("receiver_id", "lane", "fence")}
    try:
        async with asyncio.timeout(TAKEOVER_SECONDS_MAX):
            await until(lambda: store.value("lanes_passed_on", **columns))
        done.pauses += 1
    finally:
        relay.signal(signal.SIGCONT)


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Wait until something in the database is true; nothing tells us when."""
    while not await holds():  # noqa: ASYNC110
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def _stop_in_flight(store: Store, relay: Program) -> int:
    """Stop a relay with SIGSTOP at a moment when attempts of its own run; return how many."""
    while True:
        relay.signal(signal.SIGSTOP)
        in_flight = await store.value("in_flight_of", pid=relay.pid)
        if in_flight:
            return int(in_flight)
        relay.signal(signal.SIGCONT)
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
