"""What is sent is what was stored, permitted and, on a resend, sent before; anything else is withdrawn, unsent."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outbox.digest import sent_key
from outbox.outcome import Answer, Outcome, Refused, Throttled
from outbox.receivers.scripted import ScriptedReceiver, lost_answer
from outbox.settings import Configuration
from tests.support.doubts import register
from tests.support.postgres import Database
from tests.support.relays import KEYED, LOOKED_UP, registry, relay_on
from tests.support.stage import Clock, Stage

REQUEST = {"request": {"method": "PUT", "path": "/things/{resource}"}}
THROTTLED = Throttled(answer=Answer(429))
QUICK: dict[str, Any] = {"retry": {"first": "1ms", "max": "2ms"}}


def configured(base_url: str = "http://one.example", source: str = "a page", **auth: Any) -> Configuration:
    credential = {"kind": "bearer", "secret": "env:TOKEN", "id": "main", **auth}
    return registry(KEYED, tool=REQUEST, contract={**QUICK, "source": source}, base_url=base_url, auth=credential)


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    await register(database, configured())
    with Stage(database) as stage:
        yield stage


async def run(stage: Stage, receiver: ScriptedReceiver, rounds: int = 1) -> ScriptedReceiver:
    async with relay_on(stage.database, receiver, look_behind="10ms") as running:
        await running.rounds(rounds)
    return receiver


def state_and_cause(stage: Stage, seq: int) -> tuple[str, str | None]:
    (row,) = stage.rows("select state::text, cause from outbox.operation where seq = %s", seq)
    return row["state"], row["cause"]


async def test_the_sent_key_is_derived_from_instance_tenant_tool_and_id(stage: Stage) -> None:
    stage.put("op", KEYED, resource="a")
    (attempt,) = (await run(stage, ScriptedReceiver())).attempts
    assert attempt.sent_key == sent_key(stage.value("select id from outbox.instance"), "acme", KEYED, "op")
    instance, fence = stage.value("select id from outbox.instance"), stage.value("select fence from outbox.lane")
    assert attempt.fence_token == f'"{instance}/warehouse/0";fence={fence}'


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        (configured(base_url="http://one.example/v2"), "target_changed"),
        (configured(base_url="http://two.example"), "scope_changed"),
        (configured(id="other", account="main"), "scope_changed"),
    ],
    ids=["another path", "another host", "another credential"],
)
@pytest.mark.parametrize("in_doubt", [False, True], ids=["throttled before", "in doubt"])
async def test_a_request_that_would_differ_from_the_first_is_never_sent(
    stage: Stage, changed: Configuration, cause: str, *, in_doubt: bool
) -> None:
    """The receiver may know the key: with other bytes, or in another place, it may execute it anew."""
    seq = stage.put("op", KEYED, resource="a")
    await run(stage, ScriptedReceiver([lost_answer if in_doubt else THROTTLED]))
    await register(stage.database, changed)
    receiver = await run(stage, ScriptedReceiver(), rounds=3)
    assert receiver.attempts == []
    (doubt,) = stage.rows("select needs_person, step::text, reason, no_resend from outbox.doubt where seq = %s", seq)
    assert state_and_cause(stage, seq) == ("unknown" if in_doubt else "authorized", cause)
    assert doubt == {"needs_person": True, "step": "person", "reason": cause, "no_resend": in_doubt}


async def test_a_new_contract_that_says_the_same_about_the_request_changes_nothing(stage: Stage) -> None:
    seq = stage.put("op", KEYED, resource="a")
    await run(stage, ScriptedReceiver([lost_answer]))
    await register(stage.database, configured(source="another page"))
    (attempt,) = (await run(stage, ScriptedReceiver(), rounds=3)).attempts
    assert attempt.resend
    assert stage.state(seq) == "succeeded"
    assert stage.outcome(seq)["contract_id"] != stage.value("select contract_id from outbox.tool")


async def tamper(stage: Stage, seq: int) -> None:
    stage.admin.execute("set session_replication_role = replica")
    stage.admin.execute("alter table outbox.intent drop constraint intent_is_sound")
    stage.admin.execute("update outbox.intent set arguments = %s where seq = %s", [json.dumps({"cents": 1}), seq])


async def test_arguments_that_were_changed_after_the_intent_are_rejected_with_an_alarm(stage: Stage) -> None:
    seq = stage.put("op", KEYED, resource="a")
    await tamper(stage, seq)
    receiver = ScriptedReceiver()
    async with relay_on(stage.database, receiver) as running:
        await running.rounds()
        assert running.counted("alarms") == 1
    assert receiver.attempts == []
    assert state_and_cause(stage, seq) == ("rejected", "tampered")


async def test_arguments_that_were_changed_in_doubt_are_never_sent_and_the_doubt_stays(stage: Stage) -> None:
    seq = stage.put("op", KEYED, resource="a")
    await run(stage, ScriptedReceiver([lost_answer]))
    await tamper(stage, seq)
    receiver = await run(stage, ScriptedReceiver(), rounds=3)
    assert receiver.attempts == []
    assert state_and_cause(stage, seq) == ("unknown", "tampered")
    assert stage.doubt(seq)["needs_person"]


async def test_an_approval_of_another_digest_permits_nothing(stage: Stage) -> None:
    seq = stage.put("op", KEYED, resource="a")
    stage.rows(
        """
        with a as (
          insert into outbox.approval (seq, digest, decision, policy_version, decided_by)
          values (%s, sha256('something else'), 'approved', 1, 'eve') returning approval_id
        )
        update outbox.pending set approval_id = (select approval_id from a)
        """,
        seq,
    )
    receiver = await run(stage, ScriptedReceiver())
    assert receiver.attempts == []
    assert state_and_cause(stage, seq) == ("rejected", "tampered")


@pytest.mark.parametrize("resource", [None, ".."])
async def test_an_operation_of_which_no_request_can_be_made_is_rejected_and_says_why(
    stage: Stage, resource: str | None
) -> None:
    seq = stage.put("op", KEYED, resource=resource)
    receiver = await run(stage, ScriptedReceiver())
    assert receiver.attempts == []
    assert state_and_cause(stage, seq) == ("rejected", "no_route")
    assert stage.outcome(seq)["excerpt"]


async def test_a_contract_version_that_this_program_cannot_read_is_not_sent(stage: Stage) -> None:
    """Applied by a newer release: what it promises is not known, so nothing is risked; others are not delayed."""
    strange = stage.put("strange", KEYED, resource="a")
    await run(stage, ScriptedReceiver([THROTTLED]))
    other = stage.put("other", KEYED, resource="b")
    stage.rows(
        """
        insert into outbox.contract (digest, tool, version, body)
        values (sha256('x'), 'thing.keyed', 99, '{"tool": "thing.keyed", "of_a_newer_release": true}')
        """
    )
    stage.rows(
        "update outbox.pending set contract_id = (select contract_id from outbox.contract where version = 99),"
        " next_at = outbox.now() where seq = %s",
        strange,
    )
    receiver = await run(stage, ScriptedReceiver(), rounds=3)
    assert [attempt.seq for attempt in receiver.attempts] == [other]
    assert state_and_cause(stage, strange) == ("authorized", "contract_unreadable")
    assert stage.pending(strange)["next_at"] > stage.value("select outbox.now() + interval '20 s'")


async def test_a_resend_is_refused_in_the_process_where_the_pinned_contract_keeps_more_free(stage: Stage) -> None:
    """The statement judges by the version in force; the one that the operation is bound to is obeyed too."""
    clock = Clock(stage.database)
    await register(stage.database, registry(KEYED, contract={**QUICK, "margin": "10h"}))
    seq = stage.put("op", KEYED, resource="a")
    await run(stage, ScriptedReceiver([lost_answer]))
    await register(stage.database, registry(KEYED, contract={**QUICK, "margin": "1h"}))
    clock.advance(15 * 3600)
    receiver = await run(stage, ScriptedReceiver())
    (attempt,) = receiver.attempts
    assert not getattr(attempt.gate, "passed", True)
    assert state_and_cause(stage, seq) == ("unknown", "too_late")


async def test_a_refusal_on_a_resend_speaks_of_that_attempt_only(stage: Stage) -> None:
    seq = stage.put("op", KEYED, resource="a")
    script: list[Any] = [lost_answer, Refused(answer=Answer(404))]
    await run(stage, ScriptedReceiver(script), rounds=3)
    assert state_and_cause(stage, seq) == ("unknown", "refused")
    assert stage.doubt(seq)["no_resend"]


async def test_a_resend_that_was_not_sent_restores_the_doubt_before_it(database: Database) -> None:
    await register(database, registry(LOOKED_UP, KEYED, contract={}))
    with Stage(database) as stage:
        seq = stage.put("op", KEYED, resource="a")

        def answer(attempt: Any) -> Outcome | Exception:
            return lost_answer(attempt) if attempt.attempt == 1 else THROTTLED

        async with relay_on(database, ScriptedReceiver([answer]), look_behind="10ms") as running:
            await running.rounds()
            before = stage.pending(seq)
            stage.rows("update outbox.pending set next_at = outbox.now()")
            running.lane.ring(seq)
            await running.rounds()
        after = stage.pending(seq)
        kept = ("unresolved_at", "first_sent_at", "resend_until", "contract_id", "sent_key", "wire_digest")
        assert {name: before[name] for name in kept} == {name: after[name] for name in kept}
        assert (after["state"], after["throttled"], after["attempt"]) == ("unknown", 1, 2)
