"""
Other queues on PostgreSQL, each under its own best settings that we know of, in an environment of their own.

They do less: none has a fence, a window, a digest or an outcome that says "unknown". What they show is what draining a
table costs in general. They are installed into benchmarks/.peers on the first run, by pip and npm, and are never a
dependency; whoever cannot be installed is left out.
"""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.house import House, parts

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parent / ".peers"
PYTHON = ENVIRONMENT / "bin" / "python"
NODE_MODULES = ENVIRONMENT / "node_modules"
PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Peer:
    """`drain` has three acts, each a run of its driver: install the schema, enqueue, work until it is empty."""

    name: str
    label: str
    command: tuple[str, ...]

    def drain(self, house: House, number: int) -> float:
        """Operations per second, from the first one to the last."""
        with house.empty() as dsn:
            self._run(dsn, "fill", number).wait(600)
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("vacuum analyze")
                connection.execute("checkpoint")
            workers = [self._run(dsn, "work", number) for _ in range(PROCESSES)]
            spans = [_span(worker.communicate(timeout=600)[0]) for worker in workers]
        seconds = max(span["ended"] for span in spans) - min(span["started"] for span in spans)
        return float(sum(span["done"] for span in spans) / seconds)

    def _run(self, dsn: str, act: str, number: int) -> subprocess.Popen[str]:
        command = [*self.command, json.dumps({"act": act, "number": number, "dsn": parts(dsn)})]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ENVIRONMENT)


def _span(output: str) -> dict[str, float]:
    """What a driver said at its end; some libraries still log something after that."""
    (line,) = (line for line in output.splitlines() if line.startswith('{"'))
    found: dict[str, float] = json.loads(line)
    return found


def installed() -> Iterator[Peer]:
    """Those that could be installed."""
    if _python("pgqueuer[asyncpg]==1.6.0", "pgqueuer"):
        yield Peer("PgQueuer", "PgQueuer 1.6.0, batches of 500", (str(PYTHON), str(HERE / "pgqueuer_driver.py")))
    if _node("graphile-worker@0.18.0"):
        script = ENVIRONMENT / "graphile_driver.mjs"
        shutil.copyfile(HERE / "graphile_driver.mjs", script)
        yield Peer("graphile-worker", "graphile-worker 0.18.0, batched", ("node", str(script)))
    if _python("procrastinate==3.10.0", "procrastinate"):
        yield Peer("procrastinate", "procrastinate 3.10.0", (str(PYTHON), str(HERE / "procrastinate_driver.py")))


def _python(requirement: str, module: str) -> bool:
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    if subprocess.run([str(PYTHON), "-c", f"import {module}"], capture_output=True, check=False).returncode == 0:
        return True
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    return subprocess.run(pip, check=False).returncode == 0


def _node(requirement: str) -> bool:
    if shutil.which("npm") is None:
        return False
    if (NODE_MODULES / requirement.partition("@")[0]).exists():
        return True
    ENVIRONMENT.mkdir(exist_ok=True)
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(ENVIRONMENT), requirement]
    return subprocess.run(npm, check=False).returncode == 0


_TAKE = """
with due as (select id from public.queue where state = 'ready' order by id limit 500 for update skip locked)
update public.queue q set state = 'running' from due where q.id = due.id returning q.id
"""


def skip_locked(house: House, number: int, *, held: bool = False) -> float:
    """The queue that everybody writes first: a state, an index on it, SKIP LOCKED. Operations per second."""
    with house.empty() as dsn, psycopg.connect(dsn) as foreign, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table public.queue (id bigserial primary key, state text not null, payload text)")
        connection.execute("create index on public.queue (id) where state = 'ready'")
        connection.execute(
            "insert into public.queue (state, payload) select 'ready', repeat('x', 1000) from generate_series(1, %s)",
            [number],
        )
        connection.execute("vacuum analyze")
        if held:
            foreign.execute("set transaction isolation level repeatable read")
            foreign.execute("select 1 from public.queue limit 1")
        started, stop = time.monotonic(), threading.Event()
        while (ids := [row[0] for row in connection.execute(_TAKE)]) and not stop.is_set():
            connection.execute("delete from public.queue where id = any(%s)", [ids])
        return number / (time.monotonic() - started)
