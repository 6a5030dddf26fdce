"""Sizes are limits, not goals: what outgrows one is two things."""

import ast
import statistics
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.sources import PRODUCTION, TESTS, name_of, tree_of

FUNCTION_LINES_MAX = 50
FUNCTION_LINES_P95_MAX = 35
MODULE_LINES_MAX = 300


@dataclass(frozen=True, slots=True)
class Function:
    place: str
    lines: int


def functions(path: Path) -> list[Function]:
    return [
        Function(f"{name_of(path)}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@pytest.mark.parametrize("path", [*PRODUCTION, *TESTS], ids=name_of)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    assert [found for found in functions(path) if found.lines > FUNCTION_LINES_MAX] == []


@pytest.mark.parametrize("path", PRODUCTION, ids=name_of)
def test_a_module_is_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MODULE_LINES_MAX


def test_most_functions_are_small() -> None:
    lines = [found.lines for path in PRODUCTION for found in functions(path)]
    assert statistics.quantiles(lines, n=20)[-1] <= FUNCTION_LINES_P95_MAX
