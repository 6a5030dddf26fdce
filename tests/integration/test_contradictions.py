"""Evidence against a state is found whichever of the two came last, and looked for among itself only."""

from collections.abc import Callable
from typing import Any, LiteralString

import pytest

from outbox import sql
from tests.support.postgres import Database, Role
from tests.support.stage import Connection, Holder, Row, Stage

# What contradicts, said once more and over all evidence: what the view must equal after whatever happened.
BY_READING_ALL: LiteralString = """
select e.seq, e.evidence_id from outbox.evidence e
left join (
  select seq, state, external_id from outbox.outcome union all select seq, state, external_id from outbox.tombstone
) w on w.seq = e.seq
where e.duplicates > 0
  or (w.state = 'rejected' and (e.kind = 'receipt' or e.verdict = 'confirmed'))
  or (w.state = 'succeeded' and e.external_id <> w.external_id)
order by e.evidence_id
"""


@pytest.fixture
def holder(stage: Stage) -> Holder:
    stage.register()
    return stage.holder().taken(3600)


def against(stage: Stage) -> list[Row]:
    """The contradictions, which are those that a look at all evidence finds."""
    found = stage.rows("select seq, evidence_id from outbox.contradiction order by evidence_id")
    assert found == stage.rows(BY_READING_ALL)
    return found


# --------------------------------------------------------------------------------------- whichever of the two is last

Act = Callable[[Stage, Holder, int], Any]
End = Callable[[Stage, Holder, int, str, str | None], Any]


def executing(stage: Stage, holder: Holder, seq: int) -> None:
    assert holder.begin_these(seq)


def in_doubt(stage: Stage, holder: Holder, seq: int) -> None:
    executing(stage, holder, seq)
    assert holder.record_unknown(seq, 1) == [seq]


def executing_again(stage: Stage, holder: Holder, seq: int) -> None:
    in_doubt(stage, holder, seq)
    assert stage.settle(seq, 1, "authorized") == "applied"
    assert holder.begin_these(seq)


def resending(stage: Stage, holder: Holder, seq: int) -> None:
    in_doubt(stage, holder, seq)
    allow: LiteralString = "select outbox.allow_resend(%s, 1, outbox.now(), outbox.now()) as answer"
    assert stage.as_role("reconciler").execute(allow, [seq]).fetchall() == [{"answer": "applied"}]
    assert holder.begin_these(seq)


def answered(attempt: int) -> End:
    return lambda _, holder, seq, to, external_id: holder.end((seq, attempt), state=to, external_id=external_id)


def settled(stage: Stage, _: Holder, seq: int, to: str, external_id: str | None) -> None:
    answer: LiteralString = "select outbox.settle(%s, 1, %s, 'confirmed', 'r', null, %s, null) as answer"
    assert stage.as_role("reconciler").execute(answer, [seq, to, external_id]).fetchall() == [{"answer": "applied"}]


# How an operation comes to stand where it can end, and how it ends with a state and an external id.
WAYS: dict[str, tuple[Act, End]] = {
    "first attempt": (executing, answered(1)),
    "second attempt": (executing_again, answered(2)),
    "resend": (resending, answered(2)),
    "look": (in_doubt, settled),
}
SEEN: dict[str, tuple[str, Row]] = {
    "a receipt": ("receipt", {"external_id": "one"}),
    "a receipt without an id": ("receipt", {}),
    "a record": ("lookup", {"verdict": "confirmed", "external_id": "one"}),
    "a record without an id": ("lookup", {"verdict": "confirmed"}),
    "two records": ("lookup", {"verdict": "confirmed", "external_id": "one", "duplicates": 1}),
    "pending work twice": ("lookup", {"verdict": "unknown", "duplicates": 1}),
    "an acceptance": ("late_answer", {"external_id": "one"}),
    "pending work": ("lookup", {"verdict": "unknown", "external_id": "one"}),
    "nothing": ("lookup", {"verdict": "not_found"}),
    "a callback": ("callback", {"verdict": "confirmed", "external_id": "one"}),
}


