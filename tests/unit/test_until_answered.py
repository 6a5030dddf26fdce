"""What the database did not answer is done again, whatever kind of callable it is, until somebody says stop."""

import asyncio
import functools
from collections.abc import Awaitable, Callable

import pytest

from outbox.daemon import until_answered
from outbox.errors import DatabaseError, DatabaseUnavailable


class Database:
    """Answers with a number after so many failures."""

    def __init__(self, failures: int, error: type[DatabaseError] = DatabaseUnavailable) -> None:
        self.asked = 0
        self._failures = failures
        self._error = error

    async def ask(self) -> int:
        self.asked += 1
        if self.asked <= self._failures:
            raise self._error("no connection")
        return self.asked


WAYS: dict[str, Callable[[Database], Callable[[], Awaitable[int]]]] = {
    "a method": lambda database: database.ask,
    "a partial": lambda database: functools.partial(Database.ask, database),
    "a function that returns an awaitable": lambda database: lambda: database.ask(),  # noqa: PLW0108 - not the method
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("failures", [0, 1, 3])
async def test_it_is_done_again_until_there_is_an_answer(way: str, failures: int) -> None:
    database = Database(failures)
    assert await until_answered(WAYS[way](database), asyncio.Event()) == failures + 1


async def test_once_asked_to_stop_the_last_failure_is_raised() -> None:
    stop, database = asyncio.Event(), Database(10)

    async def ask() -> int:
        if database.asked == 3:
            stop.set()
        return await database.ask()

    with pytest.raises(DatabaseUnavailable):
        await until_answered(ask, stop)
    assert database.asked == 4


async def test_what_will_not_pass_by_itself_is_raised_at_once() -> None:
    database = Database(1, DatabaseError)
    with pytest.raises(DatabaseError):
        await until_answered(database.ask, asyncio.Event())
    assert database.asked == 1
