"""
Attempts that are over, as columns of the three statements that record them, and of the one that keeps what comes late.

Pure. Which statement it is follows from the transition that `outbox.decide` made; nothing here chooses a state.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, assert_never

from outbox.decide.facts import Reason, Step
from outbox.outcome import NotSent, Receipt, Throttled
from outbox.states import TERMINAL, Cause
from relay.begun import Finished

Statement = Literal["end_operations", "withdraw_attempts", "record_unknown"]
Columns = dict[str, list[Any]]


def statement_for(finished: Finished) -> Statement:
    """Which statement records this attempt."""
    if finished.transition.state in TERMINAL:
        return "end_operations"
    return "withdraw_attempts" if finished.transition.withdraw else "record_unknown"


def columns(statement: Statement, items: Sequence[Finished], *, bare: bool = False) -> Columns:
    """
    Return the parameters of a statement. `bare`: without any text that came from outside.

    A bare receipt is still a receipt: the effect is proven, only the words of the proof could not be kept.
    """
    own: Columns
    match statement:
        case "end_operations":
            own = _ends(items)
        case "withdraw_attempts":
            own = _next(items) | _withdrawals(items)
        case "record_unknown":
            own = _next(items)
            own["accepteds"] = [one.transition.accepted for one in items]
        case _:
            assert_never(statement)
    if bare:
        own |= {name: [None] * len(items) for name in ("receipts", "external_ids") if name in own}
    return _attempts(items) | own | _identity(items) | _answers(items, bare=bare)


def late_columns(items: Sequence[Finished], *, bare: bool = False) -> Columns:
    """Return the parameters of `witness_late`."""
    found = _attempts(items) | _receipts(items)
    found |= {"kinds": [_kind(one) for one in items], "notes": [_note(one) for one in items]}
    # Also the name that a receiver gives to work which it has accepted: whoever asks it will be asked for that.
    found["external_ids"] = [getattr(one.outcome, "external_id", None) for one in items]
    found |= {name: values for name, values in _answers(items).items() if name != "peers"}
    if bare:
        found["notes"] = [type(one.outcome).__name__ for one in items]  # decisions read it (fragments.sql)
        keep = {"seqs", "attempts", "kinds", "statuses", "notes"}
        found = {name: values if name in keep else [None] * len(items) for name, values in found.items()}
    return found


def _attempts(items: Sequence[Finished]) -> Columns:
    return {"seqs": [one.begun.seq for one in items], "attempts": [one.begun.attempt for one in items]}


def _ends(items: Sequence[Finished]) -> Columns:
    return {
        "states": [one.transition.state.value for one in items],
        "causes": [_cause(one) for one in items],
        # What decides says so of a refusal on a resend only where it speaks for every earlier attempt too.
        "for_alls": [one.begun.in_doubt for one in items],
        **_receipts(items),
    }


def _next(items: Sequence[Finished]) -> Columns:
    return {
        "causes": [_cause(one) for one in items],
        "steps": [one.transition.step.value for one in items],
        "delays": [one.transition.delay_seconds or 0.0 for one in items],
        "patiences": [one.patience_seconds if one.transition.step is Step.RESEND else 0.0 for one in items],
        "reasons": [_reason(one) for one in items],
        "no_resends": [one.transition.no_more_resends for one in items],
    }


def _withdrawals(items: Sequence[Finished]) -> Columns:
    return {
        "not_sents": [isinstance(one.outcome, NotSent) for one in items],
        "throttleds": [isinstance(one.outcome, Throttled) for one in items],
        "firsts": [one.begun.first_exposure for one in items],
    }


def _identity(items: Sequence[Finished]) -> Columns:
    return {"sent_keys": [one.sent_key for one in items], "wire_digests": [one.wire_digest for one in items]}


def _answers(items: Sequence[Finished], *, bare: bool = False) -> Columns:
    answers = [one.outcome.answer for one in items]
    if bare:
        nothing = [None] * len(items)
        texts: Columns = {"excerpts": nothing, "request_ids": nothing, "peers": nothing}
    else:
        texts = {
            "excerpts": [_excerpt(one) for one in items],
            "request_ids": [answer.request_id for answer in answers],
            "peers": [answer.host for answer in answers],
        }
    return {"statuses": [answer.status for answer in answers], **texts}


def _excerpt(finished: Finished) -> str | None:
    """What came back, unless that is the receipt, which is kept anyway."""
    outcome = finished.outcome
    if isinstance(outcome, Receipt) and outcome.receipt.startswith(outcome.answer.excerpt):
        return None
    return outcome.answer.excerpt or None


def _receipts(items: Sequence[Finished]) -> Columns:
    receipts = [one.outcome if isinstance(one.outcome, Receipt) else None for one in items]
    return {
        "receipts": [receipt.receipt if receipt else None for receipt in receipts],
        "external_ids": [receipt.external_id if receipt else None for receipt in receipts],
    }


def _cause(finished: Finished) -> str | None:
    cause = finished.transition.cause
    return None if cause is None else cause.value


def _kind(finished: Finished) -> str:
    if isinstance(finished.outcome, Receipt):
        return "receipt"
    return "not_sent" if isinstance(finished.outcome, NotSent) else "late_answer"


def _note(finished: Finished) -> str:
    reason = getattr(finished.outcome, "reason", None) or _cause(finished)
    name = type(finished.outcome).__name__
    return f"{name}: {reason}" if reason else name


_REASONS: Final[dict[Cause, str]] = {Cause.MISMATCH: Reason.MISMATCH.value, Cause.FORBIDDEN: Reason.FORBIDDEN.value}


def _reason(finished: Finished) -> str | None:
    """Why a person is asked, in the words that the reconciler uses too; else the cause itself."""
    transition = finished.transition
    if transition.step is not Step.PERSON:
        return None
    if transition.cause in _REASONS:
        return _REASONS[transition.cause]
    if transition.withdraw and transition.cause is not None:
        return transition.cause.value
    return Reason.NO_LOOKUP.value
