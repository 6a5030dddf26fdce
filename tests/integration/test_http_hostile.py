"""What the HTTP receiver makes of answers that a hostile server can give: nothing is proven by half an answer."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from outbox.outcome import Accepted, Ambiguous, InFlight, Outcome, Receipt, Refused, Throttled
from outbox.receivers.http import HttpReceiver
from outbox.receivers.http.exchange import SentAlready
from outbox.states import Cause
from tests.support.attempts import attempt, receiver, tool
from tests.support.hostile import Behaviour, Connection, HostileServer, send_then_close

METHODS = ("POST", "PUT", "PATCH", "DELETE")
CAP = 65_536


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with HostileServer() as running:
        yield running


@pytest.fixture
async def client(server: HostileServer) -> AsyncIterator[HttpReceiver]:
    opened = HttpReceiver("warehouse", receiver(server.url, max_response_bytes=CAP))
    yield opened
    await opened.aclose()


async def deliver(client: HttpReceiver, server: HostileServer, behave: Behaviour, **changes: object) -> Outcome:
    server.behave = behave
    config = receiver(server.url, max_response_bytes=CAP)
    return await client.deliver(attempt(config, **changes))  # type: ignore[arg-type] # the fields of an attempt


def answering(
    status: str = "200 OK", body: bytes = b"{}", *headers: str, length: int | None = None, chunked: bool = False
) -> bytes:
    frame = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body) if length is None else length}"
    return "\r\n".join([f"HTTP/1.1 {status}", frame, *headers]).encode() + b"\r\n\r\n" + body


# ------------------------------------------------------------------------------------- one attempt, one request


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("keyed", [True, False], ids=["kept connection", "fresh connection"])
async def test_a_server_that_closes_after_the_effect_gets_one_request_whatever_the_method(
    server: HostileServer, client: HttpReceiver, method: str, keyed: bool
) -> None:
    config = receiver(server.url)
    tool_config = tool(request={"method": method, "path": "/x"}, **({} if keyed else {"contract_key": "none"}))
    server.behave = send_then_close(b"")
    outcome = await client.deliver(attempt(config, tool_config, expected_version="7"))
    assert isinstance(outcome, Ambiguous)
    assert outcome.cause is Cause.CONNECTION_LOST
    assert [wire.method for wire in server.seen.requests] == [method]
    assert server.seen.connections == 1


@pytest.mark.parametrize("method", METHODS)
async def test_a_reset_after_the_effect_is_ambiguous_and_nothing_is_repeated(
    server: HostileServer, client: HttpReceiver, method: str
) -> None:
    async def reset(connection: Connection) -> None:
        await connection.request()
        connection.reset()

    server.behave = reset
    outcome = await client.deliver(attempt(receiver(server.url), tool(request={"method": method, "path": "/x"})))
    assert isinstance(outcome, Ambiguous)
    assert len(server.seen.requests) == 1


@pytest.mark.parametrize("method", METHODS)
async def test_no_answer_within_the_deadline_is_ambiguous(
    server: HostileServer, client: HttpReceiver, method: str
) -> None:
    async def hang(connection: Connection) -> None:
        await connection.request()
        await connection.until_closed()

    server.behave = hang
    made = attempt(receiver(server.url), tool(request={"method": method, "path": "/x"}), deadline_seconds=1.0)
    outcome = await client.deliver(made)
    assert isinstance(outcome, Ambiguous)
    assert outcome.cause is Cause.TIMEOUT
    assert len(server.seen.requests) == 1


async def test_one_exchange_sends_one_request_whoever_asks_twice(server: HostileServer, client: HttpReceiver) -> None:
    server.behave = send_then_close(b"")
    request = attempt(receiver(server.url)).wire_request()
    exchange = client._client.new_exchange(request)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client._client.run(exchange, request, [], keep_alive=True)
    with pytest.raises(SentAlready):
        await client._client.run(exchange, request, [], keep_alive=True)
    assert len(server.seen.requests) == 1


# --------------------------------------------------------------------- a close or a silence at each byte of an answer

WHOLE = answering("200 OK", b'{"receipt":"r-1"}', "Content-Type: application/json")


@pytest.mark.parametrize("cut", range(len(WHOLE)))
async def test_an_answer_that_ends_before_its_last_byte_proves_nothing(
    server: HostileServer, client: HttpReceiver, cut: int
) -> None:
    outcome = await deliver(client, server, send_then_close(WHOLE[:cut]))
    assert isinstance(outcome, Ambiguous)


async def test_the_whole_answer_is_a_receipt(server: HostileServer, client: HttpReceiver) -> None:
    outcome = await deliver(client, server, send_then_close(WHOLE))
    assert isinstance(outcome, Receipt)
    assert outcome.receipt == '{"receipt":"r-1"}'


@pytest.mark.parametrize("status", ["404 Not Found", "422 Unprocessable", "429 Slow", "412 Precondition Failed"])
@pytest.mark.parametrize("missing", [1, 5])
async def test_a_refusal_whose_body_is_cut_proves_nothing_either(
    server: HostileServer, client: HttpReceiver, status: str, missing: int
) -> None:
    whole = answering(status, b'{"error":"no"}')
    assert isinstance(await deliver(client, server, send_then_close(whole[:-missing])), Ambiguous)


@pytest.mark.parametrize("stop", [0, 5, 20, len(WHOLE) - 3], ids=["nothing", "status", "header", "body"])
async def test_a_server_that_falls_silent_is_bounded_by_the_deadline(
    server: HostileServer, client: HttpReceiver, stop: int
) -> None:
    async def fall_silent(connection: Connection) -> None:
        await connection.request()
        await connection.send(WHOLE[:stop])
        await connection.until_closed()

    outcome = await deliver(client, server, fall_silent, deadline_seconds=1.0)
    assert isinstance(outcome, Ambiguous)
    assert outcome.cause is Cause.TIMEOUT


async def test_a_byte_now_and_then_does_not_move_the_deadline(server: HostileServer, client: HttpReceiver) -> None:
    async def drip(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            await connection.send(b"x")
            await connection.pace()

    outcome = await deliver(client, server, drip, deadline_seconds=1.0)
    assert isinstance(outcome, Ambiguous)
    assert outcome.cause is Cause.TIMEOUT


# ------------------------------------------------------------------------------------------------------ lying frames


@pytest.mark.parametrize(
    "answer",
    [
        answering(body=b"{}", length=50),
        answering(body=b'5\r\n{"a"', chunked=True),
        answering(body=b"2\r\n{}\r\n", chunked=True),
        answering(body=b"zz\r\n{}\r\n0\r\n\r\n", chunked=True),
        answering(body=b"-2\r\n{}\r\n0\r\n\r\n", chunked=True),
        answering(body=b"ffffffffffffffffffff\r\n{}\r\n", chunked=True),
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2, 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 9\r\n\r\n{}",
    ],
    ids=[
        "longer than sent",
        "chunk cut",
        "no last chunk",
        "chunk size no number",
        "chunk size negative",
        "chunk size absurd",
        "length negative",
        "length hexadecimal",
        "two lengths in one",
        "two lengths",
    ],
)
async def test_an_answer_whose_frame_lies_proves_nothing(
    server: HostileServer, client: HttpReceiver, answer: bytes
) -> None:
    assert isinstance(await deliver(client, server, send_then_close(answer)), Ambiguous)


@pytest.mark.parametrize(
    "answer",
    [
        b"\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-\x00: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"\x00" * 4_096,
        bytes(range(256)) * 16,
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 " + b"O" * 1_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    ],
    ids=[
        "blank",
        "ssh",
        "no status",
        "status no number",
        "status too long",
        "version",
        "no colon",
        "NUL in a name",
        "NULs",
        "every byte",
        "a header of a megabyte",
        "a reason of a megabyte",
        "a hundred thousand headers",
    ],
)
async def test_what_is_not_http_proves_nothing(server: HostileServer, client: HttpReceiver, answer: bytes) -> None:
    assert isinstance(await deliver(client, server, send_then_close(answer)), Ambiguous)


# --------------------------------------------------------------------------------------------------- hostile contents


@pytest.mark.parametrize(
    "body",
    [b"\x00", b'{"a":"\x00"}', b"\xff\xfe\xfd", b"\xed\xa0\x80", b'{"a":"\\ud800"}', b"\x1b[2J", b"9" * 10_000],
    ids=["NUL", "NUL in JSON", "no UTF-8", "a surrogate", "a surrogate in JSON", "a terminal command", "a huge number"],
)
async def test_hostile_text_in_a_receipt_is_kept_in_a_form_that_can_be_stored(
    server: HostileServer, client: HttpReceiver, body: bytes
) -> None:
    headers = b"X-Request-Id: \xff\xfeid\r\n"
    answer = b"HTTP/1.1 200 OK\r\n" + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body
    outcome = await deliver(client, server, send_then_close(answer))
    assert isinstance(outcome, Receipt)
    for text in (outcome.receipt, outcome.answer.excerpt, outcome.answer.request_id or ""):
        assert "\0" not in text
        assert "\x1b" not in text
        text.encode()
        assert len(text.encode()) <= 4_096


async def test_a_hundred_megabytes_are_not_read(server: HostileServer, client: HttpReceiver) -> None:
    written = 0

    async def flood(connection: Connection) -> None:
        nonlocal written
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n")
        for _ in range(1_600):
            await connection.send(b"x" * 65_536)
            written += 65_536

    outcome = await deliver(client, server, flood)
    assert isinstance(outcome, Ambiguous)
    assert len(outcome.answer.excerpt) <= 2_048
    # What the sockets of both sides buffer is read by nobody.
    assert written < 32 * 2**20


async def test_an_endless_body_without_a_length_is_cut(server: HostileServer, client: HttpReceiver) -> None:
    async def flood(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await connection.send(b"x" * 65_536)

    assert isinstance(await deliver(client, server, flood), Ambiguous)


def deflated(data: bytes, window_bits: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, window_bits)
    return packer.compress(data) + packer.flush()


BOMB = b"0" * (64 * 2**20)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", deflated(BOMB, 31)),
        ("x-gzip", deflated(BOMB, 31)),
        ("deflate", deflated(BOMB, 15)),
        ("deflate", deflated(BOMB, -15)),
        ("gzip, gzip", deflated(deflated(BOMB, 31), 31)),
        ("br", b"\xcf\xff\xff\x7f" + b"\x00" * 64),
        ("zstd", b"\x28\xb5\x2f\xfd" + b"\x00" * 64),
        ("gzip", b"this is no gzip"),
        ("gzip", deflated(b'{"receipt":1}', 31)[:-6]),
    ],
    ids=["gzip", "x-gzip", "zlib", "raw deflate", "gzip twice", "br", "zstd", "no gzip", "gzip cut"],
)
async def test_a_compression_bomb_costs_a_buffer_and_proves_nothing(
    server: HostileServer, client: HttpReceiver, encoding: str, body: bytes
) -> None:
    answer = answering("200 OK", body, f"Content-Encoding: {encoding}")
    outcome = await deliver(client, server, send_then_close(answer))
    assert isinstance(outcome, Ambiguous)
    assert outcome.answer.status == 200


@pytest.mark.parametrize(("encoding", "bits"), [("gzip", 31), ("deflate", 15), ("deflate", -15), ("identity", 0)])
async def test_an_honest_compressed_answer_is_read(
    server: HostileServer, client: HttpReceiver, encoding: str, bits: int
) -> None:
    body = deflated(b'{"receipt":"r-1"}', bits) if bits else b'{"receipt":"r-1"}'
    outcome = await deliver(client, server, send_then_close(answering("200 OK", body, f"Content-Encoding: {encoding}")))
    assert isinstance(outcome, Receipt)
    assert outcome.receipt == '{"receipt":"r-1"}'
    assert server.seen.requests[0].header("Accept-Encoding") == "identity"


# ------------------------------------------------------------------------------------------------------ interim answers


@pytest.mark.parametrize("interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"])
async def test_interim_answers_are_passed_over(server: HostileServer, client: HttpReceiver, interim: bytes) -> None:
    assert isinstance(await deliver(client, server, send_then_close(interim * 3 + WHOLE)), Receipt)


async def test_endless_interim_answers_end_with_the_deadline(server: HostileServer, client: HttpReceiver) -> None:
    async def flood(connection: Connection) -> None:
        await connection.request()
        while True:
            await connection.send(b"HTTP/1.1 102 Processing\r\n\r\n")
            await connection.pace()

    assert isinstance(await deliver(client, server, flood, deadline_seconds=1.0), Ambiguous)


async def test_an_upgrade_that_nobody_asked_for_proves_nothing(server: HostileServer, client: HttpReceiver) -> None:
    answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n" + WHOLE
    assert isinstance(await deliver(client, server, send_then_close(answer)), Ambiguous)


# ------------------------------------------------------------------------------------------------- redirects, cookies


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent", "300 Choices"])
async def test_a_redirect_is_never_followed(server: HostileServer, client: HttpReceiver, status: str) -> None:
    with HostileServer() as other:
        outcome = await deliver(client, server, send_then_close(answering(status, b"", f"Location: {other.url}/x")))
        assert isinstance(outcome, Refused)
        assert other.seen.connections == 0
    assert len(server.seen.requests) == 1


async def test_see_other_is_ambiguous_since_it_often_means_done(server: HostileServer, client: HttpReceiver) -> None:
    answer = answering("303 See Other", b"", f"Location: {server.url}/done")
    assert isinstance(await deliver(client, server, send_then_close(answer)), Ambiguous)
    assert len(server.seen.requests) == 1


async def test_cookies_are_not_kept(server: HostileServer, client: HttpReceiver) -> None:
    answer = answering("200 OK", b"{}", "Set-Cookie: session=1; Path=/", "Connection: close")
    for _ in range(2):
        await deliver(client, server, send_then_close(answer))
    assert [wire.header("Cookie") for wire in server.seen.requests] == [None, None]


async def test_proxies_and_credentials_of_the_environment_are_ignored(
    server: HostileServer, client: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HostileServer() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert isinstance(await deliver(client, server, send_then_close(WHOLE)), Receipt)
        assert proxy.seen.connections == 0


# ------------------------------------------------------------------------------------------------------ Retry-After

DATE = "Date: Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("Retry-After: 120", 120),
        ("Retry-After: 0", 0),
        ("Retry-After:   7  ", 7),
        ("Retry-After: 1.5", 2),
        ("Retry-After: +3", 3),
        ("Retry-After: 99999999999999999", 604_800),
        (f"{DATE}\r\nRetry-After: Sun, 06 Nov 1994 08:50:37 GMT", 60),
        (f"{DATE}\r\nRetry-After: Sunday, 06-Nov-94 08:50:37 GMT", 60),
        (f"{DATE}\r\nRetry-After: Sun Nov  6 08:50:37 1994", 60),
        (f"{DATE}\r\nRetry-After: Sun, 06 Nov 1994 07:00:00 GMT", 0),
        (f"{DATE}\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT", 604_800),
        ("Retry-After: Sun, 06 Nov 1994 08:49:37 GMT", 0),
        (f"{DATE}\r\nRetry-After: 30\r\nRetry-After: Sun, 06 Nov 1994 08:50:37 GMT", 60),
        ("Retry-After: 30\r\nRetry-After: 5", 30),
        ("Retry-After: -5", None),
        ("Retry-After: soon", None),
        ("Retry-After: Sun, 99 Nov 1994 99:99:99 GMT", None),
        ("Retry-After: 0x10", None),
        ("Retry-After: inf", None),
        ("Retry-After: nan", None),
        ("Retry-After: " + "9" * 4_000, None),
        ("Retry-After: \u0661\u0662", None),
        ("Retry-After:", None),
        ("X: y", None),
    ],
)
async def test_retry_after_is_read_in_every_form_and_bounded(
    server: HostileServer, client: HttpReceiver, header: str, seconds: int | None
) -> None:
    outcome = await deliver(client, server, send_then_close(answering("429 Slow Down", b"", header)))
    assert isinstance(outcome, Throttled)
    assert outcome.retry_after_seconds == seconds


# ------------------------------------------------------------------------------------------------- what else it can say


async def test_a_declared_conflict_is_the_first_request_still_running(
    server: HostileServer, client: HttpReceiver
) -> None:
    rules = [{"status": [409], "body": {"/error/code": "in_flight"}, "means": "in_flight"}]
    made = attempt(receiver(server.url), tool(contract_answers=rules))
    server.behave = send_then_close(answering("409 Conflict", b'{"error":{"code":"in_flight"}}', "Retry-After: 2"))
    outcome = await client.deliver(made)
    assert isinstance(outcome, InFlight)
    assert outcome.retry_after_seconds == 2


async def test_202_without_a_rule_is_an_acceptance_and_no_receipt(server: HostileServer, client: HttpReceiver) -> None:
    assert isinstance(await deliver(client, server, send_then_close(answering("202 Accepted", b""))), Accepted)


@pytest.mark.parametrize("status", [200, 500, 502, 503, 504, 408, 409, 418, 599])
async def test_nothing_of_this_is_a_receipt_or_a_refusal_without_a_rule(
    server: HostileServer, client: HttpReceiver, status: int
) -> None:
    made = attempt(receiver(server.url), tool(contract_answers=[]))
    server.behave = send_then_close(answering(f"{status} Whatever", b"{}"))
    assert isinstance(await client.deliver(made), Ambiguous)


async def test_many_hostile_answers_at_once_do_not_mix(server: HostileServer, client: HttpReceiver) -> None:
    async def echo(connection: Connection) -> None:
        wire = await connection.request()
        await connection.answer("200 OK", wire.body, "Connection: close")  # or a next request may cross with it

    server.behave = echo
    config = receiver(server.url)
    made = [attempt(config, arguments=f'{{"number":{number}}}', seq=number) for number in range(50)]
    outcomes = await asyncio.gather(*(client.deliver(each) for each in made))
    assert [outcome.receipt for outcome in outcomes if isinstance(outcome, Receipt)] == [m.arguments for m in made]
