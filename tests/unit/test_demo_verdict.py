"""What the demo makes of a ledger: each way in which a run is no success."""

from typing import Any

import pytest

from outbox.demo.breaking import Breakage
from outbox.demo.ledger import Effect
from outbox.demo.verdict import Verdict, judge

DONE = Breakage(kills=1, pauses=1, killed_in_flight=3, paused_in_flight=3)
FAULTS = {"lose_answer": 2, "lose_request": 1}


def operation(operation_id: str, state: str = "succeeded", **facts: Any) -> dict[str, Any]:
    """One operation that ended at once, unless it is said otherwise."""
    plain = {"from_state": "executing", "needs_person": None, "reason": None, "was_unknown": False, "looked_up": False}
    return {"operation_id": operation_id, "state": state, "contradicted": False, **plain, **facts}


def effect(operation_id: str, number: int = 1) -> Effect:
    return Effect(number, 0.0, "mail", operation_id, operation_id, "", f"r-{number}", b"", number)


def verdict(
    *operations: dict[str, Any], effects: list[Effect], done: Breakage = DONE, faults: dict[str, int] | None = None
) -> Verdict:
    witnessed = {"fenced_writes": 0, "late_answers": 0}
    given = FAULTS if faults is None else faults
    return judge(operations, effects, faults=given, done=done, witnessed=witnessed, seconds=1.0)


def test_once_each_or_waiting_for_a_person_is_a_success() -> None:
    waiting = operation("c", "unknown", needs_person=True, reason="no_lookup")
    said = verdict(operation("a"), operation("b", "rejected"), waiting, effects=[effect("a")])
    assert said.failures() == []
    assert (said.intents, said.effects, said.rejected, said.needs_person) == (3, 1, 1, 1)
    assert said.persons_why == {"no_lookup": 1}


@pytest.mark.parametrize(
    ("operations", "effects", "failure"),
    [
        ([operation("a")], [effect("a"), effect("a", 2)], "1 duplicates"),
        ([operation("a")], [], "1 lost"),
        ([operation("a", "unknown")], [effect("a")], "1 lost"),
        ([operation("a")], [effect("a"), effect("b", 2)], "1 ghosts"),
        ([operation("a", "rejected")], [effect("a")], "1 lies"),
        ([operation("a", contradicted=True)], [effect("a")], "1 lies"),
    ],
    ids=["twice", "succeeded without an effect", "stuck", "nobody asked", "rejected, yet done", "evidence against it"],
)
def test_what_the_ledger_does_not_bear_out_is_a_failure(
    operations: list[dict[str, Any]], effects: list[Effect], failure: str
) -> None:
    assert verdict(*operations, effects=effects).failures() == [failure]


@pytest.mark.parametrize(
    ("done", "faults", "failure"),
    [
        (Breakage(pauses=1), FAULTS, "no planned kills landed"),
        (Breakage(kills=1), FAULTS, "no planned pauses landed"),
        (DONE, {"lose_answer": 3}, "no answer or no request was lost: the run has shown nothing"),
    ],
)
def test_a_run_in_which_a_planned_fault_did_not_land_is_a_failure(
    done: Breakage, faults: dict[str, int], failure: str
) -> None:
    assert verdict(operation("a"), effects=[effect("a")], done=done, faults=faults).failures() == [failure]


def test_what_was_in_doubt_is_told_apart_by_what_settled_it() -> None:
    said = verdict(
        operation("a", was_unknown=True, looked_up=True, from_state="unknown"),
        operation("b", was_unknown=True),
        operation("c"),
        effects=[effect("a"), effect("b", 2), effect("c", 3)],
    )
    assert (said.resolved_by_lookup, said.resolved_by_resend) == (1, 1)
