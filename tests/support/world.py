"""
A receiver with a ledger, a network that is as late as the contract allows, and daemons that only do what they are told.

Everything that decides is the product's own code; this world only carries it out, and its ledger is the judge. Time is
seconds from the first exposure. A run ends with the operation, or when somebody must decide.
"""

import copy
import heapq
import math
import random
from dataclasses import dataclass, field
from itertools import count

from outbox.contract import Fencing, Key, Wiring
from outbox.decide import (
    FOREVER,
    Authorize,
    Look,
    OperationFacts,
    Person,
    Reject,
    Resend,
    Step,
    Succeed,
    Transition,
    after_attempt,
    next_step,
    no_resend,
    settle_at,
)
from outbox.evidence import Evidence, Kind, Verdict
from outbox.outcome import (
    Accepted,
    Ambiguous,
    Answer,
    InFlight,
    NotSent,
    Outcome,
    Receipt,
    ReceiverFault,
    Refused,
    StaleFence,
    Throttled,
)
from outbox.states import Cause, State, check_move
from tests.support.facts import at, seconds

ANSWER = Answer(200)
# Where no bound is stated, and none is assumed, a request may be so late.
LATE_SECONDS = 5_000.0
# The margin that stands for a bound where a key has a window and nobody states one.
LATE_SECONDS_ASSUMED = 300.0
STEPS_MAX = 20_000


@dataclass
class Ledger:
    """The receiver: every effect, the key it remembers, the highest fence it has seen, the work that it still does."""

    wiring: Wiring
    effects: list[float] = field(default_factory=list)
    key_stored_at: float | None = None
    fence: int = 0
    declined: bool = False
    events: list[tuple[float, int, str, int]] = field(default_factory=list)
    numbers: "count[int]" = field(default_factory=count)

    def add(self, time: float, what: str, fence: int = 0) -> None:
        heapq.heappush(self.events, (time, next(self.numbers), what, fence))

    def knows_key(self, time: float) -> bool:
        contract = self.wiring.contract
        if not isinstance(contract.key, Key) or self.key_stored_at is None:
            return False
        return contract.duplicate_guard == "resource" or time < self.key_stored_at + contract.key_retention

    @property
    def pending(self) -> bool:
        """Work was accepted and is not done."""
        return any(what.startswith("work") for _, _, what, _ in self.events)

    def until(self, time: float) -> None:
        """Let everything happen that happens up to then."""
        while self.events and self.events[0][0] <= time:
            when, _, what, fence = heapq.heappop(self.events)
            if what == "work":
                self.effects.append(when)
            elif what == "work declined":
                self.declined = True
                # What failed is not stored: the same key executes anew.
                self.key_stored_at = None
            else:
                self.land(when, fence, float(what.partition(" ")[2]))

    def land(self, time: float, fence: int, work_seconds: float) -> str:
        """A request arrives. Work that takes longer than for ever is declined after as long."""
        contract = self.wiring.contract
        if isinstance(contract.fencing, Fencing):
            # A tombstone shuts out the attempt that it was left for; a lane's fence only those before it.
            stale = fence <= self.fence if contract.fencing.in_ == "column" else fence < self.fence
            if stale and not (contract.fencing.in_ == "column" and self.knows_key(time)):
                return "stale"
        if self.knows_key(time):
            return "replay"
        if contract.precondition != "none" and self.effects:
            return "412"
        self.key_stored_at = time
        if contract.acceptance == "async":
            self.add(time + abs(work_seconds), "work" if work_seconds >= 0 else "work declined")
            return "accepted"
        self.effects.append(time)
        return "done"

    def at_last(self) -> int:
        """How many effects there will be when everything has happened."""
        future = copy.deepcopy(self)
        future.until(math.inf)
        return len(future.effects)


