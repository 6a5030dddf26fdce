"""The body of a request, from canonical JSON: as it is, with values put into it, or as a form.

Nothing is left out and nothing is overwritten. What an encoding cannot say (null in a form) is refused, and so is a
place where the writer has stated something and the tool would put a value of its own.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn
from urllib.parse import quote_plus

import rfc8785

from outbox import canonical
from outbox.errors import JsonRefused, ReceiverError


class Unsendable(ReceiverError):
    """The intent cannot be put on the wire as its tool demands. Nothing was sent, and nothing ever could be."""

    code = "unsendable"


def json_body(arguments: str, injected: Mapping[str, str]) -> bytes:
    """The stored bytes as they are, unless something is put into them: then their canonical form again."""
    if not injected:
        return arguments.encode()
    value = _parse(arguments)
    for pointer, text in injected.items():
        _put(value, pointer, text)
    try:
        return canonical.canonical(value).encode()
    except JsonRefused as error:
        raise Unsendable(f"the body: {error.reason}") from None


def _parse(arguments: str) -> Any:
    try:
        return canonical.parse(arguments)
    except JsonRefused as error:
        # Written by plain SQL, past the library: the digest is right, the JSON is not.
        raise Unsendable(f"the arguments: {error.reason}") from None


def _put(value: Any, pointer: str, text: str) -> None:
    """Put a text where the pointer says, making objects on the way. What the writer stated is never overwritten."""
    *way, last = (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
    for step in way:
        if not isinstance(value, dict):
            _refuse_place(pointer)
        value = value.setdefault(step, {})
    if not isinstance(value, dict) or last in value:
        _refuse_place(pointer)
    value[last] = text


def _refuse_place(pointer: str) -> NoReturn:
    raise Unsendable(f"the arguments say something else at {pointer}, where the tool puts a value of its own")


def form_body(arguments: str, injected: Mapping[str, str]) -> bytes:
    """Form fields in the order of the canonical arguments; nested values as `a[b]` and `a[0]`, as payment APIs read it.

    A form cannot say null, an empty list or an empty object: refused. Nor may a name hold brackets of its own.
    """
    value = _parse(arguments)
    if not isinstance(value, dict):
        raise Unsendable("a form is made of an object")
    fields = [pair for name, item in value.items() for pair in _flatten(_form_name(name), item)]
    stated = {name for name, _ in fields}
    for name, text in injected.items():
        if name in stated:
            _refuse_place(name)
        fields.append((name, text))
    return "&".join(f"{quote_plus(name)}={quote_plus(text)}" for name, text in fields).encode()


def _flatten(name: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case dict() if value:
            for step, item in value.items():
                yield from _flatten(f"{name}[{_form_name(step)}]", item)
        case list() if value:
            for index, item in enumerate(value):
                yield from _flatten(f"{name}[{index}]", item)
        case str():
            yield name, value
        case bool() | int() | float():
            yield name, rfc8785.dumps(value).decode()
        case _:
            raise Unsendable("a form cannot say null, an empty list or an empty object")


def _form_name(name: str) -> str:
    if not name or "[" in name or "]" in name:
        raise Unsendable("the name of a form field is empty or holds brackets")
    return name
