"""Where the demo lives: a database that it makes for itself, a folder, and the programs that run in it."""

import contextlib
import os
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from outbox.demo.programs import Program, Programs
from outbox.dsn import dsn_problem
from outbox.embedded import Server
from outbox.errors import ConfigError, ReceiverError
from outbox.migrate import create_database, drop_database, upgrade
from outbox.store import Store

GIVEN_DSN = "OUTBOX_DEMO_DSN"
# What ALTER ROLE gives a daemon that logs in as itself; here one login plays every part, so the session brings them.
DAEMON_SETTINGS = (
    "-c default_transaction_isolation=read\\ committed -c synchronous_commit=on -c statement_timeout=30s"
    " -c lock_timeout=3s -c idle_in_transaction_session_timeout=1s -c enable_hashjoin=off -c enable_mergejoin=off"
    " -c enable_seqscan=off"
)
RECEIVER_SECONDS_MAX = 15.0


@dataclass
class World:
    """Everything that is there once the demo is set up."""

    folder: Path
    dsn: str
    programs: Programs
    origin: str
    receiver_port: int = 0
    config: Path = field(default_factory=Path)
    server: Server | None = None
    """The PostgreSQL that was started for it; None: the database is on a given server."""

    @property
    def ledger(self) -> Path:
        """The receiver's own books."""
        return self.folder / "ledger.sqlite"

    def dsn_as(self, role: str, settings: str = "") -> str:
        """A connection string with the rights of one role."""
        return make_conninfo(self.dsn, options=f"-c role={role} {settings}")

    def ending(self) -> str:
        """A line for a shell that ends everything that still runs, and removes what it leaves."""
        pids = [program.pid for program in self.programs.started if program.running]
        if self.server is None:
            given, name = os.environ[GIVEN_DSN], conninfo_to_dict(self.dsn)["dbname"]
            dropping = shlex.join(["psql", given, "-c", f"drop database {name} with (force)"])
            return f"kill {' '.join(map(str, pids))}; {dropping}; rm -r {self.folder}"
        pids.append(self.server.pid)
        waiting = f"while kill -0 {self.server.pid} 2>/dev/null; do sleep 0.1; done"
        return f"kill {' '.join(map(str, pids))}; {waiting}; rm -r {self.folder} {self.server.data_dir.parent}"

    def start_receiver(self, faults: str) -> Program:
        """Start the receiver and wait until it serves."""
        port_file = self.folder / "receiver.port"
        program = self.programs.start(
            "receiver",
            "outbox.demo.receiver",
            ["--port", "0", "--ledger", str(self.ledger), "--port-file", str(port_file), "--faults", faults],
        )
        until = time.monotonic() + RECEIVER_SECONDS_MAX
        while not (port_file.is_file() and port_file.read_text().strip()):
            if not program.running or time.monotonic() > until:
                raise ReceiverError(f"the demo's receiver did not start:\n{program.tail()}")
            time.sleep(0.02)
        self.receiver_port = int(port_file.read_text())
        return program

    def write_config(self, text: str) -> None:
        """Write outbox.toml: the database with this world's roles, then `text`."""
        daemons = "\n".join(
            f"[{section}]\ndsn = {_toml_string(self.dsn_as(f'outbox_{section}', DAEMON_SETTINGS))}"
            for section in ("relay", "reconciler")
        )
        self.config = self.folder / "outbox.toml"
        self.config.write_text(
            f"[database]\ndsn = {_toml_string(self.dsn)}\nshared_role = true\n\n{daemons}\n\n{text}", "utf-8"
        )


def _toml_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def demo_config(port: int) -> str:
    """The receivers and tools of the demo."""
    return (files("outbox.demo") / "outbox.toml").read_text("utf-8").replace("{port}", str(port))


@contextlib.contextmanager
def world(*, keep: bool = False) -> Iterator[World]:
    """Make a database and a folder, and remove both in the end (`keep`: leave both, and every program, as they are).

    The database server: a given one (OUTBOX_DEMO_DSN) > embedded > installed.

    `OUTBOX_DATABASE__DSN` is not looked at: nothing here can touch somebody's real outbox.
    """
    folder = Path(tempfile.mkdtemp(prefix="outbox-demo-"))
    environment = {"DEMO_WRITE_TOKEN": secrets.token_hex(16), "DEMO_READ_TOKEN": secrets.token_hex(16)}
    name = f"outbox_demo_{os.getpid()}_{secrets.token_hex(3)}"
    programs = Programs(folder, environment)
    server = None
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if given := os.environ.get(GIVEN_DSN):
            if problem := dsn_problem(given):
                raise ConfigError.at(GIVEN_DSN, problem)
            admin, origin = given, "the given database server"
        else:
            server = stack.enter_context(Server(outlive=keep))
            admin, origin = server.dsn(), f"PostgreSQL {server.binaries.major} ({server.binaries.origin})"
        create_database(admin, name)
        stack.callback(drop_database, admin, name)
        stack.callback(programs.stop)
        dsn = make_conninfo(admin, dbname=name)
        upgrade(dsn)
        yield World(folder, dsn, programs, origin, server=server)
        if keep:
            stack.pop_all()


def store(of: World) -> Store:
    """The database as the demo itself sees it."""
    return Store(of.dsn, "demo", "apply", name="outbox demo", connections_max=2)
