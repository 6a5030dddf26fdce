"""What evidence, people and clocks may do to an operation: every rule of the design that is kept by the database."""

from typing import Any, LiteralString

import psycopg
import pytest

from tests.support.postgres import Role
from tests.support.stage import BLIND, KEYED, LOOKED_UP, RELAY, REPEATABLE, Clock, Holder, Row, Stage

APPROVED = KEYED | {"requires_approval": True}
PROOF = [("receipt", None), ("lookup", "confirmed"), ("callback", "confirmed"), ("statement", "confirmed")]


@pytest.fixture
def holder(stage: Stage) -> Holder:
    """Somebody who holds the one lane of the keyed tool's receiver."""
    stage.register()
    stage.register("looked.up", **LOOKED_UP)
    stage.register("blind", **BLIND)
    stage.register("repeatable", **REPEATABLE)
    stage.register("approved", **APPROVED)
    return stage.holder().taken(3600)


def act(stage: Stage, statement: LiteralString, *parameters: Any, role: Role = "operator") -> Any:
    """Do what a person does; returns the one value that it answers."""
    (row,) = stage.as_role(role).execute(statement, parameters).fetchall()
    (answer,) = row.values()
    return answer


def refused(stage: Stage, statement: LiteralString, *parameters: Any, role: Role = "operator") -> str:
    """Do what is refused, and see that it changes nothing; returns what is said."""
    before = stage.everything()
    with pytest.raises(psycopg.Error) as refusal:
        act(stage, statement, *parameters, role=role)
    assert refusal.value.sqlstate == "OB409", refusal.value
    assert stage.everything() == before
    return str(refusal.value)


RESOLVE: LiteralString = "select outbox.resolve('acme', %s, %s, %s, null, 'eve', 'seen in their console')"
RETRY: LiteralString = "select outbox.retry('acme', %s, 'eve')"
CANCEL: LiteralString = "select outbox.cancel('acme', %s, 'eve')"
REVOKE: LiteralString = "select outbox.revoke('acme', %s, 'eve', 'wrong amount')"
EXPEDITE: LiteralString = "select outbox.expedite('acme', %s, 'eve', 'urgent')"


def approve(stage: Stage, operation_id: str, by: str = "eve", **changes: Any) -> Any:
    digest = stage.value("select digest from outbox.intent where operation_id = %s", operation_id)
    facts = {"digest": digest, "expires_at": None} | changes
    statement: LiteralString = "select outbox.approve('acme', %s, %s, %s, %s, 'fine')"
    return act(stage, statement, operation_id, facts["digest"], by, facts["expires_at"], role="approver")


# --------------------------------------------------------------------------------------- proof is never passed over


@pytest.mark.parametrize(("kind", "verdict"), PROOF)
def test_proof_of_the_effect_forbids_every_end_but_success(
    stage: Stage, holder: Holder, kind: str, verdict: str | None
) -> None:
    seq = stage.unknown("op", holder, tool="looked.up")
    stage.witness(seq, kind, verdict=verdict, attempt=1)
    before = stage.everything()
    for to in ("rejected", "authorized"):
        assert stage.settle(seq, 1, to) == "receipt"
    assert stage.everything() == before
    assert stage.settle(seq, 1, "succeeded") == "applied"
    assert stage.state(seq) == "succeeded"


@pytest.mark.parametrize(("kind", "verdict"), PROOF)
@pytest.mark.parametrize("tool", ["stock.set", "approved"])
def test_proof_for_an_operation_that_claims_to_hide_nothing_makes_it_unknown_and_settles_it(
    stage: Stage, holder: Holder, tool: str, kind: str, verdict: str | None
) -> None:
    """A failover lost the attempt: the row says authorized (or proposed), and the receipt comes in late."""
    seq = stage.put("op", tool)
    stage.witness(seq, kind, verdict=verdict, attempt=1, fence=77)
    row = stage.pending(seq)
    assert (row["state"], row["cause"], row["attempt"]) == ("unknown", "contradiction", 1)
    assert (stage.doubt(seq)["step"], stage.doubt(seq)["no_resend"]) == ("look", True)
    assert holder.begin() == []
    assert stage.settle(seq, 1, "succeeded") == "applied"
    assert stage.outcome(seq)["from_state"] == "unknown"


@pytest.mark.parametrize("statement", [CANCEL, RETRY, EXPEDITE], ids=["cancel", "retry", "expedite"])
def test_nobody_sends_or_ends_what_a_receipt_proves(stage: Stage, holder: Holder, statement: LiteralString) -> None:
    seq = stage.put("op")
    stage.witness(seq, "receipt", attempt=1)
    refused(stage, statement, "op")
    assert act(stage, REVOKE, "op") == "unknown"
    assert stage.settle(seq, 1, "succeeded") == "applied"


