"""From a stored intent to the bytes on the wire: a pure function of the wiring, the stored bytes and the sent key.

The same operation under the same wiring gives the same request today and after a restart in a month: no clock, no
random number, no iteration order of a set goes in. `wire_digest` is pinned at the first exposure, and a resend that
would differ is refused: one key always carries the same bytes to the same place. What may differ between two sends of
one request is not in here: credentials, trace context, fence.

Values that a model may have chosen (`{resource}`) are percent-encoded, and refused where a server that decodes too
early could read a way out of the path.
"""

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlsplit

from outbox import template
from outbox.contract import Key, Precondition, Request, Wiring
from outbox.digest import encode_fields
from outbox.wire_body import Unsendable, form_body, json_body
from outbox.wire_message import Message

__all__ = [
    "Fields",
    "Payload",
    "Unsendable",
    "WireRequest",
    "build",
    "build_read",
    "build_verify",
    "digest_of",
    "request_of",
    "wire_digest",
]

JSON_TYPE = "application/json"
FORM_TYPE = "application/x-www-form-urlencoded"
TARGET_CHARS_MAX = 8_000

_HEADER_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
_DOTS = frozenset({".", ".."})


class Fields(Protocol):
    """What of an operation stands in a target or a header."""

    @property
    def tenant_id(self) -> str:
        """Whose it is."""

    @property
    def operation_id(self) -> str:
        """Its caller-stable identity."""

    @property
    def resource(self) -> str | None:
        """What it acts on."""

    @property
    def expected_version(self) -> str | None:
        """The version that the decision was made on."""

    @property
    def sent_key(self) -> str:
        """The key that the receiver sees."""


class Payload(Fields, Protocol):
    """Those fields, and what is sent: canonical JSON, or a body with its content type."""

    @property
    def arguments(self) -> str | None:
        """RFC 8785 JSON."""

    @property
    def body(self) -> bytes | None:
        """Bytes in its place."""

    @property
    def content_type(self) -> str | None:
        """What those bytes are."""


