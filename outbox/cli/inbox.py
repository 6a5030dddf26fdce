"""inbox: the other half of the transport postgres, installed where operations have their effect."""

import dataclasses
from typing import TYPE_CHECKING

import click

from outbox.cli.commands import act
from outbox.cli.output import say, write_json, write_table

if TYPE_CHECKING:
    from outbox.cli.session import Session

NEXT: str = (
    "Next: select inbox.handle('TOOL', 'SCHEMA.FUNCTION(inbox.request)') in that database. See docs/receivers.md"
)


@act("inbox")
@click.option("--name", required=True, help="What it is called: the `account` of the credentials that lead to it.")
@click.option("--dsn", help="The receiving database, as its owner: env:NAME, file:/path or a libpq string.")
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL instead, for tools of your own.")
@click.option("--no-roles", is_flag=True, help="Make tables and functions only, no roles.")
def inbox_command(session: "Session", *, name: str, dsn: str | None, as_sql: bool, no_roles: bool) -> None:
    """
    Install an inbox in the database where operations have their effect.

    A schema `inbox` with functions that let an operation have its effect once, and two logins: inbox_receiver (for the
    relay) has effects, inbox_looker (for the reconciler) only looks. Safe to run twice; it touches nothing else.

    \b
    Examples:
      outbox inbox --name shop --dsn env:SHOP_OWNER_DSN
      outbox inbox --name shop --sql > inbox.sql
    """  # noqa: D301
    from outbox.receivers.credentials import Secrets
    from outbox.receivers.postgres import kit

    if as_sql:
        text = kit.sql_text(name, roles=not no_roles)
        write_json({"sql": text}) if session.as_json else click.echo(text)
        return
    if dsn is None:
        wrong = "Say which database with --dsn, or --sql to print what it would run."
        raise click.UsageError(wrong, click.get_current_context())
    if dsn.startswith(("env:", "file:")):
        dsn = Secrets().resolve(dsn, "").reveal()
    handlers = kit.install(dsn, name, roles=not no_roles)
    if session.as_json:
        items = [dataclasses.asdict(handler) for handler in handlers]
        write_json({"name": name, "version": kit.KIT_VERSION, "roles": not no_roles, "handlers": items})
        return
    say(f"The inbox {name} is installed.")
    rows = [[item.tool, item.function, item.problem] for item in handlers]
    write_table(("tool", "function", "problem"), rows, empty=NEXT)
