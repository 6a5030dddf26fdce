"""Personal data leaves an operation that has ended; its digests stay, and it is as true as before."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from outbox import Intent, IntentConflict, Outbox
from outbox.digest import intent_digest
from tests.support.desk import BLIND, KEYED, Desk
from tests.support.postgres import Database
from tests.support.stage import Stage

ARGUMENTS = '{"address":"1 Private Road","name":"Jane Doe"}'
SECRET = "Jane"
BOX = Outbox(tenant_id="shop", principal_id="svc")
REDACT = ("redact", "op", "--reason", "erasure request 12", "--yes")


@pytest.fixture
def desk(database: Database, tmp_path: Path) -> Iterator[Desk]:
    with Stage(database) as stage:
        yield Desk(database, stage, tmp_path)


@pytest.fixture
def seq(desk: Desk) -> int:
    """An operation that was unknown for a while and has left a name in every place where one can be."""
    answer = {"excerpts": "Dear Jane,", "statuses": 500, "request_ids": "req-1"}
    seq = desk.unknown("op", BLIND, answer=answer, arguments=ARGUMENTS, resource="customer-7")
    desk.stage.witness(seq, "late_answer", attempt=1, fence=desk.holder.fence, excerpt="Jane again", note="Jane called")
    desk.run.json("resolve", "op", "--succeeded", "--evidence", "Jane has confirmed it", "--external-id", "re_1")
    desk.stage.rows("set session_replication_role = replica")
    desk.stage.rows(
        "update outbox.outcome set receipt = '{\"to\":\"Jane\"}', excerpt = 'Thanks, Jane' where seq = %s", seq
    )
    desk.stage.rows("set session_replication_role = origin")
    return seq


def everything_as_text(desk: Desk) -> str:
    return str(desk.stage.everything())


def test_nothing_personal_is_left_anywhere_and_what_proves_the_action_stays(desk: Desk, seq: int) -> None:
    before = desk.run.json("show", "op")
    assert SECRET in everything_as_text(desk)
    desk.run.json(*REDACT)
    assert SECRET not in everything_as_text(desk)
    after = desk.run.json("show", "op")
    assert after["redacted_at"] is not None
    assert (after["arguments"], after["outcome"]["excerpt"]) == (None, None)
    for name in ("state", "cause", "digest", "sent_key", "wire_digest", "resource", "principal_id", "attempt"):
        assert after[name] == before[name], name
    assert [attempt["request_id"] for attempt in after["attempts"]] == ["req-1"]
    assert [(item["kind"], item["verdict"]) for item in after["evidence"]] == [
        ("late_answer", None),
        ("statement", "confirmed"),
    ]
    stated = intent_digest("shop", "op", BLIND, "customer-7", None, ARGUMENTS)
    assert after["digest"] == stated.hex(), "who has the original can still show that it is the one"
    digest = desk.stage.value("select encode(sha256(convert_to('{\"to\":\"Jane\"}', 'UTF8')), 'hex')")
    assert after["outcome"]["receipt"] == f"redacted, sha256 {digest}"
    (entry,) = desk.run.json("audit", "--act", "redact")["items"]
    assert (entry["target"], entry["reason"], entry["acted_by"]) == ("shop op", "erasure request 12", desk.me)


def test_of_a_purged_operation_what_came_in_since_is_removed(desk: Desk) -> None:
    """An answer that was on its way for months is kept as evidence, and may name somebody."""
    seq = desk.ended("op", "succeeded")
    desk.clock.advance(100 * 86_400)
    assert desk.run.json("purge", "--older-than", "90d", "--yes")["purged"] == 1
    desk.stage.witness(seq, "late_answer", attempt=1, fence=1, excerpt="Jane again", note="Jane called")
    assert SECRET in everything_as_text(desk)
    assert desk.run.json(*REDACT) == {"tenant_id": "shop", "operation_id": "op", "state": "succeeded", "redacted": True}
    assert SECRET not in everything_as_text(desk)
    (entry,) = desk.run.json("audit", "--act", "redact")["items"]
    assert entry["target"] == "shop op"


def test_redacting_again_changes_nothing_but_is_recorded(desk: Desk, seq: int) -> None:
    desk.run.json(*REDACT)
    once = desk.run.json("show", "op")
    desk.run.json(*REDACT)
    assert desk.run.json("show", "op") == once
    assert len(desk.run.json("audit", "--act", "redact")["items"]) == 2


@pytest.mark.parametrize(
    "state", ["proposed", "authorized", "executing", "unknown, a resend is safe", "unknown, no resend is"]
)
def test_an_operation_that_has_not_ended_needs_its_arguments(desk: Desk, state: str) -> None:
    desk.in_state(state, "op")
    history = desk.stage.everything()
    assert "has not ended" in desk.run.refused(*REDACT, code=4)["message"]
    assert desk.stage.everything() == history


def test_a_redacted_operation_is_never_called_tampered(desk: Desk, seq: int) -> None:
    """It has ended: nothing begins, nobody looks, and its digest is still true for whoever puts it again."""
    desk.run.json(*REDACT)
    desk.clock.advance(7 * 86_400)
    assert desk.holder.renew(ttl_seconds=86_400)
    assert desk.holder.begin_these(seq) == []
    assert desk.holder.begin() == []
    assert desk.stage.rows("select from outbox.doubt") == []
    assert desk.stage.rows("select from outbox.operation where cause = 'tampered'") == []
    assert desk.run.json("stuck", "--all")["items"] == []
    assert desk.run.json("list")["items"][0]["state"] == "succeeded"
    assert "Jane" not in desk.run("why", "op").out


def test_the_same_action_put_again_is_the_same_operation_and_another_one_is_a_conflict(desk: Desk) -> None:
    def put(arguments: dict[str, str]) -> tuple[str, bool]:
        with psycopg.connect(desk.database.dsn_for("writer")) as connection:
            operation = BOX.put(connection, Intent(tool=KEYED, operation_id="op", arguments=arguments))
        return operation.state, operation.created

    put({"name": "Jane"})
    (seq,) = (row["seq"] for row in desk.stage.rows("select seq from outbox.pending"))
    assert desk.holder.begin_these(seq)
    desk.holder.end((seq, 1))
    desk.run.json(*REDACT)
    assert put({"name": "Jane"}) == ("succeeded", False)
    with pytest.raises(IntentConflict, match="digest"):
        put({"name": "Joe"})


def test_a_redacted_operation_can_be_purged_and_leaves_the_digest_of_its_action(desk: Desk, seq: int) -> None:
    digest = desk.run.json("show", "op")["digest"]
    desk.run.json(*REDACT)
    desk.clock.advance(100 * 86_400)
    assert desk.run.json("purge", "--older-than", "90d", "--yes")["purged"] == 1
    assert desk.run.json("show", "op")["digest"] == digest


def test_nothing_is_redacted_unless_somebody_says_so(desk: Desk, seq: int) -> None:
    message = desk.run.refused("redact", "op", "--reason", "x", code=2)["message"]
    assert ("--yes" in message, "--dry-run" in message) == (True, False)
    assert desk.run.refused("redact", "op", "--yes", code=2)
    assert SECRET in everything_as_text(desk)


@pytest.mark.parametrize("receipt", ["redacted, Jane", "redacted, sha256 Jane", f"redacted, sha256 {'0' * 64} Jane"])
def test_an_answer_that_looks_redacted_is_redacted_all_the_same_and_only_once(
    desk: Desk, seq: int, receipt: str
) -> None:
    desk.stage.rows("set session_replication_role = replica")
    desk.stage.rows("update outbox.outcome set receipt = %s where seq = %s", receipt, seq)
    desk.stage.rows("set session_replication_role = origin")
    desk.stage.witness(seq, "late_answer", attempt=1, fence=desk.holder.fence, receipt=receipt)
    desk.run.json(*REDACT)
    assert SECRET not in everything_as_text(desk)
    left = desk.stage.outcome(seq)["receipt"]
    desk.run.json(*REDACT)
    assert desk.stage.outcome(seq)["receipt"] == left
