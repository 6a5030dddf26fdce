"""A stage for tests of the schema: a tool, intents, holders of lanes, people; each under the role that may do it."""

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, LiteralString, Self, TypeVar, cast
from uuid import UUID, uuid4

import psycopg
from psycopg import sql as composing
from psycopg.abc import Buffer
from psycopg.pq import ExecStatus
from psycopg.rows import dict_row
from psycopg.types.datetime import TimestamptzLoader

from outbox import sql
from tests.support.eventually import eventually
from tests.support.postgres import Database, Role

T = TypeVar("T")
Row = dict[str, Any]
Connection = psycopg.Connection[Row]

NO_BOUND = 2**63 - 1
RELAY = {**sql.load("daemon"), **sql.load("relay")}
WITNESS: LiteralString = """
select outbox.witness(%(seq)s, %(attempt)s, %(fence)s, %(kind)s, %(verdict)s, %(external_id)s, %(receipt)s,
  %(duplicates)s, %(status)s, %(excerpt)s, %(request_id)s, %(sent_at)s, %(source)s, %(stated_by)s, %(note)s)
  as evidence_id
"""

# The numbers of a tool whose key is honoured for a day, as `outbox apply` would derive them.
KEYED: Row = {
    "retention": "24 hours",
    "margin": "1 minute",
    "reach": "30 seconds",
    "deadline": "5 seconds",
    "settle": "40 seconds",
    "resend_safe": True,
}
# No key; a look-up proves absence once the bound has passed.
LOOKED_UP: Row = {"reach": "30 seconds", "deadline": "5 seconds", "settle": "40 seconds"}
# Neither: a person decides.
BLIND: Row = {"reach": "5 seconds", "deadline": "5 seconds"}
# No key, and a resend is harmless at any time, but may land late.
REPEATABLE: Row = {
    "reach": "30 seconds",
    "deadline": "5 seconds",
    "settle": "40 seconds",
    "repeat_safe": True,
    "resend_safe": True,
    "lands_late": True,
}

# Every table that holds a fact about an operation or a lane; `everything` reads them all.
TABLES = (
    "intent",
    "pending",
    "doubt",
    "outcome",
    "attempt",
    "evidence",
    "objection",
    "approval",
    "lane",
    "tombstone",
    "landing",
    "pause",
    "audit",
    "instance",
)


