"""The demo's receiver as a process of its own, with a ledger that judges."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outbox.demo.faults import Fault
from outbox.demo.ledger import Ledger
from outbox.demo.programs import Program, Programs
from tests.support.eventually import eventually

WRITE_TOKEN, READ_TOKEN = "may-write", "may-only-read"

TOOLS: Mapping[str, Mapping[str, Any]] = {
    # The key is honoured, and can be looked up.
    "stock.set": {
        "request": {"method": "PUT", "path": "/stock/{resource}"},
        "read": {"path": "/operations/{sent_key}", "identity": "/key", "external_id": "/receipt"},
        "contract": {
            "key": {"in": "header", "name": "Idempotency-Key"},
            "key_retention": "24h",
            "in_flight_bound": "2s",
            "lookup": {
                "by": "key",
                "consistency": "strong",
                "absence_is_proof": True,
                "not_found": {"status": [404]},
                "interval": "50ms",
            },
            "answers": [{"status": [200], "means": "receipt", "external_id": "/receipt"}],
        },
    },
    # No key; a list, two at a time, shows the reference that was sent.
    "payment.make": {
        "request": {"method": "POST", "path": "/payments", "inject": {"/reference": "{sent_key}"}},
        "read": {
            "path": "/payments",
            "query": {"limit": "2"},
            "items": "/data",
            "identity": "/reference",
            "external_id": "/id",
            "next": "/next",
            "cursor": "before",
            "max_pages": 5,
        },
        "contract": {
            "in_flight_bound": "2s",
            "lookup": {"by": "reference", "consistency": "strong", "absence_is_proof": True, "interval": "50ms"},
            "answers": [{"status": [201], "means": "receipt", "external_id": "/id"}],
        },
    },
}
# A Python program on a machine that has much else to do.
START_SECONDS_MAX = 45.0
# Deadline + pause bound + in-flight bound.
SETTLE_SECONDS = 1.0 + 2.0 + 2.0


@dataclass
class Warehouse:
    """The running receiver."""

    programs: Programs
    program: Program
    port: int
    books: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def configuration(self) -> dict[str, Any]:
        """The receiver `warehouse` and its tools, as a file would have them."""
        receiver = {
            "transport": "http",
            "base_url": self.url,
            "allow_private_addresses": True,
            "lanes": 1,
            "lease": "2s",
            "auth": {"kind": "bearer", "secret": "env:WAREHOUSE_TOKEN", "id": "main"},
            "read_auth": {"kind": "bearer", "secret": "env:WAREHOUSE_READ_TOKEN", "id": "main-read", "account": "main"},
        }
        tools = {name: {"receiver": "warehouse", "deadline": "1s", **tool} for name, tool in TOOLS.items()}
        return {"receivers": {"warehouse": receiver}, "tools": tools}

    def ledger(self) -> Ledger:
        """Open the books. Close them, or use them as a context."""
        return Ledger(self.books)

    def break_next(self, fault: Fault, tool: str) -> None:
        """Do this to the next request of a tool (`stock`, `payments`)."""
        self.post("/_control", {"fault": fault, "tool": tool})

    def post(self, path: str, document: Mapping[str, Any], token: str = WRITE_TOKEN) -> int:
        """Send a request of nobody's, and return its status."""
        return self._send("POST", path, document, {"Authorization": f"Bearer {token}"})

    def put(self, path: str, document: Mapping[str, Any], key: str) -> int:
        """Send a request with a key, as a relay would, and return its status."""
        return self._send("PUT", path, document, {"Authorization": f"Bearer {WRITE_TOKEN}", "Idempotency-Key": key})

    def _send(self, method: str, path: str, document: Mapping[str, Any], headers: Mapping[str, str]) -> int:
        headers = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.url + path, json.dumps(document).encode(), headers, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def writes(self) -> list[str]:
        """Every request that could cause an effect, and what came of it: the status, or `none`."""
        with self.ledger() as ledger:
            return [str(request.status or "none") for request in ledger.requests() if request.method != "GET"]

    def reads(self) -> int:
        """How many looks there were, page by page."""
        with self.ledger() as ledger:
            return sum(request.method == "GET" for request in ledger.requests())


@contextmanager
def warehouse(folder: Path) -> Iterator[Warehouse]:
    """Start it; it ends with the block, with every other program that was started through it."""
    programs = Programs(folder)
    books, port_file = folder / "ledger.db", folder / "receiver.port"
    plan = {"write_tokens": [WRITE_TOKEN], "read_tokens": [READ_TOKEN]}
    arguments = ["--ledger", str(books), "--port-file", str(port_file), "--faults", json.dumps(plan)]
    try:
        program = programs.start("receiver", "outbox.demo.receiver", arguments)
        eventually(port_file.exists, START_SECONDS_MAX, claim=f"the receiver serves: {program.tail()}")
        yield Warehouse(programs, program, int(port_file.read_text()), books)
    finally:
        programs.stop()
