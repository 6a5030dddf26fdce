"""TLS: a handshake that fails has sent nothing; a connection that breaks afterwards may have sent everything."""

import asyncio
import socket
import ssl
from collections.abc import Iterator

import pytest

from outbox.outcome import Ambiguous, NotSent, Receipt
from outbox.receivers.http import HttpReceiver
from tests.integration.test_http_connections import names
from tests.support.attempts import RecordingGate, attempt, receiver, tool
from tests.support.eventually import eventually
from tests.support.hostile import CA_FILE, Connection, HostileServer, tls_context

BIG = "x" * (24 * 2**20)


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own certificate authority is trusted by this machine."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CA_FILE))


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with HostileServer(tls=tls_context()) as running:
        yield running


async def deliver(url: str, **changes: object) -> object:
    config = receiver(url)
    client = HttpReceiver("warehouse", config)
    try:
        return await client.deliver(attempt(config, **changes))  # type: ignore[arg-type] # the fields of an attempt
    finally:
        await client.aclose()


@pytest.mark.usefixtures("trusted")
async def test_a_receipt_comes_over_tls_too_and_the_gate_is_asked_after_the_handshake(server: HostileServer) -> None:
    gate = RecordingGate()
    assert isinstance(await deliver(server.url, gate=gate), Receipt)
    assert gate.calls == ["sending", "check", "sent"]


@pytest.mark.usefixtures("trusted")
async def test_the_connection_goes_to_the_checked_address_and_the_name_stays_in_sni_and_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str | None] = []
    context = tls_context()

    def remember(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        asked.append(name)

    context.sni_callback = remember
    monkeypatch.setattr(socket, "getaddrinfo", names({"receiver.test": ["127.0.0.1"]}))
    with HostileServer(tls=context) as server:
        assert isinstance(await deliver(f"https://receiver.test:{server.port}"), Receipt)
        assert asked == ["receiver.test"]
        assert server.seen.requests[0].header("Host") == f"receiver.test:{server.port}"


async def test_a_certificate_that_nobody_here_trusts_means_not_sent(server: HostileServer) -> None:
    gate = RecordingGate()
    outcome = await deliver(server.url, gate=gate)
    assert isinstance(outcome, NotSent)
    assert outcome.reason == "the certificate is not trusted"
    assert (gate.calls, server.seen.requests, server.seen.heads) == ([], [], [])


@pytest.mark.usefixtures("trusted")
async def test_a_certificate_of_another_host_means_not_sent(
    server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", names({"other.test": ["127.0.0.1"]}))
    outcome = await deliver(f"https://other.test:{server.port}")
    assert isinstance(outcome, NotSent)
    assert outcome.reason == "the certificate is not trusted"
    assert server.seen.requests == []


@pytest.mark.parametrize(
    "bytes_", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x16\x03\x01\xff\xff", b"\x15\x03\x03\0\2\2\x28"]
)
@pytest.mark.usefixtures("trusted")
async def test_a_handshake_that_breaks_means_not_sent(bytes_: bytes) -> None:
    async def break_off(connection: Connection) -> None:
        await connection.reader.read(1)
        await connection.send(bytes_)

    with HostileServer() as plain:
        plain.behave = break_off
        gate = RecordingGate()
        outcome = await deliver(plain.url.replace("http:", "https:"), gate=gate)
        assert isinstance(outcome, NotSent)
        assert gate.calls == []


@pytest.mark.usefixtures("trusted")
async def test_a_handshake_that_never_ends_is_bounded_and_not_sent() -> None:
    async def hang(connection: Connection) -> None:
        await connection.until_closed()

    with HostileServer() as plain:
        plain.behave = hang
        outcome = await deliver(plain.url.replace("http:", "https:"), deadline_seconds=1.0)
        assert isinstance(outcome, NotSent)


@pytest.mark.usefixtures("trusted")
async def test_a_server_that_wants_a_client_certificate_says_so_late_and_only_the_first_byte_counts() -> None:
    """In TLS 1.3 our side of the handshake is over before the server has looked at our (missing) certificate."""
    context = tls_context(client_certificate=True)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with HostileServer(tls=context) as server:
        for _ in range(10):
            gate = RecordingGate()
            outcome = await deliver(server.url, gate=gate)
            assert isinstance(outcome, Ambiguous if "check" in gate.calls else NotSent)
        assert server.seen.requests == []


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_tls_connection_closed_after_the_effect_gets_one_request(server: HostileServer, method: str) -> None:
    async def close(connection: Connection) -> None:
        await connection.request()

    server.behave = close
    config = receiver(server.url)
    client = HttpReceiver("warehouse", config)
    outcome = await client.deliver(attempt(config, tool(request={"method": method, "path": "/x"})))
    assert isinstance(outcome, Ambiguous)
    assert [wire.method for wire in server.seen.requests] == [method]
    await client.aclose()


@pytest.mark.usefixtures("trusted")
async def test_the_bracket_also_waits_for_what_lies_below_tls(server: HostileServer) -> None:
    """TLS hands bytes to a TCP transport with a buffer of its own; they are not with the kernel yet."""
    go_on = asyncio.Event()
    loop_of_server: list[asyncio.AbstractEventLoop] = []

    async def read_late(connection: Connection) -> None:
        loop_of_server.append(asyncio.get_running_loop())
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket's transport can
        await go_on.wait()
        connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await connection.request()
        await connection.answer()

    server.behave = read_late
    config = receiver(server.url)
    client = HttpReceiver("warehouse", config)
    gate = RecordingGate()
    task = asyncio.create_task(client.deliver(attempt(config, gate=gate, arguments=f'{{"a":"{BIG}"}}')))
    await asyncio.to_thread(eventually, lambda: "check" in gate.calls and loop_of_server)
    assert gate.calls == ["sending", "check"]
    loop_of_server[0].call_soon_threadsafe(go_on.set)
    assert isinstance(await task, Receipt)
    assert gate.calls == ["sending", "check", "sent"]
    await client.aclose()
