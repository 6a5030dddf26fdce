"""
Answers into the database, in groups, while their lease holds; as evidence when it does not.

An answer is in memory and nowhere else until it is recorded: it is kept for as long as that takes, also while the
database is away (how many there can be is bounded by what may begin). One answer that cannot be stored fails nobody
else's group: the group is halved until it stands alone, and then it is recorded without its text.

A commit whose answer was lost is tried again and applies nothing the second time; so "nothing applied" is looked up
before it is believed. What is then still missing was decided by somebody else, and the answer becomes evidence.
"""

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from outbox import crashpoints
from outbox.daemon import until_answered
from outbox.decide.facts import Step
from outbox.errors import DatabaseError, DatabaseUnavailable, Unstorable
from outbox.observe import Meters, emit
from outbox.states import Cause
from outbox.store import Store
from relay.begun import Finished, Name
from relay.holding import Holding
from relay.record import Columns, Statement, columns, late_columns, statement_for

# How long an answer may wait for company. It delays nobody: a slot is free when its attempt ends.
LINGER_SECONDS: Final = 0.05
# Rows in one statement.
GROUP_MAX: Final = 500

_ORDER: Final[tuple[Statement, ...]] = ("end_operations", "record_unknown", "withdraw_attempts")

Row = dict[str, Any]


class Owner(Protocol):
    """The lane whose answers these are."""

    def expected(self) -> int:
        """How many attempts were begun and are not recorded: their answers are here, or on their way."""

    def recorded(self, finished: Finished, row: Row) -> None:
        """It is in the database; `row` is what the statement said of it."""

    def abandoned(self, finished: Finished) -> None:
        """It could not be recorded at all: its row still executes."""

    def lose(self, why: str) -> None:
        """The lease is lost."""


