"""The statements of a service as values: a name in `sql/write.sql`, and parameters. Nothing here runs one."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outbox.intent import Intent

BATCH_MAX_INTENTS = 1_000  # in one statement of put_many
BATCH_MAX_CHARS = 16 * 1024 * 1024  # far below PostgreSQL's limit of 1 GB for one parameter


@dataclass(frozen=True, slots=True)
class Query:
    """A statement of `sql/write.sql` by name, its parameters, and whether it writes."""

    name: str
    parameters: Mapping[str, Any]
    writes: bool = False


def put_one(tenant_id: str, principal_id: str, intent: Intent) -> Query:
    """Build the query that puts one intent."""
    return Query("put_one", _parameters(tenant_id, principal_id, intent), writes=True)


def put_many(tenant_id: str, principal_id: str, intents: Iterable[Intent]) -> list[Query]:
    """
    Build the queries that put many; `place` in a row of their answers is the position among `intents`.

    One query as a rule, more where one would be too large. All of them together are sorted by operation id, whose
    ASCII characters every writer orders alike: transactions that share ids never wait for each other in a circle.
    """
    ordered = sorted(enumerate(intents), key=lambda placed: placed[1].operation_id)
    batches: list[list[str]] = []
    chars = BATCH_MAX_CHARS
    for place, intent in ordered:
        item = {"place": place} | _parameters(tenant_id, principal_id, intent)
        text = json.dumps(item, ensure_ascii=False, default=bytes.hex)
        chars += len(text)
        if chars > BATCH_MAX_CHARS or len(batches[-1]) == BATCH_MAX_INTENTS:
            batches.append([])
            chars = len(text)
        batches[-1].append(text)
    return [Query("put_many", {"intents": f"[{','.join(batch)}]"}, writes=True) for batch in batches]


def get_one(tenant_id: str, operation_id: str, put_xid: str | None = None) -> Query:
    """Build the query that reads one operation; `put_xid` is the transaction that put it, where that is remembered."""
    return Query("get_one", {"tenant_id": tenant_id, "operation_id": operation_id, "put_xid": put_xid})


def feed_batch(tenant_id: str, after: str | None, batch_max: int) -> Query:
    """Build the query that reads the next ends of operations, and the bookmark behind them."""
    return Query("feed", {"tenant_id": tenant_id, "after": after, "batch_max": batch_max})


def _parameters(tenant_id: str, principal_id: str, intent: Intent) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "operation_id": intent.operation_id,
        "tool": intent.tool,
        "principal_id": principal_id,
        "arguments": intent.arguments,
        "digest": intent.digest(tenant_id),
        "resource": intent.resource,
        "expected_version": intent.expected_version,
        "ordering_key": intent.ordering_key,
        "not_before": _text(intent.not_before),
        "expires_at": _text(intent.expires_at),
        "compensates": intent.compensates,
        "revision_of": intent.revision_of,
        "on_behalf_of": intent.on_behalf_of,
        "traceparent": intent.traceparent,
        "content_type": intent.content_type,
        "body": intent.body,
    }


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
