"""The path that records a failure cannot fail on what it records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.outcome import EXCERPT_BYTES_MAX, RECEIPT_BYTES_MAX, Accepted, Answer, Receipt, storable

HOSTILE = st.text(st.characters(codec=None, categories=None), max_size=3_000)


@given(HOSTILE, st.integers(0, 2_048))
def test_whatever_came_is_stored_within_its_bound(text: str, bytes_max: int) -> None:
    kept = storable(text, bytes_max)
    assert len(kept.encode("utf-8")) <= bytes_max
    assert "\x00" not in kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain", "plain"),
        ("a\x00b", "a\ufffdb"),
        ("a\x1b[2Jb", "a\ufffd[2Jb"),
        ("a\ud800b", "a\ufffdb"),
        ("line\r\nline\tend", "line\nline\tend"),
        ("1\x852", "1\ufffd2"),
    ],
)
def test_what_a_terminal_obeys_and_a_database_refuses_is_replaced(text: str, kept: str) -> None:
    assert storable(text, 100) == kept


def test_a_text_is_never_cut_inside_a_character() -> None:
    assert storable("€€€", 7) == "€€"


@given(HOSTILE)
def test_every_part_of_an_answer_and_of_a_receipt_is_cleaned(text: str) -> None:
    answer = Answer(200, text, text, text)
    receipt = Receipt(answer=answer, receipt=text, external_id=text)
    accepted = Accepted(answer=answer, external_id=text)
    assert len(answer.excerpt.encode()) <= EXCERPT_BYTES_MAX
    assert len(receipt.receipt.encode()) <= RECEIPT_BYTES_MAX
    for part in (answer.request_id, answer.host, receipt.external_id, accepted.external_id):
        assert part is not None
        assert "\x00" not in part
        part.encode()
