"""
The immutable document that an attempt is bound to: everything that its wire bytes and its rules depend on.

`outbox apply` stores one version whenever it changes; an operation is pinned to the version of its first exposure.
Secrets and their references are not in it: a credential is rotated without a new version, and is compared by its id.
"""

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Self
from urllib.parse import urlsplit

import rfc8785
from pydantic import Field

from outbox.contract.auth import CredentialId
from outbox.contract.base import Part
from outbox.contract.model import MARGIN_SECONDS_ASSUMED, Contract
from outbox.contract.parts import Fencing, Key, Lookup, Retry
from outbox.contract.tool import Read, ReceiverConfig, ReceiverName, Request, ToolConfig, ToolName
from outbox.duration import Duration, format_duration
from outbox.template import variables


class ReceiverFacts(Part):
    """What of a receiver a tool's wire bytes and rules depend on."""

    name: ReceiverName
    transport: str
    base_url: str = ""
    headers: Mapping[str, str] = Field(default_factory=dict)
    auth_id: CredentialId | None = None
    auth_account: CredentialId | None = None
    auth_per_tenant: bool = False
    read_auth_id: CredentialId | None = None
    read_auth_account: CredentialId | None = None
    lease: Duration
    pause_bound: Duration
    pause_bound_stated: bool = False

    @classmethod
    def of(cls, name: str, receiver: ReceiverConfig) -> Self:
        """Take them from what users write."""
        auth, read_auth = receiver.auth, receiver.read_auth
        facts = {
            "name": name,
            "transport": receiver.transport,
            "base_url": receiver.base_url,
            "headers": receiver.headers,
            "auth_id": auth.id if auth else None,
            "auth_account": auth.account_id if auth else None,
            "auth_per_tenant": auth.per_tenant if auth else False,
            "read_auth_id": read_auth.id if read_auth else None,
            "read_auth_account": read_auth.account_id if read_auth else None,
            "lease": format_duration(receiver.lease),
            "pause_bound": format_duration(receiver.pause_seconds),
            "pause_bound_stated": receiver.pause_bound is not None,
        }
        return cls.model_validate(facts)

    @functools.cached_property
    def way(self) -> tuple[str | bool | None, ...]:
        """
        Where requests go and as whom. Nothing is sent by a credential that was not configured together with it.

        The credential of looks is of the same account, or no contract is valid.
        """
        return (self.transport, self.base_url, self.auth_id, self.auth_account, self.auth_per_tenant)


