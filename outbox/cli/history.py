"""purge, redact, repair, audit: history that leaves, that forgets, that is put right, and who did it."""

from datetime import datetime
from typing import Any, Final

import click

from outbox.cli.batches import EXIT_INTERRUPTED, interruptible, progress
from outbox.cli.commands import act
from outbox.cli.deeds import ACTS, confirm, reason_option, tell, yes_option
from outbox.cli.output import plain, say, write_json
from outbox.cli.pages import LIMIT_MAX, number_of, print_page
from outbox.cli.session import Session
from outbox.cli.times import span_of
from outbox.inspect import find
from outbox.os_user import os_user
from outbox.store import Store

BATCH_DEFAULT, BATCH_MAX = 1_000, 10_000
# A look at what a purge would do holds no lock, so its steps are longer.
LOOK_MAX: Final = 20_000
UNPLACED_SHOWN_MAX: Final = 100


@act("purge")
@click.option("--older-than", required=True, metavar="SPAN", help='What ended longer ago, such as "90d".')
@click.option(
    "--batch", type=click.IntRange(1, BATCH_MAX), default=BATCH_DEFAULT, show_default=True, help="Per transaction."
)
@click.option("--dry-run", is_flag=True, help="Count, and change nothing.")
@yes_option
def purge_command(session: Session, older_than: str, batch: int, *, dry_run: bool, yes: bool) -> int:
    """
    Move operations that ended long ago into tombstones, in batches.

    A tombstone answers for its id: who puts it again learns how it ended, and causes no second effect. Arguments,
    receipts, attempts and evidence are gone. Never purged is what has not ended, what a late receipt may still
    contradict, and what is contradicted. Ctrl-C stops after a batch; the same command goes on.

    \b
    Examples:
      outbox purge --older-than 90d --dry-run
      outbox purge --older-than 90d --yes         for cron
    """  # noqa: D301
    age = span_of(older_than, "--older-than")

    async def job() -> dict[str, Any]:
        async with session.store(*ACTS) as store:
            before = await store.value("database_clock") - age
            (bounds,) = await store.dicts("purge_bounds", before=before)
            if dry_run:
                return await _count(store, bounds) | {"dry_run": True}
            confirm(session, f"Purge what ended more than {older_than} ago? It cannot be undone.", yes=yes)
            return await _purge(store, bounds, batch) | {"dry_run": False}

    report = session.run(job())
    if session.as_json:
        write_json(report)
    else:
        say(_purge_sentence(report))
    return EXIT_INTERRUPTED if report["interrupted"] else 0


async def _count(store: Store, bounds: dict[str, Any]) -> dict[str, Any]:
    counted = {"purged": 0, "unsettled": 0, "contradicted": 0}
    after: int | None = 0
    while after is not None:
        names = {"after": after, "upto": bounds["upto"], "before": bounds["before"]}
        (part,) = await store.dicts("purge_look", **names, batch_max=LOOK_MAX)
        counted = {name: number + part[name] for name, number in counted.items()}
        after = part["passed"]
    kept = counted["unsettled"] + counted["contradicted"]
    return counted | {"kept": kept, "interrupted": False}


async def _purge(store: Store, bounds: dict[str, Any], batch: int) -> dict[str, Any]:
    purged = kept = 0
    after: int | None = 0
    first = bounds["upto"] - bounds["numbers"]
    with interruptible() as stop, progress("purge", bounds["numbers"]) as reached:
        while after is not None and not stop.is_set():
            names = {"after": after, "upto": bounds["upto"], "before": bounds["before"]}
            (part,) = await store.dicts("purge", **names, batch_max=batch, by=os_user())
            purged, kept, after = purged + part["purged"], kept + part["kept"], part["passed"]
            reached(max(0, (bounds["upto"] if after is None else after) - first))
    return {"purged": purged, "kept": kept, "interrupted": after is not None}


def _purge_sentence(report: dict[str, Any]) -> str:
    if report["dry_run"]:
        return (
            f"{report['purged']} operations would be purged. Kept: {report['unsettled']} that a late receipt may still "
            f"contradict, {report['contradicted']} that are contradicted."
        )
    sentence = f"{report['purged']} operations purged; their ids are still answered for. {report['kept']} were kept."
    return f"{sentence} Interrupted: the same command goes on." if report["interrupted"] else sentence


