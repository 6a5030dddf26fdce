"""`Can this happen twice?`: what another attempt would risk."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from outbox.decide import FOREVER, NoResend
from outbox.guarantee import Promise
from outbox.inspect.dossier import Dossier
from outbox.inspect.explain import how_it_ended
from outbox.inspect.words import NO_RESEND, when
from outbox.states import Cause, State

Answer = Literal["no", "not while the conditions hold", "yes, harmlessly", "yes"]


@dataclass(frozen=True, slots=True)
class Twice:
    """
    The answer, for a retry now.

    `allowed`: `outbox retry` would do it. `refusal`: why not, in words. `window_closes_at`: until when a resend may
    begin (None: no window, or none is needed; FOREVER: for ever). `conditions` are what a "not while" rests on: the
    assumptions that nobody can check from here.
    """

    answer: Answer
    reason: str
    allowed: bool
    refusal: str | None
    guarantee: str | None
    window_closes_at: datetime | None
    conditions: tuple[str, ...]


def may_it_happen_twice(dossier: Dossier) -> Twice:
    """Say whether another attempt of this operation could have a second effect. Never changes anything."""
    guarantee = dossier.guarantee
    name, conditions = (guarantee.name, guarantee.conditions) if guarantee else (None, ())
    closes = refusal = None
    if dossier.again is not None:
        refusal = refusal_of(dossier)
        # Without a key there is no window that could close.
        has_window = dossier.again.refusal not in {NoResend.NO_KEY, NoResend.PERMISSION_GONE}
        closes = dossier.again.closes if has_window else None
        answer, reason = _in_doubt(dossier, refusal, closes)
    else:
        answer, reason, refusal = _certain(dossier)
    assumed = conditions if answer in {"not while the conditions hold", "yes, harmlessly"} else ()
    return Twice(answer, reason, refusal is None, refusal, name, closes, assumed)


def refusal_of(dossier: Dossier) -> str | None:
    """Say why an operation in doubt must not be sent again now; None: it may."""
    if dossier.again is None:
        return "its tool is gone, so no contract says what a repeat would do"
    return None if dossier.again.refusal is None else NO_RESEND[dossier.again.refusal]


def _in_doubt(dossier: Dossier, refusal: str | None, closes: datetime | None) -> tuple[Answer, str]:
    if refusal == NO_RESEND[NoResend.PERMISSION_GONE]:
        return "no", f"nothing may be sent: {refusal}"
    if refusal is not None:
        return "yes", f"the first attempt may have had its effect, and {refusal}"
    if dossier.guarantee is not None and dossier.guarantee.promise is Promise.GUARDED:
        return "not while the conditions hold", "a repeat would not find the version that it expects"
    if closes is None:
        return "yes, harmlessly", "the receiver documents that a repeat is harmless at any time"
    left = "for ever" if closes == FOREVER else f"until {when(closes, dossier.now)}"
    return "not while the conditions hold", f"the receiver recognises a repeat by its key, {left}"


def _certain(dossier: Dossier) -> tuple[Answer, str, str | None]:
    """For an operation that is not in doubt: the answer, its reason, and why a retry is refused."""
    match dossier.state:
        case State.AUTHORIZED if dossier.cause is Cause.CONTRADICTION:
            refusal = "a receipt exists, although no attempt should have had an effect"
            return "yes", refusal, refusal
        case State.AUTHORIZED:
            return _first_or_proven(dossier)
        case State.PROPOSED:
            return "no", "nothing was sent, and nothing is before somebody permits it", "nobody has permitted it"
        case State.EXECUTING:
            return "no", "an attempt runs, and no other one begins beside it", "an attempt runs"
        case _:
            return "no", "it has ended, and nothing follows from an end", how_it_ended(dossier.row)


def _first_or_proven(dossier: Dossier) -> tuple[Answer, str, str | None]:
    if not dossier.row["attempt"]:
        return "no", "nothing was ever sent: a retry makes the first attempt", None
    reason = "every earlier attempt is known to have had no effect"
    proofs_of_others = dossier.guarantee is not None and dossier.guarantee.promise is not Promise.FENCED
    if dossier.cause is Cause.PROVEN_ABSENT and proofs_of_others:
        return "not while the conditions hold", f"{reason}: a look proved it", None
    return "no", reason, None
