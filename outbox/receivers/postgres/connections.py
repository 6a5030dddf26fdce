"""Connections to the databases of inboxes: one call at a time on each, used again while nothing speaks against it."""

import select
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, LiteralString

import psycopg
from psycopg.conninfo import make_conninfo

from outbox.dsn import dsn_problem
from outbox.errors import SecretMissing
from outbox.lease import boottime
from outbox.receivers.credentials import Secret
from outbox.receivers.postgres.exchange import Exchange, Link, Phase, Reply, Value
from outbox.store import CONNECTION_OPTIONS

# Firewalls and poolers forget connections that idle; a statement into one of those is one that nobody hears of.
IDLE_SECONDS_MAX: Final = 30.0

_ANYTHING: Final = select.POLLIN | select.POLLRDHUP


class Unreachable(Exception):
    """No connection. Nothing was sent."""


@dataclass(frozen=True, slots=True)
class _Idle:
    link: Link
    since: float


class Connections:
    """The connections of one receiver, by DSN: tenants may have their own databases. Opens none before it is asked."""

    def __init__(self, name: str, idle_max: int, clock: Callable[[], float] = boottime) -> None:
        self._application = f"outbox receiver {name}"[:63]
        self._idle_max = idle_max
        self._clock = clock
        self._idle: dict[str, deque[_Idle]] = defaultdict(deque)

    async def call(
        self,
        dsn: Secret,
        exchange: Exchange,
        statement: LiteralString,
        values: dict[str, Value],
        *,
        fresh: bool = False,
    ) -> Reply:
        """
        Make one call on a connection that nobody else uses meanwhile; `fresh`: on one that nobody has used before.

        Raises Unreachable or SecretMissing before the first byte, and what `Exchange.run` raises. The time it takes is
        bounded by the caller.
        """
        link = None if fresh else self._take(dsn)
        if link is None:
            link = await self._connect(dsn)
        try:
            return await exchange.run(link, statement, values)
        finally:
            if link.usable and exchange.phase in {Phase.CONNECTING, Phase.OVER}:
                self._keep(dsn, link)
            else:
                link.drop()

    async def aclose(self) -> None:
        """Close those that nobody uses."""
        for links in self._idle.values():
            for idle in links:
                idle.link.drop()
        self._idle.clear()

    async def _connect(self, dsn: Secret) -> Link:
        if problem := dsn_problem(dsn.reveal()):
            raise SecretMissing(f"the secret is no connection string of libpq: {problem}")
        conninfo = make_conninfo(
            dsn.reveal(), **CONNECTION_OPTIONS, application_name=self._application, client_encoding="utf8"
        )
        try:
            connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True, prepare_threshold=None)
        except (psycopg.Error, OSError, UnicodeError):
            raise Unreachable from None
        return Link(connection)

    def _take(self, dsn: Secret) -> Link | None:
        links = self._idle[dsn.reveal()]
        while links:
            idle = links.pop()
            if self._clock() - idle.since <= IDLE_SECONDS_MAX and not _peer_has_spoken(idle.link):
                return idle.link
            idle.link.drop()
        return None

    def _keep(self, dsn: Secret, link: Link) -> None:
        now = self._clock()
        self._idle[dsn.reveal()].append(_Idle(link, now))
        for key, links in list(self._idle.items()):
            # Also those of a DSN that nobody uses any more: a secret may have been rotated.
            while links and (now - links[0].since > IDLE_SECONDS_MAX or len(links) > self._idle_max):
                links.popleft().link.drop()
            if not links:
                del self._idle[key]


def _peer_has_spoken(link: Link) -> bool:
    """Whether the server has closed, or said something unasked, such as that it shuts down: the kernel knows first."""
    poll = select.poll()
    # Under TLS bytes may lie there that are no message, so only the end of the connection counts.
    poll.register(link.pgconn.socket, select.POLLRDHUP if link.pgconn.ssl_in_use else _ANYTHING)
    return bool(poll.poll(0))