@act("redact")
@click.argument("operation_id")
@reason_option
@yes_option
def redact_command(session: Session, operation_id: str, *, reason: str, yes: bool) -> None:
    """
    Remove what may be personal from an operation that has ended: arguments, answers, receipts, notes.

    Digests stay, of the action and of its receipt: who has the originals can still show that they are the ones.
    Of one that was purged there may be answers that came in later. It cannot be undone.

    \b
    Examples:
      outbox redact order-17 --reason "erasure request 12 of the customer"
      outbox redact order-17 --reason "erasure request 12" --yes         for a script
    """  # noqa: D301
    confirm(session, f"Remove the arguments and answers of {operation_id} for ever?", yes=yes, or_look=False)

    async def job() -> dict[str, Any]:
        async with session.store(*ACTS) as store:
            found = await find(store, operation_id, session.tenant)
            named = {"tenant_id": found.tenant_id, "operation_id": operation_id}
            state = await store.value("redact", **named, by=os_user(), reason=reason)
            what = "what came in since it was purged is" if found.purged else "its arguments, answers and notes are"
            sentence = f"{operation_id} is redacted: {what} gone, their digests are kept."
            return named | {"state": state, "redacted": True, "sentence": sentence}

    tell(session, session.run(job()))


@act("repair")
@click.option("--dry-run", is_flag=True, help="List them, and change nothing.")
def repair_command(session: Session, *, dry_run: bool) -> int:
    """
    Place intents that no trigger has placed: restored with triggers off, or replicated without their state.

    They become unknown, and are looked up: nobody can know whether an attempt was made.

    \b
    Examples:
      outbox repair --dry-run
      outbox repair
    """  # noqa: D301
    if dry_run:
        items = session.run(_unplaced(session))
        columns = ("tenant_id", "operation_id", "tool")
        print_page(session, columns, items, None, empty="Every intent is placed.")
        return 0
    report = session.run(_repair(session))
    interrupted = report["interrupted"]
    tell(session, report)
    return EXIT_INTERRUPTED if interrupted else 0


async def _unplaced(session: Session) -> list[dict[str, Any]]:
    async with session.store(*ACTS) as store:
        rows = await store.dicts("find_unplaced_some", after=0, limit=UNPLACED_SHOWN_MAX)
        return [{name: row[name] for name in ("tenant_id", "operation_id", "tool")} for row in rows]


async def _repair(session: Session) -> dict[str, Any]:
    placed = toolless = 0
    after: int | None = 0
    async with session.store(*ACTS) as store:
        with interruptible() as stop, progress("repair", None) as reached:
            while after is not None and not stop.is_set():
                (part,) = await store.dicts("repair", after=after, batch_max=BATCH_DEFAULT, by=os_user())
                placed, toolless, after = placed + part["placed"], toolless + part["toolless"], part["passed"]
                reached(placed)
    sentence = f"{placed} operations are placed, as unknown: they are looked up now."
    if toolless:
        sentence += f" {toolless} have a tool that is not registered: apply a file that declares it, and repair again."
    interrupted = after is not None
    return {"placed": placed, "toolless": toolless, "interrupted": interrupted, "sentence": sentence}


@act("audit")
@click.option("--act", "act_", metavar="ACT", help='These acts only, such as "pause" or "resolve".')
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True)
@click.option("--cursor", help="Where the last page ended (its `next`).")
def audit_command(session: Session, *, act_: str | None, limit: int, cursor: str | None) -> None:
    """
    List who did what, and why; the newest first.

    Acts on the system, such as a pause, and decisions about one operation: approve, revoke, resolve, cancel, retry,
    unblock, expedite, redact. Decisions about what was purged are gone with it.

    \b
    Examples:
      outbox audit
      outbox audit --act resolve --json
    """  # noqa: D301
    place = _place(cursor)

    async def job() -> list[dict[str, Any]]:
        async with session.store(*ACTS) as store:
            return await store.dicts("list_audit", act=act_, **place, limit=limit + 1)

    rows = session.run(job())
    columns = ("at", "act", "target", "acted_by", "reason")
    items = [{name: row[name] for name in columns} for row in rows[:limit]]
    last = rows[limit - 1] if len(rows) > limit else None
    following = None if last is None else f"{plain(last['at'])}_{last['source']}_{last['id']}"
    print_page(session, columns, items, following, empty="Nobody did anything.")


def _place(cursor: str | None) -> dict[str, Any]:
    if cursor is None:
        return {"at": None, "source": None, "id": None}
    try:
        at, source, number = cursor.split("_")
        return {"at": datetime.fromisoformat(at), "source": number_of(source), "id": number_of(number)}
    except ValueError:
        raise click.BadParameter("it is the `next` of an earlier page", param_hint="--cursor") from None
