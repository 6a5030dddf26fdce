"""
What follows from `unknown`: six rules, in this order, the first that speaks decides.

1. The effect was shown: a receipt, or a record that carries our identity.
2. The receiver's own record says how it ended, or that only a part exists.
3. Absence is proven, by a look that was sent late enough, by an attempt that never left, or by a person's statement.
4. A resend is possible now: the window is open (or a repeat is safe), and the permission holds.
5. Proof is still possible: look again, at a date.
6. A person, while slow looks go on.

Nothing here is a guess: a look that failed proves nothing and passes no rule, and "not found" counts only from the
instant on from which no attempt can land any more. A resend is safe before that instant, so it stands before the
waiting; proof costs nothing, so it stands before the resend.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from outbox.contract import Fencing, Key, Wiring
from outbox.decide.facts import (
    Authorize,
    Decision,
    Look,
    OperationFacts,
    Person,
    Reason,
    Reject,
    Resend,
    Succeed,
)
from outbox.decide.resend import no_resend
from outbox.decide.times import (
    absence_can_be_proof,
    after,
    horizon_at,
    proof_at,
    statement_counts_from,
    visible_from,
)
from outbox.evidence import Evidence, Kind, Verdict
from outbox.states import Cause, State


class _Case(NamedTuple):
    """One operation in doubt, with everything that a rule may use."""

    op: OperationFacts
    wiring: Wiring
    evidence: Sequence[Evidence]
    now: datetime
    in_force: Wiring | None

    def looks(self, *verdicts: Verdict) -> list[Evidence]:
        """What records showed, the oldest first. After a mismatch the record under our key is somebody else's."""
        kinds = () if self.op.mismatch else (Kind.LOOKUP, Kind.CALLBACK)
        found = [item for item in self.evidence if item.kind in kinds and item.verdict in verdicts]
        return sorted(found, key=lambda item: (_seen_at(item), item.id))

    def is_after_every_attempt(self, item: Evidence) -> bool:
        """
        No attempt can change any more what this evidence shows.

        It was observed of the latest attempt, and either the receiver had shut that attempt out first, or the look was
        sent when every attempt had landed and become visible. A look that was sent earlier and answered later is too
        early.
        """
        if item.attempt != self.op.attempt:
            return False
        if self.is_behind_a_fence(item):
            return True
        visible = visible_from(self.op, self.wiring)
        return visible is not None and item.sent_at is not None and item.sent_at >= visible

    def is_behind_a_fence(self, item: Evidence) -> bool:
        """
        The receiver had shut every attempt out before it read.

        By a tombstone for this operation, whose fence is the number of the attempt; or by a fence of the lane that is
        higher than the one of the attempt.
        """
        fencing, fence = self.wiring.trusted.fencing, self.op.fence
        if not self.wiring.look_excludes or not isinstance(fencing, Fencing) or item.fence is None:
            return False
        if fencing.in_ == "column":
            return item.fence == self.op.attempt > 0
        return fence is not None and item.fence > fence


def next_step(
    op: OperationFacts,
    wiring: Wiring,
    evidence: Sequence[Evidence],
    now: datetime,
    *,
    in_force: Wiring | None = None,
) -> Decision:
    """
    Decide what follows for one operation in `unknown`, from all its evidence. Pure; every decision has a date.

    `wiring` is the version pinned at the first exposure, `in_force` the one in force now: a shorter window is obeyed.
    Whoever writes the decision compares `op.attempt`: a later attempt makes it void. ValueError in any other state.
    """
    if op.state is not State.UNKNOWN:
        raise ValueError(f"only an operation in doubt has a next step of this kind, not one that is {op.state}")
    case = _Case(op, wiring, evidence, now, in_force)
    for rule in RULES:
        if (decision := rule(case)) is not None:
            return decision
    return _person(case)


# ------------------------------------------------------------------------------------------------------------ the rules


def _effect_shown(case: _Case) -> Decision | None:
    proofs = [item for item in case.evidence if item.shows_effect and item.kind is Kind.RECEIPT]
    proofs += case.looks(Verdict.CONFIRMED)
    proofs += [item for item in case.evidence if item.shows_effect and item.kind in {Kind.STATEMENT, Kind.LATE_ANSWER}]
    if not proofs:
        return None
    causes = {Kind.RECEIPT: Cause.LATE_RECEIPT, Kind.STATEMENT: Cause.PERSON}
    return Succeed(proofs[0], causes.get(proofs[0].kind, Cause.CONFIRMED))


def _receiver_ended(case: _Case) -> Decision | None:
    ends = case.looks(Verdict.ENDED, Verdict.PARTIAL)
    if not ends:
        return None
    latest = ends[-1]
    if latest.verdict is Verdict.PARTIAL:
        return _person(case, Reason.PARTIAL)
    return Reject(latest, Cause.ENDED) if _speaks_for_all(case, latest) else None


def _speaks_for_all(case: _Case, ended: Evidence) -> bool:
    """Whether a record of one attempt that ended also settles every other attempt that may still be on its way."""
    if ended.attempt != case.op.attempt:
        return False
    trusted = case.wiring.trusted
    if not case.op.earlier_unresolved and not trusted.replays:
        return True
    # Where failures are stored too, an attempt that lands later is answered from the record.
    if isinstance(trusted.key, Key) and trusted.stored_outcomes == "all" and case.wiring.retention_seconds > 0:
        return True
    return case.is_after_every_attempt(ended)


