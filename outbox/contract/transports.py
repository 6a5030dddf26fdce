"""What a contract may say over one transport and not over another: found with the contradictions, and named.

Transports of third parties check what is theirs by themselves.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from outbox.contract.model import Contract
from outbox.contract.parts import Fencing, Key, Lookup
from outbox.contract.tool import ReceiverConfig, ToolConfig

Found: TypeAlias = Iterator[tuple[str, str]]

# Clauses that describe requests and answers of HTTP; an inbox has columns and errors.
_OF_HTTP: Final = ("precondition", "replay_marker", "request_id_header")


def of_transport(tool: ToolConfig, contract: Contract, receiver: ReceiverConfig) -> Found:
    """Everything about one tool that its transport cannot do, or needs and does not find."""
    check = _CHECKS.get(receiver.transport)
    if check is not None:
        yield from check(tool, contract)


def _http(tool: ToolConfig, contract: Contract) -> Found:
    if tool.request is None:
        yield "request", "an HTTP receiver needs to know how the effect is asked for"
    if isinstance(contract.key, Key) and contract.key.in_ == "column":
        yield "contract.key", "a request has no columns: its key is in the header, the body, the query or the path"
    fencing = contract.fencing
    if isinstance(fencing, Fencing):
        if fencing.in_ == "column":
            yield "contract.fencing", "a request has no columns: its fence is in the header"
        elif fencing.raised_by_lookup:
            yield "contract.fencing.raised_by_lookup", "not supported yet by the http transport"
    if any(rule.sqlstate for rule in contract.answers):
        yield "contract.answers", "an HTTP receiver answers with no sqlstate"


def _postgres(tool: ToolConfig, contract: Contract) -> Found:
    if tool.request is not None or tool.read is not None:
        yield "request" if tool.request else "read", "an inbox is asked in its own words: leave it out"
    for name in _OF_HTTP:
        if getattr(contract, name) not in {None, "none"}:
            yield f"contract.{name}", "describes HTTP, which an inbox does not speak"
    if isinstance(contract.key, Key) and contract.key.in_ != "column":
        yield "contract.key", 'the key is a column of the inbox: { in = "column" }'
    if isinstance(contract.fencing, Fencing) and contract.fencing.in_ != "column":
        yield "contract.fencing", 'the fence is a column of the inbox: { in = "column" }'
    if any(not rule.sqlstate for rule in contract.answers):
        yield "contract.answers", "a receipt is recognised by itself, and errors by their sqlstate"
    if contract.acceptance == "async":
        yield "contract.acceptance", "an inbox has the effect before it answers, or none"
    if isinstance(contract.lookup, Lookup):
        yield from _look_at_inbox(contract.lookup, contract.fencing)


def _look_at_inbox(lookup: Lookup, fencing: Fencing | str) -> Found:
    if lookup.by != "key":
        yield "contract.lookup", 'operations are in the inbox by their key: by = "key"'
    if lookup.not_found is not None:
        yield "contract.lookup.not_found", "an inbox says by itself that it has nothing: leave it out"
    if lookup.absence_is_proof and not (isinstance(fencing, Fencing) and fencing.raised_by_lookup):
        needed = 'fencing = { in = "column", raised_by_lookup = true }'
        yield "contract.lookup", f"nobody sees a transaction that is open, so only a tombstone proves absence: {needed}"


_CHECKS: Final[Mapping[str, Callable[[ToolConfig, Contract], Found]]] = MappingProxyType(
    {"http": _http, "postgres": _postgres}
)
