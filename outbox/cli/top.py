"""top: a live view of receivers and daemons."""

import asyncio
import sys
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from outbox.cli.batches import interruptible
from outbox.cli.commands import act
from outbox.cli.output import safe, write_json, write_table
from outbox.cli.session import Session
from outbox.inspect import STATEMENTS
from outbox.inspect.words import span
from outbox.store import Store

# Of a backlog that is longer, its oldest operations are counted.
COUNTED_MAX: Final = 10_000
SEEN_WITHIN_SECONDS: Final = 30.0
RATE_SECONDS: Final = 10.0
ROWS_MAX: Final = 100

RECEIVERS: Final = (
    "receiver",
    "lanes",
    "state",
    "open",
    "due",
    "executing",
    "unknown",
    "needs_person",
    "proposed",
    "crowd",
)
DAEMONS: Final = ("daemon", "lanes", "age", "attempts", "late_answers", "fenced_writes", "looks")


@act("top")
@click.option("--every", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Look once, and end.")
def top_command(session: Session, *, every: float, once: bool) -> None:
    """
    Watch receivers and daemons, until Ctrl-C.

    Of a receiver with more than ten thousand open operations the oldest ten thousand are counted (`10000+`). `crowd`:
    tenants whose operations fill a lane; the operations of others go past theirs. With --json, or into a pipe, it looks
    once.

    \b
    Examples:
      outbox top
      outbox top --once --json
    """  # noqa: D301
    live = sys.stdout.isatty() and not session.as_json and not once

    async def job() -> dict[str, Any]:
        async with session.store(*STATEMENTS) as store:
            if live:
                await _watch(store, every)
            return await look(store)

    found = session.run(job())
    if session.as_json:
        write_json(found)
    elif not live:
        write_table(RECEIVERS, _receiver_rows(found), empty="There are no receivers.")
        write_table(DAEMONS, _daemon_rows(found), empty="No daemon lives.")


async def _watch(store: Store, every: float) -> None:
    with interruptible() as stop, Live(console=Console(), auto_refresh=False, screen=True) as screen:
        while not stop.is_set():
            screen.update(_screen(await look(store)), refresh=True)
            try:
                async with asyncio.timeout(every):
                    await stop.wait()
            except TimeoutError:
                continue


async def look(store: Store) -> dict[str, Any]:
    """Read what is shown."""
    receivers = await store.dicts("top_receivers", counted_max=COUNTED_MAX, limit=ROWS_MAX)
    daemons = await store.dicts("top_daemons", seen_within_seconds=SEEN_WITHIN_SECONDS, limit=ROWS_MAX)
    (ends,) = await store.dicts("top_ends", seconds=RATE_SECONDS)
    per_second = {name: number / RATE_SECONDS for name, number in ends.items()}
    return {"receivers": receivers, "daemons": daemons, "ended_per_second": per_second}


def _screen(found: dict[str, Any]) -> Group:
    rates = ", ".join(f"{name} {number:.1f}/s" for name, number in found["ended_per_second"].items())
    return Group(
        Text(f"ended: {rates}", style="bold"),
        _table(RECEIVERS, _receiver_rows(found)),
        _table(DAEMONS, _daemon_rows(found)),
        Text("Ctrl-C ends this. What is wrong, and what to do: outbox doctor", style="dim"),
    )


def _table(columns: tuple[str, ...], rows: list[list[Any]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, title_justify="left")
    for name in columns:
        table.add_column(name)
    for row in rows:
        table.add_row(*(Text(safe(cell)) for cell in row))
    return table


def _receiver_rows(found: dict[str, Any]) -> list[list[Any]]:
    rows = []
    for row in found["receivers"]:
        state = "paused" if row["paused"] else "left alone" if row["left_alone"] else "ok"
        more = "+" if row["more"] else ""
        counted = [f"{row[name]}{more}" for name in ("open", "due", "executing", "unknown")]
        rows.append(
            [
                row["receiver"],
                f"{row['held']}/{row['lanes']}",
                state,
                *counted,
                row["needs_person"],
                row["proposed"],
                ", ".join(row["crowd"]),
            ]
        )
    return rows


def _daemon_rows(found: dict[str, Any]) -> list[list[Any]]:
    names = ("attempts", "late_answers", "fenced_writes", "looks")
    return [
        [
            f"{row['kind']} {row['pid']}@{row['host']}",
            row["lanes"],
            span(row["age_seconds"]),
            *(row["counters"].get(name, "") for name in names),
        ]
        for row in found["daemons"]
    ]
