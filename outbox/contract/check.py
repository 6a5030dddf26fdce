"""How a receiver, a tool and its contract can contradict each other: found whenever they are loaded, all at once."""

import math
from collections.abc import Iterator

from outbox.contract.base import CREDENTIAL_HEADERS, SENDER_HEADERS
from outbox.contract.model import Contract
from outbox.contract.parts import Fencing, Key, Lookup
from outbox.contract.reach import unreachable
from outbox.contract.tool import ReceiverConfig, ToolConfig
from outbox.contract.transports import of_transport
from outbox.contract.wiring import Wiring
from outbox.duration import format_duration
from outbox.errors import Problem
from outbox.template import variables


def problems(name: str, tool: ToolConfig, receiver: ReceiverConfig) -> list[Problem]:
    """
    Return everything about one tool that cannot be true at once, with its place in the file.

    Checked by `outbox apply`, and again whenever a daemon loads a wiring: a contract changes under running daemons.
    """
    wiring = Wiring.of(name, tool, receiver)
    contract = tool.contract or Contract()
    found = [
        *_times(wiring),
        *_key_facts(contract),
        *_answer_rules(contract),
        *of_transport(tool, contract, receiver),
        *_request_places(tool, contract, receiver),
        *_read_places(tool, receiver),
        *_lookup_facts(wiring, contract),
        *_look_is_possible(tool, contract, receiver),
    ]
    return [Problem(f'tools."{name}".{place}', message, "contradiction") for place, message in found]


def _times(wiring: Wiring) -> Iterator[tuple[str, str]]:
    contract, receiver = wiring.contract, wiring.receiver
    if wiring.deadline_seconds >= receiver.lease:
        lease = format_duration(receiver.lease)
        yield "deadline", f"an attempt must end within its lease: the deadline is not below {lease}"
    if contract.margin is not None:
        late = receiver.pause_bound + (contract.in_flight_bound or 0.0)
        if contract.margin < late:
            yield (
                "contract.margin",
                f"what may be late is longer: pause_bound and in_flight_bound together are {format_duration(late)}",
            )
    if contract.retry is None or wiring.repeat_safe or not 0 < wiring.retention_seconds < math.inf:
        return
    window = wiring.retention_seconds - wiring.margin_seconds - wiring.reach_seconds
    schedule = contract.retry.schedule_seconds() + contract.retry.attempts * wiring.deadline_seconds
    if schedule > window:
        left = format_duration(max(window, 0.0))
        yield "contract.retry", f"the schedule lasts {format_duration(schedule)}, the window for resends only {left}"


def _key_facts(contract: Contract) -> Iterator[tuple[str, str]]:
    if isinstance(contract.key, Key):
        return
    if contract.key_retention > 0 or contract.key_anchor == "forever":
        yield "contract.key_retention", "a retention without a key that the receiver honours"
    if contract.duplicate_guard != "none":
        yield "contract.duplicate_guard", "a guard against duplicates needs a key by which it knows them"
    if contract.key_checked_first:
        yield "contract.key_checked_first", "there is no key that could be checked"


def _answer_rules(contract: Contract) -> Iterator[tuple[str, str]]:
    for place, catchers in unreachable(contract.answers):
        who = " and ".join(f"answers[{number}]" for number in catchers)
        catch = "catch" if len(catchers) > 1 else "catches"
        yield (
            f"contract.answers[{place}]",
            f"it is never reached: {who} before it {catch} every answer that it matches. Put it first, or remove it",
        )


