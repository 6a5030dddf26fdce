"""From nothing to a delivered effect in three commands, and Ctrl-C that leaves nobody behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from outbox.demo.dev import make_folder
from outbox.demo.ledger import Ledger
from tests.support.arena import CHECKOUT
from tests.support.eventually import eventually
from tests.support.processes import descendants, lives

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SECONDS_MAX = 60.0


class Folder:
    """An empty folder of somebody who tries it out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}

    def outbox(self, *arguments: str) -> Any:
        """Run a command there that must end well, with --json."""
        done = subprocess.run(
            [sys.executable, "-m", "outbox", *arguments, "--json"],
            cwd=self.path,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    @property
    def log(self) -> Path:
        """What `outbox dev` has printed."""
        return self.path / "dev.log"

    def said(self) -> list[dict[str, Any]]:
        """Every line of it: there is no terminal, so each is an object."""
        whole = self.log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def on_port(self, port: int) -> None:
        """Let the echo of the file listen there."""
        self.outbox("init")
        file = self.path / "outbox.toml"
        file.write_text(file.read_text().replace("9009", str(port)))

    @contextmanager
    def dev(self, end: signal.Signals | None, code: int = 0) -> Iterator[set[int]]:
        """Run `outbox dev` as a terminal does, end it with this signal, and see that nobody is left behind."""
        log = self.log
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "outbox", "dev"],
                cwd=self.path,
                env=self.environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            eventually(lambda: "Ctrl-C stops them" in log.read_text() or process.poll() is not None, SECONDS_MAX)
            assert process.poll() is None, log.read_text()
            family = descendants(process.pid)
            yield family
            if end is not None:
                # A terminal sends it to everybody in the foreground; the servants live in sessions of their own.
                os.killpg(process.pid, end)
            assert process.wait(SECONDS_MAX) == code, log.read_text()
            eventually(lambda: not [pid for pid in family if lives(pid)], claim="nobody is left behind")
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(SECONDS_MAX)


def test_three_commands_lead_from_nothing_to_a_delivered_effect(tmp_path: Path, free_port: int) -> None:
    """init, dev, put. What is there after Ctrl-C is there again after the next start."""
    folder = Folder(tmp_path)
    folder.on_port(free_port)
    with folder.dev(signal.SIGINT) as family:
        assert len(family) >= 4, "PostgreSQL, relay, reconciler, and an echo"
        said = folder.outbox(
            *("put", "--tenant", "me", "--principal", "me", "--tool", "echo.say", "--arguments", '{"text": "hello"}')
        )
        shown = ("--tenant", "me", "show", said["operation_id"])
        eventually(lambda: folder.outbox(*shown)["state"] == "succeeded", SECONDS_MAX)
    assert (tmp_path / ".outbox" / ".gitignore").read_text() == "*\n"
    with Ledger(tmp_path / ".outbox" / f"echo-{free_port}.sqlite") as ledger:
        (effect,) = ledger.effects()
    assert json.loads(effect.body) == {"text": "hello"}
    assert effect.operation == said["operation_id"]
    everybody = {"dev", "relay", "reconciler", f"echo-{free_port}"}
    with folder.dev(signal.SIGTERM):
        (kept,) = folder.outbox("list")["items"]
        eventually(lambda: {line["program"] for line in folder.said()} == everybody, SECONDS_MAX)
    assert (kept["operation_id"], kept["state"]) == (said["operation_id"], "succeeded")
    ended = [line["program"] for line in folder.said() if line.get("event") == "daemon_stopped"]
    assert sorted(ended) == ["reconciler", "relay"], "everything that they said was passed on"


def test_a_folder_that_was_there_before_is_not_hidden_from_git(tmp_path: Path) -> None:
    """It may be somebody's project."""
    make_folder(tmp_path)
    assert [*tmp_path.iterdir()] == []
    make_folder(tmp_path / "new" / "one")
    assert [path.name for path in (tmp_path / "new" / "one").iterdir()] == [".gitignore"]


def test_one_program_that_is_killed_is_named_and_ends_all(tmp_path: Path, free_port: int) -> None:
    folder = Folder(tmp_path)
    folder.on_port(free_port)
    with folder.dev(None, code=1):
        (ready,) = (line for line in folder.said() if line["event"] == "dev_ready")
        eventually(lambda: len([line for line in folder.said() if line["event"] == "daemon_started"]) == 2, SECONDS_MAX)
        os.kill(ready["programs"]["relay"], signal.SIGKILL)
        eventually(lambda: any(line["event"] == "dev_stopping" for line in folder.said()), SECONDS_MAX)
    (ending,) = (line for line in folder.said() if line["event"] == "dev_stopping")
    assert (ending["ended"], ending["exit_code"]) == ("relay", -signal.SIGKILL)
    assert "relay was killed by SIGKILL" in ending["message"]
    stopped = [line["program"] for line in folder.said() if line["event"] == "daemon_stopped"]
    assert stopped == ["reconciler"], "in order, and not killed"


def test_a_second_one_says_who_has_the_folder_or_the_port(tmp_path: Path, free_port: int) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = Folder(tmp_path / "one"), Folder(tmp_path / "two")
    one.on_port(free_port)
    two.on_port(free_port)
    with one.dev(signal.SIGINT):
        again = subprocess.run(
            [sys.executable, "-m", "outbox", "dev"],
            cwd=one.path,
            env=one.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert again.returncode == 4
        holder = (one.path / ".outbox" / "dev.lock").read_text().strip()
        assert f"process {holder}" in again.stderr
        assert f"kill {holder}" in again.stderr
        assert "Traceback" not in again.stderr
        with two.dev(signal.SIGINT) as family:
            assert len(family) >= 3, "PostgreSQL, relay and reconciler of its own"
        (taken,) = (line for line in two.said() if line["event"] == "port_taken")
        assert taken["port"] == free_port
        assert "another `outbox dev`" in taken["message"]


def test_killed_it_leaves_nobody_behind_and_starts_again(tmp_path: Path, free_port: int) -> None:
    folder = Folder(tmp_path)
    folder.on_port(free_port)
    with folder.dev(signal.SIGKILL, code=-signal.SIGKILL):
        pass
    with folder.dev(signal.SIGINT):
        pass
