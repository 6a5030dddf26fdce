"""
What begins in a lane, and when: due retries and rung rows first, then what lies behind the cursor, then the frontier.

Everything that begins in a lane does so in one coroutine, one statement at a time. So whatever executes under the
lane's fence and was not heard of is an orphan of a lost answer, and nothing else.
"""

from typing import Any, Final, Protocol

from outbox import crashpoints
from outbox.errors import DatabaseUnavailable
from outbox.lease import boottime
from relay.begun import Begun
from relay.breaker import Breaker
from relay.flight import Flight
from relay.holding import Holding
from relay.orphans import sweep
from relay.position import Position, Range
from relay.rhythm import Rhythm
from relay.service import Service
from relay.shared import Shared

# How often a holder looks for orphans of its own: once in so many looks behind.
SWEEP_EVERY: Final = 6
# After a begin without an answer it looks at once, and goes on: the statement may still be running in the server, up to
# its statement_timeout.
_SUSPECT_SECONDS: Final = 60.0
_SUSPECT_EVERY_SECONDS: Final = 2.0
# Looking for orphans must not take more than this part of the time.
_SWEEP_PART: Final = 20


class Host(Protocol):
    """The lane that these claims are for."""

    @property
    def service(self) -> Service:
        """Its receiver."""

    @property
    def closing(self) -> bool:
        """Nothing begins here any more."""

    async def take_on(self, begun: list[Begun]) -> None:
        """These were exposed."""

    def lose(self, why: str) -> None:
        """The lease is lost."""


