"""Secrets by reference: `env:NAME` or `file:/path`, with `{tenant}` inside where each tenant has its own.

A configuration holds references, never secrets; so does the database. A reference is resolved when a request is made.
A file is read again as soon as it has changed, so a secret can be rotated under a running daemon. A resolved value has
no representation: it cannot get into a log line, an error or a traceback by being printed.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from outbox.errors import SecretMissing

# A secret is one line of a header. Larger files are something else, mounted by mistake.
SECRET_BYTES_MAX = 16_384

_TENANT = "{tenant}"
# What may stand in for {tenant}: never a path separator, never a leading dot.
_TENANT_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*", re.ASCII)


class Secret:
    """A resolved value. `reveal()` is the only way to see it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself, for the header it goes into and for nothing else."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read from one file, and what the file looked like then."""

    mark: tuple[int, int, int]
    secret: Secret


class Secrets:
    """Resolves references, and remembers the content of files that have not changed since."""

    def __init__(self) -> None:
        self._files: dict[str, _Read] = {}

    def resolve(self, reference: str, tenant_id: str) -> Secret:
        """The secret of this tenant. Raises SecretMissing, which says what is missing and never what was found."""
        kind, _, place = reference.partition(":")
        if _TENANT in place:
            if not _TENANT_SAFE.fullmatch(tenant_id):
                raise SecretMissing(f"the id of this tenant cannot stand in {reference!r}")
            place = place.replace(_TENANT, tenant_id)
        if kind == "env":
            return _checked(os.environ.get(place), f"the environment variable {place}")
        if kind == "file":
            return self._from_file(place)
        raise SecretMissing(f"{kind!r} is no kind of secret reference; there are env: and file:")

    def _from_file(self, path: str) -> Secret:
        try:
            file = Path(path)
            status = file.stat()
            # Secrets mounted by an orchestrator are replaced by renaming: another inode, perhaps the same second.
            mark = (status.st_ino, status.st_mtime_ns, status.st_size)
            known = self._files.get(path)
            if known is not None and known.mark == mark:
                return known.secret
            with file.open(encoding="utf-8") as lines:
                text = lines.read(SECRET_BYTES_MAX + 1)
        except (OSError, UnicodeDecodeError) as error:
            raise SecretMissing(f"the file {path} cannot be read ({type(error).__name__})") from None
        secret = _checked(text.rstrip("\r\n"), f"the file {path}")
        self._files[path] = _Read(mark, secret)
        return secret


def _checked(value: str | None, place: str) -> Secret:
    """Refuse what cannot be sent in a header: it would be cut, or would add headers of its own."""
    if not value:
        raise SecretMissing(f"{place} is empty or not set")
    if len(value) > SECRET_BYTES_MAX:
        raise SecretMissing(f"{place} holds more than {SECRET_BYTES_MAX} bytes")
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise SecretMissing(f"{place} holds characters that cannot travel in a header")
    return Secret(value)
