"""
The long run: what tests/crash does once, again and again with other chances, until told to stop. `make soak`.

    python -m tests.crash.soak [--rounds 100] [--seed SEED] [--at-once 4] [--only kills|zombies|load]

One round, from one seed:

    kills     a real process is killed at each crash point, at a random passage: with work of every guarantee at once,
              and for the relay's points once more with one guarantee alone, drawn by chance
    zombies   relays are stopped at their last check, between two bytes and with requests in flight, for each guarantee,
              with the dead man's switch and without, and wake after a takeover or after its decision
    load      services sell while the merchant loses requests and answers, is slow, fails and throttles; relays and
              reconcilers are killed, stopped past their lease and replaced, and sessions of the database are cut

Every part ends with healing within a bound, and with the merchant's books as the judge. The numbers of the rows of
faults.md that it serves: F1, F2, F3, F6, F7, F8, F10, F14 (sessions cut at any time), F22, F23, F31. It does not do
partitions of a network, failovers, restores, clocks, full disks or exhausted descriptors (F12, F15 to F20), and no
Kafka (F34): those need another machine room.

The same seed draws the same faults; when they strike depends on the machine. A seed that failed is kept, with the
commit, in soak-failures.jsonl; `--seed` with `--rounds 1` runs it again.
"""

import argparse
import contextlib
import json
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any, Final

import pytest

from outbox.demo.programs import Program
from tests.crash import test_paused
from tests.support.arena import CHECKOUT, HEAL_SECONDS_MAX, Arena, arena, exit_code
from tests.support.crashes import CRASHES, lanes_of, lanes_pass_on, relay_dies
from tests.support.eventually import eventually
from tests.support.kinds import KINDS, configuration
from tests.support.merchant import merchant
from tests.support.postgres import Cluster, Database, cluster
from tests.support.stage import empty

FAILURES: Final = Path("soak-failures.jsonl")
PARTS: Final = ("kills", "zombies", "load")
# With one guarantee alone a process passes most points a few times, and these once.
PASSAGES_ALONE, ONCE_ALONE = 3, frozenset({"before_take", "after_take", "before_renew", "after_renew", "before_expire"})
BLOWS: Final = 12
RECONCILER_DIES: Final = 0.3
SERVICES: Final = ("keyed", "seen", "blind", "repeatable")
RATES: Final = {"lose_answer": 0.06, "lose_request": 0.06, "slow": 0.04, "fail_after": 0.02, "throttle": 0.03}


