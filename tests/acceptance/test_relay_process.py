"""Relays as real processes: how they start, stop, sleep, wake and die, judged by the receiver's ledger."""

import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outbox.demo.faults import Fault
from relay.share import quota
from tests.support.eventually import eventually
from tests.support.postgres import Database
from tests.support.relay_house import (
    LEASE_SECONDS,
    MAIL,
    PAYMENT,
    STOCK,
    House,
    events,
    exit_code,
    furnished,
    house,
    reported,
    terminate,
)
from tests.support.stage import Stage


@pytest.fixture
async def home(database: Database, tmp_path: Path) -> AsyncIterator[House]:
    with Stage(database) as stage, house(database, tmp_path, stage) as made:
        await furnished(made)
        yield made


# ----------------------------------------------------------------------------------------------------------- starting


def test_a_relay_delivers_what_is_written_before_and_after_its_start(home: House) -> None:
    home.put(number=20)
    relay = home.start_and_wait()
    eventually(lambda: home.ended() == 20)
    home.put(PAYMENT, number=10)
    home.put(MAIL, number=10)
    eventually(lambda: home.ended() == 40)
    assert terminate(relay) == 0
    home.judge(effects=40)
    assert home.stage.value("select count(*) from outbox.outcome where state = 'succeeded' and attempt = 1") == 40


def test_a_schema_that_needs_newer_daemons_is_refused_naming_both(home: House) -> None:
    home.stage.rows("update outbox.instance set min_daemon = 99, schema_version = 99")
    relay = home.start()
    assert exit_code(relay) == 5
    assert "schema 99" in relay.tail()
    assert "generation 99" in relay.tail()


def test_another_role_than_the_relays_own_is_refused_with_the_login_that_is_meant(home: House) -> None:
    relay = home.start(dsn=home.stage.database.dsn)
    assert exit_code(relay) == 5
    assert "outbox relay: The relay has logged in as" in relay.tail()
    assert "OUTBOX_RELAY__DSN=" in relay.tail()


def test_a_database_that_commits_asynchronously_is_refused(home: House) -> None:
    home.stage.rows("alter role outbox_relay set synchronous_commit = off")
    try:
        name = home.stage.database.name
        home.stage.admin.execute(f'alter role outbox_relay in database "{name}" reset synchronous_commit'.encode())
        relay = home.start()
        assert exit_code(relay) == 5
        assert "synchronous_commit" in relay.tail()
    finally:
        home.stage.rows("alter role outbox_relay reset synchronous_commit")


def test_a_database_that_is_not_there_is_said_at_once(home: House) -> None:
    relay = home.start(dsn="postgresql://outbox_relay@/nowhere?host=/nowhere")
    assert exit_code(relay) == 5
    assert "relay: " in relay.tail()


def test_a_mistake_in_the_configuration_names_its_place(home: House) -> None:
    relay = home.start(grace="soon")
    assert exit_code(relay) == 2
    assert "relay.grace" in relay.tail()


def test_a_relay_can_serve_some_receivers_only(home: House) -> None:
    relay = home.start_and_wait(receivers=["elsewhere"])
    (refused,) = eventually(lambda: reported(relay, "registry_refused"))
    assert refused["receiver"] == "elsewhere"
    home.put()
    assert home.held_lanes() == 0
    other = home.start_and_wait(receivers=["warehouse"])
    eventually(lambda: home.ended() == 1)
    assert (terminate(relay), terminate(other)) == (0, 0)


# ----------------------------------------------------------------------------------------------------------- stopping


def requests(home: House) -> int:
    return len(home.receiver.writes())


def test_sigterm_lets_attempts_end_gives_lanes_back_and_exits_with_zero(home: House) -> None:
    seqs = home.put(number=3)
    for _ in seqs:
        home.receiver.break_next(Fault.SLOW, "stock")
    relay = home.start_and_wait()
    eventually(lambda: home.stage.value("select count(*) from outbox.pending where state = 'executing'") == 3)
    assert terminate(relay) == 0
    assert home.held_lanes() == 0
    assert [home.stage.state(seq) for seq in seqs] == ["succeeded"] * 3
    assert home.stage.value("select count(*) from outbox.member where seen_at = '-infinity'") == 1
    home.judge(effects=3)


