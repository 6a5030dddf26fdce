"""Reconcilers as real processes: how they start, stop, die and wake up, judged by database and ledger."""

import json
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from outbox.crashpoints import ENVIRONMENT_VARIABLE
from outbox.demo.programs import Program
from outbox.settings import Configuration
from tests.support.doubts import register, resent
from tests.support.eventually import eventually
from tests.support.postgres import Database
from tests.support.stage import Holder, Stage
from tests.support.warehouse import READ_TOKEN, Warehouse, warehouse

SETTINGS = {"claim": "1s", "poll": "20ms", "belt": "200ms", "heartbeat": "200ms", "grace": "500ms", "log": "json"}


class House:
    """A database, a receiver, and the reconcilers that a test starts."""

    def __init__(self, stage: Stage, receiver: Warehouse, folder: Path) -> None:
        self.stage = stage
        self.receiver = receiver
        self.holder: Holder = stage.holder().taken(ttl_seconds=1_000)
        self._folder = folder
        self._started = 0

    def start(self, crash: str | None = None, dsn: str | None = None, **settings: str) -> Program:
        """Start a reconciler with the credential that reads, and no other."""
        self._started += 1
        lines = [f'dsn = "{dsn or self.stage.database.dsn_for("reconciler")}"']
        lines += [f'{name} = "{value}"' for name, value in (SETTINGS | settings).items()]
        path = self._folder / f"reconciler-{self._started}.toml"
        path.write_text("\n".join(["[reconciler]", *lines]))
        programs = self.receiver.programs
        programs.environment = {"WAREHOUSE_READ_TOKEN": READ_TOKEN} | ({ENVIRONMENT_VARIABLE: crash} if crash else {})
        return programs.start(f"reconciler-{self._started}", "reconciler", ["--config", str(path)])

    def effect_in_doubt(self, operation_id: str = "op") -> int:
        """Put an operation whose effect exists and of which nothing was heard; returns its seq."""
        seq = self.stage.put(operation_id, "stock.set", resource="item-1")
        (begun,) = self.holder.begin_these(seq)
        key = str(uuid4())
        assert self.receiver.put("/stock/item-1", {}, key) == 200
        assert self.holder.record_unknown(seq, begun["attempt"], sent_keys=key, delays=0.0) == [seq]
        return seq

    def settled(self, seq: int) -> bool:
        """The operation has ended."""
        return self.stage.one("outcome", seq) is not None


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path) as started:
        yield started


@pytest.fixture
async def house(database: Database, receiver: Warehouse, tmp_path: Path) -> AsyncIterator[House]:
    await register(database, Configuration.model_validate(receiver.configuration()))
    with Stage(database) as stage:
        yield House(stage, receiver, tmp_path)
        # Processes first: their connections would keep the database.
        receiver.programs.stop()


def events(program: Program) -> list[dict[str, Any]]:
    """What it has reported."""
    return [json.loads(line) for line in program.log.read_text().splitlines() if line.startswith("{")]


def ended(program: Program) -> int:
    """Its exit code, once it has ended."""
    eventually(lambda: not program.running, 45, claim="it ends")
    return int(program.process.returncode)


def stopped(program: Program) -> bool:
    """Whether it has been stopped by a signal and sleeps."""
    return Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


# ------------------------------------------------------------------------------------------------------------- start


@pytest.mark.parametrize(
    ("auth", "because"),
    [
        ("null", "read_auth"),
        ('{"kind": "bearer", "secret": "env:WAREHOUSE_TOKEN", "id": "main-read", "account": "main"}', "read_auth"),
    ],
    ids=["no credential that only reads", "the credential that causes effects"],
)
def test_it_does_not_start_for_a_receiver_that_it_could_only_ask_with_the_power_to_cause_effects(
    house: House, auth: str, because: str
) -> None:
    """`outbox apply` refuses this too; here somebody has written it into the database."""
    house.stage.rows("update outbox.receiver set config = config || jsonb_build_object('read_auth', %s::jsonb)", auth)
    program = house.start()
    assert ended(program) == 2
    assert because in program.log.read_text()
    assert "warehouse" in program.log.read_text()


def test_it_starts_with_a_shared_credential_that_is_declared(house: House) -> None:
    house.stage.rows(
        """update outbox.receiver set config = config - 'read_auth' || '{"shared_credential": true,
        "auth": {"kind": "bearer", "secret": "env:WAREHOUSE_READ_TOKEN", "id": "main"}}'"""
    )
    seq = house.effect_in_doubt()
    house.start()
    eventually(lambda: house.settled(seq))


@pytest.mark.parametrize(
    ("dsn", "code"),
    [("postgresql://nobody@/none?host=/nonexistent", 5), ("postgresql+psycopg://somewhere", 2)],
)
def test_it_does_not_start_without_its_database(tmp_path: Path, receiver: Warehouse, dsn: str, code: int) -> None:
    path = tmp_path / "outbox.toml"
    path.write_text(f'[reconciler]\ndsn = "{dsn}"\n')
    program = receiver.programs.start("reconciler", "reconciler", ["--config", str(path)])
    assert ended(program) == code
    assert "Traceback" not in program.log.read_text()


def test_it_does_not_start_under_a_role_without_the_settings_that_promises_rest_on(house: House) -> None:
    program = house.start(dsn=house.stage.database.dsn)
    assert ended(program) == 5
    assert "not as outbox_reconciler" in program.log.read_text()


# -------------------------------------------------------------------------------------------------------- life and end


