"""
A transactional outbox for operations with real effects: a lost answer is never treated as a failure.

    from outbox import Intent, Outbox

    box = Outbox(tenant_id="acme", principal_id="checkout")
    with Session(engine) as session, session.begin():
        session.add(order)
        box.put(session, Intent(tool="mail.send", arguments={"to": order.email}))

Whatever else this package has is for the daemons and the command line; `outbox.errors` holds every error.
"""

from outbox.client import Outbox
from outbox.errors import (
    IntentConflict,
    IntentRace,
    InvalidIntent,
    NotFound,
    OutboxError,
    UnknownTool,
    WaitInsideTransaction,
)
from outbox.intent import Intent
from outbox.operation import Operation
from outbox.states import Cause, State

__all__ = [
    "Cause",
    "Intent",
    "IntentConflict",
    "IntentRace",
    "InvalidIntent",
    "NotFound",
    "Operation",
    "Outbox",
    "OutboxError",
    "State",
    "UnknownTool",
    "WaitInsideTransaction",
]
