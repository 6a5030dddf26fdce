"""init, migrate, apply, contracts: from nothing to a registry."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from outbox.cli.commands import act
from outbox.cli.output import say, write_json, write_section, write_table
from outbox.cli.session import Session
from outbox.errors import ConfigError, NotFound, Refused, SchemaMismatch
from outbox.inspect.words import span
from outbox.os_user import os_user
from outbox.settings import config_path
from outbox.settings.problems import nobody_has

if TYPE_CHECKING:
    from outbox.contract import Wiring
    from outbox.registry import Change, Report

# Five lines that work at once with `outbox dev`, whose echo receiver listens where this file says.
FIRST_FILE: Final = """\
# database.dsn = "postgresql://user@host/app"
#   The database that holds the outbox. Left out: OUTBOX_DATABASE__DSN, else the one that `outbox dev` makes here.

# A receiver is a connection to something that produces effects. `outbox dev` runs an echo at this address; a real one
# has a credential too, by reference: auth = { kind = "bearer", secret = "env:TOKEN", id = "main" }
receivers.echo = { transport = "http", base_url = "http://127.0.0.1:9009", allow_private_addresses = true }

# A tool is an operation that can be asked for, and how.
[tools."echo.say"]
receiver = "echo"
request = { method = "POST", path = "/say" }

