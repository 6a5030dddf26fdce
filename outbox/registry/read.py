"""
Reading the registry, as daemons and people do.

A daemon reads it at its start and again every `registry_poll`; what is applied meanwhile takes effect with the next
operation that begins, while an operation that was exposed before stays bound to the version of its first exposure.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import rfc8785
from pydantic import ValidationError

from outbox.contract import ReceiverConfig, ReceiverFacts, Wiring, problems
from outbox.errors import ConfigError, DatabaseError, NotFound, Problem, SchemaMismatch
from outbox.store import Store


@dataclass(frozen=True, slots=True)
class ReceiverEntry:
    """A receiver as applied. `lanes` never changes once it exists."""

    receiver_id: int
    name: str
    lanes: int
    doorbell: bool
    config: ReceiverConfig


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """A tool as applied, with the contract version in force."""

    name: str
    receiver: str
    contract_id: int
    version: int
    wiring: Wiring
    requires_approval: bool
    policy_version: int


class Wirings:
    """Contract versions by id, each read once: they never change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, Wiring] = {}

    async def get(self, contract_id: int) -> Wiring:
        """
        Return one version, also one that is no longer in force.

        Raises NotFound, or SchemaMismatch where this program does not understand what a newer one has applied: an
        unknown promise of a contract is never ignored.
        """
        if contract_id not in self._known:
            rows = await self._store.dicts("read_contract", contract_id=contract_id)
            if not rows:
                raise NotFound(f"There is no contract version with the id {contract_id}.", hint="See: outbox contracts")
            self.add(contract_id, rows[0])
        return self._known[contract_id]

    def add(self, contract_id: int, row: Mapping[str, Any]) -> Wiring:
        """Keep a version that was read in another way, and return it."""
        if contract_id not in self._known:
            self._known[contract_id] = _wiring(row)
        return self._known[contract_id]


@dataclass(frozen=True, slots=True)
class Registry:
    """All of it at one moment. Two registries are equal if nothing has been applied in between."""

    receivers: Mapping[str, ReceiverEntry]
    tools: Mapping[str, ToolEntry]
    wirings: Wirings = field(compare=False, repr=False)

    async def wiring(self, contract_id: int) -> Wiring:
        """Return the version that an operation is pinned to. Raises as `Wirings.get`."""
        return await self.wirings.get(contract_id)

    def tools_of(self, receiver: str) -> tuple[ToolEntry, ...]:
        """The tools of one receiver, by name."""
        return tuple(tool for tool in self.tools.values() if tool.receiver == receiver)


async def read_registry(store: Store, wirings: Wirings | None = None) -> Registry:
    """
    Read everything. The store must hold the statements of `registry`; `wirings` keeps what was read before.

    Raises SchemaMismatch as `Wirings.get`, and ConfigError where a contract in force contradicts itself by the rules of
    this version.
    """
    wirings = wirings or Wirings(store)
    receivers = {row["name"]: _receiver(row) for row in await store.dicts("read_receivers")}
    tools: dict[str, ToolEntry] = {}
    for row in await store.dicts("read_tools"):
        wiring = wirings.add(row["contract_id"], row)
        facts = {
            name: row[name] for name in ("receiver", "contract_id", "version", "requires_approval", "policy_version")
        }
        tools[row["name"]] = ToolEntry(name=row["name"], wiring=wiring, **facts)
    # Receivers first, tools second: what was applied in between may belong to a receiver that has not been read, or not
    # as it is now. What would go to its host, or was made for its account, waits until it has been.
    tools = {name: tool for name, tool in tools.items() if _fits(tool, receivers.get(tool.receiver))}
    _check(receivers, tools)
    return Registry(MappingProxyType(receivers), MappingProxyType(tools), wirings)


def _fits(tool: ToolEntry, receiver: ReceiverEntry | None) -> bool:
    return receiver is not None and tool.wiring.receiver.way == ReceiverFacts.of(receiver.name, receiver.config).way


def _check(receivers: Mapping[str, ReceiverEntry], tools: Mapping[str, ToolEntry]) -> None:
    found: list[Problem] = []
    for tool in tools.values():
        found += problems(tool.name, tool.wiring.config, receivers[tool.receiver].config)
    if found:
        raise ConfigError(found, hint="Correct outbox.toml, and run: outbox apply")


def _receiver(row: Mapping[str, Any]) -> ReceiverEntry:
    try:
        config = ReceiverConfig.model_validate(row["config"])
    except ValidationError as error:
        raise _not_understood(f"receiver {row['name']}", error) from None
    return ReceiverEntry(row["receiver_id"], row["name"], row["lanes"], row["doorbell"], config)


def _wiring(row: Mapping[str, Any]) -> Wiring:
    name = f"contract version {row['version']} of tool {row['tool'] if 'tool' in row else row['name']}"
    if hashlib.sha256(rfc8785.dumps(row["body"])).digest() != bytes(row["digest"]):
        raise DatabaseError(
            f"The stored {name} does not match its digest: somebody has changed it.",
            hint="Nothing is sent under it. Restore the row from a backup; for new operations: outbox apply",
        )
    try:
        return Wiring.from_json(row["body"])
    except ValidationError as error:
        raise _not_understood(name, error) from None


def _not_understood(what: str, error: ValidationError) -> SchemaMismatch:
    place = ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
    return SchemaMismatch(
        f"This version of the program does not understand {what} (at {place}).",
        hint="It was applied by another release: run that release, or apply outbox.toml again with this one.",
    )
