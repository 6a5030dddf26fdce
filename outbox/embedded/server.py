"""Running one PostgreSQL server as a child process.

PostgreSQL refuses to run as root. As root we run it in a user namespace of its own, where the server sees an ordinary
user while its files stay root's; where namespaces are forbidden (as in many containers), as the user `nobody` on a data
directory that belongs to it. Neither way adds a user or changes the mode of anything that we did not create.

Who may connect: whoever may enter the data directory, which is 0700 and holds the socket. A TCP port is opened only on
request, on the loopback address, and asks for a password.
"""

import contextlib
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from outbox.embedded.binaries import Binaries, find_binaries
from outbox.errors import DatabaseUnavailable

__all__ = ["Server"]

SOCKET_PATH_BYTES_MAX = 107  # what the kernel allows in a socket's address, less its final zero
SUPERUSER = "postgres"
POLL_SECONDS = 0.01
START_SECONDS_MAX = 60.0  # recovery after a crash is part of a start
STOP_SECONDS_MAX = 30.0
LOG_EXCERPT_BYTES = 1000  # of the server's log, in an error

# Ends the server, and removes what was temporary, when the process that holds the other end of its stdin dies, however
# it dies. $0 is the server, $@ are the folders. The wait is bounded, since a process that nobody reaps looks alive.
WATCHER = """
read -r _; kill -INT "$0" 2>/dev/null || exit 0
tenths=0; while kill -0 "$0" 2>/dev/null && [ $tenths -lt 100 ]; do sleep 0.1; tenths=$((tenths + 1)); done
[ $# -eq 0 ] || rm -rf -- "$@"
"""


# A file system without a disk, and how much must be free there before a server is put into it.
MEMORY = "/dev/shm"  # noqa: S108 - a folder of our own is made in it, 0700
MEMORY_BYTES_MIN = 4 * 2**30


def _has_room(folder: str) -> bool:
    try:
        return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= MEMORY_BYTES_MIN
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class _Identity:
    """As whom the server runs: a command put before its own, and the user and group to become (None: stay)."""

    prefix: tuple[str, ...] = ()
    user: int | None = None
    group: int | None = None

    @classmethod
    def choose(cls) -> Self:
        if os.geteuid() != 0:
            return cls()
        namespace = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
        if shutil.which("unshare"):
            probe = subprocess.run([*namespace, "true"], capture_output=True, check=False)
            if probe.returncode == 0:
                return cls(prefix=namespace)
        nobody = pwd.getpwnam("nobody")
        return cls(user=nobody.pw_uid, group=nobody.pw_gid)

    def start(self, command: Sequence[str], *, cwd: Path, output: int) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own, so that Ctrl-C in a terminal reaches us and not the server."""
        groups: Sequence[int] | None = [] if self.user is not None else None
        try:
            return subprocess.Popen(
                [*self.prefix, *command],
                cwd=cwd,
                env=_clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self.user,
                group=self.group,
                extra_groups=groups,
            )
        except PermissionError as error:
            message = (
                f"as the user `nobody`, which must do it instead of root, {command[0]} cannot run in {cwd}: {error}"
            )
            raise DatabaseUnavailable(message, hint="use another folder, or another user than root") from error

    def own(self, path: Path) -> None:
        """Give a file or folder that we created to the user that the server runs as."""
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)


def _clean_environment() -> dict[str, str]:
    """Return our environment without what would steer PostgreSQL's programs somewhere else."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}