def test_it_settles_lives_and_says_good_bye(house: House) -> None:
    seq = house.effect_in_doubt()
    program = house.start()
    eventually(lambda: house.settled(seq))
    living = "select count(*) from outbox.member where kind = 'reconciler' and seen_at > outbox.now() - interval '30 s'"
    eventually(lambda: house.stage.value(living) == 1)
    program.signal(signal.SIGTERM)
    assert ended(program) == 0
    assert house.stage.value(living) == 0
    assert house.stage.value("select (counters ->> 'settled')::int from outbox.member") == 1
    assert [event["event"] for event in events(program)][-1] == "daemon_stopped"


def test_asked_to_stop_it_gives_back_what_it_has_claimed_and_another_need_not_wait(house: House) -> None:
    seq = house.effect_in_doubt()
    house.receiver.program.signal(signal.SIGSTOP)
    program = house.start(claim="1h")
    claimed = "select claimed_by is not null from outbox.doubt where seq = %s"
    eventually(lambda: house.stage.value(claimed, seq))
    program.signal(signal.SIGTERM)
    assert ended(program) == 0
    assert house.stage.value(claimed, seq) is False
    house.receiver.program.signal(signal.SIGCONT)
    house.start()
    eventually(lambda: house.settled(seq))


def test_asked_twice_it_stops_at_once(house: House) -> None:
    seq = house.effect_in_doubt()
    house.receiver.program.signal(signal.SIGSTOP)
    program = house.start(grace="1h", claim="1h")
    eventually(lambda: house.stage.value("select claimed_by is not null from outbox.doubt where seq = %s", seq))
    program.signal(signal.SIGTERM)
    eventually(lambda: any(event["event"] == "daemon_stopping" for event in events(program)))
    program.signal(signal.SIGTERM)
    assert ended(program) == 0
    house.receiver.program.signal(signal.SIGCONT)


def test_it_goes_on_after_its_connections_were_cut(house: House) -> None:
    program = house.start()
    first = house.effect_in_doubt("first")
    eventually(lambda: house.settled(first))
    for number in range(3):
        house.stage.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where usename = 'outbox_reconciler' and datname = current_database()"
        )
        seq = house.effect_in_doubt(f"then-{number}")
        eventually(lambda seq=seq: house.settled(seq))  # type: ignore[misc]
    assert program.running


def test_a_credential_that_is_applied_later_is_used_without_a_restart(house: House) -> None:
    change = "update outbox.receiver set config = jsonb_set(config, '{read_auth,secret}', to_jsonb(%s::text))"
    house.stage.rows(change, "env:NOT_SET_ANYWHERE")
    seq = house.effect_in_doubt()
    program = house.start(registry_poll="100ms")
    eventually(lambda: any(event["event"] == "look_failed" for event in events(program)))
    house.stage.rows(change, "env:WAREHOUSE_READ_TOKEN")
    eventually(lambda: house.settled(seq))
    assert any(event["event"] == "registry_changed" for event in events(program))


# ----------------------------------------------------------------------------------------------- death and zombies


@pytest.mark.parametrize(
    "point",
    ["before_claim_doubt", "after_claim_doubt", "before_lookup", "after_lookup", "before_settle", "after_settle"],
)
def test_killed_anywhere_it_leaves_an_operation_that_another_settles(house: House, point: str) -> None:
    seq = house.effect_in_doubt()
    victim = house.start(f"{point}:kill")
    assert ended(victim) == -signal.SIGKILL
    assert house.settled(seq) is (point == "after_settle")
    house.start()
    eventually(lambda: house.settled(seq))
    assert house.stage.state(seq) == "succeeded"
    assert house.receiver.writes() == ["200"]
    proofs = house.stage.value("select count(*) from outbox.evidence where verdict = 'confirmed'")
    assert 1 <= proofs <= 2


@pytest.mark.parametrize("point", ["after_claim_doubt", "after_lookup", "before_settle"])
def test_stopped_past_its_claim_and_woken_after_another_attempt_it_changes_nothing(house: House, point: str) -> None:
    """It wakes with what it read long ago; another reconciler has decided and a relay has sent again since then."""
    seq = house.stage.put("op", "stock.set", resource="item-1")
    (begun,) = house.holder.begin_these(seq)
    assert house.holder.record_unknown(seq, begun["attempt"], delays=0.0) == [seq]
    # Nothing arrived, and settle time is long over: the first look proves absence.
    house.stage.rows("update outbox.doubt set last_exposed_at = last_exposed_at - interval '1 h', settle_at = null")
    house.stage.rows("update outbox.pending set begun_at = begun_at - interval '1 h'")
    zombie = house.start(f"{point}:stop")
    eventually(lambda: stopped(zombie))
    heir = house.start()
    eventually(lambda: house.stage.state(seq) == "authorized")
    heir.signal(signal.SIGTERM)
    assert ended(heir) == 0
    assert resent(house.stage, house.holder, seq, delays=3_600.0) == 2
    before = house.stage.pending(seq), house.stage.doubt(seq)
    zombie.signal(signal.SIGCONT)
    eventually(lambda: any(event["event"] in {"claim_overtaken", "alarm"} for event in events(zombie)))
    assert (house.stage.pending(seq), house.stage.doubt(seq)) == before
    assert house.stage.state(seq) == "unknown"


def test_many_doubts_and_several_reconcilers_end_with_one_outcome_each(house: House) -> None:
    seqs = [house.effect_in_doubt(f"op-{number}") for number in range(40)]
    programs = [house.start() for _ in range(3)]
    eventually(lambda: all(house.settled(seq) for seq in seqs), timeout_seconds=40)
    assert all(program.running for program in programs)
    assert house.stage.value("select count(*) from outbox.evidence") == 40, "no operation was read twice"
    assert house.receiver.writes() == ["200"] * 40
