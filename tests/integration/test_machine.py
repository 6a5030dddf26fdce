"""Any sequence of acts of two holders, a reconciler and people, over a real PostgreSQL, judged by a ledger of effects.

The machine plays everybody: relays that may be overtaken, crash, or answer late; a network in which a request lands at
any moment until its bound, or never; a receiver that keeps keys for a day (or none); a reconciler whose reading and
writing are two steps; people who tell the truth about what they see at that moment; failovers that lose exposures.
Nobody lies, and everybody may be late. What must hold then, after every step, is written in `Machine.judge`.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.support.postgres import Database
from tests.support.stage import KEYED, LOOKED_UP, RELAY, Clock, Holder, Row, Stage, empty

BOUND = timedelta(seconds=40)  # settle time of every tool here: the true bound of this network
RETENTION = timedelta(hours=24)
OPERATIONS_MAX = 8
TOOLS = ["keyed", "looked.up", "approved"]
NEVER_BEFORE = {"authorized", "proposed", "rejected"}

EXAMPLES = 40
# What makes a play hard. A run without many of these would prove little.
HARD = [
    "begin again",
    "resend",
    "landed",
    "absent: applied",
    "confirmed: applied",
    "confirmed: moved",
    "lost exposures",
]

# Where an act of a person may make sense.
SENSIBLE = {
    "retry": ["unknown"],
    "resolve": ["unknown"],
    "approve": ["proposed"],
    "cancel": ["proposed", "authorized", "executing"],
    "revoke": [],
    "expedite": ["authorized"],
}

Answer = Literal["receipt", "refused", "throttled", "not_sent", "ambiguous"]


@dataclass
class Request:
    """One attempt on the wire. Once dead it never lands: it was refused, or it never left."""

    seq: int
    attempt: int
    begun_at: datetime
    fence: int
    landed: bool = False
    dead: bool = False


@dataclass
class Finding:
    """What a reconciler has read, and not yet written."""

    seq: int
    attempt: int
    confirmed: bool
    proves_absence: bool


@dataclass
class Worker:
    """A relay: the lane that it believes to hold, and the attempts that it knows of."""

    holder: Holder
    mine: list[Request] = field(default_factory=list)


class Machine(RuleBasedStateMachine):
    def __init__(self, database: Database, seen: Counter[str]) -> None:
        super().__init__()
        self.seen = seen
        empty(database)
        self.stage = Stage(database)
        self.clock = Clock(database)
        self.requests: list[Request] = []
        self.effects: dict[int, list[datetime]] = {}
        self.findings: list[Finding] = []
        self.ends: dict[int, Row] = {}
        self.tools: dict[int, str] = {}
        self.workers: list[Worker] = []

    def teardown(self) -> None:
        self.stage._open.close()

    @initialize(data=st.data())
    def begin_of_time(self, data: st.DataObject) -> None:
        self.stage.register("keyed", **KEYED)
        self.stage.register("looked.up", **LOOKED_UP)
        self.stage.register("approved", **KEYED | {"requires_approval": True})
        self.workers = [Worker(self.stage.holder()) for _ in range(2)]
        self.workers[0].holder.taken()
        for _ in range(3):
            self.put(data)
        self.begin(data)

    @rule(data=st.data())
    def somebody_acts(self, data: st.DataObject) -> None:
        """One rule, so that every play has all of them: Hypothesis leaves whole rules out of a play."""
        relay = [self.take, self.renew, *[self.begin] * 2, self.begin_and_hear_nothing, *[self.hear] * 3, self.crash]
        receiver = [self.time_passes, *[self.land] * 2]
        reconciler = [self.look, *[self.conclude] * 2, self.settle_by_receipt, self.chores]
        people = [*[self.put] * 3, *[self.decide] * 2, self.upheaval]
        act = data.draw(st.sampled_from([*relay, *receiver, *reconciler, *people]))
        act(data)

    # ------------------------------------------------------------------------------------------------------- helpers

    @property
    def now(self) -> datetime:
        now: datetime = self.stage.value("select outbox.now()")
        return now

    def operations(self) -> list[Row]:
        return self.stage.rows("select seq, operation_id, state, attempt, tool from outbox.operation order by seq")

    def pick(self, data: st.DataObject, *states: str) -> Row | None:
        """An operation in one of these states, if there is one."""
        found = [row for row in self.operations() if not states or row["state"] in states]
        return data.draw(st.sampled_from(found)) if found else None

    def refusable(self, role: Any, statement: Any, *parameters: Any) -> None:
        """Do what the database may refuse; what it refuses changes nothing."""
        before = self.stage.everything()
        word = str(statement).partition("(")[0].rpartition(".")[2]
        try:
            self.stage.as_role(role).execute(statement, parameters)
        except psycopg.Error as error:
            sqlstate, message = error.sqlstate, str(error)
        else:
            self.seen[f"{word}: done"] += 1
            return
        self.seen[f"{word}: refused"] += 1
        assert sqlstate in {"OB409", "OB404"}, message
        assert self.stage.everything() == before

    # ------------------------------------------------------------------------------------------------------- writing

    def put(self, data: st.DataObject) -> None:
        if len(self.tools) >= OPERATIONS_MAX:
            return
        tool, key, lapses = data.draw(st.tuples(st.sampled_from(TOOLS), st.sampled_from([None, "k"]), st.booleans()))
        number = len(self.tools)
        expires_at = self.now + timedelta(seconds=90) if lapses else None
        seq = self.stage.put(f"op-{number}", tool, ordering_key=key, expires_at=expires_at)
        self.tools[seq] = tool
        self.effects[seq] = []

    # -------------------------------------------------------------------------------------------------------- relays

    def worker(self, data: st.DataObject) -> Worker:
        return self.workers[data.draw(st.integers(0, 1))]

    def take(self, data: st.DataObject) -> None:
        if data.draw(st.booleans()):
            self.clock.advance(31)
        holder = self.worker(data).holder
        (lane,) = self.stage.rows("select fence, expires_at < outbox.now() as free from outbox.lane")
        taken = holder.take(30) is not None
        assert taken == lane["free"]
        if taken:
            assert holder.fence > lane["fence"]

    def renew(self, data: st.DataObject) -> None:
        holder = self.worker(data).holder
        if not holder.renew(30):
            assert not self.holds(holder)

    def holds(self, holder: Holder) -> bool:
        return bool(
            self.stage.rows("select from outbox.lane where fence = %s and owner = %s", holder.fence, holder.owner)
        )

    def begin_and_hear_nothing(self, data: st.DataObject) -> None:
        """Every answer is lost, and whatever can be sent again is."""
        worker = self.worker(data)
        for request in list(worker.mine):
            worker.mine.remove(request)
            worker.holder.record_unknown(request.seq, request.attempt, steps="resend", delays=0.0)
        self.begin(data, worker)

    def begin(self, data: st.DataObject, worker: Worker | None = None) -> None:
        worker = worker or self.worker(data)
        held = self.holds(worker.holder)
        begun = worker.holder.begin(batch_max=3)
        assert (begun is not None) == held
        for row in begun or []:
            self.judge_begin(row)
            self.seen["resend" if row["in_doubt"] else "begin" if row["attempt"] == 1 else "begin again"] += 1
            begun_at = self.stage.pending(row["seq"])["begun_at"]
            request = Request(row["seq"], row["attempt"], begun_at, worker.holder.fence)
            self.requests.append(request)
            worker.mine.append(request)

    def judge_begin(self, row: Row) -> None:
        """What the begin statement promises of each operation that it hands out."""
        pending = self.stage.pending(row["seq"])
        now = self.now
        assert pending["expires_at"] is None or pending["expires_at"] > now - timedelta(seconds=5)
        if row["in_doubt"]:
            assert self.tools[row["seq"]] != "looked.up", "sent again although nobody deduplicates"
            assert now + timedelta(seconds=30) < pending["first_sent_at"] + RETENTION, "sent again outside its window"
        if self.tools[row["seq"]] == "approved":
            assert row["approved_digest"] == row["digest"]

    def hear(self, data: st.DataObject) -> None:
        """An answer reaches the relay that asked, in time or late. No answer is false."""
        waiting = [worker for worker in self.workers if worker.mine]
        if not waiting:
            return
        worker = data.draw(st.sampled_from(waiting))
        request = data.draw(st.sampled_from(worker.mine))
        answers: list[Answer] = ["receipt"] if request.landed else ["refused", "throttled", "not_sent"]
        answer: Answer = data.draw(st.sampled_from([*answers, "ambiguous"]))
        worker.mine.remove(request)
        if answer in {"refused", "throttled", "not_sent"}:
            request.dead = True
        holder, one = worker.holder, (request.seq, request.attempt)
        before, held = self.stage.everything(), self.holds(holder)
        if answer == "receipt":
            applied = holder.end(one)
        elif answer == "refused":
            applied = holder.end(one, state="rejected")
            if applied == []:  # an earlier attempt is unresolved, or proof came in: it speaks of this attempt only
                applied = holder.withdraw(*one, causes="refused", not_sents=False, delays=0.0)
        elif answer == "ambiguous":
            applied = holder.record_unknown(*one, steps=data.draw(st.sampled_from(["look", "resend"])), delays=0.0)
        else:
            facts: Row = {"not_sents": answer == "not_sent", "throttleds": answer == "throttled", "causes": answer}
            applied = holder.withdraw(*one, firsts=request.attempt == 1, delays=0.0, **facts)
        self.seen[f"{answer}: {'lost' if applied is None else 'applied' if applied else 'nothing'}"] += 1
        if not applied:
            assert self.stage.everything() == before, "a write that applied nothing has changed something"
        assert (applied is not None) == held, "a lost lease is told, and nothing else is"
        if applied is None and answer in {"receipt", "not_sent"}:
            self.stage.witness(request.seq, answer, attempt=request.attempt, fence=request.fence)

    def crash(self, data: st.DataObject) -> None:
        """A relay dies and comes back: it remembers nothing. Its requests are on their way."""
        index = data.draw(st.integers(0, 1))
        self.workers[index] = Worker(self.stage.holder(connection=self.workers[index].holder.connection))

    # ----------------------------------------------------------------------------------------------- time and network

    def time_passes(self, data: st.DataObject) -> None:
        self.clock.advance(data.draw(st.sampled_from([1, 1, 5, 5, 10, 20, 31, 41, 41, 100, 3600, 86_300])))

    def may_land(self, request: Request) -> bool:
        return not request.dead and not request.landed and self.now <= request.begun_at + BOUND

    def land(self, data: st.DataObject) -> None:
        candidates = [request for request in self.requests if self.may_land(request)]
        if not candidates:
            return
        request = data.draw(st.sampled_from(candidates))
        request.landed = True
        self.seen["landed"] += 1
        known, now = self.effects[request.seq], self.now
        if self.tools[request.seq] == "looked.up" or not known or now >= known[0] + RETENTION:
            known.append(now)

    # ---------------------------------------------------------------------------------------------------- reconciler

    def look(self, data: st.DataObject) -> None:
        row = self.pick(data, "unknown", "executing")
        if row is None:
            return
        doubt = self.stage.one("doubt", row["seq"])
        settled = bool(doubt and doubt["settle_at"] and self.now >= doubt["settle_at"])
        confirmed = bool(self.effects[row["seq"]])
        self.findings.append(Finding(row["seq"], row["attempt"], confirmed, settled and not confirmed))

    def conclude(self, data: st.DataObject) -> None:
        """Write what was read, now or much later."""
        if not self.findings:
            return
        finding = self.findings.pop(data.draw(st.sampled_from([-1, -1, 0])))
        again = data.draw(st.booleans())
        if finding.confirmed:
            self.stage.witness(finding.seq, "lookup", role="reconciler", verdict="confirmed", attempt=finding.attempt)
            answer = self.stage.settle(finding.seq, finding.attempt, "succeeded")
            self.seen[f"confirmed: {answer}"] += 1
        elif finding.proves_absence:
            answer = self.stage.settle(finding.seq, finding.attempt, "authorized" if again else "rejected")
            self.seen[f"absent: {answer}"] += 1

    def settle_by_receipt(self, data: st.DataObject) -> None:
        row = self.pick(data, "unknown")
        if row and self.stage.rows("select from outbox.evidence where seq = %s and kind = 'receipt'", row["seq"]):
            assert self.stage.settle(row["seq"], row["attempt"], "rejected") == "receipt"
            assert self.stage.settle(row["seq"], row["attempt"], "succeeded") == "applied"
            self.seen["late receipt: applied"] += 1

    def chores(self, data: st.DataObject) -> None:
        if data.draw(st.booleans()):
            self.workers[0].holder.run("expire", limit=10)
        else:
            self.stage.as_role("reconciler").execute("select outbox.sweep_orphans(interval '60 seconds')")

    # -------------------------------------------------------------------------------------------------------- people

    def decide(self, data: st.DataObject) -> None:
        """A person does something that the database may refuse. It must know when: nobody else does."""
        act = data.draw(st.sampled_from([*["retry", "resolve"] * 3, *["approve"] * 3, "cancel", "revoke", "expedite"]))
        # Mostly where it may make sense, sometimes anywhere.
        row = self.pick(data, *([] if data.draw(st.integers(0, 3)) == 0 else SENSIBLE[act]))
        if row is None:
            return
        seq, operation_id = row["seq"], row["operation_id"]
        if act == "approve":
            digest = self.stage.value("select digest from outbox.intent where seq = %s", seq)
            self.refusable(
                "approver", "select outbox.approve('acme', %s, %s, 'eve', null, 'fine')", operation_id, digest
            )
        elif act == "resolve":
            # The truth as the ledger shows it at this moment; "no effect" may be too early.
            to = "succeeded" if self.effects[seq] else data.draw(st.sampled_from(["authorized", "rejected"]))
            statement = "select outbox.resolve('acme', %s, %s, %s, null, 'eve', 'looked')"
            self.refusable("operator", statement, operation_id, row["attempt"], to)
        else:
            reason = ", 'because'" if act in {"revoke", "expedite"} else ""
            self.refusable("operator", f"select outbox.{act}('acme', %s, 'eve'{reason})".encode(), operation_id)

    # ----------------------------------------------------------------------------------------------------- failovers

    def upheaval(self, data: st.DataObject) -> None:
        events = [*[None] * 9, "policy", "policy, decided again", "failover", "failover that loses commits"]
        event = data.draw(st.sampled_from(events))
        if event is None:
            return
        if event.startswith("policy"):
            self.stage.rows("update outbox.tool set policy_version = policy_version + 1 where name = 'approved'")
            if event != "policy":
                self.stage.rows("select outbox.redecide(10)")
        else:
            self.fail_over(loses=event != "failover")

    def fail_over(self, *, loses: bool) -> None:
        """A new primary. An asynchronous one has lost first exposures: those operations look untouched."""
        if loses:
            self.stage.rows("set session_replication_role = replica")
            lost = self.stage.rows(
                "update outbox.pending p set state = 'authorized', attempt = 0, fence = null, begun_at = null,"
                " first_sent_at = null, resend_until = null, contract_id = null"
                " where state = 'executing' and attempt = 1 and unresolved_at is null returning 1"
            )
            self.seen["lost exposures"] += len(lost)
            self.stage.rows("reset session_replication_role")
        self.stage.rows("update outbox.instance set timeline = timeline + 1")
        relay = self.stage.as_role("relay")
        (facts,) = relay.execute(RELAY["read_instance"]).fetchall()
        identity = {"system_identifier": facts["server_identifier"], "timeline": facts["server_timeline"]}
        assert relay.execute(RELAY["enter_era"], identity).fetchall() == [{"entered": True}]
        assert relay.execute(RELAY["enter_era"], identity).fetchall() == [{"entered": False}]
        assert self.workers[0].holder.take() is None, "a lane is taken before the old life is swept"
        while (made := relay.execute(RELAY["sweep_era"], {"batch_max": 2}).fetchall()[0]["made_unknown"]) is not None:
            self.seen["swept"] += made
        self.seen["failover"] += 1
        assert not any(self.holds(worker.holder) for worker in self.workers)

    # --------------------------------------------------------------------------------------------------------- judge

    @invariant()
    def judge(self) -> None:
        rows = self.stage.rows(
            """
            select i.seq, p.state as open, o.state as ended, p.unresolved_at, p.fence, d.seq as doubt, d.next_at,
              l.fence as lane_fence, l.owner, p.ord, to_jsonb(o) as outcome
            from outbox.intent i left join outbox.pending p using (seq)
            left join outbox.outcome o using (seq) left join outbox.doubt d using (seq)
            left join outbox.lane l on l.receiver_id = p.receiver_id and l.lane = p.lane
            """
        )
        assert {row["seq"] for row in rows} == self.tools.keys()
        for row in rows:
            seq, state = row["seq"], row["open"] or row["ended"]
            # Conservation: each operation is open or ended, and never both.
            assert (row["open"] is None) != (row["ended"] is None), row
            # The bound on effects, for a keyed tool inside its window and for a tool that only a look-up protects.
            assert len(self.effects[seq]) <= 1, f"{self.tools[seq]} {seq} has had {len(self.effects[seq])} effects"
            # Honesty: what claims to hide nothing hides nothing, now and later; what claims success has an effect.
            if state in NEVER_BEFORE:
                assert not self.effects[seq], f"{seq} is {state}, and its effect exists"
                assert not any(r.seq == seq and self.may_land(r) for r in self.requests), (
                    f"{seq} is {state} and may land"
                )
            if state == "succeeded":
                assert self.effects[seq], f"{seq} succeeded without an effect"
            # What is unknown has a doubt with a date; what executes does so under the fence of whoever holds the lane.
            if state == "unknown":
                assert None not in (row["doubt"], row["next_at"], row["unresolved_at"])
            if state == "executing":
                assert row["fence"] == row["lane_fence"] or row["owner"] is None, f"{seq} executes under nobody's fence"
            if row["ended"]:
                # Terminal rows never change, and leave nothing behind.
                assert self.ends.setdefault(seq, row["outcome"]) == row["outcome"]
                assert row["doubt"] is None
        # Order: of one key at most one operation executes, and none before an earlier one that is open.
        keyed = sorted((row["seq"], row["open"]) for row in rows if row["ord"] is not None and row["open"])
        assert all(state != "executing" for _, state in keyed[1:])


@pytest.mark.timeout(900)  # half a minute; a failure takes longer, as it is made small
def test_no_sequence_of_acts_breaks_an_invariant(module_database: Database) -> None:
    seen: Counter[str] = Counter()

    class Play(Machine):
        def __init__(self) -> None:
            super().__init__(module_database, seen)

    run_state_machine_as_test(Play, settings=settings(max_examples=EXAMPLES, stateful_step_count=50, deadline=None))
    assert sum(seen[case] for case in HARD) > EXAMPLES // 2, dict(sorted(seen.items()))
