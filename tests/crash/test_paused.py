"""
A relay that sleeps past its lease, and wakes as a zombie: after somebody took its lanes, or after they have decided.

One world for all: each scenario has a receiver of its own and a relay of its own that is stopped there; then one heir
and one reconciler take over everything. What is asserted is what each guarantee promises, and no more.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest

from outbox.demo.faults import Fault
from outbox.demo.programs import Program
from outbox.settings import Configuration
from tests.support.arena import (
    Arena,
    Operation,
    arena,
    events,
    exit_code,
    stopped_at,
)
from tests.support.crashes import freeze_in_flight, lanes_of, lanes_pass_on
from tests.support.eventually import eventually
from tests.support.kinds import KINDS, document
from tests.support.merchant import merchant
from tests.support.once import made_once
from tests.support.postgres import Cluster, Database

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("paused"), pytest.mark.timeout(240)]

SLOW_SECONDS: Final = 0.7
AT_ONCE: Final = 6


@dataclass(frozen=True, slots=True)
class Pause:
    """Where a relay is stopped, whether the dead man's switch is on, and when it wakes."""

    kind: str
    point: str
    dead_man: bool
    wakes: str

    @property
    def receiver(self) -> str:
        return f"{self.kind}-{self.point}-{'on' if self.dead_man else 'off'}-{self.wakes}"

    @property
    def in_flight(self) -> bool:
        return self.point == "in_flight"

    @property
    def dies(self) -> bool:
        """The kernel ends it before it executes another instruction."""
        return self.dead_man and not self.in_flight


TAKEOVER, DECISION = "takeover", "decision"
OF_ALL: Final = ("keyed", "seen", "blind", "guarded", "guarded_once", "repeatable")
PAUSES: Final = [
    *[Pause(kind, "before_send", False, wakes) for kind in OF_ALL for wakes in (TAKEOVER, DECISION)],
    *[Pause(kind, "before_send", True, DECISION) for kind in OF_ALL],
    *[Pause(kind, "before_send", True, TAKEOVER) for kind in ("seen", "blind")],
    *[Pause(kind, "mid_send", False, DECISION) for kind in OF_ALL],
    *[Pause(kind, "mid_send", True, DECISION) for kind in ("seen", "blind")],
    *[Pause(kind, "in_flight", True, wakes) for kind in OF_ALL for wakes in (TAKEOVER, DECISION)],
]


def settings(url: str) -> Configuration:
    """A receiver for each scenario, with the switch on or off."""
    parts: dict[str, dict[str, Any]] = {"receivers": {}, "tools": {}}
    for pause in PAUSES:
        # A pause is within the bound that is stated, or longer than that: then `verified` rests on the switch alone.
        bound = "60s" if pause.wakes == TAKEOVER and not pause.dies else "500ms"
        own = document(url, {pause.receiver: pause.kind}, dead_man=pause.dead_man, pause_bound=bound)
        for part in parts:
            parts[part] |= own[part]
    return Configuration.model_validate(parts)


@dataclass
class Story:
    """What came of everything, once it rests."""

    operations: dict[str, Operation]
    effects: dict[str, list[str]]
    requests: dict[str, int]
    ids: dict[str, list[str]]
    standing: dict[str, str]
    programs: dict[str, Program]
    counters: dict[int, dict[str, int]]
    evidence: int

    def stood(self, pause: Pause) -> Operation:
        """The operation whose attempt stood at the point."""
        return self.operations[self.standing[pause.receiver]]

    def left(self, pause: Pause) -> list[Operation]:
        """The operations whose requests had left."""
        return [self.operations[one] for one in self.ids[pause.receiver] if one != self.standing.get(pause.receiver)]

    def happened(self, operation: Operation) -> int:
        return len(self.effects.get(operation.operation_id, ()))

    def sent(self, operation: Operation) -> int:
        return self.requests.get(operation.operation_id, 0)


def play(made: Arena) -> Story:
    """Stop every relay at its point, let others take over, wake each zombie in its turn, and let all come to rest."""
    ids = {pause.receiver: made.put(pause.receiver, 2, fault=Fault.SLOW, seconds=SLOW_SECONDS) for pause in PAUSES}
    sleepers = stop_all(made, ids)
    standing = {pause.receiver: standing_at(made, ids[pause.receiver]) for pause in PAUSES if not pause.in_flight}
    held = lanes_of(made, *sleepers.values())
    assert len(held) == len(PAUSES)
    others = [made.relay(), made.reconciler()]
    lanes_pass_on(made, held)
    wake(sleepers, TAKEOVER)
    made.come_to_rest(watch=False)
    wake(sleepers, DECISION)
    made.come_to_rest(watch=False)
    survivors = [program for name, program in sleepers.items() if not is_dying(name)]
    made.stop(*survivors, *others)
    return Story(
        operations=made.operations(),
        effects=made.effects(),
        requests=dict(made.requests()),
        ids=ids,
        standing=standing,
        programs=sleepers,
        counters=dict(made.database.rows("select pid, counters from outbox.member where kind = 'relay'")),
        evidence=made.database.value("select count(*) from outbox.evidence where source = 'relay'"),
    )


def standing_at(made: Arena, ids: list[str]) -> str:
    """Which of two operations never reached the merchant: its attempt stands at the point."""
    eventually(lambda: made.requests().keys() & set(ids), claim="the other one has left")
    (standing,) = set(ids) - made.requests().keys()
    return standing


def program_of(pause: Pause) -> str:
    """Requests of every kind are in flight in one relay; a point is reached by one attempt of one process."""
    return f"in_flight-{pause.wakes}" if pause.in_flight else pause.receiver


def is_dying(program: str) -> bool:
    return any(program_of(pause) == program and pause.dies for pause in PAUSES)


