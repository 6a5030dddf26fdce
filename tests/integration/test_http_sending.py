"""Between the last check and the last byte: what leaves this machine, when, and what is certain if it does not."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox.outcome import Ambiguous, NotSent, Receipt, Refused
from outbox.receivers.http import HttpReceiver
from tests.support.attempts import RecordingGate, attempt, receiver, tool
from tests.support.eventually import eventually
from tests.support.hostile import Connection, HostileServer, closed_port

# More than the kernel's buffers of both ends take, so that the rest waits in this process.
BIG = "x" * (24 * 2**20)


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with HostileServer() as running:
        yield running


@pytest.fixture
def deaf() -> Iterator[HostileServer]:
    """A server with a small receive buffer, which reads when it is told to."""
    with HostileServer(receive_buffer_bytes=4_096) as running:
        yield running


# ---------------------------------------------------------------------------------------------------------- the gate


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_the_last_check_stands_between_the_connection_and_the_first_byte(
    server: HostileServer, method: str
) -> None:
    class Watching(RecordingGate):
        def check(self) -> None:
            eventually(lambda: server.seen.connections == 1)
            assert server.seen.heads == []
            super().check()

    config = receiver(server.url)
    client = HttpReceiver("warehouse", config)
    gate = Watching()
    made = attempt(config, tool(request={"method": method, "path": "/x"}), gate=gate, arguments="{}")
    assert isinstance(await client.deliver(made), Receipt)
    assert gate.calls == ["sending", "check", "sent"]
    await client.aclose()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("resend", [False, True])
async def test_too_late_means_not_one_byte(server: HostileServer, method: str, resend: bool) -> None:
    config = receiver(server.url)
    client = HttpReceiver("warehouse", config)
    gate = RecordingGate(refusal="the lease has 0.3 s left, the deadline needs 5 s")
    tool_config = tool(request={"method": method, "path": "/x"})
    outcome = await client.deliver(attempt(config, tool_config, gate=gate, resend=resend))
    assert isinstance(outcome, NotSent)
    assert "0.3 s" in outcome.reason
    assert gate.calls == ["sending", "check", "sent"]
    await client.aclose()
    eventually(lambda: server.seen.closed == server.seen.connections)
    assert (server.seen.requests, server.seen.heads) == ([], [])
    assert server.seen.partial in ([], [b""])


async def test_a_connection_that_takes_longer_than_the_deadline_sends_nothing() -> None:
    """The kernel accepts up to the backlog; what waits behind it is never accepted."""
    with closed_port() as port:
        config = receiver(f"http://127.0.0.1:{port}")
        client = HttpReceiver("warehouse", config)
        gate = RecordingGate()
        outcome = await client.deliver(attempt(config, gate=gate))
        assert isinstance(outcome, NotSent)
        assert gate.calls == []
        await client.aclose()


async def test_waiting_for_a_free_connection_past_the_deadline_sends_nothing(server: HostileServer) -> None:
    async def hang(connection: Connection) -> None:
        await connection.request()
        await connection.until_closed()

    server.behave = hang
    config = receiver(server.url, lanes=1, concurrency=1)
    client = HttpReceiver("warehouse", config)
    first = asyncio.create_task(client.deliver(attempt(config, deadline_seconds=30.0)))
    await asyncio.to_thread(eventually, lambda: len(server.seen.requests) == 1)
    assert isinstance(await client.deliver(attempt(config, deadline_seconds=0.1)), NotSent)
    assert len(server.seen.requests) == 1
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await client.aclose()


# ------------------------------------------------------------------------------------------- what we gave up on is gone


async def test_after_the_deadline_no_further_byte_leaves(deaf: HostileServer) -> None:
    """A transport that is closed politely goes on sending what it has buffered. Ours is not."""
    read_on = asyncio.Event()
    loop_of_server: list[asyncio.AbstractEventLoop] = []

    async def read_late(connection: Connection) -> None:
        loop_of_server.append(asyncio.get_running_loop())
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket's transport can
        await read_on.wait()
        connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await connection.request()

    deaf.behave = read_late
    config = receiver(deaf.url)
    client = HttpReceiver("warehouse", config)
    gate = RecordingGate()
    made = attempt(config, gate=gate, arguments=f'{{"a":"{BIG}"}}', deadline_seconds=1.0)
    outcome = await client.deliver(made)
    assert isinstance(outcome, Ambiguous)
    assert gate.calls == ["sending", "check", "sent"]
    loop_of_server[0].call_soon_threadsafe(read_on.set)
    await asyncio.to_thread(eventually, lambda: deaf.seen.closed == 1)
    assert deaf.seen.requests == []
    await client.aclose()


async def test_a_cancelled_attempt_lets_nothing_more_leave(deaf: HostileServer) -> None:
    async def listen(connection: Connection) -> None:
        await connection.request()

    config = receiver(deaf.url)
    client = HttpReceiver("warehouse", config)
    gate = RecordingGate()
    task = asyncio.create_task(client.deliver(attempt(config, gate=gate, arguments=f'{{"a":"{BIG}"}}')))
    deaf.behave = _stop_reading
    await asyncio.to_thread(eventually, lambda: "check" in gate.calls)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The gate knows that bytes may have left, and that none will follow.
    assert gate.calls == ["sending", "check", "sent"]
    assert deaf.seen.requests == []
    deaf.behave = listen
    await client.aclose()


async def _stop_reading(connection: Connection) -> None:
    connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


async def test_the_bracket_stays_open_until_the_kernel_has_the_last_byte(deaf: HostileServer) -> None:
    go_on = asyncio.Event()
    loop_of_server: list[asyncio.AbstractEventLoop] = []

    async def read_late(connection: Connection) -> None:
        loop_of_server.append(asyncio.get_running_loop())
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await go_on.wait()
        connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await connection.request()
        await connection.answer()

    deaf.behave = read_late
    config = receiver(deaf.url)
    client = HttpReceiver("warehouse", config)
    gate = RecordingGate()
    task = asyncio.create_task(client.deliver(attempt(config, gate=gate, arguments=f'{{"a":"{BIG}"}}')))
    await asyncio.to_thread(eventually, lambda: "check" in gate.calls)
    assert gate.calls == ["sending", "check"]
    loop_of_server[0].call_soon_threadsafe(go_on.set)
    assert isinstance(await task, Receipt)
    assert gate.calls == ["sending", "check", "sent"]
    assert len(deaf.seen.requests[0].body) > len(BIG)
    await client.aclose()


async def test_an_answer_before_the_request_was_read_counts_and_ends_the_connection(deaf: HostileServer) -> None:
    async def refuse_at_once(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.answer("413 Too Large", b"")
        await connection.until_closed()

    deaf.behave = refuse_at_once
    config = receiver(deaf.url)
    client = HttpReceiver("warehouse", config)
    outcome = await client.deliver(attempt(config, arguments=f'{{"a":"{BIG}"}}'))
    assert isinstance(outcome, Refused)
    assert outcome.answer.status == 413
    await asyncio.to_thread(eventually, lambda: deaf.seen.closed == 1)
    await client.aclose()


# -------------------------------------------------------------------------------------------------------- crash points

PROGRAM = """
import asyncio, sys
from outbox.receivers.http import HttpReceiver
from tests.support.attempts import attempt, receiver

