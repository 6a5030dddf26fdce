"""Events have fixed names and listed fields, hold no secret, and never fail; numbers are counted once."""

import ast
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox import observe
from outbox.observe import EVENTS, FIELDS, Meters, Metric, configure, emit

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("outbox", "relay", "reconciler") for path in (ROOT / folder).rglob("*.py")]


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logger = observe.LOGGER
    before = (list(logger.handlers), logger.propagate, logger.level, logging.raiseExceptions)
    configure("json", stream)
    yield stream
    logger.handlers[:], logger.propagate = before[0], before[1]
    logger.setLevel(before[2])
    logging.raiseExceptions = before[3]


def calls() -> list[tuple[str, ast.Call]]:
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "emit"
    ]


def test_every_event_that_is_reported_has_a_fixed_name() -> None:
    names = {place: call.args[0] for place, call in calls()}
    assert names
    assert [
        place for place, name in names.items() if not (isinstance(name, ast.Constant) and name.value in EVENTS)
    ] == []


def test_every_field_that_is_reported_is_listed() -> None:
    given = [(place, keyword.arg) for place, call in calls() for keyword in call.keywords if keyword.arg is not None]
    assert [(place, name) for place, name in given if name not in FIELDS] == []


def test_an_event_is_one_line_of_json(lines: io.StringIO) -> None:
    emit("lane_taken", receiver="warehouse", lane=2, fence=17, made_unknown=None)
    (line,) = lines.getvalue().splitlines()
    event = json.loads(line)
    assert event.pop("at").endswith("+00:00")
    assert event == {"level": "info", "event": "lane_taken", "receiver": "warehouse", "lane": 2, "fence": 17}


def test_a_field_that_is_not_listed_is_left_out(lines: io.StringIO) -> None:
    emit("alarm", cause="tampered", arguments='{"card":"4242"}', authorization="Bearer hunter2")
    assert "4242" not in lines.getvalue()
    assert "hunter2" not in lines.getvalue()


def test_hostile_text_stays_on_its_line(lines: io.StringIO) -> None:
    emit("alarm", cause="a\nb\0c\x1b[31m" + "x" * 5000)
    (line,) = lines.getvalue().splitlines()
    cause = json.loads(line)["cause"]
    assert "\x1b" not in cause
    assert len(cause) <= observe.VALUE_BYTES_MAX


def test_people_get_a_line_that_can_be_read() -> None:
    stream = io.StringIO()
    logger = observe.LOGGER
    before = list(logger.handlers)
    configure("console", stream)
    try:
        emit("lane_lost", receiver="warehouse", reason="a\nb")
    finally:
        logger.handlers[:] = before
        logger.propagate = True
    (line,) = stream.getvalue().splitlines()
    assert "warning lane_lost receiver=warehouse" in line


def test_a_log_that_cannot_be_written_stops_nobody() -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    logger = observe.LOGGER
    before = (list(logger.handlers), logging.raiseExceptions)
    configure("json", Full())
    try:
        emit("daemon_started", kind="relay")
    finally:
        logger.handlers[:], logging.raiseExceptions = before
        logger.propagate = True


def test_a_number_is_counted_once_and_seen_twice() -> None:
    meters = Meters(Metric("fenced_writes", "Refused.", ("receiver",)), Metric("rings", "Rung."))
    meters.count("fenced_writes", 2, receiver="a")
    meters.count("fenced_writes", receiver="b")
    meters.count("rings")
    assert meters.totals() == {"fenced_writes": 3, "rings": 1}
    assert meters.registry.get_sample_value("outbox_fenced_writes_total", {"receiver": "a"}) == 2


def test_a_number_that_was_not_declared_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        Meters().count("fenced_writes")
