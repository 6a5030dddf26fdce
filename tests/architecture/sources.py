"""The files that the architecture tests read."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


PRODUCTION = _python_files("outbox", "relay", "reconciler", "migrations")
TESTS = _python_files("tests")


def name_of(path: Path) -> str:
    """The file's path in the repository."""
    return path.relative_to(ROOT).as_posix()


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), path)
