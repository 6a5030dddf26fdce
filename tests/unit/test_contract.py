"""Contracts and configurations: what is accepted, what is refused and in which words, and what is safe by default."""

import math
import tomllib
from typing import Any

import pytest
from pydantic import ValidationError

from outbox.contract import Contract, ReceiverConfig, ToolConfig, Wiring, problems
from outbox.contract.reach import unreachable
from tests.support.contracts import KEY, STRONG

EXAMPLE = """
[receivers.warehouse]
transport = "http"
base_url = "http://127.0.0.1:9000"
lanes = 4
concurrency = 16
allow_private_addresses = true
auth = { kind = "bearer", secret = "env:WAREHOUSE_TOKEN", id = "main" }
read_auth = { kind = "bearer", secret = "env:WAREHOUSE_READ_TOKEN", id = "main-read" }

[tools."inventory.set_available"]
receiver = "warehouse"
deadline = "5s"
request = { method = "PUT", path = "/stock/{resource}", encoding = "json" }
read = { path = "/operations/{sent_key}", identity = "/key", external_id = "/receipt" }
[tools."inventory.set_available".contract]
key = { in = "header", name = "Idempotency-Key", form = "bare" }
key_retention = "24h"
in_flight_bound = "30s"
lookup = { by = "key", consistency = "strong", absence_is_proof = true, not_found = { status = [404] } }
precondition = { header = "If-Match", format = "\\"{expected_version}\\"" }
source = "the warehouse team's API reference, section 4"
verified_at = 2026-11-29
[[tools."inventory.set_available".contract.answers]]
status = [200, 201]
means = "receipt"
external_id = "/receipt"

[tools."mail.send"]
receiver = "warehouse"
deadline = "5s"
request = { method = "POST", path = "/mail", encoding = "json" }
[tools."mail.send".contract]
key = "none"
lookup = "none"
source = "the mail team"
verified_at = 2026-11-29
[[tools."mail.send".contract.answers]]
status = [202]
means = "receipt"
"""

FILE: dict[str, Any] = tomllib.loads(EXAMPLE)
RECEIVER: dict[str, Any] = FILE["receivers"]["warehouse"]
STOCK: dict[str, Any] = FILE["tools"]["inventory.set_available"]


BEARER: dict[str, Any] = {"kind": "bearer", "secret": "env:A", "id": "a"}
HEADER: dict[str, Any] = {**BEARER, "kind": "header", "header": "X-Api-Key"}
DSN: dict[str, Any] = {**BEARER, "kind": "dsn", "account": "a"}


def problems_of(contract: dict[str, Any] | None = None, receiver: dict[str, Any] | None = None, **tool: Any) -> str:
    """Everything that is wrong with the example after some changes, as one text."""
    changed = {**STOCK, "contract": {**STOCK["contract"], **(contract or {})}, **tool}
    found = problems(
        "inventory.set_available",
        ToolConfig.model_validate(changed),
        ReceiverConfig.model_validate({**RECEIVER, **(receiver or {})}),
    )
    return "\n".join(map(str, found))


