"""The same act on many operations: selected, counted, done one by one, and safe to be done again."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, cast

import click

from outbox.cli.batches import EXIT_INTERRUPTED, interruptible, progress
from outbox.cli.deeds import ACTS, Deed, confirm
from outbox.cli.filters import CAUSE, check_names
from outbox.cli.output import say, write_json
from outbox.cli.session import Session
from outbox.cli.times import date_of, span_of
from outbox.errors import NotFound, Refused
from outbox.inspect import Dossier, Found, answers_on_record, read_dossier
from outbox.store import Store

Function = TypeVar("Function", bound=Callable[..., Any])

MAX_DEFAULT, MAX_MAX = 1_000, 100_000
# Refusals that are spelled out for people; JSON has all of them.
REFUSALS_SHOWN_MAX: Final = 10
# A dry run, of one or of many, ends as the act would.
EXIT_REFUSED: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What was selected by. `as_of`: whatever was attempted since then is left out; None: nothing is."""

    everything: bool
    tool: str | None
    cause: str | None
    receiver: str | None
    older_than: str | None
    as_of: str | None
    limit: int
    yes: bool

    @property
    def is_given(self) -> bool:
        """Whether anything was selected at all."""
        return self.everything or any((self.tool, self.cause, self.receiver, self.older_than))


@dataclass(frozen=True, slots=True)
class BulkAct:
    """An act as it is done to many: which operations it is for, why not to one of them, and what is done."""

    name: str
    selector: str
    refusal: Callable[[Dossier], str | None]
    deed: Deed


def selecting(function: Function) -> Function:
    """Add the options by which operations are selected; they come as one `selection`."""
    options = (
        click.option("--all", "everything", is_flag=True, help="Instead of one operation: all of them."),
        click.option("--tool", help="Instead of one operation: those of this tool."),
        click.option("--cause", type=CAUSE, metavar="CAUSE", help='... for this cause, such as "timeout".'),
        click.option("--receiver", help="... of this receiver."),
        click.option("--older-than", metavar="SPAN", help='... whose latest attempt is older, such as "1h".'),
        click.option("--as-of", metavar="DATE", help="... not attempted since this date."),
        click.option(
            "--max",
            "limit",
            type=click.IntRange(1, MAX_MAX),
            default=MAX_DEFAULT,
            metavar="N",
            show_default=True,
            help="... so many at most.",
        ),
        click.option("--yes", is_flag=True, help="Do not ask before doing it to many."),
    )

    def gathered(session: Session, *arguments: Any, **given: Any) -> Any:
        names = Selection.__slots__
        selection = Selection(**{name: given.pop(name) for name in names})
        return function(session, *arguments, selection=selection, **given)

    gathered.__doc__ = function.__doc__
    for option in reversed(options):
        gathered = option(gathered)
    return cast("Function", gathered)


def one_or_many(operation_id: str | None, selection: Selection) -> bool:
    """Whether many are meant. Raises UsageError unless one operation is named, or some are selected."""
    if (operation_id is None) is selection.is_given:
        return operation_id is None
    wrong = "Name an operation, or select some: --tool, --cause, --receiver, --older-than, --all."
    raise click.UsageError(wrong, click.get_current_context())


def act_in_bulk(session: Session, act: BulkAct, selection: Selection, *, dry_run: bool) -> int:
    """Do it to all that are selected, one after the other, and report. Returns the exit code."""
    age = timedelta() if selection.older_than is None else span_of(selection.older_than, "--older-than")
    given = None if selection.as_of is None else date_of(selection.as_of, "--as-of")

    async def job() -> dict[str, Any]:
        async with session.store(*ACTS) as store:
            as_of: datetime = given or await store.value("database_clock")
            chosen = await _choose(store, session, act, selection, as_of - age)
            if not dry_run and chosen:
                confirm(session, f"{act.name.capitalize()} {len(chosen)} operations?", yes=selection.yes)
            with interruptible() as stop, progress(act.name, len(chosen[: selection.limit])) as reached:
                items = []
                for row in chosen[: selection.limit]:
                    if stop.is_set():
                        break
                    items.append(await _one(store, act, row, dry_run=dry_run))
                    reached(len(items))
            more = len(items) < len(chosen)
            return {"items": items, "more": more, "interrupted": stop.is_set(), "as_of": as_of, "dry_run": dry_run}

    report = session.run(job())
    return _tell(session, act, report)


async def _choose(
    store: Store, session: Session, act: BulkAct, selection: Selection, upto_date: datetime
) -> list[dict[str, Any]]:
    """One more than may be done, so that the report can say that there are more."""
    chosen = await store.dicts(
        act.selector,
        tenant_id=session.tenant,
        tool=selection.tool,
        cause=selection.cause,
        receiver=selection.receiver,
        upto_date=upto_date,
        limit=selection.limit + 1,
    )
    if not chosen:
        await check_names(store, tool=selection.tool, receiver=selection.receiver)
    return chosen


async def _one(store: Store, act: BulkAct, row: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    item = {"tenant_id": row["tenant_id"], "operation_id": row["operation_id"], "state": row["state"], "answers": []}
    try:
        dossier = await read_dossier(store, Found(row["seq"], row["tenant_id"], row["operation_id"], purged=False))
        item["answers"] = list(answers_on_record(dossier)) if dossier.is_unknown else []
        if dossier.state != row["state"] or dossier.row["attempt"] != row["attempt"]:
            return item | {"result": "moved", "state": dossier.state.value, "reason": "it has moved meanwhile"}
        refusal = act.refusal(dossier)
        if refusal is not None:
            return item | {"result": "refused", "reason": refusal}
        if dry_run:
            return item | {"result": "would", "reason": None}
        done = await act.deed(store, dossier)
    except (Refused, NotFound) as error:
        return item | {"result": "refused", "reason": error.message}
    return item | {"result": "done", "state": done["state"], "reason": None}


def _tell(session: Session, act: BulkAct, report: dict[str, Any]) -> int:
    counted = Counter(item["result"] for item in report["items"])
    summary = {name: counted[name] for name in ("done", "would", "refused", "moved")}
    if session.as_json:
        write_json(report | summary)
    else:
        _tell_people(act, report, summary)
    if report["interrupted"]:
        return EXIT_INTERRUPTED
    return EXIT_REFUSED if summary["refused"] else 0


def _tell_people(act: BulkAct, report: dict[str, Any], summary: dict[str, int]) -> None:
    if not report["items"]:
        say("Nothing is selected.")
    elif report["dry_run"]:
        say(f"{act.name} would be done to {summary['would']} operations, and refused for {summary['refused']}.")
    else:
        moved = f", {summary['moved']} have moved meanwhile" if summary["moved"] else ""
        say(f"{act.name}: {summary['done']} done, {summary['refused']} refused{moved}.")
    answered = sum(1 for item in report["items"] if item["answers"] and item["result"] in {"done", "would"})
    if answered:
        say(f"  {answered} of them have answers on record, which may tell what happened: --json lists them")
    reasons = Counter(item["reason"] for item in report["items"] if item["result"] == "refused")
    for reason, number in reasons.most_common(REFUSALS_SHOWN_MAX):
        say(f"  {number} refused: {reason}")
    if report["more"]:
        again = f"{report['as_of'].astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        why = "Interrupted" if report["interrupted"] else "There are more"
        say(f"{why}. Run it again, with --as-of {again}: what was done by then is not done twice.")
