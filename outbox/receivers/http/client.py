"""One request, one answer: the connections, the headers and the exchange behind both halves of the receiver.

No answer leaves here with the credential in it that its request was sent with.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from yarl import URL

from outbox.contract import ReceiverConfig
from outbox.matching import joined
from outbox.receivers import Gate
from outbox.receivers.http.auth import COMMON_HEADERS
from outbox.receivers.http.body import read_body
from outbox.receivers.http.connections import Connections
from outbox.receivers.http.exchange import Exchange, Stale
from outbox.receivers.http.scrub import Scrub
from outbox.wire import WireRequest


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, as far as it could be read; headers by lower-case name. `problem` is None if all of it was."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    problem: str | None


class Client:
    """The connections of one receiver. Opens none before it is asked to send."""

    def __init__(self, config: ReceiverConfig) -> None:
        self._config = config
        self._opened: dict[bool, Connections] = {}
        auths = (auth for auth in (config.auth, config.read_auth) if auth)
        self._credentials = frozenset(name for auth in auths for name in auth.header_names)

    def new_exchange(self, request: WireRequest, gate: Gate | None = None) -> Exchange:
        """An exchange for one attempt, or (without a gate) for one read."""
        allow_private = self._config.allow_private_addresses
        return Exchange(gate, host=request.host, body=request.body, allow_private=allow_private)

    async def run(
        self, exchange: Exchange, request: WireRequest, ours: list[tuple[str, str]], *, keep_alive: bool
    ) -> Reply:
        """Send the request once and read its answer; `ours` are the headers that say who we are.

        Raises what `http.errors` lists; `exchange.phase` says how far it came. The time it takes is bounded by the
        caller. When this returns or raises, no further byte of the request leaves.
        """
        if keep_alive:
            try:
                return await self._once(exchange, request, ours, keep_alive=True)
            except Stale:
                # Nothing was written. A connection of its own has not that fault.
                pass
        return await self._once(exchange, request, ours, keep_alive=False)

    async def aclose(self) -> None:
        """Close all connections."""
        opened, self._opened = list(self._opened.values()), {}
        for connections in opened:
            await connections.aclose()

    async def _once(
        self, exchange: Exchange, request: WireRequest, ours: list[tuple[str, str]], *, keep_alive: bool
    ) -> Reply:
        sent = head(request, ours, keep_alive=keep_alive)
        connection = await self._connections(keep_alive=keep_alive).connect(request.scheme, request.host)
        try:
            answer, content = await exchange.ask(connection, sent)
            body = await read_body(answer.headers, content, self._config.max_response_bytes)
        finally:
            exchange.end()
        scrub = Scrub.of(value for name, value in ours if name.lower() in self._credentials)
        return Reply(answer.code, scrub.headers(joined(answer.headers)), scrub.body(body.data), body.problem)

    def _connections(self, *, keep_alive: bool) -> Connections:
        connections = self._opened.get(keep_alive)
        if connections is None:
            connections = self._opened[keep_alive] = Connections(
                tls=self._config.base_url.startswith("https:"),
                allow_private=self._config.allow_private_addresses,
                concurrency=self._config.concurrency,
                keep_alive=keep_alive,
            )
        return connections


def head(request: WireRequest, ours: list[tuple[str, str]], *, keep_alive: bool) -> bytes:
    """The first bytes of a request. Raises ValueError for a line break or NUL in any of its parts."""
    # Each may replace what stands before it: a tool our defaults, nobody our identity and credential.
    lines = _common(request.scheme, request.host).copy()
    for name, value in (*request.headers, *ours):
        lines[name.lower()] = f"{name}: {value}"
    # A length is stated wherever a body could be expected.
    if request.body or request.method != "GET":
        lines["content-length"] = f"Content-Length: {len(request.body)}"
    if not keep_alive:
        lines["connection"] = "Connection: close"
    text = "\n".join([f"{request.method} {request.target} HTTP/1.1", *lines.values()])
    if text.count("\n") != len(lines) or "\r" in text or "\0" in text:
        raise ValueError("a line break or NUL in the head of a request")
    return f"{text}\n\n".replace("\n", "\r\n").encode()


@functools.lru_cache(maxsize=1_024)
def _common(scheme: str, host: str) -> dict[str, str]:
    """Headers of every request to this host, as lines by lower-case name. To be copied, never changed."""
    shown = URL(f"{scheme}://{host}", encoded=True).host_port_subcomponent or host
    return {name.lower(): f"{name}: {value}" for name, value in (("Host", shown), *COMMON_HEADERS)}
