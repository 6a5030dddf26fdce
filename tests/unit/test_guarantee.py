"""What is promised for each class of contract, and under which conditions."""

from typing import Any

import pytest

from outbox.contract import Fencing, Wiring
from outbox.decide import liveness_bound
from outbox.guarantee import Promise, guarantee, mixed, warnings
from tests.support.contracts import BOUND, CLASSES, HEARSAY, KEY, STRONG, of_class, receiver, tool, wiring

PROMISES: dict[str, Promise] = {
    "key for ever": Promise.DEDUPLICATED,
    "key with a window": Promise.DEDUPLICATED,
    "key, no bound": Promise.DEDUPLICATED,
    "key and strong look": Promise.DEDUPLICATED,
    "key and strong look, no bound": Promise.DEDUPLICATED,
    "strong look": Promise.VERIFIED,
    "strong look, no bound": Promise.PERSON_DECIDES,
    "eventual look": Promise.VERIFIED,
    "look that proves nothing": Promise.PERSON_DECIDES,
    "nothing": Promise.PERSON_DECIDES,
    "nothing but a bound": Promise.PERSON_DECIDES,
    "later, pending shown": Promise.VERIFIED,
    "later, blind": Promise.PERSON_DECIDES,
    "later, key": Promise.DEDUPLICATED,
    "later, key, pending shown": Promise.DEDUPLICATED,
    "later, over a path that repeats": Promise.PERSON_DECIDES,
    "version": Promise.GUARDED,
    "version, repeat-safe": Promise.GUARDED,
    "repeat-safe": Promise.REPEATABLE,
    "repeat-safe and look": Promise.REPEATABLE,
    "key over a path that repeats": Promise.DEDUPLICATED,
    "look over a path that repeats": Promise.PERSON_DECIDES,
    "key checked first": Promise.DEDUPLICATED,
    "guard": Promise.DEDUPLICATED,
    "fence raised": Promise.FENCED,
    "tombstone left": Promise.FENCED,
    "tombstone left, key for ever": Promise.FENCED,
    # The tombstone is forgotten as the key is: a clock is under both.
    "tombstone left, key with a window": Promise.DEDUPLICATED,
}


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_of_contract_has_its_guarantee(name: str) -> None:
    assert guarantee(of_class(name)).promise is PROMISES[name]


def test_a_tool_without_a_contract_is_decided_by_a_person_and_says_so() -> None:
    made = guarantee(wiring(None))
    assert made.name == "a person decides"
    assert "no contract is stated for this tool" in made.conditions


@pytest.mark.parametrize("name", CLASSES)
def test_large_claims_are_for_tools_whose_ambiguity_costs_nobodys_time(name: str) -> None:
    assert guarantee(of_class(name)).batch is of_class(name).resend_safe


def test_the_kernel_ends_stopped_processes_where_nothing_else_stands_against_a_late_byte() -> None:
    assert {PROMISES[name] for name in CLASSES if guarantee(of_class(name)).dead_man} == {
        Promise.VERIFIED,
        Promise.PERSON_DECIDES,
    }


def conditions(contract: dict[str, Any] | None = None, **changes: Any) -> str:
    return "\n".join(guarantee(wiring(contract, **changes)).conditions)


def test_where_no_bound_is_stated_the_margin_is_printed_as_the_assumption_that_it_is() -> None:
    assert "5m after its deadline: an assumption, no bound is stated" in conditions({"key": KEY, "key_retention": "1h"})
    stated = conditions({"key": KEY, "key_retention": "1h", **BOUND})
    assert "12s after its deadline (pause_bound + in_flight_bound; margin 24s)" in stated


def test_a_window_too_short_for_any_resend_promises_nothing() -> None:
    made = guarantee(wiring({"key": KEY, "key_retention": "30s", **BOUND}))
    assert made.promise is Promise.PERSON_DECIDES
    assert "shorter than margin and reach" in "\n".join(made.conditions)


def test_verified_names_the_assumption_about_our_own_pauses() -> None:
    said = conditions({"lookup": STRONG, **BOUND})
    assert "no process of ours is stopped longer than 2s" in said
    assert "dead_man" in said
    assert "10s after its deadline (in_flight_bound)" in said


def test_a_person_is_told_from_when_their_word_counts_and_what_backs_it() -> None:
    assert "counts from 17s after the attempt" in conditions({**BOUND})
    assert "counts 1h after giving up, and no bound backs it" in conditions({})


def test_what_nobody_verified_is_named_and_not_relied_on() -> None:
    contract = {"key": KEY, "key_retention": "24h", "unverified": ["key_retention"], **BOUND}
    assert guarantee(wiring(contract)).promise is Promise.PERSON_DECIDES
    assert "not verified, and so not relied on: key_retention" in conditions(contract)


@pytest.mark.parametrize("name", CLASSES)
def test_a_path_that_repeats_requests_is_named_in_every_guarantee(name: str) -> None:
    said = "\n".join(guarantee(of_class(name)).conditions)
    assert ("repeats requests by itself:" in said) is of_class(name).trusted.replays
    assert ("nothing between us and the receiver repeats" in said) is not of_class(name).trusted.replays


def test_without_a_key_a_failover_can_forget_an_exposure_and_the_guarantee_says_so() -> None:
    for name, promise in PROMISES.items():
        said = "synchronous replication" in "\n".join(guarantee(of_class(name)).conditions)
        assert said is (promise in {Promise.VERIFIED, Promise.PERSON_DECIDES, Promise.GUARDED})


def test_a_guaranteed_order_of_repeats_is_a_condition_of_its_own() -> None:
    assert "waits for the settle time" in conditions({"repeat_safe": True, **BOUND})


