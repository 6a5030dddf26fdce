"""The diagrams in the docs say what the table says."""

from itertools import product
from pathlib import Path

import pytest

from outbox.diagram import NAMES, mermaid, renewed
from outbox.states import MOVES, State

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["README.md", "docs/protocol.md"])
def test_the_diagram_in_the_docs_is_generated_from_the_table(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")

    assert mermaid() in text
    assert renewed(text) == text


def test_every_move_is_drawn_and_no_other() -> None:
    drawn = {line.strip().partition(":")[0] for line in mermaid().splitlines() if "-->" in line and "[*]" not in line}

    assert drawn == {f"{a} --> {b}" for a, b in product(State, State) if b in MOVES[a]}
    assert all(after in MOVES[before] for before, after in NAMES)
