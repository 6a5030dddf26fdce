"""stuck: what will not move on its own, or is late."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Final

import click

from outbox.cli.commands import act
from outbox.cli.filters import check_names, filters
from outbox.cli.output import plain
from outbox.cli.pages import LIMIT_MAX, number_of, print_page
from outbox.cli.session import Session
from outbox.doctor.work import UNHELD_SECONDS
from outbox.inspect import STATEMENTS
from outbox.inspect.again import Again, read_judgements, reason_of
from outbox.inspect.unsent import REFUSING_US, WITHOUT_EFFECT, remedy, unsent_cause, why_unsent
from outbox.inspect.words import in_words, lanes_of, span
from outbox.states import Cause
from outbox.store import Store

# A daemon acts within its poll; what is later than this is late, and what has not left for so long is stuck.
LATE_SECONDS: Final = 60.0
# Of each lane so many of its oldest open operations are looked at for such as do not leave: a backlog is never scanned.
LOOKED_AT_MAX: Final = 1_000
STEPS: Final = ("begin", "look", "resend", "person")

Row = Mapping[str, Any]
Filters = Mapping[str, str | None]


@act("stuck")
@filters
@click.option("--step", type=click.Choice(STEPS), help="Those that wait for this step.")
@click.option("--all", "everything", is_flag=True, help="All that is in doubt, also what moves by itself.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True)
@click.option("--cursor", help="Where the last page ended (its `next`).")
def stuck_command(session: Session, *, everything: bool, limit: int, cursor: str | None, **filters: str | None) -> None:
    """
    List what will not move on its own, or is late; the oldest first.

    `kind` says what it is: `person` (somebody must decide), `late` (a daemon should have acted by now), `unsent`
    (attempts do not leave the relay's machine: why, and what to do; `operations` counts those in the same situation),
    `refused` (the receiver refuses our credential or forbids it, such as by 401 or 403; counted in the same way),
    `doubt` (with --all: it moves by itself), `contradiction` (evidence against a state), `lane` (work is due, and
    nobody holds the lane), `paused` (a kill switch is on), `circuit` (a receiver does not answer, and is left alone).
    What waits for an approval: outbox list --state proposed.

    \b
    Examples:
      outbox stuck
      outbox stuck --step person --tool payment.refund
      outbox stuck --receiver warehouse --cause timeout
      outbox stuck --tenant shop --json
    """  # noqa: D301
    items, following, now = session.run(_stuck(session, filters, everything=everything, limit=limit, cursor=cursor))
    columns = (
        *("kind", "tenant_id", "operation_id", "tool", "state", "since", "step", "at", "operations", "why"),
        *("blocked_by", "blocks"),
    )
    print_page(session, columns, items, following, empty="Nothing is stuck.", now=now)


async def _stuck(
    session: Session, filters: Filters, *, everything: bool, limit: int, cursor: str | None
) -> tuple[list[dict[str, Any]], str | None, datetime]:
    since, seq = _place(cursor)
    asked = {"tenant_id": session.tenant, **filters}
    async with session.store(*STATEMENTS) as store:
        rows = await store.dicts(
            "stuck_operations",
            **asked,
            limit=limit + 1,
            everything=everything,
            unsent=sorted(WITHOUT_EFFECT),
            late_seconds=LATE_SECONDS,
            after_since=since,
            after_seq=seq,
        )
        asking = [row["seq"] for row in rows[:limit] if row["needs_person"]]
        now = await store.value("database_clock")
        again = await read_judgements(store, asking, now)
        items = [] if cursor else [item async for item in _stuck_elsewhere(store, asked)]
        if not rows and all(item["kind"] == "paused" for item in items):
            await check_names(store, tool=filters["tool"], receiver=filters["receiver"])
    following = None
    if len(rows) > limit:
        last = rows[limit - 1]
        following = f"{plain(last['since'])}_{last['seq']}"
    return [*items, *(_stuck_item(row, again.get(row["seq"])) for row in rows[:limit])], following, now


async def _stuck_elsewhere(store: Store, asked: Filters) -> AsyncIterator[dict[str, Any]]:
    """What is stuck and is no operation in doubt: on the first page."""
    whose = {name: asked[name] for name in ("tenant_id", "tool", "receiver", "cause")}
    where = {name: asked[name] for name in ("tool", "receiver")}
    if asked["step"] in {None, "person"}:
        for row in await store.dicts("stuck_contradictions", **whose, limit=LIMIT_MAX):
            yield {"kind": "contradiction", "step": "person", "why": row.pop("what"), **row}
    if asked["step"] not in {None, "begin"}:
        return
    for row in await store.dicts(
        "stuck_unsent",
        **whose,
        unsent=sorted(WITHOUT_EFFECT),
        late_seconds=LATE_SECONDS,
        looked_at_max=LOOKED_AT_MAX,
        limit=LIMIT_MAX,
    ):
        yield _unsent_item(row)
    # What stands in the way of attempts has no cause: it is one.
    if asked["cause"] is None:
        for row in await store.dicts("stuck_lanes", **where, late_seconds=UNHELD_SECONDS, limit=LIMIT_MAX):
            yield _lane_item(row)
        for row in await store.dicts("stuck_pauses", **where, tenant_id=asked["tenant_id"], limit=LIMIT_MAX):
            yield _pause_item(row)
        for row in await store.dicts("stuck_circuits", **where, limit=LIMIT_MAX):
            yield _circuit_item(row)


def _unsent_item(row: Row) -> dict[str, Any]:
    names = ("tenant_id", "operation_id", "tool", "receiver", "cause", "attempt", "since", "age_seconds", "operations")
    cause = Cause(row["cause"])
    return {
        "kind": _kind_without_effect(cause),
        **{name: row[name] for name in names},
        "state": "authorized",
        "step": "begin",
        "at": row["next_at"],
        "why": why_unsent(cause, row),
        "blocked_by": remedy(cause, row),
    }


def _lane_item(row: Row) -> dict[str, Any]:
    return {
        "kind": "lane",
        "receiver": row["receiver"],
        "lanes": row["lanes"],
        "since": row["since"],
        "step": "begin",
        "why": f"work is due in {lanes_of(row['lanes'])} of {row['receiver']}",
        "blocked_by": f"no relay holds {'them' if len(row['lanes']) > 1 else 'it'}: outbox relay",
    }


def _pause_item(row: Row) -> dict[str, Any]:
    return {
        "kind": "paused",
        "paused": f"{row['kind']} {row['name']}",
        "since": row["paused_at"],
        "why": f"{row['kind']} {row['name']} is paused: {row['reason']}",
        "blocked_by": f"{row['paused_by']}: outbox resume {row['kind']} {row['name']} --reason TEXT",
    }


def _circuit_item(row: Row) -> dict[str, Any]:
    return {
        "kind": "circuit",
        "receiver": row["receiver"],
        "since": row["since"],
        "step": "begin",
        "at": row["retry_at"],
        "why": f"receiver {row['receiver']} is left alone: {row['reason']}",
        "blocked_by": (
            f"it does not answer, and {row['probes']} probes have failed. To try it now: outbox resume receiver"
            f" {row['receiver']} --reason TEXT"
        ),
    }


def _stuck_item(row: Row, again: Again | None) -> dict[str, Any]:
    names = ("tenant_id", "operation_id", "tool", "receiver", "state", "cause", "attempt", "since", "age_seconds")
    return {
        "kind": _kind(row),
        **{name: row[name] for name in names},
        "step": "person" if row["needs_person"] else row["step"],
        "at": row["next_at"],
        "why": _why(row, again),
        "blocked_by": _blocked_by(row, again),
        "reads": row["reads"],
        "settle_at": row["settle_at"],
        "blocks": row["blocks"],
    }


def _kind(row: Row) -> str:
    if row["needs_person"]:
        return "person"
    if _is_late(row):
        return "late"
    cause = unsent_cause(row) if _does_not_leave(row) and row["age_seconds"] > LATE_SECONDS else None
    return "doubt" if cause is None else _kind_without_effect(cause)


def _kind_without_effect(cause: Cause) -> str:
    return "refused" if cause in REFUSING_US else "unsent"


def _does_not_leave(row: Row) -> bool:
    """It is to be sent again, and the latest attempt to do so did not leave, or was refused."""
    return bool(row["step"] == "resend" and row["state"] == "unknown" and unsent_cause(row) is not None)


def _why(row: Row, again: Again | None) -> str | None:
    if row["reason"] is not None:
        return reason_of(row, again)
    cause = unsent_cause(row)
    if cause is not None:
        return why_unsent(cause, row)
    return in_words(Cause(row["cause"])) if row["cause"] else None


def _is_late(row: Row) -> bool:
    return bool(row["late_seconds"] > LATE_SECONDS)


def _blocked_by(row: Row, again: Again | None) -> str | None:
    if row["needs_person"]:
        whose = f"{row['operation_id']} --tenant {row['tenant_id']}"
        retry = f", or outbox retry {whose}" if again is not None and again.refusal is None else ""
        return f"a person must decide: outbox why {whose}{retry}"
    sends = row["step"] == "resend"
    if sends and row["paused"]:
        return f"{row['paused']} is paused: outbox resume {row['paused']} --reason TEXT"
    if sends and row["left_alone"]:
        return f"receiver {row['left_alone']} is left alone: {row['circuit_reason']}"
    cause = unsent_cause(row)
    if _does_not_leave(row) and cause is not None:
        return remedy(cause, row)
    if row["next_at"] is None or not _is_late(row):
        return None
    daemon = "relay" if sends else "reconciler"
    return f"{span(row['late_seconds'])} late: does a {daemon} live? outbox doctor"


def _place(cursor: str | None) -> tuple[datetime | None, int | None]:
    if cursor is None:
        return None, None
    since, _, seq = cursor.partition("_")
    try:
        return datetime.fromisoformat(since), number_of(seq)
    except ValueError:
        raise click.BadParameter("it is the `next` of an earlier page", param_hint="--cursor") from None
