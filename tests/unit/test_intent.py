"""An intent that exists is valid; one that is not valid says every problem, and never a value."""

import uuid
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from outbox.digest import intent_digest
from outbox.errors import InvalidIntent
from outbox.intent import Intent, new_operation_id

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


class Tool(StrEnum):
    MAIL = "mail.send"


def problems(**fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidIntent) as invalid:
        Intent(**({"tool": "mail.send"} | fields))
    return {problem.place: problem.code for problem in invalid.value.problems}


def test_arguments_are_held_as_canonical_json_and_a_later_change_of_the_mapping_changes_nothing() -> None:
    given: dict[str, Any] = {"b": [1.0, "ä"], "a": None}
    intent = Intent(tool="mail.send", arguments=given)
    given["a"] = 1
    assert intent.arguments == '{"a":null,"b":[1,"ä"]}'
    assert Intent(tool="mail.send", arguments=' {"b": [1.0, "\\u00e4"], "a": null} ').arguments == intent.arguments


def test_an_intent_without_payload_has_no_arguments_and_one_with_a_body_has_none() -> None:
    assert Intent(tool="mail.send").arguments == "{}"
    intent = Intent(tool="mail.send", body=b"\x00\xff", content_type="application/avro")
    assert (intent.arguments, intent.body) == (None, b"\x00\xff")


def test_the_same_object_is_the_same_operation_and_every_other_object_another() -> None:
    assert Intent(tool="mail.send").operation_id != Intent(tool="mail.send").operation_id
    assert Intent(tool="mail.send", operation_id="order-17").operation_id == "order-17"


def test_a_made_id_is_a_uuid_of_version_7_that_sorts_by_time() -> None:
    made = [uuid.UUID(new_operation_id()) for _ in range(200)]
    assert {(one.version, one.variant) for one in made} == {(7, uuid.RFC_4122)}
    assert [one.int >> 80 for one in made] == sorted(one.int >> 80 for one in made)


def test_an_intent_cannot_be_changed_and_a_changed_copy_is_checked_again() -> None:
    intent = Intent(tool="mail.send", arguments={"to": "a"})
    with pytest.raises(ValidationError):
        intent.tool = "mail.other"  # type: ignore[misc]
    copy = intent.model_copy(update={"arguments": {"to": "b", "cc": "c"}})
    assert copy.arguments == '{"cc":"c","to":"b"}'
    assert copy.operation_id == intent.operation_id
    with pytest.raises(InvalidIntent):
        intent.model_copy(update={"resource": "line\nbreak"})


def test_the_digest_is_over_what_the_writer_states() -> None:
    intent = Intent(tool="mail.send", operation_id="o", resource="r", expected_version="7", arguments={"a": 1})
    assert intent.digest("acme") == intent_digest("acme", "o", "mail.send", "r", "7", '{"a":1}')
    assert intent.model_copy(update={"ordering_key": "k"}).digest("acme") == intent.digest("acme")


def test_identity_is_no_part_of_an_intent() -> None:
    assert problems(tenant_id="globex") == {"tenant_id": "extra_forbidden"}
    assert problems(principal_id="root") == {"principal_id": "extra_forbidden"}


def test_every_problem_is_told_at_once() -> None:
    found = problems(tool="", resource="a\r\nb", expected_version="é", not_before=NOON.replace(tzinfo=None))
    assert found.keys() == {"tool", "resource", "expected_version", "not_before"}


@pytest.mark.parametrize("name", ["operation_id", "compensates", "revision_of", "on_behalf_of"])
@pytest.mark.parametrize("text", ["", "a b", "a\tb", "ä", "a\n", "\x7f", "x" * 201, "\ud800"])
def test_ids_are_printable_ascii_without_spaces_of_at_most_200_characters(name: str, text: str) -> None:
    assert name in problems(**{name: text})
    fields: dict[str, Any] = {name: "!" + "~" * 199}
    assert getattr(Intent(tool="mail.send", **fields), name) == "!" + "~" * 199


@pytest.mark.parametrize("text", ["", "a b", "-a", "ä", "a/b", "x" * 101, "mail.send\n"])
def test_a_tool_has_the_name_of_a_tool(text: str) -> None:
    assert "tool" in problems(tool=text)


def test_an_enum_member_is_its_text() -> None:
    intent = Intent(tool=Tool.MAIL, arguments={"tool": Tool.MAIL})
    assert (intent.tool, intent.arguments) == ("mail.send", '{"tool":"mail.send"}')


