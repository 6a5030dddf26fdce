"""What a test of the write path needs in the database: tools that exist, and operations that have ended."""

from typing import Any, LiteralString

import psycopg

from tests.support.postgres import Database

_RECEIVER: LiteralString = """
with made as (
  insert into outbox.receiver (name, transport, lanes, config) values ('warehouse', 'scripted', 4, '{}')
  on conflict (name) do nothing returning receiver_id, lanes
)
insert into outbox.lane (receiver_id, lane, fence) select receiver_id, generate_series(0, lanes - 1), 1 from made
"""
_TOOL: LiteralString = """
with version as (
  insert into outbox.contract (digest, tool, version, body)
  values (sha256(convert_to(%(tool)s, 'UTF8')), %(tool)s, 1, '{}')
  returning contract_id
)
insert into outbox.tool (name, receiver_id, contract_id, requires_approval, reach, deadline)
select %(tool)s, receiver_id, contract_id, %(requires_approval)s, '5s', '5s'
from version, outbox.receiver where name = 'warehouse'
"""
_END: LiteralString = """
with gone as (delete from outbox.pending where seq = %(seq)s returning seq)
insert into outbox.outcome (seq, from_state, state, cause, attempt, receipt, external_id, ended_at)
select seq, 'unknown', %(state)s, 'confirmed', 1, %(receipt)s, %(external_id)s,
       outbox.now() - %(hours)s * interval '1 hour'
from gone
"""


def register(database: Database, *tools: str, requires_approval: bool = False) -> None:
    """Make tools of a receiver with four lanes."""
    with database.connect() as connection:
        connection.execute(_RECEIVER)
        for tool in tools:
            connection.execute(_TOOL, {"tool": tool, "requires_approval": requires_approval})


def end(
    database: Database,
    seq: int,
    state: str = "succeeded",
    *,
    receipt: str | None = '{"id":"m-1"}',
    external_id: str | None = "m-1",
    hours_ago: float = 0,
) -> None:
    """End an operation as a daemon would have left it."""
    with database.connect() as connection:
        end_on(connection, seq, state, receipt=receipt, external_id=external_id, hours_ago=hours_ago)


def end_on(
    connection: psycopg.Connection[Any],
    seq: int,
    state: str = "succeeded",
    *,
    receipt: str | None = '{"id":"m-1"}',
    external_id: str | None = "m-1",
    hours_ago: float = 0,
) -> None:
    """End an operation in a transaction of the test's own."""
    values = {"seq": seq, "state": state, "receipt": receipt, "external_id": external_id, "hours": hours_ago}
    connection.execute(_END, values)
