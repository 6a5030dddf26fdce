"""One receiver as this relay serves it: the open connection, its shares, and what its tools need."""

from collections.abc import Iterable
from typing import Final

from outbox.contract import ReceiverConfig, ReceiverFacts, Wiring
from outbox.daemon import ClockWatch
from outbox.guarantee import guarantee
from outbox.receivers import Receiver
from outbox.registry import ReceiverEntry
from relay.breaker import Breaker, Told
from relay.share import Pace, slots

# So many refusals of our credential in a row, over different operations and without any other answer between, are not
# about one operation any more.
FAULTS_MAX: Final = 5


class Faults:
    """Counts answers that blame us and not the operation."""

    def __init__(self) -> None:
        self._seqs: set[int] = set()

    def heard(self, seq: int, *, blames_us: bool) -> bool:
        """Take in an answer; True if it is time to pause the receiver. Then it counts from zero again."""
        if not blames_us:
            self._seqs.clear()
            return False
        self._seqs.add(seq)
        if len(self._seqs) < FAULTS_MAX:
            return False
        self._seqs.clear()
        return True


class Service:
    """What the lanes of one receiver share. A changed configuration makes a new one."""

    def __init__(self, entry: ReceiverEntry, tools: Iterable[Wiring], receiver: Receiver, told: Told) -> None:
        self.receiver_id = entry.receiver_id
        self.name = entry.name
        self.lanes = entry.lanes
        self.doorbell = entry.doorbell
        self.config: ReceiverConfig = entry.config
        self.way = ReceiverFacts.of(entry.name, entry.config).way
        self.receiver = receiver
        self.faults = Faults()
        self.breaker = Breaker(entry.receiver_id, told)
        self.use(tools)

    def use(self, tools: Iterable[Wiring]) -> None:
        """Take in the contract versions that are in force now."""
        wirings = tuple(tools)
        promises = [guarantee(wiring) for wiring in wirings]
        self.batch = bool(promises) and all(promise.batch for promise in promises)
        """An ambiguity costs nobody's time, whichever tool it is: large claims are fine."""
        self.deadline_seconds = min((wiring.deadline_seconds for wiring in wirings), default=1.0)
        self._margins = tuple(wiring.margin_seconds for wiring in wirings if wiring.resend_safe)
        self._needs_dead_man = {
            wiring.digest: promise.dead_man for wiring, promise in zip(wirings, promises, strict=True)
        }

    @property
    def lease_seconds(self) -> float:
        """How long a lease on one of its lanes lasts."""
        return self.config.lease

    def slots(self, lane: int) -> int:
        """How many attempts of a lane may run at once."""
        return slots(self.config.concurrency, self.lanes, lane)

    def pace(self) -> Pace:
        """A lane's part of the rate."""
        return Pace(None if self.config.rate is None else self.config.rate / self.lanes)

    def may_resend(self, clock: ClockWatch, now: float) -> bool:
        """Whether the database's clock can be trusted with the windows of all its tools."""
        return not any(clock.suspends_resends(margin, now) for margin in self._margins)

    def wants_dead_man(self, wiring: Wiring) -> bool:
        """Whether a process that is stopped before the first byte of such an attempt should not live on."""
        if self.config.dead_man is not None:
            return self.config.dead_man
        wanted = self._needs_dead_man.get(wiring.digest)
        return guarantee(wiring).dead_man if wanted is None else wanted
