"""Relays and reconcilers as real processes on an outbox, and an inbox in another database whose own table judges.

No contract here states a bound, and nothing rests on one: processes are stopped for as long as a test likes.
"""

import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from outbox.crashpoints import ENVIRONMENT_VARIABLE
from outbox.demo.programs import Program, Programs
from outbox.settings import Configuration
from tests.support.doubts import register
from tests.support.eventually import eventually
from tests.support.inbox import CONTRACT, NAME, TOOL, Inbox, inbox_on, write_secrets
from tests.support.postgres import Cluster, Database
from tests.support.stage import Stage

LOCK = 73
LANES = 2
# A Python program on a machine that has much else to do, and leases that must run out first.
SECONDS_MAX = 60.0
SETTINGS = {"poll": "50ms", "heartbeat": "300ms", "grace": "2s", "log": "json"}
RECONCILER = {"claim": "2s", "belt": "300ms"}


class Yard:
    """The outbox, the inbox, and the processes between them."""

    def __init__(self, stage: Stage, inbox: Inbox, folder: Path) -> None:
        self.stage, self.inbox = stage, inbox
        self.programs = Programs(folder)
        self._folder = folder

    def relay(self, crash: str | None = None) -> Program:
        return self._start("relay", crash, SETTINGS)

    def reconciler(self, crash: str | None = None) -> Program:
        return self._start("reconciler", crash, SETTINGS | RECONCILER)

    def _start(self, kind: Any, crash: str | None, settings: dict[str, str]) -> Program:
        number = len(self.programs.started)
        lines = [f'dsn = "{self.stage.database.dsn_for(kind)}"', *(f'{key} = "{it}"' for key, it in settings.items())]
        path = self._folder / f"{kind}-{number}.toml"
        path.write_text("\n".join([f"[{kind}]", *lines]))
        self.programs.environment = {ENVIRONMENT_VARIABLE: crash} if crash else {}
        return self.programs.start(f"{kind}-{number}", kind, ["--config", str(path)])

    def put(self, operation_id: str = "op", arguments: str = '{"quantity":1}', **columns: Any) -> int:
        return self.stage.put(operation_id, TOOL, resource="item", arguments=arguments, **columns)

    def ends(self, seq: int) -> str:
        """How it ended, once it has."""
        eventually(lambda: self.stage.one("outcome", seq), SECONDS_MAX, claim=f"{seq} ends")
        return str(self.stage.outcome(seq)["state"])

    def until(self, seq: int, state: str) -> None:
        eventually(lambda: self.stage.state(seq) == state, SECONDS_MAX, claim=f"{seq} is {state}")

    def lose_lanes(self) -> None:
        """Every lease is over and every relay counts as dead, and none of them knows: they stood still for so long."""
        self.stage.admin.execute("update outbox.lane set expires_at = '-infinity'")
        self.stage.admin.execute("delete from outbox.member")

    def make_unknown(self, seq: int) -> None:
        """Let somebody take the lane of an attempt that is under way, and die before it can do anything else."""
        self.lose_lanes()
        for lane in range(LANES):
            self.stage.holder(lane, NAME).taken()
        assert self.stage.state(seq) == "unknown"
        self.lose_lanes()

    def shut_out(self, attempt: int) -> None:
        """Return once a look has left its tombstone."""
        query = "select refused_to from inbox.operation"
        eventually(lambda: self.inbox.database.rows(query) == [(attempt,)], SECONDS_MAX, claim="a tombstone stands")


def died(program: Program) -> None:
    """Return once it has: a crash that did not land has shown nothing."""
    eventually(lambda: not program.running, SECONDS_MAX, claim=f"it dies: {program.tail()}")
    assert program.process.returncode == -signal.SIGKILL, program.tail()


def stands_still(program: Program) -> None:
    """Return once the process is stopped."""
    status = Path(f"/proc/{program.pid}/status")
    eventually(lambda: "State:\tT" in status.read_text(), SECONDS_MAX, claim=f"it stops: {program.tail()}")


def heard(program: Program, *outcomes: str) -> None:
    """Return once it has been told so about one of its attempts."""
    line = re.compile(f'"outcome": "({"|".join(outcomes)})"')
    eventually(lambda: line.search(program.log.read_text()), SECONDS_MAX, claim=f"{outcomes} in {program.log}")


@pytest.fixture
def inbox(postgres: Cluster) -> Iterator[Inbox]:
    with inbox_on(postgres) as made:
        yield made


