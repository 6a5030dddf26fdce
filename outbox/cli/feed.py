"""feed: how operations ended, in an order in which nothing is ever inserted behind a reader."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from outbox.cli.commands import act
from outbox.cli.output import json_text, safe, write_json, write_table
from outbox.cli.session import Session
from outbox.feed import PAUSE_FIRST_SECONDS, PAUSE_GROWTH, PAUSE_MAX_SECONDS
from outbox.store import Store

LIMIT_MAX: Final = 10_000
COLUMNS: Final = ("ended_at", "tenant_id", "operation_id", "tool", "state", "cause", "external_id")
# What the database says beside the end itself: whether to ask again, and a number that orders nothing here.
NOT_TOLD: Final = {"more", "seq"}


@act("feed")
@click.option("--after", metavar="CURSOR", help="Begin behind the end of this cursor.  [default: the first end]")
@click.option("--follow", is_flag=True, help="Wait for the next ends, until you interrupt it.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=500, show_default=True, help="At most, at a time.")
def feed_command(session: Session, *, after: str | None, follow: bool, limit: int) -> None:
    """
    Tell how operations ended, each once, the oldest first.

    What commits late is told late, and nothing is ever inserted behind what was told: keep the cursor of the last end
    that you have handled, and give it to --after. With --json each end has its cursor; with --follow every end is one
    line. A service reads the same with `Outbox.feed`, inside of its own transactions.

    \b
    Examples:
      outbox feed --tenant shop
      outbox feed --json --after "$CURSOR" --limit 100
      outbox feed --follow --json | while read -r end; do handle "$end"; done
    """  # noqa: D301
    if follow:
        session.streaming = True
        session.run(_follow(session, after, limit))
        return
    items, bookmark = session.run(_read(session, after, limit))
    if session.as_json:
        write_json({"items": items, "next": bookmark["cursor"], "more": bookmark["more"]})
        return
    write_table(COLUMNS, [[item[name] for name in COLUMNS] for item in items], empty="Nothing has ended.")
    click.echo(f"To go on: --after {bookmark['cursor']}", err=True)


async def _read(session: Session, after: str | None, limit: int) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
    """The next ends, and the bookmark behind them."""
    async with session.store("feed") as store:
        rows, bookmark = await _batch(store, session.tenant, after, limit)
        while bookmark["more"] and not rows:
            rows, bookmark = await _batch(store, session.tenant, bookmark["cursor"], limit)
    return rows, bookmark


async def _follow(session: Session, after: str | None, limit: int) -> None:
    pause = PAUSE_FIRST_SECONDS
    async with session.store("feed") as store:
        while True:
            rows, bookmark = await _batch(store, session.tenant, after, limit)
            after = bookmark["cursor"]
            for row in rows:
                sys.stdout.write((json_text(row) if session.as_json else _cells(row)) + "\n")
            sys.stdout.flush()
            if not bookmark["more"]:
                pause = PAUSE_FIRST_SECONDS if rows else min(pause * PAUSE_GROWTH, PAUSE_MAX_SECONDS)
                await asyncio.sleep(pause)


async def _batch(
    store: Store, tenant: str | None, after: str | None, limit: int
) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
    whose = {} if tenant is None else {"tenant_id": tenant}
    statement = "feed_of_one" if whose else "feed_of_all"
    *rows, bookmark = await store.dicts(statement, after=after, batch_max=limit, **whose)
    return [{name: row[name] for name in row if name not in NOT_TOLD} for row in rows], bookmark


def _cells(row: Mapping[str, Any]) -> str:
    return "\t".join(safe(row[name]) for name in COLUMNS)
