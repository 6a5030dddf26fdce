"""
Which lanes this process holds: taken, renewed, shared with other relays, given back.

A lease is renewed every third of it, counted from when the last renewal was *sent*. Lanes are shared evenly among the
live relays that serve a receiver: everybody computes the same shares from the same table, takes free lanes up to its
share, and closes what is above it; a closed lane is given back when its last answer is recorded. A relay counts as
live for a receiver as long as it was heard of within that receiver's lease, so its share is free when its lanes are.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID, uuid4

from outbox import crashpoints
from outbox.daemon import Heart, Member, until_answered
from outbox.errors import DatabaseUnavailable
from outbox.lease import LocalLease, boottime
from outbox.observe import emit
from outbox.store import Store
from relay.holding import Holding, Key
from relay.lane import Lane
from relay.service import Service
from relay.share import quota
from relay.shared import Hub, Shared

RENEWALS_PER_LEASE: Final = 3
# Leases of which a renewal is due soon are renewed in the same statement.
_TOGETHER_PART: Final = 0.1


@dataclass(slots=True)
class _Renewal:
    """When the lease of a lane was last asked for, and how long it lasts."""

    sent_at: float
    lease_seconds: float

    def due_at(self, early_part: float = 0.0) -> float:
        return self.sent_at + self.lease_seconds * (1 / RENEWALS_PER_LEASE - early_part)


class Host(Hub, Protocol):
    """The relay, as its leases see it."""

    def started(self, lane: Lane) -> None:
        """A lane was taken: let it live."""


class Leases:
    """The lanes of this process."""

    def __init__(self, store: Store, member: Member, heart: Heart, shared: Shared, host: Host) -> None:
        self.lanes: dict[Key, Lane] = {}
        """Lanes held, those that are being given back included."""
        self.services: Mapping[str, Service] = {}
        self.stopping = False
        self._store = store
        self._member = member
        self._heart = heart
        self._shared = shared
        self._host = host
        self._renewals: dict[Key, _Renewal] = {}
        self._next_beat_at = 0.0

    async def tick(self, now: float | None = None) -> None:
        """Renew what is due, say that we live, and see to our share. Raises as the store does."""
        try:
            await self.renew(boottime() if now is None else now)
        except DatabaseUnavailable:
            await self._beat()  # which reports that the database is gone
            raise
        if await self._beat():
            await self.rebalance()

    async def _beat(self) -> bool:
        if boottime() < self._next_beat_at:
            return False
        self._next_beat_at = boottime() + self.beat_seconds
        return await self._heart.beat()

    def next_tick_at(self) -> float:
        """When there is something to do."""
        return min([self._next_beat_at, *(renewal.due_at() for renewal in self._renewals.values())])

    @property
    def beat_seconds(self) -> float:
        """How often others must hear of us: several times within the shortest lease of what we serve."""
        leases = [service.lease_seconds / RENEWALS_PER_LEASE for service in self.services.values()]
        return min([self._shared.settings.heartbeat_seconds, *leases])

    # ------------------------------------------------------------------------------------------------------- renewing

    async def renew(self, now: float) -> None:
        """Renew every lease that is due, in one statement."""
        self._forget_lost()
        if not any(now >= renewal.due_at() for renewal in self._renewals.values()):
            return
        due = [key for key, renewal in self._renewals.items() if now >= renewal.due_at(_TOGETHER_PART)]
        lanes = [self.lanes[key] for key in due]
        crashpoints.reach("before_renew")
        sent_at = boottime()
        rows = await self._store.dicts(
            "renew_leases",
            receiver_ids=[lane.holding.receiver_id for lane in lanes],
            lanes=[lane.holding.lane for lane in lanes],
            fences=[lane.holding.fence for lane in lanes],
            owners=[lane.holding.owner for lane in lanes],
            ttls=[lane.service.lease_seconds for lane in lanes],
        )
        crashpoints.reach("after_renew")
        confirmed = {(row["receiver_id"], row["lane"]) for row in rows}
        for lane in lanes:
            key = lane.holding.key
            if self.lanes.get(key) is not lane:
                continue  # given back meanwhile
            if key not in confirmed:
                lane.lose("its renewal was refused")
            else:
                lane.renewed(sent_at)
                self._renewals[key] = _Renewal(sent_at, lane.service.lease_seconds)
        self._forget_lost()

    def _forget_lost(self) -> None:
        for key in [key for key, lane in self.lanes.items() if lane.lost]:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        del self.lanes[key], self._renewals[key]
        self._gauge()

    # --------------------------------------------------------------------------------------------------------- sharing

    async def rebalance(self) -> None:
        """Take free lanes up to our share, and close what is above it."""
        services = {service.receiver_id: service for service in self.services.values()}
        if not services or self.stopping:
            return
        longest = max(service.lease_seconds for service in services.values())
        members = await self._store.dicts("live_members", kind="relay", seen_within_seconds=longest)
        rows = await self._store.dicts("lanes_of_receivers", receiver_ids=list(services))
        for receiver_id, service in services.items():
            share = quota(receiver_id, service.lanes, _peers(members, service), self._member.member_id)
            held = [lane for key, lane in sorted(self.lanes.items()) if key[0] == receiver_id]
            active = [lane for lane in held if not lane.closing]
            for lane in active[share:]:
                lane.close()
            free = [row["lane"] for row in rows if row["receiver_id"] == receiver_id and row["free"]]
            for number in self._in_our_order(free, service)[: max(0, share - len(held))]:
                await self.take(service, number)

    async def take(self, service: Service, number: int) -> Lane | None:
        """Take a lane; None if somebody else has it by now."""
        owner = uuid4()
        crashpoints.reach("before_take")
        sent_at = boottime()
        rows = await self._store.dicts(
            "take_lane",
            receiver_id=service.receiver_id,
            lane=number,
            owner=owner,
            member_id=self._member.member_id,
            ttl_seconds=service.lease_seconds,
        )
        crashpoints.reach("after_take")
        if not rows:
            return None
        holding = Holding(
            receiver_id=service.receiver_id, receiver=service.name, lane=number, fence=rows[0]["fence"], owner=owner
        )
        lane = Lane(holding, LocalLease.granted(sent_at, service.lease_seconds), service, self._shared, self._host)
        self.lanes[holding.key] = lane
        self._renewals[holding.key] = _Renewal(sent_at, service.lease_seconds)
        self._count_taken(holding, rows[0]["made_unknown"])
        self._host.started(lane)
        return lane

    async def give_back(self, lane: Lane) -> None:
        """Give a drained lane back. If the database does not answer until we give up, the lease runs out instead."""
        holding = lane.holding
        if lane.lost or self.lanes.get(holding.key) is not lane:
            return
        # From here on it is not renewed: that it is refused then would say nothing.
        self._forget(holding.key)
        try:
            await until_answered(functools.partial(self._give_back, holding), lane.give_up)
        except DatabaseUnavailable:
            return
        emit("lane_given_back", receiver=holding.receiver, lane=holding.lane, fence=holding.fence)

    async def _give_back(self, holding: Holding) -> None:
        crashpoints.reach("before_release")
        await self._store.dicts("give_back_lane", **holding.parameters)
        crashpoints.reach("after_release")

    def _in_our_order(self, free: Iterable[int], service: Service) -> list[int]:
        """Free lanes, beginning somewhere of our own: relays that start together do not race for the same ones."""
        start = self._member.member_id.int % service.lanes
        return sorted(free, key=lambda number: (number - start) % service.lanes)

    def _count_taken(self, holding: Holding, made_unknown: int) -> None:
        meters = self._shared.meters
        meters.count("lanes_taken", receiver=holding.receiver)
        if made_unknown:
            meters.count("made_unknown", made_unknown, receiver=holding.receiver)
        emit(
            "lane_taken",
            receiver=holding.receiver,
            lane=holding.lane,
            fence=holding.fence,
            made_unknown=made_unknown,
        )
        self._gauge()

    def _gauge(self) -> None:
        for service in self.services.values():
            held = sum(1 for key in self.lanes if key[0] == service.receiver_id)
            self._shared.meters.put("lanes_held", held, receiver=service.name)


def _peers(members: Iterable[Mapping[str, Any]], service: Service) -> list[UUID]:
    """The relays that share the lanes of a receiver with us."""
    return [
        member["member_id"]
        for member in members
        if member["silent_seconds"] < service.lease_seconds
        and (member["receivers"] is None or service.name in member["receivers"])
    ]
