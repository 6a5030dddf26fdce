"""list: operations, the newest first."""

from datetime import UTC, datetime
from typing import Any

import click

from outbox.cli.commands import act
from outbox.cli.filters import check_names, filters
from outbox.cli.pages import LIMIT_MAX, number_of, print_page
from outbox.cli.session import Session
from outbox.cli.times import date_of
from outbox.inspect import STATEMENTS
from outbox.states import TERMINAL, State


@act("list")
@click.option("--resource", help="Those that act on this resource.")
@filters
@click.option("--state", type=click.Choice([state.value for state in State]), help="Those in this state.")
@click.option("--since", help='Those put since then: a date (RFC 3339) or a span such as "24h".')
@click.option("--external-id", help="Those that the receiver calls so.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True)
@click.option("--cursor", help="Where the last page ended (its `next`).")
def list_command(session: Session, *, limit: int, cursor: str | None, since: str | None, **filters: Any) -> None:
    """
    List operations, the newest first.

    \b
    Examples:
      outbox list --state unknown
      outbox list --tenant shop --tool mail.send --since 24h
      outbox list --receiver warehouse --cause no_connection
      outbox list --external-id re_12345 --json
    """  # noqa: D301
    parameters = filters | {
        "tenant_id": session.tenant,
        "since": since,
        "before": number_of(cursor),
        "limit": limit + 1,
    }
    rows, now = session.run(_list(session, parameters))
    items = [{name: row[name] for name in row if name != "seq"} for row in rows[:limit]]
    following = str(rows[limit - 1]["seq"]) if len(rows) > limit else None
    columns = (
        "tenant_id",
        "operation_id",
        "state",
        "cause",
        "tool",
        "resource",
        "attempt",
        "created_at",
        "external_id",
    )
    print_page(session, columns, items, following, empty="No operations.", now=now)


async def _list(session: Session, parameters: dict[str, Any]) -> tuple[list[dict[str, Any]], datetime]:
    # What is open is found in what is open, however long the history is; an end, and an external id, in the history.
    state = parameters["state"]
    is_open = state is not None and State(state) not in TERMINAL and parameters["external_id"] is None
    if is_open:
        del parameters["external_id"]
    since = parameters["since"]
    if since is not None:
        date_of(since, "--since", datetime.now(UTC))  # what is wrong is said before anything is connected
    async with session.store(*STATEMENTS) as store:
        now = await store.value("database_clock")
        if since is not None:
            parameters["since"] = date_of(since, "--since", now)
        rows = await store.dicts("list_open" if is_open else "list_operations", **parameters)
        if not rows:
            await check_names(store, tool=parameters["tool"], receiver=parameters["receiver"])
        return rows, now
