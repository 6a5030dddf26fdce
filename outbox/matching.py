"""What came back over the wire, and whether it fulfils a condition of a contract. Pure; raises on nothing it reads."""

import functools
import json
from collections.abc import Mapping
from typing import Any, Final

import jsonpointer

from outbox.canonical import dumps
from outbox.contract import Match
from outbox.outcome import EXTERNAL_ID_BYTES_MAX, Answer

# The value that a pointer finds where there is none: JSON's null is a value.
MISSING: Final = object()
_UNREAD: Final = object()


class Seen:
    """One answer as it was read: the status, every header (`joined`), and the body as far as it came."""

    __slots__ = ("_document", "body", "fields", "host", "status", "truncated")

    def __init__(
        self,
        status: int,
        fields: Mapping[str, str],
        body: bytes,
        truncated: bool = False,  # noqa: FBT001, FBT002 - one fact of five
        host: str | None = None,
    ) -> None:
        self.status = status
        self.fields = fields
        self.body = body
        self.truncated = truncated
        self.host = host
        self._document: Any = _UNREAD

    @property
    def document(self) -> Any:
        """The body as JSON, or MISSING where it is none, or where it was cut short."""
        if self._document is _UNREAD:
            self._document = MISSING if self.truncated else _read(self.body)
        return self._document

    def at(self, pointer: str) -> Any:
        """Return the value at a JSON pointer, or MISSING."""
        return at(self.document, pointer)

    def answer(self, request_id_header: str | None = None) -> Answer:
        """What is kept of it."""
        fields = self.fields
        if request_id_header is not None:
            request_id = fields.get(request_id_header.lower())
        else:
            request_id = fields.get("request-id", fields.get("x-request-id"))
        return Answer(self.status, self.body[:4_096].decode(errors="replace"), request_id, self.host)

    def record(self) -> str:
        """The body as it is kept for a receipt: canonical JSON where it is JSON, else text."""
        return canonical(self.document, self.body)


def joined(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers by name in lower case; what was sent several times is joined by commas, as RFC 9110 says."""
    fields: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        fields[key] = f"{fields[key]}, {value}" if key in fields else value
    return fields


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        # ValueError: no JSON, no UTF-8, or an integer of more digits than Python converts.
        return MISSING


def canonical(document: Any, body: bytes) -> str:
    """Return RFC 8785 JSON; where the document cannot be written so (or is none), the bytes as text."""
    if document is not MISSING:
        try:
            return dumps(document).decode()
        except (ValueError, RecursionError):
            # NaN, integers beyond 2^53, lone surrogates: legal for Python's reader, not for RFC 8785.
            pass
    return body[:8_192].decode(errors="replace")


@functools.lru_cache(maxsize=1_024)
def _pointer(text: str) -> jsonpointer.JsonPointer:
    return jsonpointer.JsonPointer(text)


def at(document: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer (RFC 6901) of a document, or MISSING."""
    if document is MISSING:
        return MISSING
    try:
        found = _pointer(pointer).resolve(document, MISSING)
    except (jsonpointer.JsonPointerException, TypeError):
        return MISSING
    # "-" points behind the end of an array; the library has an object of its own for it.
    return MISSING if isinstance(found, jsonpointer.EndOfList) else found


def identifier(value: Any) -> str | None:
    """Return a JSON value as an id, or None where it is none: only a text or an integer, not empty, not too long."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    try:
        text = str(value)
        return text if 0 < len(text.encode()) <= EXTERNAL_ID_BYTES_MAX and text.isprintable() else None
    except ValueError:
        # An integer of thousands of digits, or a lone surrogate.
        return None


def matches(match: Match, seen: Seen, sent_key: str) -> bool:
    """Whether all conditions hold. A body that is no whole JSON document fulfils no condition on the body."""
    if match.status and seen.status not in match.status and f"{seen.status // 100}xx" not in match.status:
        return False
    if match.header and not all(
        _is_header(seen.fields.get(name.lower()), wanted, sent_key) for name, wanted in match.header.items()
    ):
        return False
    return not match.reads_body or (
        all(_is_value(wanted, seen.at(pointer), sent_key) for pointer, wanted in match.body.items())
        and all(_ends_with(wanted, seen.at(pointer), sent_key) for pointer, wanted in match.body_suffix.items())
        and all(seen.at(pointer) not in (MISSING, None) for pointer in match.body_present)
    )


def _is_header(value: str | None, wanted: str | bool, sent_key: str) -> bool:  # noqa: FBT001 -- as in TOML
    if isinstance(wanted, bool):
        return wanted == (value is not None)
    return value is not None and value.strip() == wanted.replace("{sent_key}", sent_key)


def _is_value(wanted: Any, value: Any, sent_key: str) -> bool:
    if isinstance(wanted, str):
        return isinstance(value, str) and value == wanted.replace("{sent_key}", sent_key)
    # In JSON true is not 1, although Python thinks so.
    return isinstance(value, bool) == isinstance(wanted, bool) and isinstance(value, int | float) and value == wanted


def _ends_with(wanted: str, value: Any, sent_key: str) -> bool:
    return isinstance(value, str) and value.endswith(wanted.replace("{sent_key}", sent_key))
