"""Real processes against one another on one database: relays, reconcilers, an operator. The receiver's books judge."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from psycopg.rows import class_row

from outbox import Intent, Outbox
from outbox.crashpoints import ENVIRONMENT_VARIABLE
from outbox.demo.faults import Fault
from outbox.demo.programs import Program, Programs
from outbox.settings import Configuration
from tests.support.doubts import register
from tests.support.eventually import eventually
from tests.support.kinds import KINDS, Kind, configuration, document
from tests.support.merchant import READ_TOKEN, WRITE_TOKEN, Merchant
from tests.support.postgres import Database

if TYPE_CHECKING:
    import psycopg

# How long anything may take that ends by itself: leases, settle times and back-offs are a few seconds in all.
HEAL_SECONDS_MAX: Final = 45.0
# Each look reads the books and the whole database.
LOOK_SECONDS: Final = 0.2
CHECKOUT: Final = Path(__file__).parents[2]

# Prompt rather than thrifty; few connections, since many of these run at once.
_RELAY: Final = {"poll": "1s", "look_behind": "1s", "connections_max": 3, "grace": "5s", "log": "json"}
_RECONCILER: Final = {
    "poll": "200ms",
    "belt": "2s",
    "claim": "2s",
    "heartbeat": "1s",
    "connections_max": 3,
    "grace": "5s",
    "log": "json",
}

_OPERATIONS: Final = """
select i.operation_id, i.tool, o.seq is not null as ended, p.seq is not null as open,
  coalesce(o.state, p.state)::text as state, coalesce(o.cause, p.cause) as cause,
  coalesce(o.attempt, p.attempt) as attempts, coalesce(o.not_sent, p.not_sent) as not_sent,
  o.external_id, o.receipt, o.ended_at, coalesce(d.needs_person, false) as needs_person, d.reason,
  (select count(*) from outbox.contradiction c where c.seq = i.seq) as contradictions,
  (select count(*) from outbox.evidence e where e.seq = i.seq and e.kind = 'receipt') as late_receipts,
  (select count(*) from outbox.evidence e where e.seq = i.seq and e.kind = 'late_answer') as late_answers
from outbox.intent i left join outbox.outcome o on o.seq = i.seq left join outbox.pending p on p.seq = i.seq
left join outbox.doubt d on d.seq = i.seq order by i.seq
"""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, as the outbox has it."""

    operation_id: str
    tool: str
    ended: bool
    open: bool
    state: str
    cause: str | None
    attempts: int
    not_sent: int
    external_id: str | None
    receipt: str | None
    ended_at: datetime | None
    needs_person: bool
    reason: str | None
    contradictions: int
    late_receipts: int
    late_answers: int

    @property
    def rests(self) -> bool:
        """It has ended, or only a person can go on."""
        return self.ended or (self.state == "unknown" and self.needs_person)


