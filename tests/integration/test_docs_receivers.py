"""docs/receivers.md: its quick start does what it says, and what it says of errors is what happens."""

import asyncio
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from outbox.contract import Wiring, problems
from outbox.guarantee import Promise, guarantee
from outbox.receivers.postgres import PostgresReceiver
from outbox.receivers.postgres.answers import _ANOTHER_MOMENT, _OF_THE_INBOX
from outbox.settings import Configuration
from tests.support.commands import CommandLine
from tests.support.eventually import eventually_async
from tests.support.postgres import Database, url
from tests.support.relays import relay_on

DOCUMENT = (Path(__file__).parents[2] / "docs" / "receivers.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)


def block(language: str, containing: str) -> str:
    (found,) = [text for kind, text in BLOCKS if kind == language and containing in text]
    return str(found)


def commands() -> list[list[str]]:
    """What is typed, less the name of the program."""
    lines = (line for kind, text in BLOCKS if kind == "console" for line in text.splitlines())
    return [shlex.split(line.removeprefix("$ "))[1:] for line in lines]


async def deliver(database: Database, configuration: Configuration, operations: int) -> None:
    """Let a relay work until so many operations have ended."""
    receiver = PostgresReceiver("shop", configuration.receivers["shop"])
    async with relay_on(database, receiver) as relay:

        async def ended() -> bool:
            await relay.rounds(1)
            return bool(database.value("select count(*) from outbox.outcome") == operations)

        await eventually_async(ended)
    await receiver.aclose()


def test_the_quick_start_ends_with_an_effect_and_its_receipt(
    database: Database, empty_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install, put = commands()
    monkeypatch.setenv("SHOP_OWNER_DSN", empty_database.dsn)
    monkeypatch.setenv("SHOP_DSN", url(empty_database.dsn, user="inbox_receiver"))
    monkeypatch.setenv("SHOP_LOOK_DSN", url(empty_database.dsn, user="inbox_looker"))
    text = f'[database]\ndsn = "{database.dsn}"\n{block("toml", "receivers.shop")}'
    (tmp_path / "outbox.toml").write_text(text)
    run = CommandLine(tmp_path, tmp_path / "outbox.toml")
    assert run(*install).code == 0
    with empty_database.connect() as connection:
        connection.execute(block("sql", "shop.reserve").encode())

    assert run("apply").code == 0
    assert run(*put).code == 0
    # One after the other: without an ordering key, nobody promises which comes first.
    configuration = Configuration.model_validate(tomllib.loads(text))
    asyncio.run(deliver(database, configuration, 1))
    assert run(*[*put, "--id", "order-18", "--arguments", '{"quantity": 9}']).code == 0
    asyncio.run(deliver(database, configuration, 2))
    assert empty_database.value("select available from shop.stock") == 8
    first, second = run.json("show", "order-17"), run.json("show", "order-18")
    assert (first["state"], first["outcome"]["external_id"]) == ("succeeded", "order-17")
    assert (second["state"], second["cause"]) == ("rejected", "refused")


def test_the_contract_of_the_quick_start_is_as_good_as_the_page_says() -> None:
    configuration = Configuration.model_validate(tomllib.loads(block("toml", "receivers.shop")))
    tool, receiver = configuration.tools["stock.reserve"], configuration.receivers["shop"]
    assert problems("stock.reserve", tool, receiver) == []
    assert guarantee(Wiring.of("stock.reserve", tool, receiver)).promise is Promise.FENCED


@pytest.mark.parametrize("word", [*_OF_THE_INBOX, *_ANOTHER_MOMENT[:4]])
def test_every_error_with_a_meaning_is_described(word: str) -> None:
    assert f"`{word}`" in DOCUMENT
