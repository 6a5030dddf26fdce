"""What an answer means: the default table as data, the contract's own rules, and what nobody may call a proof."""

import json
from typing import Any

import pytest

from outbox.classify import NeedsVerify, classify, verified
from outbox.contract import Contract
from outbox.matching import joined
from outbox.outcome import (
    Accepted,
    Ambiguous,
    Answer,
    InFlight,
    Mismatch,
    NotSent,
    Outcome,
    Receipt,
    ReceiverFault,
    Refused,
    StaleFence,
    StoredFailure,
    Throttled,
)
from outbox.states import Cause
from tests.support.contracts import KEY, SENT_KEY

# The table of the design, status by status. Everything that is not here is ambiguous.
REFUSED = [400, 404, 405, 406, 410, 411, 413, 414, 415, 422, 428, 431, 501]
REDIRECTS = [status for status in range(300, 400) if status != 303]
DEFAULT: dict[int, type[Any]] = {
    202: Accepted,
    401: ReceiverFault,
    403: ReceiverFault,
    412: Refused,
    421: NotSent,
    425: NotSent,
    429: Throttled,
    **dict.fromkeys(REFUSED, Refused),
    **dict.fromkeys(REDIRECTS, Refused),
}


def seen(
    status: int,
    body: Any = b"",
    headers: dict[str, str] | None = None,
    *,
    resend: bool = False,
    truncated: bool = False,
    **contract: Any,
) -> Outcome | NeedsVerify:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return classify(
        status,
        joined(headers or {}),
        raw,
        contract=Contract.model_validate(contract),
        resend=resend,
        sent_key=SENT_KEY,
        truncated=truncated,
    )


def rule(**conditions: Any) -> dict[str, Any]:
    return {"answers": [conditions]}


@pytest.mark.parametrize("resend", [False, True])
def test_without_a_rule_the_default_table_decides(resend: bool) -> None:
    meant = {status: type(seen(status, resend=resend)) for status in range(100, 600)}
    assert meant == {status: DEFAULT.get(status, Ambiguous) for status in range(100, 600)}


def test_a_2xx_proves_nothing_unless_the_contract_says_what_it_proves() -> None:
    assert isinstance(seen(200, {"ok": True}), Ambiguous)
    assert isinstance(seen(201, {"id": "x"}), Ambiguous)


def test_a_see_other_often_means_done_so_it_is_no_refusal() -> None:
    assert isinstance(seen(303), Ambiguous)


def test_a_server_error_a_timeout_and_an_undeclared_conflict_prove_nothing() -> None:
    assert all(isinstance(seen(status), Ambiguous) for status in (408, 409, 500, 502, 503, 504))


def test_a_failed_precondition_says_so() -> None:
    outcome = seen(412)
    assert isinstance(outcome, Refused)
    assert outcome.cause is Cause.PRECONDITION_FAILED


def test_a_forbidden_operation_is_not_a_fault_of_the_whole_receiver() -> None:
    forbidden, fault = seen(403), seen(401)
    assert isinstance(forbidden, ReceiverFault)
    assert isinstance(fault, ReceiverFault)
    assert (forbidden.forbidden, fault.forbidden) == (True, False)


def test_an_answer_that_was_cut_short_proves_nothing_whatever_its_status() -> None:
    declared = rule(status=["2xx", "3xx", "4xx", "5xx"], means="receipt")
    cut = {type(seen(status, b'{"id": "x"', truncated=True, **declared)) for status in range(100, 600)}
    assert cut == {Ambiguous}


@pytest.mark.parametrize("status", [421, 425])
def test_over_a_path_that_repeats_requests_not_processed_speaks_of_one_copy_only(status: int) -> None:
    assert isinstance(seen(status, replays=True), Ambiguous)
    assert isinstance(seen(status, replays=True, **rule(status=[status], means="not_sent")), Ambiguous)


# ----------------------------------------------------------------------------------------------- the contract's rules


MEANS: list[tuple[str, type[Any]]] = [
    ("receipt", Receipt),
    ("accepted", Accepted),
    ("refused", Refused),
    ("precondition_failed", Refused),
    ("window_closed", Refused),
    ("not_sent", NotSent),
    ("throttled", Throttled),
    ("in_flight", InFlight),
    ("mismatch", Mismatch),
    ("stored_failure", StoredFailure),
    ("receiver_fault", ReceiverFault),
    ("forbidden", ReceiverFault),
    ("stale_fence", StaleFence),
    ("ambiguous", Ambiguous),
]


@pytest.mark.parametrize(("means", "kind"), MEANS)
def test_every_word_of_a_rule_has_its_outcome(means: str, kind: type[Any]) -> None:
    assert type(seen(418, **rule(status=[418], means=means))) is kind


def test_the_first_rule_that_matches_wins() -> None:
    answers = [
        {"status": [409], "body": {"/code": "in_use"}, "means": "in_flight"},
        {"status": [409], "means": "mismatch"},
    ]
    assert isinstance(seen(409, {"code": "in_use"}, answers=answers), InFlight)
    assert isinstance(seen(409, {"code": "other"}, answers=answers), Mismatch)
    assert isinstance(seen(400, {"code": "in_use"}, answers=answers), Refused)


