"""What a look shows: ours only with our key in it, "not found" only where the receiver says so."""

import json
from typing import Any

import pytest

from outbox.evidence import Observation, Verdict
from outbox.judge import judge_read, next_cursor
from outbox.matching import Seen
from tests.support.contracts import KEY, SENT_KEY, STRONG, wiring

ONE = {"path": "/operations/{sent_key}", "identity": "/key", "external_id": "/id"}
LIST = {
    "path": "/refunds",
    "query": {"charge": "{resource}"},
    "items": "/data",
    "identity": "/metadata/outbox",
    "external_id": "/id",
}
STATES = {
    "state": "/status",
    "confirmed": ["succeeded"],
    "ended": ["declined"],
    "partial": ["partly"],
    "pending": ["running"],
}


def page(body: Any, status: int = 200, *, truncated: bool = False) -> Seen:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Seen(status, {"request-id": "r-1"}, raw, truncated, "10.0.0.1:443")


def judge(read: dict[str, Any], *pages: Seen, **lookup: Any) -> Observation:
    contract = {"key": KEY, "lookup": {**STRONG, "not_found": {"status": [404]}, **lookup}}
    return judge_read(pages, wiring=wiring(contract, read=read), sent_key=SENT_KEY)


def ours(name: str = "re_1", **more: Any) -> dict[str, Any]:
    return {"id": name, "metadata": {"outbox": SENT_KEY}, **more}


def test_a_record_that_carries_our_key_confirms() -> None:
    shown = judge(ONE, page({"id": "r-1", "key": SENT_KEY}))
    assert (shown.verdict, shown.external_id) == (Verdict.CONFIRMED, "r-1")
    assert shown.receipt == json.dumps({"id": "r-1", "key": SENT_KEY}, separators=(",", ":"))
    assert (shown.answer.request_id, shown.answer.host) == ("r-1", "10.0.0.1:443")


@pytest.mark.parametrize(
    "record", [{"id": "r-1"}, {"id": "r-1", "key": "another"}, {"key": [SENT_KEY]}, [], "text", None, 1]
)
def test_a_record_that_merely_looks_alike_proves_nothing(record: Any) -> None:
    assert judge(ONE, page(record)).verdict is Verdict.UNKNOWN


def test_a_look_that_failed_proves_nothing() -> None:
    failed = set(range(100, 600)) - {200, 404}
    assert {judge(ONE, page({"id": "r-1", "key": SENT_KEY}, status)).verdict for status in failed} == {Verdict.UNKNOWN}


def test_not_found_is_what_the_contract_says_it_is() -> None:
    assert judge(ONE, page(b"", 404)).verdict is Verdict.NOT_FOUND
    coded = {"status": [200], "body": {"/found": False}}
    assert judge(ONE, page({"found": False}), not_found=coded).verdict is Verdict.NOT_FOUND
    assert judge(ONE, page(b"<h1>no such route</h1>", 404), not_found=coded).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"id": "r-1", "key": "' + SENT_KEY.encode(), b"\xff"])
def test_an_answer_that_is_no_whole_json_proves_nothing(body: bytes) -> None:
    assert judge(ONE, page(body)).verdict is Verdict.UNKNOWN


def test_an_answer_that_was_cut_short_proves_nothing_not_even_absence() -> None:
    assert judge(ONE, page({"id": "r-1", "key": SENT_KEY}, truncated=True)).verdict is Verdict.UNKNOWN
    assert judge(ONE, page(b"", 404, truncated=True)).verdict is Verdict.UNKNOWN
    assert judge(LIST, page({"data": []}, truncated=True)).verdict is Verdict.UNKNOWN


def test_the_last_change_of_a_resource_by_somebody_else_is_not_found_and_never_proof() -> None:
    """That it is no proof is a rule of the contract: by = "resource" and absence_is_proof are refused together."""
    read = {"path": "/stock/{resource}", "identity": "/last_operation"}
    shown = judge(read, page({"last_operation": "another"}), by="resource", absence_is_proof=False)
    assert shown.verdict is Verdict.NOT_FOUND


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("succeeded", Verdict.CONFIRMED),
        ("declined", Verdict.ENDED),
        ("partly", Verdict.PARTIAL),
        ("running", Verdict.UNKNOWN),
        ("new word", Verdict.UNKNOWN),
        (None, Verdict.UNKNOWN),
        (["succeeded"], Verdict.UNKNOWN),
    ],
)
def test_the_state_of_our_record_says_how_it_went_and_an_undeclared_word_says_nothing(
    word: Any, verdict: Verdict
) -> None:
    assert judge({**ONE, **STATES}, page({"id": "r-1", "key": SENT_KEY, "status": word})).verdict is verdict


def test_a_record_without_its_state_says_nothing() -> None:
    assert judge({**ONE, **STATES}, page({"id": "r-1", "key": SENT_KEY})).verdict is Verdict.UNKNOWN


# ------------------------------------------------------------------------------------------------------------- lists


def test_our_record_is_found_among_others() -> None:
    shown = judge(LIST, page({"data": [{"id": "re_0", "metadata": {"outbox": "x"}}, {"id": "re_2"}, "noise", ours()]}))
    assert (shown.verdict, shown.external_id, shown.duplicates) == (Verdict.CONFIRMED, "re_1", 0)


