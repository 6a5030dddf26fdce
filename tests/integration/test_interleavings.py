"""Two or more sessions that meet at a barrier: each test is one interleaving, named by what it shows.

Nothing here sleeps: a session that must wait is seen waiting in `pg_blocking_pids` before the test goes on.
"""

from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import pytest

from tests.support.stage import BLIND, KEYED, LOOKED_UP, RELAY, REPEATABLE, Clock, Connection, Holder, Stage


def slow(stage: Stage, lane: int = 0) -> Holder:
    """A holder whose transaction a test can leave open: the shape of a commit that takes long."""
    return stage.holder(lane, connection=stage.session("relay"))


# ------------------------------------------------------------------------------------- takeover against a slow claim


def test_rows_of_a_claim_that_commits_while_the_takeover_waits_become_unknown(stage: Stage) -> None:
    """A takeover as one statement would work on the snapshot from before it waited, and nobody would own these rows."""
    stage.register()
    seqs = [stage.put(f"op-{n}") for n in range(10)]
    old, new = slow(stage), slow(stage)
    clock = Clock(stage.database)
    old.taken()
    old.connection.execute("begin")
    assert len(old.begin() or []) == 10
    clock.advance(60)
    takeover = stage.start(new.take)
    stage.wait_until_blocked(new.connection, by=old.connection)
    old.connection.execute("commit")
    assert takeover.result() == 10
    assert {stage.state(seq) for seq in seqs} == {"unknown"}
    assert {stage.pending(seq)["cause"] for seq in seqs} == {"lease_lost"}
    assert {stage.doubt(seq)["attempt"] for seq in seqs} == {1}
    assert stage.value("select count(*) from outbox.attempt where cause = 'lease_lost' and fence = %s", old.fence) == 10


def test_a_takeover_that_waits_for_a_claim_that_rolls_back_leaves_its_rows_authorized(stage: Stage) -> None:
    stage.register()
    seq = stage.put("op")
    old, new = slow(stage), slow(stage)
    clock = Clock(stage.database)
    old.taken()
    old.connection.execute("begin")
    assert old.begin()
    clock.advance(60)
    takeover = stage.start(new.take)
    stage.wait_until_blocked(new.connection, by=old.connection)
    old.connection.execute("rollback")
    assert takeover.result() == 0
    assert stage.state(seq) == "authorized"


def test_a_claim_that_waits_for_a_takeover_begins_nothing(stage: Stage) -> None:
    stage.register()
    seq = stage.put("op")
    old, new = slow(stage), slow(stage)
    clock = Clock(stage.database)
    old.taken(3600)
    clock.advance(3601)
    new.connection.execute("begin")
    assert new.take() == 0
    clock.advance(-3600)  # the claim itself would still find its lease young: only the fence refuses it
    claim = stage.start(old.begin)
    stage.wait_until_blocked(old.connection, by=new.connection)
    new.connection.execute("commit")
    assert claim.result() is None
    assert stage.state(seq) == "authorized"


def test_a_claim_that_waits_for_a_takeover_that_rolls_back_goes_on(stage: Stage) -> None:
    stage.register()
    stage.put("op")
    old, new = slow(stage), slow(stage)
    clock = Clock(stage.database)
    old.taken(3600)
    clock.advance(3601)
    new.connection.execute("begin")
    assert new.take() == 0
    clock.advance(-3600)
    claim = stage.start(old.begin)
    stage.wait_until_blocked(old.connection, by=new.connection)
    new.connection.execute("rollback")
    assert len(claim.result() or []) == 1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_takeover_refuses_a_snapshot_older_than_its_lock(stage: Stage, level: LiteralString) -> None:
    stage.register()
    holder = slow(stage)
    before = stage.everything()
    holder.connection.execute("begin")
    holder.connection.execute(b"set transaction isolation level " + level.encode())
    with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="READ COMMITTED"):
        holder.take()
    holder.connection.execute("rollback")
    assert stage.everything() == before


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_new_era_refuses_a_snapshot_older_than_its_locks(stage: Stage, level: LiteralString) -> None:
    stage.register()
    stage.rows("update outbox.instance set timeline = 99")
    before = stage.everything()
    session = stage.session("relay")
    session.execute("begin")
    session.execute(b"set transaction isolation level " + level.encode())
    with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="READ COMMITTED"):
        session.execute("select outbox.enter_era(n.server_identifier, n.server_timeline) from ({}) n".format(
            RELAY["read_instance"]
        ).encode())  # fmt: skip
    session.execute("rollback")
    assert stage.everything() == before


@pytest.mark.parametrize("write", ["begin", "end", "record_unknown", "withdraw"])
def test_a_statement_that_waits_for_its_lane_holds_no_row_yet(stage: Stage, write: str) -> None:
    """The lane first, the rows second, always: a takeover would otherwise wait for a row whose holder waits for it."""
    stage.register()
    seq = stage.put("op")
    holder = slow(stage).taken()
    if write != "begin":
        assert holder.begin()
    blocker = stage.session()
    blocker.execute("begin")
    blocker.execute("select from outbox.lane for update")
    acts: dict[str, Any] = {
        "begin": holder.begin,
        "end": lambda: holder.end((seq, 1)),
        "record_unknown": lambda: holder.record_unknown(seq, 1),
        "withdraw": lambda: holder.withdraw(seq, 1),
    }
    waiting = stage.start(acts[write])
    stage.wait_until_blocked(holder.connection, by=blocker)
    assert len(blocker.execute("select from outbox.pending for update nowait").fetchall()) == 1
    blocker.execute("rollback")
    assert len(waiting.result()) == 1


