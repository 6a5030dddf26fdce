"""Connections: which are used again, which are not, and to whom they may lead."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import aiohttp
import pytest

from outbox.contract import ToolConfig
from outbox.errors import ReceiverError
from outbox.outcome import Ambiguous, NotSent, Receipt
from outbox.receivers.http import HttpReceiver, connections, exchange, guard
from outbox.states import Cause
from tests.support.attempts import RecordingGate, attempt, receiver, tool
from tests.support.eventually import eventually
from tests.support.hostile import Connection, HostileServer


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with HostileServer() as running:
        yield running


@pytest.fixture
async def client(server: HostileServer) -> AsyncIterator[HttpReceiver]:
    opened = HttpReceiver("warehouse", receiver(server.url))
    yield opened
    await opened.aclose()


KEYED = tool()
UNKEYED = tool(contract_key="none")


async def test_a_tool_whose_key_is_honoured_uses_its_connections_again(
    server: HostileServer, client: HttpReceiver
) -> None:
    for _ in range(3):
        assert isinstance(await client.deliver(attempt(receiver(server.url), KEYED)), Receipt)
    assert (len(server.seen.requests), server.seen.connections) == (3, 1)


async def test_a_tool_whose_ambiguity_costs_a_person_gets_a_fresh_connection_each_time(
    server: HostileServer, client: HttpReceiver
) -> None:
    for _ in range(3):
        assert isinstance(await client.deliver(attempt(receiver(server.url), UNKEYED, expected_version="1")), Receipt)
    assert (len(server.seen.requests), server.seen.connections) == (3, 3)
    assert {wire.header("Connection") for wire in server.seen.requests} == {"close"}


async def test_a_kept_connection_that_its_peer_has_closed_is_not_written_to(
    server: HostileServer, client: HttpReceiver
) -> None:
    """Closed while nobody looked: the kernel knows it before the event loop does, and nothing is lost in it."""

    async def answer_once(connection: Connection) -> None:
        await connection.request()
        await connection.answer()

    server.behave = answer_once
    config = receiver(server.url)
    for number in range(1, 11):
        assert isinstance(await client.deliver(attempt(config, KEYED)), Receipt)
        # Blocks the client's loop on purpose: the close arrives and nobody has looked when the next request is made.
        eventually(lambda number=number: server.seen.closed == number)  # type: ignore[misc] # a default binds it
    assert len(server.seen.requests) == 10


async def test_a_reset_of_a_kept_connection_under_a_request_is_ambiguous_and_sent_once(
    server: HostileServer, client: HttpReceiver
) -> None:
    async def answer_then_reset(connection: Connection) -> None:
        await connection.request()
        await connection.answer()
        await connection.request()
        connection.reset()

    server.behave = answer_then_reset
    config = receiver(server.url)
    assert isinstance(await client.deliver(attempt(config, KEYED)), Receipt)
    assert isinstance(await client.deliver(attempt(config, KEYED)), Ambiguous)
    assert (len(server.seen.requests), server.seen.connections) == (2, 1)


async def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next_one(
    server: HostileServer, client: HttpReceiver
) -> None:
    """Two answers to one request: the second would be the first thing that the next request on it reads."""
    stolen = b'HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{"receipt":"fake"}'
    sent = 0

    async def answer_twice(connection: Connection) -> None:
        nonlocal sent
        while True:
            wire = await connection.request()
            await connection.answer("200 OK", wire.body)
            await connection.send(stolen)
            sent += 1
            await connection.pace()

    server.behave = answer_twice
    config = receiver(server.url)
    for number in range(5):
        arguments = f'{{"number":{number}}}'
        outcome = await client.deliver(attempt(config, KEYED, arguments=arguments))
        assert isinstance(outcome, Receipt)
        assert outcome.receipt == arguments
        await asyncio.to_thread(eventually, lambda: sent > number)  # noqa: B023 - called in this round only


@pytest.mark.parametrize("tool_config", [KEYED, UNKEYED], ids=["kept", "fresh"])
async def test_an_answer_before_the_request_is_not_an_answer_to_it(
    server: HostileServer, client: HttpReceiver, monkeypatch: pytest.MonkeyPatch, tool_config: ToolConfig
) -> None:
    spoken = 0

    async def speak_first(connection: Connection) -> None:
        nonlocal spoken
        await connection.answer("200 OK", b'{"receipt":"fake"}')
        spoken += 1
        await connection.until_closed()

    checked = 0

    def wait_for_it(*_: Any, **__: Any) -> None:
        """Stands where the peer is checked, after the connection was made."""
        nonlocal checked
        checked += 1
        eventually(lambda: spoken >= checked)

    monkeypatch.setattr(guard, "check_peer", wait_for_it)
    server.behave = speak_first
    gate = RecordingGate()
    outcome = await client.deliver(attempt(receiver(server.url), tool_config, expected_version="1", gate=gate))
    assert isinstance(outcome, NotSent)
    assert gate.calls == []


@pytest.mark.parametrize("last_act", ["closes", "speaks"])
async def test_the_kernel_tells_that_a_peer_has_closed_or_spoken(last_act: str) -> None:
    ours, theirs = socket.socketpair()

    class Transport:
        def get_extra_info(self, name: str) -> Any:
            return ours if name == "socket" else None

    with ours, theirs:
        transport = cast("asyncio.Transport", Transport())
        assert not exchange._peer_has_spoken(transport)
        if last_act == "closes":
            theirs.close()
        else:
            theirs.send(b"x")
        assert exchange._peer_has_spoken(transport)


# ------------------------------------------------------------------------------------------------------ at start-up


@pytest.mark.parametrize("part", ["pool", "parser"])
def test_an_aiohttp_that_nobody_has_read_is_refused_at_start_up(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    class Pool(aiohttp.TCPConnector):
        async def connect(self, req: Any, *, retries: int = 3) -> Any:  # type: ignore[override] # as it might become
            raise NotImplementedError

    class Parser:
        def set_response_params(self, *, decompress: bool = True) -> None: ...

    name, changed = ("TCPConnector", Pool) if part == "pool" else ("ResponseHandler", Parser)
    monkeypatch.setattr(connections, name, changed)
    with pytest.raises(ReceiverError, match="not known to this program"):
        connections.Connections(tls=False, allow_private=True, concurrency=1, keep_alive=True)


async def test_the_client_of_aiohttp_is_not_used(
    server: HostileServer, client: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It repeats requests by itself, follows redirects, keeps cookies: nothing of it is there to be switched off."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a session was opened, or its request was sent")

    for kind, name in ((aiohttp.ClientSession, "__init__"), (aiohttp.ClientRequest, "send")):
        monkeypatch.setattr(kind, name, refuse)
    assert isinstance(await client.deliver(attempt(receiver(server.url), KEYED)), Receipt)


# ---------------------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.1", "2130706433", "0x7f000001", "0"])
async def test_a_private_address_is_not_connected_to_unless_it_is_allowed(server: HostileServer, host: str) -> None:
    config = receiver(f"http://{host}:{server.port}", allow_private_addresses=False)
    client = HttpReceiver("warehouse", config)
    for _ in range(2):
        assert isinstance(await client.deliver(attempt(config, KEYED)), NotSent)
    assert server.seen.connections == 0
    await client.aclose()


def names(table: dict[str, list[str]]) -> Any:
    """A getaddrinfo that knows these names; each look takes the next list of addresses, the last one stays."""
    asked: dict[str, int] = {}

    def resolve(host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        key = host.decode() if isinstance(host, bytes) else host
        if key not in table:
            raise socket.gaierror(socket.EAI_NONAME, "unknown name")
        number = asked[key] = asked.get(key, -1) + 1
        addresses = table[key][min(number, len(table[key]) - 1)].split(",")
        families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
        return [
            (family, socket.SOCK_STREAM, 6, "", (address, port) if family == socket.AF_INET else (address, port, 0, 0))
            for family, address in zip(families, addresses, strict=True)
        ]

    return resolve


async def test_one_bad_address_among_good_ones_refuses_the_name(
    server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", names({"mixed.test": ["127.0.0.1,169.254.169.254"]}))
    config = receiver(f"http://mixed.test:{server.port}")
    client = HttpReceiver("warehouse", config)
    outcome = await client.deliver(attempt(config, KEYED))
    assert isinstance(outcome, NotSent)
    assert "169.254.169.254" in outcome.reason
    assert server.seen.connections == 0
    await client.aclose()


async def test_a_name_that_was_rebound_is_refused_at_its_next_connection(
    server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", names({"rebound.test": ["127.0.0.1", "169.254.169.254"]}))
    config = receiver(f"http://rebound.test:{server.port}")
    client = HttpReceiver("warehouse", config)
    assert isinstance(await client.deliver(attempt(config, UNKEYED, expected_version="1")), Receipt)
    assert isinstance(await client.deliver(attempt(config, UNKEYED, expected_version="1")), NotSent)
    assert [wire.header("Host") for wire in server.seen.requests] == [f"rebound.test:{server.port}"]
    await client.aclose()


async def test_the_peer_of_the_connection_is_checked_whatever_was_resolved(
    server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Belt beside the braces: if something resolved past the guard, the first byte is still not sent."""
    monkeypatch.setattr(guard.GuardedResolver, "resolve", _unguarded)
    config = receiver(f"http://sneaky.test:{server.port}", allow_private_addresses=False)
    client = HttpReceiver("warehouse", config)
    outcome = await client.deliver(attempt(config, KEYED))
    assert isinstance(outcome, NotSent)
    assert "private address" in outcome.reason
    await client.aclose()
    assert (server.seen.heads, server.seen.requests) == ([], [])