@pytest.mark.parametrize("status", [400, 409, 422, 500])
def test_a_mismatch_is_known_by_its_code_and_never_by_its_status(status: int) -> None:
    answers = rule(body={"/error/type": "idempotency_error"}, means="mismatch")
    assert isinstance(seen(status, {"error": {"type": "idempotency_error"}}, **answers), Mismatch)


MATCHES: list[tuple[dict[str, Any], int, Any, dict[str, str], bool]] = [
    ({"status": [200, 201]}, 201, b"", {}, True),
    ({"status": [200, 201]}, 202, b"", {}, False),
    ({"status": ["2xx"]}, 299, b"", {}, True),
    ({"status": ["2xx"]}, 300, b"", {}, False),
    ({"header": {"X-State": "done"}}, 418, b"", {"x-state": "done"}, True),
    ({"header": {"X-State": "done"}}, 418, b"", {"X-State": "Done"}, False),
    ({"header": {"X-State": True}}, 418, b"", {"X-STATE": "any"}, True),
    ({"header": {"X-State": True}}, 418, b"", {}, False),
    ({"header": {"X-State": False}}, 418, b"", {}, True),
    ({"body": {"/a/0/b": "x"}}, 418, {"a": [{"b": "x"}]}, {}, True),
    ({"body": {"/a/1/b": "x"}}, 418, {"a": [{"b": "x"}]}, {}, False),
    ({"body": {"/a/-": "x"}}, 418, {"a": ["x"]}, {}, False),
    ({"body": {"/a~1b": 1}}, 418, {"a/b": 1}, {}, True),
    ({"body": {"/n": 1}}, 418, {"n": 1.0}, {}, True),
    ({"body": {"/n": 1}}, 418, {"n": True}, {}, False),
    ({"body": {"/n": True}}, 418, {"n": 1}, {}, False),
    ({"body": {"/n": "1"}}, 418, {"n": 1}, {}, False),
    ({"body": {"/n": 1}}, 418, {"n": None}, {}, False),
    ({"body": {"/n": 1}}, 418, [1], {}, False),
    ({"body": {"/n": 1}}, 418, b"<html>", {}, False),
    ({"body": {"/n": 1}}, 418, b"\xff\xfe", {}, False),
    ({"body": {"/n": 1}}, 418, b"[" * 100_000, {}, False),
    ({"body": {"/n": 1}}, 418, b'{"n": 1' + b"0" * 10_000 + b"}", {}, False),
    ({"body": {"/key": "{sent_key}"}}, 418, {"key": SENT_KEY}, {}, True),
    ({"body": {"/key": "{sent_key}"}}, 418, {"key": SENT_KEY.upper()}, {}, False),
    ({"body_suffix": {"/type": "#InProgress"}}, 418, {"type": "com.example#InProgress"}, {}, True),
    ({"body_suffix": {"/type": "#InProgress"}}, 418, {"type": ["#InProgress"]}, {}, False),
    ({"body_present": ["/id"]}, 418, {"id": ""}, {}, True),
    ({"body_present": ["/id"]}, 418, {"id": None}, {}, False),
    ({"status": [418], "body": {"/a": 1}, "header": {"X": "1"}}, 418, {"a": 1}, {"X": "1"}, True),
    ({"status": [418], "body": {"/a": 1}, "header": {"X": "1"}}, 418, {"a": 2}, {"X": "1"}, False),
]


@pytest.mark.parametrize(("conditions", "status", "body", "headers", "holds"), MATCHES)
def test_a_rule_holds_exactly_if_all_its_conditions_do(
    conditions: dict[str, Any], status: int, body: Any, headers: dict[str, str], holds: bool
) -> None:
    outcome = seen(status, body, headers, **rule(**conditions, means="stale_fence"))
    assert isinstance(outcome, StaleFence) is holds


def test_a_rule_can_speak_of_a_first_attempt_or_of_a_resend_only() -> None:
    first = rule(status=[409], attempt="first", means="refused")
    assert isinstance(seen(409, resend=False, **first), Refused)
    assert isinstance(seen(409, resend=True, **first), Ambiguous)
    later = rule(status=[409], attempt="resend", means="receipt")
    assert isinstance(seen(409, resend=False, **later), Ambiguous)
    assert isinstance(seen(409, resend=True, **later), Receipt)


def test_rules_that_nobody_verified_are_not_used() -> None:
    assert isinstance(seen(200, **rule(status=[200], means="receipt"), unverified=["answers"]), Ambiguous)


# --------------------------------------------------------------------------------------------------- what a receipt is


