"""
Intents in the transactions of Django, by the alias of a database.

    from django.db import transaction
    from outbox.django import put

    with transaction.atomic():
        order.save()
        put(box, Intent(tool="mail.send", operation_id=f"order-{order.pk}/mail", arguments={"to": order.email}))

The intent is a row of the same transaction, so there is nothing to do in `on_commit`: when the outermost block commits,
the effect is under way, and not before. Django is in autocommit by default, so a put outside of `atomic` would commit
alone, whatever becomes of your rows: it raises NotInTransaction and writes nothing.

`Outbox.put(connections[alias], ...)` does the same. Django's database layer is synchronous: in an async view, call
these through `asgiref.sync.sync_to_async`.
"""

from collections.abc import Sequence

from django.db import DEFAULT_DB_ALIAS, connections

from outbox.client import WAIT_DEFAULT_SECONDS, Outbox
from outbox.feed import BATCH_MAX, Feed
from outbox.intent import Intent
from outbox.operation import Operation


def put(box: Outbox, intent: Intent, *, using: str = DEFAULT_DB_ALIAS) -> Operation:
    """Put an intent into the open `atomic` block, as `Outbox.put` does. NotInTransaction if there is none."""
    return box.put(connections[using], intent)


def put_many(box: Outbox, intents: Sequence[Intent], *, using: str = DEFAULT_DB_ALIAS) -> list[Operation]:
    """Put many intents, as `Outbox.put_many` does. NotInTransaction outside of `atomic`."""
    return box.put_many(connections[using], intents)


def get(box: Outbox, operation_id: str, *, using: str = DEFAULT_DB_ALIAS) -> Operation | None:
    """Tell what is seen of an operation, as `Outbox.get` does; also outside of `atomic`."""
    return box.get(connections[using], operation_id)


def wait(
    box: Outbox,
    operation_id: str,
    timeout_seconds: float = WAIT_DEFAULT_SECONDS,
    *,
    using: str = DEFAULT_DB_ALIAS,
) -> Operation:
    """Wait until an operation has ended or the time is up, as `Outbox.wait` does. Call it after the block that put."""
    return box.wait(operation_id, timeout_seconds, connection=connections[using])


def feed(box: Outbox, *, after: str | None = None, batch_max: int = BATCH_MAX, using: str = DEFAULT_DB_ALIAS) -> Feed:
    """Tell how operations ended, as `Outbox.feed` does: inside of `atomic`, with the cursor that you keep there."""
    return box.feed(connections[using], after=after, batch_max=batch_max)
