"""A server that misbehaves byte by byte, in a thread and an event loop of its own, and remembers what really arrived.

It parses nothing but the length of a request. What it sends is what a test says, so nothing stands between the test and
the client that could repair an answer.
"""

import asyncio
import contextlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

TLS = Path(__file__).parent / "tls"
CA_FILE = TLS / "ca.pem"

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Wire:
    """One request as it arrived."""

    head: bytes
    body: bytes

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()

    @property
    def target(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    def header(self, name: str) -> str | None:
        """The value of a header that is there once; None where it is absent."""
        values = [
            line.partition(b":")[2].strip().decode("latin-1")
            for line in self.head.split(b"\r\n")[1:]
            if line.lower().startswith(name.lower().encode() + b":")
        ]
        assert len(values) <= 1, f"{name} is there {len(values)} times"
        return values[0] if values else None


@dataclass(slots=True)
class Connection:
    """One connection of a client, as a behaviour sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    seen: "Seen"

    async def request(self) -> Wire:
        """Read one whole request, and remember it. Raises IncompleteReadError if it never becomes whole."""
        data = b""
        try:
            data = await self.reader.readuntil(b"\r\n\r\n")
            self.seen.heads.append(data)
            length = _LENGTH.search(data)
            body = await self.reader.readexactly(int(length[1])) if length else b""
        except asyncio.IncompleteReadError as error:
            self.seen.partial.append(data + error.partial)
            raise
        wire = Wire(data, body)
        self.seen.requests.append(wire)
        return wire

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: str = "200 OK", body: bytes = b"{}", *headers: str) -> None:
        """Send a well-formed answer."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def reset(self) -> None:
        """End the connection with a reset, not a farewell."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def until_closed(self) -> bytes:
        """Read until the client is gone; what it still sent."""
        try:
            return await self.reader.read(-1)
        except ConnectionError:
            return b""

    async def pace(self) -> None:
        """Let a little time pass: for a server that is slow on purpose, where there is nothing to wait for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.02):
                await asyncio.Event().wait()


Behaviour: TypeAlias = Callable[[Connection], Awaitable[None]]


@dataclass(slots=True)
class Seen:
    """What arrived, in order. Appended by the server's thread, read by the test."""

    connections: int = 0
    heads: list[bytes] = field(default_factory=list)
    requests: list[Wire] = field(default_factory=list)
    partial: list[bytes] = field(default_factory=list)
    server_names: list[str | None] = field(default_factory=list)
    broken: list[BaseException] = field(default_factory=list)
    closed: int = 0


class HostileServer:
    """Behaves to each connection as `behave` says at that moment; a connection that it has served is closed."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, receive_buffer_bytes: int | None = None) -> None:
        self.seen = Seen()
        self.behave: Behaviour = answer_always
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._socket.setblocking(False)
        if receive_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.port: int = self._socket.getsockname()[1]
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.add_reader(self._socket, self._accept)
        self._loop.call_soon(self._started.set)
        self._loop.run_forever()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()
        await asyncio.sleep(0)  # a task that is cancelled before it begins closes nothing
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        # By hand: asyncio's own server leaks a connection that arrives while it is closed.
        with contextlib.suppress(BlockingIOError):
            accepted, _ = self._socket.accept()
            accepted.setblocking(False)
            self.seen.connections += 1
            self._spawn(self._serve(accepted))

    async def _serve(self, accepted: socket.socket) -> None:
        reader = asyncio.StreamReader(limit=2**26)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, accepted, ssl=self._tls)
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            try:
                await self.behave(Connection(reader, writer, self.seen))
                writer.close()
                await writer.wait_closed()
            finally:
                transport.abort()
                with contextlib.suppress(OSError):
                    await asyncio.shield(protocol._closed)  # type: ignore[attr-defined] # nothing public tells
        except (OSError, asyncio.IncompleteReadError) as error:
            self.seen.broken.append(error)  # also a handshake that failed
        finally:
            accepted.close()
            self.seen.closed += 1


async def answer_always(connection: Connection) -> None:
    """Behave well: answer every request of a connection with 200 and an empty object."""
    while True:
        await connection.request()
        await connection.answer()


def send_then_close(data: bytes) -> Behaviour:
    """Read a request, answer with exactly these bytes, close."""

    async def behave(connection: Connection) -> None:
        await connection.request()
        await connection.send(data)

    return behave


def tls_context(*, client_certificate: bool = False) -> ssl.SSLContext:
    """The server's side of TLS, with a certificate for receiver.test and 127.0.0.1 that the tests' CA has signed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    if client_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CA_FILE)
    return context


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
