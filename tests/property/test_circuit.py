"""The circuit of a receiver, shared by several relays: never two probes, closed by any answer, never open for ever."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
from relay.circuit import (
    MISSES_MAX,
    POLITE_SECONDS,
    RETRY_SECONDS_FIRST,
    RETRY_SECONDS_MAX,
    RIGHT_SECONDS,
    Change,
    Circuit,
    Signal,
    retry_seconds,
    signal_of,
)

WATCH_SECONDS = RIGHT_SECONDS / 5
# Mostly misses: a circuit that is always closed shows nothing.
SIGNALS = st.sampled_from([Signal.MISSED, Signal.MISSED, Signal.MISSED, Signal.NOTHING, Signal.ANSWERED])


@dataclass
class Row:
    """What stands in the database, moved by the rules of the statements in relay.sql."""

    is_open: bool = False
    probes: int = 0
    retry_at: float = 0.0

    def tell(self, change: Change, circuit: Circuit) -> None:
        if change is Change.CLOSED:
            self.is_open, self.probes = False, 0
        elif self.is_open is (change is Change.REOPENED):
            self.is_open, self.probes, self.retry_at = True, circuit.probes, circuit.retry_at

    def claim(self, now: float) -> bool:
        if not self.is_open or now < self.retry_at:
            return False
        self.retry_at = now + RIGHT_SECONDS
        return True


@dataclass
class OneRelay:
    circuit: Circuit = field(default_factory=Circuit)
    running: set[int] = field(default_factory=set)
    probes: set[int] = field(default_factory=set)


class Relays(RuleBasedStateMachine):
    """Relays that begin, hear, watch and die in any order; time passes in steps that are shorter than a watch."""

    def __init__(self) -> None:
        super().__init__()
        self.row = Row()
        self.now = 1_000.0
        self.relays: list[OneRelay] = []
        self.seqs = 0

    @initialize(number=st.integers(1, 3), is_open=st.booleans())
    def start(self, number: int, is_open: bool) -> None:
        self.relays = [OneRelay() for _ in range(number)]
        self.row.is_open = is_open
        for relay in self.relays:
            self.watch(relay)

    def one(self, number: int) -> OneRelay:
        return self.relays[number % len(self.relays)]

    @rule(number=st.integers(0, 2), lanes=st.integers(1, 3))
    def begin(self, number: int, lanes: int) -> None:
        """Lanes of one relay try to begin, each as the claims of a lane do; they interleave at each statement."""
        relay = self.one(number)
        circuit = relay.circuit
        if not circuit.is_open:
            for _ in range(lanes):
                self.seqs += 1
                relay.running.add(self.seqs)
            return
        if circuit.wants_right(self.now):
            if self.row.claim(self.now):
                circuit.granted(self.now)
            else:
                circuit.learned(is_open=self.row.is_open, probes=self.row.probes, retry_at=self.row.retry_at)
        reserved = [circuit.reserve(self.now) for _ in range(lanes)]
        assert sum(reserved) <= 1
        if any(reserved):
            self.seqs += 1
            circuit.began(self.seqs)
            circuit.release()
            relay.running.add(self.seqs)
            relay.probes.add(self.seqs)

    @rule(number=st.integers(0, 2))
    def take_the_right_and_have_nothing_to_begin(self, number: int) -> None:
        circuit = self.one(number).circuit
        if circuit.wants_right(self.now) and self.row.claim(self.now):
            circuit.granted(self.now)
            assert circuit.reserve(self.now)
            assert not circuit.reserve(self.now)
            circuit.release()

    @rule(number=st.integers(0, 2), which=st.integers(0, 50), signal=SIGNALS, jitter=st.floats(0, 0.99))
    def hear(self, number: int, which: int, signal: Signal, jitter: float) -> None:
        relay = self.one(number)
        if not relay.running:
            return
        seq = sorted(relay.running)[which % len(relay.running)]
        relay.running.discard(seq)
        relay.probes.discard(seq)
        change = relay.circuit.heard(seq, signal, self.now, jitter)
        self.tell(relay, change)
        if signal is Signal.ANSWERED:
            assert not relay.circuit.is_open

    def tell(self, relay: OneRelay, change: Change | None) -> None:
        if change is None:
            return
        self.row.tell(change, relay.circuit)
        if change is Change.CLOSED:
            # What runs is an attempt among others from now on.
            for each in self.relays:
                each.probes.clear()

    @rule(steps=st.integers(1, 12), seconds=st.sampled_from([0.3, WATCH_SECONDS]))
    def pass_time(self, steps: int, seconds: float) -> None:
        for _ in range(steps):
            self.now += seconds
            for relay in self.relays:
                self.watch(relay)

    def watch(self, relay: OneRelay) -> None:
        if relay.circuit.probing and self.row.is_open:
            self.row.retry_at = self.now + RIGHT_SECONDS
        relay.circuit.learned(is_open=self.row.is_open, probes=self.row.probes, retry_at=self.row.retry_at)

    @precondition(lambda self: len(self.relays) > 1)
    @rule(number=st.integers(0, 2))
    def die(self, number: int) -> None:
        self.relays.remove(self.one(number))

    @rule()
    def recover(self) -> None:
        """From any state: once the receiver answers, the circuit is closed within a bound."""
        for relay in self.relays:
            for seq in list(relay.running):
                relay.running.discard(seq)
                relay.probes.discard(seq)
                self.tell(relay, relay.circuit.heard(seq, Signal.NOTHING, self.now, 0.5))
        until = self.now + RETRY_SECONDS_MAX + POLITE_SECONDS + RIGHT_SECONDS
        while self.row.is_open:
            assert self.now <= until
            self.pass_time(1, WATCH_SECONDS)
            for number, relay in enumerate(self.relays):
                before = set(relay.running)
                self.begin(number, 1)
                for seq in relay.running - before:
                    relay.running.discard(seq)
                    relay.probes.discard(seq)
                    self.tell(relay, relay.circuit.heard(seq, Signal.ANSWERED, self.now, 0.5))

    @invariant()
    def there_is_never_more_than_one_probe(self) -> None:
        assert sum(len(relay.probes) for relay in self.relays) <= 1

    @invariant()
    def a_wait_is_bounded(self) -> None:
        assert self.row.retry_at <= self.now + max(RETRY_SECONDS_MAX, RIGHT_SECONDS)


TestRelays: Any = Relays.TestCase
TestRelays.settings = settings(max_examples=300, stateful_step_count=50)


@given(signals=st.lists(st.tuples(st.integers(1, 8), st.sampled_from(Signal)), max_size=60))
def test_it_opens_after_so_many_misses_in_a_row_over_different_operations_and_never_before(
    signals: list[tuple[int, Signal]],
) -> None:
    circuit, missed = Circuit(), set[int]()
    for seq, signal in signals:
        change = circuit.heard(seq, signal, 0.0, 0.5)
        if signal is Signal.ANSWERED:
            missed.clear()
        elif signal is Signal.MISSED:
            missed.add(seq)
        assert circuit.is_open is (len(missed) >= MISSES_MAX)
        if circuit.is_open:
            assert change is Change.OPENED
            return


@given(probes=st.integers(0, 10**6), jitter=st.floats(0, 0.999))
def test_a_pause_grows_up_to_its_bound(probes: int, jitter: float) -> None:
    seconds = retry_seconds(probes, jitter)
    assert RETRY_SECONDS_FIRST / 2 <= seconds <= RETRY_SECONDS_MAX
    assert seconds <= retry_seconds(probes + 1, jitter)


def test_an_attempt_from_before_it_opened_closes_it_if_answered_and_prolongs_nothing() -> None:
    circuit = Circuit()
    for seq in range(MISSES_MAX):
        circuit.heard(seq, Signal.MISSED, 0.0, 0.5)
    retry_at = circuit.retry_at
    assert circuit.heard(99, Signal.MISSED, 5.0, 0.5) is None
    assert (circuit.retry_at, circuit.probes) == (retry_at, 0)
    assert circuit.heard(98, Signal.ANSWERED, 5.0, 0.5) is Change.CLOSED


def test_a_probe_that_never_left_teaches_nothing_and_the_next_one_does_not_wait() -> None:
    circuit = Circuit()
    circuit.learned(is_open=True, probes=3, retry_at=0.0)
    circuit.granted(0.0)
    assert circuit.reserve(0.0)
    circuit.began(7)
    circuit.release()
    assert not circuit.wants_right(100.0)
    assert circuit.heard(7, Signal.NOTHING, 1.0, 0.5) is None
    assert (circuit.probes, circuit.wants_right(1.0)) == (3, True)
    circuit.granted(1.0)
    assert circuit.reserve(1.0)
    circuit.began(8)
    circuit.release()
    circuit.dropped(8)
    assert not circuit.probing


def test_a_right_that_was_not_used_has_lapsed_before_others_may_have_it_and_its_holder_is_polite() -> None:
    circuit = Circuit()
    circuit.learned(is_open=True, probes=0, retry_at=0.0)
    circuit.granted(0.0)
    assert circuit.has_right(0.0)
    assert not circuit.has_right(RIGHT_SECONDS - WATCH_SECONDS)
    assert not circuit.wants_right(RIGHT_SECONDS + WATCH_SECONDS)
    assert circuit.wants_right(POLITE_SECONDS)


SERVER, CLIENT = Answer(status=503), Answer(status=409)


@pytest.mark.parametrize(
    ("outcome", "signal"),
    [
        (NotSent(reason="no connection", unreachable=True), Signal.MISSED),
        (NotSent(reason="the lease does not outlast its deadline"), Signal.NOTHING),
        (NotSent(reason="misdirected", answer=Answer(status=421)), Signal.ANSWERED),
        (Ambiguous(reason="t", cause=Cause.TIMEOUT), Signal.MISSED),
        (Ambiguous(reason="c", cause=Cause.CONNECTION_LOST), Signal.MISSED),
        (Ambiguous(reason="5", answer=SERVER), Signal.MISSED),
        (Ambiguous(reason="4", answer=CLIENT), Signal.ANSWERED),
        (Ambiguous(reason="told to stop", cause=Cause.SHUTDOWN), Signal.NOTHING),
        (Ambiguous(reason="unforeseen"), Signal.NOTHING),
        (Receipt(answer=CLIENT, receipt=""), Signal.ANSWERED),
        (Accepted(answer=CLIENT), Signal.ANSWERED),
        (Refused(answer=CLIENT), Signal.ANSWERED),
        (Throttled(answer=SERVER), Signal.ANSWERED),
        (InFlight(answer=CLIENT), Signal.ANSWERED),
        (Mismatch(answer=CLIENT), Signal.ANSWERED),
        (StoredFailure(answer=SERVER), Signal.ANSWERED),
        (ReceiverFault(answer=CLIENT), Signal.ANSWERED),
        (StaleFence(answer=CLIENT), Signal.ANSWERED),
    ],
    ids=lambda value: f"{type(value).__name__}" if not isinstance(value, Signal) else value.name,
)
def test_what_an_outcome_says_of_the_receiver(outcome: Outcome, signal: Signal) -> None:
    assert signal_of(outcome) is signal
