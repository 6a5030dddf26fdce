"""What everything rests on: schema, server, roles, clock, registry."""

import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from outbox.contract import Wiring
from outbox.daemon import weak_settings
from outbox.doctor.finding import Finding, Patient, ok, problem, warning
from outbox.inspect.words import span
from outbox.registry import Registry, read_registry
from outbox.schema import SCHEMA_VERSION
from outbox.settings import Configuration

# Clocks of hosts that are kept right differ by milliseconds. Nothing is decided by the host's, but people read logs.
CLOCK_SECONDS_MAX: Final = 5.0

Row = Mapping[str, Any]


async def schema(patient: Patient) -> list[Finding]:
    """Whether the schema is the one of this program, and all of it in force."""
    (row,) = await patient.store.dicts("doctor_instance")
    found = judge_version(row["schema_version"])
    if not row["same_cluster"]:
        what = "the server is not the one that wrote this database: a restore, or a copy"
        found.append(warning("schema", what, "start a daemon: it begins a new life, and raises every fence"))
    for part in await patient.store.dicts("doctor_parts"):
        of = f" of {part['of']}" if part["of"] else ""
        found.append(problem("schema", f"{part['kind']} {part['name']}{of} is not in force", _repair_of(part)))
    return found or ok("schema", f"version {row['schema_version']}, every part of it in force")


def judge_version(version: int) -> list[Finding]:
    """Judge the schema's version by this program's."""
    if version < SCHEMA_VERSION:
        return [problem("schema", f"it is version {version}, this program's is {SCHEMA_VERSION}", "outbox migrate")]
    if version > SCHEMA_VERSION:
        what = f"it is version {version}, newer than this program's ({SCHEMA_VERSION})"
        return [warning("schema", what, "install the release that migrated it")]
    return []


def _repair_of(part: Row) -> str:
    match part["kind"]:
        case "index":
            return f"in psql: reindex index concurrently outbox.{part['name']}"
        case "trigger":
            return f"in psql: alter table outbox.{part['of']} enable trigger {part['name']}; then: outbox repair"
        case _:
            return f"in psql: alter table outbox.{part['of']} validate constraint {part['name']}"


async def server(patient: Patient) -> list[Finding]:
    """Whether the server keeps what it commits, and cleans up behind itself."""
    (row,) = await patient.store.dicts("doctor_instance")
    return judge_server(row)


def judge_server(row: Row) -> list[Finding]:
    """Judge the server by its settings."""
    found = []
    if row["standby"]:
        found.append(problem("server", "it is a standby: nothing can be written", "name the primary in database.dsn"))
    for name in ("fsync", "full_page_writes"):
        if row[name] == "off":
            what = f"{name} is off: a crash of the machine loses committed exposures"
            found.append(problem("server", what, f"set {name} = on"))
    if "off" in {row["autovacuum"], row["track_counts"]}:
        what = "autovacuum is off: dead rows of outbox.pending are never cleaned"
        found.append(problem("server", what, "turn autovacuum and track_counts on"))
    return found or ok("server", "it keeps what it commits, and cleans up behind itself")


async def roles(patient: Patient) -> list[Finding]:
    """Whether the daemons will have the settings that their promises rest on."""
    rows = await patient.store.dicts("doctor_roles")
    found = [
        finding
        for role, settings in groupby(rows, key=lambda row: row["role"])
        for finding in judge_role(role, list(settings))
    ]
    return found or ok("roles", "outbox_relay and outbox_reconciler have the settings that promises rest on")


def judge_role(role: str, rows: Sequence[Row]) -> list[Finding]:
    """Judge one role by its settings."""
    if not rows[0]["made"]:
        return [problem("roles", f"there is no role {role}", "outbox migrate, or what it prints, as a superuser")]
    found = []
    if not rows[0]["may_enter"]:
        found.append(problem("roles", f"{role} may not use the schema", "outbox migrate renews the grants"))
    values = {row["setting"]: row["value"] for row in rows}
    effective = {
        "synchronous_commit": values["synchronous_commit"],
        "isolation": values["default_transaction_isolation"],
        "statement_timeout_ms": _is_set(values["statement_timeout"]),
        "lock_timeout_ms": _is_set(values["lock_timeout"]),
        "idle_in_transaction_ms": _is_set(values["idle_in_transaction_session_timeout"]),
        "hashjoin": values["enable_hashjoin"],
        "mergejoin": values["enable_mergejoin"],
        "seqscan": values["enable_seqscan"],
    }
    found += [
        problem("roles", f"{role}: {weakness}", "outbox migrate sets it; behind a pooler, reconnect it")
        for weakness in weak_settings(effective)
    ]
    if not rows[0]["logs_in"]:
        what = f"{role} cannot log in: its members do not inherit its settings"
        found.append(
            warning("roles", what, f"in psql: alter role {role} login; or database.shared_role with the same settings")
        )
    return found


def _is_set(timeout: str) -> int:
    return 0 if timeout in {"0", "0ms", "0s", "0min"} else 1


async def clock(patient: Patient) -> list[Finding]:
    """Whether the database's clock is a clock, and agrees with this host's."""
    before = time.time()
    (row,) = await patient.store.dicts("doctor_instance")
    uncertain = time.time() - before
    return judge_clock(
        own_shift_seconds=(row["now"] - row["server_now"]).total_seconds(),
        shift_seconds=row["server_now"].timestamp() - before - uncertain / 2,
        uncertain_seconds=uncertain / 2,
    )


def judge_clock(*, own_shift_seconds: float, shift_seconds: float, uncertain_seconds: float) -> list[Finding]:
    """Judge how far outbox.now() is from the server's clock, and the server's from this host's."""
    if abs(own_shift_seconds) > 1.0:
        what = f"outbox.now() is {span(abs(own_shift_seconds))} from the server's clock: this is a simulation"
        return [problem("clock", what, "never in production: every window is measured by it")]
    if abs(shift_seconds) - uncertain_seconds > CLOCK_SECONDS_MAX:
        what = f"this host is {span(abs(shift_seconds))} {'behind' if shift_seconds > 0 else 'ahead of'} the database"
        return [
            warning("clock", what, "synchronise both: nothing is decided by the host's clock, but people read logs")
        ]
    return ok("clock", "the database and this host agree")


async def registry(patient: Patient) -> list[Finding]:
    """Whether what the file says is in force."""
    applied = await read_registry(patient.store)
    if patient.configuration is None:
        return ok("registry", "there is no file to compare with")
    differences = compare(patient.configuration, applied)
    if not differences:
        return ok("registry", "the file is in force")
    return [
        warning("registry", "; ".join(differences), "outbox apply --dry-run shows what it would do; then: outbox apply")
    ]


def compare(file: Configuration, applied: Registry) -> list[str]:
    """Say how a file differs from what is in force. What is in force and not in the file may be another file's."""
    found = []
    for name, config in sorted(file.receivers.items()):
        entry = applied.receivers.get(name)
        if entry is None or entry.config != config:
            found.append(f"receiver {name} is {'not applied' if entry is None else 'another in the file'}")
    for name, tool in sorted(file.tools.items()):
        known = applied.tools.get(name)
        if known is None or known.wiring.digest != Wiring.of(name, tool, file.receivers[tool.receiver]).digest:
            found.append(f"tool {name} is {'not applied' if known is None else 'another in the file'}")
    return found