def _absence_proven(case: _Case) -> Decision | None:
    op, wiring = case.op, case.wiring
    proof = _never_left(case) or _not_found_when_settled(case)
    if proof is None:
        stated = _stated_absence(case)
        return None if stated is None else Reject(stated, Cause.PERSON)
    key_is_spent = op.no_more_resends and op.cause not in {Cause.TARGET_CHANGED, Cause.SCOPE_CHANGED}
    if key_is_spent or not op.permits(case.now) or op.exposures >= wiring.retrying.attempts:
        return Reject(proof, Cause.NO_EFFECT)
    if proof.kind is Kind.NOT_SENT:
        # Nothing of the only exposure left this machine, so nobody can have stored the key.
        return Authorize(proof, Cause.NOT_SENT, anchor_anew=op.first_sent_at == op.last_exposed_at)
    return Authorize(proof, Cause.PROVEN_ABSENT, anchor_anew=wiring.stores_key_on_execution)


def _never_left(case: _Case) -> Evidence | None:
    if case.op.earlier_unresolved:
        return None
    here = (case.op.attempt, case.op.fence)
    return next(
        (item for item in case.evidence if item.kind is Kind.NOT_SENT and (item.attempt, item.fence) == here), None
    )


def _not_found_when_settled(case: _Case) -> Evidence | None:
    op, lookup = case.op, case.wiring.lookup
    if lookup is None or not absence_can_be_proof(op, case.wiring):
        return None
    horizon = horizon_at(op, lookup)
    return next(
        (
            item
            for item in case.looks(Verdict.NOT_FOUND)
            if item.kind is Kind.LOOKUP and case.is_after_every_attempt(item) and _seen_at(item) < horizon
        ),
        None,
    )


def _stated_absence(case: _Case) -> Evidence | None:
    counts = statement_counts_from(case.op, case.wiring)
    return next(
        (
            item
            for item in case.evidence
            if item.kind is Kind.STATEMENT
            and item.verdict is Verdict.NOT_FOUND
            and item.attempt == case.op.attempt
            and item.observed_at >= counts
        ),
        None,
    )


def _resend(case: _Case) -> Decision | None:
    op, wiring = case.op, case.wiring
    pause = max(wiring.trusted.resend_after, wiring.retrying.pause_seconds(op.exposures - 1))
    at = max(case.now, after(op.doubted_from, pause), op.not_before or case.now)
    if no_resend(op, wiring, case.evidence, at, in_force=case.in_force) is not None:
        return None
    if wiring.lookup is not None and wiring.config.recover == "lookup_first" and not _looked(case):
        return Look(max(case.now, after(op.doubted_from, wiring.lookup.interval)))
    # By then the attempt has ended, or its lease has: whoever holds the lane then has made it unknown again.
    return Resend(at, after(at, wiring.receiver.lease + wiring.deadline_seconds))


def _look_again(case: _Case) -> Decision | None:
    op, lookup = case.op, case.wiring.lookup
    if lookup is None or op.mismatch:
        return None
    last = _last_look(case)
    at = after(last or op.doubted_from, lookup.pause_seconds(op.reads))
    proof = proof_at(op, case.wiring)
    if proof is not None and proof < horizon_at(op, lookup) and (last is None or last < proof):
        # However long the pauses have become, one look is sent as soon as it can prove something.
        at = max(case.now, proof if op.reads >= lookup.reads_max else min(at, proof))
        if at < horizon_at(op, lookup):
            return Look(at)
    at = max(case.now, at)
    patient = _done_later(case) and at < after(op.doubted_from, lookup.confirm_within)
    return Look(at) if patient or op.reads < lookup.reads_max else None


# Rule 6 is what is left, so that no operation is without a next step.
RULES: Final[tuple[Callable[[_Case], Decision | None], ...]] = (
    _effect_shown,
    _receiver_ended,
    _absence_proven,
    _resend,
    _look_again,
)


def _person(case: _Case, reason: Reason | None = None) -> Person:
    lookup = case.wiring.lookup
    look_at = None
    if lookup is not None:
        look_at = max(case.now, after(_last_look(case) or case.op.doubted_from, lookup.interval_slow))
    return Person(reason or _why_a_person(case), look_at, statement_counts_from(case.op, case.wiring))


def _why_a_person(case: _Case) -> Reason:
    op, lookup = case.op, case.wiring.lookup
    if op.mismatch:
        return Reason.MISMATCH
    if lookup is None:
        return Reason.NO_LOOKUP
    # Behind a fence a look can prove absence at any time.
    fenced = case.wiring.look_excludes and absence_can_be_proof(op, case.wiring)
    proof = case.now if fenced else proof_at(op, case.wiring)
    if proof is None:
        return Reason.NOT_CONFIRMED if _done_later(case) else Reason.NOT_PROVABLE
    return Reason.HORIZON_PASSED if max(case.now, proof) >= horizon_at(op, lookup) else Reason.LOOKS_FAILED


# -------------------------------------------------------------------------------------------------------------- helpers


def _seen_at(item: Evidence) -> datetime:
    return item.sent_at or item.observed_at


def _last_look(case: _Case) -> datetime | None:
    """When the last look since the latest exposure was sent."""
    sent = [item.sent_at for item in case.evidence if item.kind is Kind.LOOKUP and item.sent_at is not None]
    if case.op.last_read_at is not None:
        sent.append(case.op.last_read_at)
    since = case.op.last_exposed_at
    return max((date for date in sent if since is None or date >= since), default=None)


def _done_later(case: _Case) -> bool:
    return case.op.accepted or case.wiring.trusted.acceptance == "async"


def _looked(case: _Case) -> bool:
    return case.op.reads > 0 or _last_look(case) is not None
