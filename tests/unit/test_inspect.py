"""What is said about operations: every word of the closed vocabularies has a meaning, and risks are named rightly."""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox.contract import ReceiverConfig, ToolConfig, Wiring
from outbox.decide import FOREVER, NoResend, Reason
from outbox.evidence import Evidence, Kind, Verdict
from outbox.inspect import Dossier, explain, may_it_happen_twice, next_of
from outbox.inspect.dossier import Daemons
from outbox.inspect.unsent import WITHOUT_EFFECT, remedy
from outbox.inspect.words import CAUSES, CLAUSES, NO_RESEND, REASONS, REMEDIES, clock, span, when
from outbox.states import Cause, State

NOW = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
KEY = {"in": "header", "name": "Idempotency-Key"}
LOOKUP = {"by": "reference", "consistency": "strong", "absence_is_proof": True, "not_found": {"status": [404]}}
READ = {"path": "/operations/{sent_key}", "identity": "/key"}


def wiring(**contract: Any) -> Wiring:
    tool: dict[str, Any] = {"receiver": "r", "deadline": "5s", "request": {"path": "/x"}, "contract": contract}
    if isinstance(contract.get("lookup"), Mapping):
        tool["read"] = READ
    receiver = ReceiverConfig(transport="http", base_url="http://127.0.0.1:1")
    return Wiring.of("t", ToolConfig.model_validate(tool), receiver)


BEGUN = NOW - timedelta(minutes=1)
ROW: Mapping[str, Any] = {
    **dict.fromkeys(
        ("resource", "arguments", "permission_until", "external_id", "decided_by", "reason", "lane_renewed_at")
    ),
    **dict.fromkeys(("holder_host", "doubt_at", "settle_at", "last_read_at", "cause", "sent_key")),
    **dict.fromkeys(("accepted", "mismatch", "no_resend", "needs_person", "lane_held", "being_looked_at"), False),
    **dict.fromkeys(("created_at", "begun_at", "first_sent_at", "last_exposed_at", "unresolved_at"), BEGUN),
    "seq": 1,
    "operation_id": "op",
    "tenant_id": "t",
    "tool": "t",
    "principal_id": "p",
    "written_by": "writer",
    "ended_at": NOW,
    "now": NOW,
    "digest": b"\0",
    "attempt": 1,
    "fence": 7,
    "policy_version": 1,
    "policy_holds": True,
    "gave_up_at": BEGUN + timedelta(seconds=5),
    "throttled": 0,
    "not_sent": 0,
    "reads": 3,
    "pending_at": NOW,
    "pending_step": "none",
    "receiver": "r",
    "lane": 0,
    "lane_fence": 7,
    "since": BEGUN + timedelta(seconds=5),
    "base_url": "https://api.example.com",
    "auth": {"kind": "bearer", "secret": "file:/run/secrets/{tenant}/key", "id": "main"},
    "answered": None,
}


def dossier(state: State, wired: Wiring, **columns: Any) -> Dossier:
    """An operation whose only attempt began a minute ago."""
    forever = math.isinf(wired.retention_seconds)
    row = {
        **ROW,
        "state": state.value,
        "resend_until": None if forever else BEGUN + timedelta(seconds=wired.retention_seconds),
        "key_forever": forever,
        **columns,
    }
    return Dossier(
        row=row,
        attempts=(),
        evidence=(),
        approvals=(),
        obstacles=(),
        contradictions=(),
        ahead=0,
        behind=0,
        relays=Daemons(),
        reconcilers=Daemons(),
        wiring=wired,
        version=1,
        in_force=wired,
    )


@pytest.mark.parametrize(
    ("vocabulary", "words"),
    [(Cause, CAUSES), (NoResend, NO_RESEND), (Reason, REASONS)],
    ids=["cause", "resend", "reason"],
)
def test_every_word_has_a_meaning(vocabulary: Any, words: Mapping[Any, str]) -> None:
    assert set(vocabulary) == set(words)
    assert all(text and text[0].islower() and not text.endswith(".") for text in words.values())


def test_every_reason_names_clauses_that_a_contract_has() -> None:
    assert set(CLAUSES) == {*NoResend, *Reason}
    known = set(type(wiring().contract).model_fields)
    assert {name for names in CLAUSES.values() for name in names} <= known


