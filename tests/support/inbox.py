"""A shop whose stock is in a database of its own, with an inbox; its own table of movements is the judge of effects."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from outbox.contract import ReceiverConfig, ToolConfig, Wiring
from outbox.receivers import Attempt, Question
from outbox.receivers.postgres import kit
from tests.support import attempts
from tests.support.postgres import Cluster, Database, url

NAME = "shop"
TOOL = "stock.move"
CONTRACT: dict[str, Any] = {
    "key": {"in": "column"},
    "key_retention": "forever",
    "key_checked_first": True,
    "fencing": {"in": "column", "raised_by_lookup": True},
    "lookup": {"by": "key", "consistency": "strong", "absence_is_proof": True, "interval": "50ms"},
    "answers": [{"sqlstate": ["23514"], "means": "refused"}],
    "source": "docs/receivers.md",
}

# What the handler does is said by the arguments: it may wait for a lock that a test holds, raise an error, give a
# receipt, or change a setting for the rest of its transaction.
SHOP = """
create schema shop;
create table shop.movement (id bigint generated always as identity, sent_key uuid, attempt int, tenant_id text,
  operation_id text, resource text, quantity numeric check (quantity < 1000), body bytea, content_type text);
create table shop.mood (refuses boolean not null);
insert into shop.mood values (false);
create table shop.promise (id int primary key, kept_by int references shop.promise deferrable initially deferred);

create function shop.move(asked inbox.request) returns jsonb
  language plpgsql security definer set search_path = shop, pg_temp as $$
declare
  said jsonb := coalesce(asked.arguments, '{}');
  place bigint;
begin
  insert into movement (sent_key, attempt, tenant_id, operation_id, resource, quantity, body, content_type)
    values (asked.sent_key, asked.attempt, asked.tenant_id, asked.operation_id, asked.resource,
            (said ->> 'quantity')::numeric, asked.body, asked.content_type) returning id into place;
  if said ? 'wait_for' then
    perform pg_advisory_xact_lock((said ->> 'wait_for')::bigint);
  end if;
  if (select refuses from mood) then
    raise exception 'closed today' using errcode = 'OB422';
  elsif said ? 'raise' then
    raise exception 'as you asked' using errcode = said ->> 'raise', detail = 'what only we may know';
  elsif said ? 'set' then
    perform set_config(said ->> 'set', said ->> 'to', true);
  elsif said ? 'warn' then
    raise warning 'stock is low';
  elsif said ? 'break_at_commit' then
    insert into promise values (place, -1);
  end if;
  return said -> 'receipt';