def test_a_list_that_was_read_to_its_end_without_us_is_not_found() -> None:
    assert judge(LIST, page({"data": []})).verdict is Verdict.NOT_FOUND
    assert judge(LIST, page({"data": [{"id": "re_0"}]})).verdict is Verdict.NOT_FOUND


@pytest.mark.parametrize("body", [{}, {"data": None}, {"data": {}}, [], {"items": []}])
def test_an_answer_without_the_list_proves_nothing(body: Any) -> None:
    assert judge(LIST, page(body)).verdict is Verdict.UNKNOWN


def test_two_records_that_carry_our_key_are_a_duplicate_and_are_counted() -> None:
    shown = judge(LIST, page({"data": [ours("re_1"), ours("re_2"), ours("re_3")]}))
    assert (shown.verdict, shown.duplicates) == (Verdict.CONFIRMED, 2)


def test_the_same_record_on_two_pages_is_one_record() -> None:
    """A list that grows at its head while it is read pushes records to the next page."""
    read = {**LIST, "next": "/next", "cursor": "after"}
    shown = judge(read, page({"data": [ours()], "next": "c1"}), page({"data": [ours()], "next": None}))
    assert (shown.verdict, shown.duplicates) == (Verdict.CONFIRMED, 0)


def test_a_declined_record_beside_a_confirmed_one_is_no_second_effect() -> None:
    records = [ours("re_1", status="declined"), ours("re_2", status="succeeded")]
    shown = judge({**LIST, **STATES}, page({"data": records}))
    assert (shown.verdict, shown.external_id, shown.duplicates) == (Verdict.CONFIRMED, "re_2", 0)


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (["declined", "declined"], Verdict.ENDED),
        (["declined", "running"], Verdict.UNKNOWN),
        (["declined", "partly"], Verdict.PARTIAL),
        (["running", "succeeded"], Verdict.CONFIRMED),
    ],
)
def test_of_several_records_of_ours_an_effect_outweighs_everything_and_an_end_nothing(
    words: list[str], verdict: Verdict
) -> None:
    records = [ours(f"re_{number}", status=word) for number, word in enumerate(words)]
    assert judge({**LIST, **STATES}, page({"data": records})).verdict is verdict


BY_CURSOR = {**LIST, "next": "/next", "cursor": "after"}
BY_MORE = {**LIST, "more": "/has_more", "cursor": "starting_after", "cursor_item": "/id"}


def test_a_look_that_stops_before_the_last_page_proves_no_absence() -> None:
    assert judge(BY_CURSOR, page({"data": [], "next": "c1"})).verdict is Verdict.UNKNOWN
    assert judge(BY_MORE, page({"data": [{"id": "re_0"}], "has_more": True})).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("second", [page(b"", 404), page(b"", 500), page({"data": []}, truncated=True), page({})])
def test_a_second_page_that_fails_proves_no_absence_even_where_a_first_one_would(second: Seen) -> None:
    assert judge(BY_CURSOR, page({"data": [], "next": "c1"}), second).verdict is Verdict.UNKNOWN


def test_what_an_earlier_page_confirmed_stays_confirmed_when_a_later_one_fails() -> None:
    assert judge(BY_CURSOR, page({"data": [ours()], "next": "c1"}), page(b"", 500)).verdict is Verdict.CONFIRMED


@pytest.mark.parametrize("more", [True, None, "false", 0])
def test_a_list_ends_only_where_the_receiver_says_false(more: Any) -> None:
    assert judge(BY_MORE, page({"data": [], "has_more": more})).verdict is Verdict.UNKNOWN
    assert judge(BY_MORE, page({"data": [], "has_more": False})).verdict is Verdict.NOT_FOUND


@pytest.mark.parametrize("cursor", ["c" * 501, {"after": "c1"}, ["c1"], 1.5, True, "line\nbreak"])
def test_a_list_that_goes_on_at_a_cursor_that_cannot_be_sent_proves_no_absence(cursor: Any) -> None:
    assert judge(BY_CURSOR, page({"data": [], "next": cursor})).verdict is Verdict.UNKNOWN
    assert judge(BY_CURSOR, page({"data": [ours()], "next": cursor})).verdict is Verdict.CONFIRMED


@pytest.mark.parametrize(
    ("read", "body", "cursor"),
    [
        (BY_CURSOR, {"data": [], "next": "c1"}, "c1"),
        (BY_CURSOR, {"data": [], "next": 17}, "17"),
        (BY_CURSOR, {"data": [], "next": None}, None),
        (BY_CURSOR, {"data": [], "next": ""}, None),
        (BY_CURSOR, {"data": []}, None),
        (BY_MORE, {"data": [{"id": "a"}, {"id": "b"}], "has_more": True}, "b"),
        (BY_MORE, {"data": [{"id": "a"}], "has_more": False}, None),
        (BY_MORE, {"data": [], "has_more": True}, None),
        (BY_MORE, {"data": [{}], "has_more": True}, None),
        (LIST, {"data": [], "next": "c1"}, None),
        (ONE, {"next": "c1"}, None),
    ],
)
def test_the_next_page_begins_where_the_receiver_says(read: dict[str, Any], body: Any, cursor: str | None) -> None:
    made = wiring({"lookup": STRONG}, read=read).read
    assert made is not None
    assert next_cursor(page(body), made) == cursor


def test_a_tool_that_cannot_be_asked_is_not_judged() -> None:
    with pytest.raises(ValueError, match="nothing was asked"):
        judge_read([page({})], wiring=wiring({}), sent_key=SENT_KEY)
