"""What was judged is what is sent: one request is built for an attempt, and its digest is of these bytes."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from outbox import wire
from outbox.contract import Wiring
from outbox.digest import intent_digest
from outbox.lease import LocalLease, boottime
from outbox.outcome import Answer, Outcome, Refused
from outbox.receivers import Attempt
from outbox.receivers.scripted import ScriptedReceiver
from outbox.states import Cause
from relay.attempt import Scene, attempt
from relay.begun import Begun, Bound
from relay.judge import Judged, Refusal, judge, key_of
from tests.support.attempts import receiver, tool

INSTANCE = UUID(int=1)
WIRING = Wiring.of("inventory.set_available", tool(), receiver("https://api.example.com/v1"))


def bound(**changes: Any) -> Bound:
    arguments = '{"available":3}'
    row: dict[str, Any] = dict.fromkeys(Begun._fields) | {
        "seq": 1,
        "attempt": 1,
        "tenant_id": "acme",
        "operation_id": "order-17",
        "tool": WIRING.tool,
        "resource": "item-1",
        "arguments": arguments,
        "digest": intent_digest("acme", "order-17", WIRING.tool, "item-1", None, arguments),
        "contract_id": 1,
        "contract_in_force": 1,
        "first_sent_at": datetime.now(UTC),
        "throttled": 0,
        "not_sent": 0,
        "permission_left_seconds": 60.0,
        "sent_at": boottime(),
    }
    row |= changes
    return Bound(begun=Begun(**row), pinned=WIRING, in_force=WIRING)


def test_the_digest_is_of_the_request_that_is_sent() -> None:
    made = bound()
    judged = judge(made, key_of(made.begun, INSTANCE))
    assert isinstance(judged, Judged)
    assert judged.request is not None
    assert judged.request.body == b'{"available":3}'
    assert judged.digest == wire.wire_digest(judged.request, key_of(made.begun, INSTANCE))


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"arguments": '{"available":4}'}, Cause.TAMPERED),
        ({"approved_digest": b"another"}, Cause.TAMPERED),
        ({"wire_digest": b"another"}, Cause.TARGET_CHANGED),
    ],
)
def test_what_was_not_permitted_or_not_sent_before_is_refused(changes: dict[str, Any], cause: Cause) -> None:
    judged = judge(bound(**changes), "key")
    assert isinstance(judged, Refusal)
    assert judged.cause is cause


async def test_the_receiver_is_given_the_request_that_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[wire.WireRequest] = []
    sent: list[wire.WireRequest] = []
    build = wire.build

    def counting(wiring: Wiring, operation: wire.Payload) -> wire.WireRequest:
        built.append(build(wiring, operation))
        return built[-1]

    class Sending(ScriptedReceiver):
        async def deliver(self, attempt: Attempt) -> Outcome:
            sent.append(attempt.wire_request())
            return Refused(answer=Answer(422))

    monkeypatch.setattr(wire, "build", counting)
    scene = Scene(
        instance_id=INSTANCE,
        receiver=Sending(),
        way=WIRING.receiver.way,
        lease=lambda: LocalLease(boottime() + 60),
        fence_token="fence",
        lane_key=1,
        dead_man=lambda _: None,
    )
    finished = await attempt(bound(), scene)
    assert isinstance(finished.outcome, Refused)
    assert len(built) == 1
    assert sent[0] is built[0]
    assert finished.wire_digest == wire.wire_digest(sent[0], finished.sent_key or "")