class Recorder:
    """The answers of one lane."""

    def __init__(self, store: Store, holding: Holding, meters: Meters, owner: Owner, give_up: asyncio.Event) -> None:
        self.group = 1
        """As many as began together end together, as far as they can."""
        self._store = store
        self._holding = holding
        self._meters = meters
        self._owner = owner
        self._give_up = give_up
        self._queue: dict[Name, Finished] = {}
        self._added = asyncio.Event()
        self._filled = asyncio.Event()
        self._lock = asyncio.Lock()

    def __len__(self) -> int:
        """How many answers are in memory only."""
        return len(self._queue)

    def add(self, finished: Finished) -> None:
        """Take an answer."""
        self._queue[finished.begun.name] = finished
        self._added.set()
        # Where order matters somebody waits for this end.
        if finished.begun.ordered or len(self._queue) >= min(self.group, GROUP_MAX, self._owner.expected()):
            self._filled.set()

    async def run(self) -> None:
        """Record for ever, until it was told to give up and the database does not answer."""
        with contextlib.suppress(DatabaseUnavailable):
            while True:
                await self._added.wait()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LINGER_SECONDS):
                        await self._filled.wait()
                self._added.clear()
                self._filled.clear()
                await self.flush()

    async def flush(self) -> None:
        """Record everything that is here now.

        Raises DatabaseUnavailable once it was told to give up. What is not recorded then is still here.
        """
        async with self._lock:
            while self._queue:
                groups: dict[Statement, list[Finished]] = {statement: [] for statement in _ORDER}
                # Of one operation the earlier attempt first: what a statement answers names operations.
                first: dict[int, Finished] = {}
                for one in islice(self._queue.values(), GROUP_MAX):
                    first.setdefault(one.begun.seq, one)
                for one in first.values():
                    groups[statement_for(one)].append(one)
                for statement, group in groups.items():
                    if group:
                        await self._record(statement, group)

    # ---------------------------------------------------------------------------------------------------- one group

    async def _record(self, statement: Statement, items: Sequence[Finished]) -> None:
        rows = await self._write(statement, items)
        if rows is None:
            self._owner.lose("an answer was refused by the fence")
            await self._keep(items, fenced=True)
            return
        missing = [one for one in items if one.begun.name in self._queue and one.begun.seq not in rows]
        self._settle((one for one in items if one.begun.seq in rows), rows)
        if missing:
            await self._explain(statement, missing)

    async def _explain(self, statement: Statement, items: Sequence[Finished]) -> None:
        """Held, and nothing applied: our own earlier commit, proof that came in meanwhile, or somebody else's act."""
        rest = await self._without_recorded(items)
        if rest and statement != "record_unknown":
            # The row may be executing still, with a proof beside it: what contradicts the proof must not be written.
            doubtful = [_doubtful(one) for one in rest]
            rows = await self._write("record_unknown", doubtful) or {}
            self._settle((one for one in doubtful if one.begun.seq in rows), rows)
            rest = [one for one in rest if one.begun.name in self._queue and one.begun.seq not in rows]
        await self._keep(rest, fenced=False)

    async def _keep(self, items: Sequence[Finished], *, fenced: bool) -> None:
        """Never a state, but never wasted: the answer becomes evidence."""
        late = await self._without_recorded([one for one in items if one.begun.name in self._queue])
        if not late:
            return
        receiver = self._holding.receiver
        if fenced:
            self._meters.count("fenced_writes", len(late), receiver=receiver)
            emit("fenced_write", receiver=receiver, lane=self._holding.lane, fence=self._holding.fence, count=len(late))
        crashpoints.reach("before_late_evidence")
        await self._witness(late)
        crashpoints.reach("after_late_evidence")
        self._meters.count("late_answers", len(late), receiver=receiver)
        emit("late_answer", receiver=receiver, lane=self._holding.lane, count=len(late))
        self._settle(late, {})

    def _settle(self, items: Iterable[Finished], rows: dict[int, Row]) -> None:
        for one in items:
            self._queue.pop(one.begun.name, None)
            self._owner.recorded(one, rows.get(one.begun.seq, {}))

    async def _without_recorded(self, items: Sequence[Finished]) -> list[Finished]:
        """Settle those that a commit of ours has recorded whose answer was lost, and return the others."""
        if not items:
            return []
        names = {"seqs": [one.begun.seq for one in items], "attempts": [one.begun.attempt for one in items]}
        ours = {row["seq"] for row in await self._ask("recorded_attempts", names)}
        self._settle((one for one in items if one.begun.seq in ours), {})
        return [one for one in items if one.begun.seq not in ours]

    # -------------------------------------------------------------------------------------------------- statements

    async def _write(self, statement: Statement, items: Sequence[Finished]) -> dict[int, Row] | None:
        """Run a statement; rows that were applied by seq, or None if the lease is lost."""
        try:
            rows = await self._ask(statement, columns(statement, items))
        except Unstorable as error:
            return await self._write_apart(statement, items, error)
        return {row["seq"]: row for row in rows if row["seq"] is not None} if rows else None

    async def _write_apart(
        self, statement: Statement, items: Sequence[Finished], error: Unstorable
    ) -> dict[int, Row] | None:
        if len(items) > 1:
            half = len(items) // 2
            first = await self._write(statement, items[:half])
            second = await self._write(statement, items[half:])
            return None if first is None or second is None else first | second
        (one,) = items
        self._isolated(one, error)
        try:
            rows = await self._ask(statement, columns(statement, items, bare=True))
        except Unstorable:
            self._queue.pop(one.begun.name, None)
            self._owner.abandoned(one)
            return {}
        return {row["seq"]: row for row in rows if row["seq"] is not None} if rows else None

    async def _witness(self, items: Sequence[Finished]) -> None:
        try:
            await self._ask("witness_late", late_columns(items))
        except Unstorable as error:
            if len(items) > 1:
                half = len(items) // 2
                await self._witness(items[:half])
                await self._witness(items[half:])
                return
            self._isolated(items[0], error)
            with contextlib.suppress(Unstorable):  # not even bare: what could be said of it has been said above
                await self._ask("witness_late", late_columns(items, bare=True))

    def _isolated(self, one: Finished, error: Unstorable) -> None:
        self._meters.count("isolated_rows", receiver=self._holding.receiver)
        emit("row_isolated", receiver=self._holding.receiver, seq=one.begun.seq, reason=error.message)

    async def _ask(self, statement: str, parameters: Columns) -> list[Row]:
        """Ask until there is an answer. Raises Unstorable, or DatabaseUnavailable once it was told to give up."""
        return await until_answered(functools.partial(self._ask_once, statement, parameters), self._give_up)

    async def _ask_once(self, statement: str, parameters: Columns) -> list[Row]:
        writes = statement in _ORDER
        if writes:
            crashpoints.reach("before_record")
        try:
            rows = await self._store.dicts(statement, **self._holding.parameters, **parameters)
        except (DatabaseUnavailable, Unstorable):
            raise
        except DatabaseError as error:
            # Whatever is wrong with the statement or the role, the answers stay here until it is put right.
            emit("statement_failed", statement=statement, reason=error.message)
            raise DatabaseUnavailable(error.message) from None
        if writes:
            crashpoints.reach("after_record")
        return rows


def _doubtful(finished: Finished) -> Finished:
    """Return the same attempt as one of which nothing is proven, to be looked at now."""
    transition = dataclasses.replace(
        finished.transition,
        withdraw=False,
        step=Step.LOOK,
        delay_seconds=0.0,
        cause=finished.transition.cause or Cause.AMBIGUOUS,
    )
    return finished._replace(transition=transition)
