"""
Many operations, one statement.

Each operation is worked on by a task of its own, which reads as if it were alone (`settle.py`). What several of them
ask of the database while another such statement is on its way is sent as one.

Nobody pays for his company. A group that the database refuses has changed nothing, and an operation whose rows
somebody else has locked is left out of its group: those ask again, each alone, and only they fail or wait. A group
whose commit was not heard of fails in all its operations, as a single one would: their claims stand until they have run
out, and then they are read anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from outbox.daemon import cancelled
from outbox.errors import DatabaseUnavailable
from outbox.evidence import Evidence
from outbox.store import Store
from reconciler.doubt import Doubt
from reconciler.keep import read_evidence

T = TypeVar("T")
Row: TypeAlias = dict[str, Any]
# Answers by seq. Every parameter but `alone` is a column.
Send: TypeAlias = Callable[..., Awaitable[Mapping[int, T]]]
Known: TypeAlias = tuple[Doubt, list[Evidence]]


class Group(Generic[T]):
    """The operations that ask for the same statement. One group of them is on its way at a time."""

    def __init__(self, send: Send[T], size_max: int, alone: asyncio.Semaphore) -> None:
        self._send = send
        self._size_max = size_max
        self._alone = alone
        self._asked: list[tuple[Row, asyncio.Future[T | None]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def ask(self, **one: Any) -> T | None:
        """
        Send the parameters of one operation, in company if there is some; None: nothing was applied.

        Raises what the store raises; for what is wrong with the parameters of others, never.
        """
        asked = one, asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        answer: T | None = await asked[1]
        if answer is None:
            async with self._alone:
                answer = (await self._send(alone=True, **_columns([one]))).get(one["seq"])
        return answer

    async def aclose(self) -> None:
        """End what is on its way. Whoever asked must have been cancelled before."""
        if self._sending is not None:
            await cancelled(self._sending)

    async def _send_all(self) -> None:
        try:
            while self._asked:
                await asyncio.sleep(0)  # whoever is ready in this round of the loop comes along
                await self._send_group(self._next_group())
        finally:
            self._sending = None

    def _next_group(self) -> list[tuple[Row, "asyncio.Future[T | None]"]]:
        """As many as there is room for, each operation once: answers are told apart by its seq."""
        group: dict[int, tuple[Row, asyncio.Future[T | None]]] = {}
        rest = []
        for asked in self._asked:
            if len(group) < self._size_max and asked[0]["seq"] not in group:
                group[asked[0]["seq"]] = asked
            else:
                rest.append(asked)
        self._asked = rest
        return list(group.values())

    async def _send_group(self, group: list[tuple[Row, "asyncio.Future[T | None]"]]) -> None:
        columns = _columns([one for one, _ in group])
        sending = asyncio.ensure_future(self._send(alone=False, **columns))
        try:
            await asyncio.wait({sending})
        finally:
            await cancelled(sending)
        error = sending.exception()
        answers = sending.result() if error is None else {}
        for one, answer in group:
            if answer.done():  # whoever asked is gone
                continue
            if isinstance(error, DatabaseUnavailable):
                answer.set_exception(DatabaseUnavailable(error.message))
            else:
                answer.set_result(answers.get(one["seq"]))


def _columns(group: list[Row]) -> dict[str, list[Any]]:
    return {name: [one[name] for one in group] for name in group[0]}


class Groups:
    """What a reconciler asks of its database for each operation, by the name of the statement."""

    def __init__(self, store: Store, size_max: int, alone_max: int) -> None:
        """`alone_max`: so many connections at most wait for rows that somebody else has locked."""
        alone = asyncio.Semaphore(alone_max)

        def rows(statement: str) -> Group[Row]:
            return Group(_rows_of(store, statement), size_max, alone)

        self.count_read = Group(_known_of(store, "count_read"), size_max, alone)
        self.read_claimed = Group(_known_of(store, "read_claimed"), size_max, alone)
        self.keep_look = rows("keep_look")
        self.settle = rows("settle")
        self.allow_resend = rows("allow_resend")
        self.reschedule = rows("reschedule")
        self.release_claims = rows("release_claims")

    async def aclose(self) -> None:
        """End what is on its way."""
        for group in (
            *(self.count_read, self.read_claimed),
            *(self.keep_look, self.settle, self.allow_resend, self.reschedule, self.release_claims),
        ):
            await group.aclose()


def _rows_of(store: Store, statement: str) -> Send[Row]:
    async def send(**columns: Any) -> Mapping[int, Row]:
        return {row["seq"]: row for row in await store.dicts(statement, **columns)}

    return send


def _known_of(store: Store, statement: str) -> Send[Known]:
    async def send(**columns: Any) -> Mapping[int, Known]:
        doubts = [Doubt.of(row) for row in await store.dicts(statement, **columns)]
        known = await read_evidence(store, [doubt.seq for doubt in doubts]) if doubts else {}
        return {doubt.seq: (doubt, known[doubt.seq]) for doubt in doubts}

    return send