class Arena:
    """One database, a merchant, and the programs that a test starts. `receivers`: the kind of each."""

    def __init__(
        self,
        database: Database,
        merchant: Merchant,
        folder: Path,
        receivers: Mapping[str, str] | None = None,
        *,
        prefix: str = "",
        config: Configuration | None = None,
        empty: Database | None = None,
    ) -> None:
        self.database = database
        self._empty = empty
        self.merchant = merchant
        self.receivers = dict(receivers if receivers is not None else {kind: kind for kind in KINDS})
        self.programs = Programs(folder, {"ARENA_WRITE_TOKEN": WRITE_TOKEN, "ARENA_READ_TOKEN": READ_TOKEN})
        self.committed: list[str] = []
        self.sent_again_by_people: set[str] = set()
        self.may_wait: set[str] = set()
        """Operations that a person may be asked about although their contract needs nobody."""
        self._folder = folder
        self.prefix = prefix
        self._ends: dict[str, Operation] = {}
        self._outbox = Outbox(tenant_id="acme", principal_id="shop")
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(register(database, config or configuration(merchant.url, self.receivers)))
        self._read: psycopg.Connection[Any] | None = None

    def close(self) -> None:
        """End everything that was started."""
        self.programs.stop()
        if self._read is not None:
            self._read.close()

    # -------------------------------------------------------------------------------------------------------- programs

    def relay(self, *receivers: str, crash: str | None = None, dsn: str | None = None, **settings: Any) -> Program:
        """Start a relay for these receivers, or for all."""
        arguments = [word for name in receivers for word in ("--receiver", name)]
        config = self.config(relay={"dsn": dsn or self.database.dsn_for("relay"), **_RELAY, **settings})
        return self.start("relay", ["--config", str(config), *arguments], crash)

    def reconciler(self, crash: str | None = None, dsn: str | None = None, **settings: Any) -> Program:
        """Start a reconciler."""
        own = {"dsn": dsn or self.database.dsn_for("reconciler"), **_RECONCILER, **settings}
        return self.start("reconciler", ["--config", str(self.config(reconciler=own))], crash)

    def start(self, module: str, arguments: Sequence[str], crash: str | None = None) -> Program:
        """Start any program of ours, which dies or stops where `crash` says."""
        armed = {ENVIRONMENT_VARIABLE: crash} if crash else {}
        programs = Programs(self._folder, {**self.programs.environment, **armed}, started=self.programs.started)
        return programs.start(f"{module}-{len(self.programs.started) + 1}", module, arguments)

    def config(self, **sections: Mapping[str, Any]) -> Path:
        """Write a configuration file."""
        sections = {"database": {"dsn": self.database.dsn}, **sections}
        lines = []
        for section, values in sections.items():
            lines += [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())]
        path = self._folder / f"outbox-{len(list(self._folder.glob('outbox-*.toml'))) + 1}.toml"
        path.write_text("\n".join(lines))
        return path

    def registry_file(self, receivers: Mapping[str, str]) -> Path:
        """Write a file with these receivers and tools too."""
        path = self.config()
        registry = document(self.merchant.url, receivers)
        lines = [
            f"{part}.{json.dumps(name)} = {_toml(value)}" for part in registry for name, value in registry[part].items()
        ]
        path.write_text("\n".join([*lines, path.read_text()]))
        return path

    @property
    def empty(self) -> Database:
        """A second database, with nothing in it."""
        assert self._empty is not None
        return self._empty

    def operator(self, *arguments: str, crash: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run one command of `outbox` as a process."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OUTBOX_", "PG"))}
        armed = {ENVIRONMENT_VARIABLE: crash} if crash else {}
        command = [sys.executable, "-m", "outbox", "--config", str(self.config()), *arguments]
        environment = {**inherited, **self.programs.environment, **armed}
        return subprocess.run(
            command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False, timeout=45
        )

    def stop(self, *programs: Program) -> None:
        """Ask programs to end, and see that each ends in order."""
        for program in programs:
            # A Python that has not come to its handlers yet just dies of it.
            begun = lambda program=program: not program.running or events(program, "daemon_started")  # noqa: E731
            eventually(begun, HEAL_SECONDS_MAX, claim=f"{program.name} has started")
            program.signal(signal.SIGTERM)
        wrong = {program.name: exit_code(program) for program in programs if exit_code(program)}
        tails = [program.tail() for program in programs if program.name in wrong]
        assert not wrong, f"{wrong} {tails}"

    # ---------------------------------------------------------------------------------------------------------- intents

    def put(
        self, receiver: str, number: int = 1, *, fault: Fault | None = None, seconds: float | None = None
    ) -> list[str]:
        """Commit intents, one transaction for all, and let this happen to the first request of each."""
        kind = KINDS[self.receivers[receiver]]
        first = len(self.committed)
        ids = [f"{self.prefix}{receiver}-{first + one}" for one in range(number)]
        if fault is not None:
            for operation_id in ids:
                self.merchant.break_next(fault, operation_id, seconds=seconds)
        intents = [
            Intent(
                tool=receiver,
                operation_id=operation_id,
                resource=operation_id,
                expected_version=kind.expected_version,
                arguments={"amount": 100 + place},
            )
            for place, operation_id in enumerate(ids)
        ]
        with self.database.connect("writer", autocommit=False) as connection:
            self._outbox.put_many(connection, intents)
            connection.commit()
        self.committed += ids
        return ids

    def put_everywhere(self, number: int = 1, *, fault: Fault | None = None, seconds: float | None = None) -> list[str]:
        """Do the same at every receiver."""
        return [one for name in self.receivers for one in self.put(name, number, fault=fault, seconds=seconds)]

    # ---------------------------------------------------------------------------------------------------------- looking

    @property
    def _reading(self) -> "psycopg.Connection[Any]":
        """The connection that looks; another one after the database was away."""
        if self._read is None or self._read.closed or self._read.broken:
            self._read = self.database.connect()
        return self._read

    def operations(self) -> dict[str, Operation]:
        """Every operation by id."""
        with self._reading.cursor(row_factory=class_row(Operation)) as cursor:
            return {row.operation_id: row for row in cursor.execute(_OPERATIONS)}

    def operation(self, operation_id: str) -> Operation:
        return self.operations()[operation_id]

    def effects(self) -> dict[str, list[str]]:
        """Receipts of everything that happened here, by operation, as the merchant has them."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for effect in self.merchant.effects():
            if (effect.operation or "").startswith(self.prefix):
                found[effect.operation or ""].append(effect.receipt)
        return found

    def requests(self) -> Counter[str]:
        """How many requests arrived for each operation."""
        named = [one.operation or "" for one in self.merchant.writes()]
        return Counter(name for name in named if name.startswith(self.prefix))

    def kind_of(self, operation: Operation) -> Kind:
        return KINDS[self.receivers[operation.tool]]

    def doubts(self) -> list[str]:
        """What must never be seen, at any time: read from the books first, so that the outbox is not behind them."""
        effects = self.effects()
        found = []
        for one in self.operations().values():
            kind, happened = self.kind_of(one), len(effects.get(one.operation_id, ()))
            if happened and one.state not in {"executing", "unknown", "succeeded"}:
                found.append(f"{one.operation_id} is {one.state}, yet it happened")
            if kind.effects_max is not None and happened > kind.effects_max:
                found.append(f"{one.operation_id} happened {happened} times")
            before = self._ends.get(one.operation_id)
            if before is not None and _end(before) != _end(one):
                found.append(f"{one.operation_id} had ended: {_end(before)} became {_end(one)}")
            if one.ended:
                self._ends[one.operation_id] = one
        return found

    # ---------------------------------------------------------------------------------------------------------- judging

    def come_to_rest(
        self, seconds: float = HEAL_SECONDS_MAX, *, watch: bool = True, look_seconds: float = LOOK_SECONDS
    ) -> None:
        """
        Wait until nothing moves by itself any more, and look all the while for what must never be (`watch`).

        Whoever waits for a person although a receipt lies there moves still: a receipt settles.
        """
        moving: list[Operation] = []

        def rests() -> bool:
            assert not watch or self.doubts() == []
            moving[:] = [one for one in self.operations().values() if not one.rests or (one.open and one.late_receipts)]
            return not moving

        try:
            eventually(rests, seconds, poll_seconds=look_seconds)
        except pytest.fail.Exception:
            raise AssertionError(f"{len(moving)} move after {seconds} s: {moving[:5]}") from None

    def heal(self, *already: Program, **rest: Any) -> None:
        """Start fresh daemons beside what still runs, wait until everything rests, and stop all of them in order."""
        fresh = [self.relay(), self.reconciler()]
        self.come_to_rest(**rest)
        self.stop(*fresh, *already)

    def violations(self) -> list[str]:
        """Hold the outbox against the books and against what the writers committed. Nothing is what is wanted."""
        operations, effects, requests = self.operations(), self.effects(), self.requests()
        # Whoever says 429 says that nothing was executed: that is sent again, whatever it is.
        throttled = Counter(one.operation for one in self.merchant.writes() if one.fault == Fault.THROTTLE)
        found = self.doubts()
        if sorted(operations) != sorted(self.committed):
            found.append(f"committed and there differ: {sorted(operations.keys() ^ set(self.committed))}")
        found += [f"{ghost} happened, and nobody asked for it" for ghost in effects.keys() - set(self.committed)]
        for one in operations.values():
            kind, receipts = self.kind_of(one), effects.get(one.operation_id, [])
            waits = kind.waits or one.operation_id in self.may_wait
            found += _of_one(one, kind, receipts, requests[one.operation_id], waits=waits)
            times = requests[one.operation_id] - throttled[one.operation_id]
            if times > 1 and not (kind.resent or one.operation_id in self.sent_again_by_people):
                found.append(f"{one.operation_id} was sent {times} times by itself")
        targets = defaultdict(set)
        for request in self.merchant.writes():
            targets[request.operation].add((request.method, request.target, request.identity))
        found += [f"{name} went to several places: {seen}" for name, seen in targets.items() if len(seen) > 1]
        return found


def _toml(value: Any) -> str:
    """A value of JSON as an inline value of TOML."""
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{json.dumps(name)} = {_toml(one)}' for name, one in value.items() if one is not None)}}}"
        )
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value)


def _end(operation: Operation) -> tuple[object, ...]:
    return operation.state, operation.cause, operation.external_id, operation.receipt, operation.ended_at


def _of_one(one: Operation, kind: Kind, receipts: list[str], requests: int, *, waits: bool) -> Iterator[str]:
    """What is wrong with one operation that rests."""
    name = f"{one.operation_id} ({one.state}, {one.cause})"
    if one.ended == one.open:
        yield f"{name}: it is in two places, or in none"
    if not one.rests:
        yield f"{name} moves still, or stands still without anybody knowing"
    if one.state == "succeeded":
        said = one.external_id if one.cause == "person" else one.receipt
        if one.external_id not in receipts or one.external_id not in (said or ""):
            yield f"{name} has receipt {one.external_id}, the merchant says {receipts}"
    elif one.state == "unknown" and not waits:
        yield f"{name} waits for a person ({one.reason}), which this contract never needs"
    elif one.state == "rejected":
        yield f"{name} was rejected, though nothing was refused"
    if requests > one.attempts:
        yield f"{name}: {requests} requests, and {one.attempts} attempts are written down"
    if one.contradictions and kind.effects_max is not None:
        yield f"{name} has evidence against it"


# ----------------------------------------------------------------------------------------------------------- processes


def exit_code(program: Program, seconds: float = HEAL_SECONDS_MAX) -> int:
    """The exit code of a program, once it has ended; minus the number of the signal that killed it."""
    eventually(lambda: not program.running, seconds, claim=f"{program.name} ends")
    return int(program.process.returncode)


def events(program: Program, name: str | None = None) -> list[dict[str, Any]]:
    """What a program has reported."""
    lines = [line for line in program.log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
    found = [json.loads(line) for line in lines]
    return [event for event in found if name in (None, event["event"])]


def reached(program: Program, point: str) -> bool:
    """It has come to the crash point that it was started with."""
    return any(event.get("point") == point for event in events(program, "crash_point"))


def killed_at(program: Program, point: str) -> None:
    """See that it died there, of that signal: a crash that did not land has shown nothing."""
    code = exit_code(program)
    assert code == -signal.SIGKILL, f"{code}: {program.tail()}"
    assert reached(program, point)


def sleeps(program: Program) -> bool:
    """A signal has stopped it."""
    return Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def stopped_at(program: Program, point: str) -> None:
    """Wait until it has stopped there."""
    eventually(lambda: sleeps(program), HEAL_SECONDS_MAX, claim=f"{program.name} stops at {point}")
    assert reached(program, point)


@contextmanager
def arena(database: Database, merchant: Merchant, folder: Path, *arguments: Any, **options: Any) -> Iterator[Arena]:
    """One arena; its programs end with the block."""
    made = Arena(database, merchant, folder, *arguments, **options)
    try:
        yield made
    finally:
        made.close()
