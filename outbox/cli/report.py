"""report: what happened lately, by tool and by receiver."""

from typing import Any

import click

from outbox.cli.commands import act
from outbox.cli.output import write_json, write_section, write_table
from outbox.cli.session import Session
from outbox.cli.times import date_of
from outbox.inspect.report import STATES, report
from outbox.inspect.words import clock, span

OPERATIONS = (
    *("receiver", "tool", "put", *STATES, "ended", "attempts_mean", "attempts_max", "throttled", "not_sent"),
    *("duplicates", "contradictions", "writes_refused"),
)
DOUBTS = (
    *("receiver", "tool", "in_doubt", "oldest_doubt", "needs_person", "reconciled", "reconcile_p50", "reconcile_p95"),
    *("reconcile_max", "windows_unused"),
)


@act("report")
@click.option("--since", default="24h", show_default=True, help='A span such as "24h", or a date (RFC 3339).')
def report_command(session: Session, *, since: str) -> None:
    """
    Count what happened lately, by tool and receiver.

    `put` to `rejected`: operations put since then, by the state they are in now. `ended`, attempts and reconcile times:
    of what has ended since then. `in_doubt`, `oldest_doubt`, `needs_person`: now. `duplicates`, `contradictions`:
    observed since then. `writes_refused`: answers under a lost lease, kept as evidence. `windows_unused`: doubts that
    outlasted the window in which a resend would have been safe, and none was made.

    \b
    Examples:
      outbox report
      outbox report --since 7d --json
    """  # noqa: D301

    async def job() -> dict[str, Any]:
        async with session.store("report", "inspect") as store:
            return await report(store, date_of(since, "--since", await store.value("database_clock")))

    found = session.run(job())
    if session.as_json:
        write_json(found)
        return
    several = {item["receiver"] for item in found["items"] if item["receiver"]}
    rows = [
        *found["items"],
        *({"tool": "all", **row} for row in found["receivers"] if len(several) > 1),
        {"receiver": "all", "tool": "all", **found["totals"]},
    ]
    for columns in (OPERATIONS, DOUBTS):
        write_table(columns, [[_cell(row, name) for name in columns] for row in rows], empty="Nothing happened.")
    write_section(f"since {clock(found['since'])}", list(_sentences(found)))


def _cell(row: dict[str, Any], name: str) -> Any:
    """A figure as people read it: spans in words, a mean of two digits."""
    seconds = row.get(f"{name}_seconds")
    if seconds is not None:
        return span(seconds)
    value = row.get(name)
    return f"{value:.2f}" if isinstance(value, float) else value


def _sentences(found: dict[str, Any]) -> list[str]:
    totals = found["totals"]
    lines = []
    if totals["ended"]:
        counted = f"{totals['ended']} operations ended, after {totals['attempts_mean']:.2f} attempts on average"
        quiet = f"{totals['throttled']} throttled, {totals['not_sent']} that never left"
        lines.append(f"{counted} and {totals['attempts_max']} at most ({quiet})")
    if totals["reconciled"]:
        p50, p95, most = (totals[f"reconcile_{name}_seconds"] for name in ("p50", "p95", "max"))
        times = f"{span(p50)} (p50), {span(p95)} (p95), {span(most)} (max)"
        lines.append(f"{totals['reconciled']} of them had been in doubt, for {times}")
    if totals["in_doubt"]:
        oldest = f"the oldest for {span(totals['oldest_doubt_seconds'])}"
        lines.append(f"{totals['in_doubt']} are in doubt now, {oldest}; {totals['needs_person']} need a person")
    for kind, counters in found["daemons"].items():
        numbers = ", ".join(f"{name} {number}" for name, number in counters.items() if name != "daemons" and number)
        lines.append(f"{counters['daemons']} {kind}s lived{f'; they have counted: {numbers}' if numbers else ''}")
    return lines