async def _unguarded(_: Any, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
    return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}]


async def test_an_unknown_name_is_not_sent_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", names({}))
    config = receiver("http://nowhere.test")
    client = HttpReceiver("warehouse", config)
    outcome = await client.deliver(attempt(config, KEYED))
    assert isinstance(outcome, NotSent)
    assert outcome.reason == "the name does not resolve"
    assert outcome.cause is Cause.NAME_UNRESOLVED
    assert outcome.unreachable, "it counts for the circuit"
    await client.aclose()


async def test_a_resolver_that_hangs_is_bounded_by_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(guard.GuardedResolver, "resolve", hang)
    config = receiver("http://slow.test")
    client = HttpReceiver("warehouse", config)
    outcome = await client.deliver(attempt(config, KEYED, deadline_seconds=0.2))
    assert isinstance(outcome, NotSent)
    await client.aclose()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\n\r\n"])
async def test_an_answer_without_a_body_leaves_its_connection_usable(
    server: HostileServer, client: HttpReceiver, answer: bytes
) -> None:
    async def empty(connection: Connection) -> None:
        while True:
            await connection.request()
            await connection.send(answer)

    server.behave = empty
    config = receiver(server.url)
    made = tool(contract_answers=[{"status": [204, 304], "means": "receipt"}])
    for _ in range(3):
        assert isinstance(await client.deliver(attempt(config, made)), Receipt)
    assert server.seen.connections == 1
