"""The tree of errors says what happened, in a stable word and a sentence, and survives a process boundary."""

import inspect
import pickle

import pytest

from outbox import errors
from outbox.errors import IntentConflict, InvalidIntent, OutboxError, Problem

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, OutboxError) and not kind.__name__.startswith("_")
]


def test_every_error_is_drawn_in_the_tree_and_every_drawn_error_exists() -> None:
    drawn = {line.split("-- ")[1].split()[0] for line in (errors.__doc__ or "").splitlines() if "-- " in line}
    assert drawn == {kind.__name__ for kind in KINDS} - {"OutboxError"}


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)


def test_the_docstring_is_the_default_message_and_the_hint_follows_it() -> None:
    assert str(errors.UnknownTool()) == "No such tool is registered in this database."
    assert str(errors.NotFound("No operation x.", hint="Look with: outbox list")) == (
        "No operation x. Look with: outbox list"
    )


def test_problems_are_kept_one_by_one_and_told_together() -> None:
    error = InvalidIntent([Problem("tool", "is missing", "missing"), Problem("resource", "has a line break")])
    assert str(error) == "tool: is missing; resource: has a line break"
    assert error.problems[0].code == "missing"


@pytest.mark.parametrize(
    "error",
    [
        IntentConflict("order-1", ["digest", "principal_id"]),
        InvalidIntent.at("tool", "is missing", hint="Name a tool."),
        errors.AmbiguousId("order-1", ["acme", "globex"]),
        errors.JsonRefused("too_deep", "/a", "too deep"),
        errors.IntentRace(sqlstate="40P01"),
    ],
)
def test_an_error_survives_pickling_with_its_facts(error: OutboxError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
