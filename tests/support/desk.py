"""An operator's desk for tests of the command line: a database with real contracts, and operations in any state."""

from pathlib import Path
from typing import Any, Final

from tests.support.commands import CommandLine, whoami
from tests.support.postgres import Database
from tests.support.stage import Clock, Holder, Stage

KEYED: Final = "inventory.set_available"
BLIND: Final = "mail.send"
ASKING: Final = "grant.add"

FILE: Final = """
[database]
dsn = "{dsn}"
[receivers.warehouse]
transport = "http"
base_url = "http://127.0.0.1:9000"
lanes = 1
allow_private_addresses = true
[tools."inventory.set_available"]
receiver = "warehouse"
deadline = "5s"
request = {{ method = "PUT", path = "/stock/{{resource}}" }}
read = {{ path = "/operations/{{sent_key}}", identity = "/key" }}
[tools."inventory.set_available".contract]
key = {{ in = "header", name = "Idempotency-Key" }}
key_retention = "24h"
in_flight_bound = "30s"
lookup = {{ by = "key", consistency = "strong", absence_is_proof = true, not_found = {{ status = [404] }} }}
source = "the warehouse team"
verified_at = 2026-11-29
[tools."mail.send"]
receiver = "warehouse"
deadline = "5s"
request = {{ path = "/mail" }}
[tools."grant.add"]
receiver = "warehouse"
requires_approval = true
deadline = "5s"
request = {{ path = "/grants" }}
"""


class Desk:
    """One database, one lane that is held, a clock that can be moved, and a command line."""

    def __init__(self, database: Database, stage: Stage, folder: Path) -> None:
        self.database = database
        self.stage = stage
        self.clock = Clock(database)
        config = folder / "outbox.toml"
        config.write_text(FILE.format(dsn=database.dsn))
        self.run = CommandLine(folder, config)
        assert self.run("apply").code == 0
        self.me = whoami()
        self._holder: Holder | None = None

    @property
    def holder(self) -> Holder:
        """Whoever holds the lane."""
        if self._holder is None:
            self._holder = self.stage.holder().taken(ttl_seconds=100_000)
        return self._holder

    def put(self, name: str, tool: str = KEYED, **columns: Any) -> int:
        """Put an operation."""
        return self.stage.put(name, tool, "shop", **columns)

    def executing(self, name: str, tool: str = KEYED, **columns: Any) -> int:
        """Put one and begin an attempt."""
        seq = self.put(name, tool, **columns)
        assert self.holder.begin_these(seq)
        return seq

    def unknown(self, name: str, tool: str = KEYED, *, answer: dict[str, Any] | None = None, **columns: Any) -> int:
        """Put one, attempt it, and hear nothing that proves anything."""
        seq = self.executing(name, tool, **columns)
        assert self.holder.record_unknown(seq, 1, **(answer or {})) == [seq]
        return seq

    def ended(self, name: str, state: str, tool: str = KEYED, **columns: Any) -> int:
        """Put one and end it by its first attempt."""
        seq = self.executing(name, tool, **columns)
        assert self.holder.end((seq, 1), state=state) == [seq]
        return seq

    def in_state(self, column: str, name: str) -> int:
        """Put an operation into the state that a column of docs/cli.md names."""
        match column:
            case "proposed":
                return self.put(name, ASKING)
            case "authorized":
                return self.put(name)
            case "executing":
                return self.executing(name)
            case "unknown, a resend is safe":
                return self.unknown(name)
            case "unknown, no resend is":
                return self.unknown(name, BLIND)
        return self.ended(name, column)
