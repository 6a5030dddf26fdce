"""The postgres receiver against a real database: what it says of errors, lost connections, deadlines and wrong DSNs."""

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox.contract import ReceiverConfig
from outbox.embedded import Server
from outbox.errors import Refused as NotAllowed
from outbox.evidence import Observation, Verdict
from outbox.outcome import (
    Ambiguous,
    Mismatch,
    NotSent,
    Outcome,
    Receipt,
    ReceiverFault,
    Refused,
    StaleFence,
    Throttled,
)
from outbox.receivers import Attempt, open_receiver
from outbox.receivers.postgres import PostgresReader, PostgresReceiver
from outbox.states import Cause
from outbox.wire import digest_of
from tests.support.attempts import SENT_KEY, RecordingGate
from tests.support.eventually import eventually, eventually_async
from tests.support.inbox import (
    Inbox,
    attempt,
    fence_token,
    inbox_on,
    proxy_to,
    question,
    receiver_config,
    settle_in,
    tool_config,
)
from tests.support.postgres import Cluster, Database, url

LOCK = 72
SECRET = "pa55word-of-nobody"


@pytest.fixture(scope="module")
def shop(postgres: Cluster) -> Iterator[Inbox]:
    with inbox_on(postgres) as made:
        yield made


@pytest.fixture
def inbox(shop: Inbox, monkeypatch: pytest.MonkeyPatch) -> Inbox:
    shop.database.rows("truncate inbox.operation, inbox.lane, shop.movement")
    monkeypatch.setenv("SHOP_DSN", shop.receiver_dsn)
    monkeypatch.setenv("SHOP_LOOK_DSN", shop.looker_dsn)
    return shop


@asynccontextmanager
async def opened(config: ReceiverConfig | None = None) -> AsyncIterator[PostgresReceiver]:
    receiver = PostgresReceiver("shop", config or receiver_config())
    try:
        yield receiver
    finally:
        await receiver.aclose()


async def deliver(config: ReceiverConfig | None = None, **changes: Any) -> Outcome:
    """One attempt by a receiver of its own."""
    async with opened(config) as receiver:
        return await receiver.deliver(attempt(**changes))


async def look(config: ReceiverConfig | None = None, **changes: Any) -> Observation:
    async with opened(config) as receiver:
        return await receiver.lookup(question(**changes))


def asking(**arguments: Any) -> str:
    return json.dumps({"quantity": 1, **arguments})


# ---------------------------------------------------------------------------------------- what arrives, what comes back


async def test_everything_of_an_operation_arrives_and_the_receipt_comes_back(inbox: Inbox) -> None:
    outcome = await deliver(arguments=asking(receipt={"external_id": "m-17", "left": 3}), resource="ü-1")
    assert isinstance(outcome, Receipt)
    assert json.loads(outcome.receipt) == {"external_id": "m-17", "left": 3}
    assert outcome.external_id == "m-17"
    ((key, number, tenant, operation, resource),) = inbox.database.rows(
        "select sent_key::text, attempt, tenant_id, operation_id, resource from shop.movement"
    )
    assert (key, number, tenant, operation, resource) == (SENT_KEY, 1, "acme", "order-17", "ü-1")


async def test_a_body_that_is_no_json_arrives_byte_by_byte(inbox: Inbox) -> None:
    body = bytes(range(256)) * 300
    outcome = await deliver(arguments=None, body=body, content_type="application/avro")
    assert isinstance(outcome, Receipt)
    assert inbox.database.rows("select body, content_type from shop.movement") == [(body, "application/avro")]


async def test_a_handler_without_a_receipt_has_one_all_the_same(inbox: Inbox) -> None:
    outcome = await deliver()
    assert isinstance(outcome, Receipt)
    assert (outcome.receipt, outcome.external_id) == ("{}", None)


async def test_the_digest_that_is_pinned_is_the_one_that_the_inbox_keeps(inbox: Inbox) -> None:
    made = attempt()
    await deliver()
    assert inbox.database.value("select digest from inbox.operation") == digest_of(made.wiring, made)


