"""One request on one connection, byte by byte: what is certain before the first, and what is not after it.

aiohttp connects, parses and pools; the sending is ours. `CheckedRequest.send` runs once the connection exists. Between
its last check and the first byte no other task of the process runs; head and body go to the kernel in one write.
`Exchange` remembers how far it came, and that alone decides between `NotSent` and `Ambiguous`: whatever exception
arrives, if the first write had not begun then nothing has left this machine.

What we gave up on must not land later by our own doing. A transport that is closed politely goes on sending what it has
buffered, after our deadline; so a connection without a complete answer is reset: what this process and its kernel still
hold of the request is thrown away.
"""

import asyncio
import contextlib
import enum
import select
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from aiohttp import ClientRequest, ClientResponse, hdrs
from aiohttp.http import StreamWriter

from outbox import crashpoints
from outbox.receivers.http import guard

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection

    from outbox.receivers import Gate

# How often the transport is asked whether the kernel has taken the rest of a request that it did not take at once.
_FLUSH_POLL_SECONDS = 0.005

_ANYTHING = select.POLLIN | select.POLLRDHUP

# SO_LINGER on, for no time: closing discards what was not sent, and tells the other side with a reset.
_RESET = struct.pack("ii", 1, 0)


class Phase(enum.IntEnum):
    """How far one exchange came."""

    CONNECTING = 0
    """No byte of the request was given to the kernel."""
    SENDING = 1
    """The first write has begun. The effect may exist."""
    SENT = 2
    """The kernel has all of it."""
    ANSWERED = 3
    """The head of an answer has been read."""


class Stale(Exception):
    """A connection that must not be written to: its peer has closed it, or said something unasked."""


class SentAlready(Exception):
    """Somebody wants to send the request of one exchange a second time. The first one's connection was lost."""


class Exchange:
    """How far one request came. Made per attempt, used once."""

    def __init__(self, gate: "Gate | None", *, body: bytes, allow_private: bool) -> None:
        self.phase = Phase.CONNECTING
        self._gate = gate
        self._body = body
        self._allow_private = allow_private
        self._transport: asyncio.Transport | None = None
        self._bracket_open = False
        self._flushed = False
        self._flushing: asyncio.Task[None] | None = None

    async def middleware(
        self, request: ClientRequest, handler: Callable[[ClientRequest], Awaitable[ClientResponse]]
    ) -> ClientResponse:
        """Give the request to this exchange: aiohttp has no other way to hand a value to one request."""
        cast("CheckedRequest", request).exchange = self
        guard.check_literal(request.host, allow_private=self._allow_private)
        response = await handler(request)
        self.phase = Phase.ANSWERED
        return response

    def begin(self, protocol: "ResponseHandler", host: str) -> asyncio.Transport:
        """Take this connection. Raises Stale or UnsafeTarget if it must not be written to."""
        if self.phase is not Phase.CONNECTING:
            raise SentAlready
        transport = self._transport = protocol.transport
        if transport is None or transport.is_closing():
            raise Stale
        guard.check_peer(host, transport, allow_private=self._allow_private)
        # The protocol may hold bytes of an answer that belongs to no request of ours, and so may the kernel. What is
        # read next on such a connection would be taken for our answer.
        if protocol.should_close or _peer_has_spoken(transport):
            raise Stale
        return transport

    async def write(self, writer: StreamWriter, transport: asyncio.Transport) -> None:
        """Check for the last time and give the request, whose head the writer holds, to the kernel.

        Raises TooLate before the first byte, and nothing of its own after it.
        """
        split = len(self._body) // 2 if self._gate is not None and crashpoints.armed("mid_send") else None
        if self._gate is not None:
            self._bracket_open = True
            self._gate.sending()
            self._gate.check()
            crashpoints.reach("before_send")
        self.phase = Phase.SENDING
        if split is None:
            await _put(writer, self._body)
        else:
            await self._put_in_two(writer, transport, split)
        if _unsent_bytes(transport):
            # An answer may come before the request was read; that connection must not carry another request.
            cast("ResponseHandler", writer.protocol).force_close()
            self._flushing = asyncio.create_task(self._flush(transport))
        else:
            self._all_sent()

    def end(self, response: ClientResponse | None) -> None:
        """Nothing more happens on this exchange: call it always, once.

        Unless the answer was read to its end and nothing of the request is left to send, the connection is reset. One
        that was read to its end may serve another request by now.
        """
        if self._flushing is not None:
            self._flushing.cancel()
        given_back = response is not None and response.connection is None
        if self._transport is not None:
            if not (given_back and self._flushed):
                _reset(self._transport)
            elif self._transport.is_closing():
                # The farewell of TLS waits for the other side, up to half a minute. Nobody needs it.
                self._transport.abort()
        if response is not None:
            response.close()
        self._close_bracket()

    # ------------------------------------------------------------------------------------------------------------

    async def _put_in_two(self, writer: StreamWriter, transport: asyncio.Transport, split: int) -> None:
        """Only for a test that kills this process between two bytes of its request."""
        await _put(writer, self._body[:split])
        while _unsent_bytes(transport) and not transport.is_closing():  # noqa: ASYNC110 - see _flush
            await asyncio.sleep(_FLUSH_POLL_SECONDS)
        crashpoints.reach("mid_send")
        await _put(writer, self._body[split:])

    async def _flush(self, transport: asyncio.Transport) -> None:
        """Wait for the kernel to take the rest. No event of a transport, plain or TLS, says that it is all gone."""
        while _unsent_bytes(transport):
            if transport.is_closing():
                return
            await asyncio.sleep(_FLUSH_POLL_SECONDS)
        self._all_sent()

    def _all_sent(self) -> None:
        self._flushed = True
        self.phase = max(self.phase, Phase.SENT)
        if self._gate is not None:
            crashpoints.reach("after_send")
        self._close_bracket()

    def _close_bracket(self) -> None:
        if self._bracket_open and self._gate is not None:
            self._bracket_open = False
            self._gate.sent()


class CheckedRequest(ClientRequest):
    """A request of aiohttp whose bytes are sent by its exchange."""

    exchange: Exchange | None = None

    async def send(self, conn: "Connection") -> ClientResponse:
        """Send the whole request at once, after the last check, and return the response that will be read.

        Replaces aiohttp's own, which hands the body to a second task: between a check in one task and a byte from
        another, anything may happen.
        """
        exchange, protocol = self.exchange, conn.protocol
        if exchange is None or protocol is None:
            raise Stale
        transport = exchange.begin(protocol, self.host)
        writer = StreamWriter(protocol, self.loop)
        if conn._connector.force_close:  # noqa: SLF001 - as in the method that this replaces
            self.headers[hdrs.CONNECTION] = "close"
        await writer.write_headers(f"{self.method} {self.url.raw_path_qs} HTTP/1.1", self.headers)
        await exchange.write(writer, transport)
        protocol.start_timeout()
        return self.response_class(
            self.method,
            self.original_url,
            writer=None,
            continue100=None,
            timer=self._timer,
            request_info=self.request_info,
            traces=[],
            loop=self.loop,
            session=self._session,
            stream_writer=writer,
        )


async def _put(writer: StreamWriter, data: bytes) -> None:
    """Give bytes to the transport, together with a head that has not left yet. Never waits."""
    if data:
        await writer.write(data, drain=False)
    else:
        writer.send_headers()


def _peer_has_spoken(transport: asyncio.Transport) -> bool:
    """Whether the other side has closed, or said something unasked: the kernel knows before the event loop has looked.

    A request written to a closed connection is swallowed, and nobody could say whether it was read; an answer that is
    there before the request would be taken for its answer. One system call tells. Under TLS bytes may lie there that
    are no answer (session tickets), so only the end of the connection counts.
    """
    sock = transport.get_extra_info("socket")
    if sock is None:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLRDHUP if transport.get_extra_info("sslcontext") else _ANYTHING)
    return bool(poll.poll(0))


def _unsent_bytes(transport: asyncio.Transport) -> int:
    """How many bytes of the request are still in this process."""
    below = _below_tls(transport)
    return transport.get_write_buffer_size() + (below.get_write_buffer_size() if below is not None else 0)


def _below_tls(transport: asyncio.Transport) -> asyncio.Transport | None:
    """The TCP transport under a TLS transport; it has a buffer of its own, which the latter does not count."""
    protocol: Any = getattr(transport, "_ssl_protocol", None)
    return cast("asyncio.Transport | None", getattr(protocol, "_transport", None))


def _reset(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None:
        # The socket may be gone already; then there is nothing left to discard.
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()
