"""From an id to an operation."""

from dataclasses import dataclass
from typing import Final

from outbox.errors import AmbiguousId, NotFound
from outbox.store import Store

# Of an id that more tenants have than this, some of them are named.
TENANTS_NAMED_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Found:
    """One operation. A purged one has left its end, and nothing else."""

    seq: int
    tenant_id: str
    operation_id: str
    purged: bool


async def find(store: Store, operation_id: str, tenant_id: str | None = None) -> Found:
    """
    Find the operation of that id, of any tenant if none is named.

    Raises NotFound, and AmbiguousId, which names the tenants, where several have an operation of that id.
    """
    if tenant_id is not None:
        rows = await store.dicts("find_in_tenant", tenant_id=tenant_id, operation_id=operation_id)
    else:
        rows = await store.dicts("find_anywhere", operation_id=operation_id, limit=TENANTS_NAMED_MAX + 1)
    if not rows:
        raise await _not_found(store, operation_id, tenant_id)
    if len(rows) > 1:
        tenants = [row["tenant_id"] for row in rows[:TENANTS_NAMED_MAX]]
        raise AmbiguousId(operation_id, [*tenants, "..."] if len(rows) > TENANTS_NAMED_MAX else tenants)
    return Found(rows[0]["seq"], rows[0]["tenant_id"], operation_id, rows[0]["purged"])


async def _not_found(store: Store, operation_id: str, tenant_id: str | None) -> NotFound:
    if tenant_id is None:
        return NotFound(f"There is no operation {operation_id!r}.", hint="See: outbox list")
    others = await store.dicts("find_anywhere", operation_id=operation_id, limit=TENANTS_NAMED_MAX)
    named = ", ".join(row["tenant_id"] for row in others)
    hint = (
        f"There is one of tenant {named}: name it with --tenant."
        if others
        else f"See: outbox list --tenant {tenant_id}"
    )
    return NotFound(f"There is no operation {operation_id!r} of tenant {tenant_id}.", hint=hint)
