"""What happens next to an operation, when, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, assert_never

from outbox.decide import Authorize, Look, Person, Reject, Resend, Succeed
from outbox.inspect.again import reason_of, why_a_person
from outbox.inspect.dossier import Dossier
from outbox.inspect.unsent import REFUSING_US, unsent_cause, why_unsent
from outbox.inspect.words import clock, in_words
from outbox.states import Cause, State

StepName = Literal["approve", "begin", "answer", "look", "resend", "settle", "person"]


@dataclass(frozen=True, slots=True)
class NextStep:
    """
    One step, and nobody's promise that it succeeds.

    `approve`: somebody must permit it. `begin`: a relay attempts it. `answer`: an attempt runs. `look`: a reconciler
    asks the receiver. `resend`: a relay sends it again with the same key. `settle`: a reconciler writes what is proven
    already. `person`: somebody must decide. `at` is None where no date is known.
    """

    step: StepName
    at: datetime | None
    reason: str


def next_of(dossier: Dossier) -> NextStep | None:
    """Say what comes next; None for an operation that has ended."""
    match dossier.state:
        case State.SUCCEEDED | State.REJECTED:
            return None
        case State.PROPOSED:
            return NextStep("approve", None, "its tool asks for an approval, and nobody has decided")
        case State.AUTHORIZED:
            return _begin(dossier)
        case State.EXECUTING:
            return _answer(dossier)
        case State.UNKNOWN:
            return _in_doubt(dossier)
    assert_never(dossier.state)


def _begin(dossier: Dossier) -> NextStep:
    row = dossier.row
    at: datetime | None = row["pending_at"]
    if dossier.cause is Cause.CONTRADICTION:
        return NextStep("person", None, in_words(dossier.cause))
    if row["needs_person"] or at is None:
        return NextStep("person", None, reason_of(row, None) or in_words(dossier.cause))
    if row["permission_until"] is not None and row["permission_until"] <= dossier.now:
        return NextStep("begin", None, "its permission has expired: it is about to be rejected")
    if not row["policy_holds"]:
        return NextStep("begin", None, "the policy of its tool has changed: it is about to be decided again")
    if (held := _held_back(dossier, "begin")) is not None:
        return held
    if at > dossier.now:
        return NextStep("begin", at, _back_off(dossier) or "it is not to begin before that date")
    if not row["lane_held"]:
        return NextStep("begin", None, "it is due, and no relay holds its lane")
    ahead = f", {dossier.ahead} come before it" if dossier.ahead else ""
    return NextStep("begin", at, f"it is due{ahead}")


def _back_off(dossier: Dossier) -> str:
    """Why it waits: what its latest attempt ended with."""
    cause = unsent_cause(dossier.row)
    return in_words(dossier.cause) if cause is None else why_unsent(cause, dossier.row)


def _held_back(dossier: Dossier, step: StepName) -> NextStep | None:
    """What keeps an attempt from beginning, whatever its date."""
    for obstacle in dossier.obstacles:
        name, until, detail = obstacle["name"], obstacle["until"], obstacle["detail"]
        match obstacle["kind"]:
            case "paused":
                since = f"since {clock(obstacle['since'])} by {obstacle['who']}"
                return NextStep(step, None, f"{name} is paused {since}: {detail}")
            case "circuit":
                return NextStep(step, until, f"receiver {name} is left alone, and tried now and then: {detail}")
            case "blocked":
                return NextStep(step, None, f"operation {name} of the same ordering key comes first, and is {detail}")
            case "landing":
                why = f"an earlier attempt of operation {name} of its key may land until then"
                return NextStep(step, until, why)
    return None


def ways_on(dossier: Dossier) -> Iterator[str]:
    """Say how to end what keeps an attempt from beginning, where somebody can: a pause, or the wait for a probe."""
    for obstacle in dossier.obstacles:
        name = obstacle["name"]
        if obstacle["kind"] == "paused":
            yield f"Nothing begins while {name} is paused: outbox resume {name} --reason TEXT."
        elif obstacle["kind"] == "circuit":
            left_alone = f"Receiver {name} is left alone, and tried every minute at least"
            yield f"{left_alone}; at once: outbox resume receiver {name} --reason TEXT."


def _answer(dossier: Dossier) -> NextStep:
    if dossier.wiring is None:
        return NextStep("answer", None, "an attempt runs")
    begun: datetime = dossier.row["begun_at"]
    deadline = begun + timedelta(seconds=dossier.wiring.deadline_seconds)
    if deadline > dossier.now:
        return NextStep("answer", deadline, "an attempt runs, and has ended by then")
    return NextStep("answer", None, "an attempt has passed its deadline: whoever holds the lane makes it unknown")


def _is_to_be_sent_again(dossier: Dossier) -> bool:
    """A resend is planned, and nothing has come up that forbids it."""
    return dossier.row["pending_step"] == "resend" and dossier.again is not None and dossier.again.refusal is None


def _resend(dossier: Dossier, at: datetime | None) -> NextStep:
    if (held := _held_back(dossier, "resend")) is not None:
        return held
    when = dossier.row["pending_at"] if dossier.row["pending_step"] == "resend" else at
    cause = unsent_cause(dossier.row)
    how = "was refused" if cause in REFUSING_US else "did not leave"
    held_up = f"; the last one {how}: {_back_off(dossier)}" if cause else ""
    return NextStep("resend", when, f"the same request with the same key is safe{held_up}")


def _in_doubt(dossier: Dossier) -> NextStep:
    decision, scheduled = dossier.decision, dossier.row["doubt_at"]
    match decision:
        case None:
            return NextStep("person", None, "its tool is gone, so no contract says how to find out")
        case Succeed():
            return NextStep("settle", scheduled, f"it has succeeded: {in_words(decision.cause)}")
        case Reject():
            return NextStep("settle", scheduled, f"there was no effect: {in_words(decision.cause)}")
        case Authorize():
            return NextStep(
                "settle", scheduled, f"there was no effect, so it is tried anew: {in_words(decision.cause)}"
            )
        case Resend():
            return _resend(dossier, decision.at)
        # What a daemon or a person has planned is what happens; the decision is what a daemon would plan now.
        case Look() | Person() if _is_to_be_sent_again(dossier):
            return _resend(dossier, dossier.row["pending_at"])
        case Look():
            return NextStep("look", scheduled or decision.at, "the receiver's own records are asked")
        case Person():
            until = f'; "no effect" counts from {clock(decision.counts_from)} on'
            return NextStep("person", None, why_a_person(decision.reason, dossier.again) + until)
    assert_never(decision)
