"""resolve, retry, cancel, approve, revoke: what a person decides, recorded with the user of the operating system."""

import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import click

from outbox import crashpoints
from outbox.cli.commands import act
from outbox.cli.output import say, write_json
from outbox.cli.session import Session
from outbox.decide import statement_counts_from
from outbox.duration import parse_duration
from outbox.errors import Refused
from outbox.inspect import STATEMENTS, Dossier, find, may_it_happen_twice, read_dossier
from outbox.inspect.twice import refusal_of
from outbox.inspect.words import when
from outbox.os_user import os_user
from outbox.store import Store

ACTS: Final = (*STATEMENTS, "act")

Deed = Callable[[Store, Dossier], Awaitable[dict[str, Any]]]


def _do(session: Session, operation_id: str, deed: Deed) -> None:
    """Find the operation, do it, and say what came of it."""

    async def job() -> dict[str, Any]:
        async with session.store(*ACTS) as store:
            found = await find(store, operation_id, session.tenant)
            if found.purged:
                raise Refused(
                    f"Operation {operation_id} has ended and was purged.", hint="Terminal operations never change."
                )
            dossier = await read_dossier(store, found.seq)
            return {"tenant_id": found.tenant_id, "operation_id": operation_id} | await deed(store, dossier)

    result = session.run(job())
    sentence = result.pop("sentence")
    if session.as_json:
        write_json(result)
    else:
        say(sentence)


def _who(dossier: Dossier) -> dict[str, str]:
    return {"tenant_id": dossier.row["tenant_id"], "operation_id": dossier.row["operation_id"], "by": os_user()}


@act("resolve")
@click.argument("operation_id")
@click.option("--succeeded", is_flag=True, help="The effect exists.")
@click.option("--no-effect", is_flag=True, help="There was no effect, and none will be tried.")
@click.option("--send-again", is_flag=True, help="With --no-effect: there was none, so try anew.")
@click.option("--external-id", help="With --succeeded: what the receiver calls it.")
@click.option("--evidence", required=True, help="How you know: who looked where, and saw what. Kept for ever.")
@click.option("--attempt", type=int, help="Refuse if the latest attempt is another one than you looked at.")
def resolve_command(
    session: Session,
    operation_id: str,
    *,
    succeeded: bool,
    no_effect: bool,
    send_again: bool,
    external_id: str | None,
    evidence: str,
    attempt: int | None,
) -> None:
    """
    State what happened to an operation that is unknown. Your statement becomes evidence, with your name.

    "No effect" is refused as long as a request may still land, and if a receipt exists. Where the contract states no
    bound, it counts some time after giving up (person_settle), and is recorded as backed by no bound.

    \b
    Examples:
      outbox resolve order-17 --succeeded --external-id re_123 --evidence "shown in the dashboard, 30 Nov"
      outbox resolve order-17 --no-effect --evidence "support ticket 4711: no such refund"
      outbox resolve order-17 --no-effect --send-again --evidence "support ticket 4711: no such refund"
    """  # noqa: D301
    for wrong, complaint in (
        (succeeded == no_effect, "Say either --succeeded or --no-effect."),
        (send_again and not no_effect, "--send-again goes with --no-effect."),
        (external_id is not None and not succeeded, "--external-id goes with --succeeded."),
    ):
        if wrong:
            raise click.UsageError(complaint, click.get_current_context())
    to = "succeeded" if succeeded else "authorized" if send_again else "rejected"

    async def deed(store: Store, dossier: Dossier) -> dict[str, Any]:
        if no_effect:
            _refuse_too_early(dossier)
        looked_at = dossier.row["attempt"] if attempt is None else attempt
        return await _resolve(store, dossier, to=to, attempt=looked_at, external_id=external_id, evidence=evidence)

    _do(session, operation_id, deed)


def _refuse_too_early(dossier: Dossier) -> None:
    if not dossier.is_unknown or dossier.wiring is None:
        return
    counts = statement_counts_from(dossier.facts, dossier.wiring)
    if counts > dossier.now:
        raise Refused(
            f'A request may still have its effect: "no effect" counts from {when(counts, dossier.now)} on.',
            hint=f"See: outbox why {dossier.row['operation_id']}",
        )


async def _resolve(store: Store, dossier: Dossier, *, to: str, **statement: Any) -> dict[str, Any]:
    name = dossier.row["operation_id"]
    crashpoints.reach("before_resolve")
    if await store.value("resolve", **_who(dossier), to=to, **statement) != "applied":
        raise Refused(f"Operation {name} has moved meanwhile.", hint=f"Look again: outbox show {name}")
    return {"state": to, "cause": "person", "sentence": f"{name} is {to} now, by your statement."}