end $$;
"""


@dataclass(frozen=True, slots=True)
class Inbox:
    """The receiving database."""

    database: Database

    @property
    def receiver_dsn(self) -> str:
        """The login that may have effects."""
        return url(self.database.dsn, user="inbox_receiver", password=None)

    @property
    def looker_dsn(self) -> str:
        """The login that may only look."""
        return url(self.database.dsn, user="inbox_looker", password=None)

    def effects(self, sent_key: str) -> int:
        """How many effects there are, by the shop's own books."""
        count: int = self.database.value("select count(*) from shop.movement where sent_key = %s", sent_key)
        return count

    def all_effects(self) -> dict[str, int]:
        """How often each operation has moved something."""
        rows = self.database.rows("select operation_id, count(*) from shop.movement group by 1")
        return dict(rows)

    def refused_to(self, sent_key: str) -> int | None:
        """The tombstone of an operation."""
        rows = self.database.rows("select refused_to from inbox.operation where sent_key = %s", sent_key)
        return rows[0][0] if rows else None

    @contextmanager
    def holding(self, lock: int) -> Iterator[psycopg.Connection[TupleRow]]:
        """Hold the lock that a handler waits for, until the block ends."""
        with self.database.connect() as connection:
            connection.execute("select pg_advisory_lock(%s)", [lock])
            yield connection

    def waiting(self) -> int:
        """How many calls of the inbox wait for a lock."""
        count: int = self.database.value(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
        return count


def settle_in(database: Database) -> Inbox:
    """Install an inbox and open the shop."""
    kit.install(database.dsn, NAME)
    with database.connect() as connection:
        connection.execute(SHOP)
        connection.execute("select inbox.handle(%s, 'shop.move(inbox.request)')", [TOOL])
    return Inbox(database)


@contextmanager
def inbox_on(cluster: Cluster) -> Iterator[Inbox]:
    """An inbox in a database of its own."""
    with cluster.database() as database:
        yield settle_in(database)


def receiver_config(**changes: Any) -> ReceiverConfig:
    """The receiver; its DSNs are in SHOP_DSN and SHOP_LOOK_DSN."""
    given = {
        "transport": "postgres",
        "auth": {"kind": "dsn", "secret": "env:SHOP_DSN", "id": "receive", "account": NAME},
        "read_auth": {"kind": "dsn", "secret": "env:SHOP_LOOK_DSN", "id": "look", "account": NAME},
        **changes,
    }
    return ReceiverConfig.model_validate(given)


def tool_config(contract: dict[str, Any] | None = None, **changes: Any) -> ToolConfig:
    """The tool `stock.move`; `contract` replaces parts of its contract."""
    given = {"receiver": NAME, "deadline": "5s", "contract": {**CONTRACT, **(contract or {})}, **changes}
    return ToolConfig.model_validate(given)


def wiring_of(tool: ToolConfig | None = None) -> Wiring:
    """The tool at its receiver."""
    return Wiring.of(TOOL, tool or tool_config(), receiver_config())


def attempt(tool: ToolConfig | None = None, **changes: Any) -> Attempt:
    """A first attempt at `stock.move`, by the holder of a lane under fence 7."""
    given = {"tool": TOOL, "wiring": wiring_of(tool), "fence_token": fence_token(7), "arguments": '{"quantity":1}'}
    return attempts.attempt(receiver_config(), tool or tool_config(), **{**given, **changes})


def question(tool: ToolConfig | None = None, **changes: Any) -> Question:
    """What happened to it, asked after its first attempt?"""
    given = {"tool": TOOL, "wiring": wiring_of(tool), "attempt": 1}
    return attempts.question(receiver_config(), tool or tool_config(), **{**given, **changes})


def fence_token(fence: int, lane: int = 0) -> str:
    """As a relay makes it."""
    return f'"5bb1/shop/{lane}";fence={fence}'


class Proxy:
    """Between a receiver and its database. What it does to the answer of the next call is up to the test."""

    def __init__(self, dsn: str) -> None:
        self.next: Literal["pass", "lose", "hang", "cut", "stall"] = "pass"
        self.calls = 0
        self._asked: list[bytes] = []
        self.passed = 0
        """How many bytes went up."""
        self.stalled, self.go_on, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._dsn = conninfo_to_dict(dsn)
        self._server: asyncio.Server | None = None

    def dsn(self, original: str) -> str:
        """The same login, through here."""
        assert self._server is not None
        return url(original, host="127.0.0.1", port=str(self._server.sockets[0].getsockname()[1]))

    def asked_for(self, sent_key: str) -> int:
        """How many calls for an effect under this key arrived here."""
        return sum(sent_key.encode() in data for data in self._asked)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = str(self._dsn["host"]), str(self._dsn["port"])
        if host.startswith("/"):
            upstream = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            upstream = await asyncio.open_connection(host, int(port))
        mood: list[str] = []
        with contextlib.suppress(OSError, asyncio.CancelledError):
            ways = [self._up(reader, upstream[1], mood), self._down(upstream[0], writer, mood)]
            await asyncio.wait([asyncio.create_task(way) for way in ways], return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, upstream[1]):
            each.close()
        self.ended.set()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mood: list[str]) -> None:
        while data := await reader.read(65_536):
            if b"inbox.receive" in data or b"inbox.look" in data:
                self.calls += 1
                self._asked += [data] if b"inbox.receive" in data else []
                mood[:] = [self.next]
                self.next = "pass"
                if mood == ["cut"]:  # the call never arrives
                    return
                if mood == ["stall"]:  # nobody reads on, so the sender cannot hand over the rest
                    self.stalled.set()
                    await self.go_on.wait()
            self.passed += len(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mood: list[str]) -> None:
        while data := await reader.read(65_536):
            if mood == ["hang"]:
                continue
            if mood == ["lose"]:
                if data.endswith(b"Z\x00\x00\x00\x05I"):  # it is committed, and the server says so
                    writer.transport.abort()
                    return
                continue
            writer.write(data)
        writer.close()


@asynccontextmanager
async def proxy_to(dsn: str) -> AsyncIterator[Proxy]:
    """A proxy that listens."""
    proxy = Proxy(dsn)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


def write_secrets(folder: Path, inbox: Inbox) -> dict[str, str]:
    """Both DSNs as files, for references of the form file:."""
    for name, dsn in (("receive", inbox.receiver_dsn), ("look", inbox.looker_dsn)):
        (folder / name).write_text(dsn + "\n")
    return {name: f"file:{folder / name}" for name in ("receive", "look")}
