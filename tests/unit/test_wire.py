"""The bytes of a request follow from the wiring, the stored bytes and the sent key, and from nothing else."""

import re
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.contract import ToolConfig
from outbox.wire import Unsendable, WireRequest, build, build_read, build_verify, wire_digest
from tests.support.attempts import SENT_KEY, attempt, question, receiver, tool

BASE = receiver("https://api.example.com:8443/v1")


def request(tool_config: ToolConfig | None = None, config: Any = BASE, **changes: Any) -> WireRequest:
    made = attempt(config, tool_config, **changes)
    return build(made.wiring, made)


def refused(tool_config: ToolConfig | None = None, **changes: Any) -> str:
    with pytest.raises(Unsendable) as caught:
        request(tool_config, **changes)
    return caught.value.message


def headers(wire: WireRequest) -> dict[str, str]:
    return dict(wire.headers)


# ---------------------------------------------------------------------------------------------------------- the whole


def test_a_request_is_complete_but_for_who_sends_it() -> None:
    wire = request(expected_version="7")
    assert (wire.method, wire.url) == ("PUT", "https://api.example.com:8443/v1/stock/item-1")
    assert wire.headers == (
        ("Content-Type", "application/json"),
        ("Idempotency-Key", SENT_KEY),
        ("If-Match", '"7"'),
    )
    assert wire.body == b'{"available":3}'


def test_the_same_operation_gives_the_same_bytes_and_the_same_digest() -> None:
    assert request(expected_version="7") == request(expected_version="7")
    digests = {wire_digest(request(expected_version="7"), SENT_KEY) for _ in range(3)}
    assert {len(digest) for digest in digests} == {32}
    assert len(digests) == 1


CHANGES: dict[str, Any] = {
    "another method": {"method": "POST"},
    "another scheme": {"scheme": "http"},
    "another host": {"host": "api.example.com"},
    "another path": {"path": "/v1/stock/item-2"},
    "another query": {"query": "dry_run=1"},
    "another header": {"headers": (("If-Match", '"8"'),)},
    "a body more": {"body": b"{}"},
    "fields moved into each other": {"path": "/v1/stock/item-1?", "query": ""},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_digest_covers_everything_that_must_not_change(change: dict[str, Any]) -> None:
    wire = request(expected_version="7")
    assert wire_digest(wire._replace(**change), SENT_KEY) != wire_digest(wire, SENT_KEY)


def test_the_digest_covers_the_key_also_where_it_stands_nowhere_else() -> None:
    wire = request(tool(contract_key="none"), expected_version="7")
    assert wire_digest(wire, SENT_KEY) != wire_digest(wire, "another key")


def test_nothing_of_the_body_is_in_the_representation() -> None:
    assert "available" not in repr(request())


# ------------------------------------------------------------------------------------------------------------ the path


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        ("item 1", "/v1/stock/item%201"),
        ("a/b", "/v1/stock/a%2Fb"),
        ("a?b#c", "/v1/stock/a%3Fb%23c"),
        ("%2e%2e", "/v1/stock/%252e%252e"),
        ("Zürich", "/v1/stock/Z%C3%BCrich"),
        ("a..b", "/v1/stock/a..b"),
        ("...", "/v1/stock/..."),
        ("~tilde_-.", "/v1/stock/~tilde_-."),
        ("{tenant_id}", "/v1/stock/%7Btenant_id%7D"),
    ],
)
def test_a_value_in_the_path_is_one_segment_whatever_it_holds(resource: str, path: str) -> None:
    assert request(resource=resource).path == path


@pytest.mark.parametrize(
    "resource",
    ["..", ".", "../admin", "a/..", "a/../b", "..\\admin", "a\\..\\b", "..;x=1", "a/..;/b", "./a", "a/.", "", "/..//"],
)
def test_a_way_out_of_the_path_is_refused_even_where_a_server_decodes_too_early(resource: str) -> None:
    refused(resource=resource)


@pytest.mark.parametrize("path", ["/a/{resource}{resource}", "/a/.{resource}"])
def test_dots_that_only_the_template_joins_are_refused_too(path: str) -> None:
    assert "dot segment" in refused(tool(request={"path": path}), resource=".")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60))
def test_a_path_never_leaves_its_template(resource: str) -> None:
    try:
        wire = request(resource=resource)
    except Unsendable:
        return
    segment = wire.path.removeprefix("/v1/stock/")
    assert re.fullmatch(r"(?:[A-Za-z0-9_.~-]|%[0-9A-F]{2})+", segment)
    assert unquote(segment) == resource
    assert not {".", ".."} & set(re.split(r"[/\\]", unquote(segment)))


def test_a_missing_value_is_refused_by_name() -> None:
    assert "resource" in refused(resource=None)


def test_a_target_has_a_bound() -> None:
    assert "longer" in refused(resource="x" * 9_000)


# ------------------------------------------------------------------------------------------------------------- the key

