"""put: one intent, in a transaction of its own."""

import sys
from pathlib import Path
from typing import Any, Final

import click

from outbox.cli.commands import act
from outbox.cli.output import write_facts, write_json
from outbox.cli.session import Session
from outbox.errors import DatabaseUnavailable, InvalidIntent, NotPermitted, UnknownTool
from outbox.settings.problems import nobody_has
from outbox.sqlstate import connection_hint

# More than an intent may have; what is larger is refused before it is read whole.
ARGUMENTS_CHARS_MAX: Final = 1_000_000


@act("put")
@click.option("--tool", required=True, help="The operation that is wanted.")
@click.option("--principal", required=True, help="Who asks.")
@click.option("--id", "operation_id", help="The operation id; the same id is the same operation.  [default: a new one]")
@click.option("--resource", help="What it acts on.")
@click.option("--arguments", help="A JSON object; @FILE reads it from a file, - from standard input.")
@click.option("--expected-version", help="The version of the resource that was decided on.")
@click.option("--ordering-key", help="Operations of one key run one after the other.")
@click.option("--not-before", help="No attempt begins before this time (RFC 3339).")
@click.option("--expires-at", help="The permission ends at this time (RFC 3339).")
@click.option("--on-behalf-of", help="Another principal, for whom it is asked.")
@click.option("--compensates", help="The operation that this one makes good.")
@click.option("--revision-of", help="The operation that this one decides anew.")
def put_command(session: Session, *, principal: str, operation_id: str | None, **fields: Any) -> None:
    """
    Put one intent, and print the operation.

    The same id and the same action again answers with the operation that exists; the same id for another action is a
    conflict (exit code 6). A service puts intents in its own transactions, with `outbox.Outbox`; this is for people.

    \b
    Examples:
      outbox put --tenant shop --principal alice --tool mail.send --arguments '{"to": "bob"}'
      outbox put --tenant shop --principal alice --tool inventory.set_available \\
        --id order-17/stock --resource sku-1 --expected-version 7 --arguments @stock.json
    """  # noqa: D301
    import psycopg

    from outbox import Intent, Outbox

    tenant = session.needed_tenant()
    fields["arguments"] = _arguments(fields["arguments"])
    given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    for name in ("not_before", "expires_at"):
        if name in given:
            given[name] = _date(name, given[name])
    if operation_id is not None:
        given["operation_id"] = operation_id
    intent = Intent(**given)
    writer = Outbox(tenant_id=tenant, principal_id=principal)
    dsn = session.dsn(session.settings())
    try:
        with psycopg.connect(dsn, connect_timeout=10, prepare_threshold=None) as connection:
            operation = writer.put(connection, intent)
    except UnknownTool as error:
        known = session.run(_tools(session))
        raise UnknownTool(nobody_has("tool", intent.tool, known), hint=error.hint) from None
    except psycopg.OperationalError as error:
        first_line = str(error).strip().splitlines()[0]
        message = f"Cannot reach the database: {first_line}"
        raise DatabaseUnavailable(message, hint=connection_hint(first_line)) from None
    names = "tenant_id operation_id tool state cause attempt receipt external_id created created_at ended_at purged"
    document = {name: getattr(operation, name) for name in names.split()}
    if session.as_json:
        write_json(document)
    else:
        write_facts(document)


async def _tools(session: Session) -> list[str]:
    """The names to choose from; none for a role that may write and not read."""
    try:
        async with session.store("registry") as store:
            return [tool["name"] for tool in await store.dicts("read_tools")]
    except NotPermitted:
        return []


def _arguments(given: str | None) -> str | None:
    if given == "-":
        return sys.stdin.read(ARGUMENTS_CHARS_MAX)
    if given is None or not given.startswith("@"):
        return given
    try:
        with Path(given[1:]).open(encoding="utf-8") as file:
            return file.read(ARGUMENTS_CHARS_MAX)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidIntent.at("arguments", f"{given[1:]} cannot be read ({type(error).__name__})", "no_file") from None


def _date(name: str, text: str) -> Any:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidIntent.at(name, "a date is written as 2026-11-30T08:00:00Z", "invalid_date") from None
