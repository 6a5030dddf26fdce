"""Durations: what is read is what was meant, or it is refused."""

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.duration import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0.0),
        ("5s", 5.0),
        ("500ms", 0.5),
        ("1500ms", 1.5),
        ("24h", 86_400.0),
        ("1h30m", 5_400.0),
        ("1.5h", 5_400.0),
        ("7d", 604_800.0),
        ("forever", math.inf),
        (timedelta(minutes=2), 120.0),
    ],
)
def test_a_duration_is_read_as_written(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        5,
        5.0,
        True,
        None,
        "",
        "5",
        "5 s",
        " 5s",
        "m5",
        "-1s",
        "1e3s",
        "5s5h",
        "5s5s",
        "1.5",
        "inf",
        "5S",
        "٥s",
        "0.5ms",
        "200000d",
    ],
)
def test_what_has_no_unit_or_no_meaning_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@given(st.integers(0, 36_525 * 86_400_000))
def test_every_duration_is_written_so_that_it_is_read_back_exactly(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == seconds


def test_no_end_is_written_as_a_word() -> None:
    assert format_duration(math.inf) == "forever"


@pytest.mark.parametrize(
    ("seconds", "text"), [(86_400, "24h"), (604_800, "7d"), (90, "1m30s"), (0, "0s"), (1.5, "1s500ms")]
)
def test_durations_are_written_as_people_say_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