class Stage:
    """One migrated database with the acts of everybody who uses it. Close it, or use it as a context."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._open = contextlib.ExitStack()
        self._threads = self._open.enter_context(ThreadPoolExecutor())
        self.sessions: list[Connection] = []
        self.admin = self.connect()
        self._roles: dict[Role, Connection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    # ------------------------------------------------------------------------------------------------- connections

    def connect(self, role: Role | None = None) -> Connection:
        """Open one more connection in autocommit; it is closed with the stage."""
        connection = cast("Connection", self._open.enter_context(self.database.connect(role)))
        connection.row_factory = dict_row
        connection.adapters.register_loader("timestamptz", _InfinityLoader)
        self.sessions.append(connection)
        return connection

    def session(self, role: Role | None = None) -> Connection:
        """Open one that may wait, and stand idle inside a transaction, for as long as a test's barrier needs."""
        connection = self.connect(role)
        connection.execute(
            "set lock_timeout = 0; set idle_in_transaction_session_timeout = 0; set statement_timeout = 0"
        )
        return connection

    def as_role(self, role: Role) -> Connection:
        """Return the one connection of the stage under this role."""
        if role not in self._roles:
            self._roles[role] = self.connect(role)
        return self._roles[role]

    def start(self, act: Callable[[], T]) -> "Future[T]":
        """Begin an act that may block, in a thread."""
        return self._threads.submit(act)

    def wait_until_blocked(self, waiting: Connection, by: Connection | None = None) -> None:
        """Return once the server says that this session waits for a lock (of that other session)."""
        pid, other = waiting.info.backend_pid, by.info.backend_pid if by else None

        def blocked() -> bool:
            blockers = self.value("select pg_blocking_pids(%s)", pid)
            return other in blockers if other else bool(blockers)

        eventually(blocked, claim=f"session {pid} waits for {other or 'a lock'}")

    # ------------------------------------------------------------------------------------------------------ reading

    def rows(self, query: LiteralString, *parameters: Any) -> list[Row]:
        """Run a query as the superuser."""
        cursor = self.admin.execute(query, parameters)
        # Not `description`, which is None for rows without columns too.
        returns_rows = cursor.pgresult is not None and cursor.pgresult.status == ExecStatus.TUPLES_OK
        return cursor.fetchall() if returns_rows else []

    def value(self, query: LiteralString, *parameters: Any) -> Any:
        """Do the same for one value."""
        (row,) = self.rows(query, *parameters)
        (value,) = row.values()
        return value

    def one(self, table: LiteralString, seq: int) -> Row | None:
        """Read the row of an operation in a table that has one at most."""
        query = composing.SQL("select * from outbox.{} where seq = %s").format(composing.Identifier(table))
        found = self.admin.execute(query, [seq]).fetchall()
        assert len(found) <= 1
        return found[0] if found else None

    def pending(self, seq: int) -> Row:
        """Read the row of an operation that must be open."""
        row = self.one("pending", seq)
        assert row is not None, f"operation {seq} is not open"
        return row

    def doubt(self, seq: int) -> Row:
        """Read the doubt of an operation that must be in doubt."""
        row = self.one("doubt", seq)
        assert row is not None, f"operation {seq} is not in doubt"
        return row

    def outcome(self, seq: int) -> Row:
        """Read the end of an operation that must have ended."""
        row = self.one("outcome", seq)
        assert row is not None, f"operation {seq} has not ended"
        return row

    def state(self, seq: int) -> str:
        """Return the state of an operation, wherever it lies."""
        return str(self.value("select state from outbox.operation where seq = %s", seq))

    def everything(self) -> dict[str, list[Row]]:
        """Read every row of every table, to show that something changed nothing."""
        return {
            table: self.admin.execute(
                composing.SQL("select to_jsonb(t) as row from outbox.{} t order by t::text").format(
                    composing.Identifier(table)
                )
            ).fetchall()
            for table in TABLES
        }

    # ------------------------------------------------------------------------------------------------------- acting

    def register(self, tool: str = "stock.set", receiver: str = "warehouse", *, lanes: int = 1, **numbers: Any) -> int:
        """Write a tool (and its receiver, if new) as `outbox apply` would; returns the receiver's id."""
        operator = self.as_role("operator")
        receiver_id = self.rows("select receiver_id from outbox.receiver where name = %s", receiver)
        if not receiver_id:
            receiver_id = operator.execute(
                "insert into outbox.receiver (name, transport, lanes, config) values (%s, 'http', %s, '{}')"
                " returning receiver_id",
                [receiver, lanes],
            ).fetchall()
            operator.execute(
                "insert into outbox.lane (receiver_id, lane, fence)"
                " select %s, n, outbox.fence_of((select era from outbox.instance), 0)"
                " from generate_series(0, %s - 1) n",
                [receiver_id[0]["receiver_id"], lanes],
            )
        (contract,) = operator.execute(
            "insert into outbox.contract (digest, tool, version, body) values (%s, %s, 1, '{}') returning contract_id",
            [hashlib.sha256(tool.encode()).digest(), tool],
        ).fetchall()
        columns = {
            "name": tool,
            "receiver_id": receiver_id[0]["receiver_id"],
            **contract,
            **(numbers or KEYED),
        }
        insert(operator, "tool", columns)
        return int(receiver_id[0]["receiver_id"])

    def put(self, operation_id: str, tool: str = "stock.set", tenant: str = "acme", **columns: Any) -> int:
        """Write one intent with a plain INSERT, as a writer; returns its seq."""
        intent = {"resource": None, "expected_version": None, "arguments": "{}", "principal_id": "svc", **columns}
        self.as_role("writer").execute(
            insert_intent(intent), intent | {"tenant_id": tenant, "operation_id": operation_id, "tool": tool}
        )
        query = "select seq from outbox.intent where tenant_id = %s and operation_id = %s"
        return int(self.value(query, tenant, operation_id))

    def holder(self, lane: int = 0, receiver: str = "warehouse", *, connection: Connection | None = None) -> "Holder":
        """Return somebody who can take a lane."""
        receiver_id = int(self.value("select receiver_id from outbox.receiver where name = %s", receiver))
        return Holder(connection or self.connect("relay"), receiver_id, receiver, lane)

    def unknown(self, operation_id: str, holder: "Holder", **columns: Any) -> int:
        """Put an operation and make it unknown by an attempt of which nothing is heard; returns its seq."""
        seq = self.put(operation_id, **columns)
        (attempt,) = holder.begin_these(seq)
        assert holder.record_unknown(seq, attempt["attempt"]) == [seq]
        return seq

    def witness(self, seq: int, kind: str, *, role: Role = "relay", **columns: Any) -> int:
        """Append evidence, as a daemon does."""
        facts = dict.fromkeys(
            [
                "attempt",
                "fence",
                "verdict",
                "external_id",
                "receipt",
                "duplicates",
                "status",
                "excerpt",
                "request_id",
                "sent_at",
                "stated_by",
                "note",
            ]
        )
        facts |= {"seq": seq, "kind": kind, "source": "test"} | columns
        (row,) = self.as_role(role).execute(WITNESS, facts).fetchall()
        return int(row["evidence_id"])

    def settle(self, seq: int, attempt: int, to: str, *, role: Role = "reconciler", cause: str | None = None) -> str:
        """Settle an unknown operation, as a reconciler does."""
        (row,) = (
            self.as_role(role)
            .execute(
                "select outbox.settle(%s, %s, %s, %s, 'reconciler', null, null, null) as answer",
                [
                    seq,
                    attempt,
                    to,
                    cause or {"succeeded": "confirmed", "rejected": "no_effect"}.get(to, "proven_absent"),
                ],
            )
            .fetchall()
        )
        return str(row["answer"])


