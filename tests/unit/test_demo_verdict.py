"""What the demo makes of a ledger: each way in which a run is no success."""

import io
from typing import Any

import pytest
from rich.console import Console

from outbox.decide import Reason
from outbox.demo.breaking import Breakage
from outbox.demo.faults import Fault
from outbox.demo.ledger import Effect
from outbox.demo.verdict import Verdict, judge, show
from outbox.inspect.words import REASONS

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
    assert (said.intents, said.succeeded, said.rejected, said.needs_person, said.effects) == (3, 1, 1, 1, 1)
    assert said.persons_why == {"no_lookup": 1}


@pytest.mark.parametrize(
    ("operations", "effects", "failure"),
    [
        ([operation("a")], [effect("a"), effect("a", 2)], "1 effects beyond the first of their operation"),
        ([operation("a")], [], "1 operations without an end, or said to have succeeded without an effect"),
        (
            [operation("a", "unknown")],
            [effect("a")],
            "1 operations without an end, or said to have succeeded without an effect",
        ),
        ([operation("a")], [effect("a"), effect("b", 2)], "1 effects of operations that nobody committed"),
        ([operation("a", "rejected")], [effect("a")], "1 ends that the ledger contradicts"),
        ([operation("a", contradicted=True)], [effect("a")], "1 ends that the ledger contradicts"),
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
        (Breakage(pauses=1), FAULTS, "no relay was killed in flight"),
        (Breakage(kills=1), FAULTS, "no relay was stopped past its lease"),
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


def table_of(said: Verdict) -> str:
    console = Console(file=io.StringIO(), width=400, color_system=None)
    show(said, DONE, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def rows_of(said: Verdict) -> dict[str, tuple[str, str]]:
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table_of(said).splitlines() if "│" in line]
    return {what: (count, how) for what, count, how in cells}


def test_the_table_says_first_how_everything_ended() -> None:
    waiting = operation("c", "unknown", needs_person=True, reason="no_lookup")
    rows = rows_of(verdict(operation("a"), operation("b", "rejected"), waiting, effects=[effect("a")]))
    assert [(what, rows[what][0]) for what in list(rows)[:4]] == [
        ("intents committed", "3"),
        ("succeeded", "1"),
        ("rejected", "1"),
        ("unknown, waiting for a person", "1"),
    ]
    assert rows["unknown, waiting for a person"][1] == f"1 because {REASONS[Reason.NO_LOOKUP]}"
    assert [rows[what][0] for what in ("duplicates", "lost", "effects without an intent")] == ["0", "0", "0"]


def test_no_row_of_the_table_shows_a_word_of_the_code() -> None:
    """Every fault and every reason there is, as a newcomer reads it."""
    waiting = [operation(reason, "unknown", needs_person=True, reason=reason) for reason in [*Reason, "", "some_cause"]]
    faults = {fault.value: number for number, fault in enumerate(Fault, start=1)}
    said = verdict(*waiting, effects=[], faults=faults)
    text = table_of(said)
    raw = [word for word in [*Fault, *Reason] if "_" in word]
    assert [word for word in raw if word in text] == []
    assert "_" not in text
    assert rows_of(said)["faults of the receiver, on purpose"][0] == str(sum(faults.values()))
    assert f"{faults['lose_answer']} answers lost after the effect" in text


def test_what_failed_is_said_in_words() -> None:
    text = table_of(verdict(operation("a"), effects=[effect("a"), effect("a", 2)]))
    assert "FAILED: 1 effects beyond the first of their operation" in text
    assert "Nothing happened twice" not in text
