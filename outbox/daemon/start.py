"""How a daemon starts: what this database is, and whether the promises can rest on it."""

import gc
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from outbox import registry
from outbox.daemon.member import Kind, Member, program_version
from outbox.errors import DatabaseError, DatabaseUnavailable, NotPermitted, RoleSettings, SchemaMismatch
from outbox.observe import emit
from outbox.schema import DAEMON_VERSION, OLDEST_SCHEMA, SCHEMA_VERSION
from outbox.settings import DatabaseSettings
from outbox.sqlstate import ADDRESS
from outbox.store import Store

if TYPE_CHECKING:
    from uuid import UUID


# One batch after a failover takes well under a second, and the role's statement_timeout is 30 s.
SWEEP_BATCH_MAX = 5_000


# Objects that are made before the next look for cycles.
_GC_OBJECTS = 20_000


def collect_rarely() -> None:
    """
    Look for cycles of objects seldom, and never among those that are there now.

    Daemons make many small objects per operation and no cycles: to look every 700 takes time and finds nothing.
    """
    gc.freeze()
    gc.set_threshold(_GC_OBJECTS)


class Asks(Protocol):
    """Whoever runs named statements: one connection, or a store."""

    async def dicts(self, statement: str, /, **parameters: Any) -> list[dict[str, Any]]:
        """Run one; its rows."""

    async def value(self, statement: str, /, **parameters: Any) -> Any:
        """Run one; the first column of its first row."""


class Life:
    """Which database this is, and which life of it: looked at on every new connection.

    Behind a pooler, whose connections outlive the server's, also with every heartbeat.

    A failover or a restore gives a database a new timeline or another identifier. What was exposed just before may have
    left no trace, and fences may have gone back; so `outbox.enter_era` raises every fence, and `outbox.sweep_era`
    makes unknown what may have been exposed, before this process sends anything on the new connection.
    """

    def __init__(self) -> None:
        self.instance_id: UUID | None = None
        self.era = 0

    async def look(self, session: Asks) -> None:
        """Check one connection.

        Raises SchemaMismatch, DatabaseUnavailable (a standby), or DatabaseError (another database than before).
        """
        rows = await session.dicts("read_instance")
        if not rows:
            raise SchemaMismatch("The schema is there, but not the row that names it.", hint="Run: outbox migrate")
        facts = rows[0]
        if facts["standby"]:
            raise DatabaseUnavailable("The server is a standby.", hint="Name the primary in the daemon's dsn.")
        check_schema(facts["schema_version"], facts["min_daemon"])
        if self.instance_id not in (None, facts["id"]):
            message = "The DSN leads to another database than before: its instance has another id."
            raise DatabaseError(message, hint="Restart the daemon, if that is right; else correct its dsn.")
        self.instance_id, self.era = facts["id"], facts["era"]
        server = {"system_identifier": facts["server_identifier"], "timeline": facts["server_timeline"]}
        if server == {name: facts[name] for name in server} and not (facts["unswept"] or facts["moved"]):
            return
        await session.value("enter_era", **server)
        made_unknown = 0
        # Another daemon may be doing the same: each batch waits for the other's, and the last one finds nothing left.
        while (more := await session.value("sweep_era", batch_max=SWEEP_BATCH_MAX)) is not None:
            made_unknown += more
        self.era = (await session.dicts("read_instance"))[0]["era"]
        emit("era_entered", era=self.era, timeline=server["timeline"], made_unknown=made_unknown)


def check_schema(schema_version: int, min_daemon: int) -> None:
    """Refuse a schema outside of what this program knows, naming both sides. Raises SchemaMismatch."""
    if schema_version < OLDEST_SCHEMA:
        raise SchemaMismatch(
            f"The database has schema {schema_version}, which is older than {OLDEST_SCHEMA}: too old for this program "
            f"({program_version()}).",
            hint="Run: outbox migrate",
        )
    if min_daemon > DAEMON_VERSION:
        raise SchemaMismatch(
            f"The database has schema {schema_version}, which needs daemons of generation {min_daemon}; this program "
            f"({program_version()}, for schema {SCHEMA_VERSION}) is of generation {DAEMON_VERSION}.",
            hint="Install the release that migrated it.",
        )


