"""What an inbox in another database is asked: the counterpart of a request, a pure function of the stored bytes.

Its digest is pinned at the first exposure as that of a request is, and the inbox keeps it with the effect: another
message under the same key is a mismatch, not a repeat. Where it goes (the inbox, by name) is the operation's scope.
"""

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from outbox.digest import encode_fields
from outbox.wire_body import Unsendable

if TYPE_CHECKING:
    from outbox.wire import Payload

# jsonb holds every text but this character. An even number of backslashes before it means that it is spelled out.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True, slots=True)
class Message:
    """One operation, complete but for attempt and fence. Either `arguments`, or `body` with its content type."""

    tenant_id: str
    operation_id: str
    tool: str
    resource: str | None
    expected_version: str | None
    sent_key: str
    arguments: str | None = field(repr=False)
    content_type: str | None
    body: bytes | None = field(repr=False)

    @classmethod
    def of(cls, tool: str, operation: "Payload") -> Self:
        """Make it. Raises Unsendable, whose message holds no argument and no body."""
        if operation.arguments is None and operation.body is None:
            raise Unsendable("the arguments are gone: they were redacted")
        if operation.arguments is not None and _NUL.search(operation.arguments):
            raise Unsendable("the arguments hold U+0000, which jsonb cannot hold")
        return cls(
            tenant_id=operation.tenant_id,
            operation_id=operation.operation_id,
            tool=tool,
            resource=operation.resource,
            expected_version=operation.expected_version,
            sent_key=operation.sent_key,
            arguments=operation.arguments,
            content_type=operation.content_type,
            body=operation.body,
        )

    @property
    def digest(self) -> bytes:
        """SHA-256 of everything that may not change between two sends under one key, 32 bytes."""
        named = (self.tenant_id, self.operation_id, self.tool, self.resource, self.expected_version, self.sent_key)
        return hashlib.sha256(encode_fields("inbox", *named, self.arguments, self.content_type, self.body)).digest()
