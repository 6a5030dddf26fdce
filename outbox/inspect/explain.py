"""One operation in sentences: what is known, what is not, what may happen next, and who says so."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from outbox.contract import Wiring
from outbox.decide import (
    Look,
    NoResend,
    Person,
    Resend,
    liveness_bound,
    proof_at,
    settled_from,
    statement_counts_from,
)
from outbox.decide.times import after
from outbox.evidence import Evidence
from outbox.inspect.again import Again
from outbox.inspect.ahead import next_of, ways_on
from outbox.inspect.answered import answers_on_record, dated, support_lines
from outbox.inspect.clauses import contract_lines
from outbox.inspect.dossier import Daemons, Dossier, Row
from outbox.inspect.unsent import REFUSING_US, remedy, unsent_cause, why_unsent
from outbox.inspect.words import NO_RESEND, clock, in_words, when
from outbox.outcome import storable
from outbox.states import TERMINAL, Cause, State

# Of more attempts the first and the latest are told, the others counted.
ATTEMPTS_MAX: Final = 5
ARGUMENTS_BYTES_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Explanation:
    """Sentences, by what they speak of. `support` is what to quote to the provider's support."""

    known: tuple[str, ...]
    not_known: tuple[str, ...]
    next: tuple[str, ...]
    contract: tuple[str, ...]
    lane: tuple[str, ...]
    reconciler: tuple[str, ...]
    support: tuple[str, ...]


def explain(dossier: Dossier) -> Explanation:
    """Say all of it."""
    return Explanation(
        known=tuple(_known(dossier)),
        not_known=tuple(_not_known(dossier)),
        next=tuple(_next(dossier)),
        contract=tuple(contract_lines(dossier)),
        lane=tuple(_lane(dossier)),
        reconciler=tuple(_reconciler(dossier)),
        support=tuple(support_lines(dossier)),
    )


# --------------------------------------------------------------------------------------------------------------- known


def _known(dossier: Dossier) -> Iterator[str]:
    row = dossier.row
    on = f" on {row['resource']}" if row["resource"] else ""
    who = f"{row['principal_id']} of tenant {row['tenant_id']}"
    yield f"{who} asked for {row['tool']}{on} at {clock(row['created_at'])}."
    if row["arguments"] is not None:
        yield f"Its arguments are {storable(row['arguments'], ARGUMENTS_BYTES_MAX)}."
    yield _permission(dossier)
    yield _state(dossier)
    yield from _attempts(dossier)
    if answers := answers_on_record(dossier):
        yield f"Answers on record: {'; '.join(answers)}."
    quiet = [
        f"{row[name]} {words}" for name, words in (("throttled", "throttled"), ("not_sent", "never left")) if row[name]
    ]
    if quiet:
        yield f"Of its attempts, {' and '.join(quiet)}: these had no effect."
    if (cause := unsent_cause(row)) is not None and dossier.state not in TERMINAL:
        how = "was refused" if cause in REFUSING_US else "did not leave"
        yield f"Why its latest attempt {how}: {why_unsent(cause, row)}."
    if dossier.evidence:
        yield f"The latest observation: {_observation(dossier.evidence[-1])}."


def _attempts(dossier: Dossier) -> Iterator[str]:
    """The first and the latest attempts; when there were many, those between are counted by how they ended."""
    many = len(dossier.attempts) > ATTEMPTS_MAX
    between = dossier.attempts[1 : 1 - ATTEMPTS_MAX] if many else ()
    for number, attempt in enumerate(dossier.attempts):
        if many and number == 1:
            causes = Counter(row["cause"] for row in between).most_common()
            ends = ", ".join(f"{cause} ({count})" for cause, count in causes)
            yield f"{len(between)} more attempts followed, and ended: {ends}."
        if not 1 <= number <= len(between):
            yield f"Attempt {attempt['attempt']} began at {dated(attempt['started_at'])} and ended: {attempt['cause']}."


def _permission(dossier: Dossier) -> str:
    row = dossier.row
    until = f", until {when(row['permission_until'], dossier.now)}" if row["permission_until"] else ""
    version = f"under policy version {row['policy_version']}"
    if dossier.approvals:
        last = dossier.approvals[-1]
        said = f"It was {last['decision']} by {last['decided_by']} at {clock(last['decided_at'])}, {version}{until}"
        return f"{said}: {last['reason']}." if last["reason"] else f"{said}."
    if dossier.state is State.PROPOSED:
        return f"Nobody has permitted it yet; its digest is {row['digest'].hex()}."
    return f"No approval was needed: {row['written_by']} may insert it ({version}{until})."