def test_two_takers_of_one_lane_are_one_holder(stage: Stage) -> None:
    stage.register()
    one, other = slow(stage), slow(stage)
    one.connection.execute("begin")
    assert one.take() == 0
    second = stage.start(other.take)
    stage.wait_until_blocked(other.connection, by=one.connection)
    one.connection.execute("commit")
    assert second.result() is None
    assert stage.value("select owner from outbox.lane") == one.owner


def test_a_takeover_leaves_the_attempts_of_its_own_fence_and_other_lanes_alone(stage: Stage) -> None:
    stage.register(lanes=2)
    seqs = [stage.put(f"op-{n}") for n in range(8)]
    lanes = [stage.holder(lane).taken() for lane in (0, 1)]
    begun = {row["seq"]: holder for holder in lanes for row in holder.begin() or []}
    assert sorted(begun) == seqs
    assert {holder.lane for holder in begun.values()} == {0, 1}
    lanes[0].give_back()
    stage.holder(0).taken()
    assert {stage.state(seq) for seq, holder in begun.items() if holder.lane == 0} == {"unknown"}
    assert {stage.state(seq) for seq, holder in begun.items() if holder.lane == 1} == {"executing"}


# ------------------------------------------------------------------------------------------- what a lost fence fences


@pytest.fixture
def overtaken(stage: Stage) -> tuple[Stage, Holder, int]:
    """An attempt whose holder has lost its lane, with the row put back under its fence: only the lane can refuse it."""
    stage.register()
    old = stage.holder().taken()
    seq = stage.put("op")
    assert old.begin()
    old.give_back()
    new = stage.holder().taken()
    stage.rows("update outbox.pending set state = 'executing', unresolved_at = null, fence = %s", old.fence)
    assert new.fence > old.fence
    return stage, old, seq


@pytest.mark.parametrize(
    "write", ["end", "record_unknown", "withdraw", "renew", "begin", "begin_these", "give_back", "idle"]
)
def test_a_write_under_a_lost_fence_says_so_and_applies_nothing(
    overtaken: tuple[Stage, Holder, int], write: str
) -> None:
    stage, old, seq = overtaken
    stage.put("another")
    before = stage.everything()
    acts: dict[str, Any] = {
        "end": lambda: old.end((seq, 1)),
        "record_unknown": lambda: old.record_unknown(seq, 1),
        "withdraw": lambda: old.withdraw(seq, 1),
        "renew": lambda: old.renew() or None,
        "begin": old.begin,
        "begin_these": lambda: old.run("begin_these", seqs=[seq], batch_max=1, resends=True) or None,
        "give_back": lambda: old.run("give_back_lane") or None,
        "idle": lambda: old.run("set_bell", idle=True, bell="bell", crowd=[]) or None,
    }
    assert acts[write]() is None
    assert stage.everything() == before


@pytest.mark.parametrize("write", ["end", "record_unknown", "withdraw"])
def test_the_same_fence_with_another_owner_is_a_lost_lease(stage: Stage, write: str) -> None:
    """After a failover one fence number can have been granted twice: the random owner tells the two apart."""
    stage.register()
    holder = stage.holder().taken()
    seq = stage.put("op")
    assert holder.begin()
    twin = Holder(holder.connection, holder.receiver_id, holder.receiver, holder.lane, fence=holder.fence)
    before = stage.everything()
    argument: Any = [(seq, 1)] if write == "end" else [seq, 1]
    assert getattr(twin, write)(*argument) is None
    assert stage.everything() == before
    assert getattr(holder, write)(*argument) == [seq]


@pytest.mark.parametrize("write", ["end", "record_unknown", "withdraw"])
def test_a_late_answer_of_an_earlier_attempt_never_ends_a_later_one(stage: Stage, write: str) -> None:
    stage.register()
    holder = stage.holder().taken()
    seq = stage.put("op")
    assert holder.begin()
    assert holder.withdraw(seq, 1, delays=0.0) == [seq]
    assert [row["attempt"] for row in holder.begin() or []] == [2]
    before = stage.everything()
    assert (holder.end((seq, 1)) if write == "end" else getattr(holder, write)(seq, 1)) == []
    assert stage.everything() == before


def test_a_receipt_is_recorded_although_the_lease_has_run_out_as_long_as_nobody_took_the_lane(stage: Stage) -> None:
    stage.register()
    holder = stage.holder().taken(10)
    seq = stage.put("op")
    clock = Clock(stage.database)
    assert holder.begin()
    clock.advance(3600)
    assert holder.begin() == []  # but nothing more begins
    assert holder.end((seq, 1)) == [seq]


def test_no_attempt_begins_that_its_lease_cannot_cover(stage: Stage) -> None:
    stage.register(**KEYED | {"deadline": "5 seconds"})
    seq = stage.put("op")
    clock = Clock(stage.database)
    holder = stage.holder().taken(30)
    clock.advance(26)
    assert holder.begin() == []
    assert holder.renew(30)
    assert [row["seq"] for row in holder.begin() or []] == [seq]