class Soak:
    """The server, the merchant, and what has been done so far."""

    def __init__(self, server: Cluster, template: Database, root: Path, at_once: int) -> None:
        self.done: Counter[str] = Counter()
        self._server = server
        self._template = template
        self._root = root
        self._at_once = at_once
        self._numbers = iter(range(1_000_000_000))

    def run(self, seed: int, parts: tuple[str, ...]) -> list[str]:
        """One round; what was wrong."""
        chance = random.Random(seed)
        acts: dict[str, Callable[[random.Random], list[str]]] = {
            "kills": self.kills,
            "zombies": self.zombies,
            "load": self.load,
        }
        return [wrong for part in parts for wrong in acts[part](chance)]

    def _folder(self, name: str) -> Path:
        folder = self._root / f"{next(self._numbers)}-{name}"
        folder.mkdir()
        return folder

    # ----------------------------------------------------------------------------------------------------------- kills

    def kills(self, chance: random.Random) -> list[str]:
        """Every crash point, several at a time."""
        planned = [(point, chance.randint(1, most), tuple(KINDS)) for point, (_, _, most) in CRASHES.items()]
        for point, (crash, _, _) in CRASHES.items():
            if crash is relay_dies:
                most = 1 if point in ONCE_ALONE else PASSAGES_ALONE
                planned.append((point, chance.randint(1, most), (chance.choice(list(KINDS)),)))
        with contextlib.ExitStack() as stack:
            shop = stack.enter_context(merchant(self._folder("merchant")))
            free: Queue[Database] = Queue()
            for _ in range(self._at_once):
                free.put(stack.enter_context(self._server.database(self._template)))
            unmigrated = stack.enter_context(self._server.database())

            def kill(plan: tuple[str, int, tuple[str, ...]]) -> list[str]:
                point, times, kinds = plan
                name, database = f"{point}-{times}-{len(kinds)}-{kinds[0]}", free.get()
                try:
                    empty(database)
                    receivers = {kind: kind for kind in kinds}
                    with arena(
                        database, shop, self._folder(name), receivers, prefix=f"{name}.", empty=unmigrated
                    ) as made:
                        return _guarded(f"kills {name}", lambda: _killed(made, point, times))
                finally:
                    free.put(database)

            with ThreadPoolExecutor(self._at_once) as threads:
                found = [wrong for run in threads.map(kill, planned) for wrong in run]
            self.done["kills"] += len(planned)
            self.done["operations"] += len(shop.effects())
        return found

    # --------------------------------------------------------------------------------------------------------- zombies

    def zombies(self, chance: random.Random) -> list[str]:
        """Every pause, in an order drawn by chance."""
        chance.shuffle(test_paused.PAUSES)
        root = self._folder("zombies")
        receivers = {pause.receiver: pause.kind for pause in test_paused.PAUSES}
        with self._server.database(self._template) as database, merchant(root) as shop:
            config = test_paused.settings(shop.url)
            with arena(database, shop, root / "arena", receivers, config=config) as made:
                found = _guarded("zombies", lambda: _judged(test_paused.play(made)))
        self.done["zombies"] += len(receivers)
        return found

    # ------------------------------------------------------------------------------------------------------------ load

    def load(self, chance: random.Random) -> list[str]:
        """Services that sell while everything is being broken."""
        root = self._folder("load")
        plan: dict[str, Any] = {"seed": chance.randrange(2**31), "rates": {"*": RATES}, "slow_seconds": 1.4}
        with self._server.database(self._template) as database, merchant(root, **plan) as shop:
            config = configuration(shop.url, {kind: kind for kind in SERVICES}, lanes=3, concurrency=12)
            receivers = {kind: kind for kind in SERVICES}
            with arena(database, shop, root / "arena", receivers, config=config) as made:
                found = _guarded("load", lambda: self._broken(made, chance))
            self.done["operations"] += len(shop.effects())
        return found

    def _broken(self, made: Arena, chance: random.Random) -> list[str]:
        relays = [made.relay() for _ in range(3)]
        reconcilers = [made.reconciler() for _ in range(2)]
        with selling(made):
            for _ in range(BLOWS):
                name = chance.choice(list(_BLOWS))
                work_goes_on(made, chance.randint(5, 60))
                # Zombies that the dead man's switch ended, and daemons whose session was cut while they started.
                relays = [one if one.running else made.relay() for one in relays]
                reconcilers = [one if one.running else made.reconciler() for one in reconcilers]
                _BLOWS[name](made, relays, chance)
                if chance.random() < RECONCILER_DIES:
                    victim = reconcilers.pop(chance.randrange(len(reconcilers)))
                    victim.signal(signal.SIGKILL)
                    reconcilers.append(made.reconciler())
                self.done[name] += 1
        made.come_to_rest(2 * HEAL_SECONDS_MAX, look_seconds=1.0)
        made.stop(*[program for program in (*relays, *reconcilers) if program.running])
        return made.violations()


def _killed(made: Arena, point: str, times: int) -> list[str]:
    CRASHES[point][0](made, point, times)
    return made.violations()


def _judged(story: test_paused.Story) -> list[str]:
    """Every claim of test_paused, about this story."""
    found: list[str] = []
    for pause in test_paused.PAUSES:
        claim: Callable[[test_paused.Story, test_paused.Pause], None]
        if pause.in_flight:
            claim = test_paused.test_an_answer_that_waited_for_a_zombie_settles_what_it_proves
        elif pause.dies:
            claim = test_paused.test_the_dead_mans_switch_ends_a_zombie_before_it_sends
        else:
            claim = test_paused.test_without_the_switch_a_zombie_sends_and_the_guarantee_bears_it
        found += _guarded(pause.receiver, _claiming(claim, story, pause))
    found += _guarded("all", _claiming(test_paused.test_every_write_of_a_zombie_is_refused_and_counted, story))
    return found + _guarded(
        "all", _claiming(test_paused.test_nothing_vanished_and_nothing_happened_that_nobody_asked_for, story)
    )


def _claiming(claim: Callable[..., None], *about: object) -> Callable[[], list[str]]:
    def act() -> list[str]:
        claim(*about)
        return []

    return act


def _guarded(what: str, act: Callable[[], list[str]]) -> list[str]:
    """Whatever goes wrong is told, and stops nothing else."""
    try:
        return [f"{what}: {wrong}" for wrong in act()]
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - the report of this run
        return [f"{what}: {''.join(traceback.format_exception(error))}"]


