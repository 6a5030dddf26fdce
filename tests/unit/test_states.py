"""The state table, pair by pair."""

import itertools

import pytest

from outbox.errors import IllegalMove
from outbox.states import MAY_HIDE_EFFECT, MOVES, STARTS, TERMINAL, Cause, State, check_move

PAIRS = list(itertools.product(State, State))


def test_there_are_six_states_and_every_one_is_listed() -> None:
    assert set(MOVES) == set(State)
    assert len(State) == 6


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_move_passes_exactly_if_the_table_has_it(before: State, after: State) -> None:
    if after in MOVES[before]:
        check_move(before, after)
    else:
        with pytest.raises(IllegalMove, match=f"{before} -> {after}"):
            check_move(before, after)


def test_nothing_leads_out_of_a_terminal_state_and_no_state_leads_to_itself() -> None:
    assert all(not MOVES[state] for state in TERMINAL)
    assert all(state not in MOVES[state] for state in State)


def test_only_what_may_hide_an_effect_can_end_in_success() -> None:
    assert {state for state in State if State.SUCCEEDED in MOVES[state]} == MAY_HIDE_EFFECT


def test_doubt_begins_with_an_attempt_and_with_nothing_else() -> None:
    assert {state for state in State if State.UNKNOWN in MOVES[state]} == {State.EXECUTING}


def test_an_attempt_begins_from_a_permission_or_inside_the_doubt() -> None:
    assert {state for state in State if State.EXECUTING in MOVES[state]} == {State.AUTHORIZED, State.UNKNOWN}


def test_every_state_can_be_reached_from_a_start_and_every_open_one_can_end() -> None:
    reached = set(STARTS)
    for _ in State:
        reached |= {after for before in reached for after in MOVES[before]}
    assert reached == set(State)
    for state in set(State) - TERMINAL:
        ends = {state}
        for _ in State:
            ends |= {after for before in ends for after in MOVES[before]}
        assert ends & TERMINAL


def test_an_unknown_operation_is_never_decided_again_by_policy() -> None:
    """Back to `proposed` would call an effect that may exist a candidate."""
    assert State.PROPOSED not in MOVES[State.UNKNOWN]
    assert State.PROPOSED not in MOVES[State.EXECUTING]


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        MOVES[State.SUCCEEDED] = frozenset(State)  # type: ignore[index]


def test_states_and_causes_are_words_that_the_database_stores() -> None:
    assert [state.value for state in State] == [state.name.lower() for state in State]
    assert [cause.value for cause in Cause] == [cause.name.lower() for cause in Cause]
