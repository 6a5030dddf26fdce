"""Transports by name: imported when one is asked for, so that `import outbox` stays light.

Third parties add a transport as an entry point of the group `outbox.receivers`, whose name is the transport and whose
object is a `Factory`. The names below are ours, and cannot be taken.
"""

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, cast

from outbox.errors import UnknownTransport

if TYPE_CHECKING:
    from outbox.contract import ReceiverConfig
    from outbox.receivers import Receiver

GROUP = "outbox.receivers"

# transport -> (module, factory in it, what to install where the import fails)
_OURS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "http": ("outbox.receivers.http", "open_http", "pip install outbox-relay"),
        "postgres": ("outbox.receivers.postgres", "open_postgres", "pip install outbox-relay"),
        "scripted": ("outbox.receivers.scripted", "open_scripted", "pip install outbox-relay"),
    }
)


class Factory(Protocol):
    """Opens one receiver. Makes no connection yet; may raise ReceiverError or ConfigError.

    With `reads_only` it resolves no credential but `read_auth` (`auth` only where the configuration says
    `shared_credential`), and its `deliver` refuses.
    """

    def __call__(self, name: str, config: "ReceiverConfig", *, reads_only: bool) -> "Receiver":
        """Open it."""


def open_receiver(name: str, config: "ReceiverConfig", *, reads_only: bool = False) -> "Receiver":
    """The receiver of this name and configuration. Raises UnknownTransport, with a hint where something is missing."""
    return factory(config.transport)(name, config, reads_only=reads_only)


def factory(transport: str) -> Factory:
    """What opens receivers of this transport. Raises UnknownTransport."""
    if transport in _OURS:
        module, attribute, install = _OURS[transport]
        try:
            return cast("Factory", getattr(importlib.import_module(module), attribute))
        except ModuleNotFoundError as error:
            raise UnknownTransport(f"transport {transport!r} needs {error.name}.", hint=f"Run: {install}") from error
    for entry in entry_points(group=GROUP, name=transport):
        return cast("Factory", entry.load())
    raise UnknownTransport(f"There is no transport {transport!r}.", hint=f"Installed are: {', '.join(transports())}.")


def transports() -> tuple[str, ...]:
    """The names of all transports that are installed, in order."""
    return tuple(sorted({*_OURS, *(entry.name for entry in entry_points(group=GROUP))}))
