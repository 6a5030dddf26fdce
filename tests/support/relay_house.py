"""Relays and reconcilers as real processes, a receiver with a ledger, and the database between them."""

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outbox.crashpoints import ENVIRONMENT_VARIABLE
from outbox.demo.programs import Program
from outbox.settings import Configuration
from tests.support.doubts import register
from tests.support.eventually import eventually
from tests.support.postgres import Database
from tests.support.stage import Stage
from tests.support.warehouse import READ_TOKEN, TOOLS, WRITE_TOKEN, Warehouse, warehouse

STOCK, PAYMENT, MAIL = "stock.set", "payment.make", "mail.send"
LEASE_SECONDS = 2.0
START_SECONDS_MAX = 45.0

# A third class of contract: neither a key nor a look, so a person decides.
TOOLS_TOO: Mapping[str, Mapping[str, Any]] = {
    MAIL: {
        "request": {"method": "POST", "path": "/mail"},
        "contract": {"in_flight_bound": "2s", "answers": [{"status": [202], "means": "receipt"}]},
    }
}

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "relay": {"poll": "50ms", "look_behind": "100ms", "heartbeat": "200ms", "registry_poll": "200ms", "grace": "5s"},
    "reconciler": {"claim": "1s", "poll": "20ms", "belt": "500ms", "heartbeat": "200ms", "grace": "500ms"},
}


class House:
    """One database, one receiver, and the daemons that a test starts."""

    def __init__(self, stage: Stage, receiver: Warehouse, folder: Path) -> None:
        self.stage = stage
        self.receiver = receiver
        self._folder = folder
        self._started = 0

    def start(self, kind: str = "relay", crash: str | None = None, dsn: str | None = None, **settings: Any) -> Program:
        """Start a daemon under its own role; `crash` is an OUTBOX_CRASHPOINT."""
        self._started += 1
        role = dsn or self.stage.database.dsn_for("relay" if kind == "relay" else "reconciler")
        given = {"dsn": role, "log": "json", **SETTINGS[kind], **settings}
        path = self._folder / f"{kind}-{self._started}.toml"
        path.write_text("\n".join([f"[{kind}]", *(f"{name} = {json.dumps(value)}" for name, value in given.items())]))
        programs = self.receiver.programs
        tokens = {"WAREHOUSE_READ_TOKEN": READ_TOKEN} | ({"WAREHOUSE_TOKEN": WRITE_TOKEN} if kind == "relay" else {})
        programs.environment = tokens | ({ENVIRONMENT_VARIABLE: crash} if crash else {})
        return programs.start(f"{kind}-{self._started}", kind, ["--config", str(path)])

    def start_and_wait(self, kind: str = "relay", **settings: Any) -> Program:
        """Start a daemon and wait until it says so."""
        program = self.start(kind, **settings)
        eventually(lambda: reported(program, "daemon_started"), START_SECONDS_MAX, claim=f"{kind} runs")
        return program

    def put(self, tool: str = STOCK, number: int = 1, **columns: Any) -> list[int]:
        """Write intents, each with a resource of its own."""
        first = self.stage.value("select count(*) from outbox.intent")
        return [self.stage.put(f"op-{first + n}", tool, resource=f"item-{first + n}", **columns) for n in range(number)]

    def ended(self) -> int:
        """How many operations have ended."""
        return int(self.stage.value("select count(*) from outbox.outcome"))

    def counter(self, name: str) -> int:
        """What all daemons together have counted, as their heartbeats said."""
        return int(self.stage.value("select coalesce(sum((counters ->> %s)::int), 0) from outbox.member", name))

    def held_lanes(self) -> int:
        """Lanes that somebody holds."""
        return int(self.stage.value("select count(*) from outbox.lane where expires_at > outbox.now()"))

    def judge(self, effects: int | None = None) -> None:
        """Ask the receiver: nothing happened twice, and so much happened at all."""
        with self.receiver.ledger() as ledger:
            assert ledger.duplicates() == {}
            if effects is not None:
                assert ledger.count_effects() == effects


@contextmanager
def house(database: Database, folder: Path, stage: Stage, **receiver: Any) -> Iterator[House]:
    """Start the receiver and register it; everything ends with the block."""
    with warehouse(folder) as started:
        yield House(stage, started, folder)
        # Processes first: their connections would keep the database.
        started.programs.stop()


async def furnished(house: House, lanes: int = 1, **changes: Any) -> None:
    """Apply the receiver with all three classes of tools."""
    config = house.receiver.configuration()
    config["receivers"]["warehouse"] |= {
        "lanes": lanes,
        "concurrency": 8 * lanes,
        "lease": f"{LEASE_SECONDS:g}s",
        **changes,
    }
    tools = {**TOOLS, **TOOLS_TOO}
    config["tools"] = {name: {"receiver": "warehouse", "deadline": "1s", **tool} for name, tool in tools.items()}
    await register(house.stage.database, Configuration.model_validate(config))


def events(program: Program) -> list[dict[str, Any]]:
    """What a daemon has reported."""
    return [json.loads(line) for line in program.log.read_text().splitlines() if line.startswith("{")]


def reported(program: Program, event: str) -> list[dict[str, Any]]:
    """What it has reported under this name. It must not have died before."""
    found = [one for one in events(program) if one["event"] == event]
    assert found or program.running, f"it ended with {program.process.returncode}:\n{program.tail()}"
    return found


def exit_code(program: Program) -> int:
    """Its exit code, once it has ended; the negative number of a signal that killed it."""
    eventually(lambda: not program.running, START_SECONDS_MAX, claim="it ends")
    return program.process.wait()


def terminate(program: Program) -> int:
    """Ask it to stop, and return its exit code."""
    program.signal(signal.SIGTERM)
    return exit_code(program)