# --------------------------------------------------------------------------------------------------------------- blows


def _kill(made: Arena, relays: list[Program], chance: random.Random) -> None:
    """SIGKILL at any time."""
    victim = relays.pop(chance.randrange(len(relays)))
    victim.signal(signal.SIGKILL)
    exit_code(victim)
    relays.append(made.relay())


def _sleep(made: Arena, relays: list[Program], chance: random.Random) -> None:
    """SIGSTOP past the lease, at any time. Who stood before a byte that nobody deduplicates dies when it wakes."""
    sleeper = chance.choice(relays)
    sleeper.signal(signal.SIGSTOP)
    try:
        with contextlib.suppress(AssertionError):  # it held nothing
            lanes_pass_on(made, lanes_of(made, sleeper))
    finally:
        sleeper.signal(signal.SIGCONT)


def _replace(made: Arena, relays: list[Program], chance: random.Random) -> None:
    """SIGTERM, and another one."""
    relays.append(made.relay())
    leaving = relays.pop(chance.randrange(len(relays) - 1))
    leaving.signal(signal.SIGTERM)
    # In order; or by the dead man's switch; or before it had learned to end in order.
    code = exit_code(leaving)
    assert code in {0, -signal.SIGALRM, -signal.SIGTERM}, f"{leaving.name} ended with {code}: {leaving.tail()}"


def _cut(made: Arena, _: list[Program], __: random.Random) -> None:
    """Every session of every daemon and service ends, whatever it is doing: some commits are not heard of."""
    made.database.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and usename <> current_user"
    )


_BLOWS: Final[Mapping[str, Callable[[Arena, list[Program], random.Random], None]]] = {
    "relays killed": _kill,
    "relays put to sleep": _sleep,
    "relays replaced": _replace,
    "cuts of all sessions": _cut,
}


def work_goes_on(made: Arena, number: int) -> None:
    """Wait until so many more operations have ended."""
    count = "select count(*) from outbox.outcome"
    before = made.database.value(count)
    eventually(lambda: made.database.value(count) >= before + number, 2 * HEAL_SECONDS_MAX, claim="work goes on")


@contextlib.contextmanager
def selling(made: Arena) -> Iterator[None]:
    """Services that sell until the block ends; whatever they have heard of is what must be there."""
    made.database.rows("create table public.orders (id text primary key)")
    made.database.rows("grant select, insert on public.orders to outbox_writer")
    command = [sys.executable, "-m", "tests.support.shopkeeper", made.database.dsn_for("writer")]
    services = [
        subprocess.Popen([*command, name, "order-", "100000"], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
        for name in SERVICES
    ]
    try:
        yield
    finally:
        for service in services:
            service.terminate()
        for service in services:
            made.committed += service.communicate(timeout=HEAL_SECONDS_MAX)[0].split()


# ---------------------------------------------------------------------------------------------------------------- main


def main() -> int:
    """Run rounds; 1 if any of them was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="of the first round; each further one has the next")
    parser.add_argument("--at-once", type=int, default=4, help="crash points at a time")
    parser.add_argument("--only", choices=PARTS, action="append")
    given = parser.parse_args()
    first = secrets.randbelow(2**31) if given.seed is None else given.seed
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    failed = 0
    with cluster("auto") as server, server.template() as template:
        root = Path(tempfile.mkdtemp(prefix="outbox-soak-"))
        soak = Soak(server, template, root, given.at_once)
        say(f"Rounds from seed {first} on, at commit {commit or 'unknown'}; logs are in {root}.")
        for seed in range(first, first + given.rounds):
            began = time.monotonic()
            wrong = soak.run(seed, tuple(given.only or PARTS))
            totals = ", ".join(f"{count} {name}" for name, count in sorted(soak.done.items()))
            verdict = "WRONG" if wrong else "right"
            say(f"seed {seed}: {verdict}, in {time.monotonic() - began:.0f} s; so far {totals}")
            if wrong:
                failed += 1
                say("\n".join(wrong))
                with FAILURES.open("a") as kept:
                    kept.write(json.dumps({"seed": seed, "commit": commit, "only": given.only, "wrong": wrong}) + "\n")
    say(f"{failed} of {given.rounds} rounds were wrong." + (f" Their seeds are in {FAILURES}." if failed else ""))
    return 1 if failed else 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