async def main():
    config = receiver(sys.argv[1])
    client = HttpReceiver("warehouse", config)
    print(await client.deliver(attempt(config)), flush=True)
    await client.aclose()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("point", "whole", "partial"),
    [("before_send", 0, False), ("mid_send", 0, True), ("after_send", 1, False)],
)
def test_a_process_killed_at_a_crash_point_has_sent_exactly_what_its_name_says(
    server: HostileServer, point: str, whole: int, partial: bool
) -> None:
    environment = {**os.environ, "OUTBOX_CRASHPOINT": point, "PYTHONPATH": str(Path.cwd())}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url], env=environment, capture_output=True, check=False
    )
    assert ended.returncode == -9, ended.stderr
    eventually(lambda: server.seen.closed == server.seen.connections == 1)
    assert len(server.seen.requests) == whole
    bytes_of_a_request = [data for data in server.seen.partial if data]
    assert bool(bytes_of_a_request) is partial


async def test_nobody_is_sent_two_writes_where_no_crash_point_is_armed(server: HostileServer) -> None:
    """Head and body arrive together: `mid_send` exists only for a test."""
    segments: list[bytes] = []

    async def one_read(connection: Connection) -> None:
        segments.append(await connection.reader.read(65_536))
        await connection.answer()

    server.behave = one_read
    config = receiver(server.url)
    client = HttpReceiver("warehouse", config)
    await client.deliver(attempt(config))
    assert segments[0].endswith(b'\r\n\r\n{"available":3}')
    await client.aclose()
