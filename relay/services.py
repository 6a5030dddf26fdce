"""The receivers that this relay serves, as the registry has them now."""

from collections.abc import Callable
from functools import partial
from typing import Final

from outbox.contract import ReceiverConfig
from outbox.errors import OutboxError
from outbox.lease import boottime
from outbox.observe import emit
from outbox.receivers import Receiver
from outbox.registry import ReceiverEntry, Registry
from outbox.settings.problems import did_you_mean
from relay.circuit import Change
from relay.service import Service

# A replaced receiver keeps its connections until the attempts that still use it have ended for certain.
_RETIRED_SECONDS: Final = 60.0

OpenReceiver = Callable[[str, ReceiverConfig], Receiver]
CircuitTold = Callable[[str, Change, str], None]
"""Hears of which receiver the circuit opened or closed, and why."""


class Services:
    """Receivers by name. `names` None: all of them."""

    def __init__(self, names: tuple[str, ...] | None, open_receiver: OpenReceiver, told: CircuitTold) -> None:
        self.by_name: dict[str, Service] = {}
        self._names = names
        self._open = open_receiver
        self._told = told
        self._entries: dict[str, ReceiverEntry] = {}
        self._refused: set[str] = set()
        self._retired: list[tuple[float, Receiver]] = []

    def update(self, registry: Registry) -> None:
        """Take in what has been applied. A receiver that cannot be opened is reported and left out: others go on."""
        wanted = {
            name: entry for name, entry in registry.receivers.items() if self._names is None or name in self._names
        }
        for name in set(self._names or ()) - wanted.keys() - self._refused:
            self._refuse(name, f"no receiver of this name has been applied{did_you_mean(name, registry.receivers)}")
        for name in self.by_name.keys() - wanted.keys():
            self._retire(self.by_name.pop(name))
            del self._entries[name]
        for name, entry in wanted.items():
            tools = [tool.wiring for tool in registry.tools_of(name)]
            if self._entries.get(name) == entry:
                self.by_name[name].use(tools)
                continue
            try:
                receiver = self._open(name, entry.config)
            except OutboxError as error:
                self._refuse(name, error.message)
                continue
            self._refused.discard(name)
            if (old := self.by_name.get(name)) is not None:
                self._retire(old)
            self.by_name[name] = Service(entry, tools, receiver, partial(self._told, name))
            self._entries[name] = entry

    async def close_retired(self, *, all_of_them: bool = False) -> None:
        """Close receivers that were replaced or removed, once nothing can use them any more."""
        now = boottime()
        due = [receiver for at, receiver in self._retired if all_of_them or now >= at]
        self._retired = [(at, receiver) for at, receiver in self._retired if receiver not in due]
        for receiver in due:
            await receiver.aclose()

    async def aclose(self) -> None:
        """Close every receiver."""
        for service in self.by_name.values():
            await service.receiver.aclose()
        await self.close_retired(all_of_them=True)

    def _refuse(self, name: str, reason: str) -> None:
        if name not in self._refused:
            self._refused.add(name)
            emit("registry_refused", receiver=name, reason=reason)

    def _retire(self, service: Service) -> None:
        self._retired.append((boottime() + service.deadline_seconds + _RETIRED_SECONDS, service.receiver))
