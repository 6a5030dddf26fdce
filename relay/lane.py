"""One held lane, from taking it to giving it back."""

import asyncio
import contextlib
from typing import Final

from outbox.daemon import Crew, until_answered
from outbox.decide.facts import Step
from outbox.errors import DatabaseError, DatabaseUnavailable
from outbox.lease import LocalLease, boottime
from outbox.observe import emit
from outbox.outcome import NotSent
from outbox.states import TERMINAL, Cause
from relay.attempt import Scene, unreadable
from relay.begun import Begun, Bound, Finished
from relay.claims import Claims
from relay.crowd import Crowd
from relay.flight import Flight
from relay.holding import Holding
from relay.recorder import Recorder, Row
from relay.service import Service
from relay.shared import Hub, Shared
from relay.turns import Turns

# A statement that the database refuses (not one that it does not answer) is not tried again at once.
_REFUSED_SECONDS: Final = 1.0
# A wake-up may come between a flush and the wait for it.
_SETTLE_SECONDS: Final = 0.05
# So few that begin by name beside many others do not make the groups small that are recorded.
_FEW_PART: Final = 8
# A lease that is over, whatever the clock says.
_NO_LEASE: Final = LocalLease(float("-inf"))


class Lane:
    """A lane under one lease: what begins (`claims`), what runs (`flight`), what was heard (`recorder`)."""

    def __init__(self, holding: Holding, lease: LocalLease, service: Service, shared: Shared, hub: Hub) -> None:
        self.holding = holding
        self.lease = lease
        self.service = service
        self.wake = asyncio.Event()
        self.drained = asyncio.Event()
        """Closed, and everything that was begun is recorded."""
        self.give_up = asyncio.Event()
        """Do not wait for the database any longer."""
        self.lost = False
        self._shared = shared
        self._hub = hub
        self._scene = self._scene_of(service)
        self._closing = asyncio.Event()
        settings = shared.settings
        # Writers ring for what comes after; without a bell, its end is looked at as often as the lane itself.
        rung = shared.channel is not None and service.doorbell
        poll = settings.look_behind_seconds if rung else settings.poll_seconds
        slots, now = shared.slots[holding.receiver_id], boottime()
        crowd = Crowd(poll_seconds=poll, pass_seconds=settings.look_behind_seconds, now=now, slots=slots)
        own, pace = service.slots(holding.lane), service.pace()
        self._crowd = crowd
        self.flight = Flight(
            holding,
            shared.meters,
            shared.memory,
            scene=lambda: self._scene,
            turns=Turns(slots, crowd, own=own, pace=pace, wake=self._slot_free),
            ended=self._ended,
            dropped=self._drop,
        )
        self.claims = Claims(holding, shared, self.flight, crowd, self)
        self.recorder = Recorder(shared.store, holding, shared.meters, self, self.give_up)

    # ------------------------------------------------------------------------------------------------------- its life

    async def run(self) -> None:
        """Begin, deliver and record, until it is closed and drained."""
        crew = Crew()
        crew.start(self.recorder.run())
        await crew.during(self._until_drained())

    async def _until_drained(self) -> None:
        while not self.closing:
            await self._turn()
        # A begin that was on its way while the lane was being closed has been heard of by now.
        self.drained.clear()
        self._check_drained()
        await self.drained.wait()

    async def _turn(self) -> None:
        again_at = 0.0
        try:
            await until_answered(self.claims.step, self._closing)
            again_at = self.claims.next_step_at()
        except DatabaseUnavailable:
            return  # closed meanwhile
        except DatabaseError as error:
            emit("statement_failed", receiver=self.holding.receiver, lane=self.holding.lane, reason=error.message)
            again_at = boottime() + _REFUSED_SECONDS
        await self._rest(again_at)

    async def _rest(self, until: float) -> None:
        """Let others run; until that time, or until something has happened."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - boottime())):
                await self.wake.wait()
        self.wake.clear()

    @property
    def closing(self) -> bool:
        """Nothing begins here any more."""
        return self._closing.is_set()

    def serve(self, service: Service) -> None:
        """The receiver or its tools have changed: attempts that start from now on use the new one."""
        self.service = service
        self._scene = self._scene_of(service)
        self.flight.turns.serve(service.slots(self.holding.lane), service.pace())
        self.flight.turns.freed(boottime())
        self.flight.pump()
        self.wake.set()

    def close(self) -> None:
        """Begin nothing more. What was begun comes to its end."""
        self._closing.set()
        self.flight.turns.close()
        self.wake.set()
        self._check_drained()

    def lose(self, why: str) -> None:
        """Somebody else has the lane: nothing starts, and what comes in becomes evidence."""
        if self.lost:
            return
        self.lost, self.lease = True, _NO_LEASE
        self._shared.meters.count("leases_lost", receiver=self.holding.receiver)
        emit("lane_lost", receiver=self.holding.receiver, lane=self.holding.lane, fence=self.holding.fence, reason=why)
        self.flight.dismiss(NotSent(reason="the lease was lost before it could be sent", cause=Cause.TOO_LATE))
        self.close()

    def renewed(self, sent_at: float) -> None:
        """The database has confirmed a renewal that was sent at that time."""
        if not self.lost:
            self.lease = self.lease.renewed(sent_at, self.service.lease_seconds)
            self._shared.dead_man.renewed(self.holding.token, self.lease)

    def ring(self, seq: int | None = None) -> None:
        """Somebody wrote an intent here (None), or made an operation due."""
        if seq is None:
            self.claims.rung()
        else:
            self.claims.position.ring(seq)
        self.wake.set()

    def circuit_changed(self) -> None:
        """The receiver is left alone: what waits is not sent. Or it answers again: there may be something to begin."""
        if self.service.breaker.is_open:
            reason = "the receiver is left alone: its circuit is open"
            self.flight.dismiss(NotSent(reason=reason, cause=Cause.LEFT_ALONE))
        self.ring()

    async def settle(self) -> None:
        """Wait until everything that was begun is recorded: for one step at a time, without `run`."""
        heard = -1
        while self.flight.open:
            if len(self.recorder) in {heard, len(self.flight.open)}:  # all of them, or no more for a while
                await self.recorder.flush()
            if self.flight.open:
                heard = len(self.recorder)
                await self._rest(boottime() + _SETTLE_SECONDS)

    # ---------------------------------------------------------------------------------------------------- its attempts

    async def take_on(self, begun: list[Begun]) -> None:
        """Bind each to its contract versions, and start it when a slot is free."""
        if not self.flight.open or len(begun) > self.recorder.group // _FEW_PART:
            self.recorder.group = len(begun)
        self.flight.begin(begun)
        wirings, caught_up = self._shared.wirings, False
        for row in begun:
            try:
                pinned, in_force = await wirings.get(row.contract_id), await wirings.get(row.contract_in_force)
            except DatabaseError as error:
                self._ended(unreadable(row, f"its contract version cannot be read: {error.message}"))
            else:
                if in_force.receiver.way != self.service.way and not caught_up:
                    await self._hub.catch_up()
                    caught_up = True
                self.flight.add(Bound(begun=row, pinned=pinned, in_force=in_force))
        if self.lost:
            self.flight.dismiss(NotSent(reason="the lease was lost before it could be sent", cause=Cause.TOO_LATE))
        elif self.service.breaker.is_open and not self.claims.probing:
            self.circuit_changed()  # while these were begun

    def _scene_of(self, service: Service) -> Scene:
        holding = self.holding
        return Scene(
            instance_id=self._shared.instance_id,
            receiver=service.receiver,
            way=service.way,
            lease=lambda: self.lease,
            fence_token=f'"{self._shared.instance_id}/{holding.receiver}/{holding.lane}";fence={holding.fence}',
            lane_key=holding.token,
            dead_man=lambda wiring: self._shared.dead_man if service.wants_dead_man(wiring) else None,
        )

    def _ended(self, finished: Finished) -> None:
        """An attempt is over: its slot is free, its answer is to be recorded."""
        transition, receiver = finished.transition, self.holding.receiver
        if transition.alarm:
            self._alarm(finished)
        self.service.breaker.heard(finished.begun.seq, finished.outcome)
        if self.service.faults.heard(finished.begun.seq, blames_us=transition.pause_receiver):
            self._hub.pause(receiver, "the receiver refused our credential several times in a row")
        if transition.lease_lost:
            emit("lane_lost", receiver=receiver, lane=self.holding.lane, reason="the receiver has seen a newer fence")
            self.close()
        self.recorder.add(finished)
        self.wake.set()

    def _alarm(self, finished: Finished) -> None:
        cause = finished.transition.cause or "none"
        self._shared.meters.count("alarms", cause=cause)
        emit("alarm", cause=cause, receiver=self.holding.receiver, **finished.begun.names)

    # ------------------------------------------------------------------------------------------------ what was recorded

    def expected(self) -> int:
        """How many attempts were begun and are not recorded."""
        return len(self.flight.open)

    def recorded(self, finished: Finished, row: Row) -> None:
        """Plan what follows in this lane: it is in the database."""
        begun, transition = finished.begun, finished.transition
        self.flight.forget(begun.name)
        self._shared.meters.count("recorded", receiver=self.holding.receiver, state=transition.state)
        position, of_crowd = self.claims.position, begun.tenant_id in self._crowd.tenants
        if (successor := row.get("successor")) is not None:
            position.ring(successor, of_crowd=of_crowd)
        ours = transition.withdraw and not row.get("in_doubt") and transition.step is not Step.PERSON
        if transition.state not in TERMINAL and (ours or transition.step is Step.RESEND):
            position.retry_at(begun.seq, boottime() + (transition.delay_seconds or 0.0), of_crowd=of_crowd)
        self.wake.set()
        self._check_drained()

    def abandoned(self, finished: Finished) -> None:
        """It could not be recorded at all: the sweep makes it unknown."""
        begun = finished.begun
        emit("alarm", cause="unstorable", receiver=self.holding.receiver, **begun.names)
        self._drop(begun)

    def _drop(self, begun: Begun) -> None:
        self.service.breaker.circuit.dropped(begun.seq)
        self.flight.forget(begun.name)
        self.flight.abandoned.add(begun.seq)
        self.claims.position.unheard([begun.seq])
        self._check_drained()

    def _check_drained(self) -> None:
        if self.closing and not self.flight.open and self.flight.turns.left():
            self.drained.set()

    def _slot_free(self) -> None:
        """Another lane has ended an attempt: one of ours may start, or begin, or all that we have lent is back."""
        self.flight.pump()
        if self.flight.turns.was_hungry():
            self.wake.set()
        self._check_drained()
