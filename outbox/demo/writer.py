"""The demo's service, as a process of its own: orders, each with its intent, in one transaction.

    python -m outbox.demo.writer --dsn DSN --first 0 --count 1000 --seconds 15

One transaction in fifty is rolled back after the put: neither its order nor its effect may ever exist.
"""

import argparse
import sys
import time

import psycopg

from outbox import Intent, Outbox
from outbox.sql import load

ROLLED_BACK_EVERY = 50
TOOLS = ["payment.refund"] * 12 + ["payout.create"] * 5 + ["mail.send"] * 3


def tool_of(order_id: int) -> str:
    """Twelve refunds, five payouts and three mails in each twenty orders."""
    return TOOLS[order_id % len(TOOLS)]


def write_order(connection: psycopg.Connection[object], outbox: Outbox, order_id: int) -> None:
    """Put the intent next to the service's own row; the caller commits."""
    tool, cents = tool_of(order_id), 100 + order_id % 9_900
    connection.execute(load("demo")["insert_order"], {"order_id": order_id, "tool": tool, "cents": cents})
    outbox.put(
        connection,
        Intent(
            tool=tool,
            operation_id=f"order-{order_id}",
            resource=f"order-{order_id}",
            arguments={"order": order_id, "cents": cents, "currency": "EUR"},
        ),
    )


def main(argv: list[str] | None = None) -> int:
    """Write `count` orders in about `seconds`, and some more that are rolled back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=15.0)
    arguments = parser.parse_args(argv)
    outbox = Outbox(tenant_id="demo", principal_id="order-service")
    began = time.monotonic()
    with psycopg.connect(arguments.dsn) as connection:
        for number in range(arguments.count):
            with connection.transaction():
                write_order(connection, outbox, arguments.first + number)
            if number % ROLLED_BACK_EVERY == 0:
                _write_and_roll_back(connection, outbox, -1 - arguments.first - number)
            # Not all at once: what breaks later must find work that is still to be done.
            time.sleep(max(0.0, began + arguments.seconds * (number + 1) / arguments.count - time.monotonic()))
    return 0


def _write_and_roll_back(connection: psycopg.Connection[object], outbox: Outbox, order_id: int) -> None:
    with connection.transaction(force_rollback=True):
        write_order(connection, outbox, order_id)


if __name__ == "__main__":
    sys.exit(main())
