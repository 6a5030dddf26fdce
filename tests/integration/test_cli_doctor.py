"""The doctor on a real database: each illness brought about, found, and healed by what it says."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox.cli.doctor import EXIT_PROBLEM
from outbox.doctor import CHECKS
from tests.support.desk import ASKING, BLIND, KEYED, Desk
from tests.support.eventually import eventually
from tests.support.postgres import Database, Role
from tests.support.stage import Stage


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Iterator[Desk]:
    with Stage(database) as stage:
        yield Desk(database, stage, tmp_path)


def live(desk: Desk) -> None:
    """Two daemons that have just been heard of."""
    desk.stage.rows(
        "insert into outbox.member (member_id, kind, host, pid, version, receivers)"
        " select gen_random_uuid(), kind, 'here', 1, '1', null from unnest(array['relay', 'reconciler']) kind"
    )


def examine(desk: Desk, *arguments: str) -> list[dict[str, Any]]:
    """What is wrong beyond what is always so here: the test's server does not sync, and its clock is a simulation."""
    result = desk.run("doctor", *arguments, "--json")
    items: list[dict[str, Any]] = result.json["items"]
    assert result.code == (EXIT_PROBLEM if result.json["problems"] else 0)
    always = ("fsync", "full_page_writes", "simulation")
    return [item for item in items if item["level"] != "ok" and not any(word in item["found"] for word in always)]


def found(desk: Desk, *arguments: str) -> list[tuple[str, str]]:
    return [(item["level"], item["check"]) for item in examine(desk, *arguments)]


def test_a_healthy_outbox_has_no_findings_and_every_check_says_what_it_looked_at(desk: Desk) -> None:
    live(desk)
    assert found(desk) == []
    document = desk.run("doctor", "--json").json
    assert {item["check"] for item in document["items"]} >= {
        *("schema", "server", "roles", "clock", "registry", "xmin", "bloat", "replication"),
        *("daemons", "lanes", "sending", "pauses", "doubts", "placement"),
    }
    assert len(document["items"]) >= len(CHECKS)
    assert found(desk, "--all") == []


def test_it_tells_a_server_that_does_not_sync_and_a_clock_that_is_moved(desk: Desk) -> None:
    desk.clock.advance(86_400)
    items = desk.run("doctor", "--json").json["items"]
    problems = [item["found"] for item in items if item["level"] == "problem"]
    assert any("fsync is off" in problem for problem in problems)
    assert any("simulation" in problem for problem in problems)


def test_it_changes_nothing(desk: Desk) -> None:
    desk.unknown("op")
    history = desk.stage.everything()
    desk.run("doctor", "--all")
    assert desk.stage.everything() == history


def test_a_broken_index_and_a_trigger_that_is_off_are_problems_and_their_remedies_are_statements(desk: Desk) -> None:
    live(desk)
    desk.stage.rows("update pg_index set indisvalid = false where indexrelid = 'outbox.doubt_due'::regclass")
    desk.stage.rows("alter table outbox.intent disable trigger place")
    items = examine(desk)
    assert [item["level"] for item in items] == ["problem", "problem"]
    for item in items:
        desk.stage.admin.execute(item["advice"].partition(";")[0].removeprefix("in psql: ").encode())
    assert found(desk) == []


@pytest.mark.parametrize(
    ("shift", "level", "advice"), [(-1, "problem", "outbox migrate"), (1, "warning", "install the release")]
)
def test_a_schema_of_another_version_is_told_with_what_to_run(desk: Desk, shift: int, level: str, advice: str) -> None:
    live(desk)
    desk.stage.rows("update outbox.instance set schema_version = schema_version + %s", shift)
    (item,) = examine(desk)
    assert (item["level"], item["check"], advice in item["advice"]) == (level, "schema", True)


def test_a_database_that_another_server_has_written_is_told_until_a_daemon_has_come(desk: Desk) -> None:
    live(desk)
    desk.stage.rows("update outbox.instance set system_identifier = 1")
    (item,) = examine(desk)
    assert (item["level"], item["check"], "start a daemon" in item["advice"]) == ("warning", "schema", True)
    desk.stage.rows("select outbox.enter_era((pg_control_system()).system_identifier, outbox.timeline())")
    assert found(desk) == []


def test_a_constraint_that_was_never_checked_is_a_problem_with_its_remedy(desk: Desk) -> None:
    live(desk)
    desk.stage.rows("alter table outbox.doubt add constraint reads_are_few check (reads < 1000000) not valid")
    (item,) = examine(desk)
    assert (item["level"], item["check"], "reads_are_few" in item["found"]) == ("problem", "schema", True)
    desk.stage.admin.execute(item["advice"].removeprefix("in psql: ").encode())
    assert found(desk) == []


