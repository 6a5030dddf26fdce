"""A reconciler on a real database, and receivers whose records a test writes itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from outbox.contract import ReceiverConfig
from outbox.daemon import Life, Member, opened
from outbox.evidence import Observation, Verdict
from outbox.outcome import Outcome
from outbox.receivers import Attempt, Question, Receiver
from outbox.registry import apply
from outbox.settings import Configuration, DatabaseSettings, ReconcilerSettings
from outbox.store import Store
from reconciler.service import STATEMENTS, Reconciler, open_for_reading
from tests.support.postgres import Database
from tests.support.stage import Holder, Stage

RECEIVER = "warehouse"
DEADLINE_SECONDS, BOUND_SECONDS, LAG_SECONDS = 5.0, 30.0, 10.0
# Exposure + deadline + pause bound (the lease, as none is stated) + in-flight bound.
SETTLE_SECONDS = DEADLINE_SECONDS + 30.0 + BOUND_SECONDS

NOT_FOUND = Observation(verdict=Verdict.NOT_FOUND)
UNKNOWN = Observation(verdict=Verdict.UNKNOWN, note="no answer")
ENDED = Observation(verdict=Verdict.ENDED)
CONFIRMED = Observation(verdict=Verdict.CONFIRMED, external_id="w-1", receipt='{"id":"w-1"}')

_STRONG = {"by": "reference", "consistency": "strong", "absence_is_proof": True}
_KEY = {"key": {"in": "header", "name": "Idempotency-Key"}, "key_retention": "24h"}

# One tool for each class of contract.
CONTRACTS: Mapping[str, Mapping[str, Any]] = {
    "thing.looked_up": {"lookup": _STRONG, "in_flight_bound": "30s"},
    "thing.lagging": {"lookup": {**_STRONG, "consistency": "eventual", "lag": "10s"}, "in_flight_bound": "30s"},
    "thing.unbounded": {"lookup": {**_STRONG, "reads_max": 4}},
    "thing.accepting": {
        "lookup": {**_STRONG, "confirm_within": "10m", "reads_max": 4},
        "in_flight_bound": "30s",
        "acceptance": "async",
    },
    "thing.keyed": {**_KEY, "in_flight_bound": "30s"},
    "thing.keyed_and_looked_up": {**_KEY, "lookup": {**_STRONG, "by": "key"}, "in_flight_bound": "30s"},
    "thing.blind": {},
}


def configuration(**receiver: Any) -> Configuration:
    """One receiver with all of these tools."""
    config = {
        "transport": "scripted",
        "lanes": 1,
        "auth": {"kind": "bearer", "secret": "env:WRITE_TOKEN", "id": "main"},
        "read_auth": {"kind": "bearer", "secret": "env:READ_TOKEN", "id": "main-read", "account": "main"},
        **receiver,
    }
    tools = {
        name: {"receiver": RECEIVER, "deadline": f"{DEADLINE_SECONDS}s", "contract": contract}
        for name, contract in CONTRACTS.items()
    }
    return Configuration.model_validate({"receivers": {RECEIVER: config}, "tools": tools})


def another_receiver() -> Configuration:
    """The receiver `shop`, with one tool."""
    return Configuration.model_validate(
        {
            "receivers": {"shop": {"transport": "scripted", "lanes": 1}},
            "tools": {
                "shop.sell": {
                    "receiver": "shop",
                    "deadline": "5s",
                    "contract": {"lookup": {"by": "reference"}},
                }
            },
        }
    )


async def register(database: Database, registry: Configuration | None = None) -> None:
    """Apply a configuration to a database."""
    async with Store(database.dsn, "apply") as store:
        await apply(store, registry or configuration(), "test")


Answer = Observation | Exception | Callable[[Question], "Observation | Awaitable[Observation]"]


class Records:
    """A receiver that can only be asked. `answer` is what every look shows, until it is changed."""

    def __init__(self, answer: Answer = NOT_FOUND) -> None:
        self.answer = answer
        self.questions: list[Question] = []

    async def deliver(self, attempt: Attempt) -> Outcome:
        raise AssertionError("a reconciler never delivers")

    async def lookup(self, question: Question) -> Observation:
        self.questions.append(question)
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, Observation):
            return self.answer
        said = self.answer(question)
        return said if isinstance(said, Observation) else await said

    async def aclose(self) -> None:
        """Nothing is open."""


class Held:
    """An answer that waits until the test lets it go, and says when it was asked."""

    def __init__(self, observation: Observation = NOT_FOUND) -> None:
        self.asked = asyncio.Event()
        self.released = asyncio.Event()
        self._observation = observation

    async def __call__(self, _: Question) -> Observation:
        self.asked.set()
        await self.released.wait()
        return self._observation


@asynccontextmanager
async def reconciler_on(
    database: Database,
    receivers: Receiver | Callable[[str, ReceiverConfig], Receiver] | None = None,
    *,
    only: tuple[str, ...] | None = None,
    **settings: Any,
) -> AsyncIterator[Reconciler]:
    """A started reconciler under its own role. `receivers` stands for every receiver; None: the real ones."""
    life, member = Life(), Member("reconciler", only)
    async with opened(
        database.dsn_for("reconciler"),
        member,
        life,
        DatabaseSettings(),
        groups=[STATEMENTS],
        connections_max=4,
    ) as store:
        opener = open_for_reading if receivers is None else _opener(receivers)
        reconciler = Reconciler(store, life, ReconcilerSettings(**settings), member=member, open_receivers=opener)
        try:
            await reconciler.start()
            yield reconciler
        finally:
            await reconciler.aclose()


def _opener(
    receivers: Receiver | Callable[[str, ReceiverConfig], Receiver],
) -> Callable[[str, ReceiverConfig], Receiver]:
    return receivers if callable(receivers) else lambda *_: receivers


def in_doubt(
    stage: Stage,
    holder: Holder,
    tool: str,
    operation_id: str = "op",
    *,
    expires_in: float | None = None,
    **recorded: Any,
) -> int:
    """Put an operation and make an attempt of which nothing is heard; returns its seq. It is due for a look at once."""
    intent = (
        {} if expires_in is None else {"expires_at": stage.value("select outbox.now()") + timedelta(seconds=expires_in)}
    )
    seq = stage.put(operation_id, tool, **intent)
    assert resent(stage, holder, seq, **recorded) == 1
    return seq


def resent(stage: Stage, holder: Holder, seq: int, **recorded: Any) -> int:
    """Make the next attempt, of which nothing is heard either; returns its number."""
    (attempt,) = holder.begin_these(seq)
    facts = {"delays": 0.0} | recorded
    assert holder.record_unknown(seq, attempt["attempt"], **facts) == [seq]
    return int(attempt["attempt"])
