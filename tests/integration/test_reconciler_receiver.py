"""A reconciler and a real receiver, which is a process of its own and judges by its ledger."""

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from outbox.contract import ReceiverConfig
from outbox.demo.faults import Fault
from outbox.digest import sent_key
from outbox.errors import Refused
from outbox.outcome import Ambiguous, Outcome, Receipt
from outbox.receivers import Attempt, Receiver, open_receiver
from outbox.registry import Registry, read_registry
from outbox.settings import Configuration
from outbox.store import Store
from reconciler.act import Done
from reconciler.service import open_for_reading
from tests.support.attempts import RecordingGate
from tests.support.doubts import NOT_FOUND, Records, reconciler_on, register
from tests.support.postgres import Database
from tests.support.relays import relay_on
from tests.support.stage import Clock, Holder, Row, Stage
from tests.support.warehouse import READ_TOKEN, SETTLE_SECONDS, WRITE_TOKEN, Warehouse, warehouse


class Sender:
    """Makes attempts as a relay does, with the credential that a reconciler does not have."""

    def __init__(self, stage: Stage, holder: Holder, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage = stage
        self.holder = holder
        self.registry = registry
        self.instance = UUID(str(stage.value("select id from outbox.instance")))
        self._monkeypatch = monkeypatch

    async def send(self, seq: int) -> Outcome:
        """Begin, deliver, and record what was heard."""
        (begun,) = self.holder.begin_these(seq)
        key = sent_key(self.instance, begun["tenant_id"], begun["tool"], begun["operation_id"])
        with self._monkeypatch.context() as alone:
            alone.setenv("WAREHOUSE_TOKEN", WRITE_TOKEN)
            receiver = open_receiver("warehouse", self.config)
            try:
                outcome = await receiver.deliver(self._attempt(begun, str(key)))
            finally:
                await receiver.aclose()
        if isinstance(outcome, Receipt):
            assert self.holder.end((seq, begun["attempt"])) == [seq]
        else:
            assert self.holder.record_unknown(seq, begun["attempt"], sent_keys=key, delays=0.0) == [seq]
        return outcome

    async def lose(self, fault: Fault, tool: str, receiver: Warehouse, operation_id: str = "op") -> int:
        """Put an operation whose first attempt is not heard of again; returns its seq."""
        seq = self.stage.put(operation_id, tool, resource="item-1")
        receiver.break_next(fault, tool.partition(".")[0].replace("payment", "payments"))
        assert isinstance(await self.send(seq), Ambiguous)
        return seq

    @property
    def config(self) -> ReceiverConfig:
        return self.registry.receivers["warehouse"].config

    def _attempt(self, begun: Row, key: str) -> Attempt:
        return Attempt(
            **{name: begun[name] for name in ("seq", "attempt", "tenant_id", "operation_id", "tool")},
            resource=begun["resource"],
            expected_version=None,
            sent_key=key,
            wiring=self.registry.tools[begun["tool"]].wiring,
            gate=RecordingGate(),
            deadline_seconds=1.0,
            arguments=begun["arguments"],
        )


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path) as started:
        yield started


@pytest.fixture
async def stage(database: Database, receiver: Warehouse) -> AsyncIterator[Stage]:
    await register(database, Configuration.model_validate(receiver.configuration()))
    with Stage(database) as stage:
        yield stage


@pytest.fixture
def clock(stage: Stage) -> Clock:
    return Clock(stage.database)


