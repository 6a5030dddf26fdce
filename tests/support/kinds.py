"""One tool for each guarantee that an HTTP receiver can give, with bounds so short that every doubt ends in a test.

A lease of 2 s, a deadline of 1 s, and whatever left us lands within 1.5 s more: nothing lands 2.5 s after a begin.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from outbox.guarantee import Promise
from outbox.settings import Configuration

LEASE_SECONDS: Final = 2.0
DEADLINE_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 2.5

_KEY: Final = {"key": {"in": "header", "name": "Idempotency-Key"}, "key_retention": "1h"}
_LOOK: Final = {
    "consistency": "strong",
    "absence_is_proof": True,
    "interval": "200ms",
    "interval_max": "1s",
    "interval_slow": "2s",
    "reads_max": 100,
}
_RECEIPT: Final = [
    {"status": [200, 201, 202], "means": "receipt", "external_id": "/id"},
    {"status": [409], "body": {"/error/code": "in_flight"}, "means": "in_flight"},
]


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of contract. `resent`: by itself, while in doubt. `waits`: for a person, if an answer is lost."""

    promise: Promise
    tool: Mapping[str, Any]
    effects_max: int | None = 1
    resent: bool = False
    waits: bool = False
    expected_version: str | None = None


def _posts(path: str, contract: Mapping[str, Any], **tool: Any) -> dict[str, Any]:
    return {"request": {"method": "POST", "path": f"/{path}/{{resource}}"}, "contract": contract, **tool}


def _puts(path: str, contract: Mapping[str, Any], **tool: Any) -> dict[str, Any]:
    return {"request": {"method": "PUT", "path": f"/{path}/{{resource}}"}, "contract": contract, **tool}


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        # The key is honoured inside its window; nothing can be asked.
        "keyed": Kind(Promise.DEDUPLICATED, _posts("keyed", _KEY), resent=True),
        # The key is honoured, and what happened under it can be read.
        "keyed_seen": Kind(
            Promise.DEDUPLICATED,
            _posts(
                "keyed",
                _KEY | {"lookup": {**_LOOK, "by": "key", "not_found": {"status": [404]}}},
                read={"path": "/operations/{sent_key}", "identity": "/key", "external_id": "/receipt"},
            ),
            resent=True,
        ),
        # No key; a list shows the reference that was sent, and its absence is proof.
        "seen": Kind(
            Promise.VERIFIED,
            {
                "request": {"path": "/payments/{resource}", "inject": {"/reference": "{sent_key}"}},
                "read": {
                    "path": "/payments",
                    "query": {"reference": "{sent_key}"},
                    "items": "/data",
                    "identity": "/reference",
                    "external_id": "/id",
                },
                "contract": {"lookup": {**_LOOK, "by": "reference"}},
            },
            resent=True,
        ),
        # Neither.
        "blind": Kind(Promise.PERSON_DECIDES, _posts("mail", {}), waits=True),
        # A version, and a resend is safe, but a 412 on a resend tells nothing.
        "guarded": Kind(
            Promise.GUARDED,
            _puts("stock", {"precondition": {"header": "If-Match"}, "repeat_safe": True}),
            resent=True,
            waits=True,
            expected_version="0",
        ),
        # A version, and that is all.
        "guarded_once": Kind(
            Promise.GUARDED,
            _puts("stock", {"precondition": {"header": "If-Match"}}),
            waits=True,
            expected_version="0",
        ),
        # Whatever happens twice is as if it had happened once.
        "repeatable": Kind(Promise.REPEATABLE, _puts("shelf", {"repeat_safe": True}), effects_max=None, resent=True),
    }
)


def document(
    url: str,
    receivers: Mapping[str, str],
    *,
    deadline: str = "1s",
    contract: Mapping[str, Any] | None = None,
    **receiver: Any,
) -> dict[str, dict[str, Any]]:
    """One receiver and one tool of the same name for each entry: name -> kind; as a file would have them."""
    common = {
        "transport": "http",
        "base_url": url,
        "allow_private_addresses": True,
        "lanes": 1,
        "concurrency": 4,
        "lease": "2s",
        "pause_bound": "500ms",
        "auth": {"kind": "bearer", "secret": "env:ARENA_WRITE_TOKEN", "id": "main"},
        "read_auth": {"kind": "bearer", "secret": "env:ARENA_READ_TOKEN", "id": "main-read", "account": "main"},
        **receiver,
    }
    tools = {}
    for name, kind in receivers.items():
        tool = dict(KINDS[kind].tool)
        stated = {
            "in_flight_bound": "1s",
            "retry": {"first": "100ms", "max": "500ms"},
            "answers": _RECEIPT,
            **tool.pop("contract"),
            **(contract or {}),
        }
        tools[name] = {"receiver": name, "deadline": deadline, "contract": stated, **tool}
    return {"receivers": dict.fromkeys(receivers, common), "tools": tools}


def configuration(url: str, receivers: Mapping[str, str], **changes: Any) -> Configuration:
    """The same, read."""
    return Configuration.model_validate(document(url, receivers, **changes))