def refusal(model: type[Any], document: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(document)
    return str(caught.value)


# ----------------------------------------------------------------------------------------------------- what is right


@pytest.mark.parametrize("name", FILE["tools"])
def test_the_example_is_valid_with_every_default(name: str) -> None:
    tool = ToolConfig.model_validate(FILE["tools"][name])
    assert problems(name, tool, ReceiverConfig.model_validate(RECEIVER)) == []


def test_bounds_of_a_few_seconds_are_valid() -> None:
    assert problems_of({"in_flight_bound": "2s"}, {"lease": "3s", "pause_bound": "1s"}, deadline="1500ms") == ""


def test_the_margin_that_nobody_states_covers_lateness_twice_or_is_the_assumption() -> None:
    receiver = ReceiverConfig.model_validate({**RECEIVER, "pause_bound": "10s"})
    stated = Wiring.of("t", ToolConfig.model_validate(STOCK), receiver)
    assert (stated.late_seconds, stated.margin_seconds) == (40.0, 80.0)
    silent = {key: value for key, value in STOCK["contract"].items() if key != "in_flight_bound"}
    assumed = Wiring.of("t", ToolConfig.model_validate({**STOCK, "contract": silent}), receiver)
    assert (assumed.late_seconds, assumed.settle_seconds, assumed.margin_seconds) == (None, None, 300.0)


def test_a_contract_that_states_nothing_promises_nothing() -> None:
    wiring = Wiring.of("t", ToolConfig.model_validate({"receiver": "r"}), ReceiverConfig(transport="scripted"))
    assert wiring.retention_seconds == 0
    assert wiring.settle_seconds is None
    assert wiring.lookup is None
    assert not wiring.resend_safe
    assert not wiring.repeat_safe


def test_an_unknown_retention_counts_as_none_and_an_anchor_is_the_first_request() -> None:
    contract = Contract.model_validate({"key": KEY})
    assert contract.key_retention == 0
    assert contract.key_anchor == "first_request"


@pytest.mark.parametrize(
    ("contract", "retention"),
    [
        ({"key": KEY, "key_retention": "24h"}, 86_400.0),
        ({"key": KEY, "key_retention": "forever"}, math.inf),
        ({"key": KEY, "key_anchor": "forever"}, math.inf),
        ({"key": KEY, "duplicate_guard": "resource"}, math.inf),
        ({"key": KEY}, 0.0),
        ({"key": "ignored"}, 0.0),
        ({"key": KEY, "key_retention": "24h", "unverified": ["key_retention"]}, 0.0),
        ({"key": KEY, "key_retention": "24h", "unverified": ["key"]}, 0.0),
    ],
)
def test_the_key_is_worth_what_is_known_of_it(contract: dict[str, Any], retention: float) -> None:
    tool = ToolConfig.model_validate({"receiver": "r", "contract": contract})
    assert Wiring.of("t", tool, ReceiverConfig(transport="scripted")).retention_seconds == retention


def test_a_fact_that_nobody_verified_counts_as_not_stated() -> None:
    names = ["lookup", "in_flight_bound", "repeat_safe", "replays", "acceptance", "precondition", "answers"]
    stated = {
        "key": KEY,
        "lookup": STRONG,
        "in_flight_bound": "5s",
        "repeat_safe": True,
        "precondition": {"header": "If-Match"},
        "answers": [{"status": [200], "means": "receipt"}],
    }
    trusted = Contract.model_validate({**stated, "unverified": names}).trusted()
    assert (trusted.lookup, trusted.in_flight_bound, trusted.repeat_safe, trusted.precondition) == (
        "none",
        None,
        False,
        "none",
    )
    assert trusted.answers == ()
    # Of these two the default is what one hopes for, not what is safe.
    assert trusted.replays
    assert trusted.acceptance == "async"


# -------------------------------------------------------------------------------------------- what contradicts itself

CONTRADICTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("a deadline that outlives its lease", {"deadline": "30s"}, "deadline"),
    ("a margin below what may be late", {"contract": {"margin": "59s"}}, "contract.margin"),
    (
        "a schedule longer than the window",
        {"contract": {"key_retention": "5m", "retry": {"max": "1m", "attempts": 20}}},
        "contract.retry",
    ),
    (
        "absence as proof without a consistency",
        {"contract": {"lookup": {"by": "key", "absence_is_proof": True}}},
        "contract.lookup",
    ),
    ("eventual without a lag", {"contract": {"lookup": {**STRONG, "consistency": "eventual"}}}, "contract.lookup"),
    ("strong with a lag", {"contract": {"lookup": {**STRONG, "lag": "1s"}}}, "contract.lookup"),
    (
        "a lag that never ends",
        {"contract": {"lookup": {**STRONG, "consistency": "eventual", "lag": "forever"}}},
        "contract.lookup",
    ),
    ("absence of the last change as proof", {"contract": {"lookup": {**STRONG, "by": "resource"}}}, "contract.lookup"),
    ("absence as proof, and not how it looks", {"contract": {"lookup": STRONG}}, "contract.lookup.not_found"),
    ("a horizon that passes first", {"contract": {"lookup": {**STRONG, "horizon": "1m"}}}, "contract.lookup"),
    ("a retention without a key", {"contract": {"key": "none"}}, "contract.key_retention"),
    ("a look by a key that is not sent", {"contract": {"key": "none", "key_retention": "0s"}}, "contract.lookup"),
    (
        "a guard without a key",
        {"contract": {"key": "ignored", "duplicate_guard": "resource"}},
        "contract.duplicate_guard",
    ),
    (
        "a check of a key that is not there",
        {"contract": {"key": "none", "key_checked_first": True}},
        "contract.key_checked_first",
    ),
    ("a key in a path that has no place for it", {"contract": {"key": {"in": "path"}}}, "request.path"),
    (
        "a pointer into a form",
        {
            "contract": {"key": {"in": "body", "pointer": "/key"}},
            "request": {"path": "/x", "encoding": "form"},
        },
        "contract.key",
    ),
    (
        "the key's place taken",
        {
            "contract": {"key": {"in": "body", "pointer": "/k"}},
            "request": {"path": "/x", "inject": {"/k": "{resource}"}},
        },
        "request.inject",
    ),
    (
        "the key's query field taken",
        {"contract": {"key": {"in": "query", "name": "k"}}, "request": {"path": "/x", "query": {"k": "1"}}},
        "request.query",
    ),
    ("a header twice", {"request": {"path": "/x", "headers": {"idempotency-key": "1"}}}, "request.headers"),
    ("a key in a header that is ours", {"contract": {"key": {"in": "header", "name": "Outbox-Fence"}}}, "contract"),
    ("no request", {"request": None}, "request"),
    ("a look that is not described", {"read": None}, "read"),
    ("a read that is never used", {"contract": {"lookup": "none"}}, "read"),
    ("a look with the credential of effects", {"receiver": {"read_auth": None}}, "read"),
    ("the same secret under two names", {"receiver": {"read_auth": RECEIVER["auth"]}}, "read"),
    (
        "a look into another account",
        {
            "receiver": {
                "auth": {**RECEIVER["auth"], "account": "one"},
                "read_auth": {**RECEIVER["read_auth"], "account": "two"},
            }
        },
        "read",
    ),
    (
        "a fence raised by a transport that cannot",
        {"contract": {"fencing": {"raised_by_lookup": True}}},
        "contract.fencing",
    ),
]


