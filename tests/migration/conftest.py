"""The schema as text, so that two ways to it can be compared."""

import re
import subprocess
from collections.abc import Callable

import pytest

from outbox.embedded import find_binaries
from tests.support.postgres import Database

# What differs from run to run, or from server to server, and says nothing about the schema.
NOISE = re.compile(r"(--.*|\\(un)?restrict .*|SET .*|SELECT pg_catalog\.set_config.*|\s*)\n")

Dump = Callable[[Database], str]


@pytest.fixture(scope="session")
def dump() -> Dump:
    """Describe the schema `outbox` of a database: tables, functions, triggers, grants, one statement after another."""
    pg_dump = find_binaries("embedded").path / "pg_dump"  # the newest that we support, which reads all older servers

    def run(database: Database) -> str:
        command = [str(pg_dump), "--schema-only", "--schema=outbox", "--no-owner", database.dsn]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return "".join(line for line in text.splitlines(keepends=True) if not NOISE.fullmatch(line))

    return run
