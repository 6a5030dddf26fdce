"""What is applied while a relay works: no request leaves with a credential that was not configured together with it."""

from typing import Any

import pytest

from outbox.outcome import Answer, Receipt
from outbox.receivers import Attempt
from outbox.receivers.scripted import ScriptedReceiver
from outbox.registry import apply
from outbox.store import Store
from tests.support.doubts import RECEIVER
from tests.support.eventually import eventually_async
from tests.support.relays import KEYED, Held, Running, put_many, registry, relay_on
from tests.support.stage import Stage

OLD: dict[str, Any] = {"auth": {"kind": "bearer", "secret": "env:OLD", "id": "old"}}
NEW: dict[str, Any] = {"auth": {"kind": "bearer", "secret": "env:NEW", "id": "new"}}


async def configure(stage: Stage, **receiver: Any) -> None:
    async with Store(stage.database.dsn, "apply") as store:
        await apply(store, registry(KEYED, **receiver), "test")


class Witness:
    """Writes down as whom each attempt is made (whose credential the receiver holds), and as whom it should be."""

    def __init__(self) -> None:
        self.running: Running | None = None
        self.seen: list[tuple[str | None, str | None]] = []
        self.scripted = ScriptedReceiver([self.line])

    def line(self, made: Attempt) -> Receipt:
        assert self.running is not None
        auth = self.running.relay.services.by_name[RECEIVER].config.auth
        self.seen.append((auth.id if auth else None, made.wiring.receiver.auth_id))
        return Receipt(answer=Answer(200), receipt="{}")


async def test_what_begins_after_an_apply_is_sent_by_the_credential_that_was_applied(stage: Stage) -> None:
    """The contract in force comes with the row, before this relay has read the registry again by itself."""
    await configure(stage, **OLD)
    witness = Witness()
    async with relay_on(stage.database, witness.scripted) as running:
        witness.running = running
        put_many(stage, 1)
        await running.rounds()
        await configure(stage, **NEW)
        stage.put("later", KEYED)
        await running.rounds(2)
    assert witness.seen == [("old", "old"), ("new", "new")]
    assert stage.value("select count(*) from outbox.outcome where state = 'succeeded'") == 2


async def test_what_was_begun_before_an_apply_and_waits_is_not_sent_by_the_new_credential(stage: Stage) -> None:
    await configure(stage, concurrency=1, **OLD)
    receiver = Held(Receipt(answer=Answer(200), receipt="{}"))
    async with relay_on(stage.database, receiver) as running, running.running():
        put_many(stage, 3)
        first = await receiver.begun.get()
        await eventually_async(lambda: _executing(stage, 2))
        await configure(stage, concurrency=1, **NEW)
        await running.relay.read_registry()
        receiver.let_go.set()
        await eventually_async(lambda: _ended(stage, 3))
    assert [made.wiring.receiver.auth_id for made in receiver.attempts] == ["old", "new", "new"]
    assert receiver.attempts[0] is first
    assert stage.value("select count(*) from outbox.attempt") == 0, "what was not sent is not in doubt"


@pytest.mark.parametrize("failing", ["read_receivers", "read_tools"])
async def test_where_the_registry_cannot_be_read_nothing_is_sent_to_a_receiver_that_has_changed(
    stage: Stage, failing: str
) -> None:
    await configure(stage, **OLD)
    witness = Witness()
    async with relay_on(stage.database, witness.scripted) as running:
        witness.running = running
        await running.rounds()
        await configure(stage, **NEW)
        running.store.refuses[failing] = 1_000_000
        put_many(stage, 1)
        await eventually_async(lambda: _unsent(stage, running))
        assert witness.seen == []
        assert (
            stage.value("select count(*) from outbox.pending where state = 'authorized' and unresolved_at is null") == 1
        )
        running.store.refuses[failing] = 0
        await eventually_async(lambda: _tried(stage, running))
    assert witness.seen == [("new", "new")]


async def _executing(stage: Stage, number: int) -> bool:
    return bool(stage.value("select count(*) from outbox.pending where state = 'executing'") >= number)


async def _ended(stage: Stage, number: int) -> bool:
    return bool(stage.value("select count(*) from outbox.outcome") == number)


async def _unsent(stage: Stage, running: Running) -> bool:
    await running.rounds()
    return bool(stage.value("select not_sent from outbox.pending"))


async def _tried(stage: Stage, running: Running) -> bool:
    await running.rounds()
    return await _ended(stage, 1)
