"""
When: the dates that decisions rest on. Pure functions of facts, contract and nothing else.

All dates are the database's clock. `settle_at` is the one function for the instant from which no unresolved attempt can
land any more: rules, reconciler, operator and ordering all ask it.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from outbox.contract import Lookup, Wiring
from outbox.decide.facts import OperationFacts

# How "for ever" is written in a date: PostgreSQL's `infinity`. Nothing is ever added to it.
FOREVER: Final = datetime.max.replace(tzinfo=UTC)


def after(date: datetime, seconds: float) -> datetime:
    """Return the date so many seconds later; FOREVER stays, and becomes, FOREVER."""
    try:
        return FOREVER if date == FOREVER else date + timedelta(seconds=seconds)
    except OverflowError:
        return FOREVER


def settle_at(last_exposed_at: datetime, wiring: Wiring) -> datetime | None:
    """
    Return when the last exposure, and so every earlier one, cannot land any more; None where no bound is stated.

    Exposure + deadline (counted from the begin, queueing included) + our longest pause + the contract's bound.
    """
    return None if wiring.settle_seconds is None else after(last_exposed_at, wiring.settle_seconds)


def settled_from(op: OperationFacts, wiring: Wiring) -> datetime | None:
    """Return the settle time of all attempts of an operation: the later of the computed and the recorded one."""
    if op.last_exposed_at is None or (computed := settle_at(op.last_exposed_at, wiring)) is None:
        return None
    return computed if op.settle_at is None else max(computed, op.settle_at)


def visible_from(op: OperationFacts, wiring: Wiring) -> datetime | None:
    """Return when every effect that there will ever be is also visible to a look: settle time + lag."""
    settled = settled_from(op, wiring)
    return None if settled is None else after(settled, wiring.lag_seconds)


def absence_can_be_proof(op: OperationFacts, wiring: Wiring) -> bool:
    """
    Whether some look that finds nothing could ever prove absence.

    Never after an acceptance, and never for work that is done later, unless the look shows pending work too.
    """
    lookup = wiring.lookup
    if lookup is None or not lookup.absence_is_proof or lookup.consistency is None or op.mismatch:
        return False
    return lookup.sees_pending or not (op.accepted or wiring.trusted.acceptance == "async")


def proof_at(op: OperationFacts, wiring: Wiring) -> datetime | None:
    """Return from when on a look that is *sent* then, and finds nothing, proves absence; None: no date is known."""
    return visible_from(op, wiring) if absence_can_be_proof(op, wiring) else None


def horizon_at(op: OperationFacts, lookup: Lookup) -> datetime:
    """Return until when a missing record still means that there never was one."""
    return FOREVER if op.last_exposed_at is None else after(op.last_exposed_at, lookup.horizon)


def statement_counts_from(op: OperationFacts, wiring: Wiring) -> datetime:
    """
    Return from when a person's "no effect" counts.

    Settle time. Where no bound is stated, and for accepted work (its request has landed, the work may go on), giving up
    + `person_settle`: then no bound backs the statement.
    """
    settled, patience = settled_from(op, wiring), after(op.doubted_from, wiring.person_settle_seconds)
    if settled is None:
        return patience
    return max(settled, patience) if op.accepted or wiring.trusted.acceptance == "async" else settled


def window_closes_at(op: OperationFacts, wiring: Wiring, in_force: Wiring | None = None) -> datetime | None:
    """
    Return the instant before which a resend must begin; None where a repeat is safe at any time.

    Pinned at the first exposure, less margin and reach. A contract that is in force by now and promises less is
    obeyed; one that promises more changes nothing.
    """
    if wiring.repeat_safe and (in_force is None or in_force.repeat_safe):
        return None
    first = op.first_sent_at
    if first is None or op.resend_until is None:
        # No first exposure that we know of (an unplaced intent, a failover): no resend is known to be safe.
        return datetime.min.replace(tzinfo=UTC)
    closing = after(op.resend_until, -wiring.margin_seconds - wiring.reach_seconds)
    for contract in (wiring, in_force):
        if contract is not None:
            until = after(first, contract.retention_seconds)
            closing = min(closing, after(until, -contract.margin_seconds - contract.reach_seconds))
    return closing
