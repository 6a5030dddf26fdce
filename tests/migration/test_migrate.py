"""Bringing a database to this version's schema, whoever does it, how often, and what is refused."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from outbox import migrate, schema
from outbox.errors import DatabaseUnavailable, NotPermitted, SchemaMismatch
from tests.migration.conftest import Dump
from tests.support.eventually import eventually
from tests.support.postgres import Cluster, Database, url

SCHEMA_FILE = Path(__file__).with_name("schema.sql")


@pytest.fixture
def owner(empty_database: Database) -> Iterator[Database]:
    """The empty database as its owner sees it, who may do anything there but has no say over roles."""
    role = f"{empty_database.name}_owner"  # other sessions may test on the same server
    with empty_database.connect() as connection:
        connection.execute(f"create role {role} login".encode())
        connection.execute(f"alter database {empty_database.name} owner to {role}".encode())
    yield Database(url(empty_database.dsn, user=role, password=None))
    with empty_database.connect() as connection:
        connection.execute(f"drop owned by {role}".encode())
        connection.execute(f"alter database {empty_database.name} owner to current_user".encode())
        connection.execute(f"drop role {role}".encode())


def at_once(*databases: Database) -> list[str]:
    """Migrate each database by a process of its own, all let go by one barrier; the revisions that they found."""
    lock = f"select {{}}({migrate.ADVISORY_LOCK_KEY})"
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    program = "import sys; from outbox import migrate; print(migrate.upgrade(sys.argv[1]).before)"
    with contextlib.ExitStack() as stack:
        gates = {database.dsn: stack.enter_context(database.connect()) for database in databases}
        for gate in gates.values():
            gate.execute(lock.format("pg_advisory_lock").encode())
        processes = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", program, database.dsn], stdout=subprocess.PIPE))
            for database in databases
        ]
        eventually(lambda: databases[0].value(waiting) == len(processes), claim="all wait for the lock")
        for gate in gates.values():
            gate.execute(lock.format("pg_advisory_unlock").encode())
        found = [process.communicate()[0].decode().strip() for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes)
    return found


def test_the_schema_is_the_reviewed_one(database: Database, dump: Dump, pytestconfig: pytest.Config) -> None:
    """Whoever changes the schema sees the whole change in a diff of schema.sql; `make schema` writes that file."""
    if database.value("show server_version_num") < "180000":
        pytest.skip("schema.sql is written by PostgreSQL 18; an older one prints some views in other words")
    if pytestconfig.getoption("--write-schema"):
        SCHEMA_FILE.write_text(dump(database))
    assert dump(database) == SCHEMA_FILE.read_text()


def test_migrating_twice_changes_nothing(empty_database: Database, dump: Dump) -> None:
    first = migrate.upgrade(empty_database.dsn)
    before = dump(empty_database)
    second = migrate.upgrade(empty_database.dsn)
    assert first.before is None
    assert second.before == second.after == first.after
    assert dump(empty_database) == before


def test_two_hosts_that_migrate_at_once_do_the_work_once(
    empty_database: Database, database: Database, dump: Dump
) -> None:
    newest = database.value("select version_num from outbox.alembic_version")
    assert sorted(at_once(empty_database, empty_database)) == sorted(["None", newest])
    assert dump(empty_database) == dump(database)


def test_two_databases_of_one_server_are_migrated_at_once(postgres: Cluster) -> None:
    with postgres.database() as one, postgres.database() as other:
        assert at_once(one, other) == ["None", "None"]
        assert one.value("select id from outbox.instance") != other.value("select id from outbox.instance")


def test_the_printed_sql_makes_the_same_schema(empty_database: Database, database: Database, dump: Dump) -> None:
    with empty_database.connect() as connection:
        connection.execute(migrate.sql_text().encode())
    assert dump(empty_database) == dump(database)
    assert migrate.pending_revisions(empty_database.dsn) == []


def test_asking_what_is_pending_changes_nothing(empty_database: Database, database: Database) -> None:
    assert migrate.pending_revisions(empty_database.dsn) != []
    assert empty_database.value("select to_regnamespace('outbox')") is None
    assert migrate.pending_revisions(database.dsn) == []


def test_the_schema_says_which_version_it_is(database: Database) -> None:
    assert database.value("select schema_version from outbox.instance") == schema.SCHEMA_VERSION


@pytest.mark.parametrize("act", [migrate.upgrade, migrate.pending_revisions])
def test_a_schema_of_a_newer_release_is_refused_and_left_alone(
    database: Database, dump: Dump, act: Callable[[str], object]
) -> None:
    database.rows("update outbox.alembic_version set version_num = '9999'")
    before = dump(database)
    with pytest.raises(SchemaMismatch, match="9999"):
        act(database.dsn)
    assert dump(database) == before
    assert database.rows("select version_num from outbox.alembic_version") == [("9999",)]


def test_a_database_that_is_not_utf_8_is_refused_and_left_alone(postgres: Cluster, empty_database: Database) -> None:
    name = f"{empty_database.name}_latin"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0 encoding 'LATIN1' locale 'C'".encode())
        try:
            latin = Database(url(postgres.dsn, dbname=name))
            with pytest.raises(SchemaMismatch, match="LATIN1"):
                migrate.upgrade(latin.dsn)
            assert latin.value("select to_regnamespace('outbox')") is None
        finally:
            connection.execute(f"drop database {name}".encode())


def test_who_may_not_make_roles_gets_the_tables_and_the_sql_for_somebody_who_may(
    owner: Database, empty_database: Database, database: Database, dump: Dump
) -> None:
    with pytest.raises(NotPermitted) as refused:
        migrate.upgrade(owner.dsn)
    assert migrate.pending_revisions(owner.dsn) == []
    _, _, statements = str(refused.value.hint).partition(":\n")
    with empty_database.connect() as connection:
        connection.execute(statements.encode())
    grants = [line for line in dump(database).splitlines() if line.startswith("GRANT")]
    assert set(grants) <= set(dump(empty_database).splitlines())


def test_an_unreachable_database_is_an_error_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable) as unreachable:
        migrate.upgrade(f"postgresql://me:s3cret@/nothing?host={tmp_path}")
    assert "s3cret" not in str(unreachable.value)
