"""asyncpg: what differs from other drivers. (What is alike is tried on every kind of connection elsewhere.)"""

import json
from typing import Any

import asyncpg
import pytest

from outbox import Intent, Outbox
from outbox.errors import UnsupportedConnection
from tests.support.postgres import Database
from tests.support.tools import register

BOX = Outbox("acme", "checkout")


@pytest.fixture(autouse=True)
def tools(database: Database) -> None:
    register(database, "mail.send")


async def test_a_pool_is_refused_since_each_statement_on_it_would_be_a_transaction_of_its_own(
    database: Database,
) -> None:
    async with asyncpg.create_pool(database.dsn_for("writer"), min_size=1) as pool:
        with pytest.raises(UnsupportedConnection, match="a connection of asyncpg \\(not its pool\\)"):
            await BOX.aput(pool, Intent(tool="mail.send"))
        async with pool.acquire() as connection, connection.transaction():
            assert (await BOX.aput(connection, Intent(tool="mail.send"))).created


async def test_a_block_that_fails_takes_its_intents_along(database: Database) -> None:
    connection = await asyncpg.connect(database.dsn_for("writer"))

    async def failing() -> None:
        async with connection.transaction():
            await BOX.aput(connection, Intent(tool="mail.send"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    await connection.close()
    assert database.value("select count(*) from outbox.intent") == 0


@pytest.mark.parametrize("kind", ["json", "jsonb"])
async def test_codecs_of_the_service_change_nothing(database: Database, kind: str) -> None:
    connection: Any = await asyncpg.connect(database.dsn_for("writer"))
    await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    intent = Intent(tool="mail.send", arguments={"a": ["ä", None]})
    async with connection.transaction():
        (many,) = await BOX.aput_many(connection, [intent])
        assert (await BOX.aput(connection, intent)).seq == many.seq
    await connection.close()
    assert database.value("select arguments from outbox.intent") == '{"a":["ä",null]}'


async def test_without_its_cache_of_statements_it_works_behind_a_pooler(database: Database) -> None:
    connection = await asyncpg.connect(database.dsn_for("writer"), statement_cache_size=0)
    for name in ("a", "b"):
        assert (await BOX.aput(connection, Intent(tool="mail.send", operation_id=name))).created
    await connection.close()
