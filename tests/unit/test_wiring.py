"""The wiring: one document per version, the same in every process, and nothing secret in it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.contract import ReceiverConfig, ToolConfig, Wiring
from tests.support.contracts import CLASSES, KEY, of_class, wiring
from tests.unit.test_contract import RECEIVER, STOCK


def stock(receiver: dict[str, Any] | None = None, contract: dict[str, Any] | None = None, **tool: Any) -> Wiring:
    config = ToolConfig.model_validate({**STOCK, "contract": {**STOCK["contract"], **(contract or {})}, **tool})
    return Wiring.of("stock.set", config, ReceiverConfig.model_validate({**RECEIVER, **(receiver or {})}))


@pytest.mark.parametrize("name", CLASSES)
def test_a_wiring_survives_its_way_through_json(name: str) -> None:
    made = of_class(name)
    again = Wiring.from_json(made.to_json())
    assert again == made
    assert again.digest == made.digest
    assert again.to_json() == made.to_json()


def test_a_wiring_is_read_from_the_object_that_jsonb_yields() -> None:
    """PostgreSQL keeps neither the order of names nor white space."""
    made = stock()
    shuffled = dict(reversed(json.loads(made.to_json()).items()))
    assert Wiring.from_json(shuffled).digest == made.digest


def test_defaults_are_written_out_so_that_later_ones_change_no_stored_version() -> None:
    document = json.loads(of_class("nothing").to_json())
    assert document["config"]["contract"]["key_retention"] == "0s"
    assert document["config"]["recover"] == "lookup_first"


def test_the_digest_of_a_version_is_the_same_in_every_release() -> None:
    """Another one here means that every tool of every user gets a new version: on purpose only."""
    assert stock().digest.hex() == "c9e5afa74d4df1bb5192cc0b638135e401ebb9e43ca4a2187d902bd16135a8e2"


def test_neither_a_secret_nor_its_reference_is_in_a_wiring() -> None:
    assert "WAREHOUSE" not in stock().to_json()


def test_further_secrets_are_part_of_no_version_and_of_the_tenants_scope() -> None:
    def second(reference: str) -> Wiring:
        return stock({"auth": {**RECEIVER["auth"], "secret_headers": {"X-App-Key": reference}}})

    assert second("env:APP_KEY").digest == stock().digest
    assert "APP_KEY" not in second("env:APP_KEY_{tenant}").to_json()
    assert second("env:APP_KEY_{tenant}").scope("a") != second("env:APP_KEY_{tenant}").scope("b")


def test_a_rotated_reference_is_the_same_version_and_another_credential_is_not() -> None:
    moved = {"auth": {**RECEIVER["auth"], "secret": "file:/run/secrets/token"}}
    other = {"auth": {**RECEIVER["auth"], "id": "second"}}
    assert stock(moved).digest == stock().digest
    assert stock(other).digest != stock().digest


@pytest.mark.parametrize(
    "changed",
    [
        stock({"base_url": "http://127.0.0.1:9001"}),
        stock({"headers": {"X-Api-Version": "2"}}),
        stock({"lease": "60s"}),
        stock(contract={"key_retention": "23h"}),
        stock(deadline="6s"),
        stock(request={**STOCK["request"], "method": "POST"}),
    ],
)
def test_whatever_wire_bytes_or_rules_depend_on_makes_another_version(changed: Wiring) -> None:
    assert changed.digest != stock().digest


@pytest.mark.parametrize("same", [{"lanes": 8, "concurrency": 32}, {"doorbell": False}, {"rate": 5.0}])
def test_what_nothing_depends_on_makes_no_version(same: dict[str, Any]) -> None:
    assert stock(same).digest == stock().digest


@given(st.integers(1, 10_000), st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_numbers_follow_from_deadline_pause_and_bound(deadline: int, pause: int, bound: int) -> None:
    made = wiring(
        {"key": KEY, "key_retention": "24h", "in_flight_bound": f"{bound}ms"},
        deadline=f"{deadline}ms",
        pause_bound=f"{pause}ms",
    )
    assert made.settle_seconds == pytest.approx((deadline + pause + bound) / 1000)
    assert made.reach_seconds == pytest.approx(max(deadline, bound) / 1000)
    assert made.margin_seconds >= (pause + bound) / 1000


def test_a_pause_bound_that_nobody_states_is_the_lease() -> None:
    assert stock().receiver.pause_bound == 30.0


# ------------------------------------------------------------------------------------------------------------- scope


def test_a_scope_that_nobody_states_pins_everything_that_is_known() -> None:
    pinned = stock().scope("acme")
    for part in ("main", "127.0.0.1:9000", "PUT /stock/{resource}"):
        assert part in pinned


def test_a_rotated_credential_changes_the_scope_unless_the_contract_says_account() -> None:
    def credential(name: str, scope: list[str] | None) -> str:
        contract = {} if scope is None else {"key_scope": scope}
        return stock({"auth": {**RECEIVER["auth"], "id": name, "account": "acct"}}, contract).scope("acme")

    assert credential("2026-10", None) != credential("2026-11", None)
    assert credential("2026-10", ["credential"]) != credential("2026-11", ["credential"])
    assert credential("2026-10", ["account"]) == credential("2026-11", ["account"])


def test_tenants_with_secrets_of_their_own_never_share_a_scope() -> None:
    own = {"auth": {**RECEIVER["auth"], "secret": "file:/run/secrets/{tenant}/key"}}
    assert stock(own).scope("a") != stock(own).scope("b")
    assert stock().scope("a") == stock().scope("b")


def test_without_a_key_the_scope_is_where_absence_means_something() -> None:
    made = of_class("strong look")
    assert set(json.loads(made.scope("a"))) == {"receiver", "account", "host"}


# -------------------------------------------------------------------------------------------------- what must wait


def test_only_a_repeat_that_nobody_orders_lets_an_old_value_land_last() -> None:
    """The next operation of the ordering key waits; a key or a version makes that unnecessary."""
    late = {name for name in CLASSES if of_class(name).lands_late}
    assert late == {"repeat-safe", "repeat-safe and look"}


def test_a_version_that_alone_prevents_a_second_effect_must_be_stated_by_the_intent() -> None:
    assert {name for name in CLASSES if of_class(name).needs_version} == {"version", "version, repeat-safe"}
    assert not stock().needs_version
