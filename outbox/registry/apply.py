"""
`outbox apply`: a file becomes the registry of a database, in one transaction or not at all.

What is guaranteed: applying the same file again changes nothing; every contract version that was ever in force is kept;
secrets are not stored, their references are. What is refused, because open operations rest on it: another number of
lanes, and moving or removing a tool that has open operations.

Tools that are in the database and not in the file are kept unless `prune` is asked for: several services may share an
outbox, each with a file of its own. If their receiver is in the file and has changed, they get a new version with it:
no request goes to one host with the credential for another.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from outbox.contract import ReceiverConfig, ToolConfig, Wiring, problems
from outbox.crashpoints import reach
from outbox.errors import Refused
from outbox.os_user import os_user
from outbox.registry.derived import derived
from outbox.settings import Configuration, load_configuration
from outbox.store import Store, Transaction

# The file of statements that a store needs in order to apply.
STATEMENTS: Final = "apply"

# Open operations are counted up to here: a refusal needs a number, not the exact size of a backlog.
COUNT_MAX: Final = 10_000
# Decided again at once, per statement and in all; the daemons do the rest.
REDECIDE_BATCH_MAX: Final = 10_000
REDECIDE_BATCHES_MAX: Final = 100

ChangeKind = Literal["created", "changed", "unchanged", "removed", "kept"]


@dataclass(frozen=True, slots=True)
class Change:
    """
    What happened to one receiver or tool.

    `kept`: it is not in the file. `version` is the contract version in force, `new_version` says that this apply made
    it. `fields` names what differs from before.
    """

    kind: Literal["receiver", "tool"]
    name: str
    change: ChangeKind
    version: int | None = None
    new_version: bool = False
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What an apply did. `redecided` counts open operations whose permission was decided again."""

    changes: tuple[Change, ...]
    redecided: int = 0

    @property
    def changed(self) -> bool:
        """Whether the database is another one now."""
        return any(change.change not in {"unchanged", "kept"} for change in self.changes)


async def apply(
    store: Store, configuration: Configuration, by: str, *, prune: bool = False, dry_run: bool = False
) -> Report:
    """
    Store receivers, tools and contracts, and say what changed.

    `by` is the person or program that did it. A dry run does everything and commits nothing. Raises Refused with
    every reason; nothing has been changed then.
    """
    async with store.transaction(force_rollback=dry_run) as transaction:
        job = _Apply(transaction, configuration, by, prune=prune)
        changes = await job.run()
    return Report(changes, await _redecide(store) if job.policy_changed and not dry_run else 0)


async def apply_file(path: Path, by: str | None = None) -> Report:
    """Apply a whole file to the database that it names. Raises ConfigError, Refused and DatabaseError as they come."""
    configuration = load_configuration(path)
    async with Store(configuration.dsn, STATEMENTS, name="outbox apply", pooler=configuration.database.pooler) as store:
        return await apply(store, configuration, by or os_user())


async def _redecide(store: Store) -> int:
    total = 0
    for _ in range(REDECIDE_BATCHES_MAX):
        moved: int = await store.value("redecide_some", batch_max=REDECIDE_BATCH_MAX)
        total += moved
        if moved < REDECIDE_BATCH_MAX:
            break
    return total


