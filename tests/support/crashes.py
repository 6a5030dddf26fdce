"""
For each named crash point, a real process that dies there while work of every kind is under way, and what is healed.

Each run ends in an arena where everything rests. It fails if the process did not die there, by that signal.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, LiteralString

from outbox.crashpoints import ENVIRONMENT_VARIABLE
from outbox.demo.faults import Fault
from outbox.demo.programs import Program
from tests.support.arena import CHECKOUT, HEAL_SECONDS_MAX, Arena, killed_at
from tests.support.eventually import eventually
from tests.support.lossy import BEGIN, lossy_wire

# Shorter than the deadline, long enough to be found in flight.
SLOW_SECONDS: Final = 0.7

Crash = Callable[[Arena, str, int], None]


def work(arena: Arena, each: int = 1) -> None:
    """Intents of every kind: most are answered, some slowly, and one answer and one request of each kind are lost."""
    arena.put_everywhere(each)
    arena.put_everywhere(1, fault=Fault.SLOW, seconds=SLOW_SECONDS)
    arena.put_everywhere(1, fault=Fault.LOSE_ANSWER)
    arena.put_everywhere(1, fault=Fault.LOSE_REQUEST)


# --------------------------------------------------------------------------------------------------------------- relay


def relay_dies(arena: Arena, point: str, times: int) -> None:
    """A relay dies; nothing else runs."""
    work(arena)
    victim = arena.relay(crash=f"{point}:kill:{times}")
    killed_at(victim, point)
    assert arena.doubts() == []
    arena.heal()


def relay_dies_stopping(arena: Arena, point: str, times: int) -> None:
    """A relay that was asked to stop, with requests in flight, dies while it gives its lanes back."""
    work(arena)
    victim = arena.relay(crash=f"{point}:kill:{times}")
    eventually(lambda: in_flight(arena, victim) > 0)
    victim.signal(signal.SIGTERM)
    killed_at(victim, point)
    assert arena.doubts() == []
    arena.heal()


def relay_dies_late(arena: Arena, point: str, times: int) -> None:
    """A relay sleeps past its lease with requests in flight; when it wakes it has an answer and no lane, and dies."""
    arena.put_everywhere(2, fault=Fault.SLOW, seconds=SLOW_SECONDS)
    # Those for which no dead man's switch may be armed at that very moment: it would be the end of the victim.
    serves = [name for name, kind in arena.receivers.items() if kind not in {"seen", "blind"}]
    victim = arena.relay(*serves, crash=f"{point}:kill:{times}")
    freeze_in_flight(arena, victim)
    held = lanes_of(arena, victim)
    heir = arena.relay()
    lanes_pass_on(arena, held)
    victim.signal(signal.SIGCONT)
    killed_at(victim, point)
    arena.heal(heir)


def relay_dies_sweeping(arena: Arena, point: str, times: int) -> None:
    """The answer to a begin was lost: committed, and nobody has heard of it. The relay dies while it looks for such."""
    work(arena)
    with lossy_wire(arena.database.dsn_for("relay"), {BEGIN: 2}) as wire:
        victim = arena.relay(crash=f"{point}:kill:{times}", dsn=wire.dsn(arena.database.dsn_for("relay")))
        killed_at(victim, point)
        assert wire.lost[BEGIN] >= 1
        assert arena.doubts() == []
    arena.heal()


# ---------------------------------------------------------------------------------------------------------- reconciler


def reconciler_dies(arena: Arena, point: str, times: int) -> None:
    """A reconciler dies while relays go on."""
    work(arena)
    relay = arena.relay()
    victim = arena.reconciler(crash=f"{point}:kill:{times}")
    killed_at(victim, point)
    arena.heal(relay)


# -------------------------------------------------------------------------------------------------------------- writer


def writer_dies(arena: Arena, point: str, times: int) -> None:
    """A service dies inside its transaction: neither its own row nor the intent exists, and what it heard of does."""
    arena.database.rows("create table public.orders (id text primary key)")
    arena.database.rows("grant select, insert on public.orders to outbox_writer")
    for receiver in ("keyed", "seen", "blind"):
        output = _service_dies(arena, receiver, point, times)
        assert len(output) == times - 1
        arena.committed += output
    assert arena.database.rows("select id from public.orders order by id") == [
        (one,) for one in sorted(arena.committed)
    ]
    arena.heal()


def _service_dies(arena: Arena, receiver: str, point: str, times: int) -> list[str]:
    dsn = arena.database.dsn_for("writer")
    died = subprocess.run(
        [sys.executable, "-m", "tests.support.shopkeeper", dsn, receiver, arena.prefix, str(times + 2)],
        cwd=CHECKOUT,
        env={**os.environ, ENVIRONMENT_VARIABLE: f"{point}:kill:{times}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=45,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert f'"point": "{point}"' in died.stderr
    return died.stdout.split()


# ----------------------------------------------------------------------------------------------- operators and releases


def operator_dies(arena: Arena, point: str, times: int) -> None:
    """A person's statement dies with the program that carries it, and can be made again."""
    arena.put("blind", fault=Fault.LOSE_ANSWER)
    arena.put("guarded_once", fault=Fault.LOSE_REQUEST)
    arena.heal()
    for operation_id in arena.committed:
        before = arena.operation(operation_id)
        said = _what_a_truthful_person_says(arena, operation_id)
        died = arena.operator("resolve", operation_id, *said, crash=f"{point}:kill:{times}")
        assert died.returncode == -signal.SIGKILL, died.stderr
        assert f'"point": "{point}"' in died.stderr
        assert arena.operation(operation_id) == before
        resolved = arena.operator("resolve", operation_id, *said)
        assert resolved.returncode == 0, resolved.stderr
    arena.heal()
    assert {one.state for one in arena.operations().values()} == {"succeeded"}


