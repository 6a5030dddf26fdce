"""pause, resume: the kill switches."""

from typing import Any

import click

from outbox.cli.commands import act
from outbox.cli.deeds import reason_option, tell
from outbox.cli.filters import check_names
from outbox.cli.session import Session
from outbox.inspect.words import clock
from outbox.os_user import os_user
from outbox.store import Store

KINDS = click.Choice(["receiver", "tool", "tenant"])


@act("pause")
@click.argument("kind", type=KINDS)
@click.argument("name")
@reason_option
def pause_command(session: Session, kind: str, name: str, *, reason: str) -> None:
    """
    Stop attempts of a receiver, a tool or a tenant.

    The next attempt does not begin any more; one that runs comes to its end. Intents are still taken, and doubts are
    still looked up. `outbox stuck` lists what is paused.

    \b
    Examples:
      outbox pause receiver warehouse --reason "double bookings, ticket 4711"
      outbox pause tool payment.refund --reason "wrong amounts since 02:10"
      outbox pause tenant acme --reason "they asked us to"
    """  # noqa: D301

    async def job() -> dict[str, Any]:
        async with session.store("upkeep", "registry") as store:
            before = await _read(store, kind, name)
            changed = await store.value("pause", kind=kind, name=name, by=os_user(), reason=reason)
            if changed:
                sentence = f"{kind} {name} is paused: no attempt begins any more."
                if not before["known"]:
                    sentence += f" Nothing of {kind} {name} is known here yet: is it spelled right?"
            else:
                since = f"since {clock(before['paused_at'])}, by {before['paused_by']}" if before["paused_at"] else ""
                sentence = f"{kind} {name} was paused already {since}: {before['reason']}."
            return {"kind": kind, "name": name, "changed": changed, "known": before["known"], "sentence": sentence}

    tell(session, session.run(job()))


@act("resume")
@click.argument("kind", type=KINDS)
@click.argument("name")
@reason_option
def resume_command(session: Session, kind: str, name: str, *, reason: str) -> None:
    """
    Let attempts begin again.

    A receiver that relays leave alone, since several attempts in a row met nobody, is tried at once.

    \b
    Examples:
      outbox resume receiver warehouse --reason "fixed by their release 12"
      outbox resume tenant acme --reason "done"
    """  # noqa: D301

    async def job() -> dict[str, Any]:
        async with session.store("upkeep", "registry") as store:
            await _read(store, kind, name)
            changed = await store.value("resume", kind=kind, name=name, by=os_user(), reason=reason)
            sentence = (
                f"{kind} {name} goes on." if changed else f"{kind} {name} is not paused: there is nothing to end."
            )
            return {"kind": kind, "name": name, "changed": changed, "sentence": sentence}

    tell(session, session.run(job()))


async def _read(store: Store, kind: str, name: str) -> dict[str, Any]:
    """Read how it stands. NotFound for a tool or a receiver that nobody knows; a tenant may come later."""
    if kind != "tenant":
        await check_names(store, **{kind: name})
    return (await store.dicts("read_pause", kind=kind, name=name))[0]
