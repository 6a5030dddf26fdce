"""One request, one answer: the sessions, the credentials and the exchange behind both halves of the receiver.

No answer leaves here with the credential in it that its request was sent with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import ClientResponse, ClientSession, hdrs
from multidict import CIMultiDict
from yarl import URL

from outbox.contract import ReceiverConfig
from outbox.receivers import Gate
from outbox.receivers.http.auth import COMMON_HEADERS
from outbox.receivers.http.body import read_body
from outbox.receivers.http.exchange import Exchange, Stale
from outbox.receivers.http.scrub import Scrub
from outbox.receivers.http.session import open_session
from outbox.wire import WireRequest


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, as far as it could be read. `problem` is None if all of it was."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    problem: str | None


class Client:
    """The connections of one receiver. Opens none before it is asked to send."""

    def __init__(self, config: ReceiverConfig) -> None:
        self._config = config
        self._sessions: dict[bool, ClientSession] = {}
        named = {auth.header.lower() for auth in (config.auth, config.read_auth) if auth and auth.header}
        self._credentials = frozenset({"authorization", *named})

    def new_exchange(self, request: WireRequest, gate: Gate | None = None) -> Exchange:
        """An exchange for one attempt, or (without a gate) for one read."""
        return Exchange(gate, body=request.body, allow_private=self._config.allow_private_addresses)

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
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    async def _once(
        self, exchange: Exchange, request: WireRequest, ours: list[tuple[str, str]], *, keep_alive: bool
    ) -> Reply:
        # Each may replace what stands before it: a tool our defaults, nobody our identity and credential.
        headers = CIMultiDict(COMMON_HEADERS)
        headers.update(request.headers)
        headers.update(ours)
        # aiohttp sees no body: the exchange sends it. A length is stated wherever a body could be expected.
        if request.body or request.method != "GET":
            headers[hdrs.CONTENT_LENGTH] = str(len(request.body))
        response: ClientResponse | None = None
        try:
            response = await self._session(keep_alive=keep_alive).request(
                request.method,
                URL(request.url, encoded=True),
                headers=headers,
                allow_redirects=False,
                middlewares=(exchange.middleware,),
            )
            body = await read_body(response, self._config.max_response_bytes)
        finally:
            exchange.end(response)
        scrub = Scrub.of(value for name, value in ours if name.lower() in self._credentials)
        return Reply(response.status, scrub.headers(_flat(response)), scrub.body(body.data), body.problem)

    def _session(self, *, keep_alive: bool) -> ClientSession:
        session = self._sessions.get(keep_alive)
        if session is None:
            session = open_session(
                tls=self._config.base_url.startswith("https:"),
                allow_private=self._config.allow_private_addresses,
                concurrency=self._config.concurrency,
                keep_alive=keep_alive,
            )
            self._sessions[keep_alive] = session
        return session


def _flat(response: ClientResponse) -> dict[str, str]:
    """Headers by name in lower case; what was sent several times is joined, as HTTP says."""
    flat: dict[str, str] = {}
    for name, value in response.headers.items():
        lower = name.lower()
        flat[lower] = f"{flat[lower]}, {value}" if lower in flat else value
    return flat
