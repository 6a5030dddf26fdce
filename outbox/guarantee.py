"""
What can honestly be promised for one tool: a name, the conditions under which it holds, and the clauses it rests on.

Pure, from the trusted contract alone: a fact that nobody verified carries no promise. The conditions are printed by
`outbox contracts`; whoever reads them knows what would have to go wrong for a second effect.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from outbox.contract import Fencing, Key, Lookup, Wiring
from outbox.duration import format_duration


class Promise(StrEnum):
    """The six guarantees."""

    DEDUPLICATED = "deduplicated"
    """The receiver honours the key: at most one effect, resends included."""
    FENCED = "fenced"
    """A look shuts out every attempt from before it: at most one effect, without any clock, and nobody is needed."""
    GUARDED = "guarded"
    """At most one effect by the version: a second one would not find the version that it expects."""
    VERIFIED = "verified"
    """No key, but a look whose absence is proof: nothing is tried again before the last try is known to be absent."""
    PERSON_DECIDES = "a person decides"
    """At most one effect by itself; every lost answer waits for somebody."""
    REPEATABLE = "repeatable"
    """The effect may happen several times, which the receiver documents as harmless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """
    The promise of one tool.

    `batch`: an ambiguity costs nobody's time, so large claims are fine. `dead_man`: nothing but time stands between a
    process that was stopped before its first byte and a second effect, so the kernel should end such a process.
    """

    promise: Promise
    conditions: tuple[str, ...]
    clauses: tuple[str, ...]
    batch: bool
    dead_man: bool

    @property
    def name(self) -> str:
        """The promise as it is printed."""
        return self.promise.value


def warnings(wiring: Wiring) -> tuple[str, ...]:
    """What a contract states in vain, or does not state and would be worth it: it is valid, and promises less."""
    return tuple(_warnings(wiring))


def mixed(wirings: Iterable[Wiring]) -> Mapping[str, str]:
    """Name tools whose receiver would do more if they had one of their own, each with a warning.

    Attempts are begun, and so exposed, in batches only where none of them would cost a person's time if its answer were
    lost; and what is begun in a lane is begun together.
    """
    of: dict[str, list[Wiring]] = {}
    for wiring in wirings:
        of.setdefault(wiring.receiver.name, []).append(wiring)
    found = {}
    for name, tools in of.items():
        batched = sorted(wiring.tool for wiring in tools if guarantee(wiring).batch)
        for wiring in tools:
            if batched and wiring.tool not in batched:
                found[wiring.tool] = (
                    f"no resend of it is safe, so nothing of receiver {name} begins before a slot is free, also of"
                    f" {', '.join(batched)}, which could begin in batches. Give it a receiver of its own"
                )
    return found


def guarantee(wiring: Wiring) -> Guarantee:
    """Derive what the contract lets us enforce."""
    promise = _promise(wiring)
    return Guarantee(
        promise=promise,
        conditions=(*_conditions(promise, wiring), *_common(promise, wiring)),
        clauses=tuple(_clauses(wiring)),
        batch=wiring.resend_safe,
        dead_man=promise in {Promise.VERIFIED, Promise.PERSON_DECIDES},
    )


def _promise(wiring: Wiring) -> Promise:
    trusted, lookup = wiring.trusted, wiring.lookup
    fenced = wiring.look_excludes and not trusted.replays
    # A key that is forgotten some day puts a clock under resends, whatever a look can prove.
    if wiring.has_window and not (fenced and math.isinf(wiring.retention_seconds)):
        return Promise.DEDUPLICATED
    if fenced:
        return Promise.FENCED
    if trusted.precondition != "none":
        return Promise.GUARDED
    if wiring.repeat_safe:
        return Promise.REPEATABLE
    provable = lookup is not None and lookup.absence_is_proof and wiring.settle_seconds is not None
    # Work that is done later and not shown while it is pending can never be proven absent.
    blind = trusted.acceptance == "async" and not (lookup is not None and lookup.sees_pending)
    return Promise.VERIFIED if provable and not blind and not trusted.replays else Promise.PERSON_DECIDES


