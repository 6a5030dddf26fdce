"""A migration in databases whose defaults are not the usual ones gives the same schema."""

import subprocess
import sys

import pytest

from outbox import migrate
from tests.migration.conftest import Dump
from tests.support.eventually import eventually
from tests.support.postgres import Database

DEFAULTS = [
    "default_transaction_isolation = serializable",
    "search_path = impostors, pg_catalog",
    "standard_conforming_strings = off",
    "synchronous_commit = off",
    "datestyle = 'German, DMY'",
    "check_function_bodies = off",
    "row_security = off",
    "lock_timeout = '10s'",
]


@pytest.mark.parametrize("default", DEFAULTS)
def test_the_defaults_of_a_database_do_not_change_the_schema(
    empty_database: Database, database: Database, dump: Dump, default: str
) -> None:
    empty_database.rows("create schema impostors")
    empty_database.rows(
        "create function impostors.sha256(bytea) returns bytea language sql immutable as 'select ''''::bytea'"
    )
    empty_database.rows(f"alter database {empty_database.name} set {default}")
    migrate.upgrade(empty_database.dsn)
    empty_database.rows(f"alter database {empty_database.name} reset all")
    assert dump(empty_database) == dump(database)


def test_who_waited_for_another_migration_sees_its_work_also_where_snapshots_are_old(empty_database: Database) -> None:
    """Under SERIALIZABLE by default the waiting one would have taken its snapshot before the other committed."""
    name = empty_database.name
    empty_database.rows(f"alter database {name} set default_transaction_isolation = serializable")
    program = "import sys; from outbox import migrate; print(migrate.upgrade(sys.argv[1]).before)"
    command = [sys.executable, "-c", program, empty_database.dsn]
    with empty_database.connect() as gate:
        gate.execute("select pg_advisory_lock(%s)", [migrate.ADVISORY_LOCK_KEY])
        waiting = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        eventually(
            lambda: (
                empty_database.value("select count(*) from pg_locks where locktype = 'advisory' and not granted") == 2
            ),
            claim="both wait",
        )
        gate.execute("select pg_advisory_unlock(%s)", [migrate.ADVISORY_LOCK_KEY])
        found = sorted(process.communicate()[0].strip() for process in waiting)
    assert [process.returncode for process in waiting] == [0, 0]
    assert found == ["0001", "None"]
