"""The receiver's own books, in SQLite: the judge of every test and of the demo.

Whether something happened twice, or never, is not for the outbox to say. It is read here, from what a process of its
own wrote down: every request that arrived and every effect that it had. `Books` is the side that the receiver writes,
`Ledger` the side that is read; both may be open at once (SQLite's write-ahead log).
"""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from outbox.sql import parse

BUSY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that happened. `identity` is the key or reference it came with, else the operation id."""

    id: int
    at: float
    tool: str
    identity: str
    operation: str | None
    resource: str
    receipt: str
    body: bytes = field(repr=False)
    request_id: int


@dataclass(frozen=True, slots=True)
class Request:
    """Something that arrived. `fault` is what was done to it on purpose; `status` None: it got no answer."""

    id: int
    at: float
    method: str
    target: str
    tool: str
    identity: str
    operation: str | None
    fence: str | None
    fault: str | None
    status: int | None


class Ledger:
    """Reads the books of a receiver, which may be running, stopped or dead."""

    def __init__(self, path: str | Path) -> None:
        # Not read-only: the first reader of a write-ahead log may have to recover it.
        self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        self._sql = statements()

    def effects(self, tool: str | None = None) -> list[Effect]:
        """All effects, of one tool or of all, in the order in which they happened."""
        found = [Effect(*row) for row in self._db.execute(self._sql["effects"])]
        return [effect for effect in found if tool in (None, effect.tool)]

    def effects_of(self, identity: str) -> list[Effect]:
        """The effects of one key, reference or operation. More than one is what must not be."""
        return [effect for effect in self.effects() if effect.identity == identity]

    def requests(self, tool: str | None = None) -> list[Request]:
        """All requests, reads included, in the order in which they arrived."""
        found = [Request(*row) for row in self._db.execute(self._sql["requests"])]
        return [request for request in found if tool in (None, request.tool)]

    def duplicates(self) -> dict[tuple[str, str], int]:
        """(tool, identity) of everything that happened more than once, and how often."""
        return {(tool, identity): count for tool, identity, count in self._db.execute(self._sql["duplicates"])}

    def count_effects(self, tool: str | None = None) -> int:
        """How many effects there are."""
        return self._count("count_effects", tool)

    def count_requests(self, tool: str | None = None) -> int:
        """How many requests arrived that may cause an effect; reads do not count."""
        return self._count("count_requests", tool)

    def faults(self) -> Counter[str]:
        """How often each fault was really done: a test whose faults never landed has shown nothing."""
        return Counter(request.fault for request in self.requests() if request.fault is not None)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count(self, name: str, tool: str | None) -> int:
        return int(self._db.execute(self._sql[name], {"tool": tool}).fetchone()[0])


class Books:
    """The writing side: one connection, for the receiver. Nothing here waits; SQLite is a local file."""

    def __init__(self, path: str | Path) -> None:
        self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        self._sql = statements()
        self._db.execute("pragma journal_mode=wal")
        # What was written survives the death of the process, which is what a test does to it; not that of the machine.
        self._db.execute("pragma synchronous=off")
        for name in self._sql:
            if name.startswith("create_"):
                self._db.execute(self._sql[name])

    def run(self, name: str, /, **parameters: Any) -> sqlite3.Cursor:
        """Run one named statement."""
        return self._db.execute(self._sql[name], parameters)

    def one(self, name: str, /, **parameters: Any) -> tuple[Any, ...] | None:
        """The first row of one named statement, or None."""
        row: tuple[Any, ...] | None = self.run(name, **parameters).fetchone()
        return row

    def begin(self) -> None:
        """What follows, up to `commit`, happens together or not at all."""
        self._db.execute("begin immediate")

    def commit(self) -> None:
        """Make it so."""
        self._db.execute("commit")

    def close(self) -> None:
        """Close the file."""
        self._db.close()


@cache
def statements() -> Mapping[str, str]:
    """The statements of ledger.sql by name."""
    return parse((files("outbox.demo") / "ledger.sql").read_text(encoding="utf-8"), "ledger.sql").statements
