"""What a person decides: docs/cli.md says what each command does in each state, and here it is done."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox import crashpoints
from tests.support.desk import ASKING, BLIND, KEYED, Desk
from tests.support.postgres import Database
from tests.support.stage import Stage

DOCUMENT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Iterator[Desk]:
    with Stage(database) as stage:
        yield Desk(database, stage, tmp_path)


def documented() -> list[tuple[str, str, str]]:
    """The cells of the table: command, state, what happens."""
    lines = [line.strip("|").split("|") for line in DOCUMENT.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line] for line in lines]
    (head,) = (row for row in rows if row[0] == "command" and "proposed" in row)
    table = rows[rows.index(head) + 1 :][:10]
    return [(row[0], state, cell) for row in table for state, cell in zip(head[1:], row[1:], strict=True)]


def act(desk: Desk, command: str, name: str, seq: int, tool: str) -> tuple[str, ...]:
    """The command line of a row of the table."""
    say = ("--evidence", "looked at the dashboard")
    match command:
        case "`put`, the same again":
            return ("put", "--tenant", "shop", "--principal", "svc", "--tool", tool, "--id", name)
        case "`approve`":
            digest = desk.stage.value("select encode(digest, 'hex') from outbox.intent where seq = %s", seq)
            return ("approve", name, "--digest", digest)
        case "`resolve --succeeded`":
            return ("resolve", name, "--succeeded", *say)
        case "`resolve --no-effect`, too early" | "`resolve --no-effect`, when it counts":
            return ("resolve", name, "--no-effect", *say)
        case (
            "`resolve --no-effect --send-again`, when it counts" | "`resolve --no-effect --send-again`, after `revoke`"
        ):
            return ("resolve", name, "--no-effect", "--send-again", *say)
    return (command.strip("`"), name)


@pytest.mark.parametrize(("command", "state", "cell"), documented())
def test_a_command_does_what_the_table_says(desk: Desk, command: str, state: str, cell: str) -> None:
    seq = desk.in_state(state, "op")
    before = desk.stage.state(seq)
    assert before == state.partition(",")[0]
    if "after `revoke`" in command:
        desk.run("revoke", "op")
    if "when it counts" in command or "after `revoke`" in command:
        desk.clock.advance(2 * 3600)
    tool = desk.stage.value("select tool from outbox.intent where seq = %s", seq)
    history = desk.stage.everything()
    result = desk.run(*act(desk, command, "op", seq, tool), "--json")
    if cell == "refused":
        assert result.code == 4, result
        assert desk.stage.everything() == history, "what is refused changes nothing"
    else:
        assert result.code == 0, result
        after = cell.removeprefix("becomes ") if cell.startswith("becomes") else before
        assert desk.stage.state(seq) == after
        assert result.json["state"] == after


@pytest.mark.parametrize("state", sorted({state for _, state, _ in documented()}))
def test_a_dry_run_of_a_retry_answers_in_every_state_and_changes_nothing(desk: Desk, state: str) -> None:
    desk.in_state(state, "op")
    history = desk.stage.everything()
    allowed = {(command, column): cell for command, column, cell in documented()}["`retry`", state] != "refused"
    answer = desk.run.json("retry", "op", "--dry-run", code=0 if allowed else 4)
    assert desk.stage.everything() == history
    assert answer["allowed"] is allowed
    assert (answer["refusal"] is None) is allowed
    assert answer["can_happen_twice"] in {"no", "not while the conditions hold", "yes, harmlessly", "yes"}
    assert answer["reason"]
    assert desk.run("retry", "op", "--dry-run").out.startswith("Can op happen twice?")


@pytest.mark.parametrize("state", sorted({state for _, state, _ in documented()}))
def test_another_action_under_the_same_id_is_a_conflict_in_every_state(desk: Desk, state: str) -> None:
    seq = desk.in_state(state, "op")
    tool = desk.stage.value("select tool from outbox.intent where seq = %s", seq)
    put = ("put", "--tenant", "shop", "--principal", "svc", "--tool", tool, "--id", "op")
    error = desk.run.refused(*put, "--resource", "another", code=6)
    assert error["code"] == "intent_conflict"
    assert "resource" in error["message"]


# -------------------------------------------------------------------------------------------------------------- resolve


def test_a_statement_is_evidence_with_the_name_of_the_user_and_no_flag_changes_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "somebody-else")
    monkeypatch.setenv("LOGNAME", "somebody-else")
    seq = desk.unknown("op")
    desk.run.json("resolve", "op", "--succeeded", "--external-id", "re_1", "--evidence", "seen in the dashboard")
    (evidence,) = desk.stage.rows("select * from outbox.evidence where seq = %s", seq)
    assert (evidence["kind"], evidence["verdict"], evidence["stated_by"]) == ("statement", "confirmed", desk.me)
    assert evidence["note"] == "seen in the dashboard"
    outcome = desk.stage.outcome(seq)
    assert (outcome["decided_by"], outcome["external_id"], outcome["cause"]) == (desk.me, "re_1", "person")


def test_no_effect_is_refused_until_settle_time_and_the_refusal_names_it(desk: Desk) -> None:
    desk.unknown("op")
    settles = desk.run.json("show", "op")["doubt"]["settle_at"]
    error = desk.run.refused("resolve", "op", "--no-effect", "--evidence", "x", code=4)
    assert settles[:19].replace("T", " ") in error["message"]
    desk.clock.advance(66)
    assert desk.run.json("resolve", "op", "--no-effect", "--evidence", "x")["state"] == "rejected"


def test_without_a_bound_no_effect_waits_for_person_settle_and_says_that_no_bound_backs_it(desk: Desk) -> None:
    seq = desk.unknown("op", BLIND)
    desk.clock.advance(3500)
    desk.run.refused("resolve", "op", "--no-effect", "--evidence", "asked them", code=4)
    desk.clock.advance(200)
    desk.run.json("resolve", "op", "--no-effect", "--evidence", "asked them")
    assert (
        desk.stage.value("select note from outbox.evidence where seq = %s", seq) == "asked them [no bound backs this]"
    )


def test_no_effect_is_refused_at_any_time_while_a_receipt_says_otherwise(desk: Desk) -> None:
    seq = desk.unknown("op")
    desk.stage.witness(seq, "receipt", attempt=1, fence=desk.holder.fence, receipt="{}")
    desk.clock.advance(100_000)
    error = desk.run.refused("resolve", "op", "--no-effect", "--evidence", "x", code=4)
    assert "the effect of operation op exists" in error["message"]


def test_a_statement_about_an_attempt_that_is_no_longer_the_latest_is_refused(desk: Desk) -> None:
    seq = desk.unknown("op")
    desk.clock.advance(100)
    assert desk.run("retry", "op").code == 0
    (again,) = desk.holder.begin_these(seq)
    desk.holder.record_unknown(seq, again["attempt"])
    error = desk.run.refused("resolve", "op", "--succeeded", "--evidence", "x", "--attempt", "1", code=4)
    assert "has moved" in error["message"]
    assert desk.stage.state(seq) == "unknown"


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_a_statement_without_evidence_is_refused_by_the_command_and_by_the_database(desk: Desk, blank: str) -> None:
    desk.unknown("op")
    history = desk.stage.everything()
    for selected in (("op",), ("--all", "--yes")):
        assert (
            "--evidence"
            in desk.run.refused("resolve", *selected, "--succeeded", "--evidence", blank, code=2)["message"]
        )
    with pytest.raises(psycopg.Error, match="needs evidence"):
        desk.stage.rows("select outbox.resolve('shop', 'op', 1, 'succeeded', null, 'ann', %s)", blank)
    assert desk.stage.everything() == history


def test_what_was_revoked_in_doubt_is_decided_anew_at_once_and_not_sent_again(desk: Desk) -> None:
    seq = desk.unknown("op")
    desk.clock.advance(70)
    assert desk.run.json("retry", "op")["state"] == "unknown"
    desk.run.json("revoke", "op", "--reason", "changed her mind")
    planned = desk.stage.rows("select step, next_at <= outbox.now() as due from outbox.doubt where seq = %s", seq)
    assert planned == [{"step": "look", "due": True}]
    assert desk.stage.value("select step from outbox.pending where seq = %s", seq) == "none"
    error = desk.run.refused("resolve", "op", "--no-effect", "--send-again", "--evidence", "x", code=4)
    assert "permission" in error["message"]
    assert "new id" in error["hint"]


def test_what_was_revoked_in_doubt_and_hides_nothing_ends_as_revoked(desk: Desk) -> None:
    seq = desk.unknown("op")
    desk.run.json("revoke", "op", "--reason", "changed her mind")
    desk.stage.value("select outbox.settle(%s, 1, 'authorized', 'proven_absent', 'reconciler', null, null, null)", seq)
    assert desk.stage.value("select outbox.expire(10)") == 1
    assert desk.stage.outcome(seq)["cause"] == "revoked"


def test_a_statement_that_was_never_written_has_changed_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.unknown("op")
    history = desk.stage.everything()
    monkeypatch.setattr(crashpoints, "_armed", crashpoints.parse("before_resolve:raise"))
    with pytest.raises(crashpoints.Reached):
        desk.run("resolve", "op", "--succeeded", "--evidence", "x")
    assert desk.stage.everything() == history


ANSWERED = {"causes": "ambiguous", "statuses": 201, "excerpts": '{"id": "re_b907bf15"}'}
SAYING = ("--evidence", "x")


def answered(desk: Desk) -> int:
    """An operation of which an answer is on record that proves nothing, and "no effect" counts."""
    seq = desk.unknown("op", BLIND, answer=ANSWERED)
    desk.clock.advance(2 * 3600)
    return seq


def test_the_answers_on_record_are_told_by_why_and_by_a_statement_before_and_after(desk: Desk) -> None:
    seq = answered(desk)
    answer = 'attempt 1 was answered with 201 ({"id": "re_b907bf15"})'
    why = desk.run.json("why", "op")
    assert f"Answers on record: {answer}." in why["known"]
    assert any("Read them before you decide" in line for line in why["not_known"])
    assert answer in desk.run("resolve", "op", "--no-effect", "--dry-run", *SAYING).out
    assert desk.run.json("resolve", "op", "--no-effect", "--dry-run", *SAYING)["answers"] == [answer]
    assert desk.stage.state(seq) == "unknown"
    assert answer in desk.run("resolve", "op", "--no-effect", *SAYING).out
    assert desk.stage.state(seq) == "rejected"


def test_what_came_later_is_an_answer_on_record_too_with_the_receivers_id(desk: Desk) -> None:
    seq = desk.unknown("op")
    desk.stage.witness(seq, "lookup", attempt=1, fence=desk.holder.fence, verdict="partial", external_id="re_1")
    desk.stage.witness(seq, "lookup", attempt=1, fence=desk.holder.fence, verdict="not_found")
    answers = desk.run.json("resolve", "op", "--succeeded", "--dry-run", *SAYING)["answers"]
    assert answers == ["a look about attempt 1: partial, external id re_1"]


def test_that_no_answer_is_on_record_is_said(desk: Desk) -> None:
    desk.unknown("op")
    assert "No answer is on record." in desk.run("resolve", "op", "--succeeded", "--dry-run", *SAYING).out
    assert not any("nswers on record" in str(line) for line in desk.run.json("why", "op").values())


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "state"), [("n\n", "unknown"), ("y\n", "rejected")])
def test_on_a_terminal_no_effect_is_asked_for_once_more_where_an_answer_is_on_record(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, typed: str, state: str
) -> None:
    seq = answered(desk)
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    result = desk.run("resolve", "op", "--no-effect", *SAYING)
    assert "re_b907bf15" in result.err
    assert desk.stage.state(seq) == state


@pytest.mark.parametrize("statement", [("--succeeded",), ("--no-effect", "--yes")])
def test_nobody_is_asked_who_says_yes_or_that_it_succeeded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, statement: tuple[str, ...]
) -> None:
    seq = answered(desk)
    monkeypatch.setattr("sys.stdin", Terminal())
    assert desk.run("resolve", "op", *statement, *SAYING).code == 0
    assert desk.stage.state(seq) != "unknown"


# ---------------------------------------------------------------------------------------------------------------- retry


def test_a_retry_past_the_window_is_refused_and_says_so(desk: Desk) -> None:
    desk.unknown("op")
    open_window = desk.run.json("retry", "op", "--dry-run")
    assert open_window["allowed"]
    # 24 h less the margin (twice 60 s) and the reach (30 s).
    assert 86_400 - 150 - 60 < open_window["window_left_seconds"] <= 86_400 - 150
    desk.clock.advance(86_400 - 150)
    error = desk.run.refused("retry", "op", code=4)
    assert "the window is closed" in error["message"]
    closed = desk.run.json("retry", "op", "--dry-run", code=4)
    assert (closed["can_happen_twice"], closed["window_left_seconds"]) == ("yes", 0)
    assert "window is closed" in closed["refusal"]


def test_a_retry_is_refused_once_the_permission_is_withdrawn(desk: Desk) -> None:
    desk.unknown("op")
    assert desk.run("revoke", "op", "--reason", "changed her mind").code == 0
    error = desk.run.refused("retry", "op", code=4)
    assert "permission" in error["message"]
    words = desk.run("retry", "op", "--dry-run")
    assert words.code == 4
    assert words.out.startswith("Can op happen twice? No: nothing may be sent: its permission")
    assert "A resend may begin" not in words.out


def test_a_dry_run_names_the_guarantee_and_what_it_rests_on(desk: Desk) -> None:
    desk.unknown("op")
    answer = desk.run.json("retry", "op", "--dry-run")
    assert answer["guarantee"] == "deduplicated"
    assert answer["can_happen_twice"] == "not while the conditions hold"
    assert any("24h" in condition for condition in answer["conditions"])


def test_a_retry_makes_an_operation_in_back_off_due(desk: Desk) -> None:
    seq = desk.executing("op")
    desk.holder.withdraw(seq, 1, delays=500.0, throttleds=True, not_sents=False, causes="throttled")
    assert desk.holder.begin_these(seq) == []
    assert desk.run.json("retry", "op")["state"] == "authorized"
    assert len(desk.holder.begin_these(seq)) == 1


# ------------------------------------------------------------------------------------------------------------- approval


def digest_of(desk: Desk, name: str) -> str:
    digest: str = desk.run.json("show", name)["digest"]
    return digest


def test_an_approval_permits_exactly_the_digest_that_was_read(desk: Desk) -> None:
    seq = desk.put("op", ASKING)
    other = desk.put("other", ASKING)
    error = desk.run.refused("approve", "op", "--digest", digest_of(desk, "other"), code=4)
    assert "digest" in error["message"]
    answer = desk.run.json("approve", "op", "--digest", digest_of(desk, "op"), "--expires-in", "1h", "--reason", "ok")
    shown = desk.run.json("show", "op")["authorization"]
    assert (shown["kind"], shown["by"], shown["decision"], shown["holds"]) == ("approval", desk.me, "approved", True)
    assert shown["expires_at"] == answer["expires_at"]
    assert (desk.stage.state(seq), desk.stage.state(other)) == ("authorized", "proposed")


def test_whoever_asked_cannot_approve(desk: Desk) -> None:
    desk.put("op", ASKING, principal_id=desk.me)
    error = desk.run.refused("approve", "op", "--digest", digest_of(desk, "op"), code=4)
    assert "cannot approve" in error["message"]


def test_nobody_is_asked_to_confirm_without_a_terminal(desk: Desk) -> None:
    desk.put("op", ASKING)
    assert "--digest" in desk.run.refused("approve", "op", code=2)["message"]


def test_a_revocation_is_kept_with_its_reason(desk: Desk) -> None:
    desk.put("op", ASKING)
    desk.run.json("approve", "op", "--digest", digest_of(desk, "op"))
    desk.run.json("revoke", "op", "--reason", "budget is gone")
    history = desk.run.json("show", "op")["authorization"]["history"]
    assert [(item["decision"], item["reason"]) for item in history] == [
        ("approved", None),
        ("revoked", "budget is gone"),
    ]


# -------------------------------------------------------------------------------------------------------------- whoever


def test_what_is_not_there_is_not_found_for_every_act(desk: Desk) -> None:
    for arguments in (
        ("show", "no"),
        ("why", "no"),
        ("retry", "no"),
        ("cancel", "no"),
        ("revoke", "no"),
        ("approve", "no", "--digest", "00" * 32),
        ("resolve", "no", "--succeeded", "--evidence", "x"),
    ):
        assert desk.run.refused(*arguments, code=3)["code"] == "not_found"


@pytest.mark.parametrize(
    "act",
    [
        ("cancel", "op"),
        ("cancel", "op", "--dry-run"),
        ("retry", "op"),
        ("resolve", "op", "--succeeded", "--evidence", "x"),
        ("resolve", "op", "--no-effect", "--evidence", "x", "--dry-run"),
        ("approve", "op", "--digest", "00" * 32),
        ("revoke", "op", "--reason", "x"),
        ("expedite", "op", "--reason", "x"),
        ("unblock", "op", "--reason", "x"),
    ],
    ids=" ".join,
)
def test_an_act_that_comes_too_late_is_told_when_it_ended_as_what_and_by_whom(desk: Desk, act: tuple[str, ...]) -> None:
    desk.put("op")
    desk.run.json("cancel", "op")
    ended = desk.run.json("show", "op")["outcome"]["ended_at"][:19].replace("T", " ")
    error = desk.run.refused(*act, code=4)
    how = f"it was rejected at {ended}Z: somebody cancelled it, decided by {desk.me}."
    assert error["message"] == f"Operation op of tenant shop has ended: {how}"
    assert "outbox show op --tenant shop" in error["hint"]


def test_the_end_that_is_told_is_the_receivers_the_persons_or_the_lookups(desk: Desk) -> None:
    desk.ended("answered", "succeeded")
    desk.unknown("stated")
    desk.run.json("resolve", "stated", "--succeeded", "--external-id", "re_1", "--evidence", "seen")
    looked_up = desk.unknown("looked-up")
    desk.stage.settle(looked_up, 1, "succeeded")

    def told(name: str) -> str:
        message: str = desk.run.refused("cancel", name, code=4)["message"]
        return message.partition("Z: ")[2]

    assert told("answered") == "attempt 1 was answered with a receipt."
    assert told("stated") == f"a person said so, decided by {desk.me}, and the receiver calls it re_1."
    assert told("looked-up").startswith("the receiver's records show the effect under our identity, decided by")


def test_the_database_says_the_same_to_whoever_was_overtaken(desk: Desk) -> None:
    """What ended between the look and the act is refused by the function of the database, with the same facts."""
    desk.put("op")
    desk.run.json("cancel", "op")
    with pytest.raises(psycopg.Error, match=f"rejected at 20.*Z, cancelled, by {desk.me}"):
        desk.stage.rows("select outbox.cancel('shop', 'op', 'ann')")


def test_an_id_that_another_tenant_has_is_not_found_with_the_name_of_that_tenant(desk: Desk) -> None:
    desk.put("op")
    error = desk.run.refused("show", "op", "--tenant", "shoop", code=3)
    assert error["message"] == "There is no operation 'op' of tenant shoop."
    assert "tenant shop" in error["hint"]
    assert "outbox list --tenant shop" in desk.run.refused("show", "no", "--tenant", "shop", code=3)["hint"]


def test_an_id_of_several_tenants_is_refused_with_their_names_until_one_is_named(desk: Desk) -> None:
    desk.put("op")
    desk.stage.put("op", KEYED, "another")
    error = desk.run.refused("cancel", "op", code=2)
    assert error["code"] == "ambiguous_id"
    assert "another, shop" in error["message"]
    assert desk.run.json("cancel", "op", "--tenant", "shop")["tenant_id"] == "shop"
    assert desk.run.json("show", "op", "--tenant", "another")["state"] == "authorized"


@pytest.mark.parametrize(
    ("role", "allowed"),
    [("operator", {"cancel", "retry", "resolve", "show"}), ("approver", {"show", "approve"}), ("writer", {"put"})],
)
def test_a_role_does_what_is_its_own_and_is_told_that_it_lacks_a_right(
    desk: Desk, role: Any, allowed: set[str]
) -> None:
    def begin(name: str, make: Callable[[], int]) -> str:
        make()
        return name

    acts = {
        "show": ("show", begin("a", lambda: desk.put("a"))),
        "cancel": ("cancel", "a"),
        "retry": ("retry", begin("b", lambda: desk.put("b"))),
        "resolve": ("resolve", begin("c", lambda: desk.unknown("c")), "--succeeded", "--evidence", "x"),
        "approve": ("approve", begin("d", lambda: desk.put("d", ASKING)), "--digest", digest_of(desk, "d")),
        "put": ("put", "--tenant", "shop", "--principal", "p", "--tool", KEYED),
    }
    settings = desk.run.config.read_text().replace(desk.database.dsn, desk.database.dsn_for(role))
    desk.run.config.write_text(settings)
    for name, arguments in acts.items():
        if name in allowed:
            assert desk.run(*arguments, "--json").code == 0, name
        elif role == "writer" or name in {"cancel", "retry", "resolve"}:
            assert desk.run.refused(*arguments, code=5)["code"] == "not_permitted", name