def test_a_receipt_outlives_the_permission_that_produced_it(stage: Stage, holder: Holder) -> None:
    clock = Clock(stage.database)
    seq = stage.put("op", expires_at=stage.value("select outbox.now() + interval '10 seconds'"))
    stage.witness(seq, "receipt", attempt=1)
    clock.advance(60)
    assert holder.run("expire", limit=10) == [{"ended": 0}]
    assert stage.settle(seq, 1, "succeeded") == "applied"


def test_proof_that_comes_in_while_a_later_attempt_runs_stops_its_withdrawal_and_its_refusal(
    stage: Stage, holder: Holder
) -> None:
    """Attempt 1 was believed absent; its receipt comes in while attempt 2 runs, which is refused or throttled."""
    seq = stage.unknown("op", holder, tool="looked.up")
    assert stage.settle(seq, 1, "authorized") == "applied"
    assert holder.begin()
    stage.witness(seq, "receipt", attempt=1)
    before = stage.everything()
    assert holder.withdraw(seq, 2, not_sents=False, throttleds=True) == []
    assert holder.end((seq, 2), state="rejected") == []
    assert stage.everything() == before
    assert holder.record_unknown(seq, 2, steps="resend", delays=0.0) == [seq]
    assert holder.begin() == []
    assert stage.settle(seq, 2, "rejected") == "receipt"
    assert stage.settle(seq, 2, "succeeded") == "applied"


def test_an_attempt_may_succeed_although_proof_of_an_earlier_one_came_in(stage: Stage, holder: Holder) -> None:
    seq = stage.unknown("op", holder, tool="looked.up")
    assert stage.settle(seq, 1, "authorized") == "applied"
    assert holder.begin()
    stage.witness(seq, "receipt", attempt=1)
    assert holder.end((seq, 2)) == [seq]


def test_proof_calls_a_planned_resend_off(stage: Stage, holder: Holder) -> None:
    seq = stage.unknown("op", holder)
    assert act(stage, RETRY, "op") == "unknown"
    stage.witness(seq, "receipt", attempt=1)
    assert holder.begin() == []
    refused(stage, RETRY, "op")
    answer: LiteralString = "select outbox.allow_resend(%s, 1, outbox.now(), outbox.now())"
    assert act(stage, answer, seq, role="reconciler") == "moved"
    assert stage.doubt(seq)["next_at"] <= stage.value("select outbox.now()")


def test_proof_survives_the_loss_of_the_lease_under_which_it_came_in(stage: Stage, holder: Holder) -> None:
    seq = stage.unknown("op", holder, tool="looked.up")
    assert stage.settle(seq, 1, "authorized") == "applied"
    assert holder.begin()
    stage.witness(seq, "receipt", attempt=1)
    holder.give_back()
    assert stage.holder().take() == 1
    assert stage.state(seq) == "unknown"
    assert stage.settle(seq, 2, "rejected") == "receipt"


@pytest.mark.parametrize("kind", ["late_answer", "not_sent", "lookup"])
def test_evidence_that_proves_no_effect_changes_no_state(stage: Stage, holder: Holder, kind: str) -> None:
    authorized, unknown = stage.put("op"), stage.unknown("doubtful", holder)
    before = [stage.pending(seq) for seq in (authorized, unknown)]
    for seq in (authorized, unknown):
        stage.witness(seq, kind, verdict="not_found" if kind == "lookup" else None, attempt=1)
    assert [stage.pending(seq) for seq in (authorized, unknown)] == before


def test_evidence_for_an_ended_operation_changes_nothing_and_contradictions_raise(stage: Stage, holder: Holder) -> None:
    seqs = {name: stage.put(name) for name in ("rejected", "succeeded", "same", "doubled", "fine")}
    assert len(holder.begin() or []) == 5
    holder.end((seqs["rejected"], 1), state="rejected")
    holder.end(*[(seq, 1) for name, seq in seqs.items() if name != "rejected"])
    ends = stage.rows("select * from outbox.outcome")
    for name in ("same", "succeeded"):
        with stage.admin.transaction():
            stage.rows("select set_config('outbox.act', 'redact', true)")
            stage.rows("update outbox.outcome set external_id = 'x-1' where seq = %s", seqs[name])
    stage.witness(seqs["rejected"], "receipt", external_id="x-1")
    stage.witness(seqs["succeeded"], "lookup", verdict="confirmed", external_id="x-2")
    stage.witness(seqs["same"], "lookup", verdict="confirmed", external_id="x-1")
    stage.witness(seqs["doubled"], "lookup", verdict="confirmed", duplicates=1)
    stage.witness(seqs["fine"], "late_answer")
    raised = {row["seq"]: row["what"] for row in stage.rows("select seq, what from outbox.contradiction")}
    assert raised.keys() == {seqs["rejected"], seqs["succeeded"], seqs["doubled"]}
    assert "after the operation was rejected" in raised[seqs["rejected"]]
    assert "another external id" in raised[seqs["succeeded"]]
    assert "more than one record" in raised[seqs["doubled"]]
    assert [row["state"] for row in stage.rows("select * from outbox.outcome")] == [row["state"] for row in ends]


