"""resolve, retry, cancel: what a person decides, of one operation or of many, recorded with the user of the system."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from outbox import crashpoints
from outbox.cli.bulk import EXIT_REFUSED, BulkAct, Selection, act_in_bulk, one_or_many, selecting
from outbox.cli.commands import act
from outbox.cli.deeds import do, who
from outbox.cli.output import safe
from outbox.cli.session import Session
from outbox.cli.texts import EXTERNAL_ID_BYTES_MAX, Kept
from outbox.decide import statement_counts_from
from outbox.errors import Refused
from outbox.inspect import Dossier, answers_on_record, how_it_ended, may_it_happen_twice
from outbox.inspect.ahead import ways_on
from outbox.inspect.twice import refusal_of
from outbox.inspect.words import when
from outbox.states import MAY_HIDE_EFFECT, TERMINAL
from outbox.store import Store

dry_run_option = click.option("--dry-run", is_flag=True, help="Say what it would do, and change nothing.")


@act("resolve")
@click.argument("operation_id", required=False)
@click.option("--succeeded", is_flag=True, help="The effect exists.")
@click.option("--no-effect", is_flag=True, help="There was no effect, and none will be tried.")
@click.option("--send-again", is_flag=True, help="With --no-effect: there was none, so try anew.")
@click.option(
    "--external-id",
    type=Kept(EXTERNAL_ID_BYTES_MAX),
    help="With --succeeded, of one operation: what the receiver calls it.",
)
@click.option(
    "--evidence", type=Kept(), required=True, help="How you know: who looked where, and saw what. Kept for ever."
)
@click.option(
    "--attempt",
    type=click.IntRange(1, 2**31 - 1),
    help="Refuse if the latest attempt is another one than you looked at.",
)
@dry_run_option
@selecting
def resolve_command(
    session: Session,
    operation_id: str | None,
    *,
    succeeded: bool,
    no_effect: bool,
    send_again: bool,
    external_id: str | None,
    evidence: str,
    attempt: int | None,
    dry_run: bool,
    selection: Selection,
) -> int:
    """
    State what happened to an operation that is unknown. Your statement becomes evidence, with your name.

    "No effect" is refused as long as a request may still land, and if a receipt exists. Where the contract states no
    bound, it counts some time after giving up (person_settle), and is recorded as backed by no bound.

    The answers that are on record are told; on a terminal "no effect" is asked for once more where there are any.

    \b
    Examples:
      outbox resolve order-17 --succeeded --external-id re_123 --evidence "shown in the dashboard, 30 Nov"
      outbox resolve order-17 --no-effect --evidence "support ticket 4711: no such refund"
      outbox resolve order-17 --no-effect --send-again --evidence "support ticket 4711: no such refund"
      outbox resolve --tool mail.send --older-than 2h --no-effect --evidence "their log of 30 Nov" --dry-run
    """  # noqa: D301
    many = one_or_many(operation_id, selection)
    for wrong, complaint in (
        (succeeded == no_effect, "Say either --succeeded or --no-effect."),
        (send_again and not no_effect, "--send-again goes with --no-effect."),
        (external_id is not None and (many or not succeeded), "--external-id goes with one operation and --succeeded."),
        (attempt is not None and many, "--attempt is the latest one of one operation."),
    ):
        if wrong:
            raise click.UsageError(complaint, click.get_current_context())
    to = "succeeded" if succeeded else "authorized" if send_again else "rejected"

    async def deed(store: Store, dossier: Dossier) -> dict[str, Any]:
        looked_at = dossier.row["attempt"] if attempt is None else attempt
        statement = {"attempt": looked_at, "external_id": external_id, "evidence": evidence}
        asks = no_effect and not (many or selection.yes or session.as_json)
        return await _resolve(store, dossier, to=to, asks=asks, **statement)

    resolving = BulkAct("resolve", "select_for_resolve", _too_early if no_effect else _nothing_against, deed)
    return _do(session, operation_id, resolving, selection, dry_run=dry_run)


def _do(session: Session, operation_id: str | None, act_: BulkAct, selection: Selection, *, dry_run: bool) -> int:
    """Do it to one or to many; in both cases what speaks against it comes first."""
    if operation_id is None:
        return act_in_bulk(session, act_, selection, dry_run=dry_run)

    async def deed(store: Store, dossier: Dossier) -> dict[str, Any]:
        refusal = act_.refusal(dossier)
        if refusal is not None:
            whose = f"Operation {operation_id} of tenant {dossier.row['tenant_id']}"
            raise Refused(f"{whose} is refused this: {refusal}.", hint=f"See: outbox why {operation_id}")
        if dry_run:
            sentence = f"{act_.name} would be done to {operation_id}, which is {dossier.state}."
            done: dict[str, Any] = {"state": dossier.state, "dry_run": True, "sentence": sentence}
        else:
            done = await act_.deed(store, dossier)
        if not dossier.is_unknown:
            return done
        answers = answers_on_record(dossier)
        sentence = "\n".join((done["sentence"], *_told(answers)))
        return done | {"answers": list(answers), "sentence": sentence}

    do(session, operation_id, deed)
    return 0


def _told(answers: Sequence[str]) -> list[str]:
    if not answers:
        return ["No answer is on record."]
    return ["Answers on record:", *(f"  {answer}" for answer in answers)]


def _nothing_against(_: Dossier) -> None:
    """Whatever speaks against it, the database finds."""


def _too_early(dossier: Dossier) -> str | None:
    if not dossier.is_unknown or dossier.wiring is None:
        return None
    counts = statement_counts_from(dossier.facts, dossier.wiring)
    if counts <= dossier.now:
        return None
    return f'a request may still have its effect: "no effect" counts from {when(counts, dossier.now)} on'


async def _resolve(store: Store, dossier: Dossier, *, to: str, asks: bool, **statement: Any) -> dict[str, Any]:
    name, answers = dossier.row["operation_id"], answers_on_record(dossier)
    if asks and answers and sys.stdin.isatty():
        click.echo("\n".join(map(safe, _told(answers))), err=True)
        click.confirm("Have you read them, and there was no effect?", abort=True, err=True)
    crashpoints.reach("before_resolve")
    if await store.value("resolve", **who(dossier), to=to, **statement) != "applied":
        raise Refused(f"Operation {name} has moved meanwhile.", hint=f"Look again: outbox show {name}")
    return {"state": to, "cause": "person", "sentence": f"{name} is {to} now, by your statement."}


@act("retry")
@click.argument("operation_id", required=False)
@click.option("--dry-run", is_flag=True, help='Answer "can this happen twice?", and change nothing.')
@selecting
def retry_command(session: Session, operation_id: str | None, *, dry_run: bool, selection: Selection) -> int:
    """
    Try again now, where that is safe.

    An authorized operation hides no effect: its back-off ends. One that is unknown is sent again with the same key, as
    long as its window is open, or at any time where a repeat is harmless. Otherwise it is refused, and says why.

    \b
    Examples:
      outbox retry order-17 --dry-run      can this happen twice?
      outbox retry order-17
      outbox retry --receiver warehouse --cause timeout --older-than 10m --dry-run
      outbox retry --tool payment.refund --cause forbidden --max 50
    """  # noqa: D301
    if one_or_many(operation_id, selection):
        return act_in_bulk(session, BulkAct("retry", "select_for_retry", _unsafe, _retry), selection, dry_run=dry_run)
    name = operation_id or ""

    async def deed(store: Store, dossier: Dossier) -> dict[str, Any]:
        if dry_run:
            return _answer(dossier, name)
        refusal = refusal_of(dossier) if dossier.is_unknown else None
        if refusal is not None:
            raise Refused(f"Operation {name} may not be sent again: {refusal}.", hint=f"See: outbox why {name}")
        return await _retry(store, dossier)

    done = do(session, name, deed, to_ended=dry_run)
    return EXIT_REFUSED if dry_run and not done["allowed"] else 0


def _unsafe(dossier: Dossier) -> str | None:
    return may_it_happen_twice(dossier).refusal


async def _retry(store: Store, dossier: Dossier) -> dict[str, Any]:
    twice, before = may_it_happen_twice(dossier), dossier.state
    state = await store.value("retry", **who(dossier))
    how = "is due now" if state == before == "authorized" else "will be sent again with the same key"
    sentence = " ".join([f"{dossier.row['operation_id']} {how}.", *ways_on(dossier)])
    return {"state": state, "can_happen_twice": twice.answer, "sentence": sentence}


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
    allowed = f"outbox retry {operation_id} is allowed."
    lines.append(allowed if twice.allowed else f"A retry is refused: {twice.refusal}.")
    lines += ways_on(dossier) if twice.allowed else ()
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
@click.argument("operation_id", required=False)
@dry_run_option
@selecting
def cancel_command(session: Session, operation_id: str | None, *, dry_run: bool, selection: Selection) -> int:
    """
    End an operation that is proposed or authorized: it hides no effect, and none will be tried.

    One that is executing or unknown may hide an effect, and cannot be cancelled.

    \b
    Examples:
      outbox cancel order-17
      outbox cancel --tool mail.send --older-than 1d --dry-run
    """  # noqa: D301
    one_or_many(operation_id, selection)
    cancelling = BulkAct("cancel", "select_for_cancel", _may_hide_an_effect, _cancel)
    return _do(session, operation_id, cancelling, selection, dry_run=dry_run)


def _may_hide_an_effect(dossier: Dossier) -> str | None:
    if dossier.state in MAY_HIDE_EFFECT:
        return f"it is {dossier.state} and may hide an effect: it cannot be cancelled"
    return f"it has ended: {how_it_ended(dossier.row)}" if dossier.state in TERMINAL else None


async def _cancel(store: Store, dossier: Dossier) -> dict[str, Any]:
    await store.value("cancel", **who(dossier))
    sentence = f"{dossier.row['operation_id']} is rejected now: cancelled."
    return {"state": "rejected", "cause": "cancelled", "sentence": sentence}
