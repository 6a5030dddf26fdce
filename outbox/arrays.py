"""
Lists as PostgreSQL writes them, `{1,2,NULL}`: the parameters of statements that act on many rows at once.

The driver can do this too, but looks at the type of every element; with a dozen lists per statement and hundreds of
rows that was a tenth of what an operation costs. Here a list holds values of one type, or None.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID


def literal(values: Sequence[Any]) -> str:
    """
    Write a list as the text of an array. A type that no statement has is a mistake: KeyError.

    So is a value of another type than the first; what is written would be read as several: TypeError or AttributeError.
    """
    kind = next((type(value) for value in values if value is not None), None)
    if kind is None:
        return "{" + ",".join(["NULL"] * len(values)) + "}"
    write = _WRITERS[next((base for base in kind.__mro__ if base in _WRITERS), kind)]
    return "{" + ",".join(["NULL" if value is None else write(value) for value in values]) + "}"


def literals(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Write every list among the parameters of a statement."""
    return {name: literal(value) if isinstance(value, list) else value for name, value in parameters.items()}


def _quoted(text: str) -> str:
    if text.isalnum() and len(text) != len("NULL"):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _number(value: float) -> str:
    return repr(value + 0)


_WRITERS: Final[Mapping[type, Callable[[Any], str]]] = {
    bool: lambda value: "t" if value else "f",
    bytes: lambda value: f'"\\\\x{value.hex()}"',
    datetime: lambda value: f'"{value.isoformat()}"',
    float: _number,
    int: _number,
    str: _quoted,
    UUID: UUID.__str__,
}
