"""unblock, expedite: the order in which operations begin."""

from typing import Any

import click

from outbox.cli.commands import act
from outbox.cli.deeds import do, reason_option, who
from outbox.cli.session import Session
from outbox.inspect import Dossier
from outbox.store import Store


@act("unblock")
@click.argument("operation_id")
@reason_option
def unblock_command(session: Session, operation_id: str, *, reason: str) -> None:
    """
    Let later operations of its ordering key pass this one.

    It stays what it is; only the order is given up. Whether that is right, nobody but you can know: its effect, if it
    comes, comes after theirs.

    \b
    Example:
      outbox unblock order-17 --reason "the customer has confirmed the later address"
    """  # noqa: D301

    async def deed(store: Store, dossier: Dossier) -> dict[str, Any]:
        waiting = await store.value("unblock", **who(dossier), reason=reason)
        key = dossier.row["ordering_key"]
        sentence = f"{operation_id} blocks its ordering key {key} no more: {waiting} operations are free to begin."
        return {"state": dossier.state, "ordering_key": key, "waiting": waiting, "sentence": sentence}

    do(session, operation_id, deed)


@act("expedite")
@click.argument("operation_id")
@reason_option
def expedite_command(session: Session, operation_id: str, *, reason: str) -> None:
    """
    Begin an authorized operation next, ahead of the backlog of its lane, and end its back-off.

    Every check stands: pauses, its ordering key, its permission.

    \b
    Example:
      outbox expedite order-17 --reason "the customer is on the phone"
    """  # noqa: D301

    async def deed(store: Store, dossier: Dossier) -> dict[str, Any]:
        await store.value("expedite", **who(dossier), reason=reason)
        obstacles = [_words(item) for item in dossier.obstacles]
        blocked = f" It is blocked by {'; '.join(obstacles)}." if obstacles else ""
        sentence = f"{operation_id} begins next.{blocked}"
        return {"state": dossier.state, "blocked_by": obstacles, "sentence": sentence}

    do(session, operation_id, deed)


def _words(obstacle: Any) -> str:
    return f"{obstacle['kind']}: {obstacle['name']}"