def _conditions(promise: Promise, wiring: Wiring) -> Iterator[str]:
    trusted = wiring.trusted
    match promise:
        case Promise.DEDUPLICATED:
            yield from _window(wiring)
        case Promise.FENCED:
            yield from _exclusion(trusted.fencing)
            if wiring.has_window:
                yield from _window(wiring)
        case Promise.GUARDED:
            yield "every intent states the version it expects, and a version never returns to an old value"
            if wiring.repeat_safe:
                yield "after a failed precondition on a resend only a look or a person can tell whose change it was"
        case Promise.VERIFIED:
            bound = format_duration(trusted.in_flight_bound or 0.0)
            pause = format_duration(wiring.receiver.pause_bound)
            yield f"no request lands later than {bound} after its deadline (in_flight_bound)"
            yield (
                f"no process of ours is stopped longer than {pause} between its last check and its first byte, "
                "or dead_man is on"
            )
            yield from _lookup_conditions(wiring)
        case Promise.PERSON_DECIDES:
            yield "a lost answer is never followed by another attempt unless somebody says so"
            yield from _whose_word(wiring)
        case Promise.REPEATABLE:
            yield "the effect of a repeat is harmless at any time (repeat_safe)"
            if wiring.lands_late:
                yield "the last value is right because the next operation of its ordering key waits for the settle time"


def _warnings(wiring: Wiring) -> Iterator[str]:
    trusted, lookup = wiring.trusted, wiring.lookup
    if wiring.config.contract is None:
        yield "no contract is stated, so nothing is promised: every lost answer waits for a person"
    if wiring.receiver.transport == "http":
        yield from _no_receipt(wiring)
    if isinstance(trusted.key, Key) and wiring.retention_seconds == 0:
        why = "is not verified" if "key_retention" in wiring.contract.unverified else "is not stated"
        yield (
            f"the key is sent, and nothing rests on it: key_retention {why}, so nobody knows for how long the receiver"
            ' honours the key, and no request is sent again because of it. State it ("24h", "forever"), with its source'
        )
    elif wiring.retention_seconds > 0 and not wiring.has_window:
        late = format_duration(wiring.margin_seconds + wiring.reach_seconds)
        kept = format_duration(wiring.retention_seconds)
        yield f"key_retention = {kept} leaves no time for a resend: margin and reach together are {late}"
    provable = lookup is not None and lookup.absence_is_proof
    if provable and wiring.settle_seconds is None and not wiring.look_excludes:
        yield (
            'lookup.absence_is_proof is stated in vain: without in_flight_bound a "not found" never proves anything,'
            " since a request may still land after it"
        )


def _no_receipt(wiring: Wiring) -> Iterator[str]:
    """Over HTTP no answer is a receipt by itself; other transports recognise theirs."""
    meanings = {rule.means for rule in wiring.trusted.answers}
    # What is accepted and done later is recognised by a look.
    if "receipt" in meanings or ("accepted" in meanings and wiring.lookup is not None):
        return
    ends = "succeeds only if a look finds its effect" if wiring.lookup is not None else "ends with a person"
    stated = "`answers` is not verified" if "answers" in wiring.contract.unverified else "no rule of `answers` says so"
    yield (
        f"no answer counts as a receipt, since {stated}: no attempt can succeed by its answer. Answered or"
        f" not, an operation {ends}. State which answer proves the effect, such as"
        ' answers = [{ status = [200, 201], means = "receipt" }]'
    )


def _exclusion(fencing: Fencing | str) -> Iterator[str]:
    if isinstance(fencing, Fencing) and fencing.in_ == "column":
        yield "the inbox refuses every attempt of an operation up to the one that a look was about (its tombstone)"
        yield "the inbox keeps its rows, and what its database has committed outlives its failovers"
        yield "the handler has its effect in the database of the inbox and nowhere else"
    else:
        yield "the receiver refuses every attempt under a fence lower than the one that a look raised"


