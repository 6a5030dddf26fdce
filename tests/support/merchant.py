"""A receiver as a process of its own, whose books judge: what arrived there, and what happened."""

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from outbox.demo.faults import Fault
from outbox.demo.ledger import Effect, Ledger, Request
from outbox.demo.programs import Program, Programs
from tests.support.eventually import eventually

WRITE_TOKEN: Final = "may-write"
READ_TOKEN: Final = "may-only-read"
# A Python program on a machine that has much else to do.
START_SECONDS_MAX: Final = 45.0


class Merchant:
    """The receiver. It may be stopped, and started again on its old books and its old port."""

    def __init__(self, folder: Path, **plan: Any) -> None:
        self.programs = Programs(folder)
        self.books = folder / "ledger.sqlite"
        self.port = 0
        self._port_file = folder / "receiver.port"
        self.start(**plan)

    def start(self, **plan: Any) -> Program:
        """Start it with a plan of faults (`outbox.demo.faults.FaultPlan`); none: it is perfectly well-behaved."""
        self._port_file.unlink(missing_ok=True)
        plan = {"write_tokens": [WRITE_TOKEN], "read_tokens": [READ_TOKEN], **plan}
        arguments = ["--ledger", str(self.books), "--port-file", str(self._port_file), "--port", str(self.port)]
        self.program = self.programs.start(
            "receiver", "outbox.demo.receiver", [*arguments, "--faults", json.dumps(plan)]
        )
        eventually(self._port_file.exists, START_SECONDS_MAX, claim=f"the receiver serves: {self.program.tail()}")
        self.port = int(self._port_file.read_text())
        return self.program

    def restart(self, **plan: Any) -> None:
        """Stop it, and start it with another plan."""
        self.programs.stop([self.program])
        self.start(**plan)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def break_next(self, fault: Fault, operation_id: str, *, count: int = 1, seconds: float | None = None) -> None:
        """Do this to the next requests of one operation (whose resource is its id)."""
        shot: Mapping[str, Any] = {"fault": fault, "resource": operation_id, "count": count, "seconds": seconds}
        request = urllib.request.Request(f"{self.url}/_control", json.dumps(shot).encode(), method="POST")
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 200

    def waiting_faults(self) -> int:
        """How many of them have not been done yet."""
        with urllib.request.urlopen(f"{self.url}/_control") as answer:
            return len(json.load(answer))

    def effects(self) -> list[Effect]:
        """Everything that happened."""
        with Ledger(self.books) as ledger:
            return ledger.effects()

    def writes(self) -> list[Request]:
        """Every request that could cause an effect."""
        with Ledger(self.books) as ledger:
            return [request for request in ledger.requests() if request.method != "GET"]

    def reads(self) -> list[Request]:
        """Every look, page by page."""
        with Ledger(self.books) as ledger:
            return [request for request in ledger.requests() if request.method == "GET"]

    def faults(self) -> Counter[str]:
        """What was really done."""
        with Ledger(self.books) as ledger:
            return ledger.faults()


@contextmanager
def merchant(folder: Path, **plan: Any) -> Iterator[Merchant]:
    """Start one; it ends with the block."""
    made = Merchant(folder, **plan)
    try:
        yield made
    finally:
        made.programs.stop()