def _state(dossier: Dossier) -> str:
    row, why = dossier.row, in_words(dossier.cause)
    because = f": {why}" if why else ""
    match dossier.state:
        case State.PROPOSED:
            return f"It is proposed, and nothing has been sent{because}."
        case State.AUTHORIZED:
            because = "" if unsent_cause(row) else because  # which has a sentence of its own
            return f"It is authorized, and no attempt is unresolved: it hides no effect{because}."
        case State.EXECUTING:
            begun = f"attempt {row['attempt']} began at {clock(row['begun_at'])} under fence {row['fence']}"
            return f"It is executing: {begun}."
        case State.UNKNOWN:
            # What did not leave, or was refused, says nothing about the attempts of which nothing is known.
            if unsent_cause(row) is not None:
                doubtful = [cause for one in dossier.attempts if (cause := Cause(one["cause"])) not in REFUSING_US]
                why = in_words(doubtful[-1]) if doubtful else ""
            return f"It is unknown since {when(dossier.in_doubt_since, dossier.now)}{f': {why}' if why else ''}."
        case State.SUCCEEDED | State.REJECTED:
            return ended(row)
    assert_never(dossier.state)


def ended(row: Row) -> str:
    """How an operation ended, which may have been purged since: whole sentences."""
    how = how_it_ended(row)
    after = "" if row["state"] == State.SUCCEEDED else " There is no effect, and none will be tried."
    return f"{how[:1].upper()}{how[1:]}.{after}"


def how_it_ended(row: Row) -> str:
    """When, as what, why and by whom: `it was rejected at ...: somebody cancelled it, decided by alice@desk`."""
    why = in_words(Cause(row["cause"]) if row["cause"] else None)
    by = f", decided by {row['decided_by']}" if row.get("decided_by") else ""
    if row["state"] == State.SUCCEEDED:
        name = f", and the receiver calls it {row['external_id']}" if row["external_id"] else ""
        return f"it succeeded at {clock(row['ended_at'])}: {why or _receipt(row)}{by}{name}"
    return f"it was rejected at {clock(row['ended_at'])}{f': {why}' if why else ''}{by}"


def _receipt(row: Row) -> str:
    attempt = f"attempt {row['attempt']}" if row.get("attempt") else "an attempt"
    return f"{attempt} was answered with a receipt"


def _observation(item: Evidence) -> str:
    by = item.stated_by or item.source
    verdict = f", {item.verdict}" if item.verdict else ""
    note = f" ({item.note})" if item.note else ""
    return f"{item.kind}{verdict}, by {by} at {clock(item.sent_at or item.observed_at)}{note}"


# ----------------------------------------------------------------------------------------------------------- not known


def _not_known(dossier: Dossier) -> Iterator[str]:
    for item in dossier.contradictions:
        what = f"{item['what']} (evidence {item['evidence_id']})"
        yield f"How this can be: {what}. Nothing changes by itself: somebody must look."
    if dossier.state is State.EXECUTING:
        yield "Whether the effect has happened: the answer to the running attempt is not here yet."
    if not dossier.is_unknown:
        return
    yield "Whether the effect has happened. A lost answer is no failure."
    if answers_on_record(dossier) and isinstance(dossier.decision, Look | Resend | Person | None):
        yield "What the answers on record mean: under its contract they prove nothing. Read them before you decide."
    if dossier.wiring is None:
        return
    settled = settled_from(dossier.facts, dossier.wiring)
    if settled is None:
        yield "Until when a request may still land: the contract states no in_flight_bound."
    elif settled > dossier.now:
        yield f"Whether a request is still on its way: it may land until {when(settled, dossier.now)}."


# ---------------------------------------------------------------------------------------------------------------- next