@pytest.mark.parametrize(
    ("changes", "place"), [case[1:] for case in CONTRADICTIONS], ids=[case[0] for case in CONTRADICTIONS]
)
def test_a_contradiction_is_refused_with_its_place(changes: dict[str, Any], place: str) -> None:
    found = problems_of(**changes)
    assert any(line.startswith(f'tools."inventory.set_available".{place}') for line in found.splitlines()), found


RECEIPT = {"status": [200, 201], "means": "receipt"}
UNREACHABLE = {
    "the same status again": [RECEIPT, {"status": [200], "means": "refused"}],
    "its class before it": [{"status": ["4xx"], "means": "refused"}, {"status": [409], "means": "in_flight"}],
    "two that share it": [{"status": [200], "means": "receipt"}, {"status": [201], "means": "accepted"}, RECEIPT],
    "a body that asks for more": [RECEIPT, {"status": [200], "body": {"/state": "failed"}, "means": "refused"}],
    "any status before it": [
        {"body_present": ["/error"], "means": "refused"},
        {"status": [400], "body": {"/error/code": 7}, "means": "mismatch"},
    ],
    "a header in other letters": [
        {"header": {"X-Replayed": True}, "means": "stored_failure"},
        {"header": {"x-replayed": "yes"}, "means": "receipt"},
    ],
    "a longer end": [
        {"body_suffix": {"/key": "{sent_key}"}, "means": "receipt"},
        {"body_suffix": {"/key": "op-{sent_key}"}, "means": "refused"},
    ],
    "one for each attempt": [
        {**RECEIPT, "attempt": "first"},
        {**RECEIPT, "attempt": "resend"},
        {"status": [201], "means": "accepted"},
    ],
    "an error of its class": [{"sqlstate": ["23"], "means": "refused"}, {"sqlstate": ["23514"], "means": "forbidden"}],
}
REACHED = {
    "some of its statuses": [{"status": [200], "means": "receipt"}, {"status": [200, 201], "means": "accepted"}],
    "first what is special": [{"status": [200], "body": {"/state": "failed"}, "means": "refused"}, RECEIPT],
    "another value": [
        {"status": [409], "body": {"/code": "a"}, "means": "in_flight"},
        {"status": [409], "body": {"/code": "b"}, "means": "mismatch"},
    ],
    "one is not true": [{"body": {"/done": True}, "means": "receipt"}, {"body": {"/done": 1}, "means": "accepted"}],
    "absent and present": [
        {"header": {"x-id": False}, "means": "refused"},
        {"header": {"x-id": True}, "means": "receipt"},
    ],
    "a shorter end": [
        {"body_suffix": {"/key": "op-{sent_key}"}, "means": "receipt"},
        {"body_suffix": {"/key": "{sent_key}"}, "means": "refused"},
    ],
    "half of a placeholder": [
        {"body_suffix": {"/key": "key}"}, "means": "receipt"},
        {"body_suffix": {"/key": "{sent_key}"}, "means": "refused"},
    ],
    "the other attempt": [{**RECEIPT, "attempt": "first"}, RECEIPT],
    "another kind": [{"status": ["5xx"], "means": "ambiguous"}, {"sqlstate": ["53"], "means": "throttled"}],
    "null is not there": [{"body_present": ["/a"], "means": "receipt"}, {"body_present": ["/ab"], "means": "accepted"}],
}