def test_a_receipt_keeps_canonical_json_and_the_id_that_the_contract_points_at() -> None:
    outcome = seen(201, b'{ "b": 1.0,\n "a": "x" }', **rule(status=[201], means="receipt", external_id="/a"))
    assert isinstance(outcome, Receipt)
    assert (outcome.receipt, outcome.external_id) == ('{"a":"x","b":1}', "x")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": None},
        {"id": ""},
        {"id": True},
        {"id": ["x"]},
        {"id": {"a": 1}},
        {"id": "x" * 501},
        {"id": "a\x00b"},
        b"<html>",
        b"",
    ],
)
def test_a_success_without_the_id_that_it_should_carry_is_no_receipt(body: Any) -> None:
    outcome = seen(200, body, **rule(status=[200], means="receipt", external_id="/id"))
    assert isinstance(outcome, Ambiguous)
    assert "/id" in outcome.reason


@pytest.mark.parametrize(("value", "kept"), [("re_1", "re_1"), (17, "17"), (2**80, str(2**80))])
def test_an_id_is_a_text_or_an_integer(value: Any, kept: str) -> None:
    outcome = seen(200, {"id": value}, **rule(status=[200], means="receipt", external_id="/id"))
    assert isinstance(outcome, Receipt)
    assert outcome.external_id == kept


@pytest.mark.parametrize("body", [b"plain text", b"\xff\x00\xfe", b'{"a": NaN}', b'{"a": "\\ud800"}', b"x" * 10_000])
def test_whatever_the_body_is_a_declared_receipt_is_kept(body: bytes) -> None:
    outcome = seen(200, body, **rule(status=[200], means="receipt"))
    assert isinstance(outcome, Receipt)
    assert "\x00" not in outcome.receipt
    assert len(outcome.receipt.encode()) <= 4_096


def test_a_success_that_must_be_read_first_is_no_receipt_yet() -> None:
    answers = rule(
        status=[409],
        body={"/error/errors/0/reason": "idempotent_creation_conflict"},
        means="receipt",
        external_id="/error/errors/0/links/conflicting_resource_id",
        verify={"path": "/payments/{external_id}"},
    )
    body = {
        "error": {"errors": [{"reason": "idempotent_creation_conflict", "links": {"conflicting_resource_id": "PM1"}}]}
    }
    needs = seen(409, body, resend=True, **answers)
    assert isinstance(needs, NeedsVerify)
    assert (needs.external_id, needs.verify.path) == ("PM1", "/payments/{external_id}")
    found = verified(needs, 200, b"{}")
    assert isinstance(found, Receipt)
    assert found.external_id == "PM1"
    for status, read, cut in [(404, b"{}", False), (500, b"{}", False), (200, b"", False), (200, b"{}", True)]:
        assert isinstance(verified(needs, status, read, truncated=cut), Ambiguous)


# ------------------------------------------------------------------------------------------------ replays and markers

MARKED: dict[str, Any] = {"replay_marker": {"header": "Idempotent-Replayed", "is": "true"}}


def test_a_replayed_server_error_is_no_new_evidence() -> None:
    assert isinstance(seen(500, headers={"Idempotent-Replayed": "true"}, resend=True, **MARKED), StoredFailure)
    assert isinstance(seen(500, resend=True, **MARKED), Ambiguous)
    assert isinstance(seen(500, headers={"Idempotent-Replayed": "false"}, resend=True, **MARKED), Ambiguous)


def test_a_replayed_refusal_is_known_as_one() -> None:
    replayed, fresh = seen(422, headers={"idempotent-replayed": "true"}, **MARKED), seen(422, **MARKED)
    assert isinstance(replayed, Refused)
    assert isinstance(fresh, Refused)
    assert (replayed.replayed, fresh.replayed) == (True, False)


def test_a_refused_fence_is_a_lost_lease_before_it_is_anything_else() -> None:
    outcome = seen(
        409,
        {"code": "stale_fence"},
        fencing={"stale": {"status": [409], "body": {"/code": "stale_fence"}}},
        **rule(status=[409], means="in_flight"),
    )
    assert isinstance(outcome, StaleFence)


# --------------------------------------------------------------------------------------------------- what is kept of it


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("9" * 11, None),
        ("١", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_not_at_all(value: str, seconds: float | None) -> None:
    outcome = seen(429, headers={"Retry-After": value})
    assert isinstance(outcome, Throttled)
    assert outcome.retry_after_seconds == seconds


def test_the_request_id_is_taken_from_the_header_that_the_contract_names() -> None:
    headers = {"X-Provider-Trace": "t-1", "Request-Id": "r-1"}
    named, usual = seen(500, headers=headers, request_id_header="x-provider-trace"), seen(500, headers=headers)
    assert named.answer.request_id == "t-1"
    assert usual.answer.request_id == "r-1"


def test_of_an_answer_status_and_a_bounded_excerpt_are_kept() -> None:
    outcome = seen(500, b"\x00" + b"x" * 5_000)
    assert outcome.answer == Answer(500, "\ufffd" + "x" * 2_045)


def test_the_key_itself_does_not_matter_for_what_an_answer_means() -> None:
    assert type(seen(422, key=KEY, key_retention="24h")) is type(seen(422))