async def check_role(store: Store, kind: Kind, *, shared_role: bool) -> None:
    """
    Check that this session has the settings that promises rest on.

    Raises RoleSettings with all that is wrong; of a role that is not the daemon's own, that alone.
    """
    (found,) = await store.dicts("effective_settings")
    wrong = []
    if found["role"] != f"outbox_{kind}" and not shared_role:
        raise RoleSettings(f"The {kind} has logged in as {found['role']}, not as outbox_{kind}.", hint=_log_in_as(kind))
    if not found["sees_every_tenant"]:
        wrong.append(f"row-level security hides the operations from it (grant outbox_{kind} to it)")
    wrong += weak_settings(found)
    if wrong:
        raise RoleSettings(
            f"The settings of role {found['role']} are not safe: {'; '.join(wrong)}.",
            hint="`outbox migrate` sets them for outbox_relay and outbox_reconciler; behind a pooler, reconnect it.",
        )
    if found["fsync"] == "off":
        emit("settings_weak", role=found["role"], reason="fsync is off: a crash of the machine loses exposures")


def _log_in_as(kind: Kind) -> str:
    variable = f"OUTBOX_{kind.upper()}__DSN"
    return (
        f"Log in as outbox_{kind}, which `outbox migrate` has made: {variable}=postgresql://outbox_{kind}:...@HOST/DATABASE"
        f" (or [{kind}] dsn of the file). In psql, to give it a password: alter role outbox_{kind} password '...'."
        " Under another role only database.shared_role = true lets daemons run."
    )


def weak_settings(found: Mapping[str, Any]) -> list[str]:
    """Say which settings, named as by `effective_settings`, the promises cannot rest on."""
    wrong = []
    if found["synchronous_commit"] == "off":
        wrong.append("synchronous_commit = off loses committed exposures in a crash")
    if found["isolation"] != "read committed":
        wrong.append(f"default_transaction_isolation is {found['isolation']}, not read committed")
    wrong += [
        f"{name} is not set: a stopped process could hold a lane"
        for name in ("statement_timeout", "lock_timeout", "idle_in_transaction")
        if not found[f"{name}_ms"]
    ]
    wrong += [
        f"enable_{plan} is on: with stale statistics a burst would stand still"
        for plan in ("hashjoin", "mergejoin", "seqscan")
        if found[plan] == "on"
    ]
    return wrong


@asynccontextmanager
async def opened(
    dsn: str,
    member: Member,
    life: Life,
    database: DatabaseSettings,
    *,
    groups: Sequence[str] = (),
    connections_max: int,
    address: str = ADDRESS,
) -> AsyncIterator[Store]:
    """A checked store with the statements of `daemon`, `registry` and `groups`.

    `address` says where the DSN stands, for whoever reads that it leads nowhere.

    Raises DatabaseUnavailable, SchemaMismatch, RoleSettings, NotPermitted or another DatabaseError: a daemon that
    cannot keep its promises does not start.
    """
    store = Store(
        dsn,
        "daemon",
        registry.READING,
        *groups,
        name=f"outbox {member.kind}",
        connections_max=connections_max,
        pooler=database.pooler,
        connected=life.look,
        address=address,
    )
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(store)
            await check_role(store, member.kind, shared_role=database.shared_role)
        except NotPermitted as error:
            own = f"In psql: grant outbox_{member.kind} to ROLE." if database.shared_role else _log_in_as(member.kind)
            raise NotPermitted(f"The {member.kind}'s role lacks a right: {error.message}", hint=own) from None
        yield store
