"""What may be said about an inbox in a file, and what is refused by name."""

from typing import Any

import pytest
from pydantic import ValidationError

from outbox.contract import ReceiverConfig, ToolConfig, Wiring, problems
from outbox.guarantee import Promise, guarantee
from tests.support.inbox import CONTRACT, TOOL, receiver_config, tool_config, wiring_of

DSN = {"kind": "dsn", "secret": "env:X", "id": "x", "account": "shop"}


def complaints(contract: dict[str, Any] | None = None, receiver: dict[str, Any] | None = None, **tool: Any) -> str:
    config = receiver_config(**(receiver or {}))
    return "\n".join(map(str, problems(TOOL, tool_config(contract, **tool), config)))


def test_the_contract_of_the_documentation_is_fenced_and_contradicts_nothing() -> None:
    assert complaints() == ""
    made = guarantee(wiring_of())
    assert made.promise is Promise.FENCED
    assert made.batch
    assert not made.dead_man


def test_without_an_error_that_means_a_refusal_it_is_as_good() -> None:
    contract = {name: value for name, value in CONTRACT.items() if name != "answers"}
    tool = ToolConfig.model_validate({"receiver": "shop", "contract": contract})
    assert problems(TOOL, tool, receiver_config()) == []


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        ({"key": {"in": "header", "name": "Idempotency-Key"}}, 'the key is a column of the inbox: { in = "column" }'),
        ({"fencing": {"in": "header"}}, "the fence is a column of the inbox"),
        ({"fencing": "none"}, "only a tombstone proves absence"),
        ({"fencing": {"in": "column"}}, "only a tombstone proves absence"),
        ({"lookup": "none"}, "there is no look that could raise a fence"),
        ({"lookup": {**CONTRACT["lookup"], "by": "reference"}}, 'by = "key"'),
        ({"lookup": {**CONTRACT["lookup"], "not_found": {"status": [404]}}}, "says by itself that it has nothing"),
        ({"answers": [{"status": [422], "means": "refused"}]}, "errors by their sqlstate"),
        ({"acceptance": "async"}, "has the effect before it answers"),
        ({"precondition": {"header": "If-Match"}}, "contract.precondition: describes HTTP"),
        ({"request_id_header": "X-Id"}, "contract.request_id_header: describes HTTP"),
        ({"replay_marker": {"header": "X-Replayed"}}, "contract.replay_marker: describes HTTP"),
    ],
)
def test_what_an_inbox_cannot_do_is_refused_by_name(contract: dict[str, Any], said: str) -> None:
    assert said in complaints(contract)


def test_a_request_of_http_has_no_place_here() -> None:
    assert "asked in its own words" in complaints(request={"path": "/x"})
    assert "asked in its own words" in complaints(read={"path": "/{sent_key}"})


def test_looks_need_a_login_that_can_only_look_or_the_word_that_there_is_none() -> None:
    assert "needs a read_auth of its own" in complaints(receiver={"read_auth": None})
    assert complaints(receiver={"read_auth": None, "shared_credential": True}) == ""
    elsewhere = {"kind": "dsn", "secret": "env:Y", "id": "y", "account": "warehouse"}
    assert "it would not see our effects" in complaints(receiver={"read_auth": elsewhere})


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        ({"key": {"in": "column"}, "key_retention": "1h"}, "a request has no columns: its key"),
        ({"fencing": {"in": "column"}}, "a request has no columns: its fence"),
        ({"fencing": {"raised_by_lookup": True}}, "not supported yet by the http transport"),
        ({"answers": [{"sqlstate": ["23"], "means": "refused"}]}, "answers with no sqlstate"),
    ],
)
def test_over_http_what_belongs_to_an_inbox_is_refused(contract: dict[str, Any], said: str) -> None:
    config = ReceiverConfig.model_validate({"transport": "http", "base_url": "http://x"})
    tool = ToolConfig.model_validate({"receiver": "shop", "request": {"path": "/x"}, "contract": contract})
    assert said in "\n".join(map(str, problems(TOOL, tool, config)))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"transport": "postgres"}, "needs an auth of kind dsn"),
        ({"transport": "postgres", "auth": DSN, "base_url": "http://x"}, "has neither base_url nor headers"),
        ({"transport": "postgres", "auth": DSN, "headers": {"A": "b"}}, "has neither base_url nor headers"),
        ({"transport": "postgres", "auth": {**DSN, "kind": "bearer"}}, "no use for a credential of the kind bearer"),
        ({"transport": "http", "base_url": "http://x", "auth": DSN}, "no use for a credential of the kind dsn"),
        (
            {"transport": "http", "base_url": "http://x", "auth": {**DSN, "kind": "bearer"}, "read_auth": DSN},
            "no use for a credential of the kind dsn",
        ),
        ({"transport": "postgres", "auth": {**DSN, "account": None}}, "needs the `account`"),
    ],
)
def test_a_receiver_has_the_credentials_of_its_transport(document: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ReceiverConfig.model_validate(document)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"sqlstate": ["23514"], "status": [400], "means": "refused"}, "neither status, header nor body"),
        ({"sqlstate": ["23514"], "means": "receipt"}, "an error rolled everything back"),
        ({"sqlstate": ["23514"], "means": "accepted"}, "an error rolled everything back"),
        ({"sqlstate": ["2351"], "means": "refused"}, "match pattern"),
        ({"sqlstate": [], "means": "refused"}, "at least 1 item"),
        ({"means": "refused"}, "without conditions"),
    ],
)
def test_an_error_means_what_an_error_can_mean(answer: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        tool_config({"answers": [answer]})


def test_a_fence_in_a_column_has_no_answer_of_http() -> None:
    with pytest.raises(ValidationError, match="describes an answer of HTTP"):
        tool_config({"fencing": {"in": "column", "stale": {"status": [409]}}})


def test_another_account_is_another_scope_and_a_rotated_secret_is_none() -> None:
    def scope(**auth: Any) -> str:
        config = receiver_config(auth={**DSN, **auth})
        return Wiring.of(TOOL, tool_config({"key_scope": ["account"]}), config).scope("acme")

    assert scope() == scope(secret="env:NEW", id="rotated")
    assert scope() != scope(account="warehouse")
    assert scope() != scope(secret="file:/run/{tenant}/dsn")
