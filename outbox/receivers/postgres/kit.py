"""The SQL of an inbox, and its installation in the database where operations have their effect."""

import re
from dataclasses import dataclass
from typing import Final

import psycopg
import tenacity
from psycopg import errors as pg
from psycopg import sql as composing
from psycopg.rows import class_row

from outbox.dsn import dsn_problem
from outbox.errors import ConfigError, DatabaseUnavailable, NotPermitted, SchemaMismatch
from outbox.sql import script
from outbox.store import translate

# What the SQL files say of themselves, so that a newer release can tell what it finds.
KIT_VERSION: Final = 1
OLDEST_SERVER: Final = 150_000
# Any number, as long as every version uses the same: the first eight bytes of SHA-256("outbox.inbox"), made positive.
ADVISORY_LOCK_KEY: Final = 4_911_675_338_867_014_923
_NAME: Final = re.compile(r"[!-~]{1,200}")
_SESSION: Final = "set local search_path = pg_catalog, pg_temp;\nset local standard_conforming_strings = on;\n"


def sql_text(name: str, *, roles: bool = True) -> str:
    """All of it as one transaction, for people who run their own migration tool. Raises ConfigError."""
    _check_name(name)
    call = composing.SQL("select inbox.call_it({}, {});").format(name, KIT_VERSION).as_string()
    parts = [_SESSION, script("inbox/schema"), call, *([script("inbox/roles")] if roles else [])]
    return "\n".join(["begin;", *parts, "commit;", ""])


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that carries out a tool; `problem`: why it is not called."""

    tool: str
    function: str
    problem: str | None


# Roles belong to the cluster, advisory locks to a database: two databases that get an inbox at once may meet here.
@tenacity.retry(
    retry=tenacity.retry_if_exception_type((pg.InternalError_, pg.UniqueViolation, pg.DuplicateObject)),
    stop=tenacity.stop_after_attempt(10),
    wait=tenacity.wait_random(0.05, 0.5),
    reraise=True,
)
def install(dsn: str, name: str, *, roles: bool = True) -> list[Handler]:
    """
    Install the inbox, or bring it to this version; return its handlers. Safe to run twice, and at once from two hosts.

    Nothing is changed where this raises: ConfigError, DatabaseUnavailable, SchemaMismatch (a server that is not
    supported), Refused (the inbox that is there has another name) or NotPermitted, whose hint has the SQL that somebody
    must run who may.
    """
    _check_name(name)
    _check_dsn(dsn)
    try:
        with psycopg.connect(dsn, connect_timeout=10) as connection:
            _check(connection)
            connection.execute("select pg_advisory_xact_lock(%s)", [ADVISORY_LOCK_KEY])
            connection.execute(_SESSION.encode())
            connection.execute(script("inbox/schema").encode())
            connection.execute("select inbox.call_it(%s, %s)", [name, KIT_VERSION])
            if roles:
                connection.execute(script("inbox/roles").encode())
            with connection.cursor(row_factory=class_row(Handler)) as cursor:
                return cursor.execute("select tool, function, problem from inbox.handlers order by tool").fetchall()
    except psycopg.OperationalError:
        # The driver's message may quote the connection string.
        raise DatabaseUnavailable("The receiving database cannot be reached.") from None
    except pg.InsufficientPrivilege as error:
        hint = f"Run as a role that may (a schema, and two roles):\n{sql_text(name, roles=roles)}"
        raise NotPermitted(error.diag.message_primary, hint=hint) from None
    except (pg.InternalError_, pg.UniqueViolation, pg.DuplicateObject):
        raise
    except psycopg.Error as error:
        raise translate(error) from None


def _check(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    if connection.info.server_version < OLDEST_SERVER:
        raise SchemaMismatch(f"PostgreSQL {connection.info.server_version // 10_000} is not supported: 15 to 18 are.")
    if connection.info.parameter_status("server_encoding") != "UTF8":
        raise SchemaMismatch("The encoding of the receiving database is not UTF8, which digests and JSON need.")


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError.at("name", "the name of an inbox is printable ASCII without spaces, at most 200 characters")


def _check_dsn(dsn: str) -> None:
    if problem := dsn_problem(dsn):
        raise ConfigError.at("dsn", problem)