KEYS: dict[str, tuple[dict[str, Any], Any]] = {
    "bare header": ({"in": "header", "name": "X-Key"}, lambda wire: headers(wire)["X-Key"] == SENT_KEY),
    "quoted header": (
        {"in": "header", "name": "Idempotency-Key", "form": "quoted"},
        lambda wire: headers(wire)["Idempotency-Key"] == f'"{SENT_KEY}"',
    ),
    "query": ({"in": "query", "name": "request"}, lambda wire: wire.query == f"request={SENT_KEY}"),
    "body": (
        {"in": "body", "pointer": "/meta/key"},
        lambda wire: wire.body == f'{{"available":3,"meta":{{"key":"{SENT_KEY}"}}}}'.encode(),
    ),
}


@pytest.mark.parametrize(("key", "holds"), KEYS.values(), ids=KEYS.keys())
def test_the_key_travels_where_the_contract_says(key: dict[str, Any], holds: Any) -> None:
    wire = request(tool(contract_key=key))
    assert holds(wire)
    assert (wire.url + str(wire.headers) + wire.body.decode()).count(SENT_KEY) == 1


def test_a_key_in_the_path_is_the_id_of_the_resource_that_is_made() -> None:
    made = tool(request={"method": "PUT", "path": "/payments/{sent_key}"}, contract_key={"in": "path"})
    assert request(made).path == f"/v1/payments/{SENT_KEY}"


@pytest.mark.parametrize("arguments", ['{"key":"chosen by a model"}', '{"key":null}', '{"key":{}}'])
def test_a_key_of_the_writers_own_choice_is_never_overwritten_but_refused(arguments: str) -> None:
    made = tool(contract_key={"in": "body", "pointer": "/key"})
    assert "/key" in refused(made, arguments=arguments)


@pytest.mark.parametrize("arguments", ['{"meta":"text"}', '{"meta":[]}', '{"meta":1}'])
def test_a_place_that_is_no_object_is_refused(arguments: str) -> None:
    refused(tool(contract_key={"in": "body", "pointer": "/meta/key"}), arguments=arguments)


def test_a_header_that_both_the_tool_and_the_key_claim_is_refused() -> None:
    made = tool(request={"path": "/x", "headers": {"idempotency-key": "1"}})
    assert "twice" in refused(made)


def test_a_tools_header_wins_over_its_receivers() -> None:
    config = receiver("https://api.example.com", headers={"X-Version": "1", "X-Other": "2"})
    wire = request(tool(request={"path": "/x", "headers": {"x-version": "3"}}), config)
    assert [value for name, value in wire.headers if name.lower() == "x-version"] == ["3"]
    assert headers(wire)["X-Other"] == "2"


# -------------------------------------------------------------------------------------------------- the precondition


@pytest.mark.parametrize(
    ("format_", "version", "value"),
    [
        ('"{expected_version}"', "7", '"7"'),
        ("{expected_version}", "abc def", "abc def"),
        ('W/"{expected_version}"', "7", 'W/"7"'),
    ],
)
def test_the_version_travels_in_the_form_that_the_receiver_compares(format_: str, version: str, value: str) -> None:
    made = tool(contract_precondition={"header": "If-Match", "format": format_})
    assert headers(request(made, expected_version=version))["If-Match"] == value


@pytest.mark.parametrize("version", ['7", "8', "a\\b", "a b"])
def test_a_version_that_would_end_its_own_quotes_is_refused(version: str) -> None:
    assert "entity tag" in refused(expected_version=version)


@pytest.mark.parametrize("version", ["7\r\nX-Evil: 1", "7\n", "\x00", "7é", " 7", ""])
def test_a_version_that_cannot_travel_in_a_header_is_refused(version: str) -> None:
    made = tool(contract_precondition={"header": "If-Match", "format": "{expected_version}"})
    refused(made, expected_version=version)


def test_without_a_version_there_is_no_condition_where_a_key_protects() -> None:
    assert "If-Match" not in headers(request(expected_version=None))


def test_without_a_version_nothing_is_sent_where_the_version_is_all_that_protects() -> None:
    assert "expected_version" in refused(tool(contract_key="none"), expected_version=None)


# ------------------------------------------------------------------------------------------------------------ the body


def test_json_is_sent_as_it_is_stored() -> None:
    stored = '{"b": 1.0, "a":"\\u00e4"}'  # by plain SQL: not canonical, and nobody's to repair
    assert request(arguments=stored).body == stored.encode()


def test_what_is_injected_makes_the_body_canonical_again() -> None:
    made = tool(request={"path": "/x", "inject": {"/metadata/op": "{tenant_id}:{operation_id}", "/a~1b": "{sent_key}"}})
    body = request(made, arguments='{"z":1,"metadata":{"n":1e+21}}').body
    assert body == f'{{"a/b":"{SENT_KEY}","metadata":{{"n":1e+21,"op":"acme:order-17"}},"z":1}}'.encode()