def stop_all(made: Arena, ids: dict[str, list[str]]) -> dict[str, Program]:
    sleepers: dict[str, Program] = {}
    for wakes in (TAKEOVER, DECISION):
        receivers = [pause.receiver for pause in PAUSES if pause.in_flight and pause.wakes == wakes]
        sleepers[f"in_flight-{wakes}"] = program = made.relay(*receivers, connections_max=2)
        freeze_in_flight(made, program, [ids[receiver][0] for receiver in receivers])
    each = [pause for pause in PAUSES if not pause.in_flight]
    for start in range(0, len(each), AT_ONCE):
        some = each[start : start + AT_ONCE]
        for pause in some:
            sleepers[pause.receiver] = made.relay(pause.receiver, crash=f"{pause.point}:stop:2", connections_max=2)
        for pause in some:
            stopped_at(sleepers[pause.receiver], pause.point)
    return sleepers


def wake(sleepers: dict[str, Program], when: str) -> None:
    """Wake them; each dies, or says what became of its answer."""
    waking = {name: program for name, program in sleepers.items() if name.endswith(f"-{when}")}
    for program in waking.values():
        program.signal(signal.SIGCONT)
    for name, program in waking.items():
        if is_dying(name):
            exit_code(program)
        else:
            eventually(partial(events, program, "late_answer"), claim=f"{name} keeps its answer")


@pytest.fixture(scope="module")
def story(postgres: Cluster, template: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    made_once(tmp_path_factory, "paused")
    root = tmp_path_factory.mktemp("paused")
    receivers = {pause.receiver: pause.kind for pause in PAUSES}
    with (
        postgres.database(template) as database,
        merchant(root) as shop,
        arena(database, shop, root / "arena", receivers, config=settings(shop.url)) as made,
    ):
        yield play(made)


def of(*, dies: bool = False, in_flight: bool = False) -> pytest.MarkDecorator:
    """Run for each scenario of this sort."""
    chosen = [pause for pause in PAUSES if pause.dies == dies and pause.in_flight == in_flight]
    return pytest.mark.parametrize("pause", [pytest.param(one, id=one.receiver) for one in chosen])


@of(in_flight=True)
def test_an_answer_that_waited_for_a_zombie_settles_what_it_proves(story: Story, pause: Pause) -> None:
    """It only waited, so the switch lets it live. Its lane is lost, what it heard is evidence: nobody need be asked."""
    assert exit_code(story.programs[program_of(pause)]) == 0
    for one in story.left(pause):
        assert one.state == "succeeded"
        assert one.late_receipts == 1
        if KINDS[pause.kind].effects_max is not None:
            assert story.happened(one) == 1
            assert one.contradictions == 0
        if not KINDS[pause.kind].resent:
            assert (one.cause, story.sent(one)) == ("late_receipt", 1)


@of(dies=True)
def test_the_dead_mans_switch_ends_a_zombie_before_it_sends(story: Story, pause: Pause) -> None:
    assert exit_code(story.programs[program_of(pause)]) == -signal.SIGALRM
    stood = story.stood(pause)
    assert story.sent(stood) == stood.attempts - 1 - stood.not_sent, "all but the zombie's, and what came too late"
    happened = story.happened(stood)
    assert happened == KINDS[pause.kind].resent or (KINDS[pause.kind].effects_max is None and happened > 1)
    assert stood.state == "succeeded" or (KINDS[pause.kind].waits and stood.needs_person)
    for one in story.left(pause):
        assert story.happened(one) == 1 or KINDS[pause.kind].effects_max is None
        assert one.state == "succeeded" or KINDS[pause.kind].waits


@of()
def test_without_the_switch_a_zombie_sends_and_the_guarantee_bears_it(story: Story, pause: Pause) -> None:
    kind, stood = KINDS[pause.kind], story.stood(pause)
    assert exit_code(story.programs[program_of(pause)]) == 0
    assert stood.late_receipts + stood.late_answers == 1, "what it heard is kept"
    if pause.kind == "seen" and pause.wakes == DECISION:
        _rests_on_an_assumption(story, stood)
    elif kind.effects_max is not None:
        assert story.happened(stood) == 1
        assert stood.contradictions == 0
    if not kind.resent:
        assert story.sent(stood) == 1, "never sent again by itself"
    assert stood.state == "succeeded" or (kind.waits and stood.needs_person)


def _rests_on_an_assumption(story: Story, stood: Operation) -> None:
    """
    `verified` promises one effect provided that no process of ours is stopped longer than pause_bound before its first
    byte, or dead_man is on. Here neither holds: a second effect is possible. What is promised even so is that nobody is
    told otherwise: the operation is succeeded, and the second receipt, once it is heard, speaks against it.
    """
    assert story.happened(stood) in {1, 2}
    if story.happened(stood) == 2 and stood.late_receipts:
        assert stood.contradictions == 1


def test_every_write_of_a_zombie_is_refused_and_counted(story: Story) -> None:
    """As evidence in the database, and in the counters that its last heartbeat left: the two agree."""
    survivors = [program for name, program in story.programs.items() if not is_dying(name)]
    counted = {program.name: story.counters[program.pid] for program in survivors}
    for program in survivors:
        refused = sum(event["count"] for event in events(program, "fenced_write"))
        assert refused == counted[program.name]["fenced_writes"] >= 1
    assert sum(counters["late_answers"] for counters in counted.values()) == story.evidence


def test_nothing_vanished_and_nothing_happened_that_nobody_asked_for(story: Story) -> None:
    everything = {one for ids in story.ids.values() for one in ids}
    assert story.operations.keys() == everything
    assert story.effects.keys() <= everything
    assert [one for one in story.operations.values() if not one.rests] == []