def test_a_receipt_that_waits_for_a_takeover_applies_nothing(stage: Stage) -> None:
    stage.register()
    old, new = slow(stage), slow(stage)
    clock = Clock(stage.database)
    old.taken()
    seq = stage.put("op")
    assert old.begin()
    clock.advance(60)
    new.connection.execute("begin")
    assert new.take() == 1
    late = stage.start(lambda: old.end((seq, 1)))
    stage.wait_until_blocked(old.connection, by=new.connection)
    new.connection.execute("commit")
    assert late.result() is None
    assert stage.state(seq) == "unknown"


def test_a_receipt_that_waits_for_a_takeover_that_rolls_back_is_recorded(stage: Stage) -> None:
    stage.register()
    old, new = slow(stage), slow(stage)
    clock = Clock(stage.database)
    old.taken()
    seq = stage.put("op")
    assert old.begin()
    clock.advance(60)
    new.connection.execute("begin")
    assert new.take() == 1
    late = stage.start(lambda: old.end((seq, 1)))
    stage.wait_until_blocked(old.connection, by=new.connection)
    new.connection.execute("rollback")
    assert late.result() == [seq]
    assert stage.state(seq) == "succeeded"


def test_a_takeover_waits_for_a_receipt_and_then_has_nothing_to_doubt(stage: Stage) -> None:
    stage.register()
    old, new = slow(stage), slow(stage)
    clock = Clock(stage.database)
    old.taken()
    seq = stage.put("op")
    assert old.begin()
    clock.advance(60)
    old.connection.execute("begin")
    assert old.end((seq, 1)) == [seq]
    takeover = stage.start(new.take)
    stage.wait_until_blocked(new.connection, by=old.connection)
    old.connection.execute("commit")
    assert takeover.result() == 0
    assert stage.state(seq) == "succeeded"


@pytest.mark.parametrize("order", ["renewal first", "writer first"])
def test_a_renewal_and_a_writer_never_wait_for_each_other(stage: Stage, order: str) -> None:
    """FOR SHARE would starve the renewal: a busy lane with slow commits would lose its own lease."""
    stage.register()
    writer = slow(stage).taken()
    renewer = Holder(
        stage.session("relay"), writer.receiver_id, writer.receiver, writer.lane, writer.owner, writer.fence
    )
    stage.put("op")
    for session in (writer, renewer):
        session.connection.execute("set lock_timeout = '1ms'")
        session.connection.execute("begin")
    if order == "writer first":
        assert len(writer.begin() or []) == 1
        assert renewer.renew()
    else:
        assert renewer.renew()
        assert len(writer.begin() or []) == 1
    renewer.connection.execute("commit")
    writer.connection.execute("commit")


def test_a_renewal_that_waits_for_a_takeover_learns_that_the_lane_is_lost(stage: Stage) -> None:
    stage.register()
    old, new = slow(stage), slow(stage)
    clock = Clock(stage.database)
    old.taken()
    clock.advance(60)
    new.connection.execute("begin")
    assert new.take() == 0
    renewal = stage.start(old.renew)
    stage.wait_until_blocked(old.connection, by=new.connection)
    new.connection.execute("commit")
    assert renewal.result() is False


def test_a_takeover_that_waits_for_a_renewal_takes_nothing(stage: Stage) -> None:
    stage.register()
    old, new = slow(stage), slow(stage)
    clock = Clock(stage.database)
    old.taken()
    clock.advance(60)
    old.connection.execute("begin")
    assert old.renew()
    takeover = stage.start(new.take)
    stage.wait_until_blocked(new.connection, by=old.connection)
    old.connection.execute("commit")
    assert takeover.result() is None
    assert stage.value("select owner from outbox.lane") == old.owner


# ------------------------------------------------------------------------------------ the answer to one's own commit


def test_after_a_lost_answer_nothing_applied_is_recognised_as_ones_own_commit(stage: Stage) -> None:
    stage.register()
    holder = stage.holder().taken()
    ended, doubted = stage.put("ended"), stage.put("doubted")
    assert len(holder.begin() or []) == 2
    assert holder.end((ended, 1)) == [ended]
    assert holder.record_unknown(doubted, 1) == [doubted]
    # The answers were lost: the holder sends the same again, and is told that it holds the lane and nothing applied.
    assert holder.end((ended, 1)) == []
    assert holder.record_unknown(doubted, 1) == []
    question = {"seqs": [ended, doubted, doubted], "attempts": [1, 1, 2]}
    assert {(row["seq"], row["attempt"]) for row in holder.run("recorded_attempts", **question)} == {
        (ended, 1),
        (doubted, 1),
    }
    stranger = Holder(holder.connection, holder.receiver_id, holder.receiver, holder.lane, fence=holder.fence)
    assert stranger.run("recorded_attempts", **question) == []


def test_a_begin_whose_answer_was_lost_is_found_by_its_holder(stage: Stage) -> None:
    """The lane is still ours, so no takeover will ever convert these rows: only our own sweep sees them."""
    stage.register()
    holder = stage.holder().taken()
    seq = stage.put("op")
    assert holder.begin()
    assert holder.begin() == []
    (orphan,) = holder.run("own_executing", after=0, upto=2**62, batch_max=10)
    assert orphan == {"seq": seq, "attempt": 1, "first": True}
    assert holder.withdraw(seq, 1, delays=0.0) == [seq]
    assert [row["attempt"] for row in holder.begin() or []] == [2]