def test_a_second_sigterm_stops_at_once_and_what_was_in_flight_is_unknown(home: House) -> None:
    sent, mailed = home.put(STOCK)[0], home.put(MAIL)[0]
    home.receiver.break_next(Fault.HANG, "stock")
    home.receiver.break_next(Fault.HANG, "mail")
    relay = home.start_and_wait()
    eventually(lambda: requests(home) == 2)
    asked = time.monotonic()
    relay.signal(signal.SIGTERM)
    eventually(lambda: reported(relay, "daemon_stopping"))
    relay.signal(signal.SIGTERM)
    assert exit_code(relay) == 0
    assert time.monotonic() - asked < 30
    assert [home.stage.pending(seq)["cause"] for seq in (sent, mailed)] == ["shutdown", "shutdown"]
    assert [home.stage.state(seq) for seq in (sent, mailed)] == ["unknown", "unknown"]
    assert home.held_lanes() == 0


def test_a_grace_time_that_is_over_is_like_a_second_signal(home: House) -> None:
    (seq,) = home.put(MAIL)
    home.receiver.break_next(Fault.HANG, "mail")
    relay = home.start_and_wait(grace="100ms")
    eventually(lambda: requests(home) == 1)
    assert terminate(relay) == 0
    assert (home.stage.state(seq), home.stage.pending(seq)["cause"]) == ("unknown", "shutdown")


@pytest.mark.parametrize("kind", ["relay", "reconciler"])
def test_asked_twice_it_ends_within_a_bound_also_while_its_database_does_not_answer(home: House, kind: str) -> None:
    """Not one that refuses connections: one that takes what it is sent and says nothing."""
    (seq,) = home.put(MAIL)
    home.receiver.break_next(Fault.HANG, "mail")
    program = home.start_and_wait(kind, grace="1h")
    if kind == "relay":
        eventually(lambda: requests(home) == 1)
    serving = [
        row["pid"]
        for row in home.stage.rows("select pid from pg_stat_activity where application_name = %s", f"outbox {kind}")
    ]
    assert serving
    try:
        for pid in serving:
            os.kill(pid, signal.SIGSTOP)
        program.signal(signal.SIGTERM)
        eventually(lambda: reported(program, "daemon_stopping"))
        program.signal(signal.SIGTERM)
        assert exit_code(program) in ({1} if kind == "relay" else {0, 1})
        assert "Traceback" not in program.log.read_text()
    finally:
        for pid in serving:
            os.kill(pid, signal.SIGCONT)
    if kind == "relay":
        home.start()
        eventually(lambda: home.stage.state(seq) == "unknown", 30, claim="whoever takes the lane finds it in doubt")
        assert len(home.receiver.writes()) == 1


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_relays_are_restarted_one_after_the_other_while_operations_are_delivered(home: House) -> None:
    await furnished(home, lanes=1)
    home.put(STOCK, number=150)
    home.put(PAYMENT, number=100)
    running = [home.start_and_wait(), home.start_and_wait()]
    for turn in range(4):
        old = running.pop(0)
        home.put(STOCK, number=20)
        assert terminate(old) == 0, old.tail()
        running.append(home.start_and_wait())
        assert turn == 0 or home.ended() > 0
    eventually(lambda: home.ended() == 330, 30)
    assert [terminate(one) for one in running] == [0, 0]
    home.judge(effects=330)
    assert home.counter("fenced_writes") == 0
    assert home.stage.value("select count(*) from outbox.attempt") == 0, "no restart made anything unknown"


# ------------------------------------------------------------------------------------------------- sleeping and dying