# ------------------------------------------------------------------------------------- what settles, and what is judged


@pytest.mark.parametrize("to", ["proposed", "executing", "unknown"])
def test_settling_leads_only_out_of_the_doubt(stage: Stage, holder: Holder, to: str) -> None:
    seq = stage.unknown("op", holder)
    statement: LiteralString = "select outbox.settle(%s, 1, %s, 'person', 'r', null, null, null)"
    refused(stage, statement, seq, to, role="reconciler")


@pytest.mark.parametrize("to", ["succeeded", "rejected", "authorized"])
@pytest.mark.parametrize("state", ["proposed", "authorized", "executing", "ended"])
def test_only_the_unknown_is_settled(stage: Stage, holder: Holder, state: str, to: str) -> None:
    seq = stage.put("op", "approved" if state == "proposed" else "stock.set")
    if state in {"executing", "ended"}:
        assert holder.begin()
    if state == "ended":
        assert holder.end((seq, 1))
    before = stage.everything()
    for attempt in (0, 1):
        assert stage.settle(seq, attempt, to) == "moved"
    assert stage.everything() == before


def test_a_proven_absence_withdraws_every_exposure_and_keeps_the_age_of_the_key(stage: Stage, holder: Holder) -> None:
    seq = stage.unknown("op", holder)
    before = stage.pending(seq)
    assert stage.settle(seq, 1, "authorized") == "applied"
    row = stage.pending(seq)
    assert row["unresolved_at"] is None
    assert (row["first_sent_at"], row["resend_until"]) == (before["first_sent_at"], before["resend_until"])
    assert stage.one("doubt", seq) is None
    assert [row["attempt"] for row in holder.begin() or []] == [2]
    assert stage.pending(seq)["first_sent_at"] == before["first_sent_at"]


def test_where_only_an_execution_stores_a_key_a_proven_absence_anchors_the_window_anew(stage: Stage) -> None:
    stage.register(**KEYED | {"stores_key_on_execution": True})
    holder = stage.holder().taken()
    seq = stage.unknown("op", holder)
    first = stage.pending(seq)["first_sent_at"]
    assert stage.settle(seq, 1, "authorized") == "applied"
    assert holder.begin()
    assert stage.pending(seq)["first_sent_at"] > first


def test_what_stood_before_an_attempt_is_restored_when_it_is_withdrawn(stage: Stage, holder: Holder) -> None:
    seq = stage.put("op")
    (begun,) = holder.begin() or []
    assert begun["first_exposure"]
    assert holder.withdraw(seq, 1, firsts=True, delays=0.0) == [seq]
    row = stage.pending(seq)
    assert (row["state"], row["first_sent_at"], row["resend_until"], row["contract_id"]) == (
        "authorized",
        None,
        None,
        None,
    )
    assert row["not_sent"] == 1
    assert holder.begin()
    assert holder.record_unknown(seq, 2, steps="resend", delays=0.0) == [seq]
    doubtful = stage.pending(seq)
    (again,) = holder.begin() or []
    assert (again["attempt"], again["in_doubt"], again["first_exposure"]) == (3, True, False)
    assert holder.withdraw(seq, 3, firsts=True, delays=0.0) == [seq]
    row = stage.pending(seq)
    for fact in ("state", "first_sent_at", "resend_until", "unresolved_at", "contract_id", "sent_key"):
        assert row[fact] == doubtful[fact], fact


@pytest.mark.parametrize("not_sent", [True, False])
def test_a_throttle_keeps_the_age_of_a_key_and_only_a_first_attempt_that_never_left_clears_it(
    stage: Stage, holder: Holder, not_sent: bool
) -> None:
    seq = stage.put("op")
    assert holder.begin()
    first = stage.pending(seq)["first_sent_at"]
    assert holder.withdraw(seq, 1, firsts=True, not_sents=not_sent, throttleds=not not_sent) == [seq]
    assert stage.pending(seq)["first_sent_at"] == (None if not_sent else first)


