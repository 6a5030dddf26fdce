"""
A service as a process: an order and its intent in one transaction, and on stdout each order whose commit was heard.

    python -m tests.support.shopkeeper DSN RECEIVER PREFIX COUNT

A commit whose answer was lost is done again from the start, with the same ids: that is what ids are for.
"""

import sys

import psycopg

from outbox import Intent, Outbox

BOX = Outbox("acme", "shop")
ATTEMPTS_MAX = 100


def sell(dsn: str, receiver: str, prefix: str, count: int) -> None:
    """Commit so many orders."""
    connection = None
    for number in range(count):
        operation_id = f"{prefix}{receiver}-{number}"
        for _ in range(ATTEMPTS_MAX):
            try:
                if connection is None or connection.closed:
                    connection = psycopg.connect(dsn)
                with connection.transaction():
                    connection.execute(
                        "insert into public.orders (id) values (%s) on conflict do nothing", [operation_id]
                    )
                    intent = Intent(
                        tool=receiver, operation_id=operation_id, resource=operation_id, expected_version="0"
                    )
                    BOX.put(connection, intent)
                break
            except psycopg.OperationalError:
                continue
        sys.stdout.write(f"{operation_id}\n")
        sys.stdout.flush()
    if connection is not None:
        connection.close()


if __name__ == "__main__":
    sell(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
