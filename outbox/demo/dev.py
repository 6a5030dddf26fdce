"""Everything in one terminal, for writing a service against it: `outbox dev`.

An embedded PostgreSQL whose data are kept, the configuration applied, a relay, a reconciler, and an echo receiver with
a ledger at every loopback address of the file at which nobody listens. Ctrl-C stops all of it, in order.
"""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from psycopg.conninfo import make_conninfo
from rich.console import Console

from outbox.demo.programs import Program, Programs
from outbox.embedded import Server
from outbox.migrate import create_database, upgrade
from outbox.registry import apply
from outbox.settings import Configuration, config_path, load_configuration
from outbox.store import Store

DATABASE = "outbox"
DSN_FILE = Path(".outbox") / "dsn"
LOOK_SECONDS = 0.2


def run(*, folder: Path = DSN_FILE.parent, config: Path | None = None, console: Console | None = None) -> int:
    """Start everything, wait for Ctrl-C (or for something to end by itself, which is an error), and stop it."""
    console = console or Console()
    path, _ = config_path(config)
    configuration = load_configuration(path)
    folder.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_stopped_by_signals(stop))
        server = stack.enter_context(Server(folder / "postgres"))
        dsn = _database(server)
        programs = Programs(folder, _environment(server), to_terminal=True)
        stack.callback(programs.stop)
        stack.enter_context(_announced(folder, dsn))
        asyncio.run(_apply(dsn, configuration))
        started = [*_echo_receivers(programs, configuration, folder)]
        started += [programs.start(name, name, ["--config", str(path)]) for name in ("relay", "reconciler")]
        names = ", ".join(program.name for program in started)
        console.print(f"PostgreSQL {server.binaries.major}, {names} run. Ctrl-C stops them.")
        console.print(
            f"Data are kept in {folder}/. From another terminal in this folder: outbox put, outbox list, outbox why ID",
            highlight=False,
        )
        return _wait(stop, started, console)


def _wait(stop: threading.Event, started: list[Program], console: Console) -> int:
    while not stop.wait(LOOK_SECONDS):
        for program in started:
            if not program.running:
                console.print(f"[red]{program.name} ended with exit code {program.process.returncode}[/]; stopping.")
                return 1
    console.print("Stopping.")
    return 0


@contextlib.contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _database(server: Server) -> str:
    dsn = server.dsn(DATABASE)
    if not (server.data_dir / "outbox.created").exists():
        create_database(server.dsn(), DATABASE)
        (server.data_dir / "outbox.created").touch()
    upgrade(dsn)
    return dsn


def _environment(server: Server) -> dict[str, str]:
    """Each daemon logs in as its own role."""
    return {
        "OUTBOX_DATABASE__DSN": server.dsn(DATABASE),
        "OUTBOX_RELAY__DSN": make_conninfo(server.dsn(DATABASE), user="outbox_relay"),
        "OUTBOX_RECONCILER__DSN": make_conninfo(server.dsn(DATABASE), user="outbox_reconciler"),
    }


@contextlib.contextmanager
def _announced(folder: Path, dsn: str) -> Iterator[None]:
    """Leave the DSN where the other commands find it while this one runs."""
    place = folder / DSN_FILE.name
    place.write_text(dsn, "utf-8")
    try:
        yield
    finally:
        place.unlink(missing_ok=True)


async def _apply(dsn: str, configuration: Configuration) -> None:
    async with Store(dsn, "apply", name="outbox dev", connections_max=2) as store:
        await apply(store, configuration, f"outbox dev, user {os.getuid()}")


def _echo_receivers(programs: Programs, configuration: Configuration, folder: Path) -> Iterator[Program]:
    """Start one at every loopback port of the file at which nobody listens."""
    addresses = {urlsplit(receiver.base_url) for receiver in configuration.receivers.values()}
    ports = {parts.port for parts in addresses if parts.hostname in {"127.0.0.1", "localhost"} and parts.port}
    for port in sorted(ports):
        if not _is_free(port):
            continue
        ledger = folder / f"echo-{port}.sqlite"
        yield programs.start(f"echo-{port}", "outbox.demo.receiver", ["--port", str(port), "--ledger", str(ledger)])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
