"""The transport `instant`: a receiver inside the relay's process, so that what is measured is the relay.

It asks the gate as a real receiver does, and answers with a receipt of the size that providers have. The receipt holds
the time of the effect. Option `milliseconds`: how long that takes.
"""

import asyncio
import time

from outbox.contract import ReceiverConfig
from outbox.evidence import Observation, Verdict
from outbox.outcome import Answer, NotSent, Outcome, Receipt
from outbox.receivers import Attempt, Question, TooLate


class InstantReceiver:
    """Remembers nothing."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def deliver(self, attempt: Attempt) -> Outcome:
        gate = attempt.gate
        gate.sending()
        try:
            gate.check()
        except TooLate as late:
            return NotSent(reason=late.reason)
        finally:
            gate.sent()
        if self._seconds:
            await asyncio.sleep(self._seconds)
        at = time.time()
        return Receipt(answer=Answer(200), receipt=f'{{"at":{at:.4f}}}', external_id=f"r-{attempt.seq:09d}")

    async def lookup(self, question: Question) -> Observation:
        if self._seconds:
            await asyncio.sleep(self._seconds)
        return Observation(verdict=Verdict.CONFIRMED, external_id=f"r-{question.seq:09d}", receipt="{}")

    async def aclose(self) -> None:
        """Nothing is open."""


def open_instant(name: str, config: ReceiverConfig, *, reads_only: bool) -> InstantReceiver:  # noqa: ARG001
    milliseconds = config.options.get("milliseconds", 0)
    return InstantReceiver(float(milliseconds) / 1000 if isinstance(milliseconds, int | float) else 0.0)