@pytest.mark.parametrize("answers", UNREACHABLE.values(), ids=UNREACHABLE)
def test_an_answer_rule_that_is_never_reached_is_refused_by_its_place(answers: list[dict[str, Any]]) -> None:
    (last,) = unreachable(Contract.model_validate({"answers": answers}).answers)
    assert last[0] == len(answers) - 1
    assert set(last[1]) <= set(range(len(answers) - 1))
    told = problems_of({"answers": [RECEIPT, {"status": [200], "means": "refused"}]})
    assert "contract.answers[1]: it is never reached: answers[0] before it catches" in told


@pytest.mark.parametrize("answers", REACHED.values(), ids=REACHED)
def test_an_answer_rule_that_some_answer_reaches_is_left_alone(answers: list[dict[str, Any]]) -> None:
    assert list(unreachable(Contract.model_validate({"answers": answers}).answers)) == []


def test_all_contradictions_are_named_at_once() -> None:
    found = problems_of({"margin": "1s", "lookup": {"by": "key", "absence_is_proof": True}}, deadline="1m")
    assert len(found.splitlines()) >= 3


def test_one_secret_for_both_is_allowed_where_somebody_says_so() -> None:
    assert problems_of(receiver={"read_auth": RECEIVER["auth"], "shared_credential": True}) == ""


# -------------------------------------------------------------------------------------------------- what is not valid

LATER: list[tuple[type[Any], dict[str, Any]]] = [
    (Contract, {"status": {"at": "header:Operation-Location"}}),
    (Contract, {"callback": {}}),
    (Contract, {"first_sent": {"header": "Repeatability-First-Sent"}}),
    (Contract, {"window_enforced_by_receiver": True}),
    (Contract, {"retry_advice": {"header": "Stripe-Should-Retry"}}),
    (Contract, {"stuck_key": {}}),
    (Contract, {"key": {"in": "message"}}),
    (Contract, {"key_scope": ["cluster"]}),
    (Contract, {"lookup": {"by": "scan"}}),
    (Contract, {"fencing": {"in": "epoch"}}),
    (Contract, {"precondition": {"header": "X", "field": "/version"}}),
    (ToolConfig, {"receiver": "r", "request": {"path": "/x", "envelope": "{}"}}),
    (ReceiverConfig, {"transport": "scripted", "auth": {"kind": "oauth2", "secret": "env:A", "id": "a"}}),
]


@pytest.mark.parametrize(("model", "document"), LATER, ids=[str(case[1]) for case in LATER])
def test_what_is_not_supported_yet_is_refused_by_name_and_never_ignored(
    model: type[Any], document: dict[str, Any]
) -> None:
    assert "not supported yet" in refusal(model, document)