@pytest.fixture
async def yard(request: pytest.FixtureRequest, database: Database, inbox: Inbox, tmp_path: Path) -> AsyncIterator[Yard]:
    patient = "impatient" not in request.node.name
    secrets = write_secrets(tmp_path, inbox)
    receiver = {
        "transport": "postgres",
        "lanes": LANES,
        "concurrency": 8,
        # Longer than any test: a process that was stopped still waits for its answer when it goes on.
        "lease": "170s" if patient else "2s",
        "auth": {"kind": "dsn", "secret": secrets["receive"], "id": "receive", "account": NAME},
        "read_auth": {"kind": "dsn", "secret": secrets["look"], "id": "look", "account": NAME},
    }
    deadline = "160s" if patient else "1s"
    tool = {"receiver": NAME, "deadline": deadline, "contract": {**CONTRACT, "retry": {"first": "100ms", "max": "1s"}}}
    configuration = {"receivers": {NAME: receiver}, "tools": {TOOL: tool}}
    await register(database, Configuration.model_validate(configuration))
    with Stage(database) as stage:
        made = Yard(stage, inbox, tmp_path)
        yield made
        # Processes first: their connections would keep the databases.
        made.programs.stop()


@pytest.mark.timeout(180)
def test_two_relays_and_a_reconciler_have_every_effect_once(yard: Yard) -> None:
    seqs = [yard.put(f"op-{number}", '{"quantity":1,"receipt":{"external_id":"m"}}') for number in range(60)]
    yard.relay()
    yard.relay()
    yard.reconciler()
    assert {yard.ends(seq) for seq in seqs} == {"succeeded"}
    assert yard.inbox.all_effects() == {f"op-{number}": 1 for number in range(60)}
    outcome = yard.stage.outcome(seqs[0])
    assert (outcome["external_id"], outcome["receipt"]) == ("m", '{"external_id": "m"}')
    digest = "select digest from inbox.operation where sent_key = %s"
    assert outcome["wire_digest"] == yard.inbox.database.value(digest, outcome["sent_key"])


@pytest.mark.timeout(180)
def test_a_refusal_of_the_handler_ends_the_operation_and_leaves_nothing(yard: Yard) -> None:
    seq = yard.put(arguments='{"quantity":5000}')
    yard.relay()
    assert yard.ends(seq) == "rejected"
    assert "SQLSTATE 23514" in str(yard.stage.outcome(seq)["excerpt"])
    assert yard.inbox.all_effects() == {}


@pytest.mark.timeout(180)
def test_a_relay_that_wakes_after_the_look_is_shut_out_however_late_it_is(yard: Yard) -> None:
    """It stood still between its last check and its first byte: no clock of ours can know when it goes on."""
    seq = yard.put()
    zombie = yard.relay("before_send:stop")
    stands_still(zombie)
    yard.make_unknown(seq)
    yard.reconciler()
    yard.shut_out(1)
    yard.until(seq, "authorized")
    zombie.signal(signal.SIGCONT)
    heard(zombie, "NotSent")
    assert "a look has shut this attempt out" in zombie.log.read_text()
    assert yard.inbox.all_effects() == {}
    assert yard.stage.state(seq) == "authorized"
    zombie.signal(signal.SIGKILL)
    yard.lose_lanes()
    yard.relay()
    assert yard.ends(seq) == "succeeded"
    assert yard.stage.outcome(seq)["attempt"] == 2
    assert yard.inbox.all_effects() == {"op": 1}


@pytest.mark.timeout(180)
def test_a_relay_that_wakes_after_the_effect_of_another_changes_nothing(yard: Yard) -> None:
    seq = yard.put()
    zombie = yard.relay("before_send:stop")
    stands_still(zombie)
    yard.lose_lanes()
    yard.relay()
    yard.reconciler()
    assert yard.ends(seq) == "succeeded"
    ended = yard.stage.outcome(seq)
    zombie.signal(signal.SIGCONT)
    heard(zombie, "StaleFence")
    assert yard.stage.outcome(seq) == ended
    assert yard.inbox.all_effects() == {"op": 1}


@pytest.mark.timeout(180)
def test_a_relay_that_dies_while_its_call_is_under_way_leaves_an_effect_that_is_found(yard: Yard) -> None:
    seq = yard.put()
    died(yard.relay("after_send:kill"))
    yard.lose_lanes()
    yard.relay()
    yard.reconciler()
    assert yard.ends(seq) == "succeeded"
    assert yard.inbox.all_effects() == {"op": 1}