def _window(wiring: Wiring) -> Iterator[str]:
    trusted = wiring.trusted
    scope = ", ".join(trusted.key_scope or ("account", "credential", "host", "route"))
    yield f"a resend goes out under the same {scope}, or not at all (key_scope)"
    if wiring.lookup is not None and wiring.lookup.absence_is_proof:
        yield from _lookup_conditions(wiring)
        if wiring.look_excludes and not math.isinf(wiring.retention_seconds):
            kept = format_duration(wiring.retention_seconds)
            yield f"an attempt that a look has shut out lands within {kept} of it, or never"
    if trusted.duplicate_guard == "resource":
        yield "a repeat is answered with the first resource, for as long as that exists"
        return
    if math.isinf(wiring.retention_seconds):
        yield "the key is honoured for ever"
        return
    retention, margin = format_duration(wiring.retention_seconds), format_duration(wiring.margin_seconds)
    yield f"the key is honoured for {retention} from the first request; after that nothing is sent again"
    if wiring.late_seconds is None:
        yield f"no request lands later than {margin} after its deadline: an assumption, no bound is stated (margin)"
    else:
        late = format_duration(wiring.late_seconds)
        yield f"no request lands later than {late} after its deadline (pause_bound + in_flight_bound; margin {margin})"


def _lookup_conditions(wiring: Wiring) -> Iterator[str]:
    lookup = wiring.lookup
    if lookup is None:
        return
    if lookup.consistency == "eventual":
        yield f"an effect is visible to a look after {format_duration(wiring.lag_seconds)} (lag)"
    if math.isinf(lookup.horizon):
        yield "records stay readable: no horizon is stated"


def _whose_word(wiring: Wiring) -> Iterator[str]:
    if wiring.settle_seconds is not None:
        yield f'a person\'s "no effect" counts from {format_duration(wiring.settle_seconds)} after the attempt on'
    else:
        patience = format_duration(wiring.person_settle_seconds)
        yield f'a person\'s "no effect" counts {patience} after giving up, and no bound backs it'
    if wiring.config.contract is None:
        yield "no contract is stated for this tool"


def _common(promise: Promise, wiring: Wiring) -> Iterator[str]:
    trusted = wiring.trusted
    if wiring.retention_seconds > 0 and not wiring.has_window:
        yield "the key's window is shorter than margin and reach, so nothing is ever sent again because of the key"
    if wiring.contract.unverified:
        yield f"not verified, and so not relied on: {', '.join(wiring.contract.unverified)}"
    if trusted.replays and promise is not Promise.DEDUPLICATED:
        yield "the path repeats requests by itself: one attempt may have several effects, and no bound can be promised"
    elif trusted.replays:
        yield "the path repeats requests by itself: a refusal proves nothing, so a refused operation is looked up"
    else:
        yield "nothing between us and the receiver repeats requests by itself"
    if promise not in {Promise.DEDUPLICATED, Promise.FENCED, Promise.REPEATABLE}:
        yield "the exposure of an attempt survives a failover of the database (synchronous replication)"


def _clauses(wiring: Wiring) -> Iterator[str]:
    contract = wiring.trusted
    if isinstance(contract.key, Key):
        place = contract.key.name or contract.key.pointer
        yield f"key in {contract.key.in_}{f' ({place})' if place else ''}"
        yield f"key_retention = {format_duration(contract.key_retention)}"
    else:
        yield f"key = {contract.key}"
    if contract.duplicate_guard != "none":
        yield f"duplicate_guard = {contract.duplicate_guard}"
    if isinstance(contract.lookup, Lookup):
        proof = "absence is proof" if contract.lookup.absence_is_proof else "absence is no proof"
        yield f"lookup by {contract.lookup.by}, {contract.lookup.consistency or 'no consistency stated'}, {proof}"
    else:
        yield "lookup = none"
    if isinstance(contract.fencing, Fencing):
        raised = ", raised by a look" if contract.fencing.raised_by_lookup else ""
        yield f"fence in {contract.fencing.in_}{raised}"
    bound = contract.in_flight_bound
    yield f"in_flight_bound = {'not stated' if bound is None else format_duration(bound)}"
    if contract.precondition != "none":
        yield f"precondition = {contract.precondition.header}"
    if contract.repeat_safe:
        yield "repeat_safe"
    if contract.source:
        checked = contract.verified_at.isoformat() if contract.verified_at else "at no stated date"
        yield f"source: {contract.source} (verified {checked})"
