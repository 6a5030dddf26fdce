"""The receiver that judges the demo and the crash tests: it must itself do what it says, and write down all of it."""

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from outbox.demo.faults import Fault, FaultPlan, Faults
from outbox.demo.ledger import Ledger
from tests.support.demo_receiver import READ_TOKEN, WRITE_TOKEN, Demo, demo_receiver
from tests.support.eventually import eventually


def ask(demo: Demo, method: str, path: str, body: bytes = b"{}", token: str = WRITE_TOKEN, **headers: str) -> Any:
    """(status, JSON); None where the connection ended without an answer."""
    given = {"Authorization": f"Bearer {token}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(
        demo.url + path, data=None if method == "GET" else body, method=method, headers=given
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError:
        return None


def put(demo: Demo, key: str, **more: Any) -> Any:
    return ask(demo, "PUT", "/stock/item-1", Idempotency_Key=key, **more)


def test_a_key_is_honoured_compared_and_forgotten_after_its_retention(tmp_path: Path) -> None:
    with demo_receiver(tmp_path, key_retention_seconds=3) as demo:
        first = put(demo, "k-1")
        assert first[0] == 200
        assert put(demo, "k-1") == first
        assert put(demo, "k-1", body=b'{"other":1}') == (422, {"error": {"code": "key_reused"}})
        assert demo.ledger.count_effects() == 1
        eventually(lambda: put(demo, "k-1") != first)
        assert demo.ledger.duplicates() == {("stock", "k-1"): 2}


def test_a_version_is_compared_after_the_key(tmp_path: Path) -> None:
    with demo_receiver(tmp_path) as demo:
        assert put(demo, "k-1", If_Match='"0"')[0] == 200
        assert put(demo, "k-1", If_Match='"0"')[0] == 200
        assert put(demo, "k-2", If_Match='"0"')[0] == 412
        assert put(demo, "k-2", If_Match='"1"')[0] == 200
        status, stock = ask(demo, "GET", "/stock/item-1", token=READ_TOKEN)
        assert (status, stock["version"], stock["last_operation"]) == (200, 2, "k-2")


def test_the_tool_without_a_key_repeats_and_shows_what_it_did_in_pages(tmp_path: Path) -> None:
    with demo_receiver(tmp_path, lag_seconds=2) as demo:
        body = b'{"reference":"r-1"}'
        for _ in range(3):
            assert ask(demo, "POST", "/payments", body, Idempotency_Key="ignored")[0] == 201
        assert demo.ledger.duplicates() == {("payments", "r-1"): 3}
        look = "/payments?reference=r-1&limit=2"
        assert ask(demo, "GET", look, token=READ_TOKEN)[1]["data"] == []
        eventually(lambda: len(ask(demo, "GET", look, token=READ_TOKEN)[1]["data"]) == 2)
        page = ask(demo, "GET", look, token=READ_TOKEN)[1]
        assert page["has_more"] is True
        last = ask(demo, "GET", f"{look}&before={page['next']}", token=READ_TOKEN)[1]
        assert (len(last["data"]), last["has_more"], last["next"]) == (1, False, None)


def test_the_tool_with_neither_cannot_be_asked(tmp_path: Path) -> None:
    with demo_receiver(tmp_path) as demo:
        assert ask(demo, "POST", "/mail", Outbox_Operation="mail-1")[0] == 202
        assert ask(demo, "GET", "/mail/mail-1", token=READ_TOKEN)[0] == 404
        assert [effect.identity for effect in demo.ledger.effects("mail")] == ["mail-1"]


def test_the_read_token_reads_and_causes_nothing(tmp_path: Path) -> None:
    with demo_receiver(tmp_path) as demo:
        for method, path in (("PUT", "/stock/x"), ("POST", "/payments"), ("POST", "/mail"), ("DELETE", "/x")):
            assert ask(demo, method, path, token=READ_TOKEN)[0] == 403
            assert ask(demo, method, path, token="stolen")[0] == 401
        assert ask(demo, "GET", "/operations/k", token="stolen")[0] == 401
        assert ask(demo, "GET", "/operations/k", token=READ_TOKEN)[0] == 404
        assert demo.ledger.count_effects() == 0
        assert demo.ledger.count_requests() == 8


EFFECTS = {Fault.LOSE_ANSWER: 1, Fault.FAIL_AFTER: 1, Fault.SLOW: 1}


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault not in {Fault.HANG, Fault.LATE_EFFECT}])
def test_a_fault_is_done_once_and_written_down(tmp_path: Path, fault: Fault) -> None:
    with demo_receiver(tmp_path) as demo:
        demo.fault(fault, tool="stock", seconds=0)
        assert ask(demo, "POST", "/mail")[0] == 202
        put(demo, "k-1")
        assert demo.ledger.count_effects("stock") == EFFECTS.get(fault, 0)
        assert demo.ledger.faults() == {fault: 1}
        assert put(demo, "k-1")[0] == 200
        assert demo.ledger.count_effects("stock") == 1


