"""The same act on many operations: selected as it says, bounded, refused one by one, and done once."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outbox.cli import main
from tests.support.desk import ASKING, BLIND, KEYED, Desk
from tests.support.eventually import eventually
from tests.support.postgres import Database
from tests.support.stage import Stage

SAY = ("--evidence", "their log of 30 Nov", "--yes")


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Iterator[Desk]:
    with Stage(database) as stage:
        yield Desk(database, stage, tmp_path)


def bulk(desk: Desk, *arguments: str, code: int = 0) -> Any:
    result = desk.run(*arguments, "--json")
    assert result.code == code, result
    return result.json


def done(report: Any, result: str = "done") -> list[str]:
    return [item["operation_id"] for item in report["items"] if item["result"] == result]


def due(desk: Desk) -> int:
    number: int = desk.stage.value(
        "select count(*) from outbox.pending"
        " where next_at <= outbox.now() and (state = 'authorized' or step = 'resend')"
    )
    return number


# --------------------------------------------------------------------------------------------------------------- select


def test_operations_are_selected_by_tool_cause_receiver_tenant_and_age(desk: Desk) -> None:
    desk.unknown("old", BLIND)
    desk.clock.advance(3_700)
    desk.unknown("keyed")
    desk.unknown("shut", BLIND, answer={"causes": "shutdown"})
    another = desk.stage.put("another", BLIND, "globex")
    desk.holder.begin_these(another)
    desk.holder.record_unknown(another, 1)
    desk.put("authorized")
    look = ("resolve", "--succeeded", "--evidence", "x", "--dry-run")
    assert done(bulk(desk, *look, "--all"), "would") == ["old", "keyed", "shut", "another"]
    assert done(bulk(desk, *look, "--tool", BLIND), "would") == ["old", "shut", "another"]
    assert done(bulk(desk, *look, "--cause", "shutdown"), "would") == ["shut"]
    assert done(bulk(desk, *look, "--older-than", "1h"), "would") == ["old"]
    assert done(bulk(desk, *look, "--receiver", "warehouse", "--tenant", "globex"), "would") == ["another"]
    assert done(bulk(desk, *look, "--tool", KEYED, "--cause", "shutdown"), "would") == []
    assert done(bulk(desk, *look, "--tool", BLIND, "--older-than", "1h", "--cause", "timeout"), "would") == ["old"]


def waiting(desk: Desk, name: str, tool: str, cause: str) -> None:
    """Put an operation that all three kinds of act could be meant for, were it not for its state."""
    desk.unknown(f"{name}-unknown", tool, answer={"causes": cause})
    seq = desk.executing(f"{name}-authorized", tool)
    desk.holder.withdraw(seq, 1, delays=50_000.0, causes=cause)


@pytest.mark.parametrize(
    ("act", "state"),
    [(("retry",), None), (("cancel",), "authorized"), (("resolve", "--succeeded", "--evidence", "x"), "unknown")],
    ids=["retry", "cancel", "resolve"],
)
def test_each_act_selects_by_each_option_and_a_dry_run_changes_nothing(
    desk: Desk, act: tuple[str, ...], state: str | None
) -> None:
    waiting(desk, "old", KEYED, "timeout")
    desk.clock.advance(3_700)
    waiting(desk, "blind", BLIND, "timeout")
    waiting(desk, "other", KEYED, "ambiguous")
    history = desk.stage.everything()

    def selected(*options: str) -> set[str]:
        report = desk.run(*act, *options, "--dry-run", "--json").json
        return {item["operation_id"] for item in report["items"]}

    def of(*names: str) -> set[str]:
        states = [state] if state else ["unknown", "authorized"]
        return {f"{name}-{one}" for name in names for one in states}

    assert selected("--all") == of("old", "blind", "other")
    assert selected("--tool", BLIND) == of("blind")
    assert selected("--cause", "timeout") == of("old", "blind")
    assert selected("--older-than", "1h") == of("old")
    assert selected("--cause", "timeout", "--tool", KEYED, "--receiver", "warehouse") == of("old")
    assert selected("--all", "--tenant", "globex") == set()
    assert len(selected("--all", "--max", "1")) == 1
    assert desk.stage.everything() == history


@pytest.mark.parametrize("act", [("retry",), ("cancel",), ("resolve", "--no-effect", "--evidence", "x")])
@pytest.mark.parametrize(
    "wrong", [(), ("op", "--tool", "t"), ("op", "--all"), ("--older-than", "soon"), ("--max", "0")]
)
def test_either_one_is_named_or_some_are_selected(desk: Desk, act: tuple[str, ...], wrong: tuple[str, ...]) -> None:
    assert desk.run.refused(*act, *wrong, code=2)["code"] == "usage"


def test_many_are_not_touched_unless_somebody_says_so(desk: Desk) -> None:
    desk.put("op")
    history = desk.stage.everything()
    assert "--dry-run" in desk.run.refused("cancel", "--all", code=2)["message"]
    assert desk.stage.everything() == history
    assert desk.run("cancel", "--tool", BLIND).out == "Nothing is selected.\n"


# ------------------------------------------------------------------------------------------------------------------ act


def test_a_bulk_cancel_ends_what_hides_no_effect_and_leaves_the_rest(desk: Desk) -> None:
    desk.put("authorized")
    desk.put("proposed", ASKING)
    executing, unknown = desk.executing("executing"), desk.unknown("unknown")
    report = bulk(desk, "cancel", "--all", "--yes")
    assert (report["done"], report["refused"]) == (2, 0)
    assert sorted(done(report)) == ["authorized", "proposed"]
    assert (desk.stage.state(executing), desk.stage.state(unknown)) == ("executing", "unknown")
    assert bulk(desk, "cancel", "--all", "--yes")["items"] == []


def test_a_bulk_retry_ends_back_offs_and_sends_again_only_where_that_is_safe(desk: Desk) -> None:
    desk.unknown("safe")
    desk.unknown("unsafe", BLIND)
    waiting = desk.executing("waiting")
    desk.holder.withdraw(waiting, 1, delays=5_000.0)
    desk.put("due-already")
    desk.put("not-before", not_before="2100-01-01")
    dry = bulk(desk, "retry", "--all", "--dry-run", code=4)
    assert (done(dry, "would"), done(dry, "refused")) == (["safe", "waiting"], ["unsafe"])
    assert due(desk) == 1
    report = bulk(desk, "retry", "--all", "--yes", code=4)
    assert (sorted(done(report)), done(report, "refused")) == (["safe", "waiting"], ["unsafe"])
    (refused,) = (item for item in report["items"] if item["result"] == "refused")
    assert "honours no key" in refused["reason"]
    assert due(desk) == 3


def test_a_bulk_statement_is_refused_for_each_one_of_which_a_request_may_still_land(desk: Desk) -> None:
    desk.unknown("settled", BLIND)
    desk.clock.advance(3_700)
    desk.unknown("fresh", BLIND)
    words = desk.run("resolve", "--tool", BLIND, "--no-effect", *SAY)
    assert words.code == 4
    assert words.out.startswith("resolve: 1 done, 1 refused.")
    assert "a request may still have its effect" in words.out
    states = desk.stage.rows("select operation_id, state::text from outbox.operation order by seq")
    assert [row["state"] for row in states] == ["rejected", "unknown"]
    notes = desk.stage.rows("select note, stated_by from outbox.evidence")
    assert notes == [{"note": "their log of 30 Nov [no bound backs this]", "stated_by": desk.me}]


def test_answers_that_are_on_record_come_before_a_statement_about_many(desk: Desk) -> None:
    """A 500 may tell what happened. Who states the contrary of many operations at once must not miss it."""
    answer = {"steps": "person", "reasons": "no_lookup", "excerpts": "order 7 was created", "statuses": 500}
    desk.unknown("told", BLIND, answer=answer)
    desk.unknown("silent", BLIND, answer={"steps": "person", "reasons": "no_lookup"})
    desk.clock.advance(3_700)
    statement = ("resolve", "--no-effect", *SAY, "--tool", BLIND)
    report = bulk(desk, *statement, "--dry-run")
    answers = {item["operation_id"]: item["answers"] for item in report["items"]}
    assert len(answers["told"]) == 1
    assert "order 7 was created" in answers["told"][0]
    assert answers["silent"] == []
    assert "1 of them have answers on record" in desk.run(*statement, "--dry-run").out


def test_each_is_compared_with_what_was_selected(desk: Desk) -> None:
    """A receipt that comes in while others are resolved stops the statement about its operation."""
    desk.unknown("a", BLIND)
    second = desk.unknown("b", BLIND)
    desk.stage.witness(second, "receipt", attempt=1, fence=desk.holder.fence, receipt="{}")
    desk.clock.advance(7_200)
    report = bulk(desk, "resolve", "--all", "--no-effect", *SAY, code=4)
    assert (done(report), done(report, "refused")) == (["a"], ["b"])
    assert desk.stage.state(second) == "unknown"


# -------------------------------------------------------------------------------------------------- bounded, and once


def test_no_more_than_the_cap_are_touched_and_the_rest_is_done_the_next_time(desk: Desk) -> None:
    for number in range(5):
        desk.put(f"op-{number}")
    first = bulk(desk, "cancel", "--all", "--max", "2", "--yes")
    assert (done(first), first["more"]) == (["op-0", "op-1"], True)
    second = bulk(desk, "cancel", "--all", "--max", "3", "--yes")
    assert (done(second), second["more"]) == (["op-2", "op-3", "op-4"], False)
    desk.put("one")
    desk.put("two")
    assert "There are more. Run it again, with --as-of 20" in desk.run("cancel", "--all", "--max", "1", "--yes").out


def test_running_twice_acts_once(desk: Desk) -> None:
    desk.unknown("unknown")
    waiting = desk.executing("waiting")
    desk.holder.withdraw(waiting, 1, delays=5_000.0)
    assert bulk(desk, "retry", "--all", "--yes")["done"] == 2
    acts = desk.stage.rows("select from outbox.audit")
    assert bulk(desk, "retry", "--all", "--yes")["items"] == []
    assert desk.stage.rows("select from outbox.audit") == acts


def test_stating_twice_what_happened_to_many_is_one_statement_about_each(desk: Desk) -> None:
    for name in ("a", "b"):
        desk.unknown(name, BLIND)
    say = ("resolve", "--tool", BLIND, "--succeeded", *SAY)
    assert bulk(desk, *say)["done"] == 2
    history = desk.stage.everything()
    assert bulk(desk, *say)["items"] == []
    assert desk.stage.everything() == history


def test_two_who_do_the_same_at_once_do_it_once(desk: Desk) -> None:
    """Each end is written once, whoever comes first; the other one is told that it has ended, or finds nothing."""
    names = [f"op-{number}" for number in range(60)]
    for name in names:
        desk.put(name)
    command = [sys.executable, "-m", "outbox", "--config", str(desk.run.config), "cancel", "--all", "--yes", "--json"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as one,
        subprocess.Popen(command, stdout=subprocess.PIPE) as two,
    ):
        reports = [json.loads(process.communicate(timeout=60)[0]) for process in (one, two)]
    assert sorted(done(reports[0]) + done(reports[1])) == sorted(names)
    assert desk.stage.value("select count(*) from outbox.outcome where cause = 'cancelled'") == len(names)


def test_on_a_terminal_a_bar_shows_how_far_it_is_and_elsewhere_none(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        desk.put(f"op-{number}")
    assert desk.run("cancel", "--all", "--max", "1", "--yes").err == ""
    monkeypatch.setenv("TERM", "xterm")
    shown = Terminal()
    with contextlib.redirect_stderr(shown), contextlib.redirect_stdout(io.StringIO()):
        assert main(["--config", str(desk.run.config), "cancel", "--all", "--yes"]) == 0
    assert "cancel" in shown.getvalue()
    assert "2/2" in shown.getvalue()


class Terminal(io.StringIO):
    """Standard error of somebody who looks."""

    def isatty(self) -> bool:
        return True


def test_what_was_attempted_since_a_run_began_is_not_selected_by_its_repetition(desk: Desk) -> None:
    """The first run was interrupted; meanwhile what it had sent again was lost again."""
    first, second = desk.unknown("first"), desk.unknown("second")
    desk.clock.advance(10)
    run = bulk(desk, "retry", "--all", "--max", "1", "--yes")
    assert (done(run), run["more"]) == (["first"], True)
    desk.clock.advance(5)
    (again,) = desk.holder.begin_these(first)
    desk.holder.record_unknown(first, again["attempt"])
    as_of = run["as_of"]
    repeated = bulk(desk, "retry", "--all", "--as-of", as_of, "--yes")
    assert done(repeated) == ["second"]
    assert desk.stage.pending(second)["step"] == "resend"
    assert bulk(desk, "retry", "--all", "--as-of", as_of, "--yes")["items"] == []
    assert done(bulk(desk, "retry", "--all", "--dry-run"), "would") == ["first"], "a new run may"


def test_an_interrupted_run_says_how_to_go_on(desk: Desk) -> None:
    desk.stage.rows(
        """
        insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest)
        select 'shop', 'op-' || n, %s, 'svc', '{}', outbox.intent_digest('shop', 'op-' || n, %s, null, null, '{}')
        from generate_series(1, 600) n
        """,
        KEYED,
        KEYED,
    )
    command = [sys.executable, "-m", "outbox", "--config", str(desk.run.config), "cancel", "--all", "--max", "600"]
    with subprocess.Popen([*command, "--yes", "--json"], stdout=subprocess.PIPE, text=True) as process:
        eventually(lambda: desk.stage.value("select count(*) from outbox.outcome") > 5)
        os.kill(process.pid, signal.SIGINT)
        report = json.loads(process.communicate(timeout=30)[0])
        assert process.returncode == 130
    assert (report["interrupted"], report["more"]) == (True, True)
    ended = desk.stage.value("select count(*) from outbox.outcome")
    assert report["done"] == ended < 600
    assert desk.stage.value("select count(*) from outbox.pending") == 600 - ended
    rest = bulk(desk, "cancel", "--all", "--max", "600", "--as-of", report["as_of"][:19] + "Z", "--yes")
    assert rest["done"] <= 600 - ended