def test_a_refusal_of_a_resend_never_rejects_what_an_earlier_attempt_may_have_done(
    stage: Stage, holder: Holder
) -> None:
    seq = stage.unknown("op", holder)
    assert act(stage, RETRY, "op") == "unknown"
    assert [row["attempt"] for row in holder.begin() or []] == [2]
    before = stage.everything()
    assert holder.end((seq, 2), state="rejected") == []
    assert stage.everything() == before
    assert holder.withdraw(seq, 2) == [seq]
    assert stage.state(seq) == "unknown"


# ------------------------------------------------------------------------------------------------- what a person may do


def test_no_effect_counts_from_settle_time_on(stage: Stage, holder: Holder) -> None:
    clock = Clock(stage.database)
    seq = stage.unknown("op", holder, tool="looked.up")  # settles after 40 s
    clock.advance(38)
    for to in ("rejected", "authorized"):
        assert "may still land until" in refused(stage, RESOLVE, "op", 1, to)
    clock.advance(3)
    assert act(stage, RESOLVE, "op", 1, "rejected") == "applied"
    end = stage.outcome(seq)
    assert (end["state"], end["cause"], end["decided_by"]) == ("rejected", "person", "eve")
    statement = stage.one("evidence", seq)
    assert statement
    assert (statement["kind"], statement["verdict"], statement["stated_by"]) == ("statement", "not_found", "eve")
    assert "no bound" not in statement["note"]


def test_without_a_stated_bound_no_effect_waits_for_the_tools_patience_and_says_that_nothing_backs_it(
    stage: Stage, holder: Holder
) -> None:
    clock = Clock(stage.database)
    seq = stage.unknown("op", holder, tool="blind")
    clock.advance(3590)
    assert "no bound is stated" in refused(stage, RESOLVE, "op", 1, "rejected")
    clock.advance(11)
    assert act(stage, RESOLVE, "op", 1, "authorized") == "applied"
    assert stage.state(seq) == "authorized"
    statement = stage.one("evidence", seq)
    assert statement
    assert statement["note"].endswith("[no bound backs this]")


def test_success_may_be_stated_at_once(stage: Stage, holder: Holder) -> None:
    seq = stage.unknown("op", holder, tool="blind")
    assert act(stage, RESOLVE, "op", 1, "succeeded") == "applied"
    assert stage.state(seq) == "succeeded"


def test_a_later_exposure_moves_settle_time_later_and_never_earlier(stage: Stage, holder: Holder) -> None:
    clock = Clock(stage.database)
    seq = stage.unknown("op", holder)
    first = stage.doubt(seq)["settle_at"]
    clock.advance(30)
    assert act(stage, RETRY, "op") == "unknown"
    assert holder.begin()
    stage.rows("update outbox.tool set settle = interval '1 second' where name = 'stock.set'")
    assert holder.record_unknown(seq, 2) == [seq]
    assert stage.doubt(seq)["settle_at"] == first
    stage.rows("update outbox.tool set settle = null where name = 'stock.set'")
    assert act(stage, RETRY, "op") == "unknown"
    assert holder.begin()
    assert holder.record_unknown(seq, 3) == [seq]
    assert stage.doubt(seq)["settle_at"] is None


def test_a_person_judges_the_attempt_that_they_looked_at(stage: Stage, holder: Holder) -> None:
    clock = Clock(stage.database)
    seq = stage.unknown("op", holder)
    assert act(stage, RETRY, "op") == "unknown"
    assert holder.begin()
    assert holder.record_unknown(seq, 2) == [seq]
    clock.advance(3600)
    for to in ("succeeded", "rejected", "authorized"):
        assert "has moved" in refused(stage, RESOLVE, "op", 1, to)


@pytest.mark.parametrize("state", ["proposed", "authorized", "executing", "ended"])
def test_only_the_unknown_is_resolved(stage: Stage, holder: Holder, state: str) -> None:
    seq = stage.put("op", "approved" if state == "proposed" else "stock.set")
    if state in {"executing", "ended"}:
        assert holder.begin()
    if state == "ended":
        assert holder.end((seq, 1))
    Clock(stage.database).advance(10**6)
    for attempt in (0, 1):
        refused(stage, RESOLVE, "op", attempt, "rejected")


def test_a_person_does_not_deny_what_is_proven(stage: Stage, holder: Holder) -> None:
    seq = stage.unknown("op", holder, tool="looked.up")
    stage.witness(seq, "receipt", attempt=1)
    Clock(stage.database).advance(3600)
    assert "evidence shows" in refused(stage, RESOLVE, "op", 1, "rejected")


@pytest.mark.parametrize("state", ["executing", "unknown"])
def test_what_may_hide_an_effect_is_not_cancelled(stage: Stage, holder: Holder, state: str) -> None:
    seq = stage.put("op")
    assert holder.begin()
    if state == "unknown":
        assert holder.record_unknown(seq, 1)
    assert "may hide an effect" in refused(stage, CANCEL, "op")


