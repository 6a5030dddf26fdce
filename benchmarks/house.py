"""A server, databases that are copies of a migrated one, relays as real processes, and what they cost."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict

from outbox.embedded import Server
from outbox.registry import apply
from outbox.settings import load_configuration
from outbox.store import Store
from tests.support.postgres import Cluster, Database

ROOT = Path(__file__).parents[1]
PLUGIN = Path(__file__).parent / "plugin"
SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "16GB", "max_connections": "100", "checkpoint_timeout": "30min"}
TOOL = "bench.act"
WAIT_SECONDS_MAX = 900.0
_TICK = os.sysconf("SC_CLK_TCK")
# The transport `instant` is an entry point, as a third party's would be: here for `apply`, below for the daemons.
sys.path.append(str(PLUGIN))


@dataclass(frozen=True, slots=True)
class Cost:
    """What so many operations cost. Microseconds are of CPU, and so nearly independent of what else runs."""

    operations: int
    seconds: float
    relay_us: float
    server_us: float
    wal_bytes: float
    statements_per_500: float
    memory_mb: float
    first_rate: float
    """Operations per second in the first third."""
    last_rate: float

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds


@contextlib.contextmanager
def house(*, durable: bool = False) -> Iterator["House"]:
    """
    A server with a migrated template. Not durable: no fsync, for comparisons of CPU.

    A relay refuses a role whose commits are asynchronous, so it is the server that does not wait for its disk.
    """
    with (
        tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder,
        Server(durable=durable, settings=SETTINGS) as server,
        Cluster(server.dsn()).template() as template,
    ):
        yield House(server, Cluster(server.dsn()), template, Path(folder))


class House:
    """Where measurements happen."""

    def __init__(self, server: Server, cluster: Cluster, template: Database, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self._cluster = cluster
        self._template = template

    @contextlib.contextmanager
    def database(self) -> Iterator["Place"]:
        """A migrated database of its own."""
        with self._cluster.database(self._template) as made:
            place = Place(made, self.folder)
            try:
                yield place
            finally:
                place.close()

    @contextlib.contextmanager
    def empty(self) -> Iterator[str]:
        """An empty database, for somebody else's queue; its DSN."""
        with self._cluster.database() as made:
            yield made.dsn


class Place:
    """One database with one tool, whose receiver is `instant` unless said otherwise."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.admin = psycopg.connect(database.dsn, autocommit=True)
        self.config = folder / f"{database.name}.toml"
        self._log = folder / f"{database.name}.log"
        self._asked = 0
        self._counted, self._upto = 0, "0"

    def close(self) -> None:
        self.admin.close()

    def value(self, query: LiteralString, *parameters: Any) -> Any:
        """The first column of the first row."""
        self._asked += 1
        row = self.admin.execute(query, parameters).fetchone()
        return None if row is None else row[0]

    def apply(self, receiver: str = "", tool: str = "", contract: str = "", relay: str = "") -> None:
        """Write a configuration and apply it. Each part is TOML that comes after ours."""
        self.config.write_text(
            f"""
