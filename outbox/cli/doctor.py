"""doctor: what is wrong with the whole, and what to do about it."""

from typing import Any

import click

from outbox.cli.commands import act
from outbox.cli.output import write_json, write_table
from outbox.cli.session import Session
from outbox.doctor import STATEMENTS, Finding, Level, Patient, diagnose
from outbox.doctor.finding import problem
from outbox.errors import ConfigError
from outbox.settings import Configuration

EXIT_PROBLEM = 1


@act("doctor")
@click.option("--all", "everything", is_flag=True, help="Also what takes long: a look at every intent.")
@click.option("--strict", is_flag=True, help="Warnings count as problems.")
def doctor_command(session: Session, *, everything: bool, strict: bool) -> int:
    """
    Check everything that operations rest on, and say what to do about what is wrong.

    Schema, server, roles, clocks, registry; whoever keeps dead rows; replication; daemons, lanes, attempts that do not
    leave, pauses, receivers that are left alone; doubts, windows that close, intents that were never placed. Changes
    nothing. Exit code 1: there is a problem. What stands still until somebody acts is one; what somebody has paused, or
    what passes by itself, is a warning.

    \b
    Examples:
      outbox doctor
      outbox doctor --strict --json      for a monitor
    """  # noqa: D301
    configuration, complaints = _file(session)

    async def job() -> list[Finding]:
        async with session.store(*STATEMENTS) as store:
            patient = Patient(store=store, configuration=configuration, everything=everything)
            return complaints + await diagnose(patient)

    found = session.run(job())
    bad = {Level.PROBLEM, Level.WARNING} if strict else {Level.PROBLEM}
    code = EXIT_PROBLEM if any(finding.level in bad for finding in found) else 0
    if session.as_json:
        write_json(_document(found))
        return code
    found.sort(key=lambda finding: [Level.PROBLEM, Level.WARNING, Level.OK].index(finding.level))
    rows = [(finding.level, finding.check, finding.what, finding.advice) for finding in found]
    write_table(("level", "check", "found", "what to do"), rows, empty="")
    return code


def _file(session: Session) -> tuple[Configuration | None, list[Finding]]:
    """The file to compare with, if it is whole. One that is wrong is a finding, and the database is examined still."""
    try:
        configuration = session.configuration()
    except ConfigError as error:
        what = "; ".join(map(str, error.problems)) or error.message
        return None, [problem("registry", f"the file is wrong: {what}", "outbox apply --dry-run says where")]
    return (configuration if configuration.receivers else None), []


def _document(found: list[Finding]) -> dict[str, Any]:
    counted = {level: sum(finding.level is level for finding in found) for level in Level}
    items = [
        {"check": finding.check, "level": finding.level, "found": finding.what, "advice": finding.advice}
        for finding in found
    ]
    return {"items": items, "problems": counted[Level.PROBLEM], "warnings": counted[Level.WARNING], "next": None}
