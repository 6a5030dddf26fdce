"""Kill switches, order, and who did what: as an operator does it, and as the relay's own statements see it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.desk import ASKING, BLIND, KEYED, Desk
from tests.support.postgres import Database
from tests.support.stage import Stage

WHY = ("--reason", "ticket 4711")
# A key, and nothing to look up: what is in doubt is sent again.
LOOKLESS = "price.set"


MORE = """
[tools."price.set"]
receiver = "warehouse"
deadline = "5s"
request = { path = "/price" }
contract = { key = { in = "header", name = "Idempotency-Key" }, key_retention = "24h" }
"""


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Iterator[Desk]:
    with Stage(database) as stage:
        made = Desk(database, stage, tmp_path)
        made.run.config.write_text(made.run.config.read_text() + MORE)
        assert made.run("apply").code == 0
        yield made


def begins(desk: Desk, *seqs: int) -> list[int]:
    return [row["seq"] for row in desk.holder.begin_these(*seqs)]


# ---------------------------------------------------------------------------------------------------------------- pause


@pytest.mark.parametrize(("kind", "name"), [("receiver", "warehouse"), ("tool", KEYED), ("tenant", "shop")])
def test_a_pause_stops_the_next_begin_and_a_resume_lets_it_go_on(desk: Desk, kind: str, name: str) -> None:
    paused, other = desk.put("op"), desk.stage.put("other", BLIND, "another")
    running = desk.executing("running")
    assert desk.run.json("pause", kind, name, *WHY)["changed"]
    assert begins(desk, paused, other) == ([] if kind == "receiver" else [other])
    assert desk.holder.end((running, 1)) == [running], "what runs comes to its end"
    assert desk.run.json("resume", kind, name, *WHY)["changed"]
    assert begins(desk, paused) == [paused]


def test_a_pause_also_stops_a_resend(desk: Desk) -> None:
    seq = desk.unknown("op")
    assert desk.run("retry", "op").code == 0
    desk.run.json("pause", "tool", KEYED, *WHY)
    assert begins(desk, seq) == []
    assert desk.stage.state(seq) == "unknown"


def test_a_second_pause_changes_nothing_and_says_who_was_first(desk: Desk) -> None:
    desk.run.json("pause", "tenant", "shop", "--reason", "the first one")
    history = desk.stage.everything()
    again = desk.run("pause", "tenant", "shop", *WHY)
    assert again.code == 0
    assert "paused already" in again.out
    assert "the first one" in again.out
    assert desk.me in again.out
    assert desk.stage.everything() == history
    assert desk.run.json("resume", "tenant", "nobody", *WHY)["changed"] is False


def test_a_name_that_is_not_there_is_not_found_and_an_unknown_tenant_is_mentioned(desk: Desk) -> None:
    for act in ("pause", "resume"):
        assert desk.run.refused(act, "receiver", "warhouse", *WHY, code=3)["code"] == "not_found"
        assert desk.run.refused(act, "tool", "mail", *WHY, code=3)["code"] == "not_found"
    assert desk.run.json("pause", "tenant", "shp", *WHY)["known"] is False
    assert "spelled right" in desk.run("pause", "tenant", "sho", *WHY).out


def test_nobody_pauses_without_a_reason(desk: Desk) -> None:
    for act in ("pause", "resume"):
        assert "--reason" in desk.run.refused(act, "tenant", "shop", code=2)["message"]


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_kill_switch_of_something_unknown_is_answered_with_what_was_meant(desk: Desk, command: str) -> None:
    for kind, name, meant in (("receiver", "warehuose", "warehouse"), ("tool", "mail.sent", "mail.send")):
        error = desk.run.refused(command, kind, name, "--reason", "x", code=3)
        assert f"did you mean {meant!r}?" in error["message"]
    error = desk.run.refused("contracts", "mail.sent", code=3)
    assert "did you mean 'mail.send'?" in error["message"]


def test_what_is_paused_is_said_by_stuck_and_why_names_it_as_what_blocks(desk: Desk) -> None:
    desk.put("op")
    desk.run.json("pause", "tool", KEYED, *WHY)
    (item,) = desk.run.json("stuck")["items"]
    assert (item["kind"], item["paused"]) == ("paused", f"tool {KEYED}")
    assert item["blocked_by"] == f"{desk.me}: outbox resume tool {KEYED} --reason TEXT"
    (reason,) = [desk.run.json("show", "op")["next"]["reason"]]
    assert reason.startswith(f"tool {KEYED} is paused since ")
    assert reason.endswith(f"Z by {desk.me}: ticket 4711")


@pytest.mark.parametrize("how", ["pause", "circuit"])
def test_why_and_retry_name_the_command_that_lets_go_on_what_is_held(desk: Desk, how: str) -> None:
    desk.put("op")
    command = "outbox resume receiver warehouse --reason TEXT"
    assert command not in desk.run("why", "op").out + desk.run("retry", "op", "--dry-run").out
    if how == "pause":
        desk.run.json("pause", "receiver", "warehouse", *WHY)
    else:
        leave_alone(desk)
    for question in (("why", "op"), ("retry", "op", "--dry-run"), ("retry", "op")):
        assert command in desk.run(*question).out


def leave_alone(desk: Desk) -> None:
    desk.stage.rows(
        "update outbox.receiver set circuit_opened_at = outbox.now(), circuit_reason = 'no connection',"
        " circuit_probes = 2, circuit_retry_at = outbox.now() + interval '30 seconds'"
    )


def test_a_receiver_that_is_left_alone_is_said_by_stuck_and_by_why_of_what_waits_for_it(desk: Desk) -> None:
    desk.put("op")
    leave_alone(desk)
    (item,) = desk.run.json("stuck")["items"]
    assert (item["kind"], item["receiver"], "no connection" in item["why"]) == ("circuit", "warehouse", True)
    assert "2 probes have failed" in item["blocked_by"]
    following = desk.run.json("show", "op")["next"]
    assert (following["step"], following["at"]) == ("begin", item["at"])
    assert "receiver warehouse is left alone" in following["reason"]
    assert any("left alone" in line for line in desk.run.json("why", "op")["next"])
    assert desk.run.json("expedite", "op", *WHY)["blocked_by"] == ["circuit: warehouse"]
    assert desk.run.json("resume", "receiver", "warehouse", *WHY)["changed"]
    assert desk.stage.value("select circuit_retry_at <= outbox.now() from outbox.receiver")


@pytest.mark.parametrize("how", ["pause", "circuit"])
def test_what_keeps_a_resend_from_beginning_is_named_by_stuck_and_why(desk: Desk, how: str) -> None:
    desk.unknown("op", LOOKLESS)
    desk.run.json("retry", "op")
    if how == "pause":
        desk.run.json("pause", "tenant", "shop", *WHY)
    else:
        leave_alone(desk)
    words = {"pause": "tenant shop is paused", "circuit": "receiver warehouse is left alone"}[how]
    (item,) = (item for item in desk.run.json("stuck", "--all")["items"] if item["kind"] == "doubt")
    assert words in item["blocked_by"]
    following = desk.run.json("show", "op")["next"]
    assert (following["step"], words in following["reason"]) == ("resend", True)


# ---------------------------------------------------------------------------------------------------------------- order


def ordered(desk: Desk, *names: str, **columns: Any) -> list[int]:
    return [desk.put(name, ordering_key="customer-1", **columns) for name in names]


def test_an_unblocked_operation_lets_later_ones_of_its_key_pass_and_stays_what_it_is(desk: Desk) -> None:
    first, second, third = ordered(desk, "first", "second", "third")
    desk.executing("unrelated")
    assert begins(desk, first, second, third) == [first]
    desk.holder.record_unknown(first, 1)
    assert "first" in desk.run.json("show", "second")["next"]["reason"]
    answer = desk.run.json("unblock", "first", *WHY)
    assert (answer["state"], answer["waiting"], answer["ordering_key"]) == ("unknown", 2, "customer-1")
    assert begins(desk, second, third) == [second], "the next one blocks in its turn"
    assert desk.stage.state(first) == "unknown"


def test_what_blocks_nothing_cannot_be_unblocked(desk: Desk) -> None:
    desk.put("op")
    assert "no ordering key" in desk.run.refused("unblock", "op", *WHY, code=4)["message"]


def test_stuck_says_how_many_operations_a_doubt_blocks(desk: Desk) -> None:
    first, *_ = ordered(desk, "first", "second", "third", tool=BLIND)
    begins(desk, first)
    desk.holder.record_unknown(first, 1, steps="person", reasons="no_lookup")
    (item,) = desk.run.json("stuck")["items"]
    assert (item["operation_id"], item["blocks"]) == ("first", 2)


def test_an_expedited_operation_is_due_at_once_and_whoever_holds_the_lane_hears_of_it(desk: Desk) -> None:
    seq = desk.executing("op")
    desk.holder.withdraw(seq, 1, delays=5_000.0)
    assert begins(desk, seq) == []
    listener = desk.stage.connect("relay")
    listener.execute("listen bell")
    desk.holder.run("set_bell", idle=False, bell="bell", crowd=[])
    answer = desk.run.json("expedite", "op", *WHY)
    assert (answer["state"], answer["blocked_by"]) == ("authorized", [])
    (rung,) = listener.notifies(timeout=10, stop_after=1)
    assert rung.payload.endswith(f"/{seq}")
    assert begins(desk, seq) == [seq]


def test_expediting_passes_no_check_and_says_what_blocks(desk: Desk) -> None:
    _, second = ordered(desk, "first", "second")
    desk.run.json("pause", "tenant", "shop", *WHY)
    answer = desk.run.json("expedite", "second", *WHY)
    assert answer["blocked_by"] == ["paused: tenant shop", "blocked: first"]
    assert begins(desk, second) == []
    early = desk.put("early", not_before="2100-01-01")
    desk.run.json("expedite", "early", *WHY)
    assert begins(desk, early) == []


@pytest.mark.parametrize("state", ["proposed", "executing", "unknown, a resend is safe", "succeeded", "rejected"])
def test_only_an_authorized_operation_can_be_expedited(desk: Desk, state: str) -> None:
    desk.in_state(state, "op")
    history = desk.stage.everything()
    desk.run.refused("expedite", "op", *WHY, code=4)
    assert desk.stage.everything() == history


# ---------------------------------------------------------------------------------------------------------------- audit


def test_every_act_on_the_system_is_recorded_with_who_and_why_the_newest_first(desk: Desk) -> None:
    ordered(desk, "first", "second")
    desk.run.json("pause", "tool", KEYED, "--reason", "one")
    desk.run.json("resume", "tool", KEYED, "--reason", "two")
    desk.run.json("unblock", "first", "--reason", "three")
    desk.run.json("expedite", "first", "--reason", "four")
    desk.run.json("retry", "first")
    items = desk.run.json("audit")["items"]
    told = [(item["act"], item["target"], item["reason"]) for item in items]
    assert told == [
        ("retry", "shop first", "the back-off was ended"),
        ("expedite", "shop first", "four"),
        ("unblock", "shop first", "three"),
        ("resume", f"tool {KEYED}", "two"),
        ("pause", f"tool {KEYED}", "one"),
    ]
    assert {item["acted_by"] for item in items} == {desk.me}
    assert [item["act"] for item in desk.run.json("audit", "--act", "pause")["items"]] == ["pause"]


def test_the_audit_tells_what_people_decided_about_one_operation_too(desk: Desk) -> None:
    desk.run.json("approve", desk_proposed(desk, "one"), "--digest", digest(desk, "one"), "--reason", "as agreed")
    desk.run.json("revoke", "one", "--reason", "not any more")
    desk.put("two")
    desk.run.json("cancel", "two")
    for name, said in (("three", "--succeeded"), ("four", "--no-effect")):
        desk.unknown(name)
        desk.clock.advance(10_000)
        desk.run.json("resolve", name, said, "--evidence", "their log")
    items = desk.run.json("audit")["items"]
    assert [(item["act"], item["target"], item["reason"]) for item in items] == [
        ("resolve", "shop four", "no effect: their log"),
        ("resolve", "shop three", "succeeded: their log"),
        ("cancel", "shop two", None),
        ("revoke", "shop one", "not any more"),
        ("approve", "shop one", "as agreed"),
    ]
    assert {item["acted_by"] for item in items} == {desk.me}
    assert [item["target"] for item in desk.run.json("audit", "--act", "cancel")["items"]] == ["shop two"]
    # Each once, in pages of one.
    page, seen = desk.run.json("audit", "--limit", "1"), []
    while True:
        seen += page["items"]
        if page["next"] is None:
            break
        page = desk.run.json("audit", "--limit", "1", "--cursor", page["next"])
    assert seen == items


def desk_proposed(desk: Desk, name: str) -> str:
    desk.in_state("proposed", name)
    return name


def digest(desk: Desk, name: str) -> str:
    return str(desk.run.json("show", name)["digest"])


def test_the_audit_comes_in_pages(desk: Desk) -> None:
    for number in range(5):
        desk.run.json("pause", "tenant", f"t{number}", *WHY)
    seen: list[str] = []
    cursor: tuple[str, ...] = ()
    while True:
        page = desk.run.json("audit", "--limit", "2", *cursor)
        seen += [item["target"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = ("--cursor", page["next"])
    assert seen == [f"tenant t{number}" for number in reversed(range(5))]
    assert desk.run("audit", "--cursor", "x").code == 2


# --------------------------------------------------------------------------------------------------------------- repair


def lose(desk: Desk, *names: str, tool: str = KEYED) -> None:
    """Write intents that no trigger sees, as a restore without triggers does."""
    desk.stage.admin.execute("set session_replication_role = replica")
    for name in names:
        desk.stage.admin.execute(
            "insert into outbox.intent (tenant_id, operation_id, tool, arguments, principal_id, digest)"
            " values ('shop', %s, %s, '{}', 'svc', outbox.intent_digest('shop', %s, %s, null, null, '{}'))",
            [name, tool, name, tool],
        )
    desk.stage.admin.execute("set session_replication_role = origin")


def test_intents_that_no_trigger_placed_become_unknown_and_are_looked_up(desk: Desk) -> None:
    desk.put("placed")
    desk.ended("ended", "succeeded")
    lose(desk, "a", "b")
    lose(desk, "c", tool="not.registered")
    listed = desk.run.json("repair", "--dry-run")["items"]
    assert [item["operation_id"] for item in listed] == ["a", "b", "c"]
    report = desk.run.json("repair")
    assert (report["placed"], report["toolless"]) == (2, 1)
    shown = desk.run.json("show", "a")
    assert (shown["state"], shown["cause"], shown["next"]["step"]) == ("unknown", "unplaced", "look")
    assert [item["operation_id"] for item in desk.run.json("repair", "--dry-run")["items"]] == ["c"]
    again = desk.run.json("repair")
    assert (again["placed"], again["toolless"]) == (0, 1)
    assert [item["target"] for item in desk.run.json("audit", "--act", "repair")["items"]] == ["2 operations"]


def test_a_repaired_operation_is_never_sent_by_itself(desk: Desk) -> None:
    """Nobody can know whether an attempt was made, so its window is that of a request sent when it was written."""
    lose(desk, "a")
    desk.run.json("repair")
    (seq,) = (row["seq"] for row in desk.stage.rows("select seq from outbox.doubt"))
    assert begins(desk, seq) == []
    assert desk.run.refused("retry", "a", code=4)
    assert desk.run.refused("cancel", "a", code=4)


@pytest.mark.parametrize("state", ["proposed", "authorized"])
def test_a_dry_run_of_one_changes_nothing(desk: Desk, state: str) -> None:
    desk.in_state(state, "op")
    history = desk.stage.everything()
    assert desk.run.json("cancel", "op", "--dry-run")["dry_run"] is True
    assert desk.stage.everything() == history


def test_a_role_without_the_right_is_told_so(desk: Desk) -> None:
    desk.put("op", ASKING)
    desk.run.config.write_text(
        desk.run.config.read_text().replace(desk.database.dsn, desk.database.dsn_for("approver"))
    )
    for arguments in (
        ("pause", "tenant", "shop", *WHY),
        ("resume", "tenant", "shop", *WHY),
        ("unblock", "op", *WHY),
        ("expedite", "op", *WHY),
        ("redact", "op", *WHY, "--yes"),
        ("purge", "--older-than", "1d", "--yes"),
        ("repair",),
    ):
        assert desk.run.refused(*arguments, code=5)["code"] == "not_permitted", arguments
    assert desk.run.json("audit")["items"] == []


# ------------------------------------------------------------------------------------------------------ what is written


def documented() -> list[tuple[str, str, str]]:
    """The cells of the table of upkeep: command, state, what happens."""
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    (head,) = (row for row in rows if row[0] == "upkeep")
    table = rows[rows.index(head) + 1 :][:3]
    return [(row[0], state, cell) for row in table for state, cell in zip(head[1:], row[1:], strict=True)]


@pytest.mark.parametrize(("command", "state", "cell"), documented())
def test_upkeep_does_what_the_table_says(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, command: str, state: str, cell: str
) -> None:
    put = desk.put
    if "ordering key" in command:
        monkeypatch.setattr(desk, "put", lambda name, tool=KEYED: put(name, tool, ordering_key="k"))
    seq = desk.in_state(state, "op")
    before, history = desk.stage.state(seq), desk.stage.everything()
    act = command.split("`")[1]
    result = desk.run(act, "op", *WHY, *(("--yes",) if act == "redact" else ()), "--json")
    assert result.code == (4 if cell == "refused" else 0), result
    assert desk.stage.state(seq) == before
    assert (desk.stage.everything() == history) is (cell == "refused")
