"""The encoding is a public contract: the shipped vectors hold, here computed a second time without our code."""

import hashlib
import json
import struct
import uuid
from importlib.resources import files
from typing import Any

import pytest

from outbox.digest import derived_id, encode_fields, intent_digest, sent_key

VECTORS: dict[str, Any] = json.loads((files("outbox") / "vectors" / "digest.json").read_text(encoding="utf-8"))


def by_hand(*fields: str | bytes | None) -> bytes:
    out = b"outbox/1\x00"
    for field in fields:
        data = field.encode("utf-8") if isinstance(field, str) else field
        out += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    return out


@pytest.mark.parametrize("vector", VECTORS["encoding"])
def test_fields_are_written_as_length_and_bytes(vector: dict[str, Any]) -> None:
    assert encode_fields(*vector["fields"]).hex() == vector["hex"] == by_hand(*vector["fields"]).hex()


@pytest.mark.parametrize("vector", VECTORS["intent_digest"], ids=lambda vector: vector["note"])
def test_the_intent_digest_is_the_shipped_one(vector: dict[str, Any]) -> None:
    six = [vector[name] for name in ("tenant_id", "operation_id", "tool", "resource", "expected_version", "arguments")]
    if "body_hex" in vector:
        content_type, body = vector["content_type"], bytes.fromhex(vector["body_hex"])
        digest = intent_digest(*six, content_type=content_type, body=body)
        again = by_hand(*six, content_type, body)
    else:
        digest = intent_digest(*six)
        again = by_hand(*six)
    assert digest.hex() == vector["sha256"] == hashlib.sha256(again).hexdigest()


@pytest.mark.parametrize("vector", VECTORS["sent_key"], ids=lambda vector: vector["uuid5"])
def test_the_sent_key_is_the_shipped_one(vector: dict[str, Any]) -> None:
    instance = uuid.UUID(vector["instance"])
    names = [vector[name] for name in ("tenant_id", "tool", "operation_id")]
    assert sent_key(instance, *names) == vector["uuid5"]
    # RFC 9562, section 5.5: SHA-1 over namespace and name, first 128 bits, version 5, variant 10.
    raw = bytearray(hashlib.sha1(instance.bytes + by_hand(*names)).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x50
    raw[8] = raw[8] & 0x3F | 0x80
    assert uuid.UUID(bytes=bytes(raw)) == uuid.UUID(vector["uuid5"])


def test_no_two_tenants_tools_instances_or_operations_share_a_sent_key() -> None:
    keys = [vector["uuid5"] for vector in VECTORS["sent_key"]]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("vector", VECTORS["derived_id"], ids=lambda vector: vector["run_id"])
def test_the_id_of_a_step_is_the_shipped_one(vector: dict[str, Any]) -> None:
    assert derived_id(vector["run_id"], vector["tool"], vector["arguments"]) == vector["sha256"]


def test_every_field_counts_and_none_can_pass_for_its_neighbour() -> None:
    digests = [vector["sha256"] for vector in VECTORS["intent_digest"]]
    assert len(set(digests)) == len(digests)
