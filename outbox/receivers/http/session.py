"""The aiohttp sessions that a receiver sends with, and the proof at start-up that they do what we rely on.

aiohttp is a browser-like client by default. What a browser does for its user, a sender of payments must not do: repeat
a PUT whose answer was lost (it does, silently, even on a fresh connection), follow a redirect with the credentials,
remember cookies, take a proxy from the environment, unpack whatever arrives.
"""

import inspect
import ssl

import aiohttp
from aiohttp import ClientRequest, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from outbox.errors import ReceiverError
from outbox.receivers.http.exchange import CheckedRequest
from outbox.receivers.http.guard import GuardedResolver

# A connection that idled longer is not used again: servers close idle connections after some seconds, and a request
# that crosses with the close is one that nobody can say anything about.
KEEPALIVE_SECONDS = 1.0

# Bounds on the head of an answer. A larger one is no answer.
HEADER_LINE_BYTES_MAX = 8_190
HEADERS_MAX = 128

# How many bytes of a body aiohttp holds before it stops reading from the socket.
READ_BUFFER_BYTES = 65_536


def open_session(*, tls: bool, allow_private: bool, concurrency: int, keep_alive: bool) -> ClientSession:
    """A session for one receiver. With `keep_alive` off, every request has a connection of its own.

    Raises ReceiverError if this aiohttp is not one that we know.
    """
    connector = TCPConnector(
        resolver=GuardedResolver(allow_private=allow_private),
        use_dns_cache=False,  # each new connection resolves, and checks, anew
        limit=concurrency,
        # Made here and not shared: it trusts what the machine, or SSL_CERT_FILE, says when this session is opened.
        # Reading all certificates takes its time, which plain HTTP need not pay for.
        ssl=ssl.create_default_context() if tls else True,
        force_close=not keep_alive,
        keepalive_timeout=KEEPALIVE_SECONDS if keep_alive else aiohttp.helpers.sentinel,
    )
    session = ClientSession(
        connector=connector,
        request_class=CheckedRequest,
        cookie_jar=DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        raise_for_status=False,
        # One deadline bounds a whole attempt, from outside; aiohttp's own timeouts would only cut it differently.
        timeout=ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
        skip_auto_headers=(aiohttp.hdrs.CONTENT_TYPE,),
        read_bufsize=READ_BUFFER_BYTES,
        max_line_size=HEADER_LINE_BYTES_MAX,
        max_field_size=HEADER_LINE_BYTES_MAX,
        max_headers=HEADERS_MAX,
    )
    _forbid_retries(session)
    return session


def _forbid_retries(session: ClientSession) -> None:
    """Turn off what cannot be turned off in public, and refuse to start where that is not possible."""
    if getattr(session, "_retry_connection", None) is not True or not _send_is_ours():
        raise ReceiverError(
            f"aiohttp {aiohttp.__version__} is not known to this program: it may send a request twice by itself.",
            hint="Install a version that the requirements of outbox-relay allow.",
        )
    session._retry_connection = False  # noqa: SLF001 - no public switch; its absence is refused above


def _send_is_ours() -> bool:
    """Whether aiohttp still sends through the one method that CheckedRequest replaces, with the response it expects."""
    send = list(inspect.signature(ClientRequest.send).parameters)
    response = inspect.signature(ClientResponse.__init__).parameters
    needed = {"writer", "continue100", "timer", "request_info", "traces", "loop", "session", "stream_writer"}
    return send == ["self", "conn"] and needed <= response.keys()
