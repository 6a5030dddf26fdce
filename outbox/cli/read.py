"""show, why: everything about one operation."""

from collections.abc import Mapping
from typing import Any, Final

import click

from outbox.cli.commands import act
from outbox.cli.output import safe, write_facts, write_json, write_section
from outbox.cli.session import Session
from outbox.errors import NotFound
from outbox.inspect import (
    STATEMENTS,
    Explanation,
    Found,
    document,
    explain,
    explain_tombstone,
    find,
    read_dossier,
    tombstone,
)
from outbox.store import Store

Row = Mapping[str, Any]
# Of evidence against an end that was purged, so much is shown.
CONTRADICTIONS_MAX: Final = 100


@act("show")
@click.argument("operation_id")
def show_command(session: Session, operation_id: str) -> None:
    """
    Show everything about one operation: who authorized what, on which version, every attempt, and all evidence.

    \b
    Examples:
      outbox show order-17
      outbox show order-17 --tenant shop --json
    """  # noqa: D301
    found = session.run(_document(session, operation_id))
    if session.as_json:
        write_json(found)
        return
    lists = {name: found.pop(name) for name in ("attempts", "evidence", "contradictions") if name in found}
    nested = {
        name: found.pop(name) for name in ("authorization", "contract", "outcome", "doubt", "next") if found.get(name)
    }
    write_facts(found)
    for name, facts in nested.items():
        write_section(name, [f"{key}: {safe(value)}" for key, value in facts.items() if value not in (None, "", [])])
    for name, rows in lists.items():
        write_section(name, [_line(row) for row in rows])


def _line(row: Row) -> str:
    return ", ".join(f"{name} {safe(value)}" for name, value in row.items() if value not in (None, "", 0, False))


async def _document(session: Session, operation_id: str) -> dict[str, Any]:
    async with session.store(*STATEMENTS) as store:
        found = await find(store, operation_id, session.tenant)
        if found.purged:
            return tombstone(await _grave(store, found))
        return document(await read_dossier(store, found))


@act("why")
@click.argument("operation_id")
def why_command(session: Session, operation_id: str) -> None:
    """
    Explain one operation: what may happen next and when, what is known, what is not, and what decides it.

    At the end stands what the provider's support will ask for.

    \b
    Examples:
      outbox why order-17
      outbox why order-17 --tenant shop --json
    """  # noqa: D301
    names, explanation = session.run(_explanation(session, operation_id))
    sections = {
        "next": explanation.next,
        "known": explanation.known,
        "not_known": explanation.not_known,
        "contract": explanation.contract,
        "lane": explanation.lane,
        "reconciler": explanation.reconciler,
        "support": explanation.support,
    }
    if session.as_json:
        write_json({**names, **sections})
        return
    titles = {"not_known": "not known", "next": "what may happen next", "support": "for the provider's support"}
    for name, lines in sections.items():
        write_section(titles.get(name, name), lines)


async def _explanation(session: Session, operation_id: str) -> tuple[dict[str, Any], Explanation]:
    """What it is called, and all that is to be said of it; of a purged one, what is left."""
    async with session.store(*STATEMENTS) as store:
        found = await find(store, operation_id, session.tenant)
        if found.purged:
            row, purged = await _grave(store, found), True
            explanation = explain_tombstone(row)
        else:
            dossier = await read_dossier(store, found)
            row, purged = dossier.row, False
            explanation = explain(dossier)
    names = {name: row[name] for name in ("operation_id", "tenant_id", "state", "cause")}
    return names | {"purged": purged}, explanation


async def _grave(store: Store, found: Found) -> Row:
    rows = await store.dicts("read_tombstone", tenant_id=found.tenant_id, operation_id=found.operation_id)
    if not rows:
        raise NotFound(
            f"Operation {found.operation_id!r} has just been forgotten.",
            hint="Its tool keeps ids for as long as identity_retention says (docs/configuration.md). See: outbox list",
        )
    against = await store.dicts("read_contradictions", seq=found.seq, limit=CONTRADICTIONS_MAX)
    return {**rows[0], "contradictions": against}
