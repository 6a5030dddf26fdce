"""Durations as people write them (`"24h"`, `"5s"`, `"1h30m"`, `"forever"`) and as the code holds them: seconds."""

import math
import re
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

FOREVER: Final = "forever"

_MILLISECONDS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|[dhms])", re.ASCII)
# A hundred years: longer than any provider keeps anything, and far inside what PostgreSQL can add to a date.
_MILLISECONDS_MAX: Final = 36_525 * 86_400_000


def parse_duration(text: object) -> float:
    """
    Return seconds; `math.inf` for "forever". Raises ValueError that says how to write it.

    A bare number is refused: its unit would be a guess. The resolution is one millisecond; what is finer is refused.
    """
    if isinstance(text, timedelta):
        milliseconds = Decimal(text // timedelta(microseconds=1)) / 1000
    elif not isinstance(text, str):
        # Pydantic makes a problem with a place out of a ValueError only.
        raise ValueError('write a duration with its unit, such as "5s", "24h" or "forever"')  # noqa: TRY004
    elif text == FOREVER:
        return math.inf
    else:
        milliseconds = _sum_of_parts(text)
    if milliseconds != milliseconds.to_integral_value():
        raise ValueError("a duration is a whole number of milliseconds")
    if not 0 <= milliseconds <= _MILLISECONDS_MAX:
        raise ValueError('a duration is between "0s" and 100 years; write "forever" for no end')
    return int(milliseconds) / 1000


def _sum_of_parts(text: str) -> Decimal:
    parts = _PART.findall(text)
    units = [unit for _, unit in parts]
    if not parts or "".join(map("".join, parts)) != text or units != sorted(set(units), key=list(_MILLISECONDS).index):
        raise ValueError(f'{text!r} is no duration: write such as "500ms", "5s", "1h30m", "24h", "7d" or "forever"')
    return sum((Decimal(number) * _MILLISECONDS[unit] for number, unit in parts), Decimal(0))


def format_duration(seconds: float) -> str:
    """Return the shortest text that `parse_duration` reads back as the same number of milliseconds."""
    if math.isinf(seconds):
        return FOREVER
    rest = round(seconds * 1000)
    if rest % 3_600_000 == 0 and rest < 3 * 86_400_000:
        return f"{rest // 3_600_000}h" if rest else "0s"
    text = ""
    for unit, milliseconds in _MILLISECONDS.items():
        count, rest = divmod(rest, milliseconds)
        text += f"{count}{unit}" if count else ""
    return text


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["5s", "24h", "forever"]}),
]
"""Seconds in the code, text with units in files and in stored contracts."""
