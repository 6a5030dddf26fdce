"""Looking: pages, failures and hostile answers; what fails proves nothing, and no look is anything but a GET."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from outbox.contract import ToolConfig
from outbox.errors import Refused as NotAllowed
from outbox.evidence import Verdict
from outbox.outcome import Ambiguous, NotSent, Receipt
from outbox.receivers.http import HttpReader, HttpReceiver, open_http
from outbox.states import Cause
from tests.support.attempts import SENT_KEY, attempt, question, receiver, tool
from tests.support.demo_receiver import READ_TOKEN, WRITE_TOKEN, demo_receiver
from tests.support.hostile import Behaviour, Connection, HostileServer, closed_port, send_then_close

LIST = tool(
    read={
        "path": "/payments",
        "query": {"reference": "{resource}", "limit": "2"},
        "items": "/data",
        "identity": "/reference",
        "external_id": "/id",
        "next": "/next",
        "cursor": "before",
        "max_pages": 4,
    },
    contract_lookup={"by": "reference", "consistency": "strong", "absence_is_proof": True},
)


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with HostileServer() as running:
        yield running


@pytest.fixture
async def reader(server: HostileServer) -> AsyncIterator[HttpReader]:
    opened = open_http("warehouse", receiver(server.url, max_response_bytes=65_536), reads_only=True)
    yield opened
    await opened.aclose()


def pages(*answers: dict[str, Any]) -> Behaviour:
    """Answer one request after the other with these; the last one again and again."""
    left = list(answers)

    async def behave(connection: Connection) -> None:
        while True:
            await connection.request()
            page = left.pop(0) if len(left) > 1 else left[0]
            await connection.answer("200 OK", json.dumps(page).encode())

    return behave


def record(number: int, reference: str = "somebody-else") -> dict[str, str]:
    return {"id": f"p-{number}", "reference": reference}


# --------------------------------------------------------------------------------------------------------------- pages


async def test_a_list_is_read_page_by_page_to_its_end(server: HostileServer, reader: HttpReader) -> None:
    server.behave = pages(
        {"data": [record(1), record(2)], "next": "a b&c"},
        {"data": [record(3)], "next": "z"},
        {"data": [record(4, SENT_KEY)], "next": None},
    )
    seen = await reader.lookup(question(receiver(server.url), LIST))
    assert (seen.verdict, seen.external_id, seen.duplicates) == (Verdict.CONFIRMED, "p-4", 0)
    assert [wire.target for wire in server.seen.requests] == [
        "/payments?reference=item-1&limit=2",
        "/payments?reference=item-1&limit=2&before=a%20b%26c",
        "/payments?reference=item-1&limit=2&before=z",
    ]
    assert {wire.method for wire in server.seen.requests} == {"GET"}


@pytest.mark.parametrize(("last", "verdict"), [(None, Verdict.NOT_FOUND), ("the same again", Verdict.UNKNOWN)])
async def test_only_a_list_that_was_read_to_its_end_says_not_found(
    server: HostileServer, reader: HttpReader, last: str | None, verdict: Verdict
) -> None:
    server.behave = pages({"data": [record(1)], "next": "2"}, {"data": [record(2)], "next": last})
    assert (await reader.lookup(question(receiver(server.url), LIST))).verdict is verdict
    assert len(server.seen.requests) == (2 if last is None else 4)


async def test_two_records_with_our_identity_are_counted(server: HostileServer, reader: HttpReader) -> None:
    server.behave = pages({"data": [record(1, SENT_KEY)], "next": "2"}, {"data": [record(2, SENT_KEY)], "next": None})
    seen = await reader.lookup(question(receiver(server.url), LIST))
    assert (seen.verdict, seen.duplicates) == (Verdict.CONFIRMED, 1)


@pytest.mark.parametrize("found", [True, False])
async def test_a_page_that_fails_leaves_what_was_found_and_proves_nothing_else(
    server: HostileServer, reader: HttpReader, found: bool
) -> None:
    async def break_off(connection: Connection) -> None:
        await connection.request()
        page = {"data": [record(1, SENT_KEY if found else "x")], "next": "2"}
        await connection.answer("200 OK", json.dumps(page).encode())
        await connection.request()

    server.behave = break_off
    seen = await reader.lookup(question(receiver(server.url), LIST))
    assert seen.verdict is (Verdict.CONFIRMED if found else Verdict.UNKNOWN)
    if not found:
        assert "connection" in seen.note


# ------------------------------------------------------------------------------------------------- what proves nothing


def answering(status: str, body: bytes = b"", *headers: str) -> bytes:
    return (
        "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", f"Content-Length: {len(body)}", *headers]).encode()
        + b"\r\n\r\n"
        + body
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\n{}",
        answering("200 OK", b"not json"),
        answering("200 OK", b"\x00\xff"),
        answering("200 OK", b'{"key":"somebody-else","receipt":"r-1"}'),
        answering("200 OK", b"[]"),
        answering("200 OK", b"x" * 100_000),
        answering("301 Moved", b"", "Location: /elsewhere"),
        answering("401 Unauthorized"),
        answering("403 Forbidden"),
        answering("410 Gone"),
        answering("429 Slow Down"),
        answering("500 Broken"),
        answering("503 Busy"),
    ],
    ids=lambda answer: answer[:40].decode("latin-1"),
)
async def test_whatever_is_not_a_clear_answer_proves_nothing(
    server: HostileServer, reader: HttpReader, answer: bytes
) -> None:
    server.behave = send_then_close(answer)
    seen = await reader.lookup(question(receiver(server.url)))
    assert seen.verdict is Verdict.UNKNOWN
    assert len(server.seen.requests) == 1


async def test_the_declared_not_found_and_our_own_record_are_clear_answers(
    server: HostileServer, reader: HttpReader
) -> None:
    server.behave = send_then_close(answering("404 Not Found"))
    assert (await reader.lookup(question(receiver(server.url)))).verdict is Verdict.NOT_FOUND
    server.behave = send_then_close(answering("200 OK", f'{{"key":"{SENT_KEY}","receipt":"r-1"}}'.encode()))
    seen = await reader.lookup(question(receiver(server.url)))
    assert (seen.verdict, seen.external_id) == (Verdict.CONFIRMED, "r-1")


async def test_a_look_is_bounded_by_its_deadline_over_all_pages(server: HostileServer, reader: HttpReader) -> None:
    async def slow(connection: Connection) -> None:
        await connection.request()
        await connection.until_closed()

    server.behave = slow
    seen = await reader.lookup(question(receiver(server.url), LIST, deadline_seconds=1.0))
    assert (seen.verdict, seen.note) == (Verdict.UNKNOWN, "no answer within the deadline")


async def test_a_receiver_that_is_down_proves_nothing() -> None:
    with closed_port() as port:
        config = receiver(f"http://127.0.0.1:{port}")
        reader = open_http("warehouse", config, reads_only=True)
        seen = await reader.lookup(question(config))
        assert seen.verdict is Verdict.UNKNOWN
        assert seen.answer.host == f"127.0.0.1:{port}"
        await reader.aclose()


async def test_a_tool_without_a_look_up_is_not_asked(server: HostileServer, reader: HttpReader) -> None:
    seen = await reader.lookup(question(receiver(server.url), tool(read=None, contract_lookup="none")))
    assert seen.verdict is Verdict.UNKNOWN
    assert server.seen.connections == 0


# -------------------------------------------------------------------------------------------------------- credentials

WRITE = {"kind": "bearer", "secret": "env:DEMO_WRITE", "id": "main"}
READ = {"kind": "bearer", "secret": "env:DEMO_READ", "id": "read"}


@pytest.fixture(autouse=True)
def _tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_WRITE", WRITE_TOKEN)
    monkeypatch.setenv("DEMO_READ", READ_TOKEN)


async def test_a_reader_has_no_way_to_cause_an_effect_and_its_token_causes_none(tmp_path: Path) -> None:
    with demo_receiver(tmp_path) as demo:
        config = receiver(demo.url, auth=WRITE, read_auth=READ)
        reader = open_http("warehouse", config, reads_only=True)
        with pytest.raises(NotAllowed):
            await reader.deliver(attempt(config))
        assert (await reader.lookup(question(config))).verdict is Verdict.NOT_FOUND
        await reader.aclose()
        # And were it to try: the receiver refuses its token.
        thief = HttpReceiver("warehouse", receiver(demo.url, auth=READ))
        await thief.deliver(attempt(config))
        await thief.aclose()
        assert demo.ledger.effects() == []
        assert [request.status for request in demo.ledger.requests() if request.method == "PUT"] == [403]


async def test_a_reader_resolves_no_other_secret_than_its_own(
    server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEMO_WRITE")
    config = receiver(server.url, auth=WRITE, read_auth=READ)
    reader = open_http("warehouse", config, reads_only=True)
    await reader.lookup(question(config))
    assert server.seen.requests[0].header("Authorization") == f"Bearer {READ_TOKEN}"
    await reader.aclose()
    alone = receiver(server.url, auth=WRITE)
    reader = open_http("warehouse", alone, reads_only=True)
    await reader.lookup(question(alone))
    assert server.seen.requests[1].header("Authorization") is None
    await reader.aclose()
    monkeypatch.setenv("DEMO_WRITE", WRITE_TOKEN)
    shared = receiver(server.url, auth=WRITE, shared_credential=True)
    reader = open_http("warehouse", shared, reads_only=True)
    await reader.lookup(question(shared))
    assert server.seen.requests[2].header("Authorization") == f"Bearer {WRITE_TOKEN}"
    await reader.aclose()


@pytest.mark.parametrize("kind", ["bearer", "header"])
async def test_each_tenant_is_served_with_its_own_secret_which_is_read_again_when_it_changes(
    server: HostileServer, tmp_path: Path, kind: str
) -> None:
    auth = {"kind": kind, "secret": f"file:{tmp_path}/{{tenant}}/key", "id": "t", "header": "X-Api-Key"}
    if kind == "bearer":
        del auth["header"]
    for tenant, secret in (("acme", "secret-of-acme"), ("zeta", "secret-of-zeta")):
        (tmp_path / tenant).mkdir()
        (tmp_path / tenant / "key").write_text(f"{secret}\n")
    config = receiver(server.url, auth=auth)
    client = HttpReceiver("warehouse", config)
    for tenant in ("acme", "zeta"):
        assert isinstance(await client.deliver(attempt(config, tenant_id=tenant)), Receipt)
    (tmp_path / "acme" / "new").write_text("rotated")
    (tmp_path / "acme" / "new").replace(tmp_path / "acme" / "key")
    await client.deliver(attempt(config))
    for tenant in ("nobody", "..", "a/b"):
        outcome = await client.deliver(attempt(config, tenant_id=tenant))
        assert isinstance(outcome, NotSent)
        assert "secret-of" not in outcome.reason
    sent = [wire.header("Authorization") or wire.header("X-Api-Key") for wire in server.seen.requests]
    prefix = "Bearer " if kind == "bearer" else ""
    assert sent == [f"{prefix}{secret}" for secret in ("secret-of-acme", "secret-of-zeta", "rotated")]
    await client.aclose()


async def test_a_further_secret_is_resolved_like_the_first_one(server: HostileServer, tmp_path: Path) -> None:
    (tmp_path / "acme").mkdir()
    for name in ("key", "app"):
        (tmp_path / "acme" / name).write_text(f"{name}-of-acme")
    place = f"file:{tmp_path}/{{tenant}}"
    auth = {"kind": "bearer", "secret": f"{place}/key", "id": "t", "secret_headers": {"X-App-Key": f"{place}/app"}}
    config = receiver(server.url, auth=auth, read_auth=READ)
    client = HttpReceiver("warehouse", config)
    assert isinstance(await client.deliver(attempt(config)), Receipt)
    (tmp_path / "acme" / "new").write_text("app-rotated")
    (tmp_path / "acme" / "new").replace(tmp_path / "acme" / "app")
    assert isinstance(await client.deliver(attempt(config)), Receipt)
    (tmp_path / "acme" / "app").unlink()
    outcome = await client.deliver(attempt(config))
    await client.aclose()
    assert isinstance(outcome, NotSent)
    assert outcome.cause is Cause.SECRET_MISSING
    assert outcome.reason.startswith(f"the file {tmp_path}/acme/app cannot be read")
    reader = open_http("warehouse", config, reads_only=True)
    assert (await reader.lookup(question(config))).answer is not None, "it needs none of the relay's"
    await reader.aclose()
    assert [(wire.header("Authorization"), wire.header("X-App-Key")) for wire in server.seen.requests] == [
        ("Bearer key-of-acme", "app-of-acme"),
        ("Bearer key-of-acme", "app-rotated"),
        (f"Bearer {READ_TOKEN}", None),
    ]


# ------------------------------------------------------------------------------------------------- verifying, fencing

VERIFIED = tool(
    contract_answers=[
        {
            "status": [409],
            "body": {"/error/code": "exists"},
            "means": "receipt",
            "external_id": "/error/id",
            "verify": {"path": "/payments/{external_id}"},
        }
    ]
)


@pytest.mark.parametrize(("read_status", "outcome_type"), [("200 OK", Receipt), ("404 Gone", Ambiguous)])
async def test_a_success_that_must_be_verified_is_a_receipt_only_if_the_read_finds_it(
    server: HostileServer, read_status: str, outcome_type: type
) -> None:
    async def exists(connection: Connection) -> None:
        while True:
            wire = await connection.request()
            if wire.method == "GET":
                await connection.answer(read_status, b'{"id":"p/1"}')
            else:
                await connection.answer("409 Conflict", b'{"error":{"code":"exists","id":"p/1"}}')

    server.behave = exists
    config = receiver(server.url)
    client = HttpReceiver("warehouse", config)
    outcome = await client.deliver(attempt(config, VERIFIED))
    assert isinstance(outcome, outcome_type)
    assert [wire.target for wire in server.seen.requests] == ["/stock/item-1", "/payments/p%2F1"]
    await client.aclose()


async def test_a_verifying_read_that_is_lost_leaves_the_attempt_ambiguous(server: HostileServer) -> None:
    async def hang_up(connection: Connection) -> None:
        wire = await connection.request()
        if wire.method != "GET":
            await connection.answer("409 Conflict", b'{"error":{"code":"exists","id":"p-1"}}')

    server.behave = hang_up
    config = receiver(server.url)
    client = HttpReceiver("warehouse", config)
    outcome = await client.deliver(attempt(config, VERIFIED))
    assert isinstance(outcome, Ambiguous)
    assert "verified" in outcome.reason
    assert outcome.answer.status == 409
    await client.aclose()


def fenced(raised: bool) -> ToolConfig:
    return tool(contract_fencing={"raised_by_lookup": raised})


@pytest.mark.parametrize("raised", [True, False])
async def test_a_look_carries_the_fence_where_the_receiver_raises_its_mark_by_it(
    server: HostileServer, reader: HttpReader, raised: bool
) -> None:
    asked = question(receiver(server.url), fenced(raised), fence=17, fence_token='"db/warehouse/3";fence=17')
    server.behave = send_then_close(answering("404 Not Found"))
    seen = await reader.lookup(asked)
    assert seen.fence == (17 if raised else None)
    assert server.seen.requests[0].header("Outbox-Fence") == ('"db/warehouse/3";fence=17' if raised else None)


async def test_an_attempt_says_which_operation_under_which_fence_and_as_part_of_which_trace(
    server: HostileServer,
) -> None:
    config = receiver(server.url)
    client = HttpReceiver("warehouse", config)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for _ in range(2):
        await client.deliver(attempt(config, fence_token='"db/warehouse/3";fence=17', traceparent=trace))
    wires = server.seen.requests
    assert [wire.header("Outbox-Operation") for wire in wires] == ["order-17"] * 2
    assert [wire.header("Outbox-Fence") for wire in wires] == ['"db/warehouse/3";fence=17'] * 2
    parents = [wire.header("traceparent") or "" for wire in wires]
    assert all(parent.startswith("00-0af7651916cd43dd8448eb211c80319c-") for parent in parents)
    assert all(parent.endswith("-01") for parent in parents)
    assert len({parent.split("-")[2] for parent in [*parents, trace]}) == 3
    await client.aclose()
