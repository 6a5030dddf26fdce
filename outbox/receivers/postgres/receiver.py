"""The receiver of transport `postgres`: have an effect in another database, or ask its inbox what happened."""

import asyncio
import re
from typing import Final

from outbox import sql
from outbox.contract import Auth, ReceiverConfig
from outbox.deadline import deadline
from outbox.errors import Refused as NotAllowed
from outbox.errors import SecretMissing
from outbox.evidence import Observation, Verdict
from outbox.outcome import Ambiguous, Answer, NotSent, Outcome, Refused
from outbox.receivers import Attempt, Question, TooLate
from outbox.receivers.credentials import Secrets
from outbox.receivers.postgres.answers import observation_of, outcome_of
from outbox.receivers.postgres.connections import Connections, Unreachable
from outbox.receivers.postgres.exchange import Exchange, Lost, NotReplicated, Phase, Value
from outbox.states import UNSENT, Cause
from outbox.wire import Unsendable
from outbox.wire_message import Message

_STATEMENTS: Final = sql.load("inbox")
_FENCE: Final = re.compile(r'"(?P<lane>[^"\\]+)";fence=(?P<fence>\d+)', re.ASCII)

# What one call may raise, and what it says: the word for people, and the cause if a byte had left. Texts of exceptions
# are not kept: those of libpq quote connection strings.
_RAISED: Final[dict[type[Exception], tuple[str, Cause]]] = {
    TooLate: ("too late to send", Cause.TOO_LATE),
    SecretMissing: ("the credential is missing", Cause.SECRET_MISSING),
    Unreachable: ("no connection", Cause.NO_CONNECTION),
    TimeoutError: ("no answer within the deadline", Cause.TIMEOUT),
    Lost: ("the connection was lost", Cause.CONNECTION_LOST),
    NotReplicated: ("committed, perhaps on one server only", Cause.AMBIGUOUS),
}
_EXPECTED: Final = tuple(_RAISED)


class PostgresReader:
    """
    The half that looks. It holds no code that could ask for an effect.

    A look may leave a tombstone, which has none. Its credential is `read_auth`; `auth` only where the configuration
    says that the two are one.
    """

    def __init__(self, name: str, config: ReceiverConfig) -> None:
        self.name = name
        self._config = config
        self._connections = Connections(name, idle_max=config.concurrency)
        self._secrets = Secrets()
        self._read_auth: Auth | None = config.read_auth or (config.auth if config.shared_credential else None)

    async def deliver(self, attempt: Attempt) -> Outcome:
        """Refuse: this receiver was opened for reading. Raises Refused."""
        raise NotAllowed(f"Receiver {self.name} was opened for reading; operation {attempt.operation_id} was not sent.")

    async def lookup(self, question: Question) -> Observation:
        """Ask the inbox. What cannot be asked, or not in time, is an unknown verdict and no error."""
        wiring = question.wiring
        if wiring.lookup is None or self._read_auth is None:
            missing = "the tool has no look-up" if wiring.lookup is None else "the receiver has no read_auth"
            return Observation(verdict=Verdict.UNKNOWN, note=missing)
        attempt = question.attempt if wiring.look_excludes else 0
        values: dict[str, Value] = {
            "inbox": self._read_auth.account_id,
            "sent_key": question.sent_key,
            "attempt": attempt,
            "tenant_id": question.tenant_id,
            "operation_id": question.operation_id,
            "tool": question.tool,
        }
        exchange = Exchange()
        try:
            dsn = self._secrets.resolve(self._read_auth.secret, question.tenant_id)
            async with asyncio.timeout(question.deadline_seconds):
                reply = await self._connections.call(dsn, exchange, _STATEMENTS["look"], values)
        except _EXPECTED as error:
            note = _word(error)[0]
            return Observation(verdict=Verdict.UNKNOWN, note=note, answer=Answer(host=exchange.host))
        return observation_of(reply, attempt=attempt, host=exchange.host)

    async def aclose(self) -> None:
        """Close all connections. May be called twice."""
        await self._connections.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class PostgresReceiver(PostgresReader):
    """Both halves. What was seen is classified by the contract; nothing is decided here."""

    def __init__(self, name: str, config: ReceiverConfig) -> None:
        super().__init__(name, config)
        self._read_auth = config.read_auth or config.auth

    async def deliver(self, attempt: Attempt) -> Outcome:
        """Call the inbox once. Cancelled, it drops the connection and lets nothing more leave."""
        wiring, auth = attempt.wiring, self._config.auth
        if auth is None:
            return NotSent(reason="the receiver has no auth", cause=Cause.SECRET_MISSING)
        try:
            values = _values(attempt, auth.account_id)
            dsn = self._secrets.resolve(auth.secret, attempt.tenant_id)
        except Unsendable as error:
            return Refused(answer=Answer(excerpt=error.message))
        except SecretMissing as error:
            return NotSent(reason=error.message, cause=Cause.SECRET_MISSING)
        exchange = Exchange(attempt.gate)
        # Where a doubt costs nobody's time, a connection is used again.
        fresh = not (wiring.resend_safe or wiring.look_excludes)
        try:
            async with deadline(attempt.deadline_seconds):
                reply = await self._connections.call(dsn, exchange, _STATEMENTS["receive"], values, fresh=fresh)
        except _EXPECTED as error:
            return _without_reply(error, exchange)
        return outcome_of(reply, contract=wiring.contract, resend=attempt.resend, host=exchange.host)


def _values(attempt: Attempt, inbox: str) -> dict[str, Value]:
    """The parameters of one call. Raises Unsendable."""
    message = Message.of(attempt.wiring.tool, attempt)
    lane, fence = _fence_of(attempt.fence_token)
    return {
        "inbox": inbox,
        "sent_key": message.sent_key,
        "attempt": attempt.attempt,
        "lane": lane,
        "fence": fence,
        "digest": message.digest,
        "tenant_id": message.tenant_id,
        "operation_id": message.operation_id,
        "tool": message.tool,
        "resource": message.resource,
        "arguments": message.arguments,
        "expected_version": message.expected_version,
        "content_type": message.content_type,
        "body": message.body,
    }


def _fence_of(token: str | None) -> tuple[str | None, int | None]:
    """The lane and the number of a fence token. ValueError for one that no relay makes: it is never passed over."""
    if token is None:
        return None, None
    match = _FENCE.fullmatch(token)
    if match is None:
        raise ValueError("a fence token that is none")
    return match["lane"], int(match["fence"])


def _without_reply(error: Exception, exchange: Exchange) -> Outcome:
    """The phase decides, whatever was raised: before the first write nothing has left, from then on nobody knows."""
    word, cause = _word(error)
    answer = Answer(host=exchange.host)
    if exchange.phase is Phase.CONNECTING:
        unsent = cause if cause in UNSENT else Cause.NO_CONNECTION
        return NotSent(reason=word, answer=answer, cause=unsent)
    return Ambiguous(reason=word, answer=answer, cause=Cause.AMBIGUOUS if cause in UNSENT else cause)


def _word(error: Exception) -> tuple[str, Cause]:
    word, cause = next(row for kind, row in _RAISED.items() if isinstance(error, kind))
    detail = error.message if isinstance(error, SecretMissing) else error.reason if isinstance(error, TooLate) else ""
    return (f"{word}: {detail}" if detail else word), cause