@pytest.mark.timeout(180)
def test_while_a_call_of_a_dead_relay_is_open_nobody_says_that_it_did_not_happen(yard: Yard) -> None:
    name = yard.inbox.database.name
    with yard.inbox.database.connect() as admin:
        # So that the server does not notice that its caller is dead.
        keep = f"alter role inbox_receiver in database {name} set client_connection_check_interval = 0"
        admin.execute(keep.encode())
    with yard.inbox.holding(LOCK):
        seq = yard.put(arguments=f'{{"quantity":1,"wait_for":{LOCK}}}')
        first = yard.relay()
        eventually(lambda: yard.inbox.waiting() == 1, SECONDS_MAX, claim="its call waits in the handler")
        first.signal(signal.SIGKILL)
        yard.lose_lanes()
        yard.relay()
        reconciler = yard.reconciler()
        failed = '"event": "look_failed"'
        eventually(lambda: failed in reconciler.log.read_text(), SECONDS_MAX, claim="a look came to nothing")
        assert yard.stage.state(seq) in {"unknown", "executing"}
        assert yard.inbox.all_effects() == {}
    assert yard.ends(seq) == "succeeded"
    assert yard.inbox.all_effects() == {"op": 1}


@pytest.mark.timeout(180)
def test_a_reconciler_that_dies_after_its_look_leaves_a_tombstone_that_harms_nobody(yard: Yard) -> None:
    seq = yard.put()
    died(yard.relay("before_send:kill"))
    yard.make_unknown(seq)
    died(yard.reconciler("after_lookup:kill"))
    yard.shut_out(1)
    assert yard.stage.state(seq) == "unknown"
    yard.relay()
    yard.reconciler()
    assert yard.ends(seq) == "succeeded"
    assert yard.inbox.all_effects() == {"op": 1}


@pytest.mark.timeout(180)
def test_a_permission_that_lapses_in_doubt_ends_the_operation_and_what_comes_late_is_shut_out(yard: Yard) -> None:
    """`rejected` is never contradicted, although the request was on its way: no bound is stated, and none is needed."""
    soon = yard.stage.value("select outbox.now() + interval '8 seconds'")
    seq = yard.put(expires_at=soon)
    zombie = yard.relay("before_send:stop")
    stands_still(zombie)
    yard.make_unknown(seq)
    eventually(lambda: yard.stage.value("select outbox.now()") > soon, SECONDS_MAX)
    yard.reconciler()
    assert yard.ends(seq) == "rejected"
    zombie.signal(signal.SIGCONT)
    heard(zombie, "NotSent")
    assert "a look has shut this attempt out" in zombie.log.read_text()
    assert yard.inbox.all_effects() == {}
    assert yard.stage.value("select count(*) from outbox.contradiction") == 0


@pytest.mark.timeout(180)
def test_after_a_failover_the_fences_of_the_life_before_are_stale(yard: Yard) -> None:
    seqs = [yard.put(f"op-{number}") for number in range(4)]
    zombie = yard.relay("before_send:stop")
    stands_still(zombie)
    # What daemons see of a failover: another timeline than the one that is written down.
    yard.stage.admin.execute("update outbox.instance set timeline = timeline + 1")
    yard.lose_lanes()
    yard.relay()
    yard.reconciler()
    assert {yard.ends(seq) for seq in seqs} == {"succeeded"}
    era = yard.stage.value("select era from outbox.instance")
    assert yard.inbox.database.value("select min(fence >> 40) from inbox.lane") == era
    zombie.signal(signal.SIGCONT)
    heard(zombie, "StaleFence")
    assert set(yard.inbox.all_effects().values()) == {1}


@pytest.mark.timeout(240)
@pytest.mark.slow
def test_impatient_relays_that_are_stopped_and_killed_at_every_turn_have_every_effect_once(yard: Yard) -> None:
    seqs = [yard.put(f"op-{number}") for number in range(40)]
    yard.reconciler()
    for crash in ("before_send:stop:3", "after_send:kill:4", "after_answer:kill:2", "before_send:kill:5"):
        victim = yard.relay(crash)
        stands_still(victim) if ":stop" in crash else died(victim)
    yard.relay()
    yard.relay()
    assert {yard.ends(seq) for seq in seqs} == {"succeeded"}
    zombie = yard.programs.started[1]
    zombie.signal(signal.SIGCONT)
    # Its deadline passed long ago; what lies in its socket is read all the same, if it comes at once.
    heard(zombie, "StaleFence", "Ambiguous")
    assert yard.inbox.all_effects() == {f"op-{number}": 1 for number in range(40)}
