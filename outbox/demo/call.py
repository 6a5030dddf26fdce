"""A request to the demo's receiver, as far as it matters what it wants."""

import contextlib
import hashlib
import json
import uuid
from dataclasses import dataclass

from aiohttp import web

# Tools that ignore an Idempotency-Key.
_NO_KEYS = frozenset({"payments", "mail"})


@dataclass(frozen=True, slots=True)
class Call:
    """A request that wants an effect."""

    tool: str
    resource: str
    identity: str
    operation: str | None
    key: str | None
    if_match: str | None
    fence: tuple[str, int] | None
    body: bytes
    fingerprint: bytes


def read_call(request: web.Request, body: bytes) -> Call:
    """Who wants what. The identity of an effect is its key or reference, else the operation that it belongs to."""
    segments = request.path.strip("/").split("/")
    tool = segments[0] or "root"
    operation = request.headers.get("Outbox-Operation")
    key = None if tool in _NO_KEYS else request.headers.get("Idempotency-Key", "").strip('"') or None
    reference = None
    if tool == "payments":
        with contextlib.suppress(ValueError):
            said = json.loads(body)
            reference = str(said["reference"]) if isinstance(said, dict) and said.get("reference") else None
    fingerprint = hashlib.sha256(f"{request.method}\0{request.raw_path}\0".encode() + body).digest()
    return Call(
        tool=tool,
        resource="/".join(segments[1:]),
        identity=key or reference or operation or f"nobody-{uuid.uuid4()}",
        operation=operation,
        key=key,
        if_match=request.headers.get("If-Match"),
        fence=_fence(request.headers.get("Outbox-Fence")),
        body=body,
        fingerprint=fingerprint,
    )


def _fence(header: str | None) -> tuple[str, int] | None:
    """Read `"<lane>";fence=N`; None for anything else."""
    lane, _, number = (header or "").rpartition(";fence=")
    return (lane, int(number)) if lane and number.isascii() and number.isdigit() else None
