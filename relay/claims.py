"""
What begins in a lane, and when: due retries and rung rows first, then what lies behind the cursor, then the frontier.

Everything that begins in a lane does so in one coroutine, one statement at a time. So whatever executes under the
lane's fence and was not heard of is an orphan of a lost answer, and nothing else.
"""

from typing import Any, Final, Protocol

from outbox import crashpoints
from outbox.errors import DatabaseUnavailable
from outbox.lease import boottime
from relay.begun import Begun, Claimed
from relay.bell import Bell, RungHost
from relay.breaker import Breaker
from relay.crowd import FOUND_MAX, ROWS_MAX, Crowd
from relay.flight import Flight
from relay.holding import Holding
from relay.orphans import sweep
from relay.position import Position, Range
from relay.rhythm import Rhythm
from relay.room import Room
from relay.shared import Shared

# How often a holder looks for orphans of its own: once in so many looks behind.
SWEEP_EVERY: Final = 6
# After a begin without an answer it looks at once, and goes on: the statement may still be running in the server, up to
# its statement_timeout.
_SUSPECT_SECONDS: Final = 60.0
_SUSPECT_EVERY_SECONDS: Final = 2.0
# Looking for orphans must not take more than this part of the time.
_SWEEP_PART: Final = 20


class Host(RungHost, Protocol):
    """The lane that these claims are for."""

    async def take_on(self, begun: list[Begun]) -> None:
        """These were exposed."""


