"""Many operations, one statement: who travels together, and that nobody pays for his company."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from outbox.errors import DatabaseUnavailable, Unstorable
from reconciler.group import Group

Sent = tuple[list[int], bool]


class Database:
    """Answers each seq with its double, once it is let; knows what it was sent."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.was_sent = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.poisoned: set[int] = set()
        self.locked: set[int] = set()
        self.unlocked = asyncio.Event()
        self.lost = False

    async def send(self, *, alone: bool, seq: list[int], **_: list[Any]) -> Mapping[int, int]:
        self.sent.append((seq, alone))
        self.was_sent.set()
        await self.may_answer.wait()
        if self.lost:
            raise DatabaseUnavailable("the connection broke")
        if self.poisoned & set(seq):
            raise Unstorable("DataError (22P05)")
        if alone and self.locked & set(seq):
            await self.unlocked.wait()
        return {one: 2 * one for one in seq if alone or one not in self.locked}


@pytest.fixture
async def database() -> Database:
    return Database()


@pytest.fixture
async def group(database: Database) -> Group[int]:
    return Group(database.send, 10, asyncio.Semaphore(1))


async def asked(group: Group[int], *seqs: int) -> list[int | BaseException | None]:
    """What each hears who asks at this moment."""
    return await asyncio.gather(*(group.ask(seq=seq, n=seq) for seq in seqs), return_exceptions=True)


async def test_who_asks_at_the_same_time_travels_together(database: Database, group: Group[int]) -> None:
    assert await asked(group, 1, 2, 3) == [2, 4, 6]
    assert database.sent == [([1, 2, 3], False)]


async def test_who_asks_while_a_group_is_on_its_way_travels_with_the_next(
    database: Database, group: Group[int]
) -> None:
    database.may_answer.clear()
    first = asyncio.create_task(group.ask(seq=1, n=1))
    await database.was_sent.wait()
    others = asyncio.create_task(asked(group, 2, 3))
    await asyncio.sleep(0)
    database.may_answer.set()
    assert (await first, await others) == (2, [4, 6])
    assert database.sent == [([1], False), ([2, 3], False)]


async def test_a_group_has_a_bound(database: Database, group: Group[int]) -> None:
    assert await asked(group, *range(25)) == [2 * n for n in range(25)]
    assert [len(seqs) for seqs, _ in database.sent] == [10, 10, 5]


async def test_an_operation_is_in_a_group_once(database: Database, group: Group[int]) -> None:
    """Two claims of one operation, the older of which has run out: each hears its own answer."""
    assert await asked(group, 1, 1, 2) == [2, 2, 4]
    assert database.sent == [([1, 2], False), ([1], False)]


async def test_a_refused_group_is_asked_again_one_by_one(database: Database, group: Group[int]) -> None:
    database.poisoned = {2}
    first, poisoned, third = await asked(group, 1, 2, 3)
    assert (first, third) == (2, 6)
    assert isinstance(poisoned, Unstorable)
    assert database.sent == [([1, 2, 3], False), ([1], True), ([2], True), ([3], True)]


async def test_what_cannot_even_be_written_fails_alone(database: Database) -> None:
    async def send(*, alone: bool, seq: list[int], n: list[int]) -> Mapping[int, int]:
        return {one: int.__add__(number, 1) for one, number in zip(seq, n, strict=True)}

    group = Group(send, 10, asyncio.Semaphore(1))
    right, wrong = await asyncio.gather(group.ask(seq=1, n=1), group.ask(seq=2, n="one"), return_exceptions=True)
    assert right == 2
    assert isinstance(wrong, TypeError)


async def test_a_group_whose_commit_was_not_heard_of_is_not_sent_again(database: Database, group: Group[int]) -> None:
    database.lost = True
    assert [type(answer) for answer in await asked(group, 1, 2)] == [DatabaseUnavailable] * 2
    assert database.sent == [([1, 2], False)]
    database.lost = False
    assert await asked(group, 3) == [6], "and the next group is"


async def test_nobody_waits_for_a_row_that_somebody_holds_but_whoever_asked_for_it(
    database: Database, group: Group[int]
) -> None:
    database.locked = {1}
    held = asyncio.create_task(group.ask(seq=1, n=1))
    assert await asked(group, 2, 3) == [4, 6]
    assert await asked(group, 4) == [8]
    assert not held.done()
    database.unlocked.set()
    assert await held == 2


async def test_nothing_applied_is_said_after_it_was_asked_alone() -> None:
    async def send(*, alone: bool, seq: list[int]) -> Mapping[int, int]:
        return {}

    assert await Group(send, 10, asyncio.Semaphore(1)).ask(seq=1) is None


async def test_who_is_cancelled_takes_nobody_along(database: Database, group: Group[int]) -> None:
    database.may_answer.clear()
    gone, there = asyncio.create_task(group.ask(seq=1, n=1)), asyncio.create_task(group.ask(seq=2, n=2))
    await database.was_sent.wait()
    gone.cancel()
    await asyncio.sleep(0)
    database.may_answer.set()
    assert await there == 4
    assert gone.cancelled()


async def test_closing_ends_what_is_on_its_way(database: Database, group: Group[int]) -> None:
    database.may_answer.clear()
    waiting = asyncio.create_task(group.ask(seq=1, n=1))
    await database.was_sent.wait()
    waiting.cancel()
    await group.aclose()
    assert group._sending is None
