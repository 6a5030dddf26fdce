"""A dump that is restored into another cluster, which counts its transactions anew: the feed goes on where it was."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import psycopg
import pytest

from outbox import Intent, Outbox, migrate
from outbox.embedded import Server, find_binaries
from tests.support.postgres import SETTINGS, Choice, Database
from tests.support.tools import end, register

BOX = Outbox("acme", "checkout")


@pytest.fixture(scope="module")
def servers(pytestconfig: pytest.Config) -> Iterator[tuple[Server, Server]]:
    """An old cluster, which has counted far, and a new one."""
    choice = cast("Choice", pytestconfig.getoption("--pg"))
    binaries = find_binaries(None if choice == "auto" else choice)
    with (
        Server(binaries=binaries, durable=False, settings=SETTINGS) as old,
        Server(binaries=binaries, durable=False, settings=SETTINGS) as new,
    ):
        burn_transactions(old, 3000)
        yield old, new


def burn_transactions(server: Server, count: int) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for _ in range(count):
            connection.execute("select pg_current_xact_id()")


def put(database: Database, *names: str) -> list[int]:
    with database.connect() as connection:
        return [BOX.put(connection, Intent(tool="mail.send", operation_id=name)).seq for name in names]


def told(database: Database, after: str | None = None) -> dict[str, str]:
    with database.connect() as connection:
        return {ended.operation_id: ended.cursor for ended in BOX.feed(connection, after=after)}


def restore(origin: Server, target: Server, name: str, folder: Path) -> Database:
    """Do what an operator would do: roles first, then the dump, into a new database."""
    dump = folder / f"{name}.dump"
    run(origin, "pg_dump", "--format=custom", f"--file={dump}", origin.dsn("app"))
    roles = run(origin, "pg_dumpall", "--roles-only", f"--dbname={origin.dsn()}")
    # Those that exist already are refused, and stay as they are.
    with psycopg.connect(target.dsn(), autocommit=True) as connection:
        connection.execute("drop database if exists app")
        connection.execute("create database app template template0")
    subprocess.run(
        [origin.binaries.path / "psql", "-q", target.dsn()], input=roles, text=True, capture_output=True, check=False
    )
    run(target, "pg_restore", "--exit-on-error", f"--dbname={target.dsn('app')}", str(dump))
    return Database(target.dsn("app"))


def run(server: Server, program: str, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    command = [str(server.binaries.path / program), *arguments]
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=True).stdout


def enter_era(database: Database) -> None:
    with database.connect("relay") as daemon:
        daemon.execute(
            "select outbox.enter_era((select system_identifier from pg_control_system()), outbox.timeline())"
        )


@contextmanager
def nothing_skipped(database: Database, cursors: dict[str, str], expected: list[str]) -> Iterator[None]:
    """What was told before keeps its place, and each cursor of then leads to all that follows it."""
    yield
    everything = list(told(database))
    assert everything == expected
    for name, cursor in cursors.items():
        assert list(told(database, cursor)) == expected[expected.index(name) + 1 :]


def test_cursors_stay_good_from_an_old_cluster_to_a_new_one_and_back(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    old, new = servers
    migrate.create_database(old.dsn(), "app")
    database = Database(old.dsn("app"))
    migrate.upgrade(database.dsn)
    register(database, "mail.send")
    operations = put(database, *"abcdefgh")
    for seq in operations[:3]:
        end(database, seq)
    cursors = told(database)
    assert list(cursors) == list("abc")

    moved = restore(old, new, "there", tmp_path)
    last = moved.value("select max(xid::text::bigint) from outbox.outcome")
    assert moved.value("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint") < last, (
        "the new cluster is younger"
    )
    # Before a daemon has come: what is stored lies in the future. It is not told yet, and nothing is passed over.
    assert told(moved, cursors["b"]) == {}
    with nothing_skipped(moved, cursors, list("abced")):
        enter_era(moved)
        end(moved, operations[4])
        end(moved, operations[3])
    cursors = told(moved)

    returned = restore(new, old, "back", tmp_path)
    # As after a restore of the data alone into a schema that was migrated afresh.
    returned.rows(
        "create or replace function outbox.feed_xid() returns xid8 language sql volatile return pg_current_xact_id()"
    )
    with nothing_skipped(returned, cursors, list("abcedgf")):
        enter_era(returned)
        end(returned, operations[6])
        end(returned, operations[5])


def test_a_cluster_that_has_counted_farther_changes_nothing(servers: tuple[Server, Server], tmp_path: Path) -> None:
    old, new = servers
    with psycopg.connect(new.dsn(), autocommit=True) as connection:
        connection.execute("drop database if exists app")
    migrate.create_database(new.dsn(), "app")
    database = Database(new.dsn("app"))
    migrate.upgrade(database.dsn)
    register(database, "mail.send")
    a, b = put(database, "a", "b")
    end(database, a)
    cursors = told(database)
    moved = restore(new, old, "ahead", tmp_path)
    with nothing_skipped(moved, cursors, ["a", "b"]):
        enter_era(moved)
        end(moved, b)
    assert moved.value("select feed_offset from outbox.instance") == 0
