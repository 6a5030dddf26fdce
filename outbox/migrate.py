"""Bring a database to this version's schema.

The migrations are Alembic revisions whose SQL lies in files (`migrations/sql/NNNN/*.sql`); in the wheel the folder is
shipped as `outbox/_migrations`, in a checkout (also an editable install) it stands beside the package. They are
forward-only. Everything runs in one transaction under an advisory lock, so two hosts may migrate at once: one does the
work, the other finds it done.

Roles and their settings are not part of a version: roles belong to the cluster, and an installation may forbid their
creation. They are made after the tables, idempotently, in a transaction of their own; where that is refused,
`NotPermitted` carries the exact SQL that somebody with the right must run.

Row-level security by tenant is an option of the installation, no version: it is switched on and off by idempotent files
too, stays as it is unless asked otherwise, and is lifted for the time of a migration, inside of its transaction (under
FORCE even the owner who migrates would see no rows).
"""

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psycopg
import sqlalchemy
import tenacity
from alembic import command, op
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg import errors as pg
from psycopg import sql as composing

from outbox import crashpoints
from outbox.errors import ConfigError, DatabaseUnavailable, NotPermitted, Problem, SchemaMismatch
from outbox.schema import SCHEMA_VERSION
from outbox.sqlstate import connection_hint

VERSION_TABLE = "alembic_version"
VERSION_TABLE_SCHEMA = "outbox"
# Any number, as long as every version uses the same: the first eight bytes of SHA-256("outbox.migrate"), made positive.
ADVISORY_LOCK_KEY = 4_287_031_577_216_804_219
SUPPORTED_SERVERS = range(15, 19)
# What the SQL files mean must not depend on the defaults of the database that they run in.
SESSION = "set search_path = pg_catalog, pg_temp;\nset standard_conforming_strings = on;\n"


@dataclass(frozen=True, slots=True)
class Report:
    """
    What a migration did: the revisions before and after (None: no schema), and whether the roles were made.

    `rls`: whether row-level security by tenant is on now.
    """

    before: str | None
    after: str | None
    roles: bool
    rls: bool = False


def migrations_folder() -> Path:
    """Where the migrations lie: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).parent
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise ConfigError(
        [Problem("installation", f"no migrations beside {package}: the package is incomplete, install it again")]
    )


def run_files(revision: str) -> None:
    """Run the SQL files of one revision on Alembic's connection, or print them in offline mode."""
    for path in sorted((migrations_folder() / "sql" / revision).glob("*.sql")):
        text = path.read_text("utf-8")
        context = op.get_context()
        if context.as_sql:
            context.impl.static_output(text)
        else:
            # The driver's own cursor: SQLAlchemy would read the percent signs of the text as parameters.
            _driver(op.get_bind()).execute(text.encode())
            crashpoints.reach("mid_migrate")


def upgrade(dsn: str, *, roles: bool = True, rls: bool | None = None) -> Report:
    """Migrate the database at `dsn` to the newest schema, and make the roles.

    `rls` switches row-level security by tenant on or off; None leaves it as it is.
    Safe to run twice and at once from two hosts. Raises `DatabaseUnavailable`, `SchemaMismatch` (a server or a schema
    that this version does not know; nothing is changed) or `NotPermitted` (the tables are there, the roles are not).
    """
    with _connecting(dsn, _OWNER) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"select pg_advisory_xact_lock({ADVISORY_LOCK_KEY})")
            _check_server(connection)
            connection.exec_driver_sql("create schema if not exists outbox")
            before = _revision(connection)
            config = _config()
            config.attributes["connection"] = connection
            _refuse_unknown(config, before)
            was_on = before is not None and _security(connection) is not None
            lift = was_on and before not in ScriptDirectory.from_config(config).get_heads()
            if lift:
                _driver(connection).execute(_sql("rls_off.sql").encode())
            command.upgrade(config, "head")
            if lift:
                _driver(connection).execute(rls_sql().encode())
            after = _revision(connection)
        if roles:
            _make_roles(engine)
        rls = was_on if rls is None else rls
        _secure(engine, on=rls)
    return Report(before, after, roles, rls)


def pending_revisions(dsn: str) -> list[str]:
    """The revisions that `upgrade` would run, oldest first. Reads only."""
    with _connecting(dsn, _READER) as engine, engine.connect() as connection:
        _check_server(connection)
        exists = connection.exec_driver_sql("select to_regclass('outbox.alembic_version') is not null").scalar_one()
        current = _revision(connection) if exists else None
    config = _config()
    _refuse_unknown(config, current)
    scripts = ScriptDirectory.from_config(config)
    return [script.revision for script in reversed(list(scripts.iterate_revisions("head", current or "base")))]


