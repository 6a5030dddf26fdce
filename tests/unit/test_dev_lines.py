"""The log of `outbox dev`: one form, whoever wrote it."""

import io
import json

import pytest

from outbox.demo.lines import LINE_BYTES_MAX, Lines

EVENT = (
    b'{"at": "2026-11-30T12:00:00.000+00:00", "level": "warning", "event": "lane_lost", "lane": 2, "reason": "why"}\n'
)
ELSE = b"Traceback (most recent call last):\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_each_line_says_whose_it_is_and_reads_as_a_sentence() -> None:
    stream = Terminal()
    lines = Lines(stream)
    lines.say("dev_ready", "relay runs.", programs={"relay": 1})
    lines.pass_on("relay", EVENT)
    lines.pass_on("relay", ELSE)
    lines.pass_on("relay", b"\n")
    ours, event, other = stream.getvalue().splitlines()
    assert ours == "dev        relay runs."
    assert event.startswith("relay      ")
    assert event.endswith("warning lane_lost lane=2 reason=why")
    assert other == "relay      Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("stream", "as_json"),
    [(Terminal(), True), (io.StringIO(), True), (io.StringIO(), False)],
    ids=["asked for on a terminal", "asked for", "no terminal"],
)
def test_elsewhere_every_line_is_an_object(stream: io.StringIO, *, as_json: bool) -> None:
    lines = Lines(stream, as_json=as_json)
    lines.say("dev_ready", "relay runs.", programs={"relay": 1})
    for line in (EVENT, ELSE, b"5\n", b"\xff\n", b"x" * 100_000):
        lines.pass_on("relay", line)
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["program"], line.get("event")) for line in said] == [
        ("dev", "dev_ready"),
        ("relay", "lane_lost"),
        *[("relay", None)] * 4,
    ]
    assert said[0]["message"] == "relay runs."
    assert (said[1]["at"], said[1]["lane"]) == ("2026-11-30T12:00:00.000+00:00", 2)
    assert said[2]["message"] == ELSE.decode().strip()
    assert len(said[-1]["message"]) == LINE_BYTES_MAX


def test_no_line_of_a_program_moves_the_cursor_of_a_terminal() -> None:
    stream = Terminal()
    Lines(stream).pass_on("echo-9009", b"\x1b[2Jgone\r\n")
    assert "\x1b" not in stream.getvalue()
