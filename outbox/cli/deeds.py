"""What every act on operations has: find one, do it, say what came of it; or ask before many."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import click

from outbox.cli.output import say, write_json
from outbox.cli.session import Session
from outbox.cli.texts import Kept
from outbox.errors import Refused
from outbox.inspect import STATEMENTS, Dossier, find, how_it_ended, read_dossier
from outbox.os_user import os_user
from outbox.states import TERMINAL
from outbox.store import Store

ACTS: Final = (*STATEMENTS, "act", "upkeep")

Deed = Callable[[Store, Dossier], Awaitable[dict[str, Any]]]
"""Does it; answers with the state that follows, and with a `sentence` for people."""


def do(session: Session, operation_id: str, deed: Deed, *, to_ended: bool = False) -> dict[str, Any]:
    """
    Find the operation, do it, say what came of it, and return that.

    Refused for one that has ended, unless it is a deed that is done to such (`to_ended`), and for one that was purged.
    """

    async def job() -> dict[str, Any]:
        async with session.store(*ACTS) as store:
            found = await find(store, operation_id, session.tenant)
            if found.purged:
                grave = await store.dicts("read_tombstone", tenant_id=found.tenant_id, operation_id=found.operation_id)
                how = f": {how_it_ended(grave[0])}" if grave else ""
                raise _ended(found.tenant_id, operation_id, f"{how}, and was purged")
            dossier = await read_dossier(store, found)
            if dossier.state in TERMINAL and not to_ended:
                raise _ended(found.tenant_id, operation_id, f": {how_it_ended(dossier.row)}")
            return {"tenant_id": found.tenant_id, "operation_id": operation_id} | await deed(store, dossier)

    done = session.run(job())
    tell(session, done)
    return done


def _ended(tenant_id: str, operation_id: str, how: str) -> Refused:
    hint = f"Terminal operations never change. See: outbox show {operation_id} --tenant {tenant_id}"
    return Refused(f"Operation {operation_id} of tenant {tenant_id} has ended{how}.", hint=hint)


def tell(session: Session, result: dict[str, Any]) -> None:
    """Print a result: its sentence for people, the rest as JSON."""
    sentence = result.pop("sentence")
    if session.as_json:
        write_json(result)
    else:
        say(sentence)


def who(dossier: Dossier) -> dict[str, str]:
    """The parameters that every act takes: whose operation it is, and who acts."""
    return {"tenant_id": dossier.row["tenant_id"], "operation_id": dossier.row["operation_id"], "by": os_user()}


def confirm(session: Session, question: str, *, yes: bool, or_look: bool = True) -> None:
    """
    Ask, unless --yes was said. Without a terminal nobody can be asked, so it must be said.

    `or_look`: the command has a --dry-run.
    """
    if yes:
        return
    if session.as_json or not sys.stdin.isatty():
        say_so = "Say --yes, or --dry-run to see what it would do." if or_look else "Say --yes: it cannot be undone."
        raise click.UsageError(say_so, click.get_current_context())
    click.confirm(question, abort=True, err=True)


yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask.")
reason_option: Final = click.option("--reason", type=Kept(), required=True, help="Why. Kept for ever, with your name.")