class World:
    """One operation from its first exposure on."""

    def __init__(self, wiring: Wiring, seed: int, *, late_daemons: bool, hopeless: bool = False) -> None:
        self.wiring = wiring
        self.random = random.Random(seed)
        self.late_daemons = late_daemons
        self.hopeless = hopeless
        self.ledger = Ledger(wiring)
        self.now = 0.0
        self.fence = 1
        self.evidence: list[tuple[float, Evidence]] = []
        self.permission_until = self.random.choice([math.inf, math.inf, self.random.uniform(0, 300)])
        # When each resend began, and the first exposure that its window counts from.
        self.resends: list[tuple[float, float]] = []
        self.trace: list[str] = []
        self.doubt_seconds: list[float] = []
        self.doubted_since: float | None = None
        retention = wiring.retention_seconds
        self.op = OperationFacts(
            attempt=0,
            first_sent_at=None,
            resend_until=None,
            last_exposed_at=None,
            unresolved_at=at(0),
            earlier_unresolved=False,
            state=State.AUTHORIZED,
            permission_until=None if math.isinf(self.permission_until) else at(self.permission_until),
        )
        self.retention = retention

    # ------------------------------------------------------------------------------------------------- the daemons

    def run(self) -> str:
        """Return how it ended: succeeded, rejected or person."""
        for _ in range(STEPS_MAX):
            if self.op.state in {State.SUCCEEDED, State.REJECTED}:
                return self.op.state
            if self.op.state is State.AUTHORIZED:
                if not self.op.permits(at(self.now)):
                    self.to(State.REJECTED, "expired")
                else:
                    self.attempt()
            elif (ended := self.decide()) is not None:
                return ended
            if self.op.state is State.AUTHORIZED and self.op.cause is Cause.FORBIDDEN:
                return "person"
        raise AssertionError("neither an end nor a person: " + "; ".join(self.trace[-20:]))

    def to(self, state: State, why: str) -> None:
        check_move(self.op.state, state)
        self.op = self.op._replace(state=state)
        self.trace.append(f"{self.now:.1f} {state} ({why})")
        if state is not State.EXECUTING and state is not State.UNKNOWN and self.doubted_since is not None:
            self.doubt_seconds.append(self.now - self.doubted_since)
            self.doubted_since = None
        if state in {State.REJECTED, State.AUTHORIZED}:
            assert self.ledger.at_last() == 0, f"{state}, and there is or will be an effect: {self.trace}"
        if state is State.SUCCEEDED:
            self.ledger.until(self.now)
            assert self.ledger.effects, f"succeeded, and there is no effect: {self.trace}"

    def decide(self) -> str | None:
        known = [item for time, item in self.evidence if time <= self.now]
        decision = next_step(self.op, self.wiring, known, at(self.now))
        match decision:
            case Succeed():
                self.to(State.SUCCEEDED, decision.cause)
            case Reject():
                self.to(State.REJECTED, decision.cause)
            case Authorize():
                if decision.anchor_anew:
                    self.op = self.op._replace(first_sent_at=None, resend_until=None)
                self.op = self.op._replace(last_exposed_at=None, settle_at=None, accepted=False)
                self.to(State.AUTHORIZED, decision.cause)
            case Look():
                self.wait_until(seconds(decision.at))
                self.look()
            case Resend():
                self.wait_until(seconds(decision.at))
                # The begin statement checks once more: a daemon may have been late.
                if no_resend(self.op, self.wiring, known, at(self.now)) is None:
                    self.attempt()
            case Person():
                self.trace.append(f"{self.now:.1f} person ({decision.reason})")
                if self.doubted_since is not None:
                    self.doubt_seconds.append(self.now - self.doubted_since)
                return "person"
        return None

    def wait_until(self, time: float) -> None:
        assert time > self.now - 1e-5, "a date in the past"  # dates hold microseconds
        self.now = max(self.now, time) + (self.random.choice([0, 0, 1, 30, 400]) if self.late_daemons else 0)

    # ------------------------------------------------------------------------------------------------------- a look

    def look(self) -> None:
        sent = self.now
        self.ledger.until(sent)
        fence, fencing = None, self.wiring.contract.fencing
        if isinstance(fencing, Fencing) and fencing.in_ == "column":
            # Sometimes somebody looks who may only read.
            if self.random.random() < 0.8:
                fence = self.op.attempt
                self.ledger.fence = max(self.ledger.fence, fence)
        elif isinstance(fencing, Fencing):
            # Sometimes somebody looks who has no fence to raise beyond the attempt's own.
            self.fence += self.random.choice([0, 1])
            self.ledger.fence = max(self.ledger.fence, self.fence)
            fence = self.fence
        verdict = self.seen_at(sent)
        self.now += self.random.uniform(0, 40) if self.late_daemons else 0.0
        self.trace.append(f"{sent:.1f} look: {verdict}")
        self.op = self.op._replace(reads=self.op.reads + 1, last_read_at=at(sent))
        if verdict is not Verdict.UNKNOWN or self.random.random() < 0.5:
            found = Evidence(
                kind=Kind.LOOKUP,
                attempt=self.op.attempt,
                observed_at=at(self.now),
                sent_at=at(sent),
                verdict=verdict,
                fence=fence,
            )
            self.evidence.append((self.now, found))

    def seen_at(self, time: float) -> Verdict:
        """What the records show: the truth, as old as the lag allows, or nothing at all."""
        if self.hopeless or self.random.random() < 0.25:
            return Verdict.UNKNOWN
        lag = self.random.uniform(0, self.wiring.lag_seconds)
        lookup = self.wiring.lookup
        assert lookup is not None
        if any(effect <= time - lag for effect in self.ledger.effects):
            return Verdict.CONFIRMED
        if lookup.sees_pending:
            if self.ledger.pending:
                return Verdict.UNKNOWN
            if self.ledger.declined:
                return Verdict.ENDED
        return Verdict.NOT_FOUND

    # --------------------------------------------------------------------------------------------------- an attempt

    @property
    def carried(self) -> int:
        """The number by which the receiver tells an old attempt from a new one."""
        fencing = self.wiring.contract.fencing
        return self.op.attempt if isinstance(fencing, Fencing) and fencing.in_ == "column" else self.fence

    def attempt(self) -> None:
        op, begun = self.op, self.now
        resend = op.state is State.UNKNOWN
        settled = resend and op.last_exposed_at is not None and self.has_settled(op)
        self.to(State.EXECUTING, "resend" if resend else "begin")
        self.doubted_since = begun if self.doubted_since is None else self.doubted_since
        first = op.first_sent_at or at(begun)
        if resend:
            self.resends.append((begun, seconds(first)))
        until = op.resend_until or (FOREVER if math.isinf(self.retention) else at(begun + self.retention))
        self.op = self.op._replace(
            attempt=op.attempt + 1,
            first_sent_at=first,
            resend_until=until,
            last_exposed_at=at(begun),
            unresolved_at=op.unresolved_at if resend else at(begun),
            earlier_unresolved=resend,
            fence=self.fence,
            reads=0,
            last_read_at=None,
        )
        outcome = self.outcome_of_attempt()
        after = after_attempt(
            outcome,
            wiring=self.wiring,
            attempt=self.op.attempt,
            earlier_unresolved=resend,
            earlier_settled=settled,
            throttled=op.throttled,
            not_sent=op.not_sent,
            jitter=self.random.random(),
        )
        self.trace.append(f"{begun:.1f} attempt {self.op.attempt}: {type(outcome).__name__}")
        self.record(op, outcome, after)

    def has_settled(self, op: OperationFacts) -> bool:
        settled = settle_at(op.last_exposed_at, self.wiring) if op.last_exposed_at else None
        return settled is not None and settled <= at(self.now)

    def record(self, before: OperationFacts, outcome: Outcome, after: Transition) -> None:
        """What the statements of the database do with a transition."""
        delay = after.delay_seconds or 0.0
        op = self.op._replace(
            cause=after.cause,
            gave_up_at=at(self.now),
            not_before=at(self.now + delay),
            accepted=self.op.accepted or after.accepted,
            mismatch=self.op.mismatch or after.mismatch,
            no_more_resends=self.op.no_more_resends or after.no_more_resends,
            throttled=self.op.throttled + isinstance(outcome, Throttled),
            not_sent=self.op.not_sent + isinstance(outcome, NotSent),
        )
        if after.withdraw:
            op = op._replace(last_exposed_at=before.last_exposed_at)
            if isinstance(outcome, NotSent) and before.first_sent_at is None:
                op = op._replace(first_sent_at=None, resend_until=None)
        self.op = op
        self.to(after.state, after.cause or "receipt")
        if after.state is State.AUTHORIZED:
            self.op = self.op._replace(cause=after.cause if after.step is Step.PERSON else None)
            self.now += delay

    def outcome_of_attempt(self) -> Outcome:
        """Let the world answer, and advance the clock to when the attempt is given up."""
        deadline, lease = self.wiring.deadline_seconds, self.wiring.receiver.lease
        kind = (
            "lost"
            if self.hopeless
            else self.random.choice(["lost", "crash", "answered", "answered", "said no", "not sent"])
        )
        begun = self.now
        if kind == "not sent":
            self.now += self.random.uniform(0, deadline)
            return NotSent(reason="connect refused")
        if kind == "said no":
            return self.said_no(begun)
        lands = self.sends_request(begun)
        if kind == "answered" and lands is not None and lands < begun + deadline:
            return self.answered(begun, lands)
        self.now = begun + deadline
        if kind == "crash":
            self.now += self.random.uniform(0, lease)
            self.leaves_something_behind(lands)
        return Ambiguous(reason="no answer")

    def sends_request(self, begun: float) -> float | None:
        """Put the request on its way, as late as it may be; over some paths twice. None: it never arrives."""
        late = self.lateness()
        lands = None if self.random.random() < 0.3 else begun + self.random.choice([0.5, late / 2, late * 0.999])
        copies = 2 if self.wiring.contract.replays else 1
        for _ in range(copies):
            if lands is not None:
                work = self.random.choice([1.0, 50.0, 2_000.0, -30.0])
                self.ledger.add(lands, f"land {work}", self.carried)
                lands = min(begun + late * 0.999, lands + self.random.uniform(0, 3)) if copies > 1 else lands
        return lands

    def lateness(self) -> float:
        """How long after its begin a request may land, under the assumptions that the guarantee prints."""
        contract, late = self.wiring.contract, LATE_SECONDS
        if contract.in_flight_bound is not None:
            late = self.wiring.receiver.pause_bound + contract.in_flight_bound
        elif isinstance(contract.key, Key) and 0 < contract.key_retention < math.inf:
            late = LATE_SECONDS_ASSUMED
        return self.wiring.config.deadline + late

    def said_no(self, begun: float) -> Outcome:
        """This request was not executed. Where a path repeats requests, that speaks of one copy only."""
        self.now = begun + self.random.uniform(0, self.wiring.deadline_seconds)
        self.ledger.until(self.now)
        if self.wiring.contract.replays and self.random.random() < 0.5:
            self.ledger.add(begun + self.random.uniform(0, self.lateness() * 0.99), "land 1.0", self.carried)
        choices: list[Outcome] = [
            Throttled(answer=ANSWER, retry_after_seconds=self.random.choice([None, 1.0, 90.0])),
            ReceiverFault(answer=ANSWER, forbidden=self.random.random() < 0.5),
        ]
        if not (self.wiring.contract.key_checked_first and self.ledger.knows_key(self.now)):
            choices.append(Refused(answer=ANSWER))
        return self.random.choice(choices)

    def answered(self, begun: float, lands: float) -> Outcome:
        """The answer to this very request, heard in time."""
        before = copy.deepcopy(self.ledger)
        before.until(math.nextafter(lands, 0))
        said = before.land(lands, self.carried, 1.0)
        self.ledger.until(lands)
        self.now = self.random.uniform(lands, begun + self.wiring.deadline_seconds)
        if said == "stale":
            fencing = self.wiring.contract.fencing
            if isinstance(fencing, Fencing) and fencing.in_ == "column":
                return NotSent(reason="a look has shut this attempt out", answer=ANSWER)
            return StaleFence(answer=ANSWER)
        if said == "412":
            return Refused(answer=ANSWER, cause=Cause.PRECONDITION_FAILED)
        if self.wiring.contract.acceptance == "async":
            return Accepted(answer=ANSWER)
        if said == "replay" and self.random.random() < 0.2:
            return InFlight(answer=ANSWER)
        return Receipt(answer=ANSWER, receipt="{}")

    def leaves_something_behind(self, lands: float | None) -> None:
        """A process that lost its lease may still know something, and say so late."""
        facts = {"attempt": self.op.attempt, "fence": self.op.fence}
        if lands is None and not self.wiring.contract.replays and self.random.random() < 0.3:
            time = self.now + self.random.uniform(0, 60)
            self.evidence.append((time, Evidence(kind=Kind.NOT_SENT, observed_at=at(time), **facts)))  # type: ignore[arg-type]