def test_a_body_of_the_intents_own_is_sent_with_its_type_and_nothing_is_put_into_it() -> None:
    wire = request(arguments=None, body=b"\x00\x01avro", content_type="application/avro")
    assert (wire.body, headers(wire)["Content-Type"]) == (b"\x00\x01avro", "application/avro")
    made = tool(contract_key={"in": "body", "pointer": "/key"})
    assert "body of its own" in refused(made, arguments=None, body=b"x", content_type="text/plain")


def test_a_delete_without_arguments_has_no_body() -> None:
    made = tool(request={"method": "DELETE", "path": "/stock/{resource}"})
    wire = request(made, arguments="{}")
    assert wire.body == b""
    assert "Content-Type" not in headers(wire)
    assert request(made, arguments='{"why":"x"}').body == b'{"why":"x"}'


def test_arguments_that_were_redacted_cannot_be_sent() -> None:
    assert "redacted" in refused(arguments=None)


@pytest.mark.parametrize("arguments", ["{", '{"a":1,"a":2}', "[NaN]", '{"a":1e999}', "not json"])
def test_json_that_is_none_is_refused_where_something_must_be_put_into_it(arguments: str) -> None:
    refused(tool(contract_key={"in": "body", "pointer": "/key"}), arguments=arguments)


def test_no_message_quotes_the_arguments() -> None:
    made = tool(contract_key={"in": "body", "pointer": "/key"})
    assert "hunter2" not in refused(made, arguments='{"key":"hunter2"}')
    assert "hunter2" not in refused(made, arguments='{"password":"hunter2"')


# ------------------------------------------------------------------------------------------------------------- the form


def form(arguments: str, **inject: str) -> str:
    made = tool(request={"path": "/x", "encoding": "form", "inject": inject})
    return request(made, arguments=arguments).body.decode()


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        ('{"amount":1000,"currency":"eur"}', "amount=1000&currency=eur"),
        ('{"a":{"b":{"c":1}}}', "a%5Bb%5D%5Bc%5D=1"),
        ('{"items":[{"price":"p1"},{"price":"p2"}]}', "items%5B0%5D%5Bprice%5D=p1&items%5B1%5D%5Bprice%5D=p2"),
        ('{"t":true,"f":false}', "t=true&f=false"),
        ('{"x":1e+21,"y":0.1,"z":-0.000001}', "x=1e%2B21&y=0.1&z=-0.000001"),
        ('{"text":"a b&c=d+e\\n\\u00e4"}', "text=a+b%26c%3Dd%2Be%0A%C3%A4"),
        ('{"empty":""}', "empty="),
        ("{}", ""),
    ],
)
def test_nested_values_become_form_fields_in_canonical_order(arguments: str, body: str) -> None:
    assert form(arguments) == body


@pytest.mark.parametrize(
    "arguments", ['{"a":null}', '{"a":[]}', '{"a":{}}', '{"a[b]":1}', '{"":1}', '{"a":{"b]":1}}', "[1]"]
)
def test_what_a_form_cannot_say_is_refused_and_never_left_out(arguments: str) -> None:
    with pytest.raises(Unsendable):
        form(arguments)


def test_a_form_takes_injected_fields_and_refuses_one_that_the_writer_stated() -> None:
    assert form('{"amount":1}', **{"metadata[outbox]": "{sent_key}"}) == f"amount=1&metadata%5Boutbox%5D={SENT_KEY}"
    with pytest.raises(Unsendable):
        form('{"metadata":{"outbox":"mine"}}', **{"metadata[outbox]": "{sent_key}"})


# ------------------------------------------------------------------------------------------------------------ the look


def test_a_look_asks_for_our_record_and_for_the_next_page() -> None:
    made = tool(
        read={
            "path": "/payments",
            "query": {"reference": "{resource}", "before": "start", "limit": "2"},
            "items": "/data",
            "identity": "/reference",
            "next": "/next",
            "cursor": "before",
        },
        contract_lookup={"by": "reference", "consistency": "strong"},
    )
    asked = question(BASE, made, resource="a&b")
    assert build_read(asked.wiring, asked).target == "/v1/payments?reference=a%26b&before=start&limit=2"
    assert build_read(asked.wiring, asked, "c=1").target == "/v1/payments?reference=a%26b&limit=2&before=c%3D1"


@pytest.mark.parametrize("external_id", ["../admin", ".."])
def test_an_id_that_the_receiver_named_is_no_way_out_of_the_path_either(external_id: str) -> None:
    asked = question(BASE)
    with pytest.raises(Unsendable):
        build_verify(asked.wiring, "/payments/{external_id}", asked, external_id)


def test_a_verifying_read_encodes_the_id_that_the_receiver_named() -> None:
    asked = question(BASE)
    wire = build_verify(asked.wiring, "/payments/{external_id}", asked, "p/1")
    assert (wire.method, wire.path, wire.body) == ("GET", "/v1/payments/p%2F1", b"")


def test_a_tool_that_does_not_say_how_cannot_be_asked() -> None:
    asked = question(BASE, tool(read=None, contract_lookup="none"))
    with pytest.raises(Unsendable):
        build_read(asked.wiring, asked)
    assert "how its request" in refused(tool(request=None))