def _what_a_truthful_person_says(arena: Arena, operation_id: str) -> list[str]:
    """Who looks into the merchant's books knows what happened; nothing lands any more by then."""
    evidence = ["--evidence", "read in the merchant's books"]
    happened = arena.effects().get(operation_id)
    if happened:
        return ["--succeeded", "--external-id", happened[0], *evidence]
    counts: LiteralString = """
        select coalesce(d.settle_at, 'infinity') <= outbox.now()
        from outbox.doubt d join outbox.intent i on i.seq = d.seq where i.operation_id = %s
    """
    eventually(lambda: arena.database.value(counts, operation_id), claim="a statement of no effect counts")
    arena.sent_again_by_people.add(operation_id)
    return ["--no-effect", "--send-again", *evidence]


def apply_dies(arena: Arena, point: str, times: int) -> None:
    """A registry is written as a whole or not at all."""
    tables = ("receiver", "lane", "tool", "contract")
    counts = ", ".join(f"(select count(*) from outbox.{table})" for table in tables)
    before = arena.database.rows(f"select {counts}")
    config = str(arena.registry_file({f"{name}_more": kind for name, kind in arena.receivers.items()}))
    died = arena.operator("apply", config, crash=f"{point}:kill:{times}")
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert f'"point": "{point}"' in died.stderr
    assert arena.database.rows(f"select {counts}") == before
    applied = arena.operator("apply", config)
    assert applied.returncode == 0, applied.stderr
    arena.receivers |= {f"{name}_more": kind for name, kind in arena.receivers.items()}
    arena.put_everywhere(1)
    arena.heal()


def migrate_dies(arena: Arena, point: str, times: int) -> None:
    """A database is migrated as a whole or not at all; what it is then is what it is without a death."""
    config = str(arena.config(database={"dsn": arena.empty.dsn}))
    died = arena.operator("--config", config, "migrate", crash=f"{point}:kill:{times}")
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert f'"point": "{point}"' in died.stderr
    assert arena.empty.rows("select from pg_namespace where nspname = 'outbox'") == []
    for arguments in (["migrate"], ["migrate", "--check"]):
        done = arena.operator("--config", config, *arguments)
        assert done.returncode == 0, done.stderr
    tables = "select relname, relnatts from pg_class where relnamespace = 'outbox'::regnamespace order by relname"
    assert arena.empty.rows(tables) == arena.database.rows(tables)


# --------------------------------------------------------------------------------------------------------------- points

