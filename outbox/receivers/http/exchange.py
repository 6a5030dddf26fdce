"""One request on one connection, byte by byte: what is certain before the first, and what is not after it.

aiohttp connects, parses and pools; the sending is ours. Between the last check and the first byte no other task of the
process runs; head and body go to the kernel in one write. `Exchange` remembers how far it came, and that alone decides
between `NotSent` and `Ambiguous`: whatever exception arrives, if the first write had not begun then nothing has left
this machine.

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
from typing import TYPE_CHECKING, Any, cast

from outbox import crashpoints
from outbox.receivers.http import guard

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from aiohttp.http import RawResponseMessage

    from outbox.receivers import Gate

# How often the transport is asked whether the kernel has taken the rest of a request that it did not take at once.
_FLUSH_POLL_SECONDS = 0.005

# Answers that only announce one. 101 is one by itself: what follows it is not HTTP.
_ANNOUNCEMENTS = frozenset(range(100, 200)) - {101}

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

    def __init__(self, gate: "Gate | None", *, host: str, body: bytes, allow_private: bool) -> None:
        self.phase = Phase.CONNECTING
        self._gate = gate
        self._host = host
        self._body = body
        self._allow_private = allow_private
        self._connection: Connection | None = None
        self._content: StreamReader | None = None
        self._bracket_open = False
        self._flushed = False
        self._flushing: asyncio.Task[None] | None = None

    async def ask(self, connection: "Connection", head: bytes) -> "tuple[RawResponseMessage, StreamReader]":
        """
        Take this connection, send the request, whose head this is, and read the head of the answer.

        Raises Stale, UnsafeTarget or TooLate before the first byte; `phase` says whether that has left.
        """
        if self.phase is not Phase.CONNECTING:
            connection.close()
            raise SentAlready
        self._connection = connection
        protocol, transport = self._ready(connection)
        await self._write(protocol, transport, head)
        message, content = await protocol.read()
        while message.code in _ANNOUNCEMENTS:
            message, content = await protocol.read()
        self.phase = Phase.ANSWERED
        self._content = content
        return message, content

    def end(self) -> None:
        """Nothing more happens on this exchange: call it always, once.

        The connection may serve another request if the answer was read to its end and nothing of ours is left to send.
        Otherwise it is reset.
        """
        if self._flushing is not None:
            self._flushing.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            protocol, transport = connection.protocol, connection.transport
            whole = self._content is not None and self._content.is_eof()
            if whole and self._flushed and protocol is not None and not protocol.upgraded:
                connection.release()
                if transport is not None and transport.is_closing():
                    # The farewell of TLS waits for the other side, up to half a minute. Nobody needs it.
                    transport.abort()
            else:
                if transport is not None:
                    _reset(transport)
                connection.close()
        self._close_bracket()

    # ------------------------------------------------------------------------------------------------------------

    def _ready(self, connection: "Connection") -> "tuple[ResponseHandler, asyncio.Transport]":
        """Raise Stale or UnsafeTarget if this connection must not be written to."""
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None or transport.is_closing():
            raise Stale
        guard.check_peer(self._host, transport, allow_private=self._allow_private)
        # The protocol may hold bytes of an answer that belongs to no request of ours, and so may the kernel. What is
        # read next on such a connection would be taken for our answer.
        if protocol.should_close or _peer_has_spoken(transport):
            raise Stale
        return protocol, transport

    async def _write(self, protocol: "ResponseHandler", transport: asyncio.Transport, head: bytes) -> None:
        """Check for the last time and give the request to the kernel.

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
            transport.write(head + self._body)
        else:
            await self._write_in_two(transport, head, split)
        if _unsent_bytes(transport):
            # An answer may come before the request was read; that connection must not carry another request.
            protocol.force_close()
            self._flushing = asyncio.create_task(self._flush(transport))
        else:
            self._all_sent()

    async def _write_in_two(self, transport: asyncio.Transport, head: bytes, split: int) -> None:
        """Only for a test that kills this process between two bytes of its request."""
        transport.write(head + self._body[:split])
        while _unsent_bytes(transport) and not transport.is_closing():  # noqa: ASYNC110 - see _flush
            await asyncio.sleep(_FLUSH_POLL_SECONDS)
        crashpoints.reach("mid_send")
        transport.write(self._body[split:])

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
