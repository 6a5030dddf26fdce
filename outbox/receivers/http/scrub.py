"""
Our own credentials, taken out of an answer before anything else reads it.

A debug endpoint, a proxy's error page or a careless framework may answer with the headers that it was sent. What we
keep of an answer (an excerpt, a receipt, an id) is stored, shown and logged, and must not hold one.
"""

import base64
import binascii
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

# A shorter one hides nothing, and would be found inside of words that mean something else.
SECRET_CHARS_MIN: Final = 8
MASK: Final = b"***"


@dataclass(frozen=True, slots=True)
class Scrub:
    """What is to be taken out of the answer to one request."""

    literals: tuple[bytes, ...] = ()
    """As it stands in most answers that have it: as sent, or as base64."""
    escaped: tuple[re.Pattern[bytes], ...] = ()
    """As JSON, or a URL, may write it. Looked for where something is escaped at all: it takes much longer."""

    @classmethod
    def of(cls, credentials: Iterable[str]) -> "Scrub":
        """What shows these header values."""
        parts = [_scrub_of(value) for value in credentials]
        if len(parts) <= 1:
            return parts[0] if parts else cls()
        return cls(tuple(x for part in parts for x in part.literals), tuple(x for part in parts for x in part.escaped))

    def body(self, data: bytes) -> bytes:
        """Return it without them. Of two that overlap nothing is left, whichever is found first."""
        kept, end = bytearray(), 0
        for start, stop in sorted(self._found(data)):
            if start >= end:
                kept += data[end:start] + MASK
            end = max(end, stop)
        return bytes(kept + data[end:]) if end else data

    def _found(self, data: bytes) -> Iterator[tuple[int, int]]:
        for literal in self.literals:
            start = data.find(literal)
            while start >= 0:
                yield start, start + len(literal)
                start = data.find(literal, start + len(literal))
        if b"\\" in data or b"%" in data:
            for pattern in self.escaped:
                yield from (match.span() for match in pattern.finditer(data))

    def headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return headers without them."""
        if not self.literals and not self.escaped:
            return headers
        together = "\n".join(headers.values()).encode("utf-8", "surrogateescape")
        if self.body(together) == together:
            return headers
        return {
            name: self.body(value.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
            for name, value in headers.items()
        }


@functools.lru_cache(maxsize=1_024)
def _scrub_of(credential: str) -> Scrub:
    secrets = dict.fromkeys(one for one in _secrets(credential) if len(one) >= SECRET_CHARS_MIN)
    literals = [*secrets, *(core for secret in secrets for core in _base64(secret))]
    return Scrub(
        tuple(dict.fromkeys(literal.encode() for literal in literals)),
        tuple(re.compile("".join(map(_character, secret)).encode()) for secret in secrets),
    )


def _secrets(credential: str) -> Iterator[str]:
    """Return the value of a header, what follows its scheme, and what that hides where it is `Basic`."""
    yield credential
    scheme, _, token = credential.partition(" ")
    if token:
        yield token.strip()
    if scheme.lower() == "basic":
        try:
            pair = base64.b64decode(token, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return
        yield pair
        yield pair.partition(":")[2]


def _character(one: str) -> str:
    """A character as it is, or escaped as in JSON (also in JSON within JSON) or in a URL."""
    code = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{ord(one):02x}")
    escaped = "" if one.isalnum() else rf"|\\{{1,8}}{re.escape(one)}"
    return rf"(?:{re.escape(one)}|\\u00{code}|%{code}{escaped})"


def _base64(secret: str) -> Iterator[str]:
    """What base64 of a longer text shows where the secret stands in it, at any offset, in both alphabets."""
    for offset in range(3):
        whole = base64.b64encode(b"\0" * offset + secret.encode()).decode().rstrip("=")
        # The first characters mix with what stands before, the last one with what follows.
        core = whole[(0, 2, 3)[offset] : len(whole) - ((offset + len(secret)) % 3 != 0)]
        yield core
        yield core.replace("+", "-").replace("/", "_")