def _request_places(tool: ToolConfig, contract: Contract, receiver: ReceiverConfig) -> Iterator[tuple[str, str]]:
    request, key = tool.request, contract.key
    if request is None:
        return
    headers = [name.lower() for name in (*request.headers, *receiver.headers)]
    if contract.precondition != "none":
        headers.append(contract.precondition.header.lower())
    if isinstance(key, Key):
        if key.in_ == "header" and key.name is not None:
            headers.append(key.name.lower())
        elif key.in_ == "path" and "sent_key" not in variables(request.path):
            yield "request.path", "the key travels in the path, which has no {sent_key}"
        elif key.in_ == "query" and key.name in request.query:
            yield "request.query", f"{key.name} is the key's own field"
        elif key.in_ == "body" and (key.pointer is None) != (request.encoding == "form"):
            yield "contract.key", "a JSON body has the key at a `pointer`, a form in a field with a `name`"
        elif key.in_ == "body" and (key.pointer or key.name) in request.inject:
            yield "request.inject", "the key's own place"
    if reserved := sorted((SENDER_HEADERS | CREDENTIAL_HEADERS).intersection(headers)):
        yield "contract", f"set by the sender itself: {', '.join(reserved)}"
    headers += receiver.auth.header_names if receiver.auth else ()
    if twice := sorted({name for name in headers if headers.count(name) > 1}):
        yield "request.headers", f"set twice: {', '.join(twice)}"


def _read_places(tool: ToolConfig, receiver: ReceiverConfig) -> Iterator[tuple[str, str]]:
    auth = receiver.read_auth or receiver.auth
    if tool.read is None or auth is None:
        return
    if twice := sorted({name.lower() for name in tool.read.headers}.intersection(auth.header_names)):
        yield "read.headers", f"set twice, here and by the credential: {', '.join(twice)}"


def _lookup_facts(wiring: Wiring, contract: Contract) -> Iterator[tuple[str, str]]:
    lookup, fencing = contract.lookup, contract.fencing
    if isinstance(fencing, Fencing) and fencing.raised_by_lookup and lookup == "none":
        yield "contract.fencing.raised_by_lookup", "there is no look that could raise a fence"
    if not isinstance(lookup, Lookup):
        return
    place = "contract.lookup"
    if lookup.absence_is_proof and lookup.consistency is None:
        yield place, "absence_is_proof needs a consistency: strong, or eventual with its lag"
    if (lookup.consistency == "eventual") != (lookup.lag is not None):
        yield place, "a lag belongs to an eventual consistency, and to no other"
    if lookup.lag is not None and math.isinf(lookup.lag):
        yield place, "with a lag that never ends absence is never proof"
    if lookup.absence_is_proof and lookup.by == "resource":
        yield place, "a resource shows its last change only: a later one hides ours, so absence is no proof"
    if lookup.by == "key" and not isinstance(contract.key, Key):
        yield place, 'there is no key to look by: write by = "reference"'
    settle = wiring.settle_seconds
    if lookup.absence_is_proof and settle is not None and lookup.horizon <= settle + wiring.lag_seconds:
        yield place, "the horizon has passed before an attempt can be known to be absent"


def _look_is_possible(tool: ToolConfig, contract: Contract, receiver: ReceiverConfig) -> Iterator[tuple[str, str]]:
    lookup, read = contract.lookup, tool.read
    if not isinstance(lookup, Lookup):
        if read is not None:
            yield "read", "never used: contract.lookup does not say what it proves"
        return
    if read is None and receiver.transport == "http":
        yield "read", "contract.lookup needs to know how to look"
        return
    if read is not None and lookup.absence_is_proof and lookup.not_found is None and read.items is None:
        yield "contract.lookup.not_found", "must say how the absence of one record looks, if absence is proof"
    auth, read_auth = receiver.auth, receiver.read_auth
    if auth is None:
        return
    if not receiver.shared_credential and (read_auth is None or read_auth.shares_power_with(auth)):
        own = "" if read_auth is None else " (the `secret` of one may not be in the other)"
        yield (
            "read",
            f"receivers.{tool.receiver} needs a read_auth of its own for look-ups{own}, or shared_credential = true",
        )
    if read_auth is not None and None not in (auth.account, read_auth.account) and auth.account != read_auth.account:
        yield "read", "read_auth belongs to another account: it would not see our effects"
