"""A service that keeps its cursor beside its own rows has handled each end once, wherever it is killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from outbox import Intent, Outbox
from tests.support import feed_consumer
from tests.support.postgres import Database
from tests.support.tools import end, register

BOX = Outbox("acme", "checkout")
ENDS = 8


@pytest.fixture(autouse=True)
def service(database: Database) -> None:
    """A service with orders, each of which has ended."""
    register(database, "mail.send")
    database.rows("create table public.orders (operation_id text primary key, heard int not null default 0)")
    database.rows("create table public.place (cursor text)")
    database.rows("insert into public.place values (null)")
    with database.connect() as connection:
        operations = BOX.put_many(connection, [Intent(tool="mail.send", operation_id=f"o-{n}") for n in range(ENDS)])
    for operation in operations:
        database.rows("insert into public.orders values (%s)", operation.operation_id)
        end(database, operation.seq)


def consume(database: Database, moment: str, number: int) -> int:
    program = [sys.executable, feed_consumer.__file__, database.dsn, moment, str(number)]
    return subprocess.run(program, cwd=Path(__file__).parents[2], check=False, timeout=50).returncode


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("moment", ["between the rows and the cursor", "before the commit", "after the commit"])
def test_each_end_is_handled_once_whenever_the_service_is_killed(database: Database, moment: str, number: int) -> None:
    assert consume(database, moment, number) == -9
    heard_so_far = database.value("select sum(heard) from public.orders")
    assert heard_so_far % feed_consumer.BATCH == 0, "a transaction is there as a whole or not at all"
    assert consume(database, moment, number) == -9
    assert consume(database, "never", 0) == 0
    assert database.rows("select distinct heard from public.orders") == [(1,)]