@pytest.mark.parametrize("tool", ["stock.set", "approved"])
def test_what_hides_nothing_is_cancelled(stage: Stage, holder: Holder, tool: str) -> None:
    seq = stage.put("op", tool)
    act(stage, CANCEL, "op")
    end = stage.outcome(seq)
    assert (end["state"], end["cause"], end["decided_by"]) == ("rejected", "cancelled", "eve")
    assert stage.one("pending", seq) is None
    refused(stage, CANCEL, "op")


def test_a_revoked_permission_leaves_the_unknown_unknown_and_forbids_the_resend(stage: Stage, holder: Holder) -> None:
    seq = stage.unknown("op", holder)
    assert act(stage, RETRY, "op") == "unknown"
    assert act(stage, REVOKE, "op", role="approver") == "unknown"
    assert holder.begin() == []
    assert "permission" in refused(stage, RETRY, "op")
    assert stage.state(seq) == "unknown"
    assert stage.value("select decision from outbox.approval where seq = %s", seq) == "revoked"


def test_an_attempt_whose_permission_is_revoked_may_still_succeed(stage: Stage, holder: Holder) -> None:
    seq = stage.put("op")
    assert holder.begin()
    assert act(stage, REVOKE, "op", role="approver") == "executing"
    assert holder.end((seq, 1)) == [seq]


@pytest.mark.parametrize(("tool", "decision"), [("approved", "refused"), ("stock.set", "revoked")])
def test_a_revoked_permission_ends_what_hides_nothing(stage: Stage, holder: Holder, tool: str, decision: str) -> None:
    seq = stage.put("op", tool)
    assert act(stage, REVOKE, "op", role="approver") == "rejected"
    assert (stage.outcome(seq)["cause"], stage.outcome(seq)["decided_by"]) == ("revoked", "eve")
    assert stage.value("select decision from outbox.approval where seq = %s", seq) == decision


def test_an_approval_is_bound_to_what_was_read(stage: Stage, holder: Holder) -> None:
    seq = stage.put("op", "approved")
    assert holder.begin() == []
    wrong: list[Row] = [{"digest": b"\0" * 32}, {"by": "svc"}, {"expires_at": "2000-01-01T00:00:00Z"}]
    before = stage.everything()
    for change in wrong:
        with pytest.raises(psycopg.Error) as refusal:
            approve(stage, "op", **change)
        assert refusal.value.sqlstate == "OB409"
    assert stage.everything() == before
    number = approve(stage, "op")
    (begun,) = holder.begin() or []
    assert begun["approved_digest"] == begun["digest"]
    assert holder.end((seq, 1))
    assert stage.outcome(seq)["approval_id"] == number


def test_what_is_approved_already_is_not_approved_again(stage: Stage, holder: Holder) -> None:
    stage.put("op", "approved")
    approve(stage, "op")
    with pytest.raises(psycopg.Error, match="not proposed"):
        approve(stage, "op", by="bob")


def test_an_approval_is_valid_as_long_as_it_says_and_never_longer_than_the_intent(stage: Stage, holder: Holder) -> None:
    clock = Clock(stage.database)
    soon, later = (stage.value("select outbox.now() + %s * interval '1 second'", n) for n in (100, 200))
    short, long = stage.put("short", "approved", expires_at=later), stage.put("long", "approved", expires_at=soon)
    approve(stage, "short", expires_at=soon)
    approve(stage, "long", expires_at=later)
    clock.advance(101)
    assert holder.begin() == []
    assert holder.run("expire", limit=10) == [{"ended": 2}]
    assert {stage.outcome(seq)["cause"] for seq in (short, long)} == {"expired"}


def test_another_policy_asks_again_and_an_old_approval_does_not_shorten_the_new_one(
    stage: Stage, holder: Holder
) -> None:
    clock = Clock(stage.database)
    seq = stage.put("op", "approved")
    approve(stage, "op", expires_at=stage.value("select outbox.now() + interval '100 seconds'"))
    stage.as_role("operator").execute("update outbox.tool set policy_version = 2 where name = 'approved'")
    assert holder.begin() == []
    assert act(stage, "select outbox.redecide(10)") == 1
    row = stage.pending(seq)
    assert (row["state"], row["cause"], row["approval_id"]) == ("proposed", "policy_changed", None)
    clock.advance(101)
    assert holder.run("expire", limit=10) == [{"ended": 0}]
    approve(stage, "op")
    assert holder.begin()