class Claims:
    """The beginning side of one lane."""

    def __init__(self, holding: Holding, shared: Shared, flight: Flight, crowd: Crowd, host: Host) -> None:
        now = boottime()
        self.position = Position(shared.settings.look_behind_seconds, now)
        self.rhythm = Rhythm(shared.settings.poll_seconds, now)
        self._holding = holding
        self._shared = shared
        self._flight = flight
        self._crowd = crowd
        self._host = host
        self._bell = Bell(holding, shared, self.rhythm, crowd, host)
        self._room = Room(
            holding.lane, shared, flight.turns, crowd=crowd, host=host, seconds=lambda: flight.attempt_seconds
        )
        self._sweep_seconds = SWEEP_EVERY * shared.settings.look_behind_seconds
        self._next_sweep_at = now + self._sweep_seconds
        self._suspect_until = 0.0

    async def step(self) -> int:
        """Begin what may begin now, and return how many that were. Raises as the store does."""
        if self._host.closing:
            return 0
        await self._bell.hang()
        self._flight.pump()
        await self._sweep()
        breaker = self._host.service.breaker
        await breaker.tell(self._shared.store)
        if breaker.is_open:
            begun = await self._probe(breaker)
        else:
            begun = await self._begin_all()
            look_at = self._crowd.next_look_at()
            looks = look_at is not None and look_at <= boottime()
            self._room.queue_up(by_name=looks or self.position.remembered > 0)
        await self._bell.mind(self._room.now())
        return begun

    def next_step_at(self) -> float:
        """When there may be something to begin, if nobody wakes the lane before."""
        now = boottime()
        if self._host.service.breaker.is_open:
            later = now + self._shared.settings.poll_seconds
            retry_at = self._host.service.breaker.circuit.retry_at
            return min(later, retry_at) if retry_at > now else later
        # Whoever ends an attempt wakes the lane; a lane that may not begin for another reason asks again.
        pace = self._flight.turns.pace
        dates: list[float | None] = [now + self._shared.settings.poll_seconds if pace.room(now) else pace.free_at(now)]
        if self._room.now():
            of_crowd = self.position.next_due_at(of_crowd=True)
            dates += [self.rhythm.next_look_at, self.position.next_pass_at(), of_crowd]
        room = self._room.now(past_crowd=True)
        if room or not self.position.remembered:  # once it is due, it waits to be woken
            dates.append(self.position.next_due_at())
        if room:
            dates.append(self._crowd.next_look_at())
        return min(date for date in dates if date is not None)

    @property
    def probing(self) -> bool:
        """Whether what begins right now is the one attempt that an open circuit allows."""
        return self._room.probing

    def rung(self) -> None:
        """Somebody wrote an intent here."""
        now = boottime()
        self.rhythm.rung(now)
        self._crowd.rung(now)

    # ------------------------------------------------------------------------------------------------------ beginning

    async def _begin_all(self) -> int:
        if not self._crowd.tenants:
            return await self._begin_due() + await self._begin_behind() + await self._begin_frontier()
        await self._look_ahead()
        ways = [self._begin_due, self._begin_frontier]
        begun = sum([await begin() for begin in (reversed(ways) if self._flight.turns.has_turn else ways)])
        return begun + await self._begin_behind()

    async def _probe(self, breaker: Breaker) -> int:
        """Begin one attempt while the circuit is open, if the right to it is ours or can be had."""
        if self._flight.turns.own_room <= 0 or not await breaker.may_probe(self._shared.store):
            return 0
        self._room.probing = True
        try:
            # In turns: one that fails by itself must not be every probe, and a new one may cost a person's time.
            ways = [self._begin_due, self._begin_behind, self._begin_frontier]
            for begin in reversed(ways) if breaker.circuit.probes % 2 else ways:
                if begun := await begin():
                    return begun
            return 0
        finally:
            self._room.probing = False
            breaker.circuit.release()

    async def _begin_due(self) -> int:
        now, room = boottime(), self._room.now()
        of_others = self.position.due(now, self._room.now(past_crowd=True))
        of_crowd = self.position.due(now, room - len(of_others), of_crowd=True)
        seqs = of_others + of_crowd
        if not seqs:
            return 0
        try:
            claimed = await self._begin("begin_these", len(seqs), seqs=seqs)
        except DatabaseUnavailable:
            # Of those past a crowd the look-behind knows nothing, nor does the sweep.
            self.position.unheard(seqs)
            for seq in seqs:
                self.position.ring(seq, of_crowd=seq in of_crowd)
            raise
        if claimed is None:
            return 0
        self._crowd.met(claimed.tenants, boottime())
        return len(claimed.begun)

    async def _begin_behind(self) -> int:
        started = boottime()
        room, where = self._room.now(), self.position.behind(started)
        if not room or where is None:
            return 0
        claimed = await self._begin_range(where, room, frontier=False, hopeful=False)
        if claimed is None:
            return 0
        if self.position.looked(claimed.seqs, room, boottime() - started):
            bounds = await self._shared.store.dicts(
                "lane_bounds", **self._holding.parameters, floor=self.position.floor
            )
            self.position.bounds_seen(**bounds[0], now=boottime())
            self.position.rested(boottime())
        return len(claimed.begun)

    async def _begin_frontier(self) -> int:
        room = self._room.now()
        if not room or boottime() < self.rhythm.next_look_at:
            return 0
        where = self.position.frontier()
        claimed = await self._begin_range(where, room, frontier=True, hopeful=self.rhythm.hopeful)
        if claimed is None:
            return 0
        emptied = self.position.advanced(claimed.seqs, room, claimed.top)
        if emptied:
            self._crowd.dissolved()
        else:
            self._crowd.began(claimed.tenants, boottime())
        self.rhythm.looked(boottime(), emptied=emptied, found=len(claimed.begun), xmin=claimed.xmin)
        return len(claimed.begun)

    async def _look_ahead(self) -> None:
        """Find operations of others past the crowd, if they could begin: they are due by name from then on."""
        started = boottime()
        where = self._crowd.ahead(self.position.cursor, started)
        if where is None or self.position.remembered >= FOUND_MAX or not self._room.now(past_crowd=True):
            return
        (seen,) = await self._shared.store.dicts(
            "look_ahead",
            **self._holding.parameters,
            after=where.after,
            rows_max=ROWS_MAX,
            found_max=FOUND_MAX,
            crowd=list(self._crowd.tenants),
        )
        now = boottime()
        self._crowd.looked(seen["tenants"], seen["upto"], now - started, now, more=seen["more"])
        for seq, tenant in zip(seen["seqs"], seen["tenants"], strict=True):
            if tenant not in self._crowd.tenants:  # who fills what lies behind is passed over too
                self.position.ring(seq)

    async def _begin_range(self, where: Range, limit: int, *, frontier: bool, hopeful: bool) -> Claimed | None:
        """Begin what is due in a range. Without hope, look first: a begin costs a commit, also if it finds nothing."""
        given = {"after": where.after, "upto": where.upto, "frontier": frontier}
        if not hopeful:
            (seen,) = await self._shared.store.dicts("peek", **self._holding.parameters, **given)
            if not seen["due"]:
                return Claimed([], seen["xmin"], seen["top"])
        return await self._begin("begin_range", limit, **given)

    async def _begin(self, statement: str, limit: int, **parameters: Any) -> Claimed | None:
        """Run a begin statement. No rows: the lease is lost, None. One row without a seq: there was nothing."""
        crashpoints.reach("before_begin")
        try:
            with self._flight.turns.promised(limit):
                return await self._begin_promised(statement, limit, **parameters)
        finally:
            self._flight.turns.freed(boottime())

    async def _begin_promised(self, statement: str, limit: int, **parameters: Any) -> Claimed | None:
        sent_at = boottime()
        try:
            rows = await self._shared.store.tuples(
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
            return None
        begun = [Begun.of(row, sent_at) for row in rows if row[0] is not None]
        if begun:
            crashpoints.reach("after_begin")
            if self.probing:
                self._host.service.breaker.circuit.began(begun[0].seq)
                self._shared.meters.count("probes", receiver=self._holding.receiver)
            self._shared.meters.count("begun", len(begun), receiver=self._holding.receiver)
            await self._host.take_on(begun)
        return Claimed(begun, *rows[0][-2:])

    # ------------------------------------------------------------------------------------------------------- sweeping

    async def _sweep(self) -> None:
        now = boottime()
        if now < self._next_sweep_at or self._host.closing:
            return
        found = await sweep(
            self._shared.store,
            self._holding,
            Range(self.position.floor - 1, self.position.reach),
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
        elif not self._flight.abandoned:
            self.position.swept()
        self._next_sweep_at = done + max(every, _SWEEP_PART * (done - now))
