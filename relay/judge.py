"""Is this what was permitted, and the request that it is bound to? Pure."""

from dataclasses import dataclass
from uuid import UUID

from outbox import wire
from outbox.digest import sent_key
from outbox.receivers import Attempt
from outbox.states import Cause
from relay.begun import Begun, Bound


def key_of(begun: Begun, instance_id: UUID) -> str:
    """The key that the receiver sees: the one that was sent before, however it was made, or the derived one."""
    return begun.sent_key or sent_key(instance_id, begun.tenant_id, begun.tool, begun.operation_id)


@dataclass(frozen=True, slots=True)
class Refusal:
    """This must not be sent."""

    cause: Cause
    reason: str


def judge(bound: Bound, request: Attempt) -> bytes | Refusal | None:
    """
    Return the digest of the request (None: the transport has no wire), or why it must not be sent.

    What is sent is what was stored, permitted and, on a resend, sent before: the request is built from the version that
    the operation is pinned to and from the one in force, and both must say the same.
    """
    begun, pinned, in_force = bound.begun, bound.pinned, bound.in_force
    if begun.true_digest != begun.digest or begun.approved_digest not in (None, begun.digest):
        return Refusal(Cause.TAMPERED, "the digest is not the one that was stored or approved")
    try:
        digest = wire.digest_of(pinned, request, request.wire_request)
    except wire.Unsendable as error:
        return Refusal(Cause.NO_ROUTE, error.message)
    if begun.contract_id != begun.contract_in_force:
        if pinned.scope(begun.tenant_id) != in_force.scope(begun.tenant_id):
            return Refusal(Cause.SCOPE_CHANGED, "the key was sent under another scope")
        try:
            same = digest == wire.digest_of(in_force, request)
        except wire.Unsendable:
            same = False
        if not same:
            return Refusal(Cause.TARGET_CHANGED, "another request than this was sent before")
    if begun.wire_digest not in (None, digest):
        return Refusal(Cause.TARGET_CHANGED, "another request than this was sent before")
    return digest
