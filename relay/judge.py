"""Is this what was permitted, and the request that it is bound to? Pure."""

from typing import NamedTuple
from uuid import UUID

from outbox import wire
from outbox.digest import sent_key
from outbox.states import Cause
from outbox.wire import WireRequest
from relay.begun import Begun, Bound


def key_of(begun: Begun, instance_id: UUID) -> str:
    """The key that the receiver sees: the one that was sent before, however it was made, or the derived one."""
    return begun.sent_key or sent_key(instance_id, begun.tenant_id, begun.tool, begun.operation_id)


class Payload(NamedTuple):
    """What of an operation goes on the wire."""

    tenant_id: str
    operation_id: str
    resource: str | None
    expected_version: str | None
    sent_key: str
    arguments: str | None
    body: bytes | None
    content_type: str | None


class Refusal(NamedTuple):
    """This must not be sent."""

    cause: Cause
    reason: str


class Judged(NamedTuple):
    """This may be sent: the request itself and its digest (None: only the transport knows what it sends)."""

    request: WireRequest | None
    digest: bytes | None


def judge(bound: Bound, key: str) -> Judged | Refusal:
    """
    Return what may be sent under this key, or why nothing must be sent.

    What is sent is what was stored, permitted and, on a resend, sent before: the request is built from the version that
    the operation is pinned to and from the one in force, and both must say the same.
    """
    begun, pinned, in_force = bound
    if begun.true_digest != begun.digest or begun.approved_digest not in (None, begun.digest):
        return Refusal(Cause.TAMPERED, "the digest is not the one that was stored or approved")
    operation = Payload(
        begun.tenant_id,
        begun.operation_id,
        begun.resource,
        begun.expected_version,
        key,
        begun.arguments,
        begun.body,
        begun.content_type,
    )
    try:
        request = wire.request_of(pinned, operation)
        digest = wire.digest_of(pinned, operation, request)
    except wire.Unsendable as error:
        return Refusal(Cause.NO_ROUTE, error.message)
    if begun.contract_id != begun.contract_in_force:
        if pinned.scope(begun.tenant_id) != in_force.scope(begun.tenant_id):
            return Refusal(Cause.SCOPE_CHANGED, "the key was sent under another scope")
        try:
            same = digest == wire.digest_of(in_force, operation)
        except wire.Unsendable:
            same = False
        if not same:
            return Refusal(Cause.TARGET_CHANGED, "another request than this was sent before")
    if begun.wire_digest not in (None, digest):
        return Refusal(Cause.TARGET_CHANGED, "another request than this was sent before")
    return Judged(request, digest)