class _InfinityLoader(TimestamptzLoader):
    """PostgreSQL's infinities as the first and the last datetime."""

    def load(self, data: Buffer) -> datetime:
        infinities = {b"infinity": datetime.max.replace(tzinfo=UTC), b"-infinity": datetime.min.replace(tzinfo=UTC)}
        return infinities.get(bytes(data)) or super().load(data)


@dataclass(slots=True)
class Holder:
    """Somebody who takes a lane and acts in it with the relay's own statements. `None` answers mean *lease lost*."""

    connection: Connection
    receiver_id: int
    receiver: str
    lane: int
    owner: UUID = field(default_factory=uuid4)
    fence: int = -1

    def run(self, statement: str, **parameters: Any) -> list[Row]:
        """Run one of the relay's statements with this holder's lane, fence and owner."""
        mine = {
            "receiver_id": self.receiver_id,
            "receiver": self.receiver,
            "lane": self.lane,
            "fence": self.fence,
            "owner": self.owner,
            "member_id": self.owner,
        }
        return self.connection.execute(RELAY[statement], mine | parameters).fetchall()

    def take(self, ttl_seconds: float = 30) -> int | None:
        """Take the lane; returns how many rows became unknown, or None if somebody else holds it."""
        rows = self.run("take_lane", ttl_seconds=ttl_seconds)
        if not rows:
            return None
        self.fence = rows[0]["fence"]
        return int(rows[0]["made_unknown"])

    def taken(self, ttl_seconds: float = 30) -> Self:
        """Take the lane, which must be free."""
        assert self.take(ttl_seconds) is not None
        return self

    def renew(self, ttl_seconds: float = 30) -> bool:
        """Say whether the lane is still ours, for another while."""
        lanes = {
            "receiver_ids": [self.receiver_id],
            "lanes": [self.lane],
            "fences": [self.fence],
            "owners": [self.owner],
        }
        return bool(self.run("renew_leases", ttls=[ttl_seconds], **lanes))

    def give_back(self) -> None:
        """Give the lane back."""
        assert self.run("give_back_lane")

    def begin(self, after: int = 0, upto: int = NO_BOUND, batch_max: int = 500) -> list[Row] | None:
        """Expose what is due in a range."""
        return _answer(
            self.run("begin_range", after=after, upto=upto, batch_max=batch_max, resends=True, frontier=True)
        )

    def begin_these(self, *seqs: int, batch_max: int = 500) -> list[Row]:
        """Expose these, if they still may; the lease must be held."""
        begun = _answer(self.run("begin_these", seqs=list(seqs), batch_max=batch_max, resends=True))
        assert begun is not None, "the lease is lost"
        return begun

    def end(
        self,
        *attempts: tuple[int, int],
        state: str = "succeeded",
        cause: str | None = None,
        external_id: str | None = None,
    ) -> list[int] | None:
        """Record an answer that settles each of these (seq, attempt)."""
        nothing = dict.fromkeys(
            ["wire_digests", "statuses", "excerpts", "request_ids", "peers", "receipts"], [None] * len(attempts)
        )
        rows = self.run(
            "end_operations",
            **columns_of(attempts),
            **nothing,
            states=[state] * len(attempts),
            for_alls=[False] * len(attempts),
            causes=[cause or ("refused" if state == "rejected" else None)] * len(attempts),
            sent_keys=[uuid4() for _ in attempts],
            external_ids=[external_id] * len(attempts),
        )
        return _seqs(rows)

    def record_unknown(self, seq: int, attempt: int, **columns: Any) -> list[int] | None:
        """Record that nothing is proven of an attempt."""
        facts = {
            "causes": "timeout",
            "steps": "look",
            "delays": 1.0,
            "patiences": 0.0,
            "reasons": None,
            "no_resends": False,
            "accepteds": False,
            "sent_keys": uuid4(),
            "wire_digests": None,
            "statuses": None,
            "excerpts": None,
            "request_ids": None,
            "peers": None,
        } | columns
        rows = self.run(
            "record_unknown", **columns_of([(seq, attempt)]), **{name: [one] for name, one in facts.items()}
        )
        return _seqs(rows)

    def withdraw(self, seq: int, attempt: int, **columns: Any) -> list[int] | None:
        """Record that an attempt had no effect."""
        facts = {
            "causes": "not_sent",
            "steps": "none",
            "delays": 1.0,
            "patiences": 0.0,
            "reasons": None,
            "no_resends": False,
            "not_sents": True,
            "throttleds": False,
            "firsts": False,
            **dict.fromkeys(("sent_keys", "wire_digests", "statuses", "excerpts", "request_ids", "peers")),
        } | columns
        rows = self.run(
            "withdraw_attempts", **columns_of([(seq, attempt)]), **{name: [one] for name, one in facts.items()}
        )
        return _seqs(rows)


