"""The HTTP receiver keeps what every receiver must; the judge is a process of its own, with its own ledger."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from outbox.contract import ReceiverConfig, ToolConfig
from outbox.receivers import Attempt, Question
from outbox.receivers.conformance import Bench, Gate, ReceiverConformance
from outbox.receivers.http import HttpReceiver
from tests.support.attempts import attempt, question, receiver, tool
from tests.support.demo_receiver import READ_TOKEN, WRITE_TOKEN, Demo, demo_receiver

REFERENCE: dict[str, Any] = {
    "request": {"path": "/payments", "inject": {"/reference": "{sent_key}"}},
    "read": {
        "path": "/payments",
        "query": {"limit": "2"},
        "items": "/data",
        "identity": "/reference",
        "external_id": "/id",
        "next": "/next",
        "cursor": "before",
        "max_pages": 20,
    },
    "contract_key": "none",
    "contract_precondition": "none",
    "contract_lookup": {"by": "reference", "consistency": "strong", "absence_is_proof": True},
}
NEITHER: dict[str, Any] = {
    "request": {"path": "/mail"},
    "read": None,
    "contract_key": "none",
    "contract_precondition": "none",
    "contract_lookup": "none",
    "contract_answers": [{"status": [202], "means": "receipt"}],
}


class HttpBench(Bench):
    secrets = (WRITE_TOKEN, READ_TOKEN)

    def __init__(
        self, demo: Demo, config: ReceiverConfig, tool_config: ToolConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.receiver = HttpReceiver("warehouse", config)
        self._demo = demo
        self._monkeypatch = monkeypatch
        self._config = config
        self._tool = tool_config

    def attempt(self, sent_key: str, gate: Gate) -> Attempt:
        operation_id = str(uuid.uuid5(uuid.NAMESPACE_OID, sent_key))
        return attempt(self._config, self._tool, sent_key=sent_key, gate=gate, operation_id=operation_id)

    def question(self, sent_key: str) -> Question:
        return question(self._config, self._tool, sent_key=sent_key)

    async def effects(self, sent_key: str) -> int:
        operation_id = str(uuid.uuid5(uuid.NAMESPACE_OID, sent_key))
        return sum(effect.operation == operation_id for effect in self._demo.ledger.effects())

    async def requests(self, sent_key: str) -> int:
        operation_id = str(uuid.uuid5(uuid.NAMESPACE_OID, sent_key))
        return sum(request.operation == operation_id for request in self._demo.ledger.requests())

    async def lose_next_answer(self) -> None:
        self._demo.fault("lose_answer")

    async def refuse_next(self) -> None:
        self._demo.fault("refuse")

    async def hang_next(self) -> None:
        self._demo.fault("hang")

    async def break_next_look(self) -> None:
        self._monkeypatch.setenv("DEMO_READ", "a token that nobody knows")


class _OnTheDemo(ReceiverConformance):
    changes: dict[str, Any]
    honours_keys = True
    can_look = True

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = tmp_path, monkeypatch
        monkeypatch.setenv("DEMO_WRITE", WRITE_TOKEN)
        monkeypatch.setenv("DEMO_READ", READ_TOKEN)

    @asynccontextmanager
    async def bench(self) -> AsyncIterator[Bench]:
        with demo_receiver(self.folder) as demo:
            config = receiver(
                demo.url,
                auth={"kind": "bearer", "secret": "env:DEMO_WRITE", "id": "main"},
                read_auth={"kind": "bearer", "secret": "env:DEMO_READ", "id": "read"},
            )
            bench = HttpBench(demo, config, tool(**self.changes), self.monkeypatch)
            bench.honours_keys, bench.can_look = self.honours_keys, self.can_look
            yield bench
            await bench.receiver.aclose()


class TestHttpWithAKey(_OnTheDemo):
    changes: dict[str, Any] = {}  # noqa: RUF012 - never changed


class TestHttpWithAReferenceInAList(_OnTheDemo):
    changes = REFERENCE
    honours_keys = False


class TestHttpWithNeither(_OnTheDemo):
    changes = NEITHER
    honours_keys = False
    can_look = False
