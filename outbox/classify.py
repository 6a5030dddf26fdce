"""
What an HTTP answer means: the contract's own rules first, then the default table. Pure.

The table is cautious in one direction: what is not known to prove anything is `Ambiguous`. A 2xx is a receipt only
where the contract says so; a 4xx that says "not executed" is `Refused`; a 5xx proves nothing.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from outbox.contract import AnswerRule, Contract, Verify
from outbox.matching import Seen, identifier, matches
from outbox.outcome import (
    Accepted,
    Ambiguous,
    Answer,
    InFlight,
    Mismatch,
    NotSent,
    Outcome,
    Receipt,
    ReceiverFault,
    Refused,
    StaleFence,
    StoredFailure,
    Throttled,
)
from outbox.states import Cause

# A definitive refusal: the request was understood, or cannot be, and was not carried out.
REFUSED_STATUSES: Final = frozenset({400, 404, 405, 406, 410, 411, 413, 414, 415, 422, 428, 431, 501})
# The server says that it did not process this request: wrong host for the connection, or too early.
NOT_PROCESSED_STATUSES: Final = frozenset({421, 425})

_SERVER_ERRORS: Final = 500
_SECONDS: Final = re.compile(r"\d{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsVerify:
    """A success signal that becomes a receipt only when a read of the resource finds it (`verified`)."""

    verify: Verify
    external_id: str
    answer: Answer
    receipt: str


def classify(
    status: int,
    fields: Mapping[str, str],
    body: bytes,
    *,
    contract: Contract,
    resend: bool,
    sent_key: str,
    truncated: bool = False,
    host: str | None = None,
) -> Outcome | NeedsVerify:
    """
    Say what one answer means. Total: every status and every body has a meaning, and nothing is raised.

    `fields`: its headers, as `matching.joined` gives them.
    `resend`: an earlier attempt of this operation is unresolved. `truncated`: the body was cut, by our limit or by the
    connection; then nothing that it says counts, not even its status.
    """
    contract = contract.trusted()
    seen = Seen(status, fields, body, truncated, host)
    answer = seen.answer(contract.request_id_header)
    if truncated:
        return Ambiguous(reason="the answer was cut short", answer=answer)
    if contract.fencing != "none" and contract.fencing.stale and matches(contract.fencing.stale, seen, sent_key):
        return StaleFence(answer=answer)
    for rule in contract.answers:
        if _applies(rule, resend) and matches(rule, seen, sent_key):
            outcome = _declared(rule, seen, answer, contract)
            break
    else:
        outcome = _default(seen, answer, contract)
    if contract.replays and isinstance(outcome, NotSent):
        # The copy that was answered was not processed. Another copy may have been.
        return Ambiguous(reason="not processed, but the path repeats requests by itself", answer=answer)
    return outcome


def verified(needs: NeedsVerify, status: int, body: bytes, *, truncated: bool = False) -> Outcome:
    """Say what the verifying read shows: the resource is there (200, a whole body), or nothing is proven."""
    if status == 200 and body and not truncated:  # noqa: PLR2004 -- the status of a record that was read
        return Receipt(answer=needs.answer, receipt=needs.receipt, external_id=needs.external_id)
    return Ambiguous(reason=f"a success that its verifying read did not find (HTTP {status})", answer=needs.answer)


def _applies(rule: AnswerRule, resend: bool) -> bool:  # noqa: FBT001 -- one fact, passed on
    return rule.attempt == "any" or (rule.attempt == "resend") == resend


def _declared(rule: AnswerRule, seen: Seen, answer: Answer, contract: Contract) -> Outcome | NeedsVerify:
    if rule.means in {"receipt", "accepted"}:
        external_id = None if rule.external_id is None else identifier(seen.at(rule.external_id))
        if rule.external_id is not None and external_id is None:
            return Ambiguous(reason=f"a success without the id that belongs at {rule.external_id}", answer=answer)
        if rule.means == "accepted":
            return Accepted(answer=answer, external_id=external_id)
        if rule.verify is not None and external_id is not None:
            return NeedsVerify(verify=rule.verify, external_id=external_id, answer=answer, receipt=seen.record())
        return Receipt(answer=answer, receipt=seen.record(), external_id=external_id)
    if rule.means == "refused":
        return Refused(answer=answer, replayed=_is_replay(seen, contract))
    return _MEANINGS[rule.means](answer, retry_after_seconds(seen.fields))


def _not_processed(reason: str, answer: Answer) -> NotSent:
    return NotSent(reason=reason, answer=answer, cause=Cause.NOT_PROCESSED)


_MEANINGS: Final[Mapping[str, Callable[[Answer, float | None], Outcome]]] = MappingProxyType(
    {
        "precondition_failed": lambda answer, _: Refused(answer=answer, cause=Cause.PRECONDITION_FAILED),
        "window_closed": lambda answer, _: Refused(answer=answer, cause=Cause.WINDOW_CLOSED),
        "not_sent": lambda answer, _: _not_processed("the receiver says that it did not process it", answer),
        "throttled": lambda answer, seconds: Throttled(answer=answer, retry_after_seconds=seconds),
        "in_flight": lambda answer, seconds: InFlight(answer=answer, retry_after_seconds=seconds),
        "mismatch": lambda answer, _: Mismatch(answer=answer),
        "stored_failure": lambda answer, _: StoredFailure(answer=answer),
        "receiver_fault": lambda answer, _: ReceiverFault(answer=answer),
        "forbidden": lambda answer, _: ReceiverFault(answer=answer, forbidden=True),
        "stale_fence": lambda answer, _: StaleFence(answer=answer),
        "ambiguous": lambda answer, _: Ambiguous(reason="the contract says that it proves nothing", answer=answer),
    }
)


def _default(seen: Seen, answer: Answer, contract: Contract) -> Outcome:
    replayed = _is_replay(seen, contract)
    match seen.status:
        case 202:
            return Accepted(answer=answer)
        case 412:
            return Refused(answer=answer, cause=Cause.PRECONDITION_FAILED, replayed=replayed)
        case 401 | 403:
            return ReceiverFault(answer=answer, forbidden=seen.status == 403)  # noqa: PLR2004 -- the case above
        case 429:
            return Throttled(answer=answer, retry_after_seconds=retry_after_seconds(seen.fields))
        case status if status in NOT_PROCESSED_STATUSES:
            return _not_processed(f"HTTP {status}: not processed", answer)
        case status if status in REFUSED_STATUSES or (300 <= status <= 399 and status != 303):  # noqa: PLR2004
            # A redirect is never followed. 303 is different: after a POST it often means "done, look there".
            return Refused(answer=answer, replayed=replayed)
        case status if status >= _SERVER_ERRORS and replayed:
            return StoredFailure(answer=answer)
        case status:
            return Ambiguous(reason=f"HTTP {status} proves nothing", answer=answer)


def _is_replay(seen: Seen, contract: Contract) -> bool:
    marker = contract.replay_marker
    return marker is not None and seen.fields.get(marker.header.lower(), "").strip() == marker.is_


def retry_after_seconds(fields: Mapping[str, str]) -> float | None:
    """
    Return what Retry-After asks for, in seconds and not clamped, from headers by lower-case name.

    Seconds only: whoever speaks HTTP has made seconds of a date, for which it takes a clock. None: nothing is asked.
    """
    value = fields.get("retry-after", "").strip()
    return float(value) if _SECONDS.fullmatch(value) else None
