"""
A service as a process: an order and its intent in one transaction, and on stdout each order whose commit was heard.

    python -m tests.support.shopkeeper DSN RECEIVER PREFIX COUNT

A commit whose answer was lost is done again from the start, with the same ids: that is what ids are for. After every
few orders it waits until the last one has ended, so that it sells no more than can be delivered. SIGTERM: no more.
"""

import signal
import sys
from collections.abc import Callable
from typing import TypeVar

import psycopg
import tenacity

from outbox import Intent, Outbox
from outbox.errors import DatabaseUnavailable

PATIENCE_ORDERS = 10
PATIENCE_SECONDS = 20.0
AWAY_SECONDS_MAX = 120.0
AGAIN_SECONDS = 0.02

T = TypeVar("T")


class Shopkeeper:
    """One service."""

    def __init__(self, dsn: str, receiver: str, prefix: str) -> None:
        self.box = Outbox("acme", "shop", dsn=dsn)
        self.open = True
        self._dsn = dsn
        self._receiver = receiver
        self._prefix = prefix
        self._connection: psycopg.Connection[object] | None = None

    def sell(self, count: int) -> None:
        """Commit so many orders, or until told to close."""
        for number in range(1, count + 1):
            if not self.open:
                break
            operation_id = f"{self._prefix}{self._receiver}-{number}"
            persistently(lambda: self._commit(operation_id))  # noqa: B023
            sys.stdout.write(f"{operation_id}\n")
            sys.stdout.flush()
            if number % PATIENCE_ORDERS == 0:
                persistently(lambda: self.box.wait(operation_id, PATIENCE_SECONDS))  # noqa: B023
        if self._connection is not None:
            self._connection.close()

    def _commit(self, operation_id: str) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._dsn)
        with self._connection.transaction():
            self._connection.execute(
                "insert into public.orders (id) values (%s) on conflict do nothing", [operation_id]
            )
            intent = Intent(tool=self._receiver, operation_id=operation_id, resource=operation_id, expected_version="0")
            self.box.put(self._connection, intent)

    def close(self, *_: object) -> None:
        """Sell no more."""
        self.open = False


def persistently(act: Callable[[], T]) -> T:
    """Do it again as long as the database is away."""
    trying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((psycopg.OperationalError, DatabaseUnavailable)),
        stop=tenacity.stop_after_delay(AWAY_SECONDS_MAX),
        wait=tenacity.wait_fixed(AGAIN_SECONDS),
        reraise=True,
    )
    return trying(act)


if __name__ == "__main__":
    keeper = Shopkeeper(*sys.argv[1:4])
    signal.signal(signal.SIGTERM, keeper.close)
    keeper.sell(int(sys.argv[4]))