def test_a_role_that_may_not_enter_is_a_problem_until_the_grants_are_renewed(desk: Desk) -> None:
    live(desk)
    desk.stage.rows("revoke usage on schema outbox from outbox_reconciler")
    (item,) = examine(desk)
    assert (item["level"], item["check"], "outbox_reconciler" in item["found"]) == ("problem", "roles", True)
    assert "outbox migrate" in item["advice"]
    assert desk.run("migrate").code == 0
    assert found(desk) == []


def test_a_host_whose_clock_is_wrong_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    live(desk)
    right = time.time
    monkeypatch.setattr("outbox.doctor.foundation.time.time", lambda: right() + 3_600)
    (item,) = examine(desk)
    assert (item["level"], item["check"], "60 min ahead" in item["found"]) == ("warning", "clock", True)


def test_a_busy_table_that_is_mostly_dead_is_told_and_healed_by_what_is_advised(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(desk)
    monkeypatch.setattr("outbox.doctor.storage.DEAD_ROWS_MIN", 50)
    admin = desk.stage.admin
    admin.execute("alter table outbox.member set (autovacuum_enabled = off)")
    admin.execute(
        "insert into outbox.member (member_id, kind, host, pid, version, seen_at)"
        " select gen_random_uuid(), 'relay', 'h', n, '1', '-infinity' from generate_series(1, 200) n"
    )
    assert found(desk) == []
    admin.execute("delete from outbox.member where host = 'h'")
    admin.execute("select pg_stat_force_next_flush()")
    eventually(lambda: found(desk) == [("warning", "bloat")])
    (item,) = examine(desk)
    assert "member has 200 dead rows" in item["found"]
    admin.execute(item["advice"].partition("in psql: ")[2].encode())
    admin.execute("select pg_stat_force_next_flush()")
    eventually(lambda: found(desk) == [])


def test_tools_without_a_key_are_named_while_a_standby_is_fed_that_no_commit_waits_for(desk: Desk) -> None:
    live(desk)
    # A connection that streams the log, as that of a standby.
    with psycopg.connect(desk.database.dsn, replication="database", autocommit=True):
        (item,) = examine(desk)
        assert (item["level"], item["check"]) == ("problem", "replication")
        assert f"{ASKING}, {BLIND}" in item["found"]
        assert KEYED not in item["found"]
        assert "synchronous_standby_names" in item["advice"]
    eventually(lambda: found(desk) == [])


def test_a_role_whose_settings_were_changed_is_a_problem_however_they_were_changed(desk: Desk) -> None:
    live(desk)
    name = desk.stage.value("select quote_ident(current_database())")
    admin = desk.stage.admin
    try:
        admin.execute(f"alter role outbox_relay in database {name} set synchronous_commit = off".encode())
        admin.execute(f"alter role outbox_reconciler in database {name} reset lock_timeout".encode())
        told = " ".join(item["found"] for item in examine(desk))
        assert "outbox_relay: synchronous_commit = off" in told
        assert "outbox_reconciler: lock_timeout is not set" in told
    finally:
        admin.execute(f"alter role outbox_relay in database {name} set synchronous_commit = on".encode())
        admin.execute(f"alter role outbox_reconciler in database {name} set lock_timeout = '3s'".encode())
    assert found(desk) == []


def test_a_file_that_is_not_in_force_is_told_by_what_differs(desk: Desk) -> None:
    live(desk)
    text = desk.run.config.read_text()
    desk.run.config.write_text(text.replace('key_retention = "24h"', 'key_retention = "12h"') + NEW_TOOL)
    (item,) = examine(desk)
    assert item["found"] == f"tool {KEYED} is another in the file; tool new.tool is not applied"
    assert desk.run("apply").code == 0
    assert found(desk) == []
    desk.run.config.write_text(text + "[tools.broken]\n")
    (item,) = examine(desk)
    assert (item["level"], "tools.broken" in item["found"]) == ("problem", True)


NEW_TOOL = """
[tools."new.tool"]
receiver = "warehouse"
request = { path = "/new" }
"""


def test_whoever_holds_back_the_cleaning_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    live(desk)
    monkeypatch.setattr("outbox.doctor.storage.HELD_SECONDS_MAX", 0.0)
    holder = desk.stage.session("viewer")
    holder.execute("begin isolation level repeatable read")
    holder.execute("select count(*) from outbox.pending")
    pid = holder.info.backend_pid
    assert any(f"session {pid}" in item["found"] for item in examine(desk) if item["check"] == "xmin")
    holder.execute("rollback")
    holder.execute("begin")
    holder.execute("select pg_current_xact_id()")
    holder.execute("prepare transaction 'forgotten'")
    try:
        assert any("prepared transaction forgotten" in item["found"] for item in examine(desk))
    finally:
        holder.execute("rollback prepared 'forgotten'")


def test_without_daemons_work_that_is_due_is_a_problem(desk: Desk) -> None:
    assert found(desk) == [("warning", "daemons"), ("warning", "daemons")]
    desk.put("op")
    assert found(desk) == [("problem", "daemons"), ("problem", "daemons")]
    desk.clock.advance(120)
    assert ("problem", "lanes") in found(desk)


def test_operations_that_do_not_leave_are_told_with_the_reason_until_they_are_tried_again(desk: Desk) -> None:
    for name, cause in (("a", "secret_missing"), ("b", "secret_missing"), ("c", "no_connection")):
        seq = desk.executing(name)
        desk.holder.withdraw(seq, 1, causes=cause, delays=500.0)
    live(desk)
    assert found(desk) == []
    desk.clock.advance(120)
    live(desk)
    items = examine(desk)
    assert [(item["level"], item["check"]) for item in items] == [("problem", "sending"), ("warning", "sending")]
    assert items[0]["found"].startswith(f"2 operations of {KEYED} wait: nothing left")
    assert "receivers.warehouse.auth" in items[0]["advice"]
    for item in items:
        command = item["advice"].partition("outbox ")[2].split()
        assert desk.run(*command, "--yes").code == 0
    for seq in (1, 2, 3):
        assert desk.holder.begin_these(seq)
    assert found(desk) == []


def test_pauses_and_circuits_are_told_with_who_why_and_how_to_end_them(desk: Desk) -> None:
    live(desk)
    for kind, name in (("receiver", "warehouse"), ("tenant", "acme")):
        desk.run.json("pause", kind, name, "--reason", "ticket 4711")
    desk.stage.rows(
        "update outbox.receiver set circuit_opened_at = outbox.now(), circuit_retry_at = outbox.now(),"
        " circuit_reason = 'no connection'"
    )
    items = examine(desk)
    assert [(item["level"], item["check"]) for item in items] == [
        ("warning", "pauses"),
        ("warning", "circuits"),
        ("warning", "pauses"),
    ]
    assert "ticket 4711" in items[0]["found"]
    assert "no connection" in items[1]["found"]
    assert all("outbox resume" in item["advice"] for item in items)


def test_a_monitor_hears_of_what_stands_still_until_somebody_acts(desk: Desk) -> None:
    live(desk)
    desk.unknown("person", BLIND, answer={"steps": "person", "reasons": "no_lookup"})
    desk.stage.rows("update outbox.receiver set circuit_opened_at = outbox.now(), circuit_retry_at = outbox.now()")
    assert found(desk) == [("warning", "circuits"), ("warning", "doubts")]
    desk.clock.advance(1_000)
    live(desk)
    desk.stage.rows("select outbox.pause_add('receiver', 'warehouse', 'relay', 'our credential was refused')")
    assert found(desk) == [("problem", "pauses"), ("problem", "circuits"), ("problem", "doubts")]
    command = desk.run("doctor", "--json").json
    (advice,) = [item["advice"] for item in command["items"] if item["check"] == "pauses"]
    assert advice.startswith("outbox resume receiver warehouse")
    desk.run.json(*advice.removeprefix("outbox ").replace("...", "repaired").split())
    assert ("problem", "pauses") not in found(desk)


def test_doubts_windows_and_contradictions_are_told(desk: Desk) -> None:
    live(desk)
    desk.unknown("closing")
    desk.clock.advance(86_400 - 600)
    live(desk)
    desk.unknown("person", BLIND, answer={"steps": "person", "reasons": "no_lookup"})
    against = desk.ended("against", "rejected")
    desk.stage.witness(against, "receipt", attempt=1, fence=1, receipt="{}")
    assert found(desk) == [
        ("problem", "contradictions"),
        ("problem", "doubts"),
        ("warning", "doubts"),
        ("warning", "windows"),
    ]


def test_an_intent_that_was_never_placed_is_a_problem_until_it_is_repaired(desk: Desk) -> None:
    live(desk)
    desk.stage.rows("set session_replication_role = replica")
    desk.stage.rows(
        "insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest)"
        " values ('shop', 'lost', %s, 'svc', '{}', outbox.intent_digest('shop', 'lost', %s, null, null, '{}'))",
        KEYED,
        KEYED,
    )
    desk.stage.rows("set session_replication_role = origin")
    (item,) = examine(desk)
    assert (item["level"], item["check"], "lost" in item["found"]) == ("problem", "placement", True)
    desk.run.json("repair")
    assert found(desk) == []


def test_warnings_count_only_where_somebody_is_strict(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def calm(_: Any) -> list[Any]:
        from outbox.doctor.finding import warning

        return [warning("x", "not nice", "do something")]

    monkeypatch.setattr("outbox.cli.doctor.diagnose", calm)
    assert desk.run("doctor").code == 0
    strict = desk.run("doctor", "--strict")
    assert (strict.code, "not nice" in strict.out, "do something" in strict.out) == (EXIT_PROBLEM, True, True)


def test_a_role_that_may_not_see_something_is_told_what_was_not_checked(desk: Desk) -> None:
    live(desk)
    text = desk.run.config.read_text()
    for role in ("operator", "approver", "viewer"):
        desk.run.config.write_text(text.replace(desk.database.dsn, desk.database.dsn_for(role)))
        items = examine(desk)
        not_checked = {item["check"] for item in items if item["found"].startswith("not checked")}
        assert ("placement" in not_checked) is (role in {"viewer", "approver"})
        assert not any(item["level"] == "problem" for item in items)


@pytest.mark.parametrize("role", ["writer"])
def test_a_role_that_may_make_no_check_is_refused_and_not_told_that_all_is_well(desk: Desk, role: Role) -> None:
    text = desk.run.config.read_text()
    desk.run.config.write_text(text.replace(desk.database.dsn, desk.database.dsn_for(role)))
    error = desk.run.refused("doctor", code=5)
    assert (error["code"], "outbox_operator" in error["hint"]) == ("not_permitted", True)


def test_a_database_without_the_schema_is_said_in_one_sentence(desk: Desk, empty_database: Database) -> None:
    text = desk.run.config.read_text()
    desk.run.config.write_text(text.replace(desk.database.dsn, empty_database.dsn))
    assert "outbox migrate" in desk.run.refused("doctor", code=5)["hint"]


def test_a_refused_credential_is_told_at_once_with_its_status_its_reference_and_the_command(desk: Desk) -> None:
    live(desk)
    auth = 'auth = { kind = "bearer", id = "token", secret = "env:WAREHOUSE_TOKEN" }\nshared_credential = true\n'
    desk.run.config.write_text(desk.run.config.read_text().replace("allow_private", auth + "allow_private"))
    assert desk.run("apply").code == 0
    refused = {"causes": "receiver_fault", "not_sents": False, "statuses": 401, "excerpts": "who are you?"}
    for name in ("a", "b"):
        desk.holder.withdraw(desk.executing(name), 1, delays=500.0, **refused)
    again = desk.unknown("again", answer={"steps": "resend"})
    desk.stage.rows("update outbox.pending set next_at = outbox.now() where seq = %s", again)
    assert desk.holder.begin_these(again)
    desk.holder.withdraw(again, 2, steps="resend", delays=500.0, **refused)
    (item,) = examine(desk)
    assert (item["level"], item["check"]) == ("problem", "sending")
    assert item["found"].startswith(f"2 operations of {KEYED} wait")
    (stuck,) = desk.run.json("stuck")["items"]
    assert (stuck["kind"], stuck["operations"], stuck["cause"]) == ("refused", 2, "receiver_fault")
    for said in (item["found"], stuck["why"], desk.run("why", "a").out, desk.run("why", "again").out):
        assert "status 401" in said
        assert "env:WAREHOUSE_TOKEN (receivers.warehouse.auth)" in said
    assert "outbox retry --receiver warehouse --cause receiver_fault" in item["advice"]
    assert "the answer proves nothing" not in desk.run("why", "a").out
    assert "no answer came in time" in desk.run("why", "again").out
    (attempt,) = desk.run.json("show", "a")["attempts"]
    assert (attempt["attempt"], attempt["status"], attempt["excerpt"]) == (1, 401, "who are you?")
    desk.clock.advance(120)
    live(desk)
    assert {row["operation_id"] for row in desk.run.json("stuck")["items"] if row["kind"] == "refused"} == {
        "a",
        "again",
    }
    assert desk.run("retry", "--receiver", "warehouse", "--cause", "receiver_fault", "--yes").code == 0


@pytest.mark.parametrize("what", ["an attempt that began", "work behind one that waits"])
def test_a_lane_whose_relay_has_died_is_told_soon_after_its_lease_has_ended(desk: Desk, what: str) -> None:
    live(desk)
    first = desk.executing("first")
    if what == "work behind one that waits":
        desk.holder.withdraw(first, 1, delays=50_000.0)
        desk.put("second")
    desk.clock.advance(120)
    live(desk)
    assert "lanes" not in {item["check"] for item in examine(desk)}
    desk.stage.rows("update outbox.lane set expires_at = outbox.now()")
    assert "lanes" not in {item["check"] for item in examine(desk)}
    desk.clock.advance(16)
    live(desk)
    assert ("problem", "lanes") in found(desk)
    assert "lane" in {item["kind"] for item in desk.run.json("stuck")["items"]}
