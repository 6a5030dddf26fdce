"""Evidence is never wasted: it settles, or, where it contradicts what has ended, it raises an alarm."""

import pytest

from outbox.evidence import Evidence, Kind, Observation, Verdict, contradictions
from outbox.states import State
from tests.support.facts import late, look, statement

EFFECTS = [
    late(Kind.RECEIPT, id=4, external_id="r-2"),
    look(Verdict.CONFIRMED, 1, id=4, external_id="r-2"),
    late(Kind.CALLBACK, id=4, verdict=Verdict.CONFIRMED, external_id="r-2"),
]
NO_EFFECTS = [
    late(Kind.NOT_SENT, id=4),
    late(Kind.LATE_ANSWER, id=4),
    *(look(verdict, 1, id=4) for verdict in Verdict if verdict is not Verdict.CONFIRMED),
    statement(Verdict.NOT_FOUND, 1, id=4),
]


@pytest.mark.parametrize("state", [State.REJECTED, State.AUTHORIZED, State.PROPOSED])
@pytest.mark.parametrize("effect", EFFECTS)
def test_an_effect_of_an_operation_that_hides_none_is_a_contradiction(state: State, effect: Evidence) -> None:
    (found,) = contradictions(state, None, [effect])
    assert found.evidence_id == 4


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_second_external_id_is_a_contradiction_and_the_same_one_is_not(effect: Evidence) -> None:
    (found,) = contradictions(State.SUCCEEDED, "r-1", [effect])
    assert "r-2" in found.what
    assert contradictions(State.SUCCEEDED, "r-2", [effect]) == ()


def test_two_receipts_of_one_operation_are_compared_with_each_other_where_the_outcome_has_no_id() -> None:
    first, second = late(Kind.RECEIPT, id=1, external_id="a"), late(Kind.RECEIPT, id=2, external_id="b")
    assert [found.evidence_id for found in contradictions(State.SUCCEEDED, None, [first, second])] == [2]


def test_two_records_with_our_identity_are_a_contradiction_in_any_state() -> None:
    seen = look(Verdict.CONFIRMED, 1, id=9, duplicates=1)
    for state in (State.SUCCEEDED, State.UNKNOWN, State.EXECUTING):
        assert [found.evidence_id for found in contradictions(state, None, [seen])] == [9]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("item", NO_EFFECTS)
def test_what_shows_no_effect_contradicts_nothing(state: State, item: Evidence) -> None:
    assert contradictions(state, "r-1", [item]) == ()


@pytest.mark.parametrize("effect", EFFECTS)
def test_an_effect_of_an_operation_in_doubt_is_no_contradiction_but_its_end(effect: Evidence) -> None:
    assert contradictions(State.UNKNOWN, None, [effect]) == ()


def test_what_a_look_showed_can_be_stored_whatever_it_showed() -> None:
    seen = Observation(verdict=Verdict.CONFIRMED, note="a\0b", external_id="\ud800" * 900, receipt="\0" * 9_000)
    assert seen.note == "a\ufffdb"
    assert len((seen.external_id or "").encode()) <= 500
    assert len((seen.receipt or "").encode()) <= 4_096
    assert "\0" not in (seen.receipt or "")
