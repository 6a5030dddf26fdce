"""What a daemon says while it runs: events with fixed names, and numbers.

An event is one line: its name, and fields of the list below. Arguments, bodies, headers, receipts and secrets have no
field, so they cannot get into a log; a field that is not listed is left out, and a test looks for such calls. The path
that reports a failure must not fail: `emit` raises nothing.

Numbers are counted once and seen twice: as Prometheus metrics, and in `outbox.member`, where the heartbeat puts them so
that `report` still has them when the process is gone.
"""

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, Literal, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from outbox.outcome import storable

LOGGER: Final = logging.getLogger("outbox")

VALUE_BYTES_MAX: Final = 500

_INFO, _WARNING, _ERROR = logging.INFO, logging.WARNING, logging.ERROR

EVENTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        # Both daemons.
        "daemon_started": _INFO,
        "daemon_stopping": _INFO,
        "daemon_stopped": _INFO,
        "database_lost": _WARNING,
        "database_back": _INFO,
        "settings_weak": _WARNING,
        "era_entered": _WARNING,
        "clock_jumped": _WARNING,
        "registry_changed": _INFO,
        "registry_refused": _ERROR,
        "statement_failed": _ERROR,
        "chore_done": _INFO,
        "alarm": _ERROR,
        # The relay.
        "lane_taken": _INFO,
        "lane_lost": _WARNING,
        "lane_given_back": _INFO,
        "bell_lost": _WARNING,
        "bell_back": _INFO,
        "attempt_failed": _WARNING,
        "attempt_unforeseen": _ERROR,
        "orphans_swept": _WARNING,
        "row_isolated": _ERROR,
        "late_answer": _WARNING,
        "fenced_write": _WARNING,
        "receiver_paused": _ERROR,
        "circuit_opened": _ERROR,
        "circuit_closed": _INFO,
        # The reconciler.
        "look_failed": _WARNING,
        "settled": _INFO,
        "resend_allowed": _INFO,
        "person_needed": _WARNING,
        "claim_overtaken": _INFO,
        "orphans_converted": _WARNING,
        "contradiction_found": _ERROR,
        "unplaced_found": _ERROR,
    }
)
"""Every event, and how loud it is."""

FIELDS: Final = frozenset(
    {
        "attempt",
        "bound",
        "cause",
        "chore",
        "count",
        "era",
        "error",
        "evidence_id",
        "fence",
        "host",
        "kind",
        "lane",
        "made_unknown",
        "member_id",
        "operation_id",
        "outcome",
        "pid",
        "reason",
        "receiver",
        "request_id",
        "role",
        "seconds",
        "seq",
        "signal",
        "state",
        "statement",
        "status",
        "step",
        "tenant_id",
        "timeline",
        "tool",
        "verdict",
        "version",
    }
)
"""What may stand beside an event."""

Value = str | int | float | bool | None


def emit(event: str, **fields: object) -> None:
    """Report that something happened. Fields outside of FIELDS are left out; None is not written."""
    level = EVENTS.get(event, _ERROR)
    if LOGGER.isEnabledFor(level):
        kept = {name: _plain(value) for name, value in fields.items() if name in FIELDS and value is not None}
        LOGGER.log(level, event, extra={"fields": kept})


def _plain(value: object) -> Value:
    if isinstance(value, bool | int | float):
        return value
    return storable(str(value), VALUE_BYTES_MAX)


# ---------------------------------------------------------------------------------------------------------------- lines


class _Lines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"at": _at(record).isoformat(timespec="milliseconds"), "level": record.levelname.lower()}
        line |= {"event": record.getMessage(), **getattr(record, "fields", {})}
        return json.dumps(line, ensure_ascii=False)


class _ForPeople(logging.Formatter):
    """`12:00:01.234 warning lane_lost receiver=warehouse lane=2`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value}" for name, value in getattr(record, "fields", {}).items())
        time = _at(record).astimezone().strftime("%H:%M:%S.%f")[:-3]
        return f"{time} {record.levelname.lower():7} {record.getMessage()} {fields}".replace("\n", " ").rstrip()


def _at(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def configure(form: Literal["auto", "json", "console"] = "auto", stream: TextIO | None = None) -> None:
    """Write events to a stream (standard error). `auto`: for people on a terminal, JSON lines elsewhere.

    Called by a program's main function, never by the library: a service that uses the library has its own logging.
    """
    stream = stream or sys.stderr
    people = form == "console" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_ForPeople() if people else _Lines())
    # A log that cannot be written (its disk is full) is no reason to stop; nor is there anybody to tell.
    logging.raiseExceptions = False
    LOGGER.handlers[:] = [handler]
    LOGGER.propagate = False
    # The pool reports each connection that it cannot make; the daemon reports once that the database is gone.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    LOGGER.setLevel(_INFO)


# -------------------------------------------------------------------------------------------------------------- numbers

# From a fast receiver on the same host to one that takes its whole deadline.
SECONDS_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One number: what it says, and by what it is split. Its unit is in its name."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["counter", "gauge", "histogram"] = "counter"


class Meters:
    """The numbers of one process, declared in full at its start: counting under another name raises KeyError.

    A counter `fenced_writes` is `outbox_fenced_writes_total` in Prometheus, and `fenced_writes` in `outbox.member`.
    """

    def __init__(self, *metrics: Metric) -> None:
        self.registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        self._totals: dict[str, int] = {}
        for metric in metrics:
            name = f"outbox_{metric.name}"
            if metric.kind == "counter":
                self._counters[metric.name] = Counter(name, metric.help, metric.labels, registry=self.registry)
                self._totals[metric.name] = 0
            elif metric.kind == "gauge":
                self._gauges[metric.name] = Gauge(name, metric.help, metric.labels, registry=self.registry)
            else:
                self._histograms[metric.name] = Histogram(
                    name, metric.help, metric.labels, registry=self.registry, buckets=SECONDS_BUCKETS
                )

    def count(self, name: str, number: int = 1, **labels: str) -> None:
        """Add to a counter."""
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(number)
        self._totals[name] += number

    def put(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one value to a histogram."""
        histogram = self._histograms[name]
        (histogram.labels(**labels) if labels else histogram).observe(value)

    def totals(self) -> dict[str, int]:
        """Every counter, summed over its labels."""
        return dict(self._totals)

    def serve(self, port: int, host: str) -> None:
        """Answer Prometheus on this port, from a thread of its own. OSError if the port is taken."""
        start_http_server(port, host, registry=self.registry)