def newest_revision() -> str:
    """The revision that `upgrade` leads to."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def sql_text(*, rls: bool = False) -> str:
    """All of it as SQL text, for people who run their own migration tool; roles included."""
    buffer = io.StringIO()
    config = _config()
    config.output_buffer = buffer
    command.upgrade(config, "head", sql=True)
    security = f"\nbegin;\n{rls_sql()}commit;\n" if rls else ""
    return f"{SESSION}create schema if not exists outbox;\n{buffer.getvalue()}\n{roles_sql()}{security}"


def roles_sql() -> str:
    """The SQL that makes the roles, their grants and their settings. Idempotent."""
    return _sql("roles.sql")


def rls_sql() -> str:
    """The SQL that switches row-level security by tenant on, to be run in one transaction. Idempotent."""
    text = _sql("rls.sql")
    # What was run is remembered, so that a migration that changes nothing takes no locks.
    return f"{text}\ncomment on function outbox.check_tenant(text) is 'rls {_fingerprint(text)}';\n"


def _sql(name: str) -> str:
    return (migrations_folder() / "sql" / name).read_text("utf-8")


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _security(connection: sqlalchemy.Connection) -> str | None:
    """The fingerprint of the security that is on; None if it is off."""
    found: str | None = connection.exec_driver_sql(
        "select coalesce(obj_description('outbox.check_tenant(text)'::regprocedure), '') from pg_class"
        " where oid = 'outbox.intent'::regclass and relrowsecurity"
    ).scalar_one_or_none()
    return found


def _secure(engine: sqlalchemy.Engine, *, on: bool) -> None:
    """Switch row-level security on or off, unless it is as it should be. NotPermitted, with the SQL to run."""
    with engine.connect() as connection:
        now = _security(connection)
    if now == (f"rls {_fingerprint(_sql('rls.sql'))}" if on else None):
        return
    text = rls_sql() if on else _sql("rls_off.sql")
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"select pg_advisory_xact_lock({ADVISORY_LOCK_KEY})")
            _driver(connection).execute(text.encode())
    except (pg.InsufficientPrivilege, pg.UndefinedObject) as error:
        raise NotPermitted(
            str(error).splitlines()[0],
            hint="Run in one transaction, as a role that may create roles, after the roles are made:\n" + text,
        ) from None


def _driver(connection: sqlalchemy.Connection) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)


# Roles belong to the cluster, advisory locks to a database: two databases that are migrated at once may meet here.
@tenacity.retry(
    retry=tenacity.retry_if_exception_type((pg.InternalError_, pg.UniqueViolation, pg.DuplicateObject)),
    stop=tenacity.stop_after_attempt(10),
    wait=tenacity.wait_random(0.05, 0.5),
    reraise=True,
)
def _make_roles(engine: sqlalchemy.Engine) -> None:
    try:
        with engine.begin() as connection:
            _driver(connection).execute(roles_sql().encode())
    except pg.InsufficientPrivilege as error:
        raise NotPermitted(
            str(error).splitlines()[0], hint="Run as a role that may create roles:\n" + roles_sql()
        ) from None


# Who may do what is asked for here.
_OWNER = "Migrate as the owner of the schema outbox (the first time: of the database), named in OUTBOX_DATABASE__DSN."
_READER = (
    "Ask as outbox_operator, outbox_approver or outbox_viewer, or as the owner, named in OUTBOX_DATABASE__DSN."
    " `outbox migrate` as the owner renews their grants."
)


@contextmanager
def _connecting(dsn: str, who: str) -> Iterator[sqlalchemy.Engine]:
    """Connections to this database, with errors of ours for what a stranger meets; `who` may do it."""
    engine = _engine(dsn)
    try:
        yield engine
    except (sqlalchemy.exc.DBAPIError, psycopg.Error) as error:
        cause = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error
        message = _first_line(cause)
        if isinstance(cause, pg.InsufficientPrivilege):
            raise NotPermitted(f"{message[:1].upper()}{message[1:]}.", hint=who) from None
        if not isinstance(cause, psycopg.OperationalError | pg.ReadOnlySqlTransaction):
            raise
        raise DatabaseUnavailable(f"Cannot use the database: {message}", hint=connection_hint(message)) from None
    finally:
        engine.dispose()


def _engine(dsn: str) -> sqlalchemy.Engine:
    def connect() -> psycopg.Connection[Any]:
        connection = psycopg.connect(dsn, connect_timeout=10, autocommit=True)
        connection.execute(SESSION.encode())
        connection.autocommit = False
        return connection

    # `creator` takes any libpq string as it is: no second parser of connection strings. READ COMMITTED: who has waited
    # for another host's migration must see its work.
    return sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=connect, poolclass=sqlalchemy.pool.NullPool, isolation_level="READ COMMITTED"
    )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def _revision(connection: sqlalchemy.Connection) -> str | None:
    options = {"version_table": VERSION_TABLE, "version_table_schema": VERSION_TABLE_SCHEMA}
    return MigrationContext.configure(connection, opts=options).get_current_revision()


def _refuse_unknown(config: Config, current: str | None) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise SchemaMismatch(
            f"the database is at schema revision {current}, which this version ({SCHEMA_VERSION}) does not know",
            hint="It was migrated by a newer release: install that release.",
        )


def _check_server(connection: sqlalchemy.Connection) -> None:
    number, encoding = connection.exec_driver_sql(
        "select current_setting('server_version_num')::int, current_setting('server_encoding')"
    ).one()
    if number // 10_000 not in SUPPORTED_SERVERS:
        hint = "Upgrade the server, then run: outbox migrate"
        raise SchemaMismatch(f"PostgreSQL {number // 10_000} is not supported: 15 to 18 are", hint=hint)
    if encoding != "UTF8":
        message = f"the database's encoding is {encoding}: UTF8 is needed, since digests are over UTF-8 bytes"
        raise SchemaMismatch(message, hint="In a shell: createdb --encoding UTF8 --template template0 NAME")


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def create_database(dsn: str, name: str) -> None:
    """Create a database beside the one that `dsn` names. For the demo and `outbox dev`, which bring their own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(composing.SQL("create database {} template template0").format(composing.Identifier(name)))


def drop_database(dsn: str, name: str) -> None:
    """Drop a database that `create_database` made, and end whoever is still connected to it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(composing.SQL("drop database if exists {} with (force)").format(composing.Identifier(name)))