# The contract is what the receiver promises. Here: a 200 or 201 proves the effect. With the next two lines also: it
# honours a key for a day, so a lost answer is followed by the same request; without them it waits for a person.
contract.answers = [{ status = [200, 201], means = "receipt" }]
# contract.key = { in = "header", name = "Idempotency-Key" }
# contract.key_retention = "24h"
# docs/configuration.md describes everything that can be said here; `outbox contracts --file` what follows from it.
"""

OTHER: Final = "Name another file: outbox --config FILE init"

# What to type after `outbox init`, and what it does.
NEXT_STEPS: Final = (
    ("outbox dev", "runs everything here, on an embedded PostgreSQL; then, in another terminal:"),
    ('outbox put --tenant me --principal me --tool echo.say --arguments \'{"text": "hello"}\'', "asks for an effect"),
    ("outbox list", "shows what became of it"),
    ("outbox migrate && outbox apply", "prepares a PostgreSQL of your own, once its dsn is named"),
)


@act("init")
def init_command(session: Session) -> None:
    """
    Write a first outbox.toml.

    Never overwrites a file.

    \b
    Examples:
      outbox init
      outbox --config services/mail.toml init
    """  # noqa: D301
    path, _ = config_path(session.config)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(FIRST_FILE)
    except FileExistsError:
        raise Refused(f"{path} exists already.", hint=OTHER) from None
    except OSError as error:
        raise ConfigError.at(str(path), f"it cannot be written ({error.strerror})", "no_file", hint=OTHER) from None
    if session.as_json:
        write_json({"file": str(path), "next_steps": [command for command, _ in NEXT_STEPS]})
        return
    say(f"Wrote {path}. Next:")
    for command, purpose in NEXT_STEPS:
        say(f"  {command}\n      {purpose}")


@act("migrate")
@click.option("--check", is_flag=True, help="Change nothing; fail if there is something to do.")
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL instead, for tools of your own.")
@click.option("--no-roles", is_flag=True, help="Make tables and functions only, no roles.")
@click.option("--rls/--no-rls", default=None, help="Row-level security by tenant.  [default: leave it as it is]")
def migrate_command(session: Session, *, check: bool, as_sql: bool, no_roles: bool, rls: bool | None) -> None:
    """
    Bring the database to this version's schema, and make its roles.

    Safe to run twice, and at once from two hosts. What an installation forbids (making roles) is printed as SQL for
    somebody who may.

    \b
    Examples:
      outbox migrate
      outbox migrate --check      for a deploy that must not change anything
      outbox migrate --sql > outbox.sql
      outbox migrate --rls        transactions then reach one tenant each
    """  # noqa: D301
    from outbox import migrate

    if as_sql:
        text = migrate.sql_text(rls=bool(rls))
        if session.as_json:
            write_json({"sql": text})
        else:
            click.echo(text)
        return
    dsn = session.dsn(session.settings())
    if check:
        if pending := migrate.pending_revisions(dsn):
            raise SchemaMismatch(f"The schema lacks {', '.join(pending)}.", hint="Run: outbox migrate")
        newest = migrate.newest_revision()
        _tell(
            session,
            {"before": newest, "after": newest, "pending": []},
            f"The schema is the newest one: {newest}.",
        )
        return
    report = migrate.upgrade(dsn, roles=not no_roles, rls=rls)
    document: dict[str, Any] = {
        "before": report.before,
        "after": report.after,
        "roles": report.roles,
        "rls": report.rls,
        "pending": [],
    }
    if report.before == report.after:
        _tell(session, document, f"Nothing to do: the schema is at {report.after}.")
    else:
        _tell(session, document, f"The schema went from {report.before or 'nothing'} to {report.after}.")


def _tell(session: Session, document: dict[str, Any], sentence: str) -> None:
    if session.as_json:
        write_json(document)
    else:
        say(sentence)


@act("apply")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option("--prune", is_flag=True, help="Remove tools that the file does not have.")
def apply_command(session: Session, file: Path | None, *, dry_run: bool, prune: bool) -> None:
    """
    Store the receivers, tools and contracts of FILE in the database.

    Everything is checked first, and every problem reported. In one transaction or not at all; running daemons pick it
    up by themselves. The same file again changes nothing. Secrets are never stored, only their references.

    Refused: another number of lanes; moving or removing a tool that has open operations; a policy that changes without
    a new policy_version.

    \b
    Examples:
      outbox apply
      outbox apply outbox.example.toml --dry-run
    """  # noqa: D301
    from outbox.registry import WRITING, apply

    session.config = file or session.config
    configuration = session.configuration()

    async def job() -> "Report":
        async with session.store(WRITING) as store:
            return await apply(store, configuration, os_user(), prune=prune, dry_run=dry_run)

    _print_report(session, session.run(job()), dry_run=dry_run)


def _print_report(session: Session, report: "Report", *, dry_run: bool) -> None:
    promises = {item["tool"]: item for item in _promises_of_file(session)}
    items: list[dict[str, Any]] = [
        {
            "kind": change.kind,
            "name": change.name,
            "change": change.change,
            "version": change.version,
            "new_version": change.new_version,
            "fields": list(change.fields),
            "guarantee": promises[change.name]["guarantee"] if _is_tool(change, promises) else None,
            "warnings": promises[change.name]["warnings"] if _is_tool(change, promises) else [],
        }
        for change in report.changes
    ]
    if session.as_json:
        write_json({"items": items, "changed": report.changed, "redecided": report.redecided, "dry_run": dry_run})
        return
    names = ("kind", "name", "change", "version", "guarantee", "fields")
    rows = [[", ".join(item[name]) if name == "fields" else item[name] for name in names] for item in items]
    write_table(names, rows, empty="The file has no receivers and no tools.")
    if report.redecided:
        say(f"{report.redecided} open operations were permitted under another policy and are decided again.")
    for item in items:
        for warning in item["warnings"]:
            say(f"warning: {item['name']}: {warning}.")
    if dry_run:
        say("This was a dry run: nothing has been changed.")


def _is_tool(change: "Change", promises: dict[str, Any]) -> bool:
    return change.kind == "tool" and change.name in promises


@act("contracts")
@click.argument("tool", required=False)
@click.option("--file", "from_file", is_flag=True, help="What the file says, without a database.")
def contracts_command(session: Session, tool: str | None, *, from_file: bool) -> None:
    """
    Print what follows from each tool's contract: the guarantee, its conditions, and the clauses it rests on.

    A guarantee holds as long as its conditions do; they are what would have to go wrong for a second effect.

    \b
    Examples:
      outbox contracts
      outbox contracts mail.send
      outbox contracts --file          before the first apply
    """  # noqa: D301
    items = _promises_of_file(session) if from_file else session.run(_promises_in_force(session))
    if tool is not None:
        known = [item["tool"] for item in items]
        items = [item for item in items if item["tool"] == tool]
        if not items:
            hint = "See: outbox contracts. To declare it: [tools] in outbox.toml, then outbox apply"
            raise NotFound(nobody_has("tool", tool, known), hint=hint)
    if session.as_json:
        write_json({"items": items, "next": None})
        return
    if not items:
        say("There are no tools yet. Declare some in outbox.toml, and run: outbox apply")
    for item in items:
        version = f", version {item['version']}" if item["version"] else ""
        write_section(
            f"{item['tool']} ({item['receiver']}{version}): {item['guarantee']}",
            [
                *(f"provided that {condition}" for condition in item["conditions"]),
                f"rests on: {'; '.join(item['clauses'])}",
                f"a doubt has ended, or a person is asked, within {span(item['doubt_ends_within_seconds'])}",
                *(["every operation needs an approval"] if item["requires_approval"] else []),
                *(f"warning: {warning}" for warning in item["warnings"]),
            ],
        )


def _promises_of_file(session: Session) -> list[dict[str, Any]]:
    from outbox.contract import Wiring

    file = session.configuration()
    return _promises([(Wiring.of(name, t, file.receivers[t.receiver]), None) for name, t in sorted(file.tools.items())])


async def _promises_in_force(session: Session) -> list[dict[str, Any]]:
    from outbox.registry import READING, read_registry

    async with session.store(READING) as store:
        registry = await read_registry(store)
    return _promises([(entry.wiring, entry.version) for _, entry in sorted(registry.tools.items())])


def _promises(tools: "list[tuple[Wiring, int | None]]") -> list[dict[str, Any]]:
    from outbox.guarantee import mixed

    beside = mixed(wiring for wiring, _ in tools)
    return [_promise(wiring, version, beside.get(wiring.tool)) for wiring, version in tools]


def _promise(wiring: "Wiring", version: int | None, beside: str | None) -> dict[str, Any]:
    from outbox.decide import liveness_bound
    from outbox.guarantee import guarantee, warnings

    promise = guarantee(wiring)
    contract = wiring.contract
    return {
        "tool": wiring.tool,
        "receiver": wiring.receiver.name,
        "version": version,
        "guarantee": promise.name,
        "conditions": list(promise.conditions),
        "clauses": list(promise.clauses),
        "batch": promise.batch,
        "dead_man": promise.dead_man,
        "key_retention_seconds": wiring.retention_seconds,
        "margin_seconds": wiring.margin_seconds,
        "settle_seconds": wiring.settle_seconds,
        "doubt_ends_within_seconds": liveness_bound(wiring),
        "requires_approval": wiring.config.requires_approval,
        "policy_version": wiring.config.policy_version,
        "stated": wiring.config.contract is not None,
        "warnings": [*warnings(wiring), *([beside] if beside else [])],
        "source": contract.source or None,
        "verified_at": contract.verified_at,
        "unverified": list(contract.unverified),
    }
