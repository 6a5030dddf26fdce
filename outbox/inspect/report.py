"""What happened since a date, by tool and by receiver: what a morning begins with."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from outbox.store import Store

Row = dict[str, Any]

# Of the operations that were put since then: how many are in each state now.
STATES: Final = ("proposed", "authorized", "executing", "unknown", "succeeded", "rejected")
_COUNTED: Final = ("put", *STATES, "ended", "reconciled", "in_doubt", "needs_person", "windows_unused", "duplicates")
_SUMMED: Final = (*_COUNTED, "contradictions", "writes_refused", "throttled", "not_sent")
_MEASURED: Final = (
    *("attempts_mean", "attempts_max", "reconcile_p50_seconds", "reconcile_p95_seconds", "reconcile_max_seconds"),
    "oldest_doubt_seconds",
)
# What the daemons count and a report repeats: the rest is for metrics.
COUNTERS: Final = ("attempts", "fenced_writes", "late_answers", "alarms", "leases_lost", "looks", "resends_allowed")


async def report(store: Store, since: datetime) -> dict[str, Any]:
    """
    Count. The store holds the statements of `report`.

    `items`: one row per tool. `receivers`, `totals`: the same over the tools of each receiver, and over all. `daemons`:
    those that lived since then, with what they have counted in all their lives (a counter knows no dates).
    """
    parts = {
        name: await store.dicts(f"report_{name}", **({"since": since} if name in {"put", "ended", "evidence"} else {}))
        for name in ("put", "ended", "doubt", "evidence", "receivers")
    }
    ended = {level: [row for row in parts["ended"] if row["level"] == level] for level in ("tool", "receiver", "all")}
    by_tool: dict[str, Row] = {}
    for row in (*parts["put"], *ended["tool"], *parts["evidence"]):
        _add(by_tool.setdefault(row["tool"], {}), row)
    for row in parts["doubt"]:
        _add(by_tool.setdefault(row["tool"], {}), row | {"oldest_doubt_seconds": row["oldest_seconds"]})
    receivers = {row["tool"]: row["receiver"] for row in parts["receivers"]}
    items = [
        {"receiver": receivers.get(tool), "tool": tool, **_whole(row)}
        for tool, row in sorted(by_tool.items(), key=lambda one: (receivers.get(one[0]) or "", one[0]))
    ]
    daemons = _daemons(await store.dicts("report_daemons", since=since))
    (total,) = ended["all"]
    measured = {row["receiver"]: row for row in ended["receiver"]}
    by_receiver = [
        {"receiver": name, **_totals([item for item in items if item["receiver"] == name], measured.get(name, {}))}
        for name in sorted({item["receiver"] for item in items if item["receiver"]})
    ]
    totals = _totals(items, total)
    return {"since": since, "items": items, "receivers": by_receiver, "totals": totals, "daemons": daemons}


def _add(into: Row, row: Mapping[str, Any]) -> None:
    for name in (*_SUMMED, *_MEASURED):
        if row.get(name) is not None:
            # Windows are closed unused among what is open and among what has ended.
            into[name] = row[name] + (into.get(name, 0) if name in _SUMMED else 0)


def _whole(row: Row) -> Row:
    return {name: row.get(name, 0) for name in _SUMMED} | {name: row.get(name) for name in _MEASURED}


def _totals(items: list[Row], ended: Mapping[str, Any]) -> Row:
    oldest = [item["oldest_doubt_seconds"] for item in items if item["oldest_doubt_seconds"] is not None]
    summed = {name: sum(item[name] for item in items) for name in _SUMMED}
    measured = {name: ended.get(name) for name in _MEASURED}
    return summed | measured | {"oldest_doubt_seconds": max(oldest, default=None)}


def _daemons(rows: list[Row]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in rows:
        kind = found.setdefault(row["kind"], {"daemons": 0})
        kind["daemons"] = max(kind["daemons"], row["daemons"])
        if row["name"] in COUNTERS:
            kind[row["name"]] = row["number"]
    return found
