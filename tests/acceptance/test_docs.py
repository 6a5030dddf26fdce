"""What the documents show runs: every Python and SQL block, in order, and every contract."""

import contextlib
import re
import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from outbox.cli import cli
from outbox.cli.session import Session as CommandSession
from tests.support.callers import django_connection
from tests.support.commands import CommandLine
from tests.support.postgres import Database
from tests.support.tools import end, register

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "examples/README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    place: str


def blocks(document: str, *languages: str) -> list[Block]:
    text = (ROOT / document).read_text()
    found = [
        Block(match[1], match[2], f"{document}:{text[: match.start()].count(chr(10)) + 2}")
        for match in BLOCK.finditer(text)
    ]
    return [block for block in found if block.language in languages]


@pytest.fixture
def service(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A service's login and table, and somebody who ends whatever is asked for."""
    register(database, "payment.refund", "mail.send")
    database.rows("create table public.orders (id int primary key, state text)")
    database.rows("grant select, insert, update on public.orders to outbox_test_writer")
    database.rows("grant create on schema public to outbox_test_writer")
    dsn = database.dsn_for("writer")
    monkeypatch.setenv("DATABASE_URL", dsn.replace("postgresql:", "postgresql+psycopg:", 1))
    monkeypatch.setenv("ASYNCPG_URL", dsn)
    with relay(database), django_connection(dsn):
        yield database


@contextlib.contextmanager
def relay(database: Database) -> Iterator[None]:
    stop = threading.Event()

    def deliver() -> None:
        while not stop.wait(0.02):
            for (seq,) in database.rows("select seq from outbox.pending"):
                end(database, seq)

    thread = threading.Thread(target=deliver)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def run(found: list[Block], database: Database, names: dict[str, Any]) -> None:
    assert found
    for block in found:
        if block.language == "python":
            exec(compile(block.text, block.place, "exec"), names)
        else:
            with psycopg.connect(database.dsn_for("writer"), autocommit=True) as connection:
                connection.execute(block.text.encode())


def test_the_page_on_embedding_runs_as_it_stands(service: Database) -> None:
    names: dict[str, Any] = {}
    run(blocks("docs/embedding.md", "python", "sql"), service, names)
    names["engine"].dispose()
    assert service.rows("select state from public.orders where id in (17, 18, 19)") == [("done",)] * 3
    assert service.value("select count(*) from outbox.intent where operation_id like 'order-20/%%'") == 2


class Base(DeclarativeBase):
    pass


class Refund(Base):
    """What the service of the README has."""

    __tablename__ = "refunds"
    order_id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]


def test_the_python_of_the_readme_runs_as_it_stands(service: Database) -> None:
    engine = create_engine(service.dsn_for("writer").replace("postgresql:", "postgresql+psycopg:", 1))
    Base.metadata.create_all(engine)
    run(blocks("README.md", "python"), service, {"engine": engine, "Session": Session, "Refund": Refund})
    with Session(engine) as session:
        assert session.get_one(Refund, 4711).cents == 1999
    engine.dispose()
    assert service.value("select operation_id from outbox.intent") == "refund-4711"


def test_the_sql_of_the_readme_runs_as_it_stands(service: Database) -> None:
    run(blocks("README.md", "sql"), service, {})
    assert service.value("select operation_id from outbox.intent") == "refund-4711"


@pytest.mark.parametrize("document", ["README.md"])
def test_a_contract_that_is_shown_is_accepted(document: str, tmp_path: Path) -> None:
    for block in blocks(document, "toml"):
        config = tmp_path / "outbox.toml"
        config.write_text(block.text)
        items = CommandLine(tmp_path, config).json("contracts", "--file")["items"]
        assert [item["guarantee"] for item in items] == ["deduplicated"]


def commands(document: str) -> list[list[str]]:
    """What is typed in the consoles that a document shows: the words behind `outbox`, without comments."""
    lines = [line for block in blocks(document, "console") for line in block.text.splitlines()]
    return [
        shlex.split(line.removeprefix("$ outbox "), comments=True) for line in lines if line.startswith("$ outbox ")
    ]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_that_is_shown_exists_with_its_options(document: str) -> None:
    for words in commands(document):
        with cli.make_context("outbox", list(words), obj=CommandSession()) as group:
            _, command, rest = cli.resolve_command(group, [*group._protected_args, *group.args])
            assert command is not None, words
            command.make_context(words[0], rest, parent=group)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_into_the_repository_leads_somewhere(document: str) -> None:
    text = (ROOT / document).read_text()
    headings = {
        re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif "://" not in target:
            assert ((ROOT / document).parent / target.partition("#")[0]).exists(), target
