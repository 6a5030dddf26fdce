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
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from types import MappingProxyType
from typing import Final, Literal, TextIO, TypeAlias

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as PrometheusMetric

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
        "task_stuck": _ERROR,
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
    Counting is a few additions to a dictionary, since it happens for every attempt; what Prometheus wants is made when
    it asks.
    """

    def __init__(self, *metrics: Metric) -> None:
        self.registry = CollectorRegistry()
        self._declared = {metric.name: metric for metric in metrics}
        self._values: dict[str, dict[_Labels, float]] = {
            metric.name: {} if metric.labels or metric.kind == "histogram" else {(): 0} for metric in metrics
        }
        self._histograms: dict[str, dict[_Labels, _Histogram]] = {
            metric.name: {} for metric in metrics if metric.kind == "histogram"
        }
        self.registry.register(self)

    def count(self, name: str, number: int = 1, **labels: str) -> None:
        """Add to a counter."""
        values, key = self._values[name], self._key(name, labels)
        values[key] = values.get(key, 0) + number

    def put(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._values[name][self._key(name, labels)] = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one value to a histogram."""
        found, key = self._histograms[name], self._key(name, labels)
        if key not in found:
            found[key] = _Histogram()
        found[key].add(value)

    def totals(self) -> dict[str, int]:
        """Every counter, summed over its labels."""
        return {
            name: int(sum(self._values[name].values()))
            for name, metric in self._declared.items()
            if metric.kind == "counter"
        }

    def serve(self, port: int, host: str) -> None:
        """Answer Prometheus on this port, from a thread of its own. OSError if the port is taken."""
        start_http_server(port, host, registry=self.registry)

    def collect(self) -> Iterator[PrometheusMetric]:
        """What Prometheus asks for, in its thread: copies first, since the daemon goes on counting."""
        for metric in self._declared.values():
            name = f"outbox_{metric.name}"
            if metric.kind == "histogram":
                histogram = HistogramMetricFamily(name, metric.help, labels=metric.labels)
                for key, found in self._histograms[metric.name].copy().items():
                    histogram.add_metric(key, found.buckets(), found.total)
                yield histogram
                continue
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            made = family(name, metric.help, labels=metric.labels)
            for key, value in self._values[metric.name].copy().items():
                made.add_metric(key, value)
            yield made

    def _key(self, name: str, labels: Mapping[str, str]) -> "_Labels":
        return tuple([labels[label] for label in self._declared[name].labels])


_Labels: TypeAlias = tuple[str, ...]


class _Histogram:
    """How many values there were up to each bound, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS_BUCKETS) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(SECONDS_BUCKETS, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, with the bounds as Prometheus writes them."""
        sums = accumulate(self.counts.copy())
        return list(zip([*map(str, SECONDS_BUCKETS), "+Inf"], sums, strict=True))
