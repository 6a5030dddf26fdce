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

    @contextmanager
    def dev(self, end: signal.Signals) -> Iterator[set[int]]:
        """Run `outbox dev` as a terminal does, end it with this signal, and see that nobody is left behind."""
        log = self.path / "dev.log"
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
            # A terminal sends it to everybody in the foreground; the servants live in sessions of their own.
            os.killpg(process.pid, end)
            assert process.wait(SECONDS_MAX) == 0, log.read_text()
            eventually(lambda: not [pid for pid in family if lives(pid)], claim="nobody is left behind")
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(SECONDS_MAX)


def test_three_commands_lead_from_nothing_to_a_delivered_effect(tmp_path: Path, free_port: int) -> None:
    """init, dev, put. What is there after Ctrl-C is there again after the next start."""
    folder = Folder(tmp_path)
    folder.outbox("init")
    file = tmp_path / "outbox.toml"
    file.write_text(file.read_text().replace("9009", str(free_port)))
    with folder.dev(signal.SIGINT) as family:
        assert len(family) >= 4, "PostgreSQL, relay, reconciler, and an echo"
        said = folder.outbox(
            *("put", "--tenant", "me", "--principal", "me", "--tool", "echo.say", "--arguments", '{"text": "hello"}')
        )
        shown = ("--tenant", "me", "show", said["operation_id"])
        eventually(lambda: folder.outbox(*shown)["state"] == "succeeded", SECONDS_MAX)
    with Ledger(tmp_path / ".outbox" / f"echo-{free_port}.sqlite") as ledger:
        (effect,) = ledger.effects()
    assert json.loads(effect.body) == {"text": "hello"}
    assert effect.operation == said["operation_id"]
    with folder.dev(signal.SIGTERM):
        (kept,) = folder.outbox("list")["items"]
    assert (kept["operation_id"], kept["state"]) == (said["operation_id"], "succeeded")