async def test_other_bytes_under_a_known_key_are_a_mismatch(inbox: Inbox) -> None:
    await deliver()
    changes: list[dict[str, Any]] = [
        {"arguments": asking(quantity=2)},
        {"expected_version": "7"},
        {"resource": "item-2"},
    ]
    for change in changes:
        assert isinstance(await deliver(attempt=2, resend=True, **change), Mismatch)
    assert isinstance(await deliver(attempt=2, resend=True, fence_token=fence_token(9)), Receipt)
    assert inbox.effects(SENT_KEY) == 1


async def test_an_older_fence_is_stale_and_a_missing_one_is_not_compared(inbox: Inbox) -> None:
    await deliver()
    other = str(uuid.uuid4())
    assert isinstance(await deliver(fence_token=fence_token(6), sent_key=other), StaleFence)
    assert isinstance(await deliver(fence_token=fence_token(6, lane=1), sent_key=other), Receipt)
    assert isinstance(await deliver(fence_token=None, sent_key=str(uuid.uuid4())), Receipt)
    with pytest.raises(ValueError, match="fence token"):
        await deliver(fence_token="17")


# ---------------------------------------------------------------------------------------------------------------- looks


async def test_a_look_gives_back_the_attempt_that_it_shut_out(inbox: Inbox) -> None:
    seen = await look(attempt=3)
    assert (seen.verdict, seen.fence) == (Verdict.NOT_FOUND, 3)
    assert inbox.refused_to(SENT_KEY) == 3
    late = await deliver(attempt=3)
    assert isinstance(late, NotSent)
    assert "shut this attempt out" in late.reason
    assert inbox.effects(SENT_KEY) == 0


async def test_a_look_under_a_contract_that_says_nothing_of_fences_only_reads(inbox: Inbox) -> None:
    lookup = {"by": "key", "consistency": "strong"}
    seen = await look(tool=tool_config({"fencing": "none", "lookup": lookup}), attempt=3)
    assert (seen.verdict, seen.fence) == (Verdict.NOT_FOUND, None)
    assert inbox.refused_to(SENT_KEY) is None


async def test_a_look_at_what_is_under_way_proves_nothing_until_that_has_ended(inbox: Inbox) -> None:
    async with opened() as receiver:
        with inbox.holding(LOCK):
            running = asyncio.create_task(receiver.deliver(attempt(arguments=asking(wait_for=LOCK))))
            await eventually_async(lambda: _as_async(inbox.waiting() == 1))
            seen = await receiver.lookup(question(deadline_seconds=0.3))
            assert seen.verdict is Verdict.UNKNOWN
            assert "deadline" in seen.note
        assert isinstance(await running, Receipt)
        assert (await receiver.lookup(question())).verdict is Verdict.CONFIRMED


async def test_a_look_that_nobody_waits_for_any_more_is_ended_by_the_server(inbox: Inbox) -> None:
    async with opened() as receiver:
        with inbox.holding(LOCK):
            running = asyncio.create_task(receiver.deliver(attempt(arguments=asking(wait_for=LOCK))))
            await eventually_async(lambda: _as_async(inbox.waiting() == 1))
            assert (await receiver.lookup(question(deadline_seconds=0.3))).verdict is Verdict.UNKNOWN
            await eventually_async(lambda: _as_async(inbox.waiting() == 1), claim="the server noticed")
        await running


