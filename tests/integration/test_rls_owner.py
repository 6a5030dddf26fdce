"""Row-level security where the tables belong to an ordinary role, as on a managed database: no superuser anywhere."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import psycopg
import pytest

from outbox import Intent, Outbox, migrate
from outbox.daemon import check_role
from outbox.daemon.member import Kind
from outbox.embedded import Server, find_binaries
from outbox.errors import NotPermitted, RoleSettings
from outbox.store import Store
from tests.support.postgres import SETTINGS, Choice, Database
from tests.support.tools import register

ACME, GLOBEX = Outbox("acme", "checkout"), Outbox("globex", "checkout")


@pytest.fixture(scope="module")
def server(pytestconfig: pytest.Config) -> Iterator[Server]:
    choice = cast("Choice", pytestconfig.getoption("--pg"))
    binaries = find_binaries(None if choice == "auto" else choice)
    with Server(binaries=binaries, durable=False, settings=SETTINGS) as started:
        with psycopg.connect(started.dsn(), autocommit=True) as connection:
            connection.execute("create role deployer login createrole")
            connection.execute("create role stranger login")
            connection.execute("create role shop login")
        yield started


@pytest.fixture
def owned(server: Server) -> Iterator[Database]:
    """A database of the deployer's, migrated by it, with security on; `dsn` is the deployer's."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("create database app owner deployer")
    dsn = server.dsn("app", "deployer")
    assert migrate.upgrade(dsn, rls=True).rls
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("grant outbox_writer to shop")
    made = Database(dsn)
    register(made, "mail.send")
    yield made
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("drop database app with (force)")


def put_both(server: Server) -> None:
    with psycopg.connect(server.dsn("app", "shop")) as connection:
        for box in (ACME, GLOBEX):
            with connection.transaction():
                box.put(connection, Intent(tool="mail.send", operation_id="o"))


def test_the_owner_of_the_tables_is_bound_like_anybody(server: Server, owned: Database) -> None:
    put_both(server)
    with owned.connect(autocommit=False) as owner:
        assert owner.execute("select count(*) from outbox.intent").fetchone() == (0,)
        assert owner.execute("select count(*) from outbox.operation").fetchone() == (0,)
        owner.execute("select set_config('outbox.tenant', 'acme', true)")
        assert owner.execute("select tenant_id from outbox.intent").fetchall() == [("acme",)]
        assert owner.execute("select tenant_id from outbox.operation").fetchall() == [("acme",)]
        assert owner.execute("select count(*) from outbox.pending").fetchone() == (1,)
    # Daemons see everything, and functions place and find it.
    with psycopg.connect(server.dsn("app", "outbox_relay")) as relay:
        assert relay.execute("select count(*) from outbox.pending").fetchone() == (2,)
    with psycopg.connect(server.dsn("app", "shop")) as shop:
        assert GLOBEX.get(shop, "o") is not None


@pytest.mark.parametrize("kind", ["relay", "reconciler"])
async def test_a_daemon_that_would_see_nothing_does_not_start(server: Server, owned: Database, kind: Kind) -> None:
    async with Store(owned.dsn, "daemon") as store:
        with pytest.raises(RoleSettings, match=f"row-level security hides.*grant outbox_{kind}"):
            await check_role(store, kind, shared_role=True)
    async with Store(server.dsn("app", f"outbox_{kind}"), "daemon") as store:
        await check_role(store, kind, shared_role=False)


def test_a_migration_sees_every_row_and_leaves_the_security_as_it_was(
    server: Server, owned: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_both(server)
    folder = tmp_path / "migrations"
    shutil.copytree(migrate.migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "0002_next.py").write_text(
        "from outbox.migrate import run_files\n"
        "revision, down_revision, branch_labels, depends_on = '0002', '0001', None, None\n"
        "def upgrade() -> None:\n    run_files(revision)\n"
    )
    (folder / "sql" / "0002").mkdir()
    (folder / "sql" / "0002" / "01.sql").write_text(
        "update outbox.pending set throttled = throttled + 1;\n"
        "create table outbox.added (n int);\n"
        "create function outbox.next_one() returns int language sql security definer"
        " set search_path = pg_catalog, pg_temp as 'select 1';\n"
        "create or replace function outbox.unplaced(p_after bigint, p_limit int)"
        " returns table (seq bigint, tenant_id text, operation_id text, tool text)"
        " language sql stable security definer set search_path = pg_catalog, pg_temp"
        " as $$ select i.seq, i.tenant_id, i.operation_id, i.tool from outbox.intent i where false $$;\n"
    )
    monkeypatch.setattr(migrate, "migrations_folder", lambda: folder)
    report = migrate.upgrade(owned.dsn)
    assert (report.before, report.after, report.rls) == ("0001", "0002", True)
    admin = Database(server.dsn("app"))
    assert admin.rows("select throttled from outbox.pending") == [(1,), (1,)]
    assert admin.value(
        "select bool_and(relrowsecurity and relforcerowsecurity) from pg_class where oid = 'outbox.intent'::regclass"
    )
    owners = "select distinct pg_get_userbyid(proowner) from pg_proc where proname in ('next_one', 'unplaced', 'put')"
    assert admin.rows(owners) == [("outbox_definer",)]
    assert not migrate.upgrade(owned.dsn, rls=False).rls
    with owned.connect() as owner:
        assert owner.execute("select count(*) from outbox.intent").fetchone() == (2,)


def test_who_may_not_make_the_definer_is_told_what_to_run(server: Server) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("create database other owner stranger")
    try:
        dsn = server.dsn("other", "stranger")
        with pytest.raises(NotPermitted, match=r"permission denied|must have admin option") as refused:
            migrate.upgrade(dsn, roles=False, rls=True)
        assert "create role outbox_definer" in (refused.value.hint or "")
        assert not migrate.upgrade(dsn, roles=False).rls
    finally:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("drop database other with (force)")
