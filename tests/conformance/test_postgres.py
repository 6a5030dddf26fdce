"""The postgres receiver keeps what every receiver must; the judge is a table of the handler's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from outbox.receivers import Attempt, Question
from outbox.receivers.conformance import Bench, Gate, ReceiverConformance
from outbox.receivers.postgres import PostgresReceiver
from tests.support.inbox import Inbox, Proxy, attempt, inbox_on, proxy_to, question, receiver_config
from tests.support.postgres import Cluster


class PostgresBench(Bench):
    def __init__(self, inbox: Inbox, proxy: Proxy) -> None:
        self.receiver = PostgresReceiver("shop", receiver_config())
        self._inbox = inbox
        self._proxy = proxy
        self._begun: set[str] = set()

    def attempt(self, sent_key: str, gate: Gate) -> Attempt:
        self._begun.add(sent_key)
        return attempt(sent_key=sent_key, gate=gate)

    def question(self, sent_key: str) -> Question:
        # A look shuts out the attempts that have begun, and no others.
        return question(sent_key=sent_key, attempt=int(sent_key in self._begun))

    async def effects(self, sent_key: str) -> int:
        return self._inbox.effects(sent_key)

    async def requests(self, sent_key: str) -> int:
        return self._proxy.asked_for(sent_key)

    async def lose_next_answer(self) -> None:
        self._proxy.next = "lose"

    async def refuse_next(self) -> None:
        self._inbox.database.rows("update shop.mood set refuses = true")

    async def hang_next(self) -> None:
        self._proxy.next = "hang"

    async def break_next_look(self) -> None:
        self._proxy.next = "lose"


class TestPostgres(ReceiverConformance):
    @pytest.fixture(autouse=True)
    def _surroundings(self, postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster, self.monkeypatch = postgres, monkeypatch

    @asynccontextmanager
    async def bench(self) -> AsyncIterator[Bench]:
        with inbox_on(self.cluster) as inbox:
            async with proxy_to(inbox.database.dsn) as proxy:
                dsns = proxy.dsn(inbox.receiver_dsn), proxy.dsn(inbox.looker_dsn)
                for name, dsn in zip(("SHOP_DSN", "SHOP_LOOK_DSN"), dsns, strict=True):
                    self.monkeypatch.setenv(name, dsn)
                bench = PostgresBench(inbox, proxy)
                bench.secrets = dsns
                try:
                    yield bench
                finally:
                    await bench.receiver.aclose()