class Claims:
    """The beginning side of one lane."""

    def __init__(self, holding: Holding, shared: Shared, flight: Flight, host: Host) -> None:
        now = boottime()
        self.position = Position(shared.settings.look_behind_seconds, now)
        self.rhythm = Rhythm(shared.settings.poll_seconds, now)
        self._holding = holding
        self._shared = shared
        self._flight = flight
        self._host = host
        self.probing = False
        """What begins right now is the one attempt that an open circuit allows."""
        self._has_bell = False
        self._sweep_seconds = SWEEP_EVERY * shared.settings.look_behind_seconds
        self._next_sweep_at = now + self._sweep_seconds
        self._suspect_until = 0.0

    async def step(self) -> int:
        """Begin what may begin now, and return how many that were. Raises as the store does."""
        if self._host.closing:
            return 0
        if self._shared.channel is not None and not self._has_bell:
            self._has_bell = await self._set_bell(idle=False)
        self._flight.pump()
        await self._sweep()
        breaker = self._host.service.breaker
        await breaker.tell(self._shared.store)
        if breaker.is_open:
            begun = await self._probe(breaker)
        else:
            begun = await self._begin_due() + await self._begin_behind() + await self._begin_frontier()
        await self._mind_the_bell()
        return begun

    def next_step_at(self) -> float:
        """When there may be something to begin, if nobody wakes the lane before."""
        now = boottime()
        if self._host.service.breaker.is_open:
            later = now + self._shared.settings.poll_seconds
            retry_at = self._host.service.breaker.circuit.retry_at
            return min(later, retry_at) if retry_at > now else later
        if self._room() == 0:
            # Whoever ends an attempt wakes the lane; a lane that may not begin for another reason asks again.
            pace = self._flight.pace
            return now + self._shared.settings.poll_seconds if pace.room(now) else pace.free_at(now)
        dates = [self.rhythm.next_look_at, self.position.next_pass_at()]
        if (due_at := self.position.next_due_at()) is not None:
            dates.append(due_at)
        return min(dates)

    # ------------------------------------------------------------------------------------------------------ beginning

    def _room(self) -> int:
        """How many may begin now."""
        flight, service, settings = self._flight, self._host.service, self._shared.settings
        room = flight.free_slots
        if service.batch:
            ahead = min(flight.ahead(service.deadline_seconds), settings.batch_max)
            if 2 * flight.waiting > ahead:  # a few rows at a time would cost a statement each
                return 0
            room += ahead
        room = min(room, flight.pace.room(boottime()) - flight.waiting, settings.batch_max, self._shared.room)
        if service.breaker.is_open:
            room = min(room, int(self.probing))
        return 0 if self._host.closing else max(0, room)

    async def _probe(self, breaker: Breaker) -> int:
        """Begin one attempt while the circuit is open, if the right to it is ours or can be had."""
        if self._flight.free_slots <= 0 or not await breaker.may_probe(self._shared.store):
            return 0
        self.probing = True
        try:
            # In turns: one that fails by itself must not be every probe, and a new one may cost a person's time.
            ways = [self._begin_due, self._begin_behind, self._begin_frontier]
            for begin in reversed(ways) if breaker.circuit.probes % 2 else ways:
                if begun := await begin():
                    return begun
            return 0
        finally:
            self.probing = False
            breaker.circuit.release()

    async def _begin_due(self) -> int:
        room = self._room()
        seqs = self.position.due(boottime(), room) if room else []
        return len(await self._begin("begin_these", len(seqs), seqs=seqs)) if seqs else 0

    async def _begin_behind(self) -> int:
        started = boottime()
        room, where = self._room(), self.position.behind(started)
        if not room or where is None:
            return 0
        rows = await self._begin_range(where, room, frontier=False, hopeful=False)
        begun = _seqs(rows)
        if rows and self.position.looked(begun, room, boottime() - started):
            bounds = await self._shared.store.dicts(
                "lane_bounds", **self._holding.parameters, floor=self.position.floor
            )
            self.position.bounds_seen(**bounds[0], now=boottime())
            self.position.rested(boottime())
        return len(begun)

    async def _begin_frontier(self) -> int:
        room = self._room()
        if not room or boottime() < self.rhythm.next_look_at:
            return 0
        where = self.position.frontier()
        rows = await self._begin_range(where, room, frontier=True, hopeful=self.rhythm.hopeful)
        begun = _seqs(rows)
        if rows:
            emptied = self.position.advanced(begun, room, rows[0]["top"])
            self.rhythm.looked(boottime(), emptied=emptied, found=len(begun), xmin=rows[0]["xmin"])
        return len(begun)

    async def _begin_range(self, where: Range, limit: int, *, frontier: bool, hopeful: bool) -> list[dict[str, Any]]:
        """Begin what is due in a range. Without hope, look first: a begin costs a commit, also if it finds nothing."""
        given = {"after": where.after, "upto": where.upto, "frontier": frontier}
        if not hopeful:
            (seen,) = await self._shared.store.dicts("peek", **self._holding.parameters, **given)
            if not seen["due"]:
                return [{"seq": None, **seen}]
        return await self._begin("begin_range", limit, **given)

    async def _begin(self, statement: str, limit: int, **parameters: Any) -> list[dict[str, Any]]:
        """Run a begin statement. No rows: the lease is lost. One row without a seq: there was nothing."""
        crashpoints.reach("before_begin")
        sent_at = boottime()
        try:
            rows = await self._shared.store.dicts(
                statement,
                **self._holding.parameters,
                receiver=self._holding.receiver,
                batch_max=limit,
                resends=self._host.service.may_resend(self._shared.clock, sent_at),
                **parameters,
            )
        except DatabaseUnavailable:
            # It may have been committed. Then nobody has heard of its rows, and nobody sends them.
            self._suspect_until, self._next_sweep_at = boottime() + _SUSPECT_SECONDS, 0.0
            raise
        if not rows:
            self._host.lose("a begin was refused by the fence")
            return []
        begun = [Begun.of(row, sent_at) for row in rows if row["seq"] is not None]
        if begun:
            crashpoints.reach("after_begin")
            if self.probing:
                self._host.service.breaker.circuit.began(begun[0].seq)
                self._shared.meters.count("probes", receiver=self._holding.receiver)
            self._shared.meters.count("begun", len(begun), receiver=self._holding.receiver)
            await self._host.take_on(begun)
        return rows

    # ------------------------------------------------------------------------------------------------------- sweeping

    async def _sweep(self) -> None:
        now = boottime()
        if now < self._next_sweep_at or self._host.closing:
            return
        found = await sweep(
            self._shared.store,
            self._holding,
            Range(self.position.floor - 1, self.position.cursor),
            known=self._flight.open,
            abandoned=self._flight.abandoned,
            meters=self._shared.meters,
        )
        if found is None:
            self._host.lose("a sweep was refused by the fence")
            return
        for seq in found:
            self._flight.abandoned.discard(seq)
            self.position.ring(seq)
        done = boottime()
        every = self._sweep_seconds
        if done < self._suspect_until:
            every = min(every, _SUSPECT_EVERY_SECONDS)
        self._next_sweep_at = done + max(every, _SWEEP_PART * (done - now))

    # ------------------------------------------------------------------------------------------------------- the bell

    async def _mind_the_bell(self) -> None:
        if self._shared.channel is None or not self._host.service.doorbell or self._host.closing:
            return
        if self.rhythm.should_be_busy(boottime(), room=self._room()):
            if await self._set_bell(idle=False):
                self.rhythm.went_busy()
        elif self.rhythm.should_idle(boottime()) and await self._set_bell(idle=True):
            horizon = await self._shared.store.value("horizon")
            self.rhythm.went_idle(horizon, boottime())

    async def _set_bell(self, *, idle: bool) -> bool:
        rows = await self._shared.store.dicts(
            "set_bell", **self._holding.parameters, idle=idle, bell=self._shared.channel
        )
        if not rows:
            self._host.lose("the lane has another fence")
        return bool(rows)


def _seqs(rows: list[dict[str, Any]]) -> list[int]:
    return [row["seq"] for row in rows if row["seq"] is not None]
