"""Answers and looks of any kind: everything has a meaning, nothing is raised, and what is kept can be stored."""

import json
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from outbox.classify import NeedsVerify, classify
from outbox.contract import Contract
from outbox.evidence import Verdict
from outbox.judge import judge_read, next_cursor
from outbox.matching import Seen, joined
from outbox.outcome import Ambiguous, Outcome, Receipt
from tests.support.contracts import KEY, SENT_KEY, STRONG, wiring

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(SENT_KEY),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["data", "id", "key", "state", "next"]), inner)
    ),
    max_leaves=12,
)
BODIES = st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode())
HEADERS = st.dictionaries(
    st.sampled_from(["Retry-After", "retry-after", "Idempotent-Replayed", "Request-Id"]), st.text(max_size=20)
)
STATUSES = st.integers(100, 599)
MEANINGS = st.sampled_from(["receipt", "accepted", "refused", "throttled", "in_flight", "mismatch", "not_sent"])


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    rules: list[dict[str, Any]] = [
        {
            "status": draw(st.lists(STATUSES | st.sampled_from(["2xx", "4xx", "5xx"]), min_size=1, max_size=3)),
            "attempt": draw(st.sampled_from(["first", "resend", "any"])),
            "means": means,
            **({"external_id": "/id"} if means in {"receipt", "accepted"} and draw(st.booleans()) else {}),
        }
        for means in draw(st.lists(MEANINGS, max_size=3))
    ]
    return Contract.model_validate(
        {
            "key": KEY,
            "answers": rules,
            "replays": draw(st.booleans()),
            "key_checked_first": draw(st.booleans()),
            "replay_marker": {"header": "Idempotent-Replayed"},
        }
    )


@given(
    status=STATUSES,
    headers=HEADERS,
    body=BODIES,
    contract=contracts(),
    resend=st.booleans(),
    truncated=st.booleans(),
)
@settings(max_examples=300)
def test_every_answer_has_a_meaning_and_a_receipt_only_where_the_contract_says_so(
    *, status: int, headers: dict[str, str], body: bytes, contract: Contract, resend: bool, truncated: bool
) -> None:
    outcome = classify(
        status, joined(headers), body, contract=contract, resend=resend, sent_key=SENT_KEY, truncated=truncated
    )
    assert isinstance(outcome, (*get_args(Outcome), NeedsVerify))
    assert outcome.answer.status == status
    if truncated:
        assert isinstance(outcome, Ambiguous)
    if isinstance(outcome, Receipt):
        assert any(rule.means == "receipt" for rule in contract.answers)
        assert "\x00" not in outcome.receipt
        outcome.receipt.encode()
    outcome.answer.excerpt.encode()


READS: list[dict[str, Any]] = [
    {"path": "/o/{sent_key}", "identity": "/key", "external_id": "/id"},
    {
        "path": "/o/{sent_key}",
        "identity": "/key",
        "state": "/state",
        "confirmed": ["a"],
        "ended": ["b"],
        "partial": ["c"],
    },
    {"path": "/o", "items": "/data", "identity": "/key", "external_id": "/id"},
    {"path": "/o", "items": "/data", "identity": "/key", "next": "/next", "cursor": "after"},
]


@given(
    st.sampled_from(READS), st.lists(st.tuples(STATUSES | st.just(200), BODIES, st.booleans()), min_size=1, max_size=3)
)
@settings(max_examples=300)
def test_every_look_has_a_verdict_and_nothing_without_our_key_confirms(
    read: dict[str, Any], answers: list[tuple[int, bytes, bool]]
) -> None:
    made = wiring({"key": KEY, "lookup": {**STRONG, "not_found": {"status": [404]}}}, read=read)
    pages = [Seen(status, {}, body, truncated) for status, body, truncated in answers]
    shown = judge_read(pages, wiring=made, sent_key=SENT_KEY)
    if shown.verdict in {Verdict.CONFIRMED, Verdict.ENDED, Verdict.PARTIAL}:
        assert any(SENT_KEY.encode() in body and status == 200 for status, body, _ in answers)
    if shown.verdict is Verdict.NOT_FOUND:
        assert not answers[-1][2]
        assert answers[-1][0] in {200, 404}
    assert made.read is not None
    for page in pages:
        cursor = next_cursor(page, made.read)
        assert cursor is None or cursor