async def test_a_reader_delivers_nothing_and_resolves_no_credential_that_could(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_DSN")
    reader = open_receiver("shop", receiver_config(), reads_only=True)
    assert type(reader) is PostgresReader
    with pytest.raises(NotAllowed):
        await reader.deliver(attempt())
    assert (await reader.lookup(question())).verdict is Verdict.NOT_FOUND
    await reader.aclose()
    without = open_receiver("shop", receiver_config(read_auth=None), reads_only=True)
    assert (await without.lookup(question())).verdict is Verdict.UNKNOWN


async def _as_async(value: bool) -> bool:
    return value


# ---------------------------------------------------------------------------------------------- errors that rolled back

ERRORS: dict[str, tuple[type[Outcome], str | bool | None]] = {
    "OB422": (Refused, Cause.REFUSED),
    "OB412": (Refused, Cause.PRECONDITION_FAILED),
    "OB429": (Throttled, None),
    "OB403": (ReceiverFault, True),
    "OB421": (ReceiverFault, False),
    # declared by the contract
    "23514": (Refused, Cause.REFUSED),
    # another moment
    "40001": (Throttled, None),
    "40P01": (Throttled, None),
    "55P03": (Throttled, None),
    "53100": (Throttled, None),
    # a mistake, until somebody says otherwise
    "P0001": (ReceiverFault, True),
    "23505": (ReceiverFault, True),
    "22012": (ReceiverFault, True),
    "42883": (ReceiverFault, True),
    "XX000": (ReceiverFault, True),
    "57014": (ReceiverFault, True),
    "08006": (ReceiverFault, True),
}


@pytest.mark.parametrize("sqlstate", ERRORS)
async def test_an_error_is_never_ambiguous_and_leaves_nothing(inbox: Inbox, sqlstate: str) -> None:
    kind, detail = ERRORS[sqlstate]
    outcome = await deliver(arguments=asking(**{"raise": sqlstate}))
    assert type(outcome) is kind
    if isinstance(outcome, Refused):
        assert outcome.cause is detail
    if isinstance(outcome, ReceiverFault):
        assert outcome.forbidden is detail
    assert outcome.answer.excerpt == f"SQLSTATE {sqlstate}: as you asked"
    assert inbox.effects(SENT_KEY) == 0
    assert isinstance(await deliver(attempt=2), Receipt)


async def test_a_declared_class_of_errors_and_an_attempt_are_told_apart(inbox: Inbox) -> None:
    answers = [
        {"sqlstate": ["P0"], "attempt": "first", "means": "refused"},
        {"sqlstate": ["P0001"], "means": "throttled"},
    ]
    tool = tool_config({"answers": answers})
    asked = asking(**{"raise": "P0001"})
    assert isinstance(await deliver(tool=tool, arguments=asked), Refused)
    assert isinstance(await deliver(tool=tool, arguments=asked, resend=True), Throttled)


async def test_a_deadlock_that_really_happens_is_nobodys_fault(inbox: Inbox) -> None:
    with inbox.database.connect() as other:
        other.execute("select pg_advisory_lock(%s)", [LOCK])
        other.execute("set deadlock_timeout = '10s'")
        running = asyncio.create_task(deliver(arguments=asking(wait_for=LOCK)))
        await eventually_async(lambda: _as_async(inbox.waiting() == 1))
        # The other side of the circle, on the row that the attempt has written.
        circle = threading.Thread(
            target=lambda: other.execute(
                "insert into inbox.operation (sent_key, tenant_id, operation_id, tool) values (%s, 'a', 'b', 'c')"
                " on conflict do nothing",
                [SENT_KEY],
            )
        )
        circle.start()
        outcome = await running
        circle.join()
    assert isinstance(outcome, Throttled)
    assert "40P01" in outcome.answer.excerpt


async def test_an_error_at_the_commit_comes_after_the_row_and_is_not_a_receipt(inbox: Inbox) -> None:
    """It speaks of what the handler did for this operation: others, and the receiver as a whole, go on."""
    outcome = await deliver(arguments=asking(break_at_commit=True))
    assert isinstance(outcome, ReceiverFault)
    assert outcome.forbidden, "it does not pause the receiver"
    assert "SQLSTATE 23503" in outcome.answer.excerpt
    assert inbox.effects(SENT_KEY) == 0


async def test_a_declared_error_at_the_commit_means_what_was_declared(inbox: Inbox) -> None:
    tool = tool_config({"answers": [{"sqlstate": ["23503"], "means": "refused"}]})
    outcome = await deliver(tool=tool, arguments=asking(break_at_commit=True))
    assert isinstance(outcome, Refused)
    assert inbox.effects(SENT_KEY) == 0


async def test_what_jsonb_cannot_hold_is_refused_before_anything_is_sent(inbox: Inbox) -> None:
    gate = RecordingGate()
    outcome = await deliver(arguments='{"a":"\\u0000"}', gate=gate)
    assert isinstance(outcome, Refused)
    assert "U+0000" in outcome.answer.excerpt
    assert gate.calls == []
    assert isinstance(await deliver(arguments='{"a":"\\\\u0000"}'), Receipt)


# ------------------------------------------------------------------------------------- what is wrong with the way there


async def test_a_tool_without_a_handler_is_at_fault_alone(inbox: Inbox) -> None:
    inbox.database.rows("update inbox.handler set tool = 'other'")
    try:
        outcome = await deliver()
    finally:
        inbox.database.rows("update inbox.handler set tool = 'stock.move'")
    assert isinstance(outcome, ReceiverFault)
    assert outcome.forbidden
    assert "no handler carries out the tool stock.move" in outcome.answer.excerpt


async def test_a_database_without_an_inbox_pauses_the_receiver(
    inbox: Inbox, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_DSN", url(empty_database.dsn, user="inbox_receiver"))
    monkeypatch.setenv("SHOP_LOOK_DSN", url(empty_database.dsn, user="inbox_looker"))
    outcome, seen = await deliver(), await look()
    assert isinstance(outcome, ReceiverFault)
    assert not outcome.forbidden
    assert seen.verdict is Verdict.UNKNOWN


async def test_a_login_without_the_right_pauses_the_receiver(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DSN", inbox.looker_dsn)
    outcome = await deliver()
    assert isinstance(outcome, ReceiverFault)
    assert not outcome.forbidden
    assert "42501" in outcome.answer.excerpt


async def test_a_dsn_that_leads_to_another_inbox_pauses_the_receiver_and_proves_nothing(inbox: Inbox) -> None:
    """Two DSNs that lead to two databases would make absence in the one a proof about the other."""
    other = {"kind": "dsn", "id": "x", "account": "warehouse"}
    config = receiver_config(
        auth={**other, "secret": "env:SHOP_DSN"}, read_auth={**other, "secret": "env:SHOP_LOOK_DSN"}
    )
    outcome, seen = await deliver(config), await look(config)
    assert isinstance(outcome, ReceiverFault)
    assert not outcome.forbidden
    assert seen.verdict is Verdict.UNKNOWN
    assert inbox.refused_to(SENT_KEY) is None


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://u:{SECRET}@127.0.0.1:1/shop",
        f"postgresql://u:{SECRET}@no-such-host.invalid/shop",
        f"host=/nowhere password={SECRET} port=x",
        f"this is {SECRET}",
        f"postgresql://u:{SECRET}@[::1/shop",
        f"host=127.0.0.1 nonsense={SECRET}",
    ],
)
async def test_without_a_connection_nothing_was_sent_and_no_secret_is_said(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    monkeypatch.setenv("SHOP_DSN", dsn)
    monkeypatch.setenv("SHOP_LOOK_DSN", dsn)
    gate = RecordingGate()
    outcome, seen = await deliver(gate=gate), await look()
    assert isinstance(outcome, NotSent)
    assert seen.verdict is Verdict.UNKNOWN
    assert gate.calls == []
    assert SECRET not in repr(outcome) + repr(seen)


async def test_a_missing_secret_is_named_by_its_reference(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_DSN")
    outcome = await deliver()
    assert isinstance(outcome, NotSent)
    assert "SHOP_DSN" in outcome.reason


async def test_a_warning_of_a_handler_is_its_own_business(inbox: Inbox) -> None:
    assert isinstance(await deliver(arguments=asking(warn=True)), Receipt)


async def test_each_tenant_has_its_own_database_where_the_secret_says_so(
    inbox: Inbox, postgres: Cluster, tmp_path: Path
) -> None:
    with postgres.database() as database:
        other = settle_in(database)
        (tmp_path / "acme").write_text(inbox.receiver_dsn)
        (tmp_path / "zeta").write_text(other.receiver_dsn)
        secret = {"kind": "dsn", "secret": f"file:{tmp_path}/{{tenant}}", "id": "x", "account": "shop"}
        async with opened(receiver_config(auth=secret, read_auth=None)) as receiver:
            for tenant in ("acme", "zeta", "acme"):
                key = str(uuid.uuid4())
                assert isinstance(await receiver.deliver(attempt(tenant_id=tenant, sent_key=key)), Receipt)
        counts = [place.database.value("select count(*) from shop.movement") for place in (inbox, other)]
    assert counts == [2, 1]


# ---------------------------------------------------------------------------------------------- lost, late, cut, killed


async def test_a_lost_answer_is_ambiguous_and_the_look_knows_better(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_to(inbox.database.dsn) as proxy:
        monkeypatch.setenv("SHOP_DSN", proxy.dsn(inbox.receiver_dsn))
        proxy.next = "lose"
        outcome = await deliver(arguments=asking(receipt={"external_id": "m"}))
    assert isinstance(outcome, Ambiguous)
    assert outcome.cause is Cause.CONNECTION_LOST
    seen = await look()
    assert (seen.verdict, seen.external_id, seen.fence) == (Verdict.CONFIRMED, "m", None)


async def test_a_call_that_never_arrived_is_ambiguous_too_and_the_look_proves_its_absence(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_to(inbox.database.dsn) as proxy:
        monkeypatch.setenv("SHOP_DSN", proxy.dsn(inbox.receiver_dsn))
        proxy.next = "cut"
        assert isinstance(await deliver(), Ambiguous)
    seen = await look()
    assert (seen.verdict, seen.fence) == (Verdict.NOT_FOUND, 1)


async def test_a_server_process_that_is_killed_in_the_middle_proves_nothing(inbox: Inbox) -> None:
    with inbox.holding(LOCK) as admin:
        running = asyncio.create_task(deliver(arguments=asking(wait_for=LOCK)))
        await eventually_async(lambda: _as_async(inbox.waiting() == 1))
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'inbox_receiver'"
            " and datname = current_database() and wait_event_type = 'Lock'"
        )
        outcome = await running
    assert isinstance(outcome, Ambiguous)
    assert outcome.cause is Cause.CONNECTION_LOST
    assert (await look()).fence == 1


async def test_a_call_that_somebody_cancelled_in_the_server_did_not_happen(inbox: Inbox) -> None:
    with inbox.holding(LOCK) as admin:
        running = asyncio.create_task(deliver(arguments=asking(wait_for=LOCK)))
        await eventually_async(lambda: _as_async(inbox.waiting() == 1))
        admin.execute(
            "select pg_cancel_backend(pid) from pg_stat_activity where usename = 'inbox_receiver'"
            " and datname = current_database() and wait_event_type = 'Lock'"
        )
        outcome = await running
    assert isinstance(outcome, ReceiverFault)
    assert inbox.effects(SENT_KEY) == 0


async def test_silence_ends_at_the_deadline_and_what_was_given_up_is_rolled_back(inbox: Inbox) -> None:
    with inbox.holding(LOCK):
        outcome = await deliver(arguments=asking(wait_for=LOCK), deadline_seconds=0.3)
        assert isinstance(outcome, Ambiguous)
        assert outcome.cause is Cause.TIMEOUT
        # The server notices that the caller has hung up, and stops waiting on its behalf.
        eventually(lambda: inbox.waiting() == 0)
    assert inbox.effects(SENT_KEY) == 0


async def test_of_a_call_that_was_broken_off_in_the_middle_nothing_more_leaves(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libpq would send the rest of it while it says good-bye."""
    async with proxy_to(inbox.database.dsn) as proxy:
        monkeypatch.setenv("SHOP_DSN", proxy.dsn(inbox.receiver_dsn))
        proxy.next = "stall"
        gate = RecordingGate()
        async with opened() as receiver:
            large = asking(padding="x" * 50_000_000)
            running = asyncio.create_task(receiver.deliver(attempt(arguments=large, gate=gate)))
            await proxy.stalled.wait()
            assert gate.calls == ["sending", "check"]
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert gate.calls == ["sending", "check", "sent"]
            proxy.go_on.set()
            await proxy.ended.wait()
    assert proxy.passed < len(large)
    assert (await look()).fence == 1
    assert inbox.effects(SENT_KEY) == 0


async def test_a_large_call_that_is_left_alone_arrives_whole(inbox: Inbox) -> None:
    """It does not fit into the kernel's buffers: the rest is handed over as there is room."""
    gate = RecordingGate()
    assert isinstance(await deliver(arguments=asking(padding="x" * 20_000_000), gate=gate), Receipt)
    assert gate.calls == ["sending", "check", "sent"]


async def test_a_commit_that_perhaps_only_one_server_has_is_no_receipt() -> None:
    """PostgreSQL answers as after any commit, with a warning, when the wait for a synchronous standby is broken off."""
    with Server(durable=False) as server:
        inbox = settle_in(Database(url(server.dsn())))
        with inbox.database.connect() as admin:
            admin.execute("alter system set synchronous_standby_names = 'a_standby_that_is_not_there'")
            admin.execute("select pg_reload_conf()")
        secret = {"kind": "dsn", "secret": "env:SHOP_DSN", "id": "x", "account": "shop"}
        with pytest.MonkeyPatch.context() as patch:
            quiet = psycopg.conninfo.make_conninfo(inbox.receiver_dsn, options="-c client_min_messages=error")
            patch.setenv("SHOP_DSN", quiet)
            running = asyncio.create_task(deliver(receiver_config(auth=secret, read_auth=None)))
            waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep'"
            await eventually_async(lambda: _as_async(bool(inbox.database.rows(waiting))))
            inbox.database.rows("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")
            outcome = await running
    assert isinstance(outcome, Ambiguous)
    assert "one server only" in outcome.reason


# ---------------------------------------------------------------------------------------------------------- connections


def sessions(inbox: Inbox) -> list[int]:
    rows = inbox.database.rows(
        "select pid from pg_stat_activity where usename = 'inbox_receiver' and datname = current_database() order by 1"
    )
    return [pid for (pid,) in rows]


def another(**changes: Any) -> Attempt:
    return attempt(sent_key=str(uuid.uuid4()), **changes)


async def test_a_connection_is_used_again(inbox: Inbox) -> None:
    async with opened() as receiver:
        await receiver.deliver(another())
        first = sessions(inbox)
        # Neither an error nor a refusal of our own speaks against it.
        await receiver.deliver(another(arguments=asking(**{"raise": "P0001"})))
        await receiver.deliver(another(gate=RecordingGate("too late")))
        await receiver.deliver(another())
        assert sessions(inbox) == first
        assert len(first) == 1
    eventually(lambda: sessions(inbox) == [])


async def test_one_that_the_server_has_closed_is_not(inbox: Inbox) -> None:
    async with opened() as receiver:
        await receiver.deliver(another())
        inbox.database.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where usename = 'inbox_receiver' and datname = current_database()"
        )
        eventually(lambda: sessions(inbox) == [])
        assert isinstance(await receiver.deliver(another()), Receipt)


async def test_one_that_idled_for_long_is_not(inbox: Inbox) -> None:
    async with opened() as receiver:
        now = 0.0
        receiver._connections._clock = lambda: now
        await receiver.deliver(another())
        first = sessions(inbox)
        now = 31.0
        await receiver.deliver(another())
        assert sessions(inbox) != first


async def test_where_a_doubt_costs_somebodys_time_each_attempt_has_its_own(inbox: Inbox) -> None:
    blind = tool_config({"key": "none", "key_retention": "0s", "key_checked_first": False, "fencing": "none",
                         "lookup": "none"})  # fmt: skip
    async with opened() as receiver:
        await receiver.deliver(another(tool=blind))
        first = sessions(inbox)
        await receiver.deliver(another(tool=blind))
        assert set(sessions(inbox)) - set(first)


async def test_a_rotated_secret_is_used_at_once_and_the_old_connections_are_not_kept(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as receiver:
        now = 0.0
        receiver._connections._clock = lambda: now
        await receiver.deliver(another())
        old = sessions(inbox)
        monkeypatch.setenv("SHOP_DSN", psycopg.conninfo.make_conninfo(inbox.receiver_dsn, options="-c work_mem=5MB"))
        now = 31.0
        await receiver.deliver(another())
        eventually(lambda: len(sessions(inbox)) == 1)
        assert sessions(inbox) != old


async def test_a_message_has_no_room_for_what_only_the_owner_may_know(inbox: Inbox) -> None:
    """DETAIL quotes rows; it is not kept."""
    outcome = await deliver(arguments=asking(**{"raise": "P0001"}))
    assert "only we may know" not in repr(outcome)


async def test_a_secret_that_is_no_connection_string_is_named_as_that_and_not_repeated(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in (f"postgresql+psycopg://u:{SECRET}@h/db", f"postgresql://u:p@{SECRET}@h/db", SECRET):
        monkeypatch.setenv("SHOP_DSN", wrong)
        outcome = await deliver()
        assert isinstance(outcome, NotSent)
        assert outcome.cause is Cause.SECRET_MISSING
        assert SECRET not in repr(outcome)