class Server:
    """One PostgreSQL server; as a context manager it is started, stopped, and removed if it was temporary.

    `data_dir`: where the data are kept; made if it is missing. None: a temporary folder.
    `durable=False` turns fsync off: for tests, whose data survive a crash of the server, not of the machine.
    `tcp_port` also opens that port on 127.0.0.1, with a password (`tcp_dsn()`). `settings` are further settings.
    `outlive=True` leaves the server running when this process ends; otherwise it ends with this process, even if that
    is killed.

    `in_memory`: a temporary one lies in memory where there is room: databases are made there ten times as fast.

    Every failure raises DatabaseUnavailable with the end of the server's log.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        binaries: Binaries | None = None,
        durable: bool = True,
        tcp_port: int | None = None,
        settings: Mapping[str, str] | None = None,
        outlive: bool = False,
        in_memory: bool = False,
    ) -> None:
        self.binaries = binaries or find_binaries()
        self.tcp_port = tcp_port
        self._identity = _Identity.choose()
        self._temporary: list[Path] = []
        self.data_dir = data_dir.absolute() if data_dir is not None else self._temporary_folder(in_memory) / "data"
        self._socket_dir = self.data_dir if self._holds_socket(self.data_dir) else self._temporary_folder()
        self._settings = {
            "listen_addresses": "127.0.0.1" if tcp_port is not None else "",
            "port": str(self.port),
            "unix_socket_directories": str(self._socket_dir),
            "timezone": "UTC",
            **({} if durable else {"fsync": "off", "full_page_writes": "off"}),
            **(settings or {}),
        }
        self._outlive = outlive
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The number in the socket's name, and the TCP port if one is open."""
        return 5432 if self.tcp_port is None else self.tcp_port

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self._process is None:
            message = f"the PostgreSQL server of {self.data_dir} is not running"
            raise DatabaseUnavailable(message)
        return self._process.pid

    @property
    def log(self) -> Path:
        """The server's log, beside its data."""
        return self.data_dir.with_name(f"{self.data_dir.name}.log")

    def dsn(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        """Return the URL of a database of this server, through its socket; no password is asked for there."""
        socket = quote(str(self._socket_dir), safe="")
        return f"postgresql://{quote(user)}@/{quote(database)}?host={socket}&port={self.port}"

    def tcp_dsn(self, database: str = "postgres") -> str:
        """Return the URL of a database of this server, through TCP, for the superuser, with the password in it."""
        password = self._password_file.read_text().strip()
        return f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{self.port}/{quote(database)}"

    def start(self) -> None:
        """Make the data directory if it is missing, start the server, and return when it accepts connections."""
        if not (self.data_dir / "PG_VERSION").exists():
            self._make_data()
        major = int((self.data_dir / "PG_VERSION").read_text())
        if major != self.binaries.major:
            message = f"{self.data_dir} belongs to PostgreSQL {major}, the binaries found are {self.binaries.major}"
            raise DatabaseUnavailable(message, hint="choose another folder, or install that version")
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(self.binaries.path / "postgres"), "-D", str(self.data_dir), *options]
        with self.log.open("ab") as log:
            self._process = self._identity.start(command, cwd=self.data_dir, output=log.fileno())
        if not self._outlive:
            arguments = ["sh", "-c", WATCHER, str(self.pid), *map(str, self._temporary)]
            self._watcher = subprocess.Popen(arguments, stdin=subprocess.PIPE, start_new_session=True)
        self._wait_until_ready(self._process)

    def stop(self, *, immediate: bool = False) -> None:
        """End every session and stop the server; its data stay. `immediate`: as in a crash, without a checkpoint."""
        process, self._process = self._process, None
        self._release_watcher()
        if process is None or process.poll() is not None:
            return
        for request in (signal.SIGQUIT,) if immediate else (signal.SIGINT, signal.SIGQUIT):
            process.send_signal(request)
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                continue
            return
        message = f"the PostgreSQL server (pid {process.pid}) does not stop"
        raise DatabaseUnavailable(message)

    def close(self) -> None:
        """Stop the server, and remove what was temporary."""
        self.stop(immediate=self.data_dir.parent in self._temporary)
        for folder in self._temporary:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def _password_file(self) -> Path:
        return self.data_dir.with_name(f"{self.data_dir.name}.password")

    def _temporary_folder(self, in_memory: bool = False) -> Path:  # noqa: FBT001, FBT002 - one fact, passed on
        """Make a folder that only the server's user may enter, with a path short enough for a socket."""
        parent = MEMORY if in_memory and _has_room(MEMORY) else "/tmp"  # noqa: S108 - made 0700, by mkdtemp
        folder = Path(tempfile.mkdtemp(prefix="outbox-postgres-", dir=parent))
        self._identity.own(folder)
        self._temporary.append(folder)
        return folder

    def _holds_socket(self, folder: Path) -> bool:
        """Whether a socket in this folder has a path that the kernel takes, and that no list of folders splits."""
        path = str(folder / f".s.PGSQL.{self.port}")
        return len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX and re.search(r"[,\"\s]", path) is None

    def _make_data(self) -> None:
        """Create the database cluster: UTF-8, byte order for text, so that it sorts alike everywhere."""
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._identity.own(self.data_dir)
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(secrets.token_urlsafe(24))
        self._identity.own(self._password_file)
        options = ["--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync"]
        command = [str(self.binaries.path / "initdb"), "-D", str(self.data_dir), "-U", SUPERUSER, *options]
        with self.log.open("ab") as log:
            made = self._identity.start(
                [*command, f"--pwfile={self._password_file}"], cwd=self.data_dir, output=log.fileno()
            )
            if made.wait(START_SECONDS_MAX) != 0:
                raise self._failure("the data directory could not be made")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the postmaster has written `ready` into its lock file."""
        lock_file = self.data_dir / "postmaster.pid"
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if process.poll() is not None:
                self.stop()
                raise self._failure(f"the PostgreSQL server ended with code {process.returncode} while it started")
            with contextlib.suppress(FileNotFoundError):
                lines = lock_file.read_text().splitlines()
                if lines and lines[0] == str(process.pid) and lines[-1].strip() == "ready":
                    return
            time.sleep(POLL_SECONDS)
        self.stop()
        raise self._failure(f"the PostgreSQL server was not ready within {START_SECONDS_MAX:g} s")

    def _failure(self, message: str) -> DatabaseUnavailable:
        """Return an error that carries the end of the server's log."""
        excerpt = self.log.read_bytes()[-LOG_EXCERPT_BYTES:].decode(errors="replace").strip()
        return DatabaseUnavailable(f"{message}; its log {self.log} ends with:\n{excerpt}")

    def _release_watcher(self) -> None:
        """Let go of the watcher before the server ends, lest it signal whoever gets the server's number next."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None and watcher.stdin is not None:
            watcher.kill()
            watcher.wait()
            watcher.stdin.close()