def test_a_fence_header_alone_is_no_guarantee() -> None:
    """It orders attempts, it bounds no effects."""
    assert guarantee(wiring({"fencing": {}, **BOUND})).promise is Promise.PERSON_DECIDES
    assert isinstance(of_class("fence raised").trusted.fencing, Fencing)


def test_what_a_tombstone_rests_on_is_said_and_no_clock_is_in_it() -> None:
    said = "\n".join(guarantee(of_class("tombstone left, key for ever")).conditions)
    assert "refuses every attempt of an operation up to the one that a look was about" in said
    assert "the inbox keeps its rows, and what its database has committed outlives its failovers" in said
    assert "in the database of the inbox and nowhere else" in said
    assert "deadline" not in said
    assert "stopped longer" not in said
    clauses = guarantee(of_class("tombstone left, key for ever")).clauses
    assert "key in column" in clauses
    assert "fence in column, raised by a look" in clauses


def test_an_inbox_that_forgets_puts_its_clock_into_the_conditions() -> None:
    said = "\n".join(guarantee(of_class("tombstone left, key with a window")).conditions)
    assert "shut out lands within 10m of it, or never" in said
    assert "the key is honoured for 10m" in said


def test_the_clauses_name_the_source_and_its_date() -> None:
    contract = {"source": "section 4", "verified_at": "2026-11-29"}
    assert "source: section 4 (verified 2026-11-29)" in guarantee(wiring(contract)).clauses
    assert "source: hearsay (verified at no stated date)" in guarantee(wiring({"source": "hearsay"})).clauses


IN_VAIN = [
    ({"key": KEY}, "key_retention"),
    ({"key": KEY, "key_retention": "24h", "unverified": ["key_retention"]}, "key_retention"),
    ({"key": KEY, "key_retention": "1m"}, "leaves no time"),
    ({"lookup": STRONG}, "in_flight_bound"),
]
WHOLE = [
    {"key": KEY, "key_retention": "24h"},
    {"key": KEY, "key_anchor": "forever"},
    {"key": KEY, "duplicate_guard": "resource"},
    {"lookup": STRONG, "in_flight_bound": "30s"},
    {},
]


@pytest.mark.parametrize(("contract", "words"), IN_VAIN, ids=str)
def test_what_a_contract_states_in_vain_is_a_warning_that_says_what_follows(
    contract: dict[str, Any], words: str
) -> None:
    (warning,) = warnings(wiring(contract))
    assert words in warning


@pytest.mark.parametrize("contract", WHOLE, ids=str)
def test_a_contract_whose_facts_carry_something_has_no_warning(contract: dict[str, Any]) -> None:
    assert warnings(wiring(contract)) == ()


def test_a_tool_without_a_contract_has_a_warning() -> None:
    assert "waits for a person" in warnings(wiring(None))[0]


RECEIPT = {"status": [200, 201], "means": "receipt"}
ACCEPTED = {"status": [202], "means": "accepted"}
NO_RECEIPT: list[tuple[dict[str, Any] | None, str]] = [
    (None, "an operation ends with a person"),
    ({}, "an operation ends with a person"),
    ({"key": KEY, "key_retention": "24h"}, "an operation ends with a person"),
    ({"answers": [ACCEPTED]}, "an operation ends with a person"),
    ({"answers": [{"status": [404], "means": "refused"}], "lookup": HEARSAY}, "only if a look finds its effect"),
    ({"answers": [RECEIPT], "unverified": ["answers"]}, "is not verified"),
]


def over_http(contract: dict[str, Any] | None) -> str:
    return "\n".join(warnings(Wiring.of("t", tool(contract), receiver(transport="http", base_url="http://h"))))


@pytest.mark.parametrize(("contract", "words"), NO_RECEIPT, ids=str)
def test_a_contract_under_which_no_answer_is_a_receipt_has_a_warning_with_the_rule_that_is_missing(
    contract: dict[str, Any] | None, words: str
) -> None:
    said = over_http(contract)
    assert "no attempt can succeed by its answer" in said
    assert words in said
    assert '{ status = [200, 201], means = "receipt" }' in said


@pytest.mark.parametrize("contract", [{"answers": [RECEIPT]}, {"answers": [ACCEPTED], "lookup": HEARSAY}], ids=str)
def test_a_contract_that_says_what_proves_the_effect_has_no_warning(contract: dict[str, Any]) -> None:
    assert over_http(contract) == ""


def test_a_tool_without_a_safe_resend_beside_others_that_have_one_wants_a_receiver_of_its_own() -> None:
    keyed, again, blind = of_class("key for ever"), of_class("repeat-safe"), of_class("nothing")
    tools = [
        one.model_copy(update={"tool": name}) for one, name in ((keyed, "keyed"), (again, "again"), (blind, "blind"))
    ]
    assert {one.receiver.name for one in tools} == {keyed.receiver.name}
    (warned,) = mixed(tools).items()
    assert warned[0] == "blind"
    assert f"receiver {keyed.receiver.name}" in warned[1]
    assert "again, keyed" in warned[1]
    assert mixed(tools[:2]) == mixed(tools[2:]) == mixed([]) == {}
    elsewhere = blind.receiver.model_copy(update={"name": "mail"})
    assert mixed([*tools[:2], tools[2].model_copy(update={"receiver": elsewhere})]) == {}


def test_where_nothing_is_sent_again_and_nobody_is_asked_a_person_is_asked_when_the_attempt_has_ended() -> None:
    patient = {"retry": {"retry_after_max": "24h"}}
    # Deadline 5 s, lease 20 s, margin 24 s.
    assert liveness_bound(wiring({**patient, **BOUND})) == 5 + 20 + 24
    assert liveness_bound(wiring({**patient, **BOUND, "repeat_safe": True})) > 86_400
