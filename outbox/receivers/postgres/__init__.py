"""PostgreSQL: an effect in another database, in one transaction with the row that says that it happened.

answers      what an inbox says, and what its errors mean; pure
exchange     the last check, the first byte, the last byte; when a transaction is certainly over
connections  connections, and which of them may be used again
receiver     `deliver` and `lookup`
kit          the SQL of an inbox, and its installation (`outbox inbox`)

The other half is SQL, in the receiving database: `outbox/sql/inbox/schema.sql`. docs/receivers.md is the way in.
"""

from outbox.contract import ReceiverConfig
from outbox.receivers.postgres.receiver import PostgresReader, PostgresReceiver

__all__ = ["PostgresReader", "PostgresReceiver", "open_postgres"]


def open_postgres(name: str, config: ReceiverConfig, *, reads_only: bool) -> PostgresReader:
    """The factory of the transport `postgres`."""
    return PostgresReader(name, config) if reads_only else PostgresReceiver(name, config)
