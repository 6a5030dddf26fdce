"""Lists: one page of items, and where the next one begins."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click

from outbox.cli.output import write_json, write_table
from outbox.cli.session import Session

LIMIT_MAX: Final = 1_000
# The largest number that a cursor can be: that of a bigint.
NUMBER_MAX: Final = 2**63 - 1


def print_page(
    session: Session,
    columns: Sequence[str],
    items: Sequence[Mapping[str, Any]],
    following: str | None,
    *,
    empty: str,
    now: datetime | None = None,
) -> None:
    """Print a page: with --json as `{"items": [...], "next": cursor}`. `now`: what dates are told from, in a table."""
    if session.as_json:
        write_json({"items": items, "next": following})
        return
    write_table(columns, [[item.get(name) for name in columns] for item in items], empty=empty, now=now)
    if following is not None:
        click.echo(f"There are more: --cursor {following}", err=True)


def number_of(cursor: str | None) -> int | None:
    """The number that a cursor of such a page is. BadParameter for anything else."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and int(cursor) <= NUMBER_MAX):
        raise click.BadParameter("it is the `next` of an earlier page", param_hint="--cursor")
    return int(cursor)
