"""The state diagram of the docs, generated from the table in `states.py`.

`python -m outbox.diagram FILE...` rewrites the blocks between `<!-- generated: states -->` and `<!-- end: states -->`;
a test compares what is there with what the table says.
"""

import re
import sys
from pathlib import Path

from outbox.states import MOVES, STARTS, TERMINAL, State

_BLOCK = re.compile(r"(?<=<!-- generated: states -->\n).*?(?=<!-- end: states -->)", re.DOTALL)

# What a move is called where its two ends do not say it. A move without a name is drawn without one.
NAMES = {
    (State.AUTHORIZED, State.PROPOSED): "policy changed",
    (State.EXECUTING, State.SUCCEEDED): "receipt",
    (State.EXECUTING, State.UNKNOWN): "no answer",
    (State.EXECUTING, State.REJECTED): "refused, no earlier attempt unresolved",
    (State.EXECUTING, State.AUTHORIZED): "not sent or throttled, no earlier attempt unresolved",
    (State.UNKNOWN, State.EXECUTING): "resend: same key inside its window",
    (State.UNKNOWN, State.SUCCEEDED): "confirmed",
    (State.UNKNOWN, State.AUTHORIZED): "proven absent",
    (State.UNKNOWN, State.REJECTED): "proven without effect",
}


def mermaid() -> str:
    """Return the table as a Mermaid diagram, in the order of the table."""
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {state}" for state in MOVES if state in STARTS]
    for before, nexts in MOVES.items():
        for after in (state for state in MOVES if state in nexts):
            name = NAMES.get((before, after))
            lines.append(f"    {before} --> {after}" + (f": {name}" if name else ""))
    lines += [f"    {state} --> [*]" for state in MOVES if state in TERMINAL]
    return "\n".join([*lines, "```", ""])


def renewed(text: str) -> str:
    """Return the text with its generated blocks as they should be."""
    return _BLOCK.sub(lambda _: mermaid(), text)


def main(paths: list[str]) -> None:
    """Rewrite the generated blocks of some files."""
    for path in map(Path, paths):
        path.write_text(renewed(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
