"""The demo's receiver as a process, with its ledger as the judge."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outbox.demo.ledger import Ledger

WRITE_TOKEN = "write-token-of-a-test"
READ_TOKEN = "read-token-of-a-test"


@dataclass(frozen=True, slots=True)
class Demo:
    """A running receiver."""

    url: str
    ledger: Ledger

    def fault(self, fault: str, **more: Any) -> None:
        """Do this to the next request that it fits."""
        body = json.dumps({"fault": fault, **more}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/_control", data=body)):
            pass


@contextlib.contextmanager
def demo_receiver(folder: Path, **plan: Any) -> Iterator[Demo]:
    """Run one, with its tokens; `plan` is a FaultPlan."""
    plan = {"write_tokens": [WRITE_TOKEN], "read_tokens": [READ_TOKEN], **plan}
    ledger = folder / "ledger.sqlite"
    command = [sys.executable, "-m", "outbox.demo.receiver", "--ledger", str(ledger), "--faults", json.dumps(plan)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = json.loads(process.stdout.readline())["port"]
            with Ledger(ledger) as books:
                yield Demo(f"http://127.0.0.1:{port}", books)
        finally:
            process.terminate()
            process.wait()