class _Apply:
    """One run, inside its transaction."""

    def __init__(self, transaction: Transaction, configuration: Configuration, by: str, *, prune: bool) -> None:
        self._db = transaction
        self._file = configuration
        self._by = by
        self._prune = prune
        self._receivers: dict[str, dict[str, Any]] = {}
        self._tools: dict[str, dict[str, Any]] = {}

    async def run(self) -> tuple[Change, ...]:
        await self._db.value("apply_lock")
        self._receivers = {row["name"]: row for row in await self._db.dicts("applied_receivers")}
        self._tools = {row["name"]: row for row in await self._db.dicts("applied_tools")}
        reasons = [*self._refusals(), *self._refusals_by_tools_of_others(), *await self._refusals_by_open_operations()]
        if reasons:
            raise Refused(
                "; ".join(reasons),
                hint="Nothing has been changed. To try again without a change: outbox apply --dry-run",
            )
        changes = [await self._receiver(name, config) for name, config in sorted(self._file.receivers.items())]
        for name, tool in sorted(self._file.tools.items()):
            changes.append(await self._tool(name, tool))
            reach("mid_apply")
        return (*changes, *[await self._absent(name) for name in sorted(self._tools.keys() - self._file.tools.keys())])

    @property
    def _tools_of_others(self) -> Iterator[tuple[str, ReceiverConfig]]:
        """Tools that are kept, and whose receiver the file changes."""
        for name, row in self._tools.items():
            config = self._file.receivers.get(row["receiver"])
            if self._prune or name in self._file.tools or config is None:
                continue
            if self._receivers[row["receiver"]]["config"] != _document(config):
                yield name, config

    @property
    def policy_changed(self) -> bool:
        """Whether some tool got another policy version: its open operations must be decided again."""
        tools = self._file.tools
        return any(
            name in tools and tools[name].policy_version != row["policy_version"] for name, row in self._tools.items()
        )

    # ------------------------------------------------------------------------------------------------------- refusals

    def _refusals(self) -> Iterator[str]:
        for name, config in self._file.receivers.items():
            there = self._receivers.get(name)
            if there is None:
                continue
            if there["lanes"] != config.lanes:
                yield (
                    f"receiver {name} has {there['lanes']} lanes, the file says {config.lanes}: lanes are fixed once it"
                    " exists (declare another receiver, and move its tools there)"
                )
        for name, tool in self._file.tools.items():
            before = self._tools.get(name)
            if before is None:
                continue
            if tool.policy_version < before["policy_version"]:
                yield f"tool {name} is at policy_version {before['policy_version']}, and no version ever comes back"
            elif (
                tool.requires_approval != before["requires_approval"]
                and tool.policy_version == before["policy_version"]
            ):
                yield (
                    f"tool {name} changes requires_approval: raise its policy_version above {tool.policy_version}, so"
                    " that what was permitted before is decided again"
                )

    def _refusals_by_tools_of_others(self) -> Iterator[str]:
        for name, config in self._tools_of_others:
            try:
                tool = Wiring.from_json(self._tools[name]["body"]).config
            except ValidationError:
                yield f"tool {name} of another release has a receiver that changes: apply its file with this one"
            else:
                yield from map(str, problems(name, tool, config))

    async def _refusals_by_open_operations(self) -> Sequence[str]:
        moved = {name: tool.receiver for name, tool in self._file.tools.items() if self._moves(name, tool)}
        removed = self._tools.keys() - self._file.tools.keys() if self._prune else set()
        if not moved and not removed:
            return []
        await self._db.value("hold_writers")
        reasons = []
        for name in sorted(moved.keys() | removed):
            row = self._tools[name]
            count: int = await self._db.value(
                "open_operations", receiver_id=row["receiver_id"], name=name, count_max=COUNT_MAX
            )
            if count:
                act = f"be moved from {row['receiver']} to {moved[name]}" if name in moved else "be removed"
                more = f"{COUNT_MAX} or more" if count == COUNT_MAX else str(count)
                see = f"outbox stuck --tool {name} --all, outbox list --tool {name}"
                reasons.append(f"tool {name} cannot {act}: {more} of its operations have not ended (see: {see})")
        return reasons

    def _moves(self, name: str, tool: ToolConfig) -> bool:
        return name in self._tools and self._tools[name]["receiver"] != tool.receiver

    # --------------------------------------------------------------------------------------------------------- writing

    async def _receiver(self, name: str, config: ReceiverConfig) -> Change:
        document, before = _document(config), self._receivers.get(name)
        values = {
            "transport": config.transport,
            "doorbell": config.doorbell,
            "config": json.dumps(document),
            "by": self._by,
        }
        if before is None:
            receiver_id: int = await self._db.value("insert_receiver", name=name, lanes=config.lanes, **values)
            await self._db.value("insert_lanes", receiver_id=receiver_id, lanes=config.lanes)
            self._receivers[name] = {"receiver_id": receiver_id}
            return Change("receiver", name, "created")
        if fields := tuple(_differences(before["config"], document)):
            await self._db.value("update_receiver", receiver_id=before["receiver_id"], **values)
            return Change("receiver", name, "changed", fields=fields)
        return Change("receiver", name, "unchanged")

    async def _tool(self, name: str, tool: ToolConfig) -> Change:
        wiring = Wiring.of(name, tool, self._file.receivers[tool.receiver])
        before = self._tools.get(name)
        if before is not None and bytes(before["digest"]) == wiring.digest:
            return Change("tool", name, "unchanged", before["version"])
        contract_id, version, new = await self._contract(wiring)
        await self._db.value(
            "put_tool",
            name=name,
            receiver_id=self._receivers[tool.receiver]["receiver_id"],
            contract_id=contract_id,
            by=self._by,
            **derived(wiring),
        )
        if before is None:
            return Change("tool", name, "created", version, new)
        fields = tuple(_differences(before["body"], json.loads(wiring.to_json())))
        return Change("tool", name, "changed", version, new, fields)

    async def _contract(self, wiring: Wiring) -> tuple[int, int, bool]:
        """The id and version of this wiring, and whether it is new: an old one may come back into force."""
        known = await self._db.dicts("find_contract", digest=wiring.digest)
        rows = known or await self._db.dicts(
            "insert_contract", digest=wiring.digest, tool=wiring.tool, body=wiring.to_json(), by=self._by
        )
        return rows[0]["contract_id"], rows[0]["version"], not known

    async def _absent(self, name: str) -> Change:
        if not self._prune:
            if name in dict(self._tools_of_others):
                change = await self._tool(name, Wiring.from_json(self._tools[name]["body"]).config)
                return change if change.change == "changed" else replace(change, change="kept")
            return Change("tool", name, "kept", self._tools[name]["version"])
        await self._db.value("remove_tool", name=name)
        return Change("tool", name, "removed", self._tools[name]["version"])


def _document(config: ReceiverConfig) -> dict[str, Any]:
    return config.model_dump(mode="json", by_alias=True, exclude_none=True)


def _differences(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Name what differs between two documents, down to the first thing that is not a table in both."""
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        if before != after:
            yield place
        return
    for name in sorted(before.keys() | after.keys()):
        yield from _differences(before.get(name), after.get(name), f"{place}.{name}" if place else name)