INVALID: list[tuple[type[Any], dict[str, Any], str]] = [
    (Contract, {"key_retension": "24h"}, "Extra inputs"),
    (Contract, {"key": "yes"}, "'none' or 'ignored', or a table"),
    (Contract, {"key": KEY, "key_retention": "24"}, "no duration"),
    (Contract, {"key": KEY, "key_retention": 86400}, "with its unit"),
    (Contract, {"key": {"in": "header"}}, "a `name` only"),
    (Contract, {"key": {"in": "header", "name": "Idempotency Key"}}, "pattern"),
    (Contract, {"key": {"in": "body"}}, "a `pointer` (JSON) or a `name`"),
    (Contract, {"key": {"in": "query", "name": "k", "form": "quoted"}}, "only a key in a header"),
    (Contract, {"key_grammar": {"max": 35}}, "36 characters"),
    (Contract, {"key_grammar": {"pattern": "[0-9]+"}}, "does not match"),
    (Contract, {"key_grammar": {"pattern": "("}}, "not a regular expression"),
    (Contract, {"in_flight_bound": "forever"}, "no bound"),
    (Contract, {"margin": "forever"}, "no window"),
    (Contract, {"key_retention": "forever", "key_anchor": "creation"}, "no anchor"),
    (Contract, {"key_retention": "1h", "key_anchor": "forever"}, "contradict"),
    (Contract, {"unverified": ["nothing"]}, "no fact of a contract"),
    (Contract, {"answers": [{"means": "receipt"}]}, "match every answer"),
    (Contract, {"answers": [{"status": [200], "means": "fine"}]}, "Input should be"),
    (Contract, {"answers": [{"status": [99], "means": "receipt"}]}, "greater than or equal to 100"),
    (
        Contract,
        {"answers": [{"status": [409], "means": "refused", "external_id": "/id"}]},
        "means a receipt or an acceptance",
    ),
    (
        Contract,
        {"answers": [{"status": [409], "means": "receipt", "verify": {"path": "/x/{external_id}"}}]},
        "has an `external_id`",
    ),
    (Contract, {"precondition": {"header": "If-Match", "format": "1"}}, "contains {expected_version}"),
    (Contract, {"precondition": {"header": "If-Match", "format": "{expected_version}\r\nX: 1"}}, "printable ASCII"),
    (Contract, {"lookup": {"by": "key", "interval": "0s"}}, "does not hold"),
    (Contract, {"retry": {"first": "1h", "max": "1m"}}, "do not hold"),
    (ToolConfig, {"receiver": "r", "deadline": "0s"}, "more than 0s"),
    (ToolConfig, {"receiver": "r", "request": {"path": "/a/../b"}}, "dot segments"),
    (ToolConfig, {"receiver": "r", "request": {"path": "/a?b=1"}}, "no query"),
    (ToolConfig, {"receiver": "r", "request": {"path": "/{model}"}}, "unknown name in braces"),
    (ToolConfig, {"receiver": "r", "request": {"path": "/{resource.__class__}"}}, "plain names"),
    (ToolConfig, {"receiver": "r", "request": {"path": "/x", "headers": {"Host": "x"}}}, "set by the sender"),
    (
        ToolConfig,
        {"receiver": "r", "request": {"path": "/x", "headers": {"Authorization": "x {tenant_id}"}}},
        'header = "Authorization", secret = "env:NAME"',
    ),
    (ToolConfig, {"receiver": "r", "request": {"path": "/x", "headers": {"X-A": "a\nb"}}}, "printable ASCII"),
    (
        ToolConfig,
        {"receiver": "r", "request": {"path": "/x", "headers": {"X-Api-Key": "k"}}},
        "looks like a credential",
    ),
    (
        ToolConfig,
        {"receiver": "r", "request": {"path": "/x", "query": {"access_token": "k"}}},
        "looks like a credential",
    ),
    (ToolConfig, {"receiver": "r", "request": {"path": "/x", "inject": {"/secret": "k"}}}, "looks like a credential"),
    (ToolConfig, {"receiver": "r", "read": {"path": "/x", "query": {"api-key": "k"}}}, "looks like a credential"),
    (
        ReceiverConfig,
        {"transport": "http", "base_url": "http://x", "headers": {"DD-API-KEY": "k"}},
        'an auth that there is already, secret_headers = { "DD-API-KEY" = "env:NAME" }',
    ),
    (
        ToolConfig,
        {"receiver": "r", "request": {"path": "/x", "inject": {"/meta/api_key": "k"}}},
        'secret_headers = { "api_key" = "env:NAME" }',
    ),
    (ToolConfig, {"receiver": "r", "request": {"path": "/x", "inject": {"key": "{sent_key}"}}}, "JSON pointer"),
    (ToolConfig, {"receiver": "r", "read": {"path": "/x/{resource}"}}, "merely looks alike"),
    (ToolConfig, {"receiver": "r", "read": {"path": "/x/{sent_key}", "items": "/data"}}, "merely looks alike"),
    (ToolConfig, {"receiver": "r", "read": {"path": "/x/{sent_key}", "next": "/next"}}, "pages need"),
    (ToolConfig, {"receiver": "r", "read": {"path": "/x/{sent_key}", "state": "/s"}}, "lists of words"),
    (
        ToolConfig,
        {"receiver": "r", "read": {"path": "/{sent_key}", "state": "/s", "confirmed": ["a"], "ended": ["a"]}},
        "two lists",
    ),
    (ToolConfig, {"receiver": "r", "read": {"method": "POST", "path": "/{sent_key}"}}, "Input should be 'GET'"),
    (ReceiverConfig, {"transport": "http"}, "needs a base_url"),
    (ReceiverConfig, {"transport": "http", "base_url": "ftp://x"}, "http(s)://host"),
    (ReceiverConfig, {"transport": "http", "base_url": "https://me:secret@x"}, "holds no credentials"),
    (ReceiverConfig, {"transport": "http", "base_url": "https://x:99999"}, "out of range"),
    (ReceiverConfig, {"transport": "scripted", "lanes": 8, "concurrency": 4}, "divided among lanes"),
    (ReceiverConfig, {"transport": "scripted", "lease": "100ms"}, "between 1s and 24h"),
    (
        ReceiverConfig,
        {"transport": "scripted", "auth": {"kind": "header", "secret": "env:A", "id": "a"}},
        "`header` belongs",
    ),
    *(
        (ReceiverConfig, {"transport": "http", "base_url": "http://x", "headers": {"X-Team": "a"}, **document}, message)
        for document, message in [
            ({"auth": {**BEARER, "secret_headers": {"authorization": "env:B"}}}, "the same header twice"),
            ({"auth": {**HEADER, "secret_headers": {"x-api-key": "env:B"}}}, "the same header twice"),
            ({"auth": {**HEADER, "secret_headers": {"X-Api-Key": "env:B"}}}, "the same header twice"),
            ({"auth": {**BEARER, "secret_headers": {"X-B": "env:B", "x-b": "env:C"}}}, "the same header twice"),
            ({"auth": {**BEARER, "secret_headers": {"Content-Type": "env:B"}}}, "set by the sender itself: content-ty"),
            ({"auth": {**BEARER, "secret_headers": {"HOST": "env:B"}}}, "set by the sender itself: host"),
            ({"auth": {**HEADER, "header": "Outbox-Fence"}}, "set by the sender itself: outbox-fence"),
            ({"auth": {**BEARER, "secret_headers": {"X B": "env:B"}}}, "should match pattern"),
            ({"auth": {**BEARER, "secret_headers": {"x-team": "env:B"}}}, "by `headers` and by a credential: X-Team"),
            ({"read_auth": {**BEARER, "secret_headers": {"x-team": "env:B"}}}, "and by a credential: X-Team"),
            ({"auth": {**DSN, "secret_headers": {"X-B": "env:B"}}}, "a dsn is sent in no header"),
        ]
    ),
]