def test_the_belt_makes_old_attempts_unknown_whoever_holds_the_lane(stage: Stage) -> None:
    stage.register()
    holder = stage.holder().taken(3600)
    seq = stage.put("op")
    assert holder.begin()
    clock = Clock(stage.database)
    sweep: LiteralString = "select outbox.sweep_orphans(interval '60 seconds') as made"
    assert stage.as_role("reconciler").execute(sweep).fetchall() == [{"made": 0}]
    clock.advance(61)
    young = stage.put("young")
    assert holder.begin()
    assert stage.as_role("reconciler").execute(sweep).fetchall() == [{"made": 1}]
    assert (stage.state(seq), stage.pending(seq)["cause"]) == ("unknown", "orphaned")
    assert stage.state(young) == "executing"
    assert holder.end((seq, 1)) == []


# --------------------------------------------------------------------------- a claim against everybody who is no relay


ACTS: dict[str, tuple[LiteralString, LiteralString]] = {
    "revoked": ("approver", "select outbox.revoke('acme', 'op', 'eve', 'wrong amount')"),
    "cancelled": ("operator", "select outbox.cancel('acme', 'op', 'eve')"),
}


@pytest.mark.parametrize("act", sorted(ACTS))
def test_a_claim_never_takes_what_is_being_withdrawn(stage: Stage, act: str) -> None:
    stage.register()
    seq, other = stage.put("op"), stage.put("other")
    holder = stage.holder().taken()
    role, statement = ACTS[act]
    person = stage.session(role)  # type: ignore[arg-type]
    person.execute("begin")
    person.execute(statement)
    assert [row["seq"] for row in holder.begin() or []] == [other]
    person.execute("commit")
    assert holder.begin() == []
    assert (stage.outcome(seq)["state"], stage.outcome(seq)["cause"]) == ("rejected", act)


@pytest.mark.parametrize("act", sorted(ACTS))
def test_who_withdraws_an_operation_that_is_being_claimed_learns_that_it_is_too_late(stage: Stage, act: str) -> None:
    stage.register()
    seq = stage.put("op")
    holder = slow(stage).taken()
    role, statement = ACTS[act]
    person = stage.session(role)  # type: ignore[arg-type]
    holder.connection.execute("begin")
    assert holder.begin()
    late = stage.start(lambda: person.execute(statement).fetchall())
    stage.wait_until_blocked(person, by=holder.connection)
    holder.connection.execute("commit")
    if act == "cancelled":
        with pytest.raises(psycopg.Error, match="may hide an effect") as refusal:
            late.result()
        assert refusal.value.sqlstate == "OB409"
    else:
        assert late.result() == [{"revoke": "executing"}]
    assert stage.state(seq) == "executing"


