"""A reconciler has no code path that causes an effect: not by what it imports, not by what it calls, not by its SQL."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import reconciler
from outbox import sql
from outbox.registry import READING
from reconciler.service import STATEMENTS

SOURCES = sorted(Path(reconciler.__file__).parent.glob("*.py"))
# What begins, builds or delivers an attempt.
FORBIDDEN = {
    "Attempt",
    "HttpReceiver",
    "Gate",
    "after_attempt",
    "build",
    "deliver",
    "put",
    "relay",
    "wire",
    "wire_digest",
}
# Tables whose rows say that an attempt has begun, or how an operation ended. Functions of the database write them.
WRITES = re.compile(r"\b(update|insert\s+into|delete\s+from|merge\s+into)\s+(outbox\.\w+)", re.IGNORECASE)
WRITTEN = {"outbox.doubt", "outbox.landing", "outbox.member"}
CALLED = {
    "allow_resend",
    "chore_took",
    "claim_chore",
    "database_oid",
    "enter_era",
    "expire",
    "forget",
    "now",
    "place_of",
    "redecide",
    "seize",
    "settle_all",
    "sweep_era",
    "sweep_orphans",
    "timeline",
    "witness",
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_module_names_what_could_send(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
    }
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    calls = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} - {"put"}  # a gauge is put, too
    assert (names | calls | {part for module in modules for part in module.split(".")}) & FORBIDDEN == set()


def test_importing_it_loads_nothing_that_sends() -> None:
    program = "import sys, reconciler.__main__; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    sending = [name for name in loaded if name.split(".")[0] == "relay" or name in {"outbox.wire", "aiohttp"}]
    assert sending == []


def test_every_receiver_is_opened_for_reading_only() -> None:
    opened = [
        node
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("open_receiver")
    ]
    assert [ast.unparse(call) for call in opened] == ["open_receiver(name, config, reads_only=True)"]


@pytest.mark.parametrize("group", [STATEMENTS, "daemon", READING])
def test_no_statement_of_it_begins_an_attempt_or_ends_an_operation(group: str) -> None:
    for statement in sql.load(group).values():
        assert {table for _, table in WRITES.findall(statement)} <= WRITTEN
        assert set(re.findall(r"outbox\.(\w+)\(", statement)) <= CALLED