class Wiring(Part):
    """
    One version of one tool: its configuration, its contract, and the facts of its receiver.

    The numbers below are what the database judges a batch by. They rest on `trusted`, the contract with every
    unverified fact on its safe side; requests are built from `contract`, as stated. Each is worked out once: nothing
    here ever changes, and it is asked for several times per operation.
    """

    tool: ToolName
    config: ToolConfig
    receiver: ReceiverFacts

    @classmethod
    def of(cls, tool: str, config: ToolConfig, receiver: ReceiverConfig) -> Self:
        """Make the document from what users write."""
        return cls(tool=tool, config=config, receiver=ReceiverFacts.of(config.receiver, receiver))

    # ------------------------------------------------------------------------------------------------- as a document

    def to_json(self) -> str:
        """Return canonical JSON (RFC 8785), defaults written out: a later default changes no stored version."""
        return rfc8785.dumps(self.model_dump(mode="json", by_alias=True, exclude_none=True)).decode()

    @classmethod
    def from_json(cls, text: str | bytes | Mapping[str, object]) -> Self:
        """Read what `to_json` wrote, as text or as the object that a jsonb column yields."""
        return cls.model_validate(json.loads(text) if isinstance(text, str | bytes) else text)

    @functools.cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical JSON: the identity of this version."""
        return hashlib.sha256(self.to_json().encode()).digest()

    # ------------------------------------------------------------------------------------------------------- shortcuts

    @functools.cached_property
    def contract(self) -> Contract:
        """What is stated: requests are built from it. Nothing at all where the tool has no contract."""
        return self.config.contract or Contract()

    @functools.cached_property
    def trusted(self) -> Contract:
        """What decisions rest on: unverified facts count as not stated."""
        return self.contract.trusted()

    @functools.cached_property
    def request(self) -> Request | None:
        """How the effect is asked for."""
        return self.config.request

    @functools.cached_property
    def read(self) -> Read | None:
        """How a look is made."""
        return self.config.read

    @functools.cached_property
    def lookup(self) -> Lookup | None:
        """What a look proves; None where nothing can be asked."""
        return self.trusted.lookup if isinstance(self.trusted.lookup, Lookup) else None

    @functools.cached_property
    def retrying(self) -> Retry:
        """The back-off in force."""
        return self.trusted.retrying

    # --------------------------------------------------------------------------------------- numbers, all in seconds

    @functools.cached_property
    def deadline_seconds(self) -> float:
        """One attempt, from its begin."""
        return self.config.deadline

    @functools.cached_property
    def retention_seconds(self) -> float:
        """How long a resend with the same key is no second effect: 0 without a key, inf for ever."""
        if not isinstance(self.trusted.key, Key):
            return 0.0
        if self.trusted.key_anchor == "forever" or self.trusted.duplicate_guard == "resource":
            return math.inf
        return self.trusted.key_retention

    @functools.cached_property
    def late_seconds(self) -> float | None:
        """How long after its deadline an attempt may still land: our own pause and the path; None: no bound stated."""
        bound = self.trusted.in_flight_bound
        return None if bound is None else self.receiver.pause_bound + bound

    @functools.cached_property
    def margin_seconds(self) -> float:
        """What is kept free at the end of the window."""
        if self.trusted.margin is not None:
            return self.trusted.margin
        return MARGIN_SECONDS_ASSUMED if self.late_seconds is None else 2 * self.late_seconds

    @functools.cached_property
    def reach_seconds(self) -> float:
        """How late a resend that is begun now may land, the margin apart."""
        return max(self.config.deadline, self.trusted.in_flight_bound or 0.0)

    @functools.cached_property
    def settle_seconds(self) -> float | None:
        """From the begin of an attempt until it cannot land any more; None: no bound stated."""
        return None if self.late_seconds is None else self.config.deadline + self.late_seconds

    @functools.cached_property
    def lag_seconds(self) -> float:
        """How long an effect may stay invisible to a look."""
        return self.lookup.lag or 0.0 if self.lookup is not None and self.lookup.consistency == "eventual" else 0.0

    @functools.cached_property
    def person_settle_seconds(self) -> float:
        """After giving up, how long a person's "no effect" is refused where no bound is stated."""
        return self.config.person_settle

    # -------------------------------------------------------------------------------------------------- what follows

    @functools.cached_property
    def repeat_safe(self) -> bool:
        """A repeat is harmless at any time, as the receiver documents."""
        return self.trusted.repeat_safe

    @functools.cached_property
    def sends_key(self) -> bool:
        """The receiver sees the sent key: as the contract's key, or (over HTTP) where the request says `{sent_key}`."""
        if isinstance(self.contract.key, Key) or self.receiver.transport != "http" or self.request is None:
            return True
        request = self.request
        templates = (request.path, *request.query.values(), *request.headers.values(), *request.inject.values())
        return any("sent_key" in variables(template) for template in templates)

    @functools.cached_property
    def has_window(self) -> bool:
        """There is a time in which a resend with the same key is no second effect."""
        return self.retention_seconds > self.margin_seconds + self.reach_seconds

    @functools.cached_property
    def resend_safe(self) -> bool:
        """Some resend is deduplicated or harmless: large claims are fine, an ambiguity costs nobody's time."""
        return self.repeat_safe or self.has_window

    @functools.cached_property
    def look_excludes(self) -> bool:
        """A look shuts out every attempt from before it: what it does not find is proven absent, at any time."""
        fencing = self.trusted.fencing
        return self.lookup is not None and isinstance(fencing, Fencing) and fencing.raised_by_lookup

    @functools.cached_property
    def stores_key_on_execution(self) -> bool:
        """Proven absence means that the receiver never stored the key: the next exposure anchors the window anew."""
        return self.trusted.stores_key == "on_execution"

    @functools.cached_property
    def lands_late(self) -> bool:
        """An earlier attempt may still have an effect after a later one ended: the next of its ordering key waits."""
        return self.repeat_safe and self.retention_seconds == 0 and self.trusted.precondition == "none"

    @functools.cached_property
    def needs_version(self) -> bool:
        """The expected version is all that stands between an attempt and a second effect: an intent must state it."""
        return self.trusted.precondition != "none" and self.retention_seconds == 0

    def scope(self, tenant_id: str) -> str:
        """
        Return what the key, or absence, is valid in, as comparable text. Pinned at the first exposure.

        A contract that names no scope is pinned to all that we know. Absence is valid in one account on one host.
        """
        words = self.trusted.key_scope if isinstance(self.trusted.key, Key) else ("account", "host")
        everything = {
            "account": self.receiver.auth_account,
            "credential": self.receiver.auth_id,
            "host": urlsplit(self.receiver.base_url).netloc or None,
            "region": urlsplit(self.receiver.base_url).netloc or None,
            "route": f"{self.request.method} {self.request.path}" if self.request else None,
        }
        chosen: dict[str, str | None] = {
            word: value
            for word, value in everything.items()
            if (words is None and word != "region") or word in (words or ())
        }
        if self.receiver.auth_per_tenant:
            chosen["tenant"] = tenant_id
        return json.dumps({"receiver": self.receiver.name, **chosen}, sort_keys=True)
