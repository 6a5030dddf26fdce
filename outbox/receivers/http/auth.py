"""Headers that identify us: credentials, resolved per request; the operation, the fence, the trace.

None of them is part of the wire digest: between two sends of one request a credential may be rotated, the fence grows,
and the trace has a new parent at every hop.
"""

import os
import re
from importlib.metadata import PackageNotFoundError, version

from outbox.contract import Auth
from outbox.receivers.credentials import Secrets

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?P<trace>(?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-(?P<flags>[0-9a-f]{2})"
)


def _user_agent() -> str:
    try:
        return f"outbox-relay/{version('outbox-relay')}"
    except PackageNotFoundError:  # a checkout that was not installed
        return "outbox-relay"


COMMON_HEADERS = (("User-Agent", _user_agent()), ("Accept", "*/*"), ("Accept-Encoding", "identity"))
"""Sent with every request; a tool may state others."""


def credential(auth: Auth | None, secrets_: Secrets, tenant_id: str) -> list[tuple[str, str]]:
    """The headers that carry the credential; none where the receiver has none. Raises SecretMissing."""
    if auth is None:
        return []
    headers = [(name, secrets_.resolve(reference, tenant_id).reveal()) for name, reference in auth.sent]
    if auth.kind == "bearer":
        name, token = headers[0]
        headers[0] = (name, f"Bearer {token}")
    return headers


def identity(operation_id: str, fence_token: str | None, traceparent: str | None) -> list[tuple[str, str]]:
    """Which operation this is about, under which fence, as part of which trace."""
    fence = [("Outbox-Fence", fence_token)] if fence_token is not None else []
    return [("Outbox-Operation", operation_id), *fence, ("traceparent", next_hop(traceparent))]


def next_hop(traceparent: str | None) -> str:
    """The W3C trace context of a request that we send: the trace of the intent with a parent id of its own.

    What does not follow the grammar starts a new trace. Whether it is sampled stays as the writer said.
    """
    match = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if match is None:
        fresh = os.urandom(24).hex()
        return f"00-{fresh[16:]}-{fresh[:16]}-00"
    return f"00-{match['trace']}-{os.urandom(8).hex()}-{int(match['flags'], 16) & 1:02x}"