# A claim that read the row before the other party committed: it must judge the row as it is now, or let it be. The
# barrier is the lane, which the claim locks first: it waits there with its snapshot taken.
CHANGES: dict[str, LiteralString] = {
    "postponed": "update outbox.pending set next_at = outbox.now() + interval '1 hour' where seq = %(seq)s",
    "withdrawn by another policy": "update outbox.pending set state = 'proposed' where seq = %(seq)s",
    "expired": "update outbox.pending set expires_at = outbox.now() where seq = %(seq)s",
    "decided under another policy": "update outbox.pending set policy_version = 2 where seq = %(seq)s",
    "cancelled": "select outbox.cancel('acme', 'op', 'eve')",
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_claim_judges_a_row_that_changed_after_its_snapshot_as_it_is_now(stage: Stage, change: str) -> None:
    stage.register()
    seq, other = stage.put("op"), stage.put("other")
    holder = slow(stage).taken()
    blocker, person = stage.session(), stage.session()
    blocker.execute("begin")
    blocker.execute("select from outbox.lane for update")
    claim = stage.start(holder.begin)
    stage.wait_until_blocked(holder.connection, by=blocker)
    person.execute(CHANGES[change], {"seq": seq})
    blocker.execute("rollback")
    assert [row["seq"] for row in claim.result() or []] == [other]


def test_a_claim_takes_a_row_that_changed_harmlessly_after_its_snapshot_with_its_present_values(stage: Stage) -> None:
    stage.register()
    stage.put("op")
    holder = slow(stage).taken()
    blocker = stage.session()
    blocker.execute("begin")
    blocker.execute("select from outbox.lane for update")
    claim = stage.start(holder.begin)
    stage.wait_until_blocked(holder.connection, by=blocker)
    stage.rows("update outbox.pending set throttled = 7, attempt = 4")
    blocker.execute("rollback")
    assert [(row["throttled"], row["attempt"]) for row in claim.result() or []] == [(7, 5)]


@pytest.mark.parametrize(("kind", "name"), [("receiver", "warehouse"), ("tool", "stock.set"), ("tenant", "acme")])
def test_nothing_begins_while_a_pause_stands_and_everything_after_it(stage: Stage, kind: str, name: str) -> None:
    stage.register()
    stage.register("mail.send", "post")
    seq = stage.put("op")
    stage.put("elsewhere", tool="mail.send", tenant="other")
    operator = stage.as_role("operator")
    operator.execute("select outbox.pause_add(%s, %s, 'eve', 'incident')", [kind, name])
    holder, elsewhere = stage.holder().taken(), stage.holder(receiver="post").taken()
    assert holder.begin() == []
    assert len(elsewhere.begin() or []) == 1
    operator.execute("select outbox.pause_end(%s, %s, 'eve', 'over')", [kind, name])
    assert [row["seq"] for row in holder.begin() or []] == [seq]


def test_a_changed_policy_stops_the_next_claim_before_anything_is_decided_again(stage: Stage) -> None:
    stage.register()
    seq = stage.put("op")
    holder = stage.holder().taken()
    stage.as_role("operator").execute("update outbox.tool set policy_version = 2, requires_approval = true")
    assert holder.begin() == []
    holder.run("redecide", limit=10)
    assert (stage.state(seq), stage.pending(seq)["cause"]) == ("proposed", "policy_changed")


@pytest.mark.parametrize("lock", ["for update", "for no key update", "for share", "for key share"])
def test_a_row_that_somebody_holds_in_psql_does_not_block_its_lane(stage: Stage, lock: str) -> None:
    stage.register()
    held, free = stage.put("held"), stage.put("free")
    holder = stage.holder().taken()
    holder.connection.execute("set lock_timeout = '1ms'")
    idle = stage.session()
    idle.execute("begin")
    idle.execute(f"select from outbox.pending where seq = {held} {lock}".encode())
    begun = [row["seq"] for row in holder.begin() or []]
    assert begun == ([held, free] if lock == "for key share" else [free])
    idle.execute("rollback")


def test_a_session_that_is_stopped_in_a_transaction_loses_its_locks_soon(stage: Stage) -> None:
    """The role's own settings end it: a takeover would otherwise wait as long as the stopped process lives."""
    stage.register()
    old, new = stage.holder(), slow(stage)
    old.connection.execute("set idle_in_transaction_session_timeout = '50ms'")
    old.taken()
    clock = Clock(stage.database)
    clock.advance(60)
    stage.put("op")
    old.renew()
    old.connection.execute("begin")
    assert old.begin()
    clock.advance(60)
    assert new.take() == 0
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        old.connection.execute("commit")


# --------------------------------------------------------------------------------------- people and reconcilers racing

RECEIPT: LiteralString = (
    "select outbox.witness(%s, 1, 0, 'receipt', null, 'r-1', null, 0, 200, null, null, null, 'relay', null, null)"
)
SETTLE: LiteralString = "select outbox.settle(%s, 1, 'rejected', 'no_effect', 'r', null, null, null) as answer"


def test_of_two_reconcilers_with_one_finding_one_applies_it(stage: Stage) -> None:
    stage.register(**LOOKED_UP)
    holder = stage.holder().taken()
    seq = stage.unknown("op", holder)
    one, other = stage.session("reconciler"), stage.session("reconciler")
    statement: LiteralString = (
        "select outbox.settle(%s, 1, 'authorized', 'proven_absent', 'reconciler', null, null, null) as answer"
    )
    one.execute("begin")
    assert one.execute(statement, [seq]).fetchall() == [{"answer": "applied"}]
    second = stage.start(lambda: other.execute(statement, [seq]).fetchall())
    stage.wait_until_blocked(other, by=one)
    one.execute("commit")
    assert second.result() == [{"answer": "moved"}]
    assert stage.state(seq) == "authorized"


@pytest.mark.parametrize("to", ["succeeded", "rejected", "authorized"])
def test_a_finding_about_an_earlier_attempt_changes_nothing(stage: Stage, to: str) -> None:
    """Two reconcilers read "absent"; one acts, attempt 2 is made and lost; the other's finding is about attempt 1."""
    stage.register(**LOOKED_UP)
    holder = stage.holder().taken()
    seq = stage.unknown("op", holder)
    assert stage.settle(seq, 1, "authorized") == "applied"
    before = stage.everything()
    assert stage.settle(seq, 1, to) == "moved"  # authorized meanwhile
    assert stage.everything() == before
    assert [row["attempt"] for row in holder.begin() or []] == [2]
    assert stage.settle(seq, 1, to) == "moved"  # executing
    assert holder.record_unknown(seq, 2) == [seq]
    before = stage.everything()
    assert stage.settle(seq, 1, to) == "moved"  # unknown again, by another attempt
    assert stage.everything() == before


def test_a_reconciler_that_meets_a_resend_changes_nothing(stage: Stage) -> None:
    stage.register()
    holder = slow(stage).taken()
    seq = stage.unknown("op", holder)
    stage.as_role("reconciler").execute("select outbox.allow_resend(%s, 1, outbox.now(), outbox.now())", [seq])
    reconciler = stage.session("reconciler")
    holder.connection.execute("begin")
    assert [row["attempt"] for row in holder.begin() or []] == [2]
    settling = stage.start(
        lambda: reconciler.execute(
            "select outbox.settle(%s, 1, 'rejected', 'no_effect', 'reconciler', null, null, null) as answer", [seq]
        ).fetchall()
    )
    stage.wait_until_blocked(reconciler, by=holder.connection)
    holder.connection.execute("commit")
    assert settling.result() == [{"answer": "moved"}]
    assert stage.state(seq) == "executing"


def test_of_two_approvers_one_decides(stage: Stage) -> None:
    stage.register(**KEYED | {"requires_approval": True})
    seq = stage.put("op")
    digest = stage.value("select digest from outbox.intent")
    one, other = stage.session("approver"), stage.session("approver")
    approve: LiteralString = "select outbox.approve('acme', 'op', %s, %s, null, null)"
    one.execute("begin")
    one.execute(approve, [digest, "eve"])
    second = stage.start(lambda: other.execute(approve, [digest, "bob"]))
    stage.wait_until_blocked(other, by=one)
    one.execute("commit")
    with pytest.raises(psycopg.Error, match="authorized, not proposed"):
        second.result()
    assert stage.value("select decided_by from outbox.approval") == "eve"
    assert stage.state(seq) == "authorized"


def test_evidence_and_a_settlement_never_deadlock(stage: Stage) -> None:
    """Both touch the open row and its doubt: always in that order."""
    stage.register(**LOOKED_UP)
    holder = stage.holder().taken()
    seq = stage.unknown("op", holder)
    witness, settler = stage.session("relay"), stage.session("reconciler")
    blocker = stage.session()
    blocker.execute("begin")
    blocker.execute("select from outbox.pending where seq = %s for no key update", [seq])
    seen = stage.start(lambda: witness.execute(RECEIPT, [seq]))
    settled = stage.start(lambda: settler.execute(SETTLE, [seq]).fetchall())
    stage.wait_until_blocked(witness)
    stage.wait_until_blocked(settler)
    blocker.execute("rollback")
    seen.result()
    assert settled.result() in ([{"answer": "receipt"}], [{"answer": "applied"}])


def test_an_answer_that_proves_the_effect_is_seen_by_a_withdrawal_that_waited_for_it(stage: Stage) -> None:
    """A receipt of attempt 1 arrives while attempt 2 executes, which is then throttled: there may not be a third."""
    stage.register(**LOOKED_UP)
    holder = slow(stage).taken()
    seq = stage.unknown("op", holder)
    assert stage.settle(seq, 1, "authorized") == "applied"
    assert holder.begin()
    witness = stage.session("relay")
    witness.execute("begin")
    witness.execute(RECEIPT, [seq])
    withdrawal = stage.start(lambda: holder.withdraw(seq, 2, delays=0.0))
    stage.wait_until_blocked(holder.connection, by=witness)
    witness.execute("commit")
    assert withdrawal.result() == []
    assert stage.state(seq) == "executing"
    assert holder.begin() == []
    assert holder.record_unknown(seq, 2) == [seq]
    assert stage.settle(seq, 2, "succeeded") == "applied"


# ------------------------------------------------------------------------------------------------------------- put


def put(connection: Connection, operation_id: str, arguments: str = "{}") -> dict[str, Any]:
    (row,) = connection.execute(
        "select * from outbox.put('acme', %(id)s, 'stock.set', 'svc', %(arguments)s,"
        " outbox.intent_digest('acme', %(id)s, 'stock.set', null, null, %(arguments)s))",
        {"id": operation_id, "arguments": arguments},
    ).fetchall()
    return row


def test_a_put_that_waited_for_the_same_put_finds_it(stage: Stage) -> None:
    """INSERT .. ON CONFLICT DO NOTHING and a SELECT in one statement would neither insert nor find it."""
    stage.register()
    one, other = stage.session("writer"), stage.session("writer")
    one.execute("begin")
    first = put(one, "op")
    second = stage.start(lambda: put(other, "op"))
    stage.wait_until_blocked(other, by=one)
    one.execute("commit")
    assert (first["created"], second.result()["created"]) == (True, False)
    assert second.result()["seq"] == first["seq"]
    assert (second.result()["state"], second.result()["differs"]) == ("authorized", [])
    assert stage.value("select count(*) from outbox.pending") == 1


def test_a_put_that_waited_for_another_action_of_that_id_names_what_differs(stage: Stage) -> None:
    stage.register()
    one, other = stage.session("writer"), stage.session("writer")
    one.execute("begin")
    put(one, "op")
    second = stage.start(lambda: put(other, "op", '{"amount":2}'))
    stage.wait_until_blocked(other, by=one)
    one.execute("commit")
    assert second.result()["differs"] == ["arguments"]
    assert second.result()["state"] is None


def test_a_put_that_waited_for_a_put_that_rolls_back_is_the_first(stage: Stage) -> None:
    stage.register()
    one, other = stage.session("writer"), stage.session("writer")
    one.execute("begin")
    put(one, "op")
    second = stage.start(lambda: put(other, "op"))
    stage.wait_until_blocked(other, by=one)
    one.execute("rollback")
    assert second.result()["created"]
    assert stage.value("select count(*) from outbox.pending") == 1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("waits", [True, False])
def test_above_read_committed_a_put_that_cannot_see_the_other_is_a_serialization_failure(
    stage: Stage, level: LiteralString, waits: bool
) -> None:
    stage.register()
    one, other = stage.session("writer"), stage.session("writer")
    one.execute("begin")
    put(one, "op")
    other.execute("begin")
    other.execute(b"set transaction isolation level " + level.encode())
    other.execute("select 1")
    if not waits:
        one.execute("commit")
    second = stage.start(lambda: put(other, "op"))
    if waits:
        stage.wait_until_blocked(other, by=one)
        one.execute("commit")
    with pytest.raises(psycopg.errors.SerializationFailure):
        second.result()
    other.execute("rollback")
    assert not put(other, "op")["created"]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_above_read_committed_a_put_that_sees_the_other_answers(stage: Stage, level: LiteralString) -> None:
    stage.register()
    one = stage.session("writer")
    put(one, "op")
    one.execute("begin")
    one.execute(b"set transaction isolation level " + level.encode())
    assert not put(one, "op")["created"]
    assert put(one, "mine")["created"]
    one.execute("commit")


def test_two_lists_of_intents_in_one_order_wait_and_do_not_deadlock(stage: Stage) -> None:
    stage.register()
    one, other = stage.session("writer"), stage.session("writer")
    one.execute("begin")
    put(one, "a")
    other.execute("begin")
    second = stage.start(lambda: [put(other, "a"), put(other, "b")])
    stage.wait_until_blocked(other, by=one)
    put(one, "b")
    one.execute("commit")
    assert [row["created"] for row in second.result()] == [False, False]
    other.execute("commit")


def test_an_insert_that_waited_for_a_purge_of_its_id_is_refused(stage: Stage) -> None:
    """The id leaves the intents and enters the tombstones in one commit: there is no moment at which it is free."""
    stage.register()
    holder = stage.holder().taken()
    seq = stage.put("op")
    holder.begin()
    holder.end((seq, 1))
    Clock(stage.database).advance(10 * 86400)
    purger, writer = stage.session("operator"), stage.session("writer")
    purger.execute("begin")
    (purged,) = purger.execute("select purged from outbox.purge(0, 1000, outbox.now(), 10, 'eve')").fetchall()
    assert purged == {"purged": 1}
    plain = stage.start(lambda: insert_again(writer))
    stage.wait_until_blocked(writer, by=purger)
    putter = stage.as_role("writer")
    before = put(putter, "op")
    purger.execute("commit")
    after = put(putter, "op")
    with pytest.raises(psycopg.errors.UniqueViolation, match="purged"):
        plain.result()
    assert (before["state"], before["purged"]) == ("succeeded", False)
    assert (after["state"], after["purged"]) == ("succeeded", True)
    assert stage.value("select count(*) from outbox.intent") == 0


def insert_again(connection: Connection) -> None:
    connection.execute(
        "insert into outbox.intent (tenant_id, operation_id, tool, arguments, principal_id, digest)"
        " values ('acme', 'op', 'stock.set', '{}', 'svc',"
        " outbox.intent_digest('acme', 'op', 'stock.set', null, null, '{}'))"
    )


# ------------------------------------------------------------------------------------------------------------- eras


def enter_era(stage: Stage, *, batch_max: int = 500, **changes: Any) -> Any:
    """Enter the life that the server lives, and sweep it: how many became unknown; None if it was known already."""
    relay = stage.as_role("relay")
    (facts,) = relay.execute(RELAY["read_instance"]).fetchall()
    facts = {"system_identifier": facts["server_identifier"], "timeline": facts["server_timeline"]} | changes
    (row,) = relay.execute(RELAY["enter_era"], facts).fetchall()
    if not row["entered"]:
        return None
    made = 0
    while (more := sweep_era(stage, batch_max)) is not None:
        made += more
    return made


def sweep_era(stage: Stage, batch_max: int) -> Any:
    (row,) = stage.as_role("relay").execute(RELAY["sweep_era"], {"batch_max": batch_max}).fetchall()
    return row["made_unknown"]


@pytest.fixture
def failed_over(stage: Stage) -> Stage:
    """A database whose server has another timeline than the one that wrote the rows."""
    stage.register()
    forever = KEYED | {"key_forever": True}
    for tool, numbers in {"blind": BLIND, "looked.up": LOOKED_UP, "repeatable": REPEATABLE, "forever": forever}.items():
        stage.register(tool, **numbers)
    stage.rows("update outbox.instance set timeline = timeline + 17")
    return stage


def test_a_known_life_is_entered_once(failed_over: Stage) -> None:
    assert enter_era(failed_over) == 0
    era = failed_over.value("select era from outbox.instance")
    before = failed_over.everything()
    assert enter_era(failed_over) is None
    assert failed_over.everything() == before
    assert era == 2


def test_a_dump_that_was_restored_in_its_own_cluster_is_another_life(stage: Stage) -> None:
    """Neither the cluster nor its timeline has changed, and everything since the dump is forgotten."""
    stage.register("blind", **BLIND)
    seq = stage.put("op", "blind")
    assert enter_era(stage) is None
    stage.rows("update outbox.instance set database_oid = database_oid::bigint + 1")
    assert enter_era(stage) == 1
    assert stage.state(seq) == "unknown"
    assert enter_era(stage) is None


def test_fences_of_a_new_era_are_above_every_fence_of_the_old_one(failed_over: Stage) -> None:
    holder = failed_over.holder().taken()
    assert enter_era(failed_over) is not None
    (lane,) = failed_over.rows("select * from outbox.lane")
    assert lane["fence"] > 2**40 * 2 > holder.fence
    assert lane["owner"] is None
    assert not holder.renew()
    assert failed_over.holder().taken().fence == lane["fence"] + 1


@pytest.mark.parametrize("wrong", [{"system_identifier": 1}, {"timeline": 4711}])
def test_a_life_that_this_server_does_not_live_is_refused(failed_over: Stage, wrong: dict[str, int]) -> None:
    before = failed_over.everything()
    with pytest.raises(psycopg.Error, match="not the database") as refusal:
        enter_era(failed_over, **wrong)
    assert refusal.value.sqlstate == "OB409"
    assert failed_over.everything() == before


@pytest.mark.parametrize(
    ("tool", "expected"),
    [("blind", "unknown"), ("looked.up", "unknown"), ("forever", "authorized"), ("repeatable", "authorized")],
)
def test_what_may_have_been_exposed_without_a_trace_becomes_unknown_unless_a_repeat_is_safe_for_ever(
    failed_over: Stage, tool: str, expected: str
) -> None:
    seq = failed_over.put("op", tool)
    made = enter_era(failed_over, batch_max=1)
    assert failed_over.state(seq) == expected
    assert made == (1 if expected == "unknown" else 0)
    if expected == "unknown":
        row = failed_over.pending(seq)
        assert row["cause"] == "failover"
        assert row["resend_until"] <= row["first_sent_at"]
        assert failed_over.doubt(seq)["step"] == "look"


def test_a_key_with_a_window_goes_on_as_a_resend_whose_window_is_counted_from_the_intent(failed_over: Stage) -> None:
    """The lost exposure may be as old as the intent: a window counted from now would let the key execute again."""
    clock = Clock(failed_over.database)
    young, old = failed_over.put("young", "stock.set"), failed_over.put("old", "stock.set")
    written = failed_over.value("select created_at from outbox.intent where seq = %s", young)
    assert enter_era(failed_over) == 2
    row = failed_over.pending(young)
    assert (row["state"], row["step"], row["first_sent_at"]) == ("unknown", "resend", written)
    assert row["resend_until"] == written + timedelta(hours=24)
    holder = failed_over.holder().taken()
    assert [begun["seq"] for begun in holder.begin_these(young)] == [young]
    clock.advance(24 * 3600)
    holder = failed_over.holder().taken()
    assert holder.begin_these(old) == []
    assert failed_over.state(old) == "unknown"


def test_until_a_new_life_is_swept_no_lane_is_taken_and_no_permission_is_ended(failed_over: Stage) -> None:
    """What looks authorized may hide an effect until then."""
    seqs = [failed_over.put(f"op-{number}", "blind", expires_at="2000-01-01T00:00:00Z") for number in range(3)]
    relay = failed_over.as_role("relay")
    relay.execute("select outbox.enter_era((select system_identifier from pg_control_system()), outbox.timeline())")
    assert failed_over.holder().take() is None
    assert relay.execute("select outbox.expire(10) as ended").fetchall() == [{"ended": 0}]
    with pytest.raises(psycopg.Error, match="failed over") as refusal:
        failed_over.as_role("operator").execute("select outbox.cancel('acme', 'op-0', 'somebody')")
    assert refusal.value.sqlstate == "OB409"
    assert [sweep_era(failed_over, 2) for _ in range(3)] == [2, 1, None]
    assert {failed_over.state(seq) for seq in seqs} == {"unknown"}
    assert failed_over.holder().take() is not None


def test_what_is_written_in_the_new_life_is_not_doubted_while_the_old_one_is_swept(failed_over: Stage) -> None:
    """A busy writer would keep the sweep going for ever, and every intent of it would cost somebody a look."""
    old = [failed_over.put(f"old-{number}", "blind") for number in range(2)]
    relay = failed_over.as_role("relay")
    relay.execute("select outbox.enter_era((select system_identifier from pg_control_system()), outbox.timeline())")
    new = []
    for number, made in enumerate([1, 1, 0, None]):
        new.append(failed_over.put(f"new-{number}", "blind"))
        assert sweep_era(failed_over, 1) == made
    assert {failed_over.state(seq) for seq in old} == {"unknown"}
    assert {failed_over.state(seq) for seq in new} == {"authorized"}


@pytest.mark.parametrize("tool", ["blind", "stock.set"])
def test_attempts_of_the_old_life_become_unknown_whatever_their_tool(failed_over: Stage, tool: str) -> None:
    seq = failed_over.put("op", tool)
    assert failed_over.holder().taken().begin()
    enter_era(failed_over)
    assert failed_over.state(seq) == "executing", "until somebody takes the lane"
    failed_over.holder().taken()
    assert (failed_over.state(seq), failed_over.pending(seq)["cause"]) == ("unknown", "lease_lost")


def test_a_new_era_judges_due_by_the_intent_and_not_by_the_clock_of_the_new_primary(failed_over: Stage) -> None:
    """The new primary's clock may be behind: a row written a moment ago then looks as if it were not due yet."""
    clock = Clock(failed_over.database)
    clock.advance(600)
    seq = failed_over.put("op", "blind")
    clock.advance(-600)
    enter_era(failed_over)
    assert failed_over.state(seq) == "unknown"


def test_what_waits_for_its_date_was_not_exposed(failed_over: Stage) -> None:
    seq = failed_over.put("op", "blind", not_before="2999-01-01T00:00:00Z")
    assert enter_era(failed_over) == 0
    assert failed_over.state(seq) == "authorized"


def test_of_two_daemons_that_see_a_new_life_one_enters_it(failed_over: Stage) -> None:
    one, other = failed_over.session("relay"), failed_over.session("reconciler")
    (facts,) = one.execute(RELAY["read_instance"]).fetchall()
    identity = [facts["server_identifier"], facts["server_timeline"]]
    one.execute("begin")
    assert one.execute("select outbox.enter_era(%s, %s)", identity).fetchall() == [{"enter_era": True}]
    second = failed_over.start(lambda: other.execute("select outbox.enter_era(%s, %s)", identity).fetchall())
    failed_over.wait_until_blocked(other, by=one)
    one.execute("commit")
    assert second.result() == [{"enter_era": False}]
    assert failed_over.value("select era from outbox.instance") == 2