def test_a_late_effect_lands_after_its_caller_has_given_up_and_meanwhile_the_key_is_in_flight(tmp_path: Path) -> None:
    with demo_receiver(tmp_path) as demo:
        demo.fault("late_effect", seconds=2)
        assert put(demo, "k-1") is None
        assert put(demo, "k-1") == (409, {"error": {"code": "in_flight"}})
        assert demo.ledger.count_effects() == 0
        eventually(lambda: demo.ledger.count_effects() == 1)
        assert put(demo, "k-1")[0] == 200
        assert demo.ledger.count_effects() == 1


def test_a_stale_fence_is_refused_per_lane(tmp_path: Path) -> None:
    with demo_receiver(tmp_path, check_fences=True) as demo:
        assert put(demo, "k-1", Outbox_Fence='"db/w/1";fence=8')[0] == 200
        assert put(demo, "k-2", Outbox_Fence='"db/w/2";fence=7')[0] == 200
        assert put(demo, "k-3", Outbox_Fence='"db/w/1";fence=7') == (409, {"error": {"code": "stale_fence"}})
        assert put(demo, "k-3", Outbox_Fence='"db/w/1";fence=8')[0] == 200


def test_its_books_outlive_it(tmp_path: Path) -> None:
    with demo_receiver(tmp_path) as demo:
        put(demo, "k-1")
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert [effect.identity for effect in ledger.effects_of("k-1")] == ["k-1"]
    with demo_receiver(tmp_path) as demo:
        assert put(demo, "k-1")[0] == 200
        assert demo.ledger.count_effects() == 1


def test_a_wrong_plan_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises((json.JSONDecodeError, subprocess.SubprocessError)), demo_receiver(tmp_path, no_such_field=1):
        pass


def test_chance_depends_on_the_seed_and_the_operation_and_not_on_the_order() -> None:
    plan = FaultPlan(seed=7, rates={"stock": {Fault.LOSE_ANSWER: 0.3, Fault.REFUSE: 0.2}}, faulty_requests=2)
    operations = [f"op-{number}" for number in range(200)]
    forward, backward = Faults(plan), Faults(plan)
    first = {operation: forward.choose("stock", operation, "")[0] for operation in operations}
    assert first == {operation: backward.choose("stock", operation, "")[0] for operation in reversed(operations)}
    counts = {fault: list(first.values()).count(fault) for fault in (Fault.LOSE_ANSWER, Fault.REFUSE)}
    assert all(counts.values())
    other = Faults(plan.model_copy(update={"seed": 8}))
    assert first != {operation: other.choose("stock", operation, "")[0] for operation in operations}
    later = [[forward.choose("stock", operation, "")[0] for operation in operations] for _ in range(2)]
    assert set(later[1]) == {None}
    assert forward.choose("mail", "op-1", "") == (None, None)


def test_a_plan_survives_its_own_json() -> None:
    plan = FaultPlan(rates={"*": {Fault.SLOW: 1.0}}, write_tokens=frozenset({"w"}), key_retention_seconds=1.5)
    assert FaultPlan.model_validate_json(plan.model_dump_json()) == plan
    assert FaultPlan.model_validate_json(FaultPlan().model_dump_json()) == FaultPlan()
