"""
Periodic work on the whole database, each piece done by one daemon per period.

The belt under everything that is left behind by a process that died: attempts that nobody holds, permissions that
lapsed, marks of what can no longer land; and the numbers that an alarm watches. What the relay does too (lapsed
permissions, changed policies) is `outbox.daemon.do_chores`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from outbox import crashpoints
from outbox.daemon import do_chores, timed
from outbox.observe import Meters, emit
from outbox.registry import Registry
from outbox.store import Store

# Rows per statement, and statements per period: a large backlog takes several periods, and never holds a lock for long.
BATCH_MAX: Final = 1_000
ROUNDS_MAX: Final = 20
# What grows with history is read in steps of this size, and is not urgent.
SLOW_FACTOR: Final = 6
READ_BATCH_MAX: Final = 20_000
# Longer than any transaction that writes an intent: ids are handed out before they are committed.
YOUNG_SECONDS: Final = 600.0
LATE_SECONDS: Final = 60.0
# How long `report` still knows what a daemon counted that has gone.
MEMBER_SECONDS: Final = 7 * 86_400.0
# What is added to lease and deadline before an attempt counts as nobody's, where the contract's margin is shorter.
ORPHAN_MARGIN_SECONDS: Final = 10.0
ORPHAN_MARGIN_SECONDS_MAX: Final = 600.0


@dataclass(frozen=True, slots=True)
class Chore:
    """One piece of work, its period, and what does it; the answer says how much was done."""

    name: str
    every_seconds: float
    run: Callable[[], Awaitable[int]]


class Chores:
    """The work, and what it has to remember between periods."""

    def __init__(self, store: Store, registry: Callable[[], Registry], meters: Meters, belt_seconds: float) -> None:
        self._store = store
        self._registry = registry
        self._meters = meters
        self._placed_upto = 0
        self._belt_seconds = belt_seconds
        slow = belt_seconds * SLOW_FACTOR
        self.all = (
            Chore("sweep_orphans", belt_seconds, self._sweep_orphans),
            Chore("end_landings", belt_seconds, self._end_landings),
            Chore("forget", slow, self._forget),
            Chore("forget_members", slow, self._forget_members),
            Chore("watch_doubt", belt_seconds, self._watch_doubt),
            Chore("watch_contradictions", slow, self._watch_contradictions),
            Chore("watch_placement", slow, self._watch_placement),
        )

    async def run_once(self) -> Mapping[str, int]:
        """Do what is due and not done by another daemon in this period; how much, by name."""
        done = await do_chores(self._store, self._belt_seconds)
        self._meters.count("expired", done.get("expire", 0))
        self._meters.count("redecided", done.get("redecide", 0))
        for chore in self.all:
            if await self._store.value("claim_chore", name=chore.name, every_seconds=chore.every_seconds):
                async with timed(self._store, chore.name):
                    done[chore.name] = await chore.run()
        return done

    # ---------------------------------------------------------------------------------------------------------- belt

    def orphan_seconds(self) -> float:
        """
        After how long an executing attempt is nobody's: lease + deadline + margin, of the slowest tool.

        Converting one that still runs is safe (its answer becomes evidence) and costs a look.
        """
        return max(
            (
                wiring.receiver.lease
                + wiring.deadline_seconds
                + min(max(wiring.margin_seconds, ORPHAN_MARGIN_SECONDS), ORPHAN_MARGIN_SECONDS_MAX)
                for wiring in (tool.wiring for tool in self._registry().tools.values())
            ),
            default=ORPHAN_MARGIN_SECONDS_MAX,
        )

    async def _sweep_orphans(self) -> int:
        crashpoints.reach("before_convert")
        made = int(await self._store.value("sweep_orphans", older_than_seconds=self.orphan_seconds()))
        if made:
            emit("orphans_converted", count=made)
            self._meters.count("orphans_converted", made)
        return made

    async def _end_landings(self) -> int:
        return await self._in_batches("end_landings")

    async def _forget(self) -> int:
        return await self._in_batches("forget")

    async def _forget_members(self) -> int:
        return await self._in_batches("forget_members", silent_seconds=MEMBER_SECONDS)

    async def _in_batches(self, statement: str, **given: float) -> int:
        total = 0
        for _ in range(ROUNDS_MAX):
            done = int(await self._store.value(statement, limit=BATCH_MAX, **given))
            total += done
            if done < BATCH_MAX:
                break
        if total:
            emit("chore_done", chore=statement, count=total)
        return total

    # ------------------------------------------------------------------------------------------------------- watches

    async def _watch_doubt(self) -> int:
        (doubt,) = await self._store.dicts("count_doubt", late_seconds=LATE_SECONDS)
        self._meters.put("in_doubt", doubt["open"])
        self._meters.put("in_doubt_for_a_person", doubt["needs_person"])
        self._meters.put("in_doubt_late", doubt["late"])
        self._meters.put("oldest_doubt_seconds", doubt["oldest_seconds"])
        self._meters.put("lanes_unheld", await self._store.value("count_lanes"))
        return int(doubt["open"])

    async def _watch_contradictions(self) -> int:
        found = int(await self._store.value("count_contradictions", limit=READ_BATCH_MAX))
        self._meters.put("contradictions", found)
        if found:
            emit("contradiction_found", count=found)
        return found

    async def _watch_placement(self) -> int:
        """Look for intents that no trigger placed, above a floor below which all are known to be placed."""
        for _ in range(ROUNDS_MAX):
            (part,) = await self._store.dicts(
                "find_unplaced", after=self._placed_upto, limit=READ_BATCH_MAX, young_seconds=YOUNG_SECONDS
            )
            floor, self._placed_upto = self._placed_upto, part["passed"]
            # What cannot be passed yet, since it is young, would be read in each round again.
            if part["found"] or part["seen"] < READ_BATCH_MAX or part["passed"] == floor:
                break
        else:
            return 0
        self._meters.put("unplaced", part["found"])
        if part["found"]:
            emit("unplaced_found", count=part["found"], seq=part["first"])
        return int(part["found"])
