"""What the postgres receiver makes of words that no inbox says, what it sends, and how it lets go."""

import os
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg.pq import ConnStatus, TransactionStatus

from outbox.evidence import Verdict
from outbox.outcome import Ambiguous, Receipt
from outbox.receivers import transports
from outbox.receivers.postgres.answers import observation_of, outcome_of
from outbox.receivers.postgres.exchange import Fault, Link, Reply
from outbox.wire import Unsendable, digest_of
from outbox.wire_message import Message
from tests.support.inbox import TOOL, attempt, tool_config

CONTRACT = tool_config().contract
assert CONTRACT is not None


@pytest.mark.parametrize("row", [{}, {"said": None}, {"said": "done"}, {"what": "effect"}])
def test_words_that_no_inbox_says_prove_nothing(row: dict[str, str | None]) -> None:
    assert CONTRACT is not None
    assert isinstance(outcome_of(Reply(row), contract=CONTRACT, resend=False, host=None), Ambiguous)
    assert observation_of(Reply(row), attempt=1, host=None).verdict is Verdict.UNKNOWN


def test_a_look_that_failed_proves_nothing_and_says_why() -> None:
    seen = observation_of(Reply({}, Fault("42501", "permission denied", inside=False)), attempt=1, host="h")
    assert seen.verdict is Verdict.UNKNOWN
    assert "permission denied" in seen.note


@pytest.mark.parametrize(
    ("attempt_", "refused_to", "fence"), [(1, "1", 1), (2, "5", 2), (3, "2", None), (0, "0", None), (0, "4", None)]
)
def test_only_an_attempt_that_was_shut_out_is_proven_absent(attempt_: int, refused_to: str, fence: int | None) -> None:
    seen = observation_of(Reply({"said": "nothing", "refused_to": refused_to}), attempt=attempt_, host=None)
    assert (seen.verdict, seen.fence) == (Verdict.NOT_FOUND, fence)


def test_an_unverified_answer_is_not_relied_on() -> None:
    contract = tool_config({"unverified": ["answers"]}).contract
    assert contract is not None
    said = outcome_of(Reply({}, Fault("23514", "x", inside=True)), contract=contract, resend=False, host=None)
    assert type(said).__name__ == "ReceiverFault"


def test_an_error_of_the_call_itself_is_never_taken_for_one_of_the_handler() -> None:
    """A contract that calls class 42 a refusal must not refuse everything where the inbox is not installed."""
    contract = tool_config({"answers": [{"sqlstate": ["42"], "means": "refused"}]}).contract
    assert contract is not None
    kinds = [
        type(outcome_of(Reply({}, Fault("42883", "x", inside=inside)), contract=contract, resend=False, host=None))
        for inside in (False, True)
    ]
    assert [kind.__name__ for kind in kinds] == ["ReceiverFault", "Refused"]


def test_a_receipt_without_words_is_a_receipt() -> None:
    assert CONTRACT is not None
    row = {"said": "effect", "receipt": None, "external_id": None}
    assert isinstance(outcome_of(Reply(row), contract=CONTRACT, resend=True, host=None), Receipt)


# ---------------------------------------------------------------------------------------------------------- the message


def test_the_digest_is_of_everything_that_is_asked_and_of_nothing_else() -> None:
    made = attempt()
    first = digest_of(made.wiring, made)
    changes: list[dict[str, Any]] = [
        {"tenant_id": "zeta"},
        {"operation_id": "other"},
        {"resource": None},
        {"resource": ""},
        {"expected_version": "1"},
        {"sent_key": "0f6b2c3d-1a2b-5c4d-8e5f-60718293a4b5"},
        {"arguments": '{"quantity":2}'},
        {"arguments": None, "body": b'{"quantity":1}', "content_type": "application/json"},
    ]
    digests = [digest_of(made.wiring, attempt(**change)) for change in changes]
    assert len({first, *digests}) == len(changes) + 1
    assert digest_of(made.wiring, attempt(attempt=2, fence_token=None, traceparent="x", resend=True)) == first


def test_the_digest_is_the_same_in_every_release() -> None:
    """Another one here means that no resend of an operation in doubt is possible over the upgrade."""
    made = attempt()
    digest = digest_of(made.wiring, made)
    assert digest is not None
    assert digest.hex() == "ce50f4758c79a754b351604eae3d20d787b7c2101494742df204a2a5f8ddf66e"


def test_a_redacted_operation_cannot_be_sent() -> None:
    with pytest.raises(Unsendable, match="redacted"):
        Message.of(TOOL, attempt(arguments=None))


@pytest.mark.parametrize(
    ("arguments", "held"), [(r'{"a":"\u0000"}', True), (r'{"a":"\\u0000"}', False), (r'{"a":"\\\u0000"}', True)]
)
def test_the_one_character_that_jsonb_cannot_hold_is_found(arguments: str, held: bool) -> None:
    if held:
        with pytest.raises(Unsendable, match=r"U\+0000"):
            Message.of(TOOL, attempt(arguments=arguments))
    else:
        assert Message.of(TOOL, attempt(arguments=arguments)).arguments == arguments


# ----------------------------------------------------------------------------------------------------------- letting go


class Polite:
    """What libpq does at the end: say good-bye, behind whatever it still holds."""

    status = ConnStatus.OK

    def __init__(self, sock: socket.socket, transaction_status: TransactionStatus) -> None:
        self.socket = sock.fileno()
        self.transaction_status = transaction_status
        self.refused = False

    def finish(self) -> None:
        try:
            os.write(self.socket, b"the rest of the statement, and good-bye")
        except BrokenPipeError:
            self.refused = True


@pytest.mark.parametrize(
    ("transaction_status", "refused"), [(TransactionStatus.ACTIVE, True), (TransactionStatus.IDLE, False)]
)
def test_whoever_lets_go_in_the_middle_sends_nothing_more(transaction_status: TransactionStatus, refused: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        polite = Polite(ours, transaction_status)
        connection = SimpleNamespace(pgconn=polite, add_notice_handler=lambda _: None)
        Link(cast("Any", connection)).drop()
        assert polite.refused is refused
        assert (theirs.recv(100) == b"") is refused


def test_the_transport_is_offered() -> None:
    assert "postgres" in transports()