ENDS = [("succeeded", "one"), ("succeeded", "another"), ("succeeded", None), ("rejected", None)]


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_seen_before_an_end_is_compared_with_it_as_what_is_seen_after_it(
    stage: Stage, holder: Holder, way: str, seen: str
) -> None:
    arrive, end = WAYS[way]
    kind, facts = SEEN[seen]
    for to, external_id in ENDS:
        for moment in ("at first", "before", "after"):
            # An effect that is seen puts what claims to hide none in doubt; proof forbids a rejection, as a doubt does.
            forbidden = to == "rejected" and (way == "resend" or moment == "before")
            if forbidden or (moment == "at first" and kind != "late_answer"):
                continue
            seq = stage.put(f"{to}-{external_id}-{moment.replace(' ', '-')}")
            if moment == "at first":
                stage.witness(seq, kind, attempt=1, **facts)
            arrive(stage, holder, seq)
            if moment == "before":
                stage.witness(seq, kind, attempt=1, **facts)
            end(stage, holder, seq, to, external_id)
            assert stage.state(seq) == to
            if moment == "after":
                stage.witness(seq, kind, attempt=1, **facts)
            against(stage)
    assert against(stage) or seen in {"nothing", "a receipt without an id", "a record without an id"}


def test_what_comes_in_while_an_operation_is_cancelled_is_compared_with_its_end(stage: Stage, holder: Holder) -> None:
    seq = stage.put("op")
    stage.witness(seq, "lookup", attempt=1, duplicates=1, verdict="not_found")
    stage.as_role("operator").execute("select outbox.cancel('acme', 'op', 'eve')")
    stage.witness(seq, "receipt", attempt=1)
    assert len(against(stage)) == 2


@pytest.mark.parametrize("late", ["the end", "the evidence"])
def test_whoever_waits_for_the_other_sees_what_it_has_written(stage: Stage, holder: Holder, late: str) -> None:
    """An effect of attempt 1 is seen while attempt 2 is answered with another: two effects, whoever commits first."""
    seq = stage.put("op")
    executing_again(stage, holder, seq)
    ending, seeing = stage.session("relay"), stage.session("relay")
    answered = Holder(ending, holder.receiver_id, holder.receiver, 0, holder.owner, holder.fence)
    receipt: LiteralString = (
        "select outbox.witness(%s, 1, 1, 'receipt', null, 'one', null, 0, 200, null, null, null, 'r', null, null)"
    )

    def see() -> Any:
        return seeing.execute(receipt, [seq]).fetchall()

    def end() -> Any:
        return answered.end((seq, 2), external_id="another")

    (early, first), (waiting, second) = ((seeing, see), (ending, end))[:: 1 if late == "the end" else -1]
    early.execute("begin")
    assert first()
    pending = stage.start(second)
    stage.wait_until_blocked(waiting, by=early)
    early.execute("commit")
    assert pending.result()
    assert [row["seq"] for row in against(stage)] == [seq]


def test_what_agrees_with_the_end_of_a_doubt_is_not_noted(stage: Stage, holder: Holder) -> None:
    """As nearly all evidence does."""
    for name, end in (("seen", "succeeded"), ("absent", "rejected")):
        seq = stage.unknown(name, holder)
        seen: Row = {"verdict": "confirmed", "external_id": "one"} if end == "succeeded" else {"verdict": "not_found"}
        stage.witness(seq, "lookup", attempt=1, **seen)
        settled(stage, holder, seq, end, seen.get("external_id"))
        stage.witness(seq, "lookup", attempt=1, **seen)
    assert stage.value("select count(*) from outbox.objection") == 0