# What dies there, and the how-manieth time; a random one in the long run, up to the last number.
CRASHES: Final[Mapping[str, tuple[Crash, int, int]]] = MappingProxyType(
    {
        "before_put": (writer_dies, 3, 6),
        "after_put": (writer_dies, 3, 6),
        "before_take": (relay_dies, 4, 7),
        "after_take": (relay_dies, 4, 7),
        "before_begin": (relay_dies, 5, 12),
        "after_begin": (relay_dies, 5, 12),
        "before_send": (relay_dies, 5, 25),
        "mid_send": (relay_dies, 5, 25),
        "after_send": (relay_dies, 5, 25),
        "after_answer": (relay_dies, 5, 25),
        "before_record": (relay_dies, 3, 12),
        "after_record": (relay_dies, 3, 12),
        "before_late_evidence": (relay_dies_late, 1, 1),
        "after_late_evidence": (relay_dies_late, 1, 1),
        "before_renew": (relay_dies, 1, 3),
        "after_renew": (relay_dies, 1, 3),
        "before_sweep": (relay_dies_sweeping, 1, 1),
        "after_sweep": (relay_dies_sweeping, 1, 1),
        "before_release": (relay_dies_stopping, 3, 6),
        "after_release": (relay_dies_stopping, 3, 6),
        "before_expire": (relay_dies, 1, 1),
        "before_claim_doubt": (reconciler_dies, 4, 20),
        "after_claim_doubt": (reconciler_dies, 2, 4),
        "before_lookup": (reconciler_dies, 1, 4),
        "after_lookup": (reconciler_dies, 1, 4),
        "before_settle": (reconciler_dies, 1, 2),
        "after_settle": (reconciler_dies, 1, 2),
        "before_convert": (reconciler_dies, 1, 3),
        "before_resolve": (operator_dies, 1, 1),
        "mid_apply": (apply_dies, 3, 7),
        "mid_migrate": (migrate_dies, 3, 6),
    }
)


# -------------------------------------------------------------------------------------------------------------- acts


def in_flight(arena: Arena, relay: Program) -> int:
    """Attempts that run in lanes that a relay holds."""
    running: Any = arena.database.value(
        """
        select count(*) from outbox.member m join outbox.lane l on l.member_id = m.member_id
        join outbox.pending p on p.receiver_id = l.receiver_id and p.lane = l.lane and p.fence = l.fence
        where m.pid = %s and p.state = 'executing'
        """,
        relay.pid,
    )
    return int(running)


def freeze_in_flight(arena: Arena, relay: Program, operation_ids: Collection[str] | None = None) -> None:
    """Stop a relay at a moment when requests of its own (all of these) have arrived and are not answered."""
    wanted = set(operation_ids or arena.committed)

    def unanswered() -> bool:
        waiting = {one.operation for one in arena.merchant.writes() if one.status is None and not _lost(one.fault)}
        return bool(waiting & wanted) if operation_ids is None else wanted <= waiting

    def frozen() -> bool:
        if not unanswered():
            return False
        relay.signal(signal.SIGSTOP)
        if in_flight(arena, relay) and unanswered():
            return True
        relay.signal(signal.SIGCONT)
        return False

    eventually(frozen, claim="it is stopped with requests in flight")


def _lost(fault: str | None) -> bool:
    return fault in {Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.LATE_EFFECT}


Lanes = list[tuple[int, int, int]]


def lanes_of(arena: Arena, *relays: Program) -> Lanes:
    """Lanes that relays hold: receiver, lane, fence."""
    held = arena.database.rows(
        "select l.receiver_id, l.lane, l.fence from outbox.lane l join outbox.member m on m.member_id = l.member_id"
        " where m.pid = any(%s)",
        [relay.pid for relay in relays],
    )
    assert held, "they hold nothing"
    return [(receiver_id, lane, fence) for receiver_id, lane, fence in held]


def lanes_pass_on(arena: Arena, held: Lanes) -> None:
    """Wait until somebody else has taken each of these lanes."""

    def passed() -> bool:
        rows = arena.database.rows("select receiver_id, lane, fence from outbox.lane")
        newer = {(receiver_id, lane): fence for receiver_id, lane, fence in rows}
        return all(newer[receiver_id, lane] > fence for receiver_id, lane, fence in held)

    eventually(passed, HEAL_SECONDS_MAX, claim="all lanes pass on")
