"""Is this what was permitted, and the request that it is bound to? Pure."""

from uuid import UUID

from outbox import wire
from outbox.contract import Wiring
from outbox.digest import sent_key
from outbox.states import Cause
from relay.begun import Begun, Bound


def key_of(begun: Begun, instance_id: UUID) -> UUID:
    """The key that the receiver sees: the one that was sent before, however it was made, or the derived one."""
    return begun.sent_key or UUID(sent_key(instance_id, begun.tenant_id, begun.tool, begun.operation_id))


def judge(bound: Bound, payload: wire.Payload) -> bytes | Cause | None:
    """
    Return the cause for which this must not be sent, or the digest of the request (None: the transport has no wire).

    What is sent is what was stored, permitted and, on a resend, sent before: the request is built from the version that
    the operation is pinned to and from the one in force, and both must say the same.
    """
    begun, pinned, in_force = bound.begun, bound.pinned, bound.in_force
    if begun.true_digest != begun.digest or begun.approved_digest not in (None, begun.digest):
        return Cause.TAMPERED
    try:
        digest = _wire_digest(payload, pinned)
        if begun.contract_id != begun.contract_in_force:
            if pinned.scope(begun.tenant_id) != in_force.scope(begun.tenant_id):
                return Cause.SCOPE_CHANGED
            if digest != _wire_digest(payload, in_force):
                return Cause.TARGET_CHANGED
    except wire.Unsendable:
        return Cause.NO_ROUTE
    return Cause.TARGET_CHANGED if begun.wire_digest not in (None, digest) else digest


def _wire_digest(payload: wire.Payload, wiring: Wiring) -> bytes | None:
    if wiring.request is None:
        return None
    return wire.wire_digest(wire.build(wiring, payload), payload.sent_key)
