"""Attempts and questions for tests of receivers, with a gate that remembers what it was asked."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from outbox.contract import ReceiverConfig, ToolConfig, Wiring
from outbox.receivers import Attempt, Question, TooLate

SENT_KEY = "8e03978e-40d5-53dd-8c93-6894a57f9324"

# A tool whose every part is declared: key, precondition, look-up, and what a success looks like.
TOOL: dict[str, Any] = {
    "receiver": "warehouse",
    "deadline": "5s",
    "request": {"method": "PUT", "path": "/stock/{resource}", "encoding": "json"},
    "read": {"path": "/operations/{sent_key}", "identity": "/key", "external_id": "/receipt"},
    "contract": {
        "key": {"in": "header", "name": "Idempotency-Key"},
        "key_retention": "24h",
        "in_flight_bound": "30s",
        "lookup": {
            "by": "key",
            "consistency": "strong",
            "absence_is_proof": True,
            "not_found": {"status": [404]},
        },
        "precondition": {"header": "If-Match"},
        "answers": [{"status": [200, 201], "means": "receipt"}],
    },
}


def tool(**changes: Any) -> ToolConfig:
    """The tool, with some of its parts replaced; `contract_...` replaces parts of its contract."""
    contract = dict(TOOL["contract"])
    contract.update({name.removeprefix("contract_"): value for name, value in changes.items() if "contract_" in name})
    own = {name: value for name, value in changes.items() if "contract_" not in name}
    return ToolConfig.model_validate({**TOOL, "contract": contract, **own})


def receiver(base_url: str, **changes: Any) -> ReceiverConfig:
    """A receiver on this machine."""
    given = {"transport": "http", "base_url": base_url, "allow_private_addresses": True, **changes}
    return ReceiverConfig.model_validate(given)


@dataclass(slots=True)
class RecordingGate:
    """Lets everything pass, or (`refusal`) nothing; writes down the order in which it was called."""

    refusal: str | None = None
    calls: list[str] = field(default_factory=list)

    def sending(self) -> None:
        self.calls.append("sending")

    def check(self) -> None:
        self.calls.append("check")
        if self.refusal is not None:
            raise TooLate(self.refusal)

    def sent(self) -> None:
        self.calls.append("sent")


def attempt(config: ReceiverConfig, tool_config: ToolConfig | None = None, **changes: Any) -> Attempt:
    """A first attempt at this tool (the one above), whose gate lets it pass."""
    tool_config = tool_config or tool()
    made = Attempt(
        seq=1,
        attempt=1,
        tenant_id="acme",
        operation_id="order-17",
        tool="inventory.set_available",
        resource="item-1",
        expected_version=None,
        sent_key=SENT_KEY,
        wiring=Wiring.of("inventory.set_available", tool_config, config),
        gate=RecordingGate(),
        deadline_seconds=10.0,
        arguments='{"available":3}',
    )
    return made._replace(**changes)


def question(config: ReceiverConfig, tool_config: ToolConfig | None = None, **changes: Any) -> Question:
    """What happened to that operation?"""
    tool_config = tool_config or tool()
    made = Question(
        seq=1,
        tenant_id="acme",
        operation_id="order-17",
        tool="inventory.set_available",
        resource="item-1",
        sent_key=SENT_KEY,
        wiring=Wiring.of("inventory.set_available", tool_config, config),
        deadline_seconds=10.0,
    )
    return dataclasses.replace(made, **changes)
