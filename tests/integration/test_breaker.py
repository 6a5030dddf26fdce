"""What an adversary found: interleavings and inputs, each of which broke a promise."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from outbox.outcome import Accepted, Answer, Mismatch, NotSent, Outcome, Receipt
from outbox.receivers import Attempt
from outbox.receivers.scripted import ScriptedReceiver, lost_answer
from tests.support.doubts import (
    CONFIRMED,
    NOT_FOUND,
    Records,
    configuration,
    in_doubt,
    reconciler_on,
    register,
)
from tests.support.postgres import Database
from tests.support.relays import KEYED, LOOKED_UP, Held, registry, relay_on
from tests.support.stage import Stage

RECEIPT = Receipt(answer=Answer(200, "done"), receipt="r-1", external_id="x-1")


@pytest.mark.parametrize(
    ("first", "statement"),
    [(NotSent(reason="no connection"), "withdraw_attempts"), (lost_answer, "record_unknown")],
    ids=["not sent", "resent"],
)
async def test_an_answer_is_not_lost_while_an_earlier_one_of_its_operation_is_recorded_again(
    database: Database, first: NotSent | Callable[[Attempt], Outcome], statement: str
) -> None:
    """The commit of the first answer was lost, and the next attempt begins and ends before it is tried again."""
    await register(database, registry(KEYED, tool={"deadline": "5s"}))
    with Stage(database) as stage:
        seq = stage.put("op", KEYED)

        def answer(attempt: Attempt) -> Outcome:
            if attempt.attempt == 1:
                return first(attempt) if callable(first) else first
            return RECEIPT

        receiver = ScriptedReceiver([answer])
        async with relay_on(database, receiver) as running:
            await running.take_lanes()
            lane = running.lane
            again, lost = asyncio.Event(), asyncio.Event()
            fetch = running.store.fetch

            async def slow(name: str, rows: Any, /, **parameters: Any) -> Any:
                if name == statement and lost.is_set():
                    await again.wait()
                return await fetch(name, rows, **parameters)

            running.store.fetch = slow  # type: ignore[method-assign]
            running.store.loses[statement] = 1
            running.store.when_lost = lost.set
            await lane.claims.step()
            flushing = asyncio.create_task(lane.settle())
            await lost.wait()
            stage.rows("update outbox.pending set next_at = outbox.now()")
            lane.ring(seq)
            while len(receiver.attempts) < 2:
                await lane.claims.step()
                await asyncio.sleep(0)
            again.set()
            await flushing
            lane.claims._next_sweep_at = 0.0
            await running.rounds(2)
            assert running.counted("orphans") == 0
        assert (stage.state(seq), [attempt.attempt for attempt in receiver.attempts]) == ("succeeded", [1, 2])


@pytest.mark.parametrize("late", [Accepted(answer=Answer(202)), Mismatch(answer=Answer(422))], ids=["202", "mismatch"])
async def test_what_a_late_answer_says_of_later_looks_is_not_forgotten(database: Database, late: Outcome) -> None:
    """After a 202 "not found" proves nothing, after a mismatch a record under our key is not ours, however late."""
    await register(database, configuration())
    with Stage(database) as stage:
        tool = "thing.keyed_and_looked_up" if isinstance(late, Mismatch) else LOOKED_UP
        seq = stage.put("op", tool)
        receiver = Held(late)
        async with relay_on(database, receiver) as running:
            await running.take_lanes()
            lane = running.lane
            await lane.claims.step()
            await receiver.begun.get()
            stage.rows("update outbox.lane set expires_at = '-infinity'")
            assert stage.holder().take() is not None
            receiver.let_go.set()
            await lane.settle()
        stage.rows(
            "update outbox.doubt set settle_at = outbox.now() - interval '1 hour', next_at = outbox.now(),"
            " last_exposed_at = outbox.now() - interval '2 hours', since = outbox.now() - interval '2 hours'"
        )
        records = Records(CONFIRMED if isinstance(late, Mismatch) else NOT_FOUND)
        async with reconciler_on(database, records) as reconciler:
            for _ in range(3):
                await reconciler.run_once()
        assert stage.state(seq) == "unknown"


def test_a_revoked_permission_does_not_come_back_with_a_new_policy(database: Database) -> None:
    """Revoked while an attempt ran; the policy changes; the attempt is withdrawn. `redecide` may be first to see it."""
    with Stage(database) as stage:
        stage.register(retention="24 hours", margin="1 minute", reach="30 seconds", deadline="5 seconds")
        seq, holder = stage.put("op"), stage.holder().taken()
        (attempt,) = holder.begin_these(seq)
        stage.as_role("operator").execute("select outbox.revoke('acme', 'op', 'ann', 'stop it')")
        stage.rows("update outbox.tool set policy_version = 2")
        assert holder.withdraw(seq, attempt["attempt"], delays=0.0) == [seq]
        stage.as_role("relay").execute("select outbox.redecide(100)")
        assert holder.begin_these(seq) == []
        stage.as_role("relay").execute("select outbox.expire(100)")
        assert stage.state(seq) == "rejected"


def test_what_a_repair_places_is_not_permitted_by_it(database: Database) -> None:
    """A tool that needs approval; its intents were restored with triggers off. Nobody has ever approved them."""
    with Stage(database) as stage:
        stage.register(requires_approval=True, settle="1 second", reach="1 second", deadline="1 second")
        stage.rows("alter table outbox.intent disable trigger place")
        seq = stage.put("op")
        stage.rows("alter table outbox.intent enable trigger place")
        stage.as_role("operator").execute("select * from outbox.repair(0, 100, 'ann')")
        assert stage.state(seq) == "unknown"
        permits = stage.value(
            "select p.policy_version = t.policy_version from outbox.pending p, outbox.tool t where p.seq = %s", seq
        )
        assert not permits, "nothing is known of an approval"
        assert stage.settle(seq, 1, "authorized") == "applied"
        assert stage.holder().taken().begin_these(seq) == []
        stage.as_role("relay").execute("select outbox.redecide(100)")
        assert stage.state(seq) == "proposed"


async def test_a_date_that_no_program_can_read_stops_nobody_elses_operations(database: Database) -> None:
    """PostgreSQL has years that Python has not."""
    await register(database, configuration())
    with Stage(database) as stage:
        holder = stage.holder().taken()
        other = in_doubt(stage, holder, "thing.keyed_and_looked_up", "other")
        writer = stage.connect("writer")
        far = "insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, expires_at, digest)"
        far += (
            " values ('acme', 'far', 'thing.keyed_and_looked_up', 'svc', '{}', %s, outbox.intent_digest('acme', 'far',"
        )
        far += " 'thing.keyed_and_looked_up', null, null, '{}'))"
        try:
            writer.execute(far, ["20000-01-01"])
        except psycopg.errors.CheckViolation:
            return
        seq = stage.value("select max(seq) from outbox.intent")
        (attempt,) = holder.begin_these(seq)
        holder.record_unknown(seq, attempt["attempt"], delays=0.0)
        stage.witness(other, "receipt", attempt=1, receipt="r", external_id="x")
        async with reconciler_on(database, Records(CONFIRMED)) as reconciler:
            await reconciler.run_once()
        assert stage.state(other) == "succeeded"


async def test_resends_without_a_look_up_end_with_a_person(database: Database) -> None:
    """`retry.attempts` bounds the exposures of an operation, also where the relay plans each resend by itself."""
    retry = {"first": "1ms", "max": "1ms", "attempts": 3}
    await register(database, registry(KEYED, contract={"key_retention": "forever", "retry": retry}))
    with Stage(database) as stage:
        seq = stage.put("op", KEYED)
        receiver = ScriptedReceiver([lost_answer])
        async with relay_on(database, receiver, look_behind="10ms") as running:
            for _ in range(12):
                await running.rounds()
                stage.rows("update outbox.pending set next_at = outbox.now() where step = 'resend'")
                running.lane.ring(seq)
        assert len(receiver.attempts) == 3
        assert stage.doubt(seq)["needs_person"]


async def test_a_statement_about_accepted_work_waits_as_long_as_people_are_told(database: Database) -> None:
    """The request has landed by its settle time; the work that it started may take longer."""
    await register(database, configuration())
    with Stage(database) as stage:
        in_doubt(stage, stage.holder().taken(), LOOKED_UP, accepteds=[True])
        stage.rows("update outbox.doubt set settle_at = outbox.now() - interval '1 second'")
        with pytest.raises(psycopg.Error, match="may still land"):
            stage.as_role("operator").execute(
                "select outbox.resolve('acme', 'op', 1, 'rejected', null, 'ann', 'nothing there')"
            )


def test_a_purged_operation_is_not_written_again_from_an_old_snapshot(database: Database) -> None:
    """A transaction above READ COMMITTED does not see the tombstone that was left while it stood open."""
    with Stage(database) as stage:
        stage.register()
        seq, holder = stage.put("op"), stage.holder().taken()
        (attempt,) = holder.begin_these(seq)
        assert holder.end((seq, attempt["attempt"])) == [seq]
        writer = stage.session("writer")
        writer.execute("begin isolation level repeatable read")
        writer.execute("select outbox.get_operation('acme', 'op')")
        stage.rows("set session_replication_role = replica")
        stage.rows(
            "update outbox.outcome set ended_at = ended_at - interval '9 days',"
            " started_at = started_at - interval '9 days'"
        )
        stage.rows("set session_replication_role = origin")
        purged = "select purged from outbox.purge(0, 100, outbox.now() - interval '1 day', 100, 'ann')"
        assert stage.as_role("operator").execute(purged).fetchall() == [{"purged": 1}]
        with pytest.raises(psycopg.Error):
            writer.execute(
                "insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest) values"
                " ('acme', 'op', 'stock.set', 'svc', '{}',"
                " outbox.intent_digest('acme', 'op', 'stock.set', null, null, '{}'))"
            )
        writer.rollback()


@pytest.mark.parametrize(
    "changed",
    [
        {
            "auth": {"kind": "bearer", "secret": "env:WRITE_TOKEN", "id": "other"},
            "read_auth": {"kind": "bearer", "secret": "env:READ_TOKEN", "id": "r2", "account": "other"},
        },
        {"base_url": "https://elsewhere.example"},
    ],
    ids=["account", "host"],
)
async def test_nothing_is_looked_up_where_nothing_was_sent(database: Database, changed: dict[str, Any]) -> None:
    """The receiver got another account, or another host, while an operation was in doubt: there it is not found."""
    await register(database, configuration())
    with Stage(database) as stage:
        seq = in_doubt(stage, stage.holder().taken(), LOOKED_UP, expires_in=1.0)
        stage.rows(
            "update outbox.doubt set settle_at = outbox.now() - interval '1 hour', next_at = outbox.now(),"
            " gave_up_at = outbox.now() - interval '1 hour', last_exposed_at = outbox.now() - interval '2 hours'"
        )
        await register(database, configuration(**changed))
        records = Records(NOT_FOUND)
        async with reconciler_on(database, records) as reconciler:
            await reconciler.run_once()
        assert records.questions == []
        assert stage.state(seq) == "unknown"
        assert stage.doubt(seq)["reads"] == 1
