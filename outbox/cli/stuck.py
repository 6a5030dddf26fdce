"""stuck: what will not move on its own, or is late."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import click

from outbox.cli.commands import act
from outbox.cli.output import plain
from outbox.cli.pages import LIMIT_MAX, print_page
from outbox.cli.session import Session
from outbox.decide import Reason
from outbox.inspect import STATEMENTS
from outbox.inspect.words import REASONS, in_words, span
from outbox.states import Cause
from outbox.store import Store

# A daemon acts within its poll; what is later than this is late.
LATE_SECONDS: Final = 60.0

Row = Mapping[str, Any]


@act("stuck")
@click.option("--all", "everything", is_flag=True, help="All that is in doubt, also what moves by itself.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True)
@click.option("--cursor", help="Where the last page ended (its `next`).")
def stuck_command(session: Session, *, everything: bool, limit: int, cursor: str | None) -> None:
    """
    List what will not move on its own, or is late; the oldest first.

    `kind` says what it is: `person` (somebody must decide), `late` (a daemon should have acted by now), `doubt` (with
    --all: it moves by itself), `contradiction` (evidence against a state), `lane` (work is due, and nobody holds the
    lane), `paused` (a kill switch is on), `circuit` (a receiver does not answer, and is left alone). What waits for an
    approval: outbox list --state proposed.

    \b
    Examples:
      outbox stuck
      outbox stuck --tenant shop --json
    """  # noqa: D301
    items, following = session.run(_stuck(session, everything=everything, limit=limit, cursor=cursor))
    columns = (
        "kind",
        "tenant_id",
        "operation_id",
        "tool",
        "state",
        "since",
        "step",
        "at",
        "why",
        "blocked_by",
        "blocks",
    )
    print_page(session, columns, items, following, empty="Nothing is stuck.")


async def _stuck(
    session: Session, *, everything: bool, limit: int, cursor: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    since, seq = _place(cursor)
    parameters = {"tenant_id": session.tenant, "limit": limit + 1}
    async with session.store(*STATEMENTS) as store:
        rows = await store.dicts(
            "stuck_operations",
            **parameters,
            everything=everything,
            late_seconds=LATE_SECONDS,
            after_since=since,
            after_seq=seq,
        )
        items = [] if cursor else await _stuck_elsewhere(store, session.tenant)
    following = None
    if len(rows) > limit:
        last = rows[limit - 1]
        following = f"{plain(last['since'])}_{last['seq']}"
    return [*items, *map(_stuck_item, rows[:limit])], following


async def _stuck_elsewhere(store: Store, tenant_id: str | None) -> list[dict[str, Any]]:
    """What is stuck and is no operation in doubt: on the first page."""
    contradictions = await store.dicts("stuck_contradictions", tenant_id=tenant_id, limit=LIMIT_MAX)
    lanes = await store.dicts("stuck_lanes", late_seconds=LATE_SECONDS, limit=LIMIT_MAX)
    pauses = await store.dicts("stuck_pauses", limit=LIMIT_MAX)
    circuits = await store.dicts("stuck_circuits", limit=LIMIT_MAX)
    return [
        *({"kind": "contradiction", "step": "person", "why": row.pop("what"), **row} for row in contradictions),
        *(
            {
                "kind": "lane",
                "receiver": row["receiver"],
                "lane": row["lane"],
                "since": row["since"],
                "step": "begin",
                "why": f"work is due in lane {row['lane']} of {row['receiver']}",
                "blocked_by": "no relay holds it: outbox relay",
            }
            for row in lanes
        ),
        *(
            {
                "kind": "paused",
                "paused": f"{row['kind']} {row['name']}",
                "since": row["paused_at"],
                "why": f"{row['kind']} {row['name']} is paused: {row['reason']}",
                "blocked_by": row["paused_by"],
            }
            for row in pauses
        ),
        *(
            {
                "kind": "circuit",
                "receiver": row["receiver"],
                "since": row["since"],
                "step": "begin",
                "at": row["retry_at"],
                "why": f"receiver {row['receiver']} is left alone: {row['reason']}",
                "blocked_by": f"it does not answer; {row['probes']} probes have failed",
            }
            for row in circuits
        ),
    ]


def _stuck_item(row: Row) -> dict[str, Any]:
    reason = REASONS[Reason(row["reason"])] if row["reason"] in set(Reason) else row["reason"]
    return {
        "kind": "person" if row["needs_person"] else "late" if _is_late(row) else "doubt",
        **{name: row[name] for name in ("tenant_id", "operation_id", "tool", "state", "cause", "attempt", "since")},
        "age_seconds": row["age_seconds"],
        "step": "person" if row["needs_person"] else row["step"],
        "at": row["next_at"],
        "why": reason or (in_words(Cause(row["cause"])) if row["cause"] else None),
        "blocked_by": _blocked_by(row),
        "reads": row["reads"],
        "settle_at": row["settle_at"],
        "blocks": row["blocks"],
    }


def _is_late(row: Row) -> bool:
    return bool(row["late_seconds"] > LATE_SECONDS)


def _blocked_by(row: Row) -> str | None:
    if row["needs_person"]:
        return f"a person must decide: outbox why {row['operation_id']}"
    sends = row["step"] == "resend"
    if sends and row["paused"]:
        return f"{row['paused']} is paused"
    if sends and row["left_alone"]:
        return f"receiver {row['left_alone']} is left alone: it does not answer"
    if row["next_at"] is None or not _is_late(row):
        return None
    return f"{span(row['late_seconds'])} late: does a {'relay' if sends else 'reconciler'} live?"


def _place(cursor: str | None) -> tuple[datetime | None, int | None]:
    if cursor is None:
        return None, None
    since, _, seq = cursor.partition("_")
    try:
        return datetime.fromisoformat(since), int(seq)
    except ValueError:
        raise click.BadParameter("it is the `next` of an earlier page", param_hint="--cursor") from None
