"""A receiver that does not answer is left alone: by all relays at once, at nobody's cost, and no longer than needed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from outbox.lease import boottime
from outbox.outcome import Ambiguous, Answer, NotSent, Outcome, Receipt, Throttled
from outbox.receivers import Attempt
from outbox.receivers.scripted import ScriptedReceiver
from outbox.registry import apply
from outbox.store import Store
from relay.breaker import Breaker
from relay.circuit import MISSES_MAX, POLITE_SECONDS, RIGHT_SECONDS
from tests.support.doubts import register
from tests.support.eventually import eventually_async
from tests.support.postgres import Database
from tests.support.relays import BLIND, KEYED, Held, Running, put_many, registry, relay_on
from tests.support.stage import Stage

NOBODY = NotSent(reason="no connection", unreachable=True)
RECEIPT = Receipt(answer=Answer(200), receipt="r")


class Switch:
    """A receiver that is there, or not."""

    def __init__(self, answer: Outcome = NOBODY) -> None:
        self.answer = answer
        self.scripted = ScriptedReceiver([lambda _: self.answer])

    @property
    def calls(self) -> int:
        return len(self.scripted.attempts)


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database, registry(lanes=4, concurrency=4))
    with Stage(database) as stage:
        yield stage


async def until(condition: Callable[[], object]) -> None:
    async def met() -> object:
        return condition()

    await eventually_async(met)


def circuit(stage: Stage) -> dict[str, Any]:
    (row,) = stage.rows(
        "select circuit_opened_at, circuit_reason, circuit_probes, circuit_retry_at from outbox.receiver"
    )
    return row


def the_breaker(running: Running) -> Breaker:
    (service,) = running.relay.services.by_name.values()
    return service.breaker


def untouched(stage: Stage) -> int:
    """How many operations have no attempt at all."""
    number: int = stage.value("select count(*) from outbox.pending where attempt = 0 and state = 'authorized'")
    return number


async def be_due(stage: Stage, *relays: Running) -> None:
    """Let the wait be over, and every relay know."""
    stage.rows("update outbox.receiver set circuit_retry_at = outbox.now()")
    for each in relays:
        for service in each.relay.services.by_name.values():
            service.breaker.circuit._polite_until = 0.0
        await each.relay._watch_circuits()


async def open_it(stage: Stage, running: Running, number: int = 20, tool: str = KEYED) -> None:
    put_many(stage, number, tool)
    while circuit(stage)["circuit_opened_at"] is None:
        assert await running.rounds(), "the receiver is not there, and nobody notices"


async def test_several_misses_over_different_operations_open_it_and_the_rest_stays_where_it_was(stage: Stage) -> None:
    receiver = Switch()
    async with relay_on(stage.database, receiver.scripted) as running:
        await open_it(stage, running)
        assert MISSES_MAX <= receiver.calls <= MISSES_MAX + 3, "those that ran already"
        assert await running.rounds(3) == 0
        assert running.counted("circuits_opened") == 1
        assert running.meters.registry.get_sample_value("outbox_circuit_open", {"receiver": "warehouse"}) == 1
    assert untouched(stage) == 20 - receiver.calls
    assert "no connection" in circuit(stage)["circuit_reason"]
    assert stage.rows("select from outbox.doubt") == [], "an outage costs no doubt"


@pytest.mark.parametrize(
    ("answers", "opens"),
    [
        ([Ambiguous(reason="503", answer=Answer(503))], True),
        ([NOBODY, NOBODY, NOBODY, NOBODY, Throttled(answer=Answer(429), retry_after_seconds=60)] * 4, False),
        ([Ambiguous(reason="409", answer=Answer(409))], False),
        ([NotSent(reason="the credential is missing")], False),
    ],
    ids=["errors of a server", "one answers now and then", "answers that prove nothing", "a fault of ours"],
)
async def test_what_opens_it(stage: Stage, answers: list[Outcome], opens: bool) -> None:
    put_many(stage, 20)
    async with relay_on(stage.database, ScriptedReceiver(answers)) as running:
        await running.rounds(10)
    assert (circuit(stage)["circuit_opened_at"] is not None) is opens
    assert (untouched(stage) > 0) is opens


async def test_one_operation_that_fails_by_itself_opens_nothing(stage: Stage) -> None:
    seq = stage.put("poison", KEYED)
    async with relay_on(stage.database, ScriptedReceiver([Ambiguous(reason="500", answer=Answer(500))])) as running:
        for _ in range(2 * MISSES_MAX):
            await running.rounds()
            stage.rows("update outbox.pending set step = 'resend', next_at = outbox.now() where seq = %s", seq)
            for lane in running.relay.lanes:
                lane.ring(seq)
    assert stage.pending(seq)["attempt"] > MISSES_MAX
    assert circuit(stage)["circuit_opened_at"] is None


async def test_of_all_lanes_one_makes_one_probe_and_another_miss_prolongs_the_wait(stage: Stage) -> None:
    receiver = Switch()
    async with relay_on(stage.database, receiver.scripted) as running:
        await open_it(stage, running)
        opened_at = circuit(stage)["circuit_opened_at"]
        for probes in range(1, 4):
            before = receiver.calls
            await be_due(stage, running)
            assert await running.rounds() == 1
            await running.rounds()
            assert receiver.calls == before + 1
            assert (circuit(stage)["circuit_probes"], circuit(stage)["circuit_opened_at"]) == (probes, opened_at)
        assert running.counted("probes") == 3
        assert running.counted("circuits_opened") == 1


async def test_an_answer_closes_it_whatever_it_says_and_everything_goes_on(stage: Stage) -> None:
    receiver = Switch()
    async with relay_on(stage.database, receiver.scripted) as running:
        await open_it(stage, running)
        receiver.answer = Throttled(answer=Answer(429), retry_after_seconds=0)
        await be_due(stage, running)
        assert await running.rounds()
        receiver.answer = RECEIPT
        await running.rounds()
        assert circuit(stage) == dict.fromkeys(circuit(stage)) | {"circuit_probes": 0}
        while untouched(stage):
            assert await running.rounds()
        assert running.meters.registry.get_sample_value("outbox_circuit_open", {"receiver": "warehouse"}) == 0


async def test_relays_share_it_and_never_make_two_probes_at_once(stage: Stage) -> None:
    receiver, probe = Switch(), Held(NOBODY)
    async with relay_on(stage.database, receiver.scripted) as one, relay_on(stage.database, probe) as two:
        await open_it(stage, one)
        await one.relay.leases.tick()
        for lane in list(one.relay.lanes)[:2]:
            lane.close()
            await one.relay.leases.give_back(lane)
            one.relay.lanes.pop(lane)
        await two.take_lanes()
        assert two.relay.lanes
        assert all(service.breaker.is_open for service in two.relay.services.by_name.values())
        await be_due(stage, one, two)
        begun = 0
        for lane in list(two.relay.lanes):
            begun += await lane.claims.step()
        assert begun == 1, "one of its lanes, one attempt"
        assert await one.rounds() == 0
        # The probe takes long. Its right is renewed for as long as it runs.
        stage.rows("update outbox.receiver set circuit_retry_at = outbox.now()")
        await two.relay._watch_circuits()
        assert await one.rounds() == 0
        left = stage.value("select extract(epoch from circuit_retry_at - outbox.now())::float8 from outbox.receiver")
        assert 0 < left <= RIGHT_SECONDS
        probe.let_go.set()
        for lane in list(two.relay.lanes):
            await lane.settle()


async def test_the_right_to_probe_goes_to_one_of_all_that_ask_at_once(stage: Stage) -> None:
    stage.rows("update outbox.receiver set circuit_opened_at = outbox.now(), circuit_retry_at = outbox.now()")
    (receiver_id,) = (row["receiver_id"] for row in stage.rows("select receiver_id from outbox.receiver"))
    async with Store(stage.database.dsn_for("relay"), "relay", connections_max=8) as store:
        asked = [store.dicts("claim_probe", receiver_id=receiver_id, right_seconds=10.0) for _ in range(8)]
        answers = [rows[0] for rows in await asyncio.gather(*asked)]
    assert [answer["granted"] for answer in answers].count(True) == 1
    assert all(answer["open"] for answer in answers)


async def test_what_was_claimed_and_not_sent_when_it_opened_is_not_sent(database: Database) -> None:
    """An attempt that waits for a slot was exposed; at a receiver that is not there it would only cost a doubt."""
    await register(database, registry(KEYED, concurrency=1, lanes=1))
    with Stage(database) as stage:
        put_many(stage, 20)
        receiver = Switch(Ambiguous(reason="502", answer=Answer(502)))
        async with relay_on(database, receiver.scripted) as running:
            await running.rounds()
            assert receiver.calls == MISSES_MAX
        counted = stage.rows("select state::text, count(*) as n from outbox.pending group by 1 order by 1")
        assert {row["state"]: row["n"] for row in counted} == {"authorized": 20 - MISSES_MAX, "unknown": MISSES_MAX}
        assert stage.value("select bool_and(unresolved_at is null) from outbox.pending where state = 'authorized'")


async def test_a_relay_that_starts_finds_out_before_it_begins_anything(stage: Stage) -> None:
    put_many(stage, 20)
    stage.rows(
        "update outbox.receiver set circuit_opened_at = outbox.now(), circuit_reason = 'down', circuit_probes = 3,"
        " circuit_retry_at = outbox.now() + interval '1 minute'"
    )
    receiver = Switch()
    async with relay_on(stage.database, receiver.scripted) as running:
        assert await running.rounds(3) == 0
    assert (receiver.calls, untouched(stage)) == (0, 20)


async def test_a_person_who_resumes_the_receiver_has_it_tried_at_once(stage: Stage) -> None:
    receiver = Switch()
    async with relay_on(stage.database, receiver.scripted) as running:
        await open_it(stage, running)
        stage.rows("update outbox.receiver set circuit_retry_at = outbox.now() + interval '1 minute'")
        await running.relay._watch_circuits()
        assert await running.rounds(2) == 0
        before = receiver.calls
        resumed = "select outbox.pause_end('receiver', 'warehouse', 'ann', 'they are back') as ended"
        assert stage.as_role("operator").execute(resumed).fetchall() == [{"ended": True}]
        await running.relay._watch_circuits()
        receiver.answer = RECEIPT
        assert await running.rounds()
        assert receiver.calls > before
        await running.rounds()
    assert circuit(stage)["circuit_opened_at"] is None
    assert stage.value("select act || ' ' || target || ': ' || reason from outbox.audit") == (
        "resume receiver warehouse: they are back"
    )


async def test_a_relay_that_had_nothing_to_probe_with_during_a_pause_probes_at_once_when_a_person_resumes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, late = Switch(), 0.0
    monkeypatch.setattr("relay.breaker.boottime", lambda: boottime() + late)
    async with relay_on(stage.database, receiver.scripted) as running:
        await open_it(stage, running)
        stage.rows("select outbox.pause_add('receiver', 'warehouse', 'ann', 'their release')")
        stage.rows("update outbox.receiver set circuit_retry_at = outbox.now()")
        await running.relay._watch_circuits()
        assert await running.rounds(2) == 0
        # The right to probe has run out, and it is left to others for a while.
        stage.rows("update outbox.receiver set circuit_retry_at = circuit_retry_at - interval '11 seconds'")
        the_breaker(running)._retry_date = stage.value("select circuit_retry_at from outbox.receiver")
        late = RIGHT_SECONDS + 1
        assert late < POLITE_SECONDS
        await running.relay._watch_circuits()
        before = receiver.calls
        assert await running.rounds(2) == 0
        stage.rows("select outbox.pause_end('receiver', 'warehouse', 'ann', 'they are back')")
        receiver.answer = RECEIPT
        await running.relay._watch_circuits()
        assert the_breaker(running).circuit.wants_right(boottime() + late)
        await eventually_async(running.rounds)  # a lane that has looked and found nothing looks again in its own time
        assert receiver.calls > before


async def test_a_new_configuration_of_the_receiver_is_tried_as_if_nothing_had_been(stage: Stage) -> None:
    receiver = Switch()
    async with relay_on(stage.database, receiver.scripted) as running:
        await open_it(stage, running)
        async with Store(stage.database.dsn, "apply") as store:
            await apply(store, registry(lanes=4, concurrency=8), "test")
        assert circuit(stage)["circuit_opened_at"] is None
        await running.relay.read_registry()
        receiver.answer = RECEIPT
        assert await running.rounds() > 1


async def test_a_running_relay_comes_back_by_itself_soon_after_its_receiver_does(stage: Stage) -> None:
    receiver = Switch()
    put_many(stage, 30, BLIND)
    async with relay_on(stage.database, receiver.scripted, poll="50ms") as running, running.running():
        await until(lambda: running.counted("circuits_opened") == 1)
        await until(lambda: running.counted("probes") >= 1)
        receiver.answer = RECEIPT
        await until(lambda: stage.value("select count(*) from outbox.outcome") >= 20)
    assert receiver.scripted.effects.total() == stage.value("select count(*) from outbox.outcome")


async def test_an_attempt_of_which_nothing_is_heard_gives_the_right_back(stage: Stage) -> None:
    """Cancelled in the middle of its first step, or its row could not be recorded."""
    receiver = Switch()
    async with relay_on(stage.database, receiver.scripted) as running:
        await open_it(stage, running)
        await be_due(stage, running)
        (service,) = running.relay.services.by_name.values()

        def unforeseen(_: Attempt) -> Outcome:
            raise ZeroDivisionError

        receiver.scripted._script[:] = [unforeseen]
        assert await running.rounds() == 1
        assert not service.breaker.circuit.probing
        assert service.breaker.is_open
