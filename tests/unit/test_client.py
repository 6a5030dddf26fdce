"""Who asks is bound once; the id of an agent's step is stable; and writing intents loads no driver."""

import subprocess
import sys
from typing import Any

import pytest

from outbox import Intent, InvalidIntent, Operation, Outbox
from outbox.digest import derived_id
from outbox.errors import ConfigError, Misuse
from outbox.waiting import Puts, pauses, steps

BOX = Outbox(tenant_id="acme", principal_id="agent/planner")


def test_tenant_and_principal_are_checked_and_cannot_be_changed() -> None:
    with pytest.raises(InvalidIntent) as invalid:
        Outbox("", "a b")
    assert [problem.place for problem in invalid.value.problems] == ["tenant_id", "principal_id"]
    with pytest.raises(AttributeError):
        BOX.tenant_id = "globex"  # type: ignore[misc]


def test_a_dsn_stays_out_of_the_repr() -> None:
    assert "hush" not in repr(Outbox("acme", "p", dsn="postgresql://u:hush@h/db"))


@pytest.mark.parametrize(
    ("dsn", "advice"),
    [
        ("postgresql+psycopg://u:hunter2@h/db", "without the driver's name"),
        ("postgres+asyncpg://u:hunter2@h/db", "without the driver's name"),
        ("host=h password=hunter2 nonsense", "host=... dbname=..."),
        ("postgresql://u:p@hunter2@h/db", "%40"),
        ("postgresql://u:hunter2/x@h/db", "%2F"),
        ("postgresql://u:1/hunter2@h/db", "%2F"),
    ],
)
def test_a_dsn_that_libpq_cannot_read_is_refused_at_once_and_not_repeated(dsn: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice) as caught:
        Outbox("acme", "p", dsn=dsn)
    assert [problem.place for problem in caught.value.problems] == ["dsn"]
    assert "hunter2" not in f"{caught.value!r} {caught.value}"


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:p%40%2Fss@h/db",
        "postgresql://u@h/a%40b",
        "postgresql://u@one:1,two:2/db?sslmode=require",
        "postgresql://u:pa?ss@h/db",
        "postgresql://%2Fvar%2Frun/db",
        "host=@abstract,/tmp dbname=a@b",
        "service=outbox",
        "",
    ],
)
def test_a_dsn_that_libpq_reads_is_taken(dsn: str) -> None:
    assert Outbox("acme", "p", dsn=dsn).dsn == dsn


def test_the_same_step_has_the_same_id_whatever_form_its_arguments_have() -> None:
    one = BOX.operation_id("run-17", "mail.send", {"b": 1.0, "a": "ä"})
    assert one == BOX.operation_id("run-17", "mail.send", '{ "a": "\\u00e4", "b": 1 }')
    assert one == derived_id("run-17", "mail.send", '{"a":"ä","b":1}')
    assert Intent(tool="mail.send", operation_id=one).operation_id == one


def test_another_run_tool_or_argument_is_another_step() -> None:
    ids = {
        BOX.operation_id("run-17", "mail.send", {}),
        BOX.operation_id("run-18", "mail.send", {}),
        BOX.operation_id("run-17", "mail.recall", {}),
        BOX.operation_id("run-17", "mail.send", {"a": 1}),
    }
    assert len(ids) == 4


@pytest.mark.parametrize(
    ("step", "place"),
    [
        (("", "mail.send", {}), "run_id"),
        (("run\n", "mail.send", {}), "run_id"),
        (("run", "mail send", {}), "tool"),
        (("run", "mail.send", {"a": {"b": float("nan")}}), "arguments/a/b"),
        (("run", "mail.send", "[]"), "arguments"),
    ],
)
def test_a_step_that_cannot_be_put_has_no_id(step: tuple[str, str, Any], place: str) -> None:
    with pytest.raises(InvalidIntent) as invalid:
        BOX.operation_id(*step)
    assert [problem.place for problem in invalid.value.problems] == [place]


def test_an_id_that_cannot_exist_is_refused_before_any_connection_is_used() -> None:
    nowhere: Any = None
    with pytest.raises(InvalidIntent):
        BOX.get(nowhere, "a\0b")
    with pytest.raises(InvalidIntent):
        BOX.wait("a b")


def test_pauses_grow_are_bounded_and_end_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("outbox.waiting.time.monotonic", lambda: now)
    taken = []
    for pause in pauses(10):
        taken.append(pause)
        now += pause
    assert taken[0] == 0.02
    assert max(taken) == 1.0
    assert sum(taken) == pytest.approx(10)
    assert taken[:-1] == sorted(taken[:-1])


@pytest.mark.parametrize("timeout_seconds", [-1, float("inf"), float("nan")])
def test_a_wait_has_a_bound(timeout_seconds: float) -> None:
    with pytest.raises(Misuse, match="a finite number"):
        next(steps("acme", "o", None, timeout_seconds))


def test_a_look_at_an_end_is_the_last_one() -> None:
    row = dict.fromkeys(("cause", "attempt", "receipt", "external_id", "created_at", "ended_at")) | {
        "state": "rejected", "tool": "t", "purged": False, "seq": 1, "xid": None, "put_is_open": None,
    }  # fmt: skip
    plan = steps("acme", "o", None, 30)
    next(plan)
    end = plan.send([row])
    assert isinstance(end, Operation)
    assert end.ended


def test_puts_are_remembered_newest_first_and_not_for_ever() -> None:
    puts = Puts()
    puts.remember("o", "1")
    puts.remember("o", "2")
    found = puts.find("o")
    assert found is not None
    assert found.xid == "2"
    for number in range(2000):
        puts.remember(f"other-{number}", "3")
    assert puts.find("o") is None


def test_importing_the_library_and_making_an_intent_loads_no_driver() -> None:
    program = (
        "import sys; from outbox import Intent, Outbox;"
        "Outbox('a', 'b').operation_id('r', Intent(tool='t').tool, {});"
        "print(*{'sqlalchemy', 'psycopg', 'asyncpg'} & set(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == []
