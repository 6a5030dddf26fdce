"""What an inbox says, and what its errors mean. Pure.

An error is never ambiguous: PostgreSQL says it only of a transaction that it has rolled back, so nothing happened. What
is left to tell apart is who is at fault: the operation (it is refused), the moment (it is tried again), this tool, or
the whole way to the inbox. What proves nothing is silence, and a connection that ends early.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from outbox.contract import AnswerRule, Contract
from outbox.evidence import Observation, Verdict
from outbox.outcome import (
    Ambiguous,
    Answer,
    Mismatch,
    NotSent,
    Outcome,
    Receipt,
    ReceiverFault,
    Refused,
    StaleFence,
    Throttled,
)
from outbox.receivers.postgres.exchange import Fault, Reply
from outbox.states import Cause

# What a handler may raise without anything being declared: the numbers of HTTP, for whoever knows those.
# What the kit itself raises is here too: OB403 and OB404 of one tool, OB421 and OB428 of the whole inbox.
_OF_THE_INBOX: Final[Mapping[str, str]] = MappingProxyType(
    {
        "OB403": "forbidden",
        "OB404": "forbidden",
        "OB412": "precondition_failed",
        "OB421": "receiver_fault",
        "OB422": "refused",
        "OB428": "receiver_fault",
        "OB429": "throttled",
    }
)
_AT_FAULT_IS_THE_WAY: Final = frozenset({"OB421", "OB428"})
# Another moment will be different: serialization, deadlock, a lock that was not to be had, resources, a standby.
_ANOTHER_MOMENT: Final = ("40001", "40P01", "55P03", "53", "25006", "57P03")


def outcome_of(reply: Reply, *, contract: Contract, resend: bool, host: str | None) -> Outcome:
    """Say what one call meant. Total: what no inbox says is ambiguous, and nothing is raised."""
    if reply.fault is not None:
        return _rolled_back(reply.fault, contract=contract, resend=resend, host=host)
    row, said = reply.row, reply.row.get("said")
    answer = Answer(excerpt=said or "", host=host)
    if said in {"effect", "repeated"}:
        receipt = row.get("receipt")
        return Receipt(answer=answer, receipt="{}" if receipt is None else receipt, external_id=row.get("external_id"))
    if said == "mismatch":
        return Mismatch(answer=answer)
    if said == "shut_out":
        return NotSent(reason="a look has shut this attempt out", answer=answer, cause=Cause.NOT_PROCESSED)
    if said == "stale_fence":
        return StaleFence(answer=answer)
    return Ambiguous(reason="the inbox answered in words that nobody knows", answer=answer)


def observation_of(reply: Reply, *, attempt: int, host: str | None) -> Observation:
    """Say what one look showed. `attempt` is the one that it was to shut out, 0 if none was."""
    if reply.fault is not None:
        answer = _answer(reply.fault, host)
        return Observation(verdict=Verdict.UNKNOWN, note=f"the look failed: {answer.excerpt}", answer=answer)
    row, said = reply.row, reply.row.get("said")
    answer = Answer(excerpt=said or "", host=host)
    if said == "effect":
        receipt = row.get("receipt")
        return Observation(
            verdict=Verdict.CONFIRMED,
            external_id=row.get("external_id"),
            receipt="{}" if receipt is None else receipt,
            answer=answer,
        )
    if said != "nothing":
        note = "the inbox answered in words that nobody knows"
        return Observation(verdict=Verdict.UNKNOWN, note=note, answer=answer)
    refused_to = int(row.get("refused_to") or 0)
    return Observation(verdict=Verdict.NOT_FOUND, fence=attempt if 0 < attempt <= refused_to else None, answer=answer)


def _rolled_back(fault: Fault, *, contract: Contract, resend: bool, host: str | None) -> Outcome:
    answer = _answer(fault, host)
    if not fault.inside or fault.sqlstate in _AT_FAULT_IS_THE_WAY:
        means = "throttled" if _is_of(fault, _ANOTHER_MOMENT) else "receiver_fault"
    else:
        means = _declared(fault, contract.trusted().answers, resend) or _by_default(fault)
    match means:
        case "refused":
            return Refused(answer=answer)
        case "precondition_failed":
            return Refused(answer=answer, cause=Cause.PRECONDITION_FAILED)
        case "throttled":
            return Throttled(answer=answer)
        case "receiver_fault" | "forbidden":
            return ReceiverFault(answer=answer, forbidden=means == "forbidden")
        case _:
            return Ambiguous(reason="the contract says that it proves nothing", answer=answer)


def _declared(fault: Fault, rules: tuple[AnswerRule, ...], resend: bool) -> str | None:  # noqa: FBT001 - one fact
    for rule in rules:
        applies = rule.attempt == "any" or (rule.attempt == "resend") == resend
        if applies and rule.sqlstate is not None and _is_of(fault, rule.sqlstate):
            return rule.means
    return None


def _by_default(fault: Fault) -> str:
    if fault.sqlstate in _OF_THE_INBOX:
        return _OF_THE_INBOX[fault.sqlstate]
    # Whatever else a handler raises, perhaps by mistake, ends no operation: it is tried again, and then a person looks.
    return "throttled" if _is_of(fault, _ANOTHER_MOMENT) else "forbidden"


def _is_of(fault: Fault, states: tuple[str, ...]) -> bool:
    """Whether it is one of these errors, or of one of these classes."""
    return fault.sqlstate in states or fault.sqlstate[:2] in states


def _answer(fault: Fault, host: str | None) -> Answer:
    return Answer(excerpt=f"SQLSTATE {fault.sqlstate}: {fault.message}", host=host)
