"""What a check found."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from outbox.settings import Configuration
from outbox.store import Store


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """It works, but not for ever, or not as promised under every fault."""
    PROBLEM = "problem"
    """Something does not work, or a promise does not hold."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, in words, and what to do about it (None: nothing)."""

    check: str
    level: Level
    what: str
    advice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """
    What is examined.

    `configuration` is the file (None: there is none, or it names no receivers). `everything`: also what takes long.
    """

    store: Store
    configuration: Configuration | None = None
    everything: bool = False


Check = Callable[[Patient], Awaitable[list[Finding]]]


def ok(check: str, what: str) -> list[Finding]:
    """Nothing to complain of."""
    return [Finding(check, Level.OK, what)]


def warning(check: str, what: str, advice: str) -> Finding:
    """A finding of the middle kind."""
    return Finding(check, Level.WARNING, what, advice)


def problem(check: str, what: str, advice: str) -> Finding:
    """A finding of the worst kind."""
    return Finding(check, Level.PROBLEM, what, advice)
