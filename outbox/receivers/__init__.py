"""What a receiver is: one way to cause an effect, and one way to ask about it.

A receiver says what it saw; it decides nothing. `deliver` returns one value of the closed set in `outbox.outcome` and
raises nothing for expected trouble: where nothing is proven, the answer is `Ambiguous`. `lookup` causes no effect.

The rule that every implementation keeps, and `outbox.receivers.conformance` tests: **one attempt is one request**. No
retries of its own, no redirects followed, no second connection once a byte has left.

Transports are imported when they are asked for. Third parties add theirs under the entry-point group
`outbox.receivers`, as a factory with the signature of `Factory`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from outbox.contract import Wiring
from outbox.evidence import Observation
from outbox.outcome import Outcome
from outbox.receivers.registry import Factory, open_receiver, transports

if TYPE_CHECKING:
    from outbox.wire import WireRequest

__all__ = ["Attempt", "Factory", "Gate", "Question", "Receiver", "TooLate", "open_receiver", "transports"]


class TooLate(Exception):
    """The last check before the first byte said no: lease, window or permission no longer cover this attempt.

    Nothing has left, and nothing will: the outcome of the attempt is `NotSent`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Gate(Protocol):
    """What stands between a request that is ready and its first byte. The relay makes one per attempt.

    A receiver calls, in this order and with no other work in between: `sending()`, `check()`, then hands the first
    byte to the kernel; and `sent()` once the last byte is there, or as soon as it is certain that no further byte will
    leave. `sent()` follows every `sending()`, also after an error or a cancellation.
    """

    def sending(self) -> None:
        """The next act is the last check. From here on a dead man's switch may end a process that is stopped."""

    def check(self) -> None:
        """Raise TooLate if this attempt must not be sent any more. Looks at clocks only, does no I/O."""

    def sent(self) -> None:
        """The last byte is with the kernel, or no byte will follow."""


class Attempt(NamedTuple):
    """One try at causing the effect of one operation, whose exposure has been committed."""

    seq: int
    attempt: int
    tenant_id: str
    operation_id: str
    tool: str
    resource: str | None
    expected_version: str | None
    sent_key: str
    wiring: Wiring
    gate: Gate
    # Counted from the begin of the attempt: what is left of it when `deliver` is called.
    deadline_seconds: float
    # Canonical JSON text; or None, and then there is a body with its content type.
    arguments: str | None = None
    body: bytes | None = None
    content_type: str | None = None
    # An earlier attempt of this operation is unresolved: most answers then speak of this attempt only.
    resend: bool = False
    # Such as '"1c6e.../stripe/3";fence=17', an item of a structured field.
    fence_token: str | None = None
    traceparent: str | None = None
    first_sent_at: datetime | None = None
    # The HTTP request of this attempt, where it has been built already: what was judged is what is sent.
    request: "WireRequest | None" = None

    def __repr__(self) -> str:
        return f"Attempt(seq={self.seq}, attempt={self.attempt}, tool={self.tool!r})"  # never what it asks for

    def wire_request(self) -> "WireRequest":
        """
        The HTTP request of this attempt.

        Raises `wire.Unsendable`, also where the tool says no request.
        """
        if self.request is not None:
            return self.request
        from outbox.wire import build  # whoever only reads never loads what builds a request that acts

        return build(self.wiring, self)


@dataclass(frozen=True, slots=True)
class Question:
    """What happened to this operation? Asked of the receiver's own records."""

    seq: int
    tenant_id: str
    operation_id: str
    tool: str
    resource: str | None
    sent_key: str
    wiring: Wiring
    deadline_seconds: float
    expected_version: str | None = None
    # The latest attempt that was begun when this was asked; 0: none is known. Where a look leaves a tombstone, the
    # receiver refuses every attempt up to this one before it reads, and the number is given back as the fence.
    attempt: int = 0
    # Sent with the look where the receiver raises its mark by it, and given back in what was observed.
    fence: int | None = None
    fence_token: str | None = None
    traceparent: str | None = None


class Receiver(Protocol):
    """A connection to something that produces effects. One object serves one receiver of the configuration."""

    async def deliver(self, attempt: Attempt) -> Outcome:
        """Try once to cause the effect, and say what was seen.

        If the task is cancelled, no further byte leaves; whether one had left is known to the gate (`sending` called).
        """

    async def lookup(self, question: Question) -> Observation:
        """Read the receiver's own record of this operation. Causes no effect. A read that fails proves nothing."""

    async def aclose(self) -> None:
        """Close all connections. May be called twice."""