def test_another_policy_never_moves_what_may_hide_an_effect(stage: Stage, holder: Holder) -> None:
    seq = stage.unknown("op", holder)
    assert act(stage, RETRY, "op") == "unknown"
    stage.as_role("operator").execute("update outbox.tool set policy_version = 2, requires_approval = true")
    assert act(stage, "select outbox.redecide(10)") == 0
    assert stage.state(seq) == "unknown"
    assert holder.begin() == []  # the permission was given under the policy of then
    assert "another policy" in refused(stage, RETRY, "op")


def test_another_policy_that_asks_nobody_leaves_a_resend_its_permission(stage: Stage, holder: Holder) -> None:
    """An approval binds the policy that it was given under. Where nobody has to approve, the policy itself permits."""
    planned, waiting = stage.unknown("planned", holder), stage.unknown("waiting", holder)
    assert act(stage, RETRY, "planned") == "unknown"
    stage.rows(
        "update outbox.doubt set step = 'person', needs_person = true, next_at = 'infinity' where seq = %s", waiting
    )
    before = {name: stage.pending(planned)[name] for name in ("cause", "unresolved_at", "resend_until", "attempt")}
    stage.as_role("operator").execute("update outbox.tool set policy_version = 2")
    assert holder.begin() == []
    assert act(stage, "select outbox.redecide(10)") == 2
    assert act(stage, "select outbox.redecide(10)") == 0
    assert {name: stage.pending(planned)[name] for name in before} == before
    assert [row["seq"] for row in holder.begin() or []] == [planned]
    assert stage.value("select next_at <= outbox.now() from outbox.doubt where seq = %s", waiting), "it is judged anew"


def test_an_approved_resend_needs_no_new_approval_once_nobody_has_to_approve(stage: Stage, holder: Holder) -> None:
    seq = stage.put("op", "approved")
    approval = approve(stage, "op")
    (attempt,) = holder.begin() or []
    assert holder.record_unknown(seq, attempt["attempt"]) == [seq]
    assert act(stage, RETRY, "op") == "unknown"
    stage.as_role("operator").execute("update outbox.tool set policy_version = 2 where name = 'approved'")
    assert act(stage, "select outbox.redecide(10)") == 0, "somebody would have to approve again"
    assert holder.begin() == []
    stage.as_role("operator").execute(
        "update outbox.tool set policy_version = 3, requires_approval = false where name = 'approved'"
    )
    assert act(stage, "select outbox.redecide(10)") == 1
    assert stage.pending(seq)["approval_id"] == approval, "who permitted the attempt that was made"
    assert [row["seq"] for row in holder.begin() or []] == [seq]


def test_a_revoked_resend_does_not_come_back_with_another_policy(stage: Stage, holder: Holder) -> None:
    stage.unknown("op", holder)
    assert act(stage, RETRY, "op") == "unknown"
    stage.as_role("operator").execute("select outbox.revoke('acme', 'op', 'ann', 'stop it')")
    stage.as_role("operator").execute("update outbox.tool set policy_version = 2")
    assert act(stage, "select outbox.redecide(10)") == 0
    assert holder.begin() == []


def test_what_waited_for_a_person_and_is_approved_again_is_due(stage: Stage, holder: Holder) -> None:
    """Its back-off is endless: without a date it would be authorized for ever and never begin."""
    seq = stage.put("op", "approved")
    approve(stage, "op")
    assert holder.begin()
    facts = {"steps": "person", "reasons": "forbidden four times", "causes": "forbidden", "not_sents": False}
    assert holder.withdraw(seq, 1, **facts) == [seq]
    assert stage.doubt(seq)["needs_person"]
    stage.as_role("operator").execute("update outbox.tool set policy_version = 2 where name = 'approved'")
    act(stage, "select outbox.redecide(10)")
    approve(stage, "op")
    assert [row["attempt"] for row in holder.begin() or []] == [2]


def test_expiry_ends_only_what_hides_nothing(stage: Stage, holder: Holder) -> None:
    clock = Clock(stage.database)
    soon = stage.value("select outbox.now() + interval '60 seconds'")
    unknown = stage.unknown("unknown", holder, expires_at=soon)
    executing = stage.put("executing", expires_at=soon)
    assert holder.begin()
    authorized, proposed = stage.put("authorized", expires_at=soon), stage.put("proposed", "approved", expires_at=soon)
    forever = stage.put("forever", expires_at="infinity")
    clock.advance(61)
    assert [row["seq"] for row in holder.begin() or []] == [forever]
    assert holder.run("expire", limit=10) == [{"ended": 2}]
    assert {seq: stage.state(seq) for seq in (unknown, executing, authorized, proposed, forever)} == {
        unknown: "unknown",
        executing: "executing",
        authorized: "rejected",
        proposed: "rejected",
        forever: "executing",
    }


