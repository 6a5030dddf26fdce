"""
Claiming what is due, for every receiver at once, and settling it.

Each receiver has a few places of its own, and a claim fills only free ones. So a receiver that does not answer fills
its own places and delays nobody else's operations; and what is claimed is worked on at once: a claim never waits in a
queue while it runs out.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

from outbox import crashpoints
from outbox.daemon import cancelled
from outbox.errors import DatabaseUnavailable, OutboxError
from outbox.observe import Meters, emit
from outbox.registry import ReceiverEntry
from outbox.store import Store
from reconciler.act import Claim, Done, name
from reconciler.doubt import Doubt
from reconciler.keep import read_evidence
from reconciler.settle import Settler

# A claim fills at least this part of a receiver's places: operations that are claimed together are written together.
FILLED_TOGETHER: Final = 8
# What has been looked up is written while the next are looked up: so many times a receiver's places are worked on.
WORKED_ON: Final = 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """
    How much is taken on.

    `places` of each receiver, but no more than its own `concurrency`; `batch_max` per statement, each claim for
    `claim_seconds`.
    """

    places: int
    batch_max: int
    claim_seconds: float


class Sweep:
    """The operations that this process works on."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        receivers: Callable[[], Mapping[int, ReceiverEntry]],
        meters: Meters,
        bounds: Bounds,
    ) -> None:
        """`receivers` says at any time which are served, by id."""
        self._store = store
        self._settler = settler
        self._receivers = receivers
        self._meters = meters
        self._bounds = bounds
        self._running: dict[asyncio.Task[Done], Claim] = {}
        # A wake-up costs what has ended, and not what still runs: with many receivers that may be thousands.
        self._ended: list[asyncio.Task[Done]] = []
        self._some_ended = asyncio.Event()
        self._broken_off: list[tuple[int, UUID]] = []
        """Operations, and the tokens of their claims, whose work a lost connection has ended."""
        self._turn = 0

    async def run_once(self) -> Mapping[Done, int]:
        """Claim what is due, work on it to the end, and say how often each thing came of it."""
        counts: Counter[Done] = Counter()
        await self._claim()
        while self._running:
            await self._some_ended.wait()
            counts.update(self._collect())
        return counts

    async def run(self, stop: asyncio.Event, poll_seconds: float) -> None:
        """
        Claim and work until told to stop, then return with what is running still running.

        Raises DatabaseUnavailable, from a claim or from the work on one; the work on others goes on.
        """
        stopping, ending = asyncio.create_task(stop.wait()), asyncio.create_task(self._some_ended.wait())
        try:
            while not stop.is_set():
                backlog = await self._claim()
                if ending.done():
                    ending = asyncio.create_task(self._some_ended.wait())
                waited = {stopping, ending} if backlog else {stopping}
                await asyncio.wait(waited, timeout=poll_seconds, return_when=asyncio.FIRST_COMPLETED)
                self._collect()
        finally:
            await cancelled(stopping, ending)

    async def finish(self, grace_seconds: float, at_once: asyncio.Event) -> None:
        """Let the work end within a grace time, or not even that; cancel the rest, and give back what is claimed."""
        claims = list(self._running.values())
        if not claims and not self._broken_off:
            return
        waits: set[asyncio.Task[Any]] = {
            asyncio.create_task(asyncio.wait(self._running)),
            asyncio.create_task(at_once.wait()),
        }
        await asyncio.wait(waits, timeout=grace_seconds, return_when=asyncio.FIRST_COMPLETED)
        await cancelled(*waits, *self._running)
        self._running.clear()
        await self._settler.aclose()
        # All of them: the claim of work that failed would stand, too, until it has run out.
        self._broken_off += [(claim.doubt.seq, claim.token) for claim in claims]
        await self._give_back()

    # ------------------------------------------------------------------------------------------------------ claiming

    async def _give_back(self) -> None:
        """Let what was broken off be claimed again. What somebody else has locked is not waited for."""
        given = self._broken_off
        if given:
            seqs, tokens = zip(*given, strict=True)
            await self._store.dicts("release_claims", seq=list(seqs), claim=list(tokens), alone=False)
            self._broken_off = []

    async def _claim(self) -> bool:
        """Fill free places. True if there may be more than there was room for."""
        await self._give_back()
        receivers = self._receivers()
        places = self._free_places(receivers)
        if not places:
            return True
        full = len(places) < len(receivers)
        token = uuid4()
        crashpoints.reach("before_claim_doubt")
        rows = await self._store.dicts(
            "claim_doubt",
            receiver_ids=list(places),
            places=list(places.values()),
            claim=token,
            claim_seconds=self._bounds.claim_seconds,
        )
        if not rows:
            return full
        crashpoints.reach("after_claim_doubt")
        doubts = [Doubt.of(row) for row in rows]
        try:
            known = await read_evidence(self._store, [doubt.seq for doubt in doubts])
        except DatabaseUnavailable:
            self._broken_off += [(doubt.seq, token) for doubt in doubts]
            raise
        for doubt in doubts:
            claim = Claim(token, receivers[doubt.receiver_id].name, doubt, known[doubt.seq])
            task = asyncio.create_task(self._settler.settle(claim))
            self._running[task] = claim
            task.add_done_callback(self._end)
        claimed = Counter(doubt.receiver_id for doubt in doubts)
        return full or any(claimed[receiver_id] == free for receiver_id, free in places.items())

    def _free_places(self, receivers: Mapping[int, ReceiverEntry]) -> dict[int, int]:
        """
        Free places by receiver, no more than one statement claims; whose turn it is to come first goes round.

        Single places are not worth a claim where there are many: they are filled together.
        """
        worked_on = Counter(claim.doubt.receiver_id for claim in self._running.values())
        taken = Counter(claim.doubt.receiver_id for claim in self._running.values() if claim.place.taken)
        self._turn = (self._turn + 1) % max(len(receivers), 1)
        left, places = self._bounds.batch_max, {}
        ids = list(receivers)
        for receiver_id in ids[self._turn :] + ids[: self._turn]:
            room = min(self._bounds.places, receivers[receiver_id].config.concurrency)
            free = min(room - taken[receiver_id], WORKED_ON * room - worked_on[receiver_id])
            if left and free > 0 and free >= room // FILLED_TOGETHER:
                places[receiver_id] = min(free, left)
                left -= places[receiver_id]
        return places

    def _end(self, task: "asyncio.Task[Done]") -> None:
        self._ended.append(task)
        self._some_ended.set()

    def _collect(self) -> list[Done]:
        """What came of the work that has ended. Raises DatabaseUnavailable if that is what ended some of it."""
        ended, self._ended = self._ended, []
        self._some_ended.clear()
        lost: DatabaseUnavailable | None = None
        results: list[Done] = []
        for task in ended:
            claim = self._running.pop(task)
            if (error := task.exception()) is None:
                results.append(task.result())
            elif isinstance(error, DatabaseUnavailable):
                lost = error
                self._broken_off.append((claim.doubt.seq, claim.token))
            else:
                results.append(self._failed(claim, error))
        if lost is not None:
            raise lost
        return results

    def _failed(self, claim: Claim, error: BaseException) -> Done:
        """One operation that cannot be judged stops no other. Its claim stands, so it is not tried again at once."""
        reason = error.message if isinstance(error, OutboxError) else type(error).__name__
        emit("alarm", error=reason, **name(claim.doubt))
        self._meters.count("operations_failed")
        return Done.FAILED