def test_what_is_purged_leaves_nothing_behind_that_is_looked_at(stage: Stage, holder: Holder) -> None:
    seq = stage.put("op")
    assert holder.begin_these(seq)
    stage.witness(seq, "late_answer", attempt=1, external_id="one")
    holder.end((seq, 1), external_id="one")
    assert stage.value("select count(*) from outbox.objection") == 1
    with stage.admin.transaction():
        stage.rows("select set_config('outbox.act', 'redact', true)")
        stage.rows("update outbox.outcome set started_at = '2020-01-01', ended_at = '2020-01-01'")
    operator = stage.as_role("operator")
    assert operator.execute("select purged from outbox.purge(0, 9, outbox.now(), 9, 'e')").fetchall() == [{"purged": 1}]
    assert stage.value("select count(*) from outbox.objection") == 0


# ---------------------------------------------------------------------------------------- read as many as there are

ROWS = 20_000
ASKED: dict[str, tuple[Role, LiteralString]] = {
    "stuck_contradictions": ("operator", sql.load("inspect")["stuck_contradictions"]),
    "read_contradictions": ("operator", sql.load("inspect")["read_contradictions"]),
    "doctor_contradictions": ("operator", sql.load("doctor")["doctor_contradictions"]),
    "count_contradictions": ("reconciler", sql.load("reconcile")["count_contradictions"]),
    "view": ("viewer", "select * from outbox.contradiction"),
    "purgeable": ("operator", "select * from outbox.purgeable(0, 20, outbox.now(), 20)"),
}


def rows_read(connection: Connection) -> int:
    (row,) = connection.execute(
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int as read from pg_stat_xact_user_tables"
        " where schemaname = 'outbox'"
    ).fetchall()
    return int(row["read"])


@pytest.mark.parametrize("statistics", ["none", "of empty tables", "fresh"])
def test_finding_contradictions_reads_them_however_much_evidence_there_is(database: Database, statistics: str) -> None:
    with Stage(database) as stage:
        stage.register()
        for table in ("intent", "outcome", "evidence", "objection"):
            stage.admin.execute(f"alter table outbox.{table} set (autovacuum_enabled = off)".encode())
        if statistics == "of empty tables":
            stage.rows("analyze")
        ended(stage, ROWS)
        if statistics == "fresh":
            stage.rows("analyze")
        for seq in (1, ROWS):
            stage.witness(seq, "receipt", external_id="another", attempt=1)
        asked = dict.fromkeys(("tenant_id", "tool", "receiver", "cause")) | {"limit": 1000, "seq": 1}
        for name, (role, statement) in ASKED.items():
            connection = stage.as_role(role)
            for plans in ("auto", "force_generic_plan"):
                with connection.transaction(force_rollback=True):
                    connection.execute(f"set local plan_cache_mode = {plans}".encode())
                    before = rows_read(connection)
                    assert connection.execute(statement, asked, prepare=plans != "auto").fetchall()
                    assert rows_read(connection) - before <= 150, (name, plans)
        assert len(against(stage)) == 2


def ended(stage: Stage, number: int) -> None:
    """So many operations that have ended, each with evidence that agrees: half of it shows the effect."""
    stage.rows("set session_replication_role = replica")
    stage.rows(
        """
        insert into outbox.intent (tenant_id, operation_id, tool, arguments, principal_id, digest)
        select 'acme', 'op-' || n, 'stock.set', '{}', 'svc',
          outbox.intent_digest('acme', 'op-' || n, 'stock.set', null, null, '{}') from generate_series(1, %s) n
        """,
        number,
    )
    stage.rows("set session_replication_role = origin")
    stage.rows(
        """
        insert into outbox.outcome (seq, from_state, state, attempt, external_id)
        select i.seq, 'unknown', 'succeeded', 1, 'w-' || i.seq from outbox.intent i
        """
    )
    stage.rows(
        """
        insert into outbox.evidence (seq, attempt, kind, verdict, external_id, source)
        select o.seq, 1, 'lookup', case when o.seq %% 2 = 0 then 'confirmed' else 'not_found' end,
          case when o.seq %% 2 = 0 then o.external_id end, 'reconciler' from outbox.outcome o where %s > 0
        """,
        number,
    )
    assert stage.value("select count(*) from outbox.objection") == 0
