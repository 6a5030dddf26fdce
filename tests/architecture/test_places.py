"""Things that have one place each, so that a reader knows where to look and a change has one diff."""

import ast
import re
from pathlib import Path

import pytest

from outbox.states import State
from tests.architecture.sources import PRODUCTION, TESTS, name_of, tree_of

# Who runs SQL, and why. All of it lies in outbox/sql/*.sql and migrations/**.sql, except what is said here.
RUNS_SQL = {
    "outbox/migrate.py": "runs the migrations, and asks the server about itself before",
    "outbox/put.py": "the one INSERT, on the caller's own connection",
    "outbox/receivers/postgres/kit.py": "installs an inbox in the database of a receiver",
    "outbox/store.py": "the statements of the daemons and the commands",
}
# A demo plays the service and the receiver too, and these have tables of their own.
RUNS_SQL_OF_ITS_OWN = "outbox/demo/"

# Who names a state, and why.
NAMES_STATES = {
    "outbox/states.py": "the table, and the law above it",
    "outbox/decide/": "the rules",
    "outbox/demo/verdict.py": "counts how operations ended",
    "outbox/diagram.py": "draws the table",
    "outbox/doubt.py": "has facts of what is unknown only",
    "outbox/evidence.py": "says what speaks against a state",
    "outbox/inspect/": "explains a state to people",
    "reconciler/act.py": "carries out a decision as the one move that it means",
    "reconciler/settle.py": "leaves what executes to its holder",
}

STATEMENT = re.compile(
    r"\s*(select\s.+|insert\s+into\s.+|update\s+\S+\s+set\s.+|delete\s+from\s.+|with\s+\w+\s+as\s.+|truncate\s+\S+"
    r"|(create|alter|drop)\s+(table|database|role|schema|index|function|type|view)\s.+|set\s+\w+\s*(=|to)\s.+"
    r"|(un)?listen\s+\S+|notify\s+\S+|begin|commit|rollback)\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
RUNNING = {"execute", "executemany", "executescript", "exec_driver_sql"}


def docstrings(tree: ast.Module) -> set[ast.expr]:
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    firsts = [node.body[0] for node in ast.walk(tree) if isinstance(node, nodes) and node.body]
    return {first.value for first in firsts if isinstance(first, ast.Expr)}


def sql_in(path: Path) -> list[str]:
    """The places in a file that hold a statement of SQL or run one."""
    tree = tree_of(path)
    prose = docstrings(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            if STATEMENT.fullmatch(node.value) and " " in node.value.strip():
                found.append(f"{node.lineno}: {node.value[:60]!r}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RUNNING:
            found.append(f"{node.lineno}: .{node.func.attr}(...)")
    return found


@pytest.mark.parametrize("path", PRODUCTION, ids=name_of)
def test_sql_is_only_where_it_belongs(path: Path) -> None:
    if name_of(path) not in RUNS_SQL and not name_of(path).startswith(RUNS_SQL_OF_ITS_OWN):
        assert sql_in(path) == []


@pytest.mark.parametrize("place", RUNS_SQL)
def test_every_exception_for_sql_is_still_needed(place: str) -> None:
    assert [path for path in PRODUCTION if name_of(path) == place and sql_in(path)] != []


@pytest.mark.parametrize(
    ("text", "is_sql"),
    [
        ("select 1 from outbox.intent", True),
        ("  INSERT INTO outbox.intent\n VALUES (1)", True),
        ("update outbox.lane set owner = null", True),
        ("set role outbox_relay", False),  # no statement of ours; `set x = y` and `set x to y` are
        ("Select a receiver with --receiver.", True),  # too eager on such prose: choose other words
        ("updated", False),
        ("with one lane", False),
        ("delete", False),
    ],
)
def test_the_rule_tells_sql_from_prose(text: str, is_sql: bool) -> None:
    assert bool(STATEMENT.fullmatch(text)) is is_sql


def names_a_state(path: Path) -> bool:
    attributes = (ast.unparse(node) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute))
    return not {f"State.{state.name}" for state in State}.isdisjoint(attributes)


@pytest.mark.parametrize("path", PRODUCTION, ids=name_of)
def test_only_these_files_name_a_state(path: Path) -> None:
    """Any other reads a state, passes it on or asks `outbox.states`: what follows from it is decided in one place."""
    if not name_of(path).startswith(tuple(NAMES_STATES)):
        assert not names_a_state(path)


@pytest.mark.parametrize("place", NAMES_STATES)
def test_every_exception_for_states_is_still_needed(place: str) -> None:
    assert any(names_a_state(path) for path in PRODUCTION if name_of(path).startswith(place))


def test_a_broad_except_exists_only_at_the_edge_of_an_attempt() -> None:
    broad = [name_of(path) for path in PRODUCTION for node in ast.walk(tree_of(path)) if swallows_everything(node)]
    assert broad in ([], ["relay/attempt.py"])


def swallows_everything(node: ast.AST) -> bool:
    """Whether this handler catches every exception and does not raise it again."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    broad = node.type is None or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"})
    return broad and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_tests_wait_for_conditions_and_never_sleep(path: Path) -> None:
    if name_of(path) != "tests/support/eventually.py":
        calls = [ast.unparse(node) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
        slept = [call for call in calls if re.match(r"(time\.|asyncio\.)?sleep\(", call)]
        # asyncio.sleep(0) waits for nothing: it lets others run.
        assert [call for call in slept if call != "asyncio.sleep(0)"] == []


# Who cancels something by himself, and why once is enough, or how it insists.
CANCELS = {
    "outbox/daemon/stop.py": "cancels until a task has ended",
    "outbox/deadline.py": "timers",
    "outbox/receivers/conformance.py": "tries what a receiver does when it is cancelled",
    "outbox/receivers/http/exchange.py": "a loop of its own that does nothing but sleep",
    "reconciler/lookup.py": "a timer",
    "relay/flight.py": "cancels an attempt until it has ended, and a timer",
}


@pytest.mark.parametrize("path", PRODUCTION, ids=name_of)
def test_a_task_is_cancelled_until_it_has_ended_and_not_only_once(path: Path) -> None:
    """And nothing waits with `asyncio.wait_for`, which swallows a cancellation before Python 3.12."""
    called = {
        node.func.attr
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert "wait_for" not in called
    assert ("cancel" in called) is (name_of(path) in CANCELS)
