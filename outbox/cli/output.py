"""
What the commands print: JSON with stable names, tables on a terminal, tab-separated lines into a pipe.

Text that comes from elsewhere (arguments, answers of receivers, notes) is cleaned of everything that a terminal obeys,
and of what turns the order of its characters around.
"""

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from textwrap import fill
from typing import Any, Final, TextIO
from uuid import UUID

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from outbox.decide import FOREVER
from outbox.inspect.words import span
from outbox.outcome import storable

CELL_BYTES_MAX: Final = 10_000
# Columns of sentences.
PROSE: Final = frozenset({"why", "blocked_by", "reason", "problem", "found", "what to do"})
GAP: Final = "  "
# What a terminal obeys and JSON does not escape by itself, what reorders a line or breaks it, and lone surrogates.
_OBEYED: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def write_json(document: Any, stream: TextIO | None = None) -> None:
    """Print one JSON document (on stdout); in lines on a terminal, in one line elsewhere."""
    out = stream or sys.stdout
    out.write(json_text(document, indent=2 if out.isatty() else None) + "\n")


def json_text(document: Any, *, indent: int | None = None) -> str:
    """Return JSON that is safe to print: a character that a terminal obeys stands there as its escape."""
    text = json.dumps(plain(document), ensure_ascii=False, indent=indent, allow_nan=False)
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plain(value: Any) -> Any:
    """Turn values into what JSON has: dates in UTC (RFC 3339), bytes in hexadecimal digits, "forever" for infinity."""
    match value:
        case Mapping():
            return {str(name): plain(part) for name, part in value.items()}
        case str() | bool() | int() | None:
            return value
        case datetime():
            return "forever" if value == FOREVER else value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case float():
            return "forever" if math.isinf(value) else value
        case bytes() | memoryview():
            return bytes(value).hex()
        case UUID():
            return str(value)
        case Sequence():
            return [plain(part) for part in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def safe(value: Any) -> str:
    """A value as text that is safe to print: control characters are replaced, line feeds too. Says where it is cut."""
    if value is None:
        return ""
    text = plain(value)
    if not isinstance(text, str):
        text = json_text(text)
    kept = _OBEYED.sub("\ufffd", storable(text, CELL_BYTES_MAX)).replace("\n", " ").replace("\t", " ")
    size_bytes = len(text.encode(errors="replace"))
    return kept if size_bytes <= CELL_BYTES_MAX else f"{kept} [cut: {size_bytes} bytes in all]"


def exact(text: str) -> str:
    """All of a text in one line, with an escape for each character that nobody would see as what it is."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def write_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str, now: datetime | None = None
) -> None:
    """
    Print rows: a table on a terminal, else a header and lines whose cells are separated by tabs.

    In a table dates are as far from `now` as they are: from the database's clock, where it was asked.
    """
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            sys.stdout.write("\t".join(map(safe, row)) + "\n")
        return
    if not rows:
        say(empty)
        return
    now = now or datetime.now(UTC)
    said = [number for number in range(len(columns)) if any(row[number] not in (None, "") for row in rows)]
    cells = [[_cell(row[number], now) for number in said] for row in rows]
    _print_table([columns[number] for number in said], cells)


def _print_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Whatever the width, no id is folded or cut: sentences stand below their row if they have no room beside it."""
    widths = [max(map(cell_len, (name, *cells))) for name, cells in zip(names, zip(*rows, strict=True), strict=True)]
    console = Console(highlight=False, soft_wrap=True)
    too_wide = sum(widths) + len(GAP) * (len(widths) - 1) > console.width
    below = {number for number, name in enumerate(names) if too_wide and name in PROSE}
    beside = [number for number in range(len(names)) if number not in below]

    def line(cells: Sequence[str]) -> str:
        return GAP.join(set_cell_size(cells[number], widths[number]) for number in beside).rstrip()

    console.print(Text(line(names), style="bold"))
    for cells in rows:
        console.print(Text(line(cells)))
        for number in sorted(below):
            if cells[number]:
                text = f"{names[number]}: {cells[number]}"
                filled = fill(text, console.width, initial_indent="    ", subsequent_indent="    ")
                console.print(Text(filled, style="dim"))


def _cell(value: Any, now: datetime) -> str:
    if not isinstance(value, datetime):
        return safe(value)
    if value == FOREVER:
        return "for ever"
    seconds = (value - now).total_seconds()
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def write_facts(facts: Mapping[str, Any]) -> None:
    """Print names and values, one a line; what is empty is left out."""
    shown = {name: safe(value) for name, value in facts.items() if value not in (None, "", [], {})}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        sys.stdout.write(f"{name.ljust(width)}  {value}\n")


def write_section(title: str, lines: Sequence[str]) -> None:
    """Print a heading and sentences below it; nothing if there are none."""
    if not lines:
        return
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    console.print(Text(title, style="bold"))
    for line in lines:
        console.print(Text(f"  {safe(line)}"))


def say(line: str) -> None:
    """Print one line for people."""
    sys.stdout.write(f"{storable(line, CELL_BYTES_MAX)}\n")


def complain(message: str, hint: str | None, details: Sequence[str] = ()) -> None:
    """Print an error for people, on stderr."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), storable(message, CELL_BYTES_MAX)))
    for detail in details:
        console.print(Text(f"  {storable(detail, CELL_BYTES_MAX)}"))
    if hint:
        console.print(Text.assemble(("hint: ", "bold"), storable(hint, 10 * CELL_BYTES_MAX)))
