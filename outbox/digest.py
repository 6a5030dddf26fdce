r"""
What is hashed, and how: a public contract, the same in every language (vectors: `outbox/vectors/digest.json`).

Every name and digest is made from *fields in a fixed order*, each written as its length in bytes (int32, big-endian;
-1 for null) followed by its bytes (text as UTF-8), after the prefix `outbox/1` and a zero byte. Lengths cannot
collide where separators do, and null is not the empty string.

- The intent digest is SHA-256 over tenant, operation id, tool, resource, expected version and arguments. An intent
  whose payload is not JSON has null arguments, and its content type and body follow as two further fields.
  The database recomputes it, so no writer can lie about it; approvals and attempts refer to it.
- The sent key is a UUIDv5 whose namespace is the instance and whose name is tenant, tool and operation id: two
  tenants, or two databases, that share one account at a provider never share a key.
- The derived operation id of an agent's step is the SHA-256, in hex, over run, tool and canonical arguments.
"""

import hashlib
from struct import Struct
from uuid import UUID

_PREFIX = b"outbox/1\0"
_LENGTH_OF = Struct(">i").pack
_NULL = _LENGTH_OF(-1)
# The first digit of a UUID's fourth group: its two upper bits say "as in RFC 9562".
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def encode_fields(*fields: str | bytes | None) -> bytes:
    """Write fields after the prefix, each behind its length; raises UnicodeEncodeError for a lone surrogate."""
    parts = [_PREFIX]
    for field in fields:
        if field is None:
            parts.append(_NULL)
        else:
            data = field.encode() if isinstance(field, str) else field
            parts.append(_LENGTH_OF(len(data)))
            parts.append(data)
    return b"".join(parts)


def intent_digest(  # noqa: PLR0917 - the fields, in the order in which they are hashed
    tenant_id: str,
    operation_id: str,
    tool: str,
    resource: str | None,
    expected_version: str | None,
    arguments: str | None,
    *,
    content_type: str | None = None,
    body: bytes | None = None,
) -> bytes:
    """
    Digest what the writer states, 32 bytes.

    `arguments` is canonical JSON text; an intent has either arguments, or a body with its content type.
    """
    fields: list[str | bytes | None] = [tenant_id, operation_id, tool, resource, expected_version, arguments]
    if body is not None:
        fields += content_type, body
    return hashlib.sha256(encode_fields(*fields)).digest()


def sent_key(instance: UUID, tenant_id: str, tool: str, operation_id: str) -> str:
    """Return the key that the receiver sees, for one operation of one tenant of one database."""
    # uuid.uuid5() takes a name in bytes only from Python 3.12 on; and one key per attempt is made, so no object is.
    name = encode_fields(tenant_id, tool, operation_id)
    text = hashlib.sha1(instance.bytes + name, usedforsecurity=False).hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"


def derived_id(run_id: str, tool: str, arguments: str) -> str:
    """Return the operation id of one step of a run: the same step, tried again, is the same operation."""
    return hashlib.sha256(encode_fields(run_id, tool, arguments)).hexdigest()
