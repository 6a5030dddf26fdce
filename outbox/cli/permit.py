"""approve, revoke: who permits an operation, recorded with the user of the operating system."""

import sys
from typing import Any, Final

import click

from outbox.cli.commands import act
from outbox.cli.deeds import do, who
from outbox.cli.output import exact
from outbox.cli.session import Session
from outbox.cli.texts import Kept
from outbox.cli.times import span_of
from outbox.errors import Refused
from outbox.inspect import Dossier
from outbox.store import Store

DIGEST_BYTES: Final = 32
# What somebody who is asked can be expected to have read.
SHOWN_BYTES_MAX: Final = 10_000


@act("approve")
@click.argument("operation_id")
@click.option(
    "--digest",
    help="The digest (64 digits) that outbox show names. Without it you are asked, on a terminal.",
)
@click.option(
    "--expires-in", help='How long the permission holds, such as "1h".  [default: as long as the intent says]'
)
@click.option("--reason", type=Kept(), help="Why. Kept with the approval.")
def approve_command(
    session: Session, operation_id: str, *, digest: str | None, expires_in: str | None, reason: str | None
) -> None:
    """
    Permit a proposed operation: exactly the action with this digest, and no other.

    Whoever asked for it cannot approve it.

    \b
    Example:
      outbox show order-17           what you would permit, and its digest
      outbox approve order-17 --digest "$DIGEST" --expires-in 1h --reason "within budget"
    """  # noqa: D301
    lasts = None if expires_in is None else span_of(expires_in, "--expires-in")
    wanted = _digest(digest)

    async def deed(store: Store, dossier: Dossier) -> dict[str, Any]:
        approved = wanted if wanted is not None else _confirmed(session, dossier)
        expires_at = None if lasts is None else dossier.now + lasts
        approval_id = await store.value(
            "approve", **who(dossier), digest=approved, expires_at=expires_at, reason=reason
        )
        return {
            "state": "authorized",
            "approval_id": approval_id,
            "expires_at": expires_at,
            "sentence": f"{operation_id} is authorized now (approval {approval_id}).",
        }

    do(session, operation_id, deed)


@act("revoke")
@click.argument("operation_id")
@click.option("--reason", type=Kept(), help="Why. Kept with the decision.")
def revoke_command(session: Session, operation_id: str, *, reason: str | None) -> None:
    """
    Withdraw a permission.

    An operation that hides no effect is rejected. One that is executing or unknown stays what it is, and is not sent
    again: what may have happened cannot be withdrawn.

    \b
    Example:
      outbox revoke order-17 --reason "the customer has changed her mind"
    """  # noqa: D301

    async def deed(store: Store, dossier: Dossier) -> dict[str, Any]:
        state = await store.value("revoke", **who(dossier), reason=reason)
        return {"state": state, "sentence": f"{operation_id} is {state}; its permission is withdrawn."}

    do(session, operation_id, deed)


def _digest(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != DIGEST_BYTES:
        raise click.BadParameter("a digest is 64 hexadecimal digits: see outbox show", param_hint="--digest")
    return digest


def _confirmed(session: Session, dossier: Dossier) -> bytes:
    """
    Show all of what would be permitted, and ask. Nobody is asked without a terminal: an approval is read by somebody.

    Refused for what cannot be shown whole: who permits it has read it elsewhere, and names its digest.
    """
    row = dossier.row
    if session.as_json or not sys.stdin.isatty():
        raise click.UsageError("Name what you approve with --digest (see outbox show).", click.get_current_context())
    name, size_bytes = row["operation_id"], row["body_bytes"] or len((row["arguments"] or "").encode())
    if row["body_bytes"] is not None or size_bytes > SHOWN_BYTES_MAX:
        what = "a body of its own" if row["body_bytes"] is not None else "arguments"
        raise Refused(
            f"Operation {name} has {what} of {size_bytes} bytes, which nobody would read here.",
            hint=f"Read what is stored, in outbox.intent. Then: outbox approve {name} --digest {row['digest'].hex()}",
        )
    for field in ("tenant_id", "principal_id", "on_behalf_of", "tool", "resource", "expected_version", "arguments"):
        if row[field] is not None:
            click.echo(f"{field}: {exact(row[field])}")
    click.confirm("Permit exactly this?", abort=True)
    digest: bytes = row["digest"]
    return digest
