"""Waiting for a condition: the one place where a test polls, so that no test sleeps and none asserts a duration."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

POLL_SECONDS = 0.02
TIMEOUT_SECONDS = 15.0  # generous: a loaded machine is slow, and only a failing test waits for it


def eventually(
    condition: Callable[[], T],
    timeout_seconds: float = TIMEOUT_SECONDS,
    *,
    claim: str = "",
    poll_seconds: float = POLL_SECONDS,
) -> T:
    """Call `condition` until it returns something true, and return that; fail with `claim` and the last answer."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            _fail(condition, answer, timeout_seconds, claim)
        time.sleep(poll_seconds)


async def eventually_async(
    condition: Callable[[], Any], timeout_seconds: float = TIMEOUT_SECONDS, *, claim: str = ""
) -> Any:
    """Do the same where the event loop must go on meanwhile; the condition may be one that must be awaited."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        found = condition()
        answer = await found if inspect.isawaitable(found) else found
        if answer:
            return answer
        if time.monotonic() >= deadline:
            _fail(condition, answer, timeout_seconds, claim)
        await asyncio.sleep(POLL_SECONDS)


def _fail(condition: Callable[[], object], answer: object, timeout_seconds: float, claim: str) -> None:
    try:
        asked = inspect.getsource(condition).strip()
    except (OSError, TypeError):
        asked = repr(condition)
    pytest.fail(f"not within {timeout_seconds:g} s: {claim or asked} (last answer: {answer!r})")