def _next(dossier: Dossier) -> Iterator[str]:
    step = next_of(dossier)
    if step is None:
        yield "Nothing: a terminal state never changes."
        return
    at = f" at {when(step.at, dossier.now)}" if step.at else ""
    if step.step == "person":
        yield f"A person must decide, because {step.reason}."
    else:
        yield f"Next: {step.step}{at}, since {step.reason}."
    yield from ways_on(dossier)
    if dossier.is_unknown and dossier.wiring is not None:
        yield from _in_doubt(dossier, dossier.wiring)
    if (cause := unsent_cause(dossier.row)) is not None:
        how = "was refused" if cause in REFUSING_US else "did not leave"
        yield f"What to do about what {how}: {remedy(cause, dossier.row)}."
    if dossier.behind:
        yield f"{dossier.behind} later operations of its ordering key wait for it."
    yield from _what_a_person_can_do(dossier)


def _in_doubt(dossier: Dossier, wiring: Wiring) -> Iterator[str]:
    facts, now = dossier.facts, dossier.now
    if dossier.again is not None:
        yield from _sent_again(dossier, dossier.again)
    proof = proof_at(facts, wiring)
    if proof is not None:
        yield f"A look that finds nothing proves that there was no effect, if it is sent from {when(proof, now)} on."
    elif wiring.lookup is not None:
        yield 'A look that finds the effect proves it; "not found" proves nothing here.'
    yield f'A person\'s "no effect" counts from {when(statement_counts_from(facts, wiring), now)} on.'
    if facts.first_sent_at is not None and not isinstance(dossier.decision, Person):
        latest = after(facts.first_sent_at, liveness_bound(wiring))
        yield f"By {when(latest, now)} it has ended or a person is asked, if the daemons run."


def _sent_again(dossier: Dossier, again: Again) -> Iterator[str]:
    if again.refusal is not None:
        yield f"It may not be sent again: {NO_RESEND[again.refusal]}."
        return
    if again.spent and dossier.row["pending_step"] != "resend":
        retry = f"outbox retry {dossier.row['operation_id']}"
        yield f"It is not sent again by itself: {NO_RESEND[NoResend.ATTEMPTS_SPENT]}. You can send it again: {retry}."
    if again.closes is None:
        yield "It may be sent again at any time: a repeat is harmless."
    else:
        yield f"It may be sent again with the same key {_until(when(again.closes, dossier.now))}."


def _until(text: str) -> str:
    return text if text == "for ever" else f"until {text}"


def _what_a_person_can_do(dossier: Dossier) -> Iterator[str]:
    name = dossier.row["operation_id"]
    match dossier.state:
        case State.PROPOSED:
            yield f"You can: outbox approve {name} --digest ..., outbox cancel {name}."
        case State.AUTHORIZED:
            # What is held is let go on by another command, which was said.
            retry = "" if any(ways_on(dossier)) else f"outbox retry {name}, "
            yield f"You can: outbox cancel {name}, {retry}outbox revoke {name}."
        case State.UNKNOWN:
            yield (
                f"You can find out what happened, and say so: outbox resolve {name} --succeeded (or --no-effect)"
                f" --evidence TEXT. Whether a retry could do harm: outbox retry {name} --dry-run."
            )


# ------------------------------------------------------------------------------------------------------------- who acts


def _lane(dossier: Dossier) -> Iterator[str]:
    row, now = dossier.row, dossier.now
    if dossier.state in TERMINAL or row["receiver"] is None:
        return
    lane = f"Lane {row['lane']} of receiver {row['receiver']}"
    renewed = (
        f"its lease was last renewed at {when(row['lane_renewed_at'], now)}"
        if row["lane_renewed_at"]
        else "it was never held"
    )
    if row["lane_held"]:
        holder = f"the relay {row['holder_pid']} on {row['holder_host']}" if row["holder_host"] else "a relay"
        yield f"{lane} is held by {holder} under fence {row['lane_fence']}; {renewed}."
    else:
        yield f"{lane} is held by nobody; {renewed}. {_living(dossier.relays, 'relay', dossier)}"


def _reconciler(dossier: Dossier) -> Iterator[str]:
    if dossier.state in TERMINAL:
        return
    yield _living(dossier.reconcilers, "reconciler", dossier)
    if dossier.row["being_looked_at"]:
        yield "One of them is asking about this operation right now."


def _living(daemons: Daemons, kind: str, dossier: Dossier) -> str:
    seen = f"; the last sign of one is from {when(daemons.seen_at, dossier.now)}" if daemons.seen_at else ""
    if not daemons.living:
        return f"No {kind} is running{seen}. Start one: outbox {kind}."
    if daemons.living == 1:
        return f"One {kind} that serves it is running{seen}."
    return f"{daemons.living} {kind}s that serve it are running{seen}."