class Clock:
    """The time of a simulation database: the server's, shifted by as much as a test says."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.rows(
            """
            create table outbox.clock_shift as select interval '0' as shift;
            grant select on outbox.clock_shift to public;
            create or replace function outbox.now() returns timestamptz language sql volatile parallel safe
              as 'select clock_timestamp() + shift from outbox.clock_shift'
            """
        )

    def advance(self, seconds: float) -> None:
        """Let time pass for everybody."""
        self._database.rows("update outbox.clock_shift set shift = shift + %s * interval '1 second'", seconds)


def empty(database: Database) -> None:
    """Forget everything that a test did, its clock included. Much faster than another copy of the template."""
    with database.connect() as connection:
        # What happened is history, and history is kept by triggers: a replica fires none.
        connection.execute("set session_replication_role = replica")
        tables = connection.execute(
            "select tablename from pg_tables where schemaname = 'outbox'"
            " and tablename not in ('instance', 'cause', 'alembic_version')"
        )
        names = [composing.Identifier("outbox", row[0]) for row in tables.fetchall()]
        for name in names:
            connection.execute(composing.SQL("delete from {}").format(name))
        connection.execute(
            "select setval(oid, 1, false) from pg_class where relkind = 'S' and relnamespace = 'outbox'::regnamespace"
        )
        connection.execute(
            """
            update outbox.instance set era = 1, swept_era = 1, timeline = outbox.timeline();
            create or replace function outbox.now() returns timestamptz language sql volatile parallel safe
              return clock_timestamp();
            drop table if exists outbox.clock_shift
            """
        )


def insert(connection: Connection, table: str, columns: dict[str, Any]) -> None:
    """Insert one row, with these columns."""
    connection.execute(
        composing.SQL("insert into outbox.{} ({}) values ({})").format(
            composing.Identifier(table),
            composing.SQL(", ").join(map(composing.Identifier, columns)),
            composing.SQL(", ").join(map(composing.Placeholder, columns)),
        ),
        columns,
    )


def insert_intent(columns: dict[str, Any]) -> composing.Composed:
    """Return the plain INSERT of an intent with these columns, whose digest is right."""
    others = sorted(columns.keys() - {"tenant_id", "operation_id", "tool"})
    return composing.SQL(
        "insert into outbox.intent (tenant_id, operation_id, tool, digest, {})"
        " values (%(tenant_id)s, %(operation_id)s, %(tool)s,"
        " outbox.intent_digest(%(tenant_id)s, %(operation_id)s, %(tool)s,"
        " %(resource)s, %(expected_version)s, %(arguments)s), {})"
    ).format(
        composing.SQL(", ").join(map(composing.Identifier, others)),
        composing.SQL(", ").join(map(composing.Placeholder, others)),
    )


def columns_of(attempts: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
    """Return the two arrays that name attempts in the relay's statements."""
    return {"seqs": [seq for seq, _ in attempts], "attempts": [attempt for _, attempt in attempts]}


def _answer(rows: list[Row]) -> list[Row] | None:
    if not rows:
        return None
    return [row for row in rows if row["seq"] is not None]


def _seqs(rows: list[Row]) -> list[int] | None:
    found = _answer(rows)
    return None if found is None else sorted(row["seq"] for row in found)
