"""Real PostgreSQL for tests: one server per session, one migrated template, one database per test."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, LiteralString, get_args
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from outbox.embedded import Server, find_binaries

Choice = Literal["auto", "embedded", "installed"]
Role = Literal["writer", "relay", "reconciler", "approver", "operator", "viewer"]

SETTINGS = {
    "max_connections": "200",
    "max_prepared_transactions": "20",  # writers that commit in two phases are users too
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",  # it may lie in memory
    "log_min_messages": "fatal",  # tests provoke errors on purpose
}


@dataclass(frozen=True, slots=True)
class Database:
    """One database of a test. `dsn` is the superuser's, as a URL that libpq and SQLAlchemy both take."""

    dsn: str

    @property
    def name(self) -> str:
        return str(conninfo_to_dict(self.dsn)["dbname"])

    def dsn_for(self, role: Role) -> str:
        """The URL of a login that has the rights of `outbox_<role>` and no others.

        The daemons' roles can log in themselves, as their settings are bound to them; for each other role there is a
        member that can.
        """
        return url(self.dsn, user=_login(role), password=None)

    def connect(self, role: Role | None = None, *, autocommit: bool = True) -> psycopg.Connection[TupleRow]:
        """Open a connection as `role`, or as the superuser. A test that leaves it open fails."""
        return psycopg.connect(self.dsn_for(role) if role else self.dsn, autocommit=autocommit)

    async def connect_async(
        self, role: Role | None = None, *, autocommit: bool = True
    ) -> psycopg.AsyncConnection[TupleRow]:
        """Open the same for asyncio."""
        dsn = self.dsn_for(role) if role else self.dsn
        return await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit)

    def rows(self, query: LiteralString, *parameters: Any) -> list[TupleRow]:
        """Run one statement as the superuser in a transaction of its own, and return what it returns."""
        with self.connect() as connection:
            cursor = connection.execute(query, parameters)
            return cursor.fetchall() if cursor.description else []

    def value(self, query: LiteralString, *parameters: Any) -> Any:
        """Do the same for a statement that returns one row of one column."""
        ((value,),) = self.rows(query, *parameters)
        return value


class Cluster:
    """A server on which tests may create and drop databases and roles whose names start with `outbox_`."""

    def __init__(self, dsn: str) -> None:
        """`dsn` is a superuser's. The server must let the logins of `outbox_*` roles in without a password."""
        self.dsn = dsn
        self._session = f"outbox_test_{os.getpid()}_{secrets.token_hex(3)}"
        self._made = 0

    @contextlib.contextmanager
    def database(self, template: Database | None = None) -> Iterator[Database]:
        """A database of its own, empty or a copy of the template, dropped at the end with whoever is connected."""
        self._made += 1
        made = Database(url(self.dsn, dbname=f"{self._session}_{self._made}"))
        origin = template.name if template else "template0"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(
                # Copying files is four times faster than writing all of the template to the log.
                sql.SQL("create database {} template {} strategy file_copy").format(
                    sql.Identifier(made.name), sql.Identifier(origin)
                )
            )
            if template:
                _copy_role_settings(connection, template.name, made.name)
        if template:
            made.rows("update outbox.instance set database_oid = outbox.database_oid()")  # a copy, not a restored dump
        try:
            yield made
        finally:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(made.name)))

    @contextlib.contextmanager
    def template(self) -> Iterator[Database]:
        """A migrated database to copy, and logins for every role."""
        from outbox import migrate  # here, since most tests need neither a database nor Alembic

        with self.database() as template:
            migrate.upgrade(template.dsn)
            with template.connect() as connection:
                for role in get_args(Role):
                    _ensure_login(connection, role)
            yield template


@contextlib.contextmanager
def cluster(choice: Choice) -> Iterator[Cluster]:
    """The server to test on: OUTBOX_TEST_DSN, else an embedded one, else an installed one; `choice` insists."""
    dsn = os.environ.get("OUTBOX_TEST_DSN")
    if choice == "auto" and dsn:
        yield Cluster(url(dsn))
        return
    binaries = find_binaries(None if choice == "auto" else choice)
    with Server(binaries=binaries, durable=False, settings=SETTINGS, in_memory=True) as server:
        yield Cluster(server.dsn())


def describe(choice: Choice) -> str:
    """Say in one line on what the tests run."""
    if choice == "auto" and os.environ.get("OUTBOX_TEST_DSN"):
        return "PostgreSQL: the one of OUTBOX_TEST_DSN"
    binaries = find_binaries(None if choice == "auto" else choice)
    return f"PostgreSQL: {binaries.origin}, version {binaries.major}, {binaries.path}"


def url(dsn: str, **changes: str | None) -> str:
    """Return a DSN of any form as a URL, with these parts changed (None: removed)."""
    parts = {**conninfo_to_dict(dsn), **changes}
    user, password, dbname = (parts.pop(name, None) for name in ("user", "password", "dbname"))
    account = quote(str(user or ""), safe="") + (f":{quote(str(password), safe='')}" if password else "")
    others = {name: str(value) for name, value in parts.items() if value is not None}
    return f"postgresql://{account}@/{quote(str(dbname or ''), safe='')}?{urlencode(others, quote_via=quote, safe='')}"


def _login(role: Role) -> str:
    return f"outbox_{role}" if role in {"relay", "reconciler"} else f"outbox_test_{role}"


def _ensure_login(connection: psycopg.Connection[TupleRow], role: Role) -> None:
    login = _login(role)
    if connection.execute("select from pg_roles where rolname = %s", [login]).fetchone() is None:
        group = sql.Identifier(f"outbox_{role}")
        with contextlib.suppress(psycopg.errors.DuplicateObject):  # another session on the same server was quicker
            connection.execute(sql.SQL("create role {} login in role {}").format(sql.Identifier(login), group))


def _copy_role_settings(connection: psycopg.Connection[TupleRow], origin: str, copy: str) -> None:
    """Repeat ALTER ROLE ... IN DATABASE for a copy: a template's tables are copied, these settings are not."""
    settings = connection.execute(
        """
        select pg_get_userbyid(setrole), split_part(setting, '=', 1), substr(setting, strpos(setting, '=') + 1)
        from pg_db_role_setting
        join pg_database on pg_database.oid = setdatabase
        cross join unnest(setconfig) as setting
        where datname = %s and setrole <> 0
        """,
        [origin],
    ).fetchall()
    for role, name, value in settings:
        statement = sql.SQL("alter role {} in database {} set {} = {}")
        names = (sql.Identifier(role), sql.Identifier(copy), sql.Identifier(name))
        connection.execute(statement.format(*names, sql.Literal(value)))
