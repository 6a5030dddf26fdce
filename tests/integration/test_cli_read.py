"""Looking: show, why, list, stuck. Whatever is known can be found out, and looking changes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
    assert desk.run.refused("cancel", "op", code=4)["message"].endswith("was purged.")


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
    assert (item["receiver"], item["lane"]) == ("warehouse", 0)


def test_a_kill_switch_that_is_on_is_listed(desk: Desk) -> None:
    desk.database.rows("select outbox.pause_add('tool', %s, 'me', 'incident 7')", ASKING)
    item = stuck(desk)["paused"]
    assert (item["paused"], item["blocked_by"]) == ("tool grant.add", "me")


def test_the_oldest_is_first_and_pages_follow_each_other(desk: Desk) -> None:
    for number in range(3):
        desk.unknown(f"op-{number}", BLIND, answer={"steps": "person"})
    first = desk.run.json("stuck", "--limit", "2")
    assert [item["operation_id"] for item in first["items"]] == ["op-0", "op-1"]
    second = desk.run.json("stuck", "--limit", "2", "--cursor", first["next"])
    assert [item["operation_id"] for item in second["items"]] == ["op-2"]
    assert second["next"] is None


def test_stuck_of_one_tenant_is_of_that_tenant_only(desk: Desk) -> None:
    desk.unknown("op", BLIND, answer={"steps": "person"})
    assert stuck(desk, "--tenant", "another") == {}
    assert set(stuck(desk, "--tenant", "shop")) == {"op"}
