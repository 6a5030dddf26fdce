"""What slows everything down, or loses it: dead rows, whoever keeps them, and standbys that are behind."""

from collections.abc import Mapping
from typing import Any, Final

from outbox.doctor.finding import Finding, Patient, ok, problem, warning
from outbox.inspect.words import clock, span

# A transaction of ten minutes is somebody's mistake here; a million transactions are a few minutes of full load.
HELD_SECONDS_MAX: Final = 600.0
HELD_TRANSACTIONS_MAX: Final = 1_000_000
SHOWN_MAX: Final = 20
# Autovacuum comes at a fiftieth of the table and is given time; a small table may be dead ten times over.
DEAD_ROWS_MIN: Final = 50_000
DEAD_PART_MAX: Final = 1.0

Row = Mapping[str, Any]


async def xmin(patient: Patient) -> list[Finding]:
    """Whether anybody keeps dead rows from being cleaned."""
    rows = await patient.store.dicts(
        "doctor_xmin", transactions_min=HELD_TRANSACTIONS_MAX, seconds_min=HELD_SECONDS_MAX, limit=SHOWN_MAX
    )
    return [judge_holder(row) for row in rows] or ok("xmin", "nobody keeps dead rows for long")


def judge_holder(row: Row) -> Finding:
    """Judge one transaction, prepared transaction or slot."""
    age = f"{row['transactions']} transactions" if row["transactions"] is not None else ""
    age = f"{span(row['seconds'])}, {age}" if row["seconds"] is not None else age
    match row["kind"]:
        case "session":
            who, advice = (
                f"session {row['name']} ({row['detail']})",
                f"in psql: select pg_terminate_backend({row['name']})",
            )
        case "prepared":
            who, advice = (
                f"prepared transaction {row['name']}",
                f"in psql: commit prepared, or rollback prepared '{row['name']}'",
            )
        case _:
            who = f"replication slot {row['name']}"
            advice = f"start its consumer; or, in psql: select pg_drop_replication_slot('{row['name']}')"
    return warning("xmin", f"{who} has kept dead rows for {age}", advice)


async def bloat(patient: Patient) -> list[Finding]:
    """Whether the busy tables are mostly dead."""
    found = [finding for row in await patient.store.dicts("doctor_tables") if (finding := judge_table(row))]
    return found or ok("bloat", "the busy tables are mostly alive")


def judge_table(row: Row) -> Finding | None:
    """Judge one table by its statistics."""
    if row["dead"] < DEAD_ROWS_MIN or row["dead"] <= DEAD_PART_MAX * row["live"]:
        return None
    cleaned = f"last cleaned {clock(row['vacuumed_at'])}" if row["vacuumed_at"] else "never cleaned"
    what = f"{row['name']} has {row['dead']} dead rows beside {row['live']} ({row['bytes'] // 2**20} MB, {cleaned})"
    return warning("bloat", what, f"see xmin; then, in psql: vacuum outbox.{row['name']}")


async def replication(patient: Patient) -> list[Finding]:
    """Whether a failover would lose exposures that nothing else remembers."""
    (instance,) = await patient.store.dicts("doctor_instance")
    (row,) = await patient.store.dicts("doctor_keyless")
    return judge_replication(row["tools"], standbys=row["standbys"], synchronous=instance["synchronous"])


def judge_replication(tools: list[str], *, standbys: int, synchronous: bool) -> list[Finding]:
    """Judge by the tools of which no resend is safe, and by whom the database is copied to."""
    if not tools:
        return ok("replication", "a resend of every tool is safe: a failover that loses commits duplicates nothing")
    if not standbys:
        return ok("replication", "there is no standby to fail over to")
    if synchronous:
        return ok("replication", "commits wait for a standby")
    what = f"a failover may lose the exposure of an operation of {', '.join(tools)}: asynchronous, and without a key"
    return [problem("replication", what, "set synchronous_standby_names, or give these tools a key in their contract")]
