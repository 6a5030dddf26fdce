"""Saying that a daemon lives."""

from typing import Any

from psycopg.types.json import Jsonb

from outbox.daemon.clock import ClockWatch
from outbox.daemon.member import Member
from outbox.daemon.start import Life
from outbox.errors import DatabaseUnavailable
from outbox.lease import boottime
from outbox.observe import Meters, emit
from outbox.store import Store


class Heart:
    """Says that this daemon lives, flushes its counters, and notices when the database is gone and back.

    With `life`, which a daemon behind a pooler gives, every beat looks whether the database is still the same.
    """

    def __init__(
        self, store: Store, member: Member, meters: Meters, clock: ClockWatch, life: Life | None = None
    ) -> None:
        self._store = store
        self._member = member
        self._meters = meters
        self._clock = clock
        self._life = life
        self._lost = False

    async def beat(self) -> bool:
        """One beat; False if the database did not answer."""
        member = self._member
        sent_at = boottime()
        try:
            if self._life is not None:
                await self._life.look(self._store)
            now = await self._store.value(
                "heartbeat",
                member_id=member.member_id,
                kind=member.kind,
                host=member.host,
                pid=member.pid,
                version=member.version,
                receivers=None if member.receivers is None else list(member.receivers),
                counters=self._counters(),
            )
        except DatabaseUnavailable as error:
            if not self._lost:
                self._lost = True
                emit("database_lost", reason=error.message)
            return False
        if self._lost:
            self._lost = False
            emit("database_back")
        self._clock.observe(now, sent_at, boottime())
        return True

    async def leave(self) -> None:
        """Say good-bye: others need not wait until we have been silent for long. Best effort."""
        try:
            await self._store.dicts("member_leaves", member_id=self._member.member_id, counters=self._counters())
        except DatabaseUnavailable as error:
            emit("database_lost", reason=error.message)

    def _counters(self) -> Any:
        return Jsonb(self._meters.totals())