[database]
dsn = "{self.database.dsn}"
[relay]
dsn = "{self.database.dsn_for("relay")}"
batch_max = 500
{relay}
[reconciler]
dsn = "{self.database.dsn_for("reconciler")}"
[receivers.bench]
lease = "30s"
{receiver or 'transport = "instant"' + chr(10) + "lanes = 4" + chr(10) + "concurrency = 2000"}
[tools."{TOOL}"]
receiver = "bench"
deadline = "10s"
{tool}
[tools."{TOOL}".contract]
key = {{ in = "header", name = "Idempotency-Key" }}
key_retention = "24h"
in_flight_bound = "10s"
{contract}
"""
        )
        asyncio.run(self._apply())

    async def _apply(self) -> None:
        async with Store(self.database.dsn, "apply") as store:
            await apply(store, load_configuration(self.config), "bench")

    def enqueue(self, number: int, tenant: str = "acme", payload_bytes: int = 1000) -> None:
        """Write so many intents at once, and let the server come to rest."""
        self.admin.execute(
            """
            insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest)
            select %(tenant)s, n || '-' || %(salt)s, %(tool)s, 'svc', a,
              outbox.intent_digest(%(tenant)s, n || '-' || %(salt)s, %(tool)s, null, null, a)
            from generate_series(1, %(number)s) n
            cross join lateral (select '{"n":' || n || ',"pad":"' || repeat('x', %(pad)s) || '"}' as a) x
            """,
            {
                "tenant": tenant,
                "salt": str(time.monotonic_ns()),
                "tool": TOOL,
                "number": number,
                "pad": payload_bytes - 24,
            },
        )
        self.admin.execute("vacuum analyze")
        self.admin.execute("checkpoint")

    @contextlib.contextmanager
    def daemons(self, module: str, number: int = 1, *options: str) -> Iterator[list[subprocess.Popen[bytes]]]:
        """So many processes of `relay` or `reconciler`, stopped in order at the end."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(PLUGIN), str(ROOT)))}
        command = [sys.executable, "-m", module, "--config", str(self.config), *options]
        with self._log.open("ab") as log:
            started = [subprocess.Popen(command, env=environment, stderr=log) for _ in range(number)]
        try:
            yield started
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(60)

    def drain(self, number: int, relays: int = 1) -> Cost:
        """Let relays end so many operations more, and say what the part after the start-up cost."""
        old = self.ended()
        with self.daemons("relay", relays) as processes:
            self._wait(lambda: self.ended() > old, processes)
            before, progress = self._look(processes), [(time.monotonic(), self.ended())]

            def reached() -> bool:
                progress.append((time.monotonic(), self.ended()))
                return progress[-1][1] >= old + number

            self._wait(reached, processes)
            after = self._look(processes)
            memory = max(_status_kb(process.pid, "VmHWM") for process in processes) / 1024
        done = progress[-1][1] - progress[0][1]
        spent = {name: after[name] - before[name] for name in before}
        return Cost(
            operations=done,
            seconds=progress[-1][0] - progress[0][0],
            relay_us=1e6 * spent["relay"] / done,
            server_us=1e6 * spent["server"] / done,
            wal_bytes=spent["wal"] / done,
            statements_per_500=500 * spent["commits"] / done,
            memory_mb=memory,
            first_rate=_rate(progress, 0, 1 / 3),
            last_rate=_rate(progress, 2 / 3, 1),
        )

    def ended(self) -> int:
        """How many operations have ended. Reads what is new only: to count millions again and again would be felt."""
        self._asked += 1
        row = self.admin.execute(
            """
            with s as (select pg_snapshot_xmin(pg_current_snapshot()) as upto)
            select count(o.seq), s.upto::text
            from s left join outbox.outcome o on o.xid >= %s::xid8 and o.xid < s.upto group by s.upto
            """,
            [self._upto],
        ).fetchone()
        assert row is not None
        self._counted, self._upto = self._counted + row[0], row[1]
        return self._counted

    def _wait(self, reached: Callable[[], bool], processes: list[subprocess.Popen[bytes]]) -> None:
        limit = time.monotonic() + WAIT_SECONDS_MAX
        while not reached():
            if time.monotonic() > limit or any(process.poll() is not None for process in processes):
                raise RuntimeError(f"a daemon ended or stands still:\n{self._log.read_text()[-2000:]}")
            time.sleep(0.1)

    def _look(self, processes: list[subprocess.Popen[bytes]]) -> Mapping[str, float]:
        pids = self.admin.execute(
            "select pid from pg_stat_activity where datname = current_database() and usename = 'outbox_relay'"
        ).fetchall()
        self.admin.execute("select pg_stat_clear_snapshot()")
        return {
            "relay": sum(cpu_seconds(process.pid) for process in processes),
            "server": sum(cpu_seconds(pid) for (pid,) in pids),
            "wal": float(self.value("select pg_current_wal_lsn() - '0/0'")),
            "commits": float(
                self.value("select xact_commit from pg_stat_database where datname = current_database()") - self._asked
            ),
        }


def _rate(progress: list[tuple[float, int]], begin: float, end: float) -> float:
    """Operations per second in a part of what was seen, by the nearest looks."""
    whole = progress[-1][1] - progress[0][1]
    marks = [min(progress, key=lambda seen: abs(seen[1] - progress[0][1] - part * whole)) for part in (begin, end)]
    (since, old), (until, new) = marks
    return (new - old) / max(until - since, 1e-6)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


def _status_kb(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def parts(dsn: str) -> dict[str, str]:
    """Host, user and so on of a DSN, for drivers that want them apart."""
    return {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
