"""Connections to one receiver: aiohttp's pool, its TLS and its parser, and nothing else of it.

aiohttp's client is a browser-like one. What a browser does for its user, a sender of payments must not do: repeat a PUT
whose answer was lost (it does, silently, even on a fresh connection), follow a redirect with the credentials, remember
cookies, take a proxy from the environment, unpack whatever arrives. All of that is its `ClientSession`, and no session
is opened here: one request is written to one connection by `exchange`, and one answer is read from it.
"""

import asyncio
import functools
import inspect
import ssl
from typing import Final

import aiohttp
from aiohttp import ClientRequest, ClientTimeout, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from yarl import URL

from outbox.errors import ReceiverError
from outbox.receivers.http.guard import GuardedResolver, check_literal

# A connection that idled longer is not used again: servers close idle connections after some seconds, and a request
# that crosses with the close is one that nobody can say anything about.
KEEPALIVE_SECONDS: Final = 1.0

# Bounds on the head of an answer. A larger one is no answer.
HEADER_LINE_BYTES_MAX: Final = 8_190
HEADERS_MAX: Final = 128

# How many bytes of a body aiohttp holds before it stops reading from the socket.
READ_BUFFER_BYTES: Final = 65_536

# One deadline bounds a whole attempt, from outside; aiohttp's own timeouts would only cut it differently.
_NO_TIMEOUT: Final = ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)


class Connections:
    """
    Up to `concurrency` connections. With `keep_alive` off, every request has one of its own.

    Raises ReceiverError if this aiohttp is not one that we know.
    """

    def __init__(self, *, tls: bool, allow_private: bool, concurrency: int, keep_alive: bool) -> None:
        _check_aiohttp()
        self.keep_alive = keep_alive
        self._allow_private = allow_private
        self._places: dict[tuple[str, str], _Place] = {}
        self._pool = TCPConnector(
            resolver=GuardedResolver(allow_private=allow_private),
            use_dns_cache=False,  # each new connection resolves, and checks, anew
            limit=concurrency,
            # Made here and not shared: it trusts what the machine, or SSL_CERT_FILE, says when this object is made.
            # Reading all certificates takes its time, which plain HTTP need not pay for.
            ssl=ssl.create_default_context() if tls else True,
            force_close=not keep_alive,
            keepalive_timeout=KEEPALIVE_SECONDS if keep_alive else aiohttp.helpers.sentinel,
        )

    async def connect(self, scheme: str, host: str) -> Connection:
        """
        Take a free connection to this host (`name[:port]`), or make one. It is ready for one answer.

        Raises UnsafeTarget, and what aiohttp raises where there is none. It has its peer checked by `exchange`.
        """
        place = self._places.get((scheme, host))
        if place is None:
            place = _Place(scheme, host)
            check_literal(place.host, allow_private=self._allow_private)
            self._places[scheme, host] = place
        connection = await self._pool.connect(place, traces=[], timeout=_NO_TIMEOUT)
        protocol = connection.protocol
        if protocol is not None:
            protocol.set_response_params(
                read_until_eof=True,
                auto_decompress=False,
                read_bufsize=READ_BUFFER_BYTES,
                max_line_size=HEADER_LINE_BYTES_MAX,
                max_field_size=HEADER_LINE_BYTES_MAX,
                max_headers=HEADERS_MAX,
            )
        return connection

    async def aclose(self) -> None:
        """Close all of them."""
        await self._pool.close()


class _Place(ClientRequest):
    """Where to connect to, in the words of aiohttp's pool. Nothing is ever sent by it."""

    def __init__(self, scheme: str, host: str) -> None:
        super().__init__("GET", URL(f"{scheme}://{host}", encoded=True), loop=asyncio.get_running_loop())

    @functools.cached_property
    def connection_key(self) -> ConnectionKey:
        """Asked for by every request, and always the same."""
        return super().connection_key


def _check_aiohttp() -> None:
    """Refuse an aiohttp whose parts do not fit together as we have read them."""
    connect = inspect.signature(TCPConnector.connect).parameters
    answer = inspect.signature(ResponseHandler.set_response_params).parameters
    needed = {"read_until_eof", "auto_decompress", "read_bufsize", "max_line_size", "max_field_size", "max_headers"}
    if list(connect) != ["self", "req", "traces", "timeout"] or not needed <= answer.keys():
        raise ReceiverError(
            f"aiohttp {aiohttp.__version__} is not known to this program.",
            hint="Install a version that the requirements of outbox-relay allow.",
        )