@pytest.fixture
async def sender(stage: Stage, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Sender:
    monkeypatch.delenv("WAREHOUSE_TOKEN", raising=False)
    monkeypatch.setenv("WAREHOUSE_READ_TOKEN", READ_TOKEN)
    async with Store(stage.database.dsn, "registry") as store:
        registry = await read_registry(store)
    return Sender(stage, stage.holder().taken(ttl_seconds=1_000_000), registry, monkeypatch)


async def swept(stage: Stage) -> Done:
    """One pass of a reconciler with the real receivers; what came of the one operation."""
    async with reconciler_on(stage.database) as reconciler:
        (done,) = await reconciler.sweep.run_once()
    return done


@pytest.mark.parametrize("tool", ["stock.set", "payment.make"])
async def test_an_effect_whose_answer_was_lost_is_found_and_not_repeated(
    stage: Stage, sender: Sender, clock: Clock, receiver: Warehouse, tool: str
) -> None:
    seq = await sender.lose(Fault.LOSE_ANSWER, tool, receiver)
    clock.advance(1)
    assert await swept(stage) is Done.SUCCEEDED
    with receiver.ledger() as ledger:
        (effect,) = ledger.effects()
    outcome = stage.outcome(seq)
    assert (outcome["cause"], outcome["external_id"]) == ("confirmed", effect.receipt)
    assert receiver.writes() == ["none"], "the attempt, and nothing of the reconciler's"


@pytest.mark.parametrize("tool", ["stock.set", "payment.make"])
async def test_an_attempt_that_was_lost_is_proven_absent_and_made_once_more(
    stage: Stage, sender: Sender, clock: Clock, receiver: Warehouse, tool: str
) -> None:
    seq = await sender.lose(Fault.LOSE_REQUEST, tool, receiver)
    clock.advance(SETTLE_SECONDS + 0.1)
    assert await swept(stage) is Done.AUTHORIZED
    assert isinstance(await sender.send(seq), Receipt)
    assert stage.state(seq) == "succeeded"
    with receiver.ledger() as ledger:
        assert ledger.count_effects() == 1


async def test_a_record_on_a_later_page_is_found(
    stage: Stage, sender: Sender, clock: Clock, receiver: Warehouse
) -> None:
    seq = await sender.lose(Fault.LOSE_ANSWER, "payment.make", receiver)
    for number in range(5):
        receiver.post("/payments", {"reference": f"somebody-else-{number}"})
    clock.advance(1)
    assert await swept(stage) is Done.SUCCEEDED
    assert receiver.reads() == 3
    with receiver.ledger() as ledger:
        assert stage.outcome(seq)["external_id"] == ledger.effects()[0].receipt


async def test_a_list_that_is_too_long_to_be_read_to_its_end_proves_no_absence(
    stage: Stage, sender: Sender, clock: Clock, receiver: Warehouse
) -> None:
    """Ours is there, behind more pages than the tool allows: "not found" here would make a second effect."""
    seq = await sender.lose(Fault.LOSE_ANSWER, "payment.make", receiver)
    for number in range(10):
        receiver.post("/payments", {"reference": f"somebody-else-{number}"})
    clock.advance(SETTLE_SECONDS + 0.1)
    assert await swept(stage) is Done.LATER
    assert stage.state(seq) == "unknown"
    assert stage.value("select verdict from outbox.evidence where seq = %s", seq) == "unknown"


async def test_a_request_that_lands_after_a_look_is_not_taken_for_absent(
    stage: Stage, sender: Sender, clock: Clock, receiver: Warehouse
) -> None:
    """The look is made before settle time and finds nothing; the effect comes later; nothing was sent meanwhile."""
    seq = await sender.lose(Fault.LOSE_REQUEST, "payment.make", receiver)
    clock.advance(SETTLE_SECONDS - 1)
    assert await swept(stage) is Done.LATER
    key = str(stage.pending(seq)["sent_key"])
    assert receiver.post("/payments", {"reference": key}) == 201, "a router lets the lost request go at last"
    clock.advance(5)
    assert await swept(stage) is Done.SUCCEEDED
    with receiver.ledger() as ledger:
        assert len(ledger.effects_of(key)) == 1


async def test_two_effects_under_one_identity_are_reported(
    stage: Stage, sender: Sender, clock: Clock, receiver: Warehouse
) -> None:
    seq = await sender.lose(Fault.LOSE_ANSWER, "payment.make", receiver)
    receiver.post("/payments", {"reference": str(stage.pending(seq)["sent_key"])})
    clock.advance(1)
    assert await swept(stage) is Done.SUCCEEDED
    assert stage.value("select duplicates from outbox.evidence where seq = %s", seq) == 1
    assert [row["seq"] for row in stage.rows("select seq from outbox.contradiction")] == [seq]


async def test_a_receiver_that_stands_still_leaves_everything_open_until_it_answers_again(
    stage: Stage, sender: Sender, clock: Clock, receiver: Warehouse
) -> None:
    seq = await sender.lose(Fault.LOSE_ANSWER, "payment.make", receiver)
    clock.advance(SETTLE_SECONDS + 1)
    receiver.program.signal(signal.SIGSTOP)
    try:
        assert await swept(stage) is Done.LATER
        assert stage.state(seq) == "unknown"
    finally:
        receiver.program.signal(signal.SIGCONT)
    clock.advance(600)
    assert await swept(stage) is Done.SUCCEEDED


async def test_what_a_reconciler_opens_can_cause_no_effect(sender: Sender, receiver: Warehouse) -> None:
    """Not by its code, and not by its credential."""
    opened: Receiver = open_for_reading("warehouse", sender.config)
    try:
        with pytest.raises(Refused):
            await opened.deliver(sender._attempt(_begun(sender), "0" * 36))
    finally:
        await opened.aclose()
    assert receiver.writes() == []
    assert receiver.post("/payments", {"reference": "r"}, READ_TOKEN) == 403
    with receiver.ledger() as ledger:
        assert ledger.count_effects() == 0


def _begun(sender: Sender) -> Row:
    seq = sender.stage.put("op", "stock.set", resource="item-1")
    (begun,) = sender.holder.begin_these(seq)
    return begun


async def test_work_that_was_accepted_with_an_answer_is_found_by_our_reference_when_it_is_done(
    database: Database, receiver: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relay, receiver and reconciler as they are: an acceptance is no receipt, and what is not there yet no absence."""
    monkeypatch.setenv("WAREHOUSE_TOKEN", WRITE_TOKEN)
    monkeypatch.setenv("WAREHOUSE_READ_TOKEN", READ_TOKEN)
    config = receiver.configuration()
    config["tools"]["payment.make"]["contract"] |= {
        "acceptance": "async",
        "answers": [{"status": [201], "means": "accepted", "external_id": "/id"}],
    }
    await register(database, Configuration.model_validate(config))
    clock = Clock(database)
    with Stage(database) as stage:
        seq = stage.put("op", "payment.make", resource="item-1")
        async with Store(database.dsn, "registry") as store:
            served = (await read_registry(store)).receivers["warehouse"].config
        sending = open_receiver("warehouse", served)
        async with relay_on(database, sending) as relay:
            await relay.rounds()
        await sending.aclose()
        assert (stage.state(seq), stage.pending(seq)["cause"], stage.doubt(seq)["accepted"]) == (
            "unknown",
            "accepted",
            True,
        )
        with receiver.ledger() as ledger:
            (effect,) = ledger.effects()
        (kept,) = stage.rows("select excerpt, status from outbox.attempt where seq = %s", seq)
        assert kept["status"] == 201
        assert effect.receipt in kept["excerpt"], "the name that it gave to the work"

        # As long as it is not shown, that proves nothing, however much later.
        hidden = Records(NOT_FOUND)
        for _ in range(3):
            clock.advance(60 * SETTLE_SECONDS)
            async with reconciler_on(database, hidden) as reconciler:
                (done,) = await reconciler.sweep.run_once()
            assert done in {Done.LATER, Done.PERSON}
            assert stage.state(seq) == "unknown"
        clock.advance(86_400)
        assert await swept(stage) is Done.SUCCEEDED
        outcome = stage.outcome(seq)
        assert (outcome["cause"], outcome["external_id"]) == ("confirmed", effect.receipt)
    assert receiver.writes() == ["201"]