# The guarantee, its contract, and whether an operation in doubt may be sent again, and could then happen twice.
CLASSES = [
    ("deduplicated", {"key": KEY, "key_retention": "24h"}, True, "not while the conditions hold"),
    ("deduplicated", {"key": KEY, "key_retention": "forever"}, True, "not while the conditions hold"),
    ("repeatable", {"repeat_safe": True}, True, "yes, harmlessly"),
    ("guarded", {"precondition": {"header": "If-Match"}, "repeat_safe": True}, True, "not while the conditions hold"),
    ("guarded", {"precondition": {"header": "If-Match"}}, False, "yes"),
    ("verified", {"lookup": LOOKUP, "in_flight_bound": "30s"}, False, "yes"),
    ("a person decides", {}, False, "yes"),
]


@pytest.mark.parametrize(("name", "contract", "allowed", "answer"), CLASSES)
def test_whether_a_retry_in_doubt_could_happen_twice_follows_from_the_contract(
    name: str, contract: dict[str, Any], allowed: bool, answer: str
) -> None:
    twice = may_it_happen_twice(dossier(State.UNKNOWN, wiring(**contract)))
    assert (twice.guarantee, twice.allowed, twice.answer) == (name, allowed, answer)
    assert (twice.refusal is None) is allowed
    assert bool(twice.conditions) is (answer in {"not while the conditions hold", "yes, harmlessly"})


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"accepted": True}, "has the work"),
        ({"no_resend": True}, "prove nothing"),
        ({"policy_holds": False}, "permission"),
        ({"permission_until": NOW - timedelta(seconds=1)}, "permission"),
    ],
)
def test_a_retry_inside_the_window_is_refused_where_it_teaches_nothing_or_is_not_permitted(
    columns: dict[str, Any], words: str
) -> None:
    twice = may_it_happen_twice(dossier(State.UNKNOWN, wiring(key=KEY, key_retention="24h"), **columns))
    assert words in (twice.refusal or "")


def test_a_person_may_send_again_after_the_back_off_is_spent_as_long_as_the_window_is_open() -> None:
    spent = wiring(key=KEY, key_retention="24h", retry={"attempts": 1})
    assert may_it_happen_twice(dossier(State.UNKNOWN, spent)).allowed


@pytest.mark.parametrize(
    ("state", "columns", "answer"),
    [
        (State.AUTHORIZED, {"attempt": 0}, "no"),
        (State.AUTHORIZED, {"cause": "throttled"}, "no"),
        (State.AUTHORIZED, {"cause": "proven_absent"}, "not while the conditions hold"),
        (State.AUTHORIZED, {"cause": "contradiction"}, "yes"),
        (State.PROPOSED, {}, "no"),
        (State.EXECUTING, {}, "no"),
        (State.SUCCEEDED, {}, "no"),
        (State.REJECTED, {}, "no"),
    ],
)
def test_what_hides_no_effect_cannot_happen_twice(state: State, columns: dict[str, Any], answer: str) -> None:
    assert may_it_happen_twice(dossier(state, wiring(lookup=LOOKUP, in_flight_bound="30s"), **columns)).answer == answer


def test_proof_that_is_there_already_is_written_next() -> None:
    sent = NOW - timedelta(seconds=1)
    proof = Evidence(
        id=1,
        kind=Kind.LOOKUP,
        verdict=Verdict.CONFIRMED,
        attempt=1,
        sent_at=sent,
        observed_at=sent,
        source="reconciler",
    )
    in_doubt = replace(dossier(State.UNKNOWN, wiring(lookup=LOOKUP, in_flight_bound="30s")), evidence=[proof])
    step = next_of(in_doubt)
    assert step is not None
    assert step.step == "settle"
    assert "has succeeded" in step.reason


def test_of_every_cause_that_keeps_an_attempt_from_leaving_is_said_what_to_do_and_with_which_command() -> None:
    assert set(REMEDIES) == WITHOUT_EFFECT
    for cause in WITHOUT_EFFECT:
        said = remedy(cause, {**ROW, "cause": cause.value})
        assert "outbox " in said
        assert "{" not in said


