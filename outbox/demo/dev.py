"""Everything in one terminal, for writing a service against it: `outbox dev`.

An embedded PostgreSQL whose data are kept, the configuration applied, a relay, a reconciler, and an echo receiver with
a ledger at every loopback address of the file at which nobody listens. Ctrl-C stops all of it, in order: first the
daemons, then who they talk to. Whatever ends by itself ends all, and is named: nothing is left half running.
"""

import asyncio
import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from psycopg.conninfo import make_conninfo

from outbox.demo.files import write_at_once
from outbox.demo.lines import Lines
from outbox.demo.programs import Program, Programs
from outbox.embedded import Server
from outbox.errors import Refused
from outbox.migrate import create_database, upgrade
from outbox.registry import apply
from outbox.settings import Configuration, config_path, load_configuration
from outbox.store import Store

DATABASE = "outbox"
DSN_FILE = Path(".outbox") / "dsn"
LOOK_SECONDS = 0.2
# An `outbox dev` that was killed takes its PostgreSQL with it, which needs a moment.
OLD_SERVER_SECONDS_MAX = 15.0
PROBE_SECONDS_MAX = 1.0
LOOK_BYTES_MAX = 65_536
# Ends the programs when the process that holds the other end of its stdin dies, however it dies.
WATCHER = 'read -r _; kill -TERM "$@" 2>/dev/null'


def run(*, folder: Path = DSN_FILE.parent, config: Path | None = None, as_json: bool = False) -> int:
    """Start everything, wait for Ctrl-C (0) or for something to end by itself (1), and stop it."""
    lines = Lines(as_json=as_json)
    path, _ = config_path(config)
    configuration = load_configuration(path)
    make_folder(folder)
    stop, programs = threading.Event(), Programs(folder, lines=lines.pass_on)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_alone(folder))
        stack.enter_context(_stopped_by_signals(stop, programs))
        _wait_for_old_server(folder / "postgres")
        server = stack.enter_context(Server(folder / "postgres"))
        dsn = _database(server)
        programs.environment = _environment(server)
        stack.callback(programs.stop)
        stack.enter_context(_announced(folder, dsn))
        asyncio.run(_apply(dsn, configuration))
        started = [*_echo_receivers(programs, configuration, folder, lines)]
        daemons = [programs.start(name, name, ["--config", str(path)]) for name in ("relay", "reconciler")]
        started += daemons
        stack.enter_context(_ended_with_us(started))
        stack.callback(programs.stop, daemons)  # before those whom they talk to
        _introduce(lines, server, started, folder, dsn)
        return _wait(stop, started, lines)


