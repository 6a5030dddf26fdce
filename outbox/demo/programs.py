"""Other programs of this project, started as real processes with real signals."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

STOP_SECONDS_MAX = 15.0
LOG_TAIL_LINES = 20
LINE_BYTES_MAX = 65_536


@dataclass
class Program:
    """One running program; what it prints is in its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    reader: threading.Thread | None = None
    """Passes on what it prints."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """It has not ended yet."""
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self.running:
            self.process.send_signal(number)

    def heard_out(self) -> None:
        """Wait until everything is passed on that it has printed; it has ended."""
        if self.reader is not None:
            self.reader.join(STOP_SECONDS_MAX)

    def tail(self) -> str:
        """The last lines that it printed."""
        return "\n".join(self.log.read_text("utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:])


@dataclass
class Programs:
    """Programs that end together. Each runs in a session of its own: Ctrl-C reaches us, and we stop them in order."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    lines: Callable[[str, bytes], None] | None = None
    """Takes each line that one of them prints, from a thread of its own. None: it goes into a log each."""
    started: list[Program] = field(default_factory=list)

    def start(self, name: str, module: str, arguments: Sequence[str] = ()) -> Program:
        """Run `python -m module arguments`."""
        log = self.folder / f"{name}.log"
        # Settings of the surroundings must not lead a program of the demo to somebody's real outbox.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("OUTBOX_", "PG"))}
        with contextlib.ExitStack() as stack:
            where = subprocess.PIPE if self.lines else stack.enter_context(log.open("ab"))
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=where,
                stderr=subprocess.STDOUT,
                env=inherited | dict(self.environment),
                start_new_session=True,
            )
        program = Program(name, process, log)
        if self.lines is not None and process.stdout is not None:
            program.reader = threading.Thread(target=_pass_on, args=(name, process.stdout, self.lines), daemon=True)
            program.reader.start()
        self.started.append(program)
        return program

    def stop(self, programs: Sequence[Program] | None = None) -> None:
        """SIGTERM (after SIGCONT: some may be stopped), wait, and SIGKILL for what does not end in time."""
        ending = list(self.started if programs is None else programs)
        for program in ending:
            program.signal(signal.SIGCONT)
            program.signal(signal.SIGTERM)
        for program in ending:
            try:
                program.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                program.process.kill()
                program.process.wait()
            program.heard_out()


def _pass_on(name: str, pipe: IO[bytes], take: Callable[[str, bytes], None]) -> None:
    with pipe:
        while line := pipe.readline(LINE_BYTES_MAX):
            take(name, line)