@pytest.mark.parametrize(("model", "document", "message"), INVALID, ids=[str(case[1]) for case in INVALID])
def test_what_is_not_valid_is_refused_with_a_reason(model: type[Any], document: dict[str, Any], message: str) -> None:
    assert message in refusal(model, document)


SECOND: dict[str, Any] = {**RECEIVER["auth"], "secret_headers": {"X-App-Key": "env:APP_KEY"}}


def test_a_secret_in_the_place_of_a_reference_is_refused_and_not_repeated() -> None:
    secret = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
    for wrong in ({"secret": secret}, {"secret_headers": {"X-App-Key": secret}}):
        message = refusal(ReceiverConfig, {"transport": "scripted", "auth": {**BEARER, **wrong}})
        assert secret not in message


def test_a_reference_to_a_secret_is_not_shown() -> None:
    shown = repr(ReceiverConfig.model_validate({**RECEIVER, "auth": SECOND}))
    assert "WAREHOUSE_TOKEN" not in shown
    assert "APP_KEY" not in shown


@pytest.mark.parametrize("name", ["Authorization", "Proxy-Authorization", "Cookie", "X-App-Key"])
def test_a_further_secret_travels_in_any_header_that_is_for_credentials(name: str) -> None:
    auth = {**HEADER, "secret_headers": {name: "env:B"}}
    assert problems_of(receiver={"auth": auth}) == ""
    sent = ReceiverConfig.model_validate({**RECEIVER, "auth": auth}).auth
    assert sent is not None
    assert sent.sent == (("X-Api-Key", "env:A"), (name, "env:B"))


