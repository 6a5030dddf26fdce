"""Looking: show, why, list, stuck. Whatever is known can be found out, and looking changes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outbox import sql
from outbox.states import State
from tests.support.desk import ASKING, BLIND, KEYED, Desk
from tests.support.postgres import Database
from tests.support.stage import Stage

# What `show --json` has for every operation, however it is doing.
ALWAYS = {
    "operation_id",
    "tenant_id",
    "state",
    "cause",
    "tool",
    "resource",
    "arguments",
    "expected_version",
    "principal_id",
    "authorization",
    "digest",
    "sent_key",
    "attempts",
    "evidence",
    "outcome",
    "contradictions",
    "next",
}
COLUMNS = [
    "proposed",
    "authorized",
    "executing",
    "unknown, a resend is safe",
    "unknown, no resend is",
    "succeeded",
    "rejected",
]
ANSWER = {"statuses": 504, "peers": "203.0.113.9:443", "request_ids": "req_17", "excerpts": "gateway timeout"}


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Iterator[Desk]:
    with Stage(database) as stage:
        yield Desk(database, stage, tmp_path)


# ----------------------------------------------------------------------------------------------------------------- show


@pytest.mark.parametrize("column", COLUMNS)
def test_show_and_why_speak_of_every_state_and_change_nothing(desk: Desk, column: str) -> None:
    desk.in_state(column, "op")
    history = desk.stage.everything()
    shown = desk.run.json("show", "op")
    assert shown.keys() >= ALWAYS
    assert shown["state"] == column.partition(",")[0]
    why = desk.run.json("why", "op")
    assert why["known"]
    assert why["next"]
    assert why["contract"]
    assert desk.run("show", "op").code == 0
    assert desk.run("why", "op").code == 0
    assert desk.stage.everything() == history


@pytest.mark.parametrize(
    ("column", "step"),
    [
        ("proposed", "approve"),
        ("authorized", "begin"),
        ("executing", "answer"),
        ("unknown, a resend is safe", "look"),
        ("unknown, no resend is", "person"),
    ],
)
def test_every_open_operation_has_a_next_step_with_a_reason(desk: Desk, column: str, step: str) -> None:
    desk.in_state(column, "op")
    following = desk.run.json("show", "op")["next"]
    assert following["step"] == step
    assert following["reason"]


def test_show_says_who_authorized_what_on_which_version_how_often_it_was_tried_and_what_confirms_it(
    desk: Desk,
) -> None:
    seq = desk.unknown("op", answer=ANSWER, resource="sku-1", expected_version="7", arguments='{"n":3}')
    desk.clock.advance(10)
    desk.run.json("retry", "op")
    (again,) = desk.holder.begin_these(seq)
    assert desk.holder.end((seq, again["attempt"]), state="succeeded") == [seq]
    shown = desk.run.json("show", "op")
    assert (shown["resource"], shown["expected_version"], shown["arguments"]) == ("sku-1", "7", {"n": 3})
    assert shown["authorization"]["by"] == desk.stage.value("select written_by from outbox.intent where seq = %s", seq)
    assert shown["authorization"]["policy_version"] == 1
    first, second = shown["attempts"]
    assert (first["status"], first["host"], first["request_id"], first["cause"]) == (
        504,
        "203.0.113.9:443",
        "req_17",
        "timeout",
    )
    assert (second["attempt"], second["running"]) == (2, False)
    assert (shown["outcome"]["state"], shown["outcome"]["attempt"]) == ("succeeded", 2)
    assert shown["next"] is None


def test_a_tool_without_a_key_shows_none_and_no_window(desk: Desk) -> None:
    desk.unknown("keyed")
    desk.unknown("blind", BLIND)
    keyed, blind = desk.run.json("show", "keyed"), desk.run.json("show", "blind")
    assert keyed["sent_key"]
    assert keyed["resend_until"] > keyed["first_sent_at"]
    assert (blind["sent_key"], blind["resend_until"]) == (None, None)
    assert "resend_until" not in desk.run("show", "blind").out
    desk.run.config.write_text(desk.run.config.read_text().replace('path = "/mail"', 'path = "/mail/{sent_key}"'))
    assert desk.run("apply").code == 0
    desk.unknown("referred", BLIND)
    assert desk.run.json("show", "referred")["sent_key"], "the request carries it, without a promise about it"
    assert desk.run.json("why", "referred")["support"][0].startswith("Key: ")


def test_what_was_seen_is_shown_with_its_time_and_source(desk: Desk) -> None:
    seq = desk.unknown("op")
    desk.stage.witness(seq, "lookup", role="reconciler", attempt=1, verdict="not_found", note="no such key")
    (item,) = desk.run.json("show", "op")["evidence"]
    assert (item["kind"], item["verdict"], item["note"], item["source"]) == (
        "lookup",
        "not_found",
        "no such key",
        "test",
    )
    assert item["observed_at"].endswith("Z")


def test_an_effect_of_a_rejected_operation_is_a_contradiction_that_everybody_sees(desk: Desk) -> None:
    seq = desk.ended("op", "rejected")
    desk.stage.witness(seq, "receipt", attempt=1, fence=desk.holder.fence, receipt="{}")
    (contradiction,) = desk.run.json("show", "op")["contradictions"]
    assert "after the operation was rejected" in contradiction["what"]
    assert any("somebody must look" in line for line in desk.run.json("why", "op")["not_known"])
    (item,) = (item for item in desk.run.json("stuck")["items"] if item["kind"] == "contradiction")
    assert (item["operation_id"], item["state"]) == ("op", "rejected")


def test_of_a_purged_operation_its_end_is_shown(desk: Desk) -> None:
    desk.ended("op", "succeeded")
    desk.clock.advance(100_000)
    desk.database.rows("select outbox.purge(0, 1000, outbox.now(), 10, 'me')")
    shown = desk.run.json("show", "op")
    assert (shown["state"], shown["purged"], shown["outcome"]["state"]) == ("succeeded", True, "succeeded")
    refused = desk.run.refused("cancel", "op", code=4)["message"]
    assert refused.startswith("Operation op of tenant shop has ended: it succeeded at 20")
    assert refused.endswith("was purged.")


def test_text_from_elsewhere_cannot_command_a_terminal(desk: Desk) -> None:
    desk.put("op", resource="sku\x1b[2J", arguments='{"note":"\x9b31m"}')
    for command in ("show", "why", "list"):
        out = desk.run(command, *([] if command == "list" else ["op"])).out
        assert "\x1b" not in out
        assert "\x9b" not in out


# ------------------------------------------------------------------------------------------------------------------ why


def test_why_says_what_is_known_what_is_not_and_what_may_happen_when(desk: Desk) -> None:
    desk.unknown("op", answer=ANSWER)
    why = desk.run.json("why", "op")
    assert any("unknown since" in line and "no answer came in time" in line for line in why["known"])
    assert any("A lost answer is no failure" in line for line in why["not_known"])
    assert any("may land until" in line and "in 65 s" in line for line in why["not_known"])
    assert any("Next: look at" in line for line in why["next"])
    assert any("sent again with the same key until" in line for line in why["next"])
    assert any('"no effect" counts from' in line for line in why["next"])
    assert any("ended or a person is asked" in line for line in why["next"])


def test_why_names_the_resend_that_somebody_has_asked_for_and_not_the_look_that_would_come_without_it(
    desk: Desk,
) -> None:
    desk.unknown("op")
    assert desk.run.json("show", "op")["next"]["step"] == "look"
    desk.run.json("retry", "op")
    assert desk.run.json("show", "op")["next"]["step"] == stuck(desk, "--all")["op"]["step"] == "resend"
    desk.run.json("revoke", "op", "--reason", "changed her mind")
    assert desk.run.json("show", "op")["next"]["step"] == "look", "without a permission nothing is sent"


def test_why_names_the_contract_its_source_and_the_clauses_that_decide(desk: Desk) -> None:
    desk.unknown("op")
    contract = desk.run.json("why", "op")["contract"]
    assert contract[0].startswith(
        "Contract version 1 of inventory.set_available (the warehouse team, verified 2026-11-29)"
    )
    assert contract[0].endswith("makes it: deduplicated.")
    assert 'Decided by key_retention = "24h".' in contract
    assert any(line.startswith("Decided by lookup = { by = ") for line in contract)
    desk.unknown("blind", BLIND)
    blind = desk.run.json("why", "blind")["contract"]
    assert 'Decided by key = "none".' in blind
    assert 'Decided by lookup = "none".' in blind


def test_why_says_which_version_decides_where_another_one_is_in_force_by_now(desk: Desk) -> None:
    desk.unknown("op")
    desk.run.config.write_text(desk.run.config.read_text().replace('key_retention = "24h"', 'key_retention = "12h"'))
    assert desk.run("apply").code == 0
    why = desk.run.json("why", "op")
    assert why["contract"][0].startswith("Contract version 1 ")
    assert "another one is in force now" in why["contract"][1]
    # The shorter of the two windows is obeyed.
    assert 43_000 < desk.run.json("retry", "op", "--dry-run")["window_left_seconds"] < 43_200
    assert desk.run.json("show", "op")["contract"]["version"] == 1


def test_why_says_who_holds_the_lane_and_whether_a_reconciler_lives(desk: Desk) -> None:
    desk.unknown("op")
    why = desk.run.json("why", "op")
    assert "is held by" in why["lane"][0]
    assert f"fence {desk.holder.fence}" in why["lane"][0]
    assert "last renewed at" in why["lane"][0]
    assert why["reconciler"] == ["No reconciler is running. Start one: outbox reconciler."]
    desk.database.rows(
        "insert into outbox.member (member_id, kind, host, pid, version, seen_at)"
        " values (gen_random_uuid(), 'reconciler', 'h', 1, '1', outbox.now()),"
        " (%s, 'relay', 'relay-host', 4711, '1', outbox.now())",
        desk.holder.owner,
    )
    why = desk.run.json("why", "op")
    assert why["reconciler"][0].startswith("One reconciler that serves it is running")
    assert "held by the relay 4711 on relay-host" in why["lane"][0]
    desk.holder.give_back()
    assert "is held by nobody" in desk.run.json("why", "op")["lane"][0]


def test_why_ends_with_what_the_providers_support_will_ask_for(desk: Desk) -> None:
    seq = desk.unknown("op", answer=ANSWER)
    key = str(desk.stage.pending(seq)["sent_key"])
    support = desk.run.json("why", "op")["support"]
    assert support[0] == f"Key: {key}."
    assert all(fact in support[1] for fact in ("203.0.113.9:443", "504", "req_17", "Attempt 1: 20"))


@pytest.mark.parametrize(
    ("obstacle", "words"),
    [
        (
            "insert into outbox.pause values ('tool', 'inventory.set_available', outbox.now(), 'me', 'incident 7')",
            "incident 7",
        ),
        ("update outbox.tool set policy_version = 2", "policy"),
        (
            "update outbox.pending set next_at = outbox.now() + interval '1 hour', cause = 'throttled'",
            "come back later",
        ),
        ("update outbox.pending set expires_at = outbox.now() - interval '1 s'", "expired"),
        ("update outbox.lane set owner = null", "no relay holds its lane"),
    ],
)
def test_what_blocks_an_authorized_operation_is_named(desk: Desk, obstacle: Any, words: str) -> None:
    assert desk.holder.fence > 0
    desk.put("op")
    desk.database.rows(obstacle)
    assert words in desk.run.json("show", "op")["next"]["reason"]


def test_an_operation_behind_another_one_of_its_ordering_key_says_behind_which(desk: Desk) -> None:
    desk.unknown("first", ordering_key="k")
    desk.put("second", ordering_key="k")
    assert "operation first of the same ordering key" in desk.run.json("show", "second")["next"]["reason"]
    assert any("1 later operations" in line for line in desk.run.json("why", "first")["next"])


# ----------------------------------------------------------------------------------------------------------------- list


def listed(desk: Desk, *arguments: str) -> list[str]:
    return [item["operation_id"] for item in desk.run.json("list", *arguments)["items"]]


def test_list_filters_by_each_of_its_options(desk: Desk) -> None:
    desk.put("a", resource="r1")
    desk.unknown("b", BLIND)
    desk.unknown("c")
    desk.run.json("resolve", "c", "--succeeded", "--external-id", "re_9", "--evidence", "seen")
    desk.stage.put("d", KEYED, "another")
    assert listed(desk) == ["d", "c", "b", "a"]
    assert listed(desk, "--resource", "r1") == ["a"]
    assert listed(desk, "--tool", BLIND) == ["b"]
    assert listed(desk, "--state", "unknown") == ["b"]
    assert listed(desk, "--state", "succeeded") == ["c"]
    assert listed(desk, "--external-id", "re_9") == ["c"]
    assert listed(desk, "--external-id", "re_9", "--state", "unknown") == []
    assert listed(desk, "--tenant", "another") == ["d"]
    assert listed(desk, "--receiver", "warehouse") == ["d", "c", "b", "a"]
    assert listed(desk, "--cause", "timeout") == listed(desk, "--cause", "timeout", "--state", "unknown") == ["b"]
    assert listed(desk, "--cause", "person") == ["c"]
    assert listed(desk, "--state", "authorized", "--tenant", "shop", "--tool", KEYED, "--resource", "r1") == ["a"]
    assert listed(desk, "--since", "1h") == ["d", "c", "b", "a"]
    assert listed(desk, "--since", "2999-01-01T00:00:00Z") == []


@pytest.mark.parametrize("state", [None, "authorized"])
def test_pages_follow_each_other_without_gap_or_repetition(desk: Desk, state: str | None) -> None:
    for number in range(5):
        desk.put(f"op-{number}")
    found: list[str] = []
    cursor: str | None = None
    while True:
        arguments = [
            "list",
            "--limit",
            "2",
            *(["--state", state] if state else []),
            *(["--cursor", cursor] if cursor else []),
        ]
        page = desk.run.json(*arguments)
        assert page.keys() == {"items", "next"}
        found += [item["operation_id"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
        desk.put(f"later-{cursor}")
    assert found == ["op-4", "op-3", "op-2", "op-1", "op-0"]


def test_a_list_in_a_pipe_is_lines_of_cells(desk: Desk) -> None:
    desk.put("op", resource="a\tb")
    head, row = desk.run("list").out.splitlines()
    assert head.split("\t")[:3] == ["tenant_id", "operation_id", "state"]
    assert row.split("\t")[:3] == ["shop", "op", "authorized"]
    assert len(head.split("\t")) == len(row.split("\t"))


def test_a_viewer_may_list_and_see_what_is_stuck_but_no_arguments(desk: Desk) -> None:
    desk.put("op")
    desk.run.config.write_text(desk.run.config.read_text().replace(desk.database.dsn, desk.database.dsn_for("viewer")))
    for arguments in ((), ("--state", "authorized"), ("--since", "1h"), ("--external-id", "x")):
        assert desk.run("list", *arguments).code == 0
    assert desk.run("stuck").code == 0
    assert desk.run.refused("show", "op", code=5)["code"] == "not_permitted"


@pytest.mark.parametrize("state", [state.value for state in State])
def test_every_state_can_be_listed(desk: Desk, state: str) -> None:
    desk.in_state({"unknown": "unknown, no resend is"}.get(state, state), "op")
    assert listed(desk, "--state", state) == ["op"]


# ---------------------------------------------------------------------------------------------------------------- stuck


def stuck(desk: Desk, *arguments: str) -> dict[str, Any]:
    return {item.get("operation_id", item["kind"]): item for item in desk.run.json("stuck", *arguments)["items"]}


def test_what_moves_by_itself_is_not_stuck_and_can_be_seen_all_the_same(desk: Desk) -> None:
    desk.unknown("op")
    desk.put("fine")
    assert stuck(desk) == {}
    assert stuck(desk, "--all")["op"]["kind"] == "doubt"


def test_what_needs_a_person_is_stuck_with_the_reason_and_what_it_blocks(desk: Desk) -> None:
    desk.unknown("op", BLIND, answer={"steps": "person", "reasons": "no_lookup"}, ordering_key="k")
    desk.put("behind", BLIND, ordering_key="k")
    item = stuck(desk)["op"]
    assert (item["kind"], item["step"], item["blocks"]) == ("person", "person", 1)
    assert "cannot be asked" in item["why"]
    assert "outbox why" in item["blocked_by"]


SPENDING = """
[tools."pay.once"]
receiver = "warehouse"
deadline = "5s"
request = { path = "/pay" }
contract.key = { in = "header", name = "Idempotency-Key" }
contract.key_retention = "24h"
contract.in_flight_bound = "30s"
contract.retry = { attempts = 1 }
"""
NOBODY_TO_ASK = {"steps": "person", "reasons": "no_lookup"}


def spent(desk: Desk, name: str) -> None:
    """An operation that was sent as often as its back-off allows, within its window."""
    desk.run.config.write_text(desk.run.config.read_text() + SPENDING)
    assert desk.run("apply").code == 0
    desk.unknown(name, "pay.once", answer=NOBODY_TO_ASK)


def test_why_and_stuck_allow_what_a_retry_allows_once_the_back_off_is_spent(desk: Desk) -> None:
    spent(desk, "op")
    assert desk.run.json("retry", "op", "--dry-run")["allowed"]
    why = desk.run.json("why", "op")
    assert not any("may not be sent again" in line for line in why["next"])
    assert any("not sent again by itself" in line and "outbox retry op" in line for line in why["next"])
    assert any("with the same key until" in line for line in why["next"])
    row = stuck(desk)["op"]
    assert "as often as the back-off" in row["why"]
    assert "a person may send it again" in row["why"]
    assert row["why"] in desk.run.json("show", "op")["next"]["reason"]
    assert row["blocked_by"].endswith("or outbox retry op --tenant shop")
    assert desk.run("retry", "op").code == 0
    assert not any("by itself" in line for line in desk.run.json("why", "op")["next"]), "a person has said so"


def test_why_and_stuck_say_the_window_is_closed_once_a_retry_says_it(desk: Desk) -> None:
    spent(desk, "op")
    desk.clock.advance(25 * 3600)
    assert "window is closed" in desk.run.refused("retry", "op", code=4)["message"]
    assert any("may not be sent again: the window is closed" in line for line in desk.run.json("why", "op")["next"])
    row = stuck(desk)["op"]
    assert "the window is closed" in row["why"]
    assert "outbox retry" not in row["blocked_by"]


def test_stuck_tells_a_lost_answer_without_a_key_from_a_permission_that_is_gone(desk: Desk) -> None:
    desk.unknown("blind", BLIND, answer=NOBODY_TO_ASK)
    spent(desk, "revoked")
    desk.run.json("revoke", "revoked", "--reason", "changed her mind")
    desk.database.rows("update outbox.doubt set needs_person = true, reason = 'no_lookup'")
    rows = stuck(desk)
    assert "honours no key" in rows["blind"]["why"]
    assert "permission does not hold" in rows["revoked"]["why"]


def test_a_viewer_is_told_the_same_of_what_waits_for_a_person(desk: Desk) -> None:
    spent(desk, "op")
    seen = stuck(desk)["op"]["why"]
    desk.run.config.write_text(desk.run.config.read_text().replace(desk.database.dsn, desk.database.dsn_for("viewer")))
    assert stuck(desk)["op"]["why"] == seen


def test_a_new_version_with_other_answers_is_said_to_leave_an_operation_at_its_own(desk: Desk) -> None:
    spent(desk, "op")
    answers = 'contract.answers = [{ status = [200], means = "receipt" }]\n'
    desk.run.config.write_text(desk.run.config.read_text() + answers)
    assert desk.run("apply").code == 0
    assert any("another one is in force now" in line for line in desk.run.json("why", "op")["contract"])


def test_a_look_that_nobody_makes_is_late(desk: Desk) -> None:
    desk.unknown("op")
    desk.clock.advance(120)
    item = stuck(desk)["op"]
    assert (item["kind"], item["step"]) == ("late", "look")
    assert "does a reconciler live" in item["blocked_by"]


def test_a_lane_with_work_that_nobody_holds_is_stuck(desk: Desk) -> None:
    desk.put("op")
    assert stuck(desk) == {}
    desk.clock.advance(120)
    item = stuck(desk)["lane"]
    assert (item["receiver"], item["lanes"]) == ("warehouse", [0])


def test_lanes_of_one_receiver_that_nobody_holds_are_one_fact(desk: Desk) -> None:
    wide = '[receivers.wide]\ntransport = "http"\nbase_url = "http://127.0.0.1:9000"\nallow_private_addresses = true\n'
    many = 'lanes = 4\n[tools.many]\nreceiver = "wide"\ndeadline = "5s"\nrequest = { path = "/many" }\n'
    desk.run.config.write_text(f"{desk.run.config.read_text()}\n{wide}{many}")
    assert desk.run("apply").code == 0
    for number in range(40):
        desk.put(f"op-{number}", "many")
    desk.clock.advance(300)
    (item,) = [item for item in desk.run.json("stuck")["items"] if item["kind"] == "lane"]
    assert (item["receiver"], item["lanes"]) == ("wide", [0, 1, 2, 3])
    assert item["why"] == "work is due in lanes 0, 1, 2, 3 of wide"


def test_a_kill_switch_that_is_on_is_listed(desk: Desk) -> None:
    desk.database.rows("select outbox.pause_add('tool', %s, 'me', 'incident 7')", ASKING)
    item = stuck(desk)["paused"]
    assert (item["paused"], item["blocked_by"]) == ("tool grant.add", "me: outbox resume tool grant.add --reason TEXT")


def test_the_oldest_is_first_and_pages_follow_each_other(desk: Desk) -> None:
    for number in range(3):
        desk.unknown(f"op-{number}", BLIND, answer={"steps": "person"})
    first = desk.run.json("stuck", "--limit", "2")
    assert [item["operation_id"] for item in first["items"]] == ["op-0", "op-1"]
    second = desk.run.json("stuck", "--limit", "2", "--cursor", first["next"])
    assert [item["operation_id"] for item in second["items"]] == ["op-2"]
    assert second["next"] is None


def unsent(desk: Desk, name: str, cause: str, tool: str = KEYED, **columns: Any) -> int:
    """Put an operation whose attempt did not leave."""
    seq = desk.executing(name, tool, **columns)
    assert desk.holder.withdraw(seq, 1, causes=cause, delays=500.0) == [seq]
    return seq


def test_operations_that_do_not_leave_are_stuck_with_the_reason_and_a_command(desk: Desk) -> None:
    """One line for all that are in the same situation, with the oldest of them."""
    for name in ("first", "second"):
        unsent(desk, name, "no_connection")
    unsent(desk, "blind", "secret_missing", BLIND)
    assert stuck(desk) == {}, "one that has just been put is on its way"
    desk.clock.advance(120)
    items = stuck(desk)
    assert set(items) == {"first", "blind"}
    first, blind = items["first"], items["blind"]
    assert (first["kind"], first["step"], first["operations"], first["cause"]) == (
        "unsent",
        "begin",
        2,
        "no_connection",
    )
    assert "could not be reached (http://127.0.0.1:9000)" in first["why"]
    assert "outbox retry --receiver warehouse --cause no_connection" in first["blocked_by"]
    assert (blind["operations"], "receivers.warehouse.auth" in blind["why"]) == (1, True)


def test_a_backlog_and_a_history_are_not_scanned_for_what_is_stuck(desk: Desk) -> None:
    """Of each lane the oldest thousand are looked at, whatever statistics there are."""
    desk.stage.rows(
        """
        insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest)
        select 'shop', 'op-' || n, %s, 'svc', '{}', outbox.intent_digest('shop', 'op-' || n, %s, null, null, '{}')
        from generate_series(1, 20000) n
        """,
        KEYED,
        KEYED,
    )
    desk.stage.rows(
        "update outbox.pending set cause = 'no_connection', not_sent = 1, next_at = next_at + interval '1 h'"
    )
    desk.unknown("doubt", BLIND)
    desk.clock.advance(120)
    operator = desk.stage.as_role("operator")
    nobody = dict.fromkeys(("tenant_id", "tool", "receiver", "cause"))
    bounds = {"unsent": ["no_connection"], "late_seconds": 60.0, "looked_at_max": 1_000, "limit": 10}
    first_page = {"everything": True, "step": None, "after_since": None, "after_seq": None}
    for analyzed in (False, True):
        if analyzed:
            desk.stage.rows("vacuum analyze outbox.pending, outbox.intent, outbox.outcome")
        with operator.transaction(force_rollback=True):
            (row,) = operator.execute(sql.load("inspect")["stuck_unsent"], nobody | bounds).fetchall()
            (doubt,) = operator.execute(
                sql.load("inspect")["stuck_operations"], nobody | bounds | first_page
            ).fetchall()
            read = operator.execute(
                "select sum(seq_tup_read)::int as scanned, sum(idx_tup_fetch)::int as fetched"
                " from pg_stat_xact_user_tables where relname in ('intent', 'outcome', 'pending')"
            ).fetchall()
        assert (row["operations"], doubt["operation_id"]) == (1_000, "doubt")
        assert read[0]["scanned"] == 0, analyzed
        assert read[0]["fetched"] < 8_000, analyzed


def test_why_says_why_an_operation_was_not_sent_and_what_to_do(desk: Desk) -> None:
    text = desk.run.config.read_text()
    auth = 'auth = { kind = "bearer", secret = "env:STOCK_{tenant}", id = "a" }\nshared_credential = true'
    desk.run.config.write_text(text.replace("[tools.", f"{auth}\n[tools.", 1))
    assert desk.run("apply").code == 0
    unsent(desk, "op", "secret_missing")
    why = desk.run.json("why", "op")
    assert any("a credential is missing there, env:STOCK_shop" in line for line in why["known"])
    assert any("a credential is missing there, env:STOCK_shop" in line for line in why["next"])
    assert any("outbox retry --receiver warehouse --cause secret_missing" in line for line in why["next"])


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("select outbox.pause_add('tool', 'inventory.set_available', 'me', 'incident 7')", "incident 7"),
        (
            "update outbox.receiver set circuit_opened_at = now(), circuit_reason = 'down', circuit_retry_at = now()",
            "down",
        ),
    ],
)
def test_why_says_also_what_else_stands_in_the_way_of_what_was_not_sent(desk: Desk, how: Any, words: str) -> None:
    unsent(desk, "op", "left_alone")
    desk.database.rows(how)
    assert words in desk.run.json("why", "op")["next"][0]


def test_a_resend_that_does_not_leave_is_stuck_although_it_is_never_late(desk: Desk) -> None:
    seq = desk.unknown("op")
    desk.run.json("retry", "op")
    (again,) = desk.holder.begin_these(seq)
    desk.clock.advance(120)
    withdrawal = {"steps": "resend", "delays": 300.0, "patiences": 60.0, "causes": "tls_failed"}
    assert desk.holder.withdraw(seq, again["attempt"], **withdrawal) == [seq]
    item = stuck(desk)["op"]
    assert (item["kind"], item["step"], item["cause"]) == ("unsent", "resend", "tls_failed")
    assert "outbox retry" in item["blocked_by"]
    assert any("no answer came in time" in line for line in desk.run.json("why", "op")["known"])


def test_stuck_filters_by_each_of_its_options(desk: Desk) -> None:
    desk.unknown("person", BLIND, answer={"steps": "person", "reasons": "no_lookup", "causes": "shutdown"})
    desk.unknown("late")
    unsent(desk, "waiting", "no_connection", BLIND)
    against = desk.ended("against", "rejected")
    desk.stage.witness(against, "receipt", attempt=1, fence=desk.holder.fence, receipt="{}")
    desk.database.rows("select outbox.pause_add('tool', %s, 'me', 'x')", ASKING)
    desk.database.rows("select outbox.pause_add('tenant', 'globex', 'me', 'x')")
    desk.clock.advance(120)
    everything = {"person", "late", "waiting", "against", "paused"}
    assert set(stuck(desk)) == everything
    assert set(stuck(desk, "--receiver", "warehouse")) == everything
    assert set(stuck(desk, "--tool", BLIND, "--tenant", "shop")) == {"person", "waiting"}
    assert set(stuck(desk, "--tool", ASKING, "--tenant", "shop")) == {"paused"}
    assert set(stuck(desk, "--cause", "shutdown")) == {"person"}
    assert set(stuck(desk, "--cause", "no_connection")) == {"waiting"}
    assert set(stuck(desk, "--step", "person")) == {"person", "against"}
    assert set(stuck(desk, "--step", "look", "--tool", KEYED)) == {"late"}
    assert set(stuck(desk, "--step", "begin", "--tenant", "shop")) == {"waiting", "paused"}
    assert set(stuck(desk, "--step", "resend")) == set()


def test_unknown_since_is_one_date_wherever_it_is_told(desk: Desk) -> None:
    """An attempt that takes long to be given up: since then it is unknown, and not since it began."""
    seq = desk.executing("op", BLIND)
    desk.clock.advance(4)
    assert desk.holder.record_unknown(seq, 1, steps="person", reasons="no_lookup") == [seq]
    since = stuck(desk)["op"]["since"]
    assert desk.run.json("show", "op")["doubt"]["since"] == since
    told = since[:19].replace("T", " ")
    assert any(f"unknown since {told}Z" in line for line in desk.run.json("why", "op")["known"])


@pytest.mark.parametrize(
    ("command", "option"),
    [(command, option) for command in (("list",), ("stuck",)) for option in ("--tool", "--receiver")]
    + [(("retry", "--dry-run"), "--tool"), (("cancel", "--dry-run"), "--receiver")],
)
def test_a_tool_or_a_receiver_that_nobody_knows_is_answered_with_what_was_meant(
    desk: Desk, command: tuple[str, ...], option: str
) -> None:
    known = {"--tool": KEYED, "--receiver": "warehouse"}[option]
    desk.database.rows("select outbox.pause_add('tenant', 'globex', 'me', 'whatever is asked for')")
    error = desk.run.refused(*command, option, known[:-1], code=3)
    assert error["message"].endswith(f"did you mean {known!r}?")
    assert "outbox contracts" in error["hint"]
    assert desk.run(*command, option, known).code == 0, "where there is nothing of a known one, that is no error"


def test_a_cause_that_is_none_is_answered_with_what_was_meant(desk: Desk) -> None:
    for command in ("list", "stuck"):
        assert "did you mean 'timeout'?" in desk.run.refused(command, "--cause", "time-out", code=2)["message"]


def test_stuck_of_one_tenant_is_of_that_tenant_only(desk: Desk) -> None:
    desk.unknown("op", BLIND, answer={"steps": "person"})
    assert stuck(desk, "--tenant", "another") == {}
    assert set(stuck(desk, "--tenant", "shop")) == {"op"}