def test_a_refused_credential_is_named_with_the_status_and_the_command_and_never_told() -> None:
    row = {"cause": "receiver_fault", "answered": 401, "pending_at": NOW + timedelta(60)}
    waiting = dossier(State.AUTHORIZED, wiring(), **row)
    said = " ".join(line for section in (explain(waiting).known, explain(waiting).next) for line in section)
    assert "(status 401, our credential is file:/run/secrets/t/key (receivers.r.auth))" in said
    assert "outbox retry --receiver r --cause receiver_fault" in said
    assert "did not leave" not in said


def test_every_secret_of_a_credential_is_named() -> None:
    auth = {"secret": "env:KEY", "secret_headers": {"X-App-Key": "file:/run/{tenant}/app"}}
    waiting = dossier(State.AUTHORIZED, wiring(), cause="secret_missing", auth=auth, not_sent=3, pending_at=NOW)
    assert "a credential is missing there, env:KEY and file:/run/t/app (receivers.r.auth)" in " ".join(
        explain(waiting).known
    )


def test_a_missing_secret_is_named_as_the_one_of_the_tenant_and_never_told() -> None:
    waiting = dossier(State.AUTHORIZED, wiring(), cause="secret_missing", not_sent=3, pending_at=NOW + timedelta(60))
    said = " ".join(line for section in (explain(waiting).known, explain(waiting).next) for line in section)
    assert "file:/run/secrets/t/key (receivers.r.auth)" in said
    assert "outbox retry --receiver r --cause secret_missing" in said


def test_a_resend_that_did_not_leave_is_not_taken_for_the_reason_of_the_doubt() -> None:
    lost = {"attempt": 1, "cause": "timeout", "started_at": BEGUN, "ended_at": NOW, "peer": None, "status": None}
    lost["request_id"] = None
    in_doubt = dossier(State.UNKNOWN, wiring(key=KEY, key_retention="24h"), cause="tls_failed", not_sent=1)
    said = explain(replace(in_doubt, attempts=[lost]))
    assert any(
        line.startswith("It is unknown since") and line.endswith("no answer came in time.") for line in said.known
    )
    assert any("did not leave" in line and "https://api.example.com" in line for line in said.known)


def test_it_is_unknown_since_its_doubt_began_and_not_since_its_attempt() -> None:
    said = explain(dossier(State.UNKNOWN, wiring()))
    assert any(clock(ROW["since"]) in line for line in said.known)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("contract", [contract for _, contract, _, _ in CLASSES])
def test_every_state_under_every_contract_has_an_explanation(state: State, contract: dict[str, Any]) -> None:
    said = explain(dossier(state, wiring(**contract)))
    assert said.known
    assert said.next
    assert said.contract
    assert all(line.endswith(".") for section in (said.known, said.not_known, said.next, said.lane) for line in section)


def test_an_operation_whose_tool_is_gone_is_explained_all_the_same() -> None:
    lost = replace(dossier(State.UNKNOWN, wiring()), wiring=None, in_force=None, version=None)
    assert "no longer registered" in explain(lost).contract[0]
    assert next_of(lost) is not None
    assert not may_it_happen_twice(lost).allowed


def test_dates_are_said_in_utc_with_how_far_away_they_are() -> None:
    assert clock(NOW) == "2026-11-30 08:00:00Z"
    assert when(NOW + timedelta(minutes=5), NOW) == "2026-11-30 08:05:00Z (in 5 min)"
    assert when(NOW - timedelta(seconds=3), NOW) == "2026-11-30 07:59:57Z (3 s ago)"
    assert when(FOREVER, NOW) == clock(FOREVER) == "for ever"
    assert [span(seconds) for seconds in (0, 119, 120, 7_200, 172_800, math.inf)] == [
        "0 s",
        "119 s",
        "2 min",
        "2 h",
        "2 d",
        "for ever",
    ]


def test_where_a_look_leaves_a_tombstone_no_bound_is_asked_for() -> None:
    fencing = {"in": "column", "raised_by_lookup": True}
    said = explain(dossier(State.UNKNOWN, wiring(key={"in": "column"}, lookup=LOOKUP, fencing=fencing)))
    told = " ".join(said.contract)
    assert 'Decided by fencing = { in = "column", raised_by_lookup = true }' in told
    assert "in_flight_bound" not in told