@pytest.mark.parametrize("name", ["resource", "ordering_key"])
@pytest.mark.parametrize("text", ["", "a\0", "a\r\nb", "\x85", "\x1b[0m", "\u2028", "\udc80", "ä" * 1001])
def test_names_are_unicode_without_control_characters(name: str, text: str) -> None:
    assert name in problems(**{name: text})
    fields: dict[str, Any] = {name: "lager/Größe 😀"}
    assert getattr(Intent(tool="mail.send", **fields), name) == "lager/Größe 😀"


@pytest.mark.parametrize("text", ["", " 7", "7 ", "a\r\nX-Evil: 1", "a\0", "é", "x" * 201])
def test_an_expected_version_is_safe_in_a_header(text: str) -> None:
    assert "expected_version" in problems(expected_version=text)


@pytest.mark.parametrize("text", ["7", '"abc"', 'W/"a b"', "x" * 200])
def test_versions_and_entity_tags_are_expected_versions(text: str) -> None:
    assert Intent(tool="mail.send", expected_version=text).expected_version == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
    ],
)
def test_a_traceparent_is_one_of_w3c(text: str) -> None:
    assert "traceparent" in problems(traceparent=text)
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert Intent(tool="mail.send", traceparent=good).traceparent == good


def test_times_have_a_zone_are_held_in_utc_and_leave_time_to_begin() -> None:
    assert problems(expires_at=NOON.replace(tzinfo=None)) == {"expires_at": "timezone_aware"}
    assert "expires_at" in problems(expires_at="2026-11-29T12:00:00Z")
    assert "not_before" in problems(not_before=datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))))
    assert problems(not_before=NOON, expires_at=NOON) == {"": "invalid"}
    moved = Intent(tool="mail.send", not_before=NOON.astimezone(timezone(timedelta(hours=5)))).not_before
    assert moved == NOON
    assert moved is not None
    assert moved.tzinfo is UTC


@pytest.mark.parametrize(
    "fields",
    [
        {"body": b"x"},
        {"content_type": "text/plain"},
        {"body": b"x", "content_type": "text/plain", "arguments": {}},
        {"body": b"x", "content_type": "text"},
        {"body": b"x", "content_type": "text/plain\r\nX: 1"},
        {"body": b"x" * (256 * 1024 + 1), "content_type": "text/plain"},
        {"body": "text", "content_type": "text/plain"},
        {"arguments": [1]},
        {"arguments": b"{}"},
        {"arguments": "[]"},
    ],
)
def test_a_payload_is_an_object_or_bytes_with_their_type(fields: dict[str, Any]) -> None:
    assert problems(**fields)


def test_a_problem_in_the_arguments_is_named_and_placed_and_shows_no_value() -> None:
    with pytest.raises(InvalidIntent) as invalid:
        Intent(tool="mail.send", arguments={"card": {"number": 4111111111111111_4111}})
    (problem,) = invalid.value.problems
    assert (problem.place, problem.code) == ("arguments/card/number", "integer_too_large")
    assert "4111" not in str(invalid.value)


def test_neither_repr_nor_an_error_shows_arguments_or_a_body() -> None:
    assert "hush" not in repr(Intent(tool="mail.send", arguments={"secret": "hush"}))
    assert "hush" not in repr(Intent(tool="mail.send", body=b"hush", content_type="text/plain"))
    with pytest.raises(InvalidIntent) as invalid:
        Intent(tool="mail send", arguments={"secret": "hush"}, expected_version="hush\n", body=b"hush")
    assert "hush" not in str(invalid.value)
    assert invalid.value.__cause__ is None
    assert invalid.value.__suppress_context__


def test_an_intent_inside_another_model_is_checked_like_any_field() -> None:
    class Command(BaseModel):
        intent: Intent

    intent = Intent(tool="mail.send")
    assert Command(intent=intent).intent is intent
    made = Command.model_validate({"intent": {"tool": "mail.send", "arguments": {"a": 1}}})
    assert made.intent.arguments == '{"a":1}'
    with pytest.raises(ValidationError):
        Command.model_validate({"intent": {"tool": "mail send"}})


def test_an_invalid_intent_is_a_value_error_that_reads_as_one_line() -> None:
    fields: dict[str, Any] = {"resource": ""}
    with pytest.raises(ValueError, match=r"^tool: Field required; resource: 1 to 2000 bytes of UTF-8 are allowed$"):
        Intent(**fields)