class WireRequest(NamedTuple):
    """One request, complete but for credentials, trace context and fence. Path and query are encoded already."""

    method: str
    scheme: str
    host: str
    path: str
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"WireRequest({self.method} {self.scheme}://{self.host}{self.path})"  # never what it asks for

    @property
    def target(self) -> str:
        """What stands in the request line."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def url(self) -> str:
        """The whole URL, not to be normalised by anybody."""
        return f"{self.scheme}://{self.host}{self.target}"


def build(wiring: Wiring, operation: Payload) -> WireRequest:
    """The request that asks for the effect. Raises Unsendable, whose message holds no argument and no body."""
    request = wiring.request
    if request is None:
        raise Unsendable(f"the tool {wiring.tool} does not say how its request is made")
    values = _values(operation)
    key = wiring.contract.key if isinstance(wiring.contract.key, Key) else None
    query = [(name, _fill(text, values)) for name, text in request.query.items()]
    if key is not None and key.in_ == "query":
        query.append((key.name or "", operation.sent_key))
    body, content_type = _body(request, key, operation, values)
    headers = _merged(wiring.receiver.headers, request.headers)
    if content_type is not None:
        headers.append(("Content-Type", content_type))
    if key is not None and key.in_ == "header":
        headers.append((key.name or "", f'"{operation.sent_key}"' if key.form == "quoted" else operation.sent_key))
    headers += _precondition(wiring, operation)
    return _Target(wiring, request.path, values).request(request.method, query, headers, body)


def build_read(wiring: Wiring, operation: Fields, cursor: str | None = None) -> WireRequest:
    """The look-up, or one further page of it. Raises Unsendable."""
    read = wiring.read
    if read is None:
        raise Unsendable(f"the tool {wiring.tool} does not say how a look is made")
    values = _values(operation)
    query = [(name, _fill(text, values)) for name, text in read.query.items()]
    if cursor is not None and read.cursor is not None:
        query = [pair for pair in query if pair[0] != read.cursor] + [(read.cursor, cursor)]
    headers = _merged(wiring.receiver.headers, read.headers)
    return _Target(wiring, read.path, values).request(read.method, query, headers)


def build_verify(wiring: Wiring, path: str, operation: Fields, external_id: str) -> WireRequest:
    """The read that a success signal must pass before it is a receipt. Raises Unsendable."""
    values = _values(operation) | {"external_id": external_id}
    headers = _merged(wiring.receiver.headers, wiring.read.headers if wiring.read is not None else {})
    return _Target(wiring, path, values).request("GET", [], headers)


def wire_digest(request: WireRequest, sent_key: str) -> bytes:
    """SHA-256 of everything that may not change between two sends under one key, 32 bytes."""
    fixed = ("wire", request.method, f"{request.scheme}://{request.host}", request.path, request.query, sent_key)
    named = [part for name, value in request.headers for part in (name.lower(), value)]
    return hashlib.sha256(encode_fields(*fixed, request.body, *named)).digest()


def digest_of(wiring: Wiring, operation: Payload, request: WireRequest | None = None) -> bytes | None:
    """
    The digest of what would be sent, whichever the transport; None where only the transport knows what that is.

    `request`: what `request_of` gave. Raises Unsendable.
    """
    if wiring.receiver.transport == "postgres":
        return Message.of(wiring.tool, operation).digest
    request = request or request_of(wiring, operation)
    return None if request is None else wire_digest(request, operation.sent_key)


def request_of(wiring: Wiring, operation: Payload) -> WireRequest | None:
    """The request that asks for the effect; None where it is asked for in another way. Raises Unsendable."""
    if wiring.request is None or wiring.receiver.transport == "postgres":
        return None
    return build(wiring, operation)


# ---------------------------------------------------------------------------------------------------------- the target


class _Target(NamedTuple):
    """Where a request goes: a path template under the base URL of a receiver."""

    wiring: Wiring
    path: str
    values: Mapping[str, str]

    def request(
        self, method: str, query: Iterable[tuple[str, str]], headers: list[tuple[str, str]], body: bytes = b""
    ) -> WireRequest:
        """Put together, checking what is unsafe in a target or a header."""
        scheme, host, prefix = _origin(self.wiring.receiver.base_url)
        path = prefix + _fill(self.path, self.values, _path_value)
        if not _DOTS.isdisjoint(path.split("/")):
            raise Unsendable("the path has a dot segment")
        for name, value in headers:
            if not _HEADER_VALUE.fullmatch(value):
                raise Unsendable(f"the value of {name} cannot travel in a header")
        names = [name.lower() for name, _ in headers]
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise Unsendable(f"a header is there twice: {', '.join(twice)}")
        encoded = "&".join([f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query])
        request = WireRequest(method, scheme, host, path, encoded, tuple(headers), body)
        if len(request.target) > TARGET_CHARS_MAX:
            raise Unsendable(f"the target is longer than {TARGET_CHARS_MAX} characters")
        return request


@functools.lru_cache(maxsize=1_024)
def _origin(base_url: str) -> tuple[str, str, str]:
    """Scheme, host with its port, and what stands before every path."""
    base = urlsplit(base_url)
    return base.scheme, base.netloc, base.path.rstrip("/")


def _values(operation: Fields) -> dict[str, str]:
    """What templates may name. What an operation does not have is not in here."""
    values = {
        "tenant_id": operation.tenant_id,
        "operation_id": operation.operation_id,
        "sent_key": operation.sent_key,
    }
    if operation.resource is not None:
        values["resource"] = operation.resource
    if operation.expected_version is not None:
        values["expected_version"] = operation.expected_version
    return values


def _fill(text: str, values: Mapping[str, str], encode: Callable[[str], str] = str) -> str:
    if "{" not in text and "}" not in text:
        return text
    try:
        return template.expand(text, values, encode)
    except KeyError as error:
        raise Unsendable(f"the tool needs {error.args[0]}, which the intent does not state") from None


def _path_value(value: str) -> str:
    """Encode a value that becomes part of a path.

    A server that decodes %2F before it routes, or cuts path parameters off (`..;x`), would read a dot segment in what
    is none here. So no piece of the value, between slashes of either kind and before a semicolon, may be dots.
    """
    if not value:
        raise Unsendable("an empty value would name another path")
    if any(piece.partition(";")[0] in _DOTS for piece in re.split(r"[/\\]", value)):
        raise Unsendable("a value in the path holds a dot segment")
    return quote(value, safe="")


# ---------------------------------------------------------------------------------------------------------- the headers


def _precondition(wiring: Wiring, operation: Payload) -> list[tuple[str, str]]:
    precondition = wiring.contract.precondition
    if not isinstance(precondition, Precondition):
        return []
    version = operation.expected_version
    if version is None:
        if wiring.needs_version:
            raise Unsendable("the tool needs expected_version: it is all that stands against a second effect")
        return []
    if '"' in precondition.format and re.search(r'["\\ ]', version):
        raise Unsendable("expected_version holds a character that an entity tag cannot hold")
    return [(precondition.header, _fill(precondition.format, {"expected_version": version}))]


def _merged(common: Mapping[str, str], own: Mapping[str, str]) -> list[tuple[str, str]]:
    """The receiver's headers and the tool's; the tool's own win."""
    if not common:
        return list(own.items())
    taken = {name.lower() for name in own}
    return [*((name, value) for name, value in common.items() if name.lower() not in taken), *own.items()]


# ------------------------------------------------------------------------------------------------------------ the body


def _body(request: Request, key: Key | None, operation: Payload, values: Mapping[str, str]) -> tuple[bytes, str | None]:
    """The body, and its content type (None: there is no body)."""
    injected = {name: _fill(text, values) for name, text in request.inject.items()}
    if key is not None and key.in_ == "body":
        injected[key.pointer or key.name or ""] = operation.sent_key
    if operation.body is not None:
        if injected:
            raise Unsendable("the tool puts something into a JSON or form body, and the intent has a body of its own")
        return operation.body, operation.content_type
    if operation.arguments is None:
        raise Unsendable("the arguments are gone: they were redacted")
    if request.encoding == "form":
        return form_body(operation.arguments, injected), request.content_type or FORM_TYPE
    if request.method == "DELETE" and operation.arguments == "{}" and not injected:
        return b"", None
    return json_body(operation.arguments, injected), request.content_type or JSON_TYPE