@act("retry")
@click.argument("operation_id")
@click.option("--dry-run", is_flag=True, help='Answer "can this happen twice?", and change nothing.')
def retry_command(session: Session, operation_id: str, *, dry_run: bool) -> None:
    """
    Try again now, where that is safe.

    An authorized operation hides no effect: its back-off ends. One that is unknown is sent again with the same key, as
    long as its window is open, or at any time where a repeat is harmless. Otherwise it is refused, and says why.

    \b
    Examples:
      outbox retry order-17 --dry-run      can this happen twice?
      outbox retry order-17
    """  # noqa: D301

    async def deed(store: Store, dossier: Dossier) -> dict[str, Any]:
        twice = may_it_happen_twice(dossier)
        if dry_run:
            return _answer(dossier, operation_id)
        refusal = refusal_of(dossier) if dossier.is_unknown else None
        if refusal is not None:
            raise Refused(
                f"Operation {operation_id} may not be sent again: {refusal}.", hint=f"See: outbox why {operation_id}"
            )
        state = await store.value("retry", **_who(dossier))
        how = "is due now" if state == dossier.state == "authorized" else "will be sent again with the same key"
        return {"state": state, "can_happen_twice": twice.answer, "sentence": f"{operation_id} {how}."}

    _do(session, operation_id, deed)


def _answer(dossier: Dossier, operation_id: str) -> dict[str, Any]:
    twice = may_it_happen_twice(dossier)
    left = None
    if twice.window_closes_at is not None:
        left = max(0.0, (twice.window_closes_at - dossier.now).total_seconds())
    lines = [f"Can {operation_id} happen twice? {twice.answer[:1].upper()}{twice.answer[1:]}: {twice.reason}."]
    if twice.guarantee:
        lines.append(f"Guarantee: {twice.guarantee}.")
    if twice.window_closes_at is not None:
        lines.append(f"A resend may begin until {when(twice.window_closes_at, dossier.now)}.")
    lines += [f"It rests on: {condition}." for condition in twice.conditions]
    lines.append("A retry would do it." if twice.allowed else f"A retry is refused: {twice.refusal}.")
    return {
        "state": dossier.state,
        "can_happen_twice": twice.answer,
        "reason": twice.reason,
        "allowed": twice.allowed,
        "refusal": twice.refusal,
        "guarantee": twice.guarantee,
        "window_closes_at": twice.window_closes_at,
        "window_left_seconds": left,
        "conditions": list(twice.conditions),
        "sentence": "\n".join(lines),
    }


@act("cancel")
@click.argument("operation_id")
def cancel_command(session: Session, operation_id: str) -> None:
    """
    End an operation that is proposed or authorized: it hides no effect, and none will be tried.

    One that is executing or unknown may hide an effect, and cannot be cancelled.

    \b
    Example:
      outbox cancel order-17
    """  # noqa: D301

    async def deed(store: Store, dossier: Dossier) -> dict[str, Any]:
        await store.value("cancel", **_who(dossier))
        return {"state": "rejected", "cause": "cancelled", "sentence": f"{operation_id} is rejected now: cancelled."}

    _do(session, operation_id, deed)


@act("approve")
@click.argument("operation_id")
@click.option(
    "--digest", help="The digest of what you have read (outbox show). Without it you are asked, on a terminal."
)
@click.option(
    "--expires-in", help='How long the permission holds, such as "1h".  [default: as long as the intent says]'
)
@click.option("--reason", help="Why. Kept with the approval.")
def approve_command(
    session: Session, operation_id: str, *, digest: str | None, expires_in: str | None, reason: str | None
) -> None:
    """
    Permit a proposed operation: exactly the action with this digest, and no other.

    Whoever asked for it cannot approve it.

    \b
    Example:
      outbox approve order-17 --digest 9f86d081884c7d65... --expires-in 1h --reason "within budget"
    """  # noqa: D301
    seconds = _seconds(expires_in)
    wanted = _digest(digest)

    async def deed(store: Store, dossier: Dossier) -> dict[str, Any]:
        approved = wanted if wanted is not None else _confirmed(session, dossier)
        expires_at = None if seconds is None else dossier.now + timedelta(seconds=seconds)
        approval_id = await store.value(
            "approve", **_who(dossier), digest=approved, expires_at=expires_at, reason=reason
        )
        return {
            "state": "authorized",
            "approval_id": approval_id,
            "expires_at": expires_at,
            "sentence": f"{operation_id} is authorized now (approval {approval_id}).",
        }

    _do(session, operation_id, deed)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_duration(text)
        timedelta(seconds=seconds)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(str(error), param_hint="--expires-in") from None
    return seconds


def _digest(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise click.BadParameter("a digest is 64 hexadecimal digits", param_hint="--digest") from None


def _confirmed(session: Session, dossier: Dossier) -> bytes:
    """Show what would be permitted, and ask. Nobody is asked without a terminal: an approval is read by somebody."""
    row = dossier.row
    if session.as_json or not sys.stdin.isatty():
        raise click.UsageError("Name what you approve with --digest (see outbox show).", click.get_current_context())
    for name in ("tenant_id", "principal_id", "tool", "resource", "expected_version", "arguments"):
        if row[name] is not None:
            say(f"{name}: {row[name]}")
    click.confirm("Permit exactly this?", abort=True)
    digest: bytes = row["digest"]
    return digest


@act("revoke")
@click.argument("operation_id")
@click.option("--reason", help="Why. Kept with the decision.")
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
        state = await store.value("revoke", **_who(dossier), reason=reason)
        return {"state": state, "sentence": f"{operation_id} is {state}; its permission is withdrawn."}

    _do(session, operation_id, deed)