@pytest.mark.parametrize(
    ("header", "changes"),
    [
        ("idempotency-KEY", {}),
        ("If-Match", {}),
        ("X-Mine", {"request": {"path": "/x", "headers": {"x-mine": "{tenant_id}"}}}),
    ],
    ids=["the key", "the precondition", "one of the tool"],
)
@pytest.mark.parametrize("auth", ["as the first", "as a further one"])
def test_no_credential_takes_the_place_of_what_a_tool_sends(header: str, changes: dict[str, Any], auth: str) -> None:
    """Or else a request would go without its key, for instance."""
    taken = {**HEADER, "header": header} if auth == "as the first" else {**BEARER, "secret_headers": {header: "env:B"}}
    assert f"request.headers: set twice: {header.lower()}" in problems_of(receiver={"auth": taken}, **changes)


@pytest.mark.parametrize("reads_by", ["auth", "read_auth"])
def test_no_credential_takes_the_place_of_what_a_look_sends(reads_by: str) -> None:
    read = {**STOCK["read"], "headers": {"x-app-KEY": "{tenant_id}"}}
    auths = {"auth": SECOND, "read_auth": None, "shared_credential": True}
    if reads_by == "read_auth":
        auths = {"read_auth": {**RECEIVER["read_auth"], "secret_headers": SECOND["secret_headers"]}}
    found = problems_of(receiver=auths, read=read)
    assert "read.headers: set twice, here and by the credential: x-app-key" in found
    assert problems_of(read=read) == ""


A_KEY = {"secret_headers": {"X-App-Key": "env:APP_KEY"}}


@pytest.mark.parametrize(
    ("auth", "read_auth", "refused"),
    [
        ({}, {}, False),
        (A_KEY, A_KEY, False),
        (A_KEY, {}, False),
        ({}, {"secret_headers": {"X-W": RECEIVER["auth"]["secret"]}}, True),
        ({"secret_headers": {"X-R": RECEIVER["read_auth"]["secret"]}}, {}, True),
    ],
    ids=["apart", "a key that both need", "a key that one needs", "the reader can write", "the writer's key reads"],
)
def test_a_look_has_a_secret_that_causes_no_effects(
    auth: dict[str, Any], read_auth: dict[str, Any], *, refused: bool
) -> None:
    changed = {"auth": {**RECEIVER["auth"], **auth}, "read_auth": {**RECEIVER["read_auth"], **read_auth}}
    assert ("needs a read_auth of its own" in problems_of(receiver=changed)) is refused
    assert problems_of(receiver={**changed, "shared_credential": True}) == ""


@pytest.mark.parametrize("key", [{"in": "path"}, {"in": "query", "name": "k"}, {"in": "body", "pointer": "/k"}])
def test_a_key_can_travel_in_path_query_and_body(key: dict[str, Any]) -> None:
    request = {"method": "PUT", "path": "/operations/{sent_key}"}
    assert problems_of({"key": key, "precondition": "none"}, request=request) == ""


def test_a_key_can_travel_in_a_field_of_a_form() -> None:
    request = {"path": "/v1/refunds", "encoding": "form", "inject": {"metadata[outbox]": "{sent_key}"}}
    assert problems_of({"key": {"in": "body", "name": "key"}}, request=request) == ""
