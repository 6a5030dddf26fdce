"""
A service that hears how its operations ended, as a process: its own rows and its cursor change in one transaction.

Called with a DSN, a moment, and a number: at that handled end the process kills itself at that moment.
"""

import os
import signal
import sys

import psycopg

from outbox import Outbox

BATCH = 3

BOX = Outbox("acme", "checkout")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def consume(dsn: str, moment: str, number: int) -> None:
    handled = 0
    with psycopg.connect(dsn) as connection:
        while True:
            with connection.transaction():
                row = connection.execute("select cursor from public.place for update").fetchone()
                ends = BOX.feed(connection, after=row[0] if row else None, batch_max=BATCH)
                in_this = 0
                for ended in ends:
                    connection.execute(
                        "update public.orders set heard = heard + 1 where operation_id = %s", [ended.operation_id]
                    )
                    handled, in_this = handled + 1, in_this + 1
                    if (moment, number) == ("between the rows and the cursor", handled):
                        die()
                    if in_this == BATCH:
                        break
                connection.execute("update public.place set cursor = %s", [ends.cursor])
                if moment == "before the commit" and handled >= number:
                    die()
            if moment == "after the commit" and handled >= number:
                die()
            if not in_this:
                return


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2], int(sys.argv[3]))
