"""Templates such as `/stock/{resource}`: names in braces and nothing else. A brace that means itself is doubled."""

import functools
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Final

_FORMATTER: Final = Formatter()


@functools.lru_cache(maxsize=4_096)
def parse(template: str) -> tuple[tuple[str, str | None], ...]:
    """
    Split into pairs of literal text and the variable that follows it (None at the end).

    Raises ValueError for unbalanced braces, for a name that is no plain word, and for conversions or formats: a
    template reads attributes of nothing.
    """
    pairs: list[tuple[str, str | None]] = []
    for literal, name, spec, conversion in _FORMATTER.parse(template):
        if spec or conversion or (name is not None and not (name.isascii() and name.isidentifier())):
            raise ValueError("a template holds plain names in braces, such as {resource}; write {{ for a brace")
        pairs.append((literal, name))
    return tuple(pairs)


def variables(template: str) -> frozenset[str]:
    """Return the names that a template uses."""
    return frozenset(name for _, name in parse(template) if name is not None)


def expand(template: str, values: Mapping[str, str], quote: Callable[[str], str] = str) -> str:
    """Fill a template; `quote` is applied to each value. Raises KeyError for a name without a value."""
    return "".join(literal + (quote(values[name]) if name is not None else "") for literal, name in parse(template))