def make_folder(folder: Path) -> None:
    """Make the folder, which no repository takes in: it holds a database and a password. One that is there stays."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
        (folder / ".gitignore").write_text("*\n", "utf-8")


def _introduce(lines: Lines, server: Server, started: list[Program], folder: Path, dsn: str) -> None:
    names = [program.name for program in started]
    lines.say(
        "dev_ready",
        f"PostgreSQL {server.binaries.major}, {', '.join(names)} run. Ctrl-C stops them.",
        programs={program.name: program.pid for program in started},
        dsn=dsn,
    )
    where = f"Data are kept in {folder}/. From another terminal in this folder"
    if folder.absolute() != DSN_FILE.parent.absolute():
        where = f"Data are kept in {folder}/. From another terminal, with OUTBOX_DATABASE__DSN='{dsn}'"
    lines.say("dev_hint", f"{where}: outbox put, outbox list, outbox why ID")


def _wait(stop: threading.Event, started: list[Program], lines: Lines) -> int:
    while not stop.wait(LOOK_SECONDS):
        for program in started:
            if not program.running:
                program.heard_out()
                code = program.process.returncode
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                lines.say(
                    "dev_stopping",
                    f"{program.name} {how}; what it said stands above. Stopping the others, in order.",
                    ended=program.name,
                    exit_code=code,
                )
                return 1
    lines.say("dev_stopping", "Stopping. Once more Ctrl-C: at once.")
    return 0


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder while this process lives. Raises Refused, naming the process that holds it."""
    with (folder / "dev.lock").open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            pid = lock.read().strip() or "that is just starting"
            raise Refused(
                f"`outbox dev` runs in {folder}/ already: process {pid}.",
                hint=f"Use it from here (outbox list), end it (kill {pid}), or take a folder and a file of your own: "
                "outbox --config FILE dev --folder FOLDER",
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _wait_for_old_server(data_dir: Path) -> None:
    """Wait until a server that was left behind has ended. Raises Refused, naming its process."""
    until = time.monotonic() + OLD_SERVER_SECONDS_MAX
    while (pid := _server_of(data_dir)) is not None:
        if time.monotonic() > until:
            raise Refused(f"A PostgreSQL server runs on {data_dir}/ already: process {pid}.", hint=f"kill -INT {pid}")
        time.sleep(LOOK_SECONDS)


def _server_of(data_dir: Path) -> int | None:
    """The server that runs on these data. A number that somebody else has by now is none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid = int((data_dir / "postmaster.pid").read_text().splitlines()[0])
        if Path(f"/proc/{pid}/cwd").resolve() == data_dir.absolute().resolve():
            return pid
    return None


@contextlib.contextmanager
def _stopped_by_signals(stop: threading.Event, programs: Programs) -> Iterator[None]:
    """The first signal asks to stop in order; another one hurries those that still run."""

    def ask(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            for program in programs.started:
                program.signal(signal.Signals(number))
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _ended_with_us(programs: list[Program]) -> Iterator[None]:
    """Should this process be killed: nobody is left behind."""
    arguments = ["sh", "-c", WATCHER, "sh", *(str(program.pid) for program in programs)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, start_new_session=True) as watcher:
        try:
            yield
        finally:
            watcher.kill()


def _database(server: Server) -> str:
    dsn = server.dsn(DATABASE)
    if not (server.data_dir / "outbox.created").exists():
        create_database(server.dsn(), DATABASE)
        (server.data_dir / "outbox.created").touch()
    upgrade(dsn)
    return dsn


def _environment(server: Server) -> dict[str, str]:
    """Each daemon logs in as its own role."""
    log = {"OUTBOX_RELAY__LOG": "json", "OUTBOX_RECONCILER__LOG": "json"}  # read here, and written in one form
    return log | {
        "OUTBOX_DATABASE__DSN": server.dsn(DATABASE),
        "OUTBOX_RELAY__DSN": make_conninfo(server.dsn(DATABASE), user="outbox_relay"),
        "OUTBOX_RECONCILER__DSN": make_conninfo(server.dsn(DATABASE), user="outbox_reconciler"),
    }


@contextlib.contextmanager
def _announced(folder: Path, dsn: str) -> Iterator[None]:
    """Leave the DSN where the other commands find it while this one runs."""
    place = folder / DSN_FILE.name
    write_at_once(place, dsn)
    try:
        yield
    finally:
        place.unlink(missing_ok=True)


async def _apply(dsn: str, configuration: Configuration) -> None:
    async with Store(dsn, "apply", name="outbox dev", connections_max=2) as store:
        await apply(store, configuration, f"outbox dev, user {os.getuid()}")


def _echo_receivers(programs: Programs, configuration: Configuration, folder: Path, lines: Lines) -> Iterator[Program]:
    """Start one at every loopback port of the file at which nobody listens."""
    addresses = {urlsplit(receiver.base_url) for receiver in configuration.receivers.values()}
    ports = {parts.port for parts in addresses if parts.hostname in {"127.0.0.1", "localhost"} and parts.port}
    for port in sorted(ports):
        if _is_free(port):
            ledger = folder / f"echo-{port}.sqlite"
            yield programs.start(f"echo-{port}", "outbox.demo.receiver", ["--port", str(port), "--ledger", str(ledger)])
        elif _is_echo(port):
            lines.say(
                "port_taken",
                f"Port {port} belongs to the echo of another `outbox dev`: what is sent there gets into its ledger. "
                "Write another port into the file to have one here.",
                port=port,
            )
        else:
            lines.say(
                "port_taken", f"Somebody listens at port {port} already: no echo there, it gets it all.", port=port
            )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _is_echo(port: int) -> bool:
    """Whether an echo of ours listens there: it lists the faults that wait for a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PROBE_SECONDS_MAX)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        connection.request("GET", "/_control")
        answer = connection.getresponse()
        return answer.status == http.client.OK and isinstance(json.loads(answer.read(LOOK_BYTES_MAX)), list)
    return False