# ------------------------------------------------------------------------------------------------- resends, and windows


def test_a_resend_ends_before_the_window_does(stage: Stage, holder: Holder) -> None:
    """24 h, less a margin of 1 min, less 30 s within which a request begun now may still land."""
    clock = Clock(stage.database)
    seq = stage.unknown("op", holder)
    holder.renew(10**6)
    clock.advance(24 * 3600 - 95)
    assert act(stage, RETRY, "op") == "unknown"
    clock.advance(10)
    assert holder.begin() == []
    assert "window" in refused(stage, RETRY, "op")
    assert stage.state(seq) == "unknown"


def test_a_resend_never_moves_the_window(stage: Stage, holder: Holder) -> None:
    clock = Clock(stage.database)
    seq = stage.unknown("op", holder)
    holder.renew(10**6)
    window = [stage.pending(seq)[fact] for fact in ("first_sent_at", "resend_until")]
    clock.advance(3600)
    assert act(stage, RETRY, "op") == "unknown"
    (begun,) = holder.begin() or []
    assert 22.9 * 3600 < begun["window_left_seconds"] < 23 * 3600 - 90
    assert holder.record_unknown(seq, 2)
    assert [stage.pending(seq)[fact] for fact in ("first_sent_at", "resend_until")] == window


def test_a_window_that_the_contract_now_in_force_makes_shorter_is_honoured_and_a_longer_one_is_not(
    stage: Stage, holder: Holder
) -> None:
    stage.unknown("op", holder)
    Clock(stage.database).advance(7200)
    holder.renew(10**6)
    assert act(stage, RETRY, "op") == "unknown"
    stage.rows("update outbox.tool set retention = interval '1 hour' where name = 'stock.set'")
    assert holder.begin() == []
    refused(stage, RETRY, "op")
    stage.rows("update outbox.tool set key_forever = true where name = 'stock.set'")
    assert act(stage, RETRY, "op") == "unknown"
    (begun,) = holder.begin() or []
    assert begun["window_left_seconds"] < 22 * 3600


def test_a_key_that_is_kept_for_ever_has_an_endless_window(stage: Stage) -> None:
    stage.register(**KEYED | {"key_forever": True, "retention": "0"})
    holder = stage.holder().taken(10**9)
    seq = stage.unknown("op", holder)
    Clock(stage.database).advance(10**8)
    assert act(stage, RETRY, "op") == "unknown"
    (begun,) = holder.begin() or []
    assert begun["window_left_seconds"] == float("inf")
    assert begun["permission_left_seconds"] == float("inf")
    assert str(stage.pending(seq)["resend_until"]).startswith("9999")


@pytest.mark.parametrize("tool", ["blind", "looked.up"])
def test_what_nobody_deduplicates_is_never_sent_again_inside_the_doubt(stage: Stage, holder: Holder, tool: str) -> None:
    seq = stage.unknown("op", holder, tool=tool)
    row = stage.pending(seq)
    assert row["resend_until"] == row["first_sent_at"]
    refused(stage, RETRY, "op")
    answer: LiteralString = "select outbox.allow_resend(%s, 1, outbox.now(), outbox.now())"
    assert act(stage, answer, seq, role="reconciler") == "applied"
    assert holder.begin() == []


def test_what_is_harmless_to_repeat_is_sent_again_at_any_time(stage: Stage, holder: Holder) -> None:
    stage.unknown("op", holder, tool="repeatable")
    Clock(stage.database).advance(10**7)
    holder.renew(10**6)
    assert act(stage, RETRY, "op") == "unknown"
    assert [row["attempt"] for row in holder.begin() or []] == [2]


def test_where_a_resend_would_teach_nothing_it_is_refused(stage: Stage, holder: Holder) -> None:
    seq = stage.put("op")
    assert holder.begin()
    assert holder.record_unknown(seq, 1, no_resends=True)
    assert "prove nothing" in refused(stage, RETRY, "op")


@pytest.mark.parametrize("statement", [RETRY, EXPEDITE], ids=["retry", "expedite"])
def test_a_back_off_can_be_ended_and_the_date_of_the_intent_cannot(
    stage: Stage, holder: Holder, statement: LiteralString
) -> None:
    seq = stage.put("op")
    assert holder.begin()
    assert holder.withdraw(seq, 1, delays=3600.0)
    assert holder.begin() == []
    act(stage, statement, "op")
    assert holder.begin()
    dated = stage.put("dated", not_before=stage.value("select outbox.now() + interval '1 hour'"))
    act(stage, statement, "dated")
    assert holder.begin() == []
    assert stage.pending(dated)["next_at"] == stage.value("select not_before from outbox.intent where seq = %s", dated)