def test_a_relay_that_slept_past_its_lease_changes_nothing_and_its_answers_are_kept(home: House) -> None:
    """Its requests were in flight; a successor has taken over and sent again with the same keys."""
    home.receiver.break_next(Fault.SLOW, "stock")
    (seq,) = home.put()
    sleeper = home.start_and_wait()
    eventually(lambda: requests(home) == 1)
    sleeper.signal(signal.SIGSTOP)
    successor, reconciler = home.start_and_wait(), home.start_and_wait("reconciler")
    eventually(lambda: home.ended() == 1, 30)
    sleeper.signal(signal.SIGCONT)
    eventually(lambda: reported(sleeper, "late_answer"))
    eventually(lambda: home.counter("fenced_writes") == 1)
    assert [terminate(one) for one in (sleeper, successor, reconciler)] == [0, 0, 0]
    home.judge(effects=1)
    assert home.stage.state(seq) == "succeeded"
    assert home.stage.value("select cause from outbox.attempt where attempt = 1") == "lease_lost"


def settled(home: House, number: int) -> bool:
    """So many relays live, and the only lane is held by the one whose share it is."""
    members = [row["member_id"] for row in home.stage.rows("select member_id from outbox.member")]
    (lane,) = home.stage.rows("select receiver_id, member_id from outbox.lane")
    if len(members) != number or lane["member_id"] is None:
        return False
    return quota(lane["receiver_id"], 1, members, lane["member_id"]) == 1


def test_a_relay_that_slept_for_less_than_its_lease_keeps_its_lanes(home: House) -> None:
    relay, other = home.start_and_wait(), home.start_and_wait()
    eventually(lambda: settled(home, 2), claim="the lane is where it belongs while both are there")
    fence = home.stage.value("select fence from outbox.lane")
    for sleeper in (relay, other):
        sleeper.signal(signal.SIGSTOP)
        since = time.monotonic()
        eventually(lambda since=since: time.monotonic() > since + LEASE_SECONDS / 4)  # type: ignore[misc]
        sleeper.signal(signal.SIGCONT)
    home.put(number=5)
    eventually(lambda: home.ended() == 5)
    assert home.stage.value("select fence from outbox.lane") == fence
    assert (terminate(relay), terminate(other)) == (0, 0)


@pytest.mark.parametrize("tool", [PAYMENT, MAIL])
def test_a_relay_that_is_stopped_before_the_first_byte_of_what_nobody_deduplicates_does_not_wake(
    home: House, tool: str
) -> None:
    """The kernel's timer goes on while the process stands still, and ends it before it executes another instruction."""
    (seq,) = home.put(tool)
    relay = home.start(crash="before_send:stop")
    eventually(lambda: home.stage.state(seq) == "executing", 45)
    eventually(lambda: stopped(relay.pid))
    eventually(lambda: home.held_lanes() == 0)
    relay.signal(signal.SIGCONT)
    assert exit_code(relay) == -signal.SIGALRM
    assert requests(home) == 0
    home.judge(effects=0)


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_relay_that_is_stopped_before_the_first_byte_of_what_is_deduplicated_wakes_and_repeats_nothing(
    home: House,
) -> None:
    (seq,) = home.put(STOCK)
    sleeper = home.start(crash="before_send:stop")
    eventually(lambda: home.stage.state(seq) == "executing", 45)
    eventually(lambda: stopped(sleeper.pid))
    successor, reconciler = home.start_and_wait(), home.start_and_wait("reconciler")
    eventually(lambda: home.ended() == 1, 30)
    sleeper.signal(signal.SIGCONT)
    eventually(lambda: reported(sleeper, "late_answer"))
    assert [terminate(one) for one in (sleeper, successor, reconciler)] == [0, 0, 0]
    home.judge(effects=1)
    assert len(home.receiver.writes()) == 2
    assert home.stage.state(seq) == "succeeded"


def test_a_relay_that_finds_the_way_out_of_a_lost_database_says_so_once(home: House) -> None:
    relay = home.start_and_wait()
    eventually(lambda: home.held_lanes() == 1)
    home.stage.rows("alter role outbox_relay nologin")
    try:
        home.stage.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'outbox relay'"
        )
        eventually(lambda: reported(relay, "database_lost"), 30)
        home.put(number=3)
    finally:
        home.stage.rows("alter role outbox_relay login")
    eventually(lambda: home.ended() == 3, 30)
    eventually(lambda: reported(relay, "database_back"))
    assert len([one for one in events(relay) if one["event"] == "database_lost"]) == 1
    assert terminate(relay) == 0
    home.judge(effects=3)
