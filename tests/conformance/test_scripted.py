"""The scripted receiver keeps what every receiver must, so a service's tests see what production would."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from outbox.evidence import Observation, Verdict
from outbox.outcome import Answer, Outcome, Receipt, Refused
from outbox.receivers import Attempt, Question
from outbox.receivers.conformance import Bench, Gate, ReceiverConformance
from outbox.receivers.scripted import ScriptedReceiver, lost_answer
from tests.support.attempts import attempt, question, receiver

CONFIG = receiver("", transport="scripted")


class ScriptedBench(Bench):
    def __init__(self) -> None:
        self.happened: set[str] = set()
        self.next: list[str] = []
        self.broken = 0
        self.receiver = self.scripted = ScriptedReceiver([self.line], [self.look])

    async def line(self, made: Attempt) -> Outcome:
        act = self.next.pop(0) if self.next else ""
        if act == "hang":
            await asyncio.Event().wait()
        if act == "refuse":
            return Refused(answer=Answer(422))
        new = made.sent_key not in self.happened
        self.happened.add(made.sent_key)
        if act == "lose":
            return lost_answer(made)
        if not new:
            self.scripted.effects[made.sent_key] -= 1  # the script's own receiver honours keys
        return Receipt(answer=Answer(200), receipt=made.sent_key)

    def look(self, asked: Question) -> Observation:
        if self.broken:
            self.broken -= 1
            return Observation(verdict=Verdict.UNKNOWN)
        found = asked.sent_key in self.happened
        return Observation(verdict=Verdict.CONFIRMED if found else Verdict.NOT_FOUND)

    def attempt(self, sent_key: str, gate: Gate) -> Attempt:
        return attempt(CONFIG, sent_key=sent_key, gate=gate)

    def question(self, sent_key: str) -> Question:
        return question(CONFIG, sent_key=sent_key)

    async def effects(self, sent_key: str) -> int:
        return self.scripted.effects[sent_key]

    async def requests(self, sent_key: str) -> int:
        return sum(made.sent_key == sent_key for made in self.scripted.attempts)

    async def lose_next_answer(self) -> None:
        self.next.append("lose")

    async def refuse_next(self) -> None:
        self.next.append("refuse")

    async def hang_next(self) -> None:
        self.next.append("hang")

    async def break_next_look(self) -> None:
        self.broken += 1


class TestScripted(ReceiverConformance):
    @asynccontextmanager
    async def bench(self) -> AsyncIterator[Bench]:
        bench = ScriptedBench()
        yield bench
        await bench.receiver.aclose()