@pytest.mark.parametrize(("operation_id", "sqlstate"), [("nothing", "OB404"), ("ended", "OB409")])
@pytest.mark.parametrize("statement", [CANCEL, RETRY, REVOKE, EXPEDITE])
def test_acts_on_what_is_not_open_say_so(
    stage: Stage, holder: Holder, statement: LiteralString, operation_id: str, sqlstate: str
) -> None:
    seq = stage.put("ended")
    assert holder.begin()
    assert holder.end((seq, 1))
    before = stage.everything()
    with pytest.raises(psycopg.Error) as refusal:
        act(stage, statement, operation_id)
    assert refusal.value.sqlstate == sqlstate
    assert refusal.value.diag.message_hint
    assert stage.everything() == before


# ------------------------------------------------------------------------------------------------------------ doubts


def test_whatever_is_unknown_is_in_doubt_with_a_date(stage: Stage, holder: Holder) -> None:
    stage.unknown("recorded", holder)
    stage.put("lost")
    assert holder.begin()
    holder.give_back()
    stage.holder().taken()
    stage.witness(stage.put("admitted"), "receipt")
    rows = stage.rows(
        "select d.next_at, d.step from outbox.pending p left join outbox.doubt d using (seq) where p.state = 'unknown'"
    )
    assert len(rows) == 3
    assert all(row["next_at"] is not None and row["step"] == "look" for row in rows)


def test_a_doubt_ends_with_its_operation(stage: Stage, holder: Holder) -> None:
    for number, end in enumerate(["succeeded", "rejected", "authorized"]):
        seq = stage.unknown(f"op-{number}", holder, tool="looked.up")
        assert stage.settle(seq, 1, end) == "applied"
        assert stage.one("doubt", seq) is None
    seq = stage.unknown("resent", holder)
    assert act(stage, RETRY, "resent") == "unknown"
    holder.begin_these(seq)
    assert stage.one("doubt", seq) is not None  # kept through the resend
    assert holder.end((seq, 2)) == [seq]
    assert stage.one("doubt", seq) is None


def test_an_acceptance_is_never_forgotten_by_a_later_attempt(stage: Stage, holder: Holder) -> None:
    seq = stage.put("op")
    assert holder.begin()
    assert holder.record_unknown(seq, 1, accepteds=True, causes="accepted")
    assert act(stage, RETRY, "op") == "unknown"
    assert holder.begin()
    assert holder.record_unknown(seq, 2)
    assert stage.doubt(seq)["accepted"]


def test_an_attempt_that_was_recorded_is_recorded_once(stage: Stage, holder: Holder) -> None:
    """The belt found it first; the holder's answer comes later and finds nothing to change."""
    seq = stage.put("op")
    assert holder.begin()
    Clock(stage.database).advance(600)
    stage.as_role("reconciler").execute("select outbox.sweep_orphans(interval '1 minute')")
    before = stage.rows("select * from outbox.attempt")
    assert holder.record_unknown(seq, 1) == []
    assert stage.rows("select * from outbox.attempt") == before


def test_a_chore_is_one_callers_per_period(stage: Stage) -> None:
    clock = Clock(stage.database)
    daemons: list[Role] = ["relay", "reconciler"]

    def claims() -> list[bool]:
        return [
            stage.as_role(role)
            .execute(RELAY["claim_chore"], {"name": "sweep", "every_seconds": 60})
            .fetchall()[0]["mine"]
            for role in daemons
        ]

    assert claims() == [True, False]
    clock.advance(30)
    assert claims() == [False, False]
    clock.advance(31)
    assert claims() == [True, False]


@pytest.mark.parametrize(("took", "pause"), [(1.0, 60), (10.0, 500), (1e9, 600), (-1.0, 60)])
def test_a_chore_that_takes_long_is_done_more_seldom(stage: Stage, took: float, pause: int) -> None:
    """It reads all that is open: with millions of them that would be most of what the server does."""
    clock = Clock(stage.database)
    relay = stage.as_role("relay")

    def claims() -> bool:
        (row,) = relay.execute(RELAY["claim_chore"], {"name": "sweep", "every_seconds": 60}).fetchall()
        return bool(row["mine"])

    assert claims()
    relay.execute(RELAY["chore_took"], {"name": "sweep", "seconds": took})
    clock.advance(61)
    assert claims(), "how long it took counts from the next time on"
    clock.advance(pause - 1)
    assert not claims()
    clock.advance(2)
    assert claims()
    relay.execute(RELAY["chore_took"], {"name": "sweep", "seconds": 0.1})
    clock.advance(pause + 1)
    assert claims()
    clock.advance(61)
    assert claims(), "and not for ever"
