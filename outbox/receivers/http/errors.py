"""What an exception of the network means: one table, and one rule above it.

The rule: **the phase decides.** If the first write had not begun, nothing left this machine, and the attempt was
`NotSent`, whatever was raised; from the first write on it is `Ambiguous`, whatever was raised. No exception class is
trusted to know which of the two it is: "connection reset" is raised before and after, by aiohttp, asyncio and ssl.

The table gives the uniform word that people see and the closed cause. Exception texts are not kept: libraries put URLs,
header values and addresses of the inner network into them.
"""

import ssl
from asyncio import IncompleteReadError
from collections.abc import Mapping
from types import MappingProxyType

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from outbox.errors import ReceiverError, SecretMissing, UnsafeTarget
from outbox.outcome import Ambiguous, Answer, NotSent
from outbox.receivers import TooLate
from outbox.receivers.http.exchange import Phase, SentAlready, Stale
from outbox.states import UNSENT, Cause
from outbox.wire import Unsendable

# From the most special to the most general: the first row whose class matches counts. Every class that aiohttp 3.14
# exports is reached by a row, which a test checks; so a class that a newer aiohttp adds is noticed, and means no more
# than its base class until somebody has read it.
TABLE: Mapping[type[Exception], tuple[str, Cause]] = MappingProxyType(
    {
        # Before there is a connection.
        TooLate: ("too late to send", Cause.TOO_LATE),
        SecretMissing: ("the credential is missing", Cause.SECRET_MISSING),
        UnsafeTarget: ("the target's address is not allowed", Cause.UNSAFE_TARGET),
        Unsendable: ("the request cannot be made", Cause.NOT_SENT),
        Stale: ("the connection was closed before the request", Cause.CONNECTION_LOST),
        aiohttp.InvalidURL: ("the target is no valid URL", Cause.AMBIGUOUS),
        aiohttp.ClientConnectorDNSError: ("the name does not resolve", Cause.NAME_UNRESOLVED),
        aiohttp.ClientConnectorCertificateError: ("the certificate is not trusted", Cause.TLS_FAILED),
        aiohttp.ServerFingerprintMismatch: ("the certificate is not the pinned one", Cause.TLS_FAILED),
        aiohttp.ClientConnectorSSLError: ("the TLS handshake failed", Cause.TLS_FAILED),
        aiohttp.ClientConnectorError: ("no connection", Cause.CONNECTION_LOST),
        # Time.
        TimeoutError: ("no answer within the deadline", Cause.TIMEOUT),
        # After the first byte.
        SentAlready: ("the connection was lost", Cause.CONNECTION_LOST),
        ssl.SSLError: ("the TLS connection broke", Cause.CONNECTION_LOST),
        aiohttp.ServerDisconnectedError: ("the connection was closed without an answer", Cause.CONNECTION_LOST),
        aiohttp.ClientPayloadError: ("the answer ended early", Cause.CONNECTION_LOST),
        aiohttp.ClientResponseError: ("the answer is not HTTP", Cause.AMBIGUOUS),
        HttpProcessingError: ("the answer is not HTTP", Cause.AMBIGUOUS),
        IncompleteReadError: ("the answer ended early", Cause.CONNECTION_LOST),
        aiohttp.ClientConnectionError: ("the connection was lost", Cause.CONNECTION_LOST),
        OSError: ("the connection was lost", Cause.CONNECTION_LOST),
        aiohttp.ClientError: ("the exchange failed", Cause.AMBIGUOUS),
        # aiohttp refuses what it cannot send with plain ValueErrors.
        ValueError: ("the request cannot be sent", Cause.AMBIGUOUS),
    }
)

EXPECTED: tuple[type[Exception], ...] = tuple(TABLE)
"""What one exchange may raise. Anything else is nobody's expectation, and is for the edge of the attempt."""


def describe(error: Exception) -> tuple[str, Cause]:
    """The word and the cause of the first row that this exception belongs to; our own errors say what they found."""
    word, cause = next(row for kind, row in TABLE.items() if isinstance(error, kind))
    detail = error.message if isinstance(error, ReceiverError) else error.reason if isinstance(error, TooLate) else ""
    return (f"{word}: {detail}" if detail else word), cause


def outcome_of(error: Exception, phase: Phase, host: str) -> NotSent | Ambiguous:
    """What an exchange that ended in this exception says about its attempt."""
    word, cause = describe(error)
    if phase is Phase.CONNECTING:
        # The rows that name no fault of ours: whoever should have been there was not.
        unreachable = cause in {Cause.CONNECTION_LOST, Cause.TIMEOUT, Cause.TLS_FAILED, Cause.NAME_UNRESOLVED}
        return NotSent(reason=word, answer=Answer(host=host), cause=_unsent(error, cause), unreachable=unreachable)
    return Ambiguous(reason=word, cause=Cause.AMBIGUOUS if cause in UNSENT else cause, answer=Answer(host=host))


def _unsent(error: Exception, cause: Cause) -> Cause:
    """Why nothing left, where that is how it ended."""
    if isinstance(error, ssl.SSLError):
        return Cause.TLS_FAILED
    if cause in {Cause.CONNECTION_LOST, Cause.TIMEOUT}:
        return Cause.NO_CONNECTION
    return cause if cause in UNSENT else Cause.NOT_SENT
