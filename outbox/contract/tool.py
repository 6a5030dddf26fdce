"""How a receiver is spoken to, and how one tool's request and look-up are made."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, StringConstraints, field_validator, model_validator

from outbox.contract.auth import Auth
from outbox.contract.base import (
    CREDENTIAL_HEADERS,
    SENDER_HEADERS,
    HeaderName,
    Later,
    Part,
    Pointer,
    check_header_value,
)
from outbox.contract.model import Contract
from outbox.duration import Duration
from outbox.template import variables

# What a request may be made of. `arguments` are the body; everything here is short and may travel in a path.
REQUEST_VARIABLES: Final = frozenset({"resource", "sent_key", "operation_id", "tenant_id", "expected_version"})

# What a name says that stands before a credential. Its value would be stored, shown and pinned with the contract.
_CREDENTIAL: Final = re.compile(
    r"(^|[-_./])(auth|authentication|credentials?|pass(word|wd|phrase)?|secret|session|signature|token"
    r"|(api|access|app|application|auth|client|private|secret|subscription)[-_]?key)($|[-_./])",
    re.IGNORECASE,
)

# A lease or a deadline beyond this is a mistake in the unit.
_DAY_SECONDS: Final = 86_400.0

ReceiverName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
QueryName = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,200}$")]
PathTemplate = Annotated[str, StringConstraints(pattern=r"^/[\x21-\x7e]*$", max_length=2_000)]


def _check_template(text: str) -> str:
    if not (unknown := variables(text) - REQUEST_VARIABLES):
        return text
    raise ValueError(
        f"unknown name in braces: {', '.join(sorted(unknown))}; known are {', '.join(sorted(REQUEST_VARIABLES))}"
    )


def _check_path(path: str) -> str:
    if "?" in path or "#" in path or "\\" in path:
        raise ValueError("a path has no query, fragment or backslash; write the query under `query`")
    if any(segment in {".", ".."} for segment in path.split("/")):
        raise ValueError("a path has no dot segments")
    return _check_template(path)


def _check_no_credential(name: str, value: str) -> None:
    if name.lower() in CREDENTIAL_HEADERS or (_CREDENTIAL.search(name) and not variables(value)):
        header = name.rpartition("/")[2]  # of a JSON pointer its last part
        raise ValueError(
            f"{name} looks like a credential, and what is written here is stored; name its secret instead:"
            f' auth = {{ kind = "header", header = "{header}", secret = "env:NAME", id = "..." }},'
            f' or, in an auth that there is already, secret_headers = {{ "{header}" = "env:NAME" }}'
        )


def _check_values(values: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in values.items():
        _check_no_credential(name, value)
        _check_template(value)
    return values


def _check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if name.lower() in SENDER_HEADERS:
            raise ValueError(f"{name} is set by the sender, not by configuration")
        _check_no_credential(name, value)
        check_header_value(value)
    if len({name.lower() for name in headers}) != len(headers):
        raise ValueError("the same header twice")
    return headers


class ReceiverConfig(Part):
    """
    A connection to something that produces effects.

    `lanes` are fixed once it exists. `rate` (requests per second) and `concurrency` are receiver-wide and divided among
    lanes.
    `pause_bound` is the longest time for which a process of ours may stand still between its last check and its
    first byte: unstated, the length of the lease. `dead_man` unstated: on where the guarantee of a tool needs it.
    `options` is for transports of third parties, which check it themselves.
    """

    transport: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,40}$")
    base_url: str = Field(default="", max_length=2_000)
    lanes: int = Field(default=4, ge=1, le=1_024)
    concurrency: int = Field(default=16, ge=1, le=10_000)
    rate: float | None = Field(default=None, gt=0, le=1e6, allow_inf_nan=False)
    lease: Duration = 30.0
    pause_bound: Duration | None = None
    allow_private_addresses: bool = False
    headers: Mapping[HeaderName, str] = Field(default_factory=dict)
    auth: Auth | None = None
    read_auth: Auth | None = None
    shared_credential: bool = False
    doorbell: bool = True
    dead_man: bool | None = None
    max_response_bytes: int = Field(default=1_048_576, ge=1_024, le=64 * 1_048_576)
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    signature: Later = None

    _headers = field_validator("headers")(_check_headers)

    @field_validator("base_url")
    @classmethod
    def _is_an_origin(cls, url: str) -> str:
        if not url:
            return url
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("a base_url is http(s)://host[:port][/path], without query or fragment")
        if parts.username is not None or parts.password is not None:
            raise ValueError("a base_url holds no credentials: use auth with a reference")
        if not re.fullmatch(r"[\x21-\x7e]+", url):
            raise ValueError("a base_url is ASCII; write a host in its xn-- form")
        _ = parts.port  # raises ValueError when out of range
        return url.rstrip("/")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.transport == "http" and not self.base_url:
            raise ValueError('transport = "http" needs a base_url')
        if self.transport == "postgres" and (self.base_url or self.headers or self.auth is None):
            raise ValueError('transport = "postgres" needs an auth of kind dsn, and has neither base_url nor headers')
        for auth in filter(None, (self.auth, self.read_auth)):
            if self.transport in {"http", "postgres"} and (self.transport == "postgres") != (auth.kind == "dsn"):
                raise ValueError(f'transport = "{self.transport}" has no use for a credential of the kind {auth.kind}')
            if twice := sorted(name for name in self.headers if name.lower() in auth.header_names):
                raise ValueError(f"set by `headers` and by a credential: {', '.join(twice)}")
        if self.concurrency < self.lanes:
            raise ValueError("concurrency is divided among lanes: it is at least `lanes`")
        if not 1 <= self.lease <= _DAY_SECONDS:
            raise ValueError("a lease is between 1s and 24h")
        if self.pause_bound is not None and math.isinf(self.pause_bound):
            raise ValueError("a pause_bound that is no bound: leave it out")
        return self

    @property
    def pause_seconds(self) -> float:
        """The longest pause between a last check and a first byte that promises rest on."""
        return self.lease if self.pause_bound is None else self.pause_bound


class Request(Part):
    """
    How the effect is asked for. Wire bytes are a pure function of this, the stored intent and the sent key.

    `inject` puts templates into the body: by JSON pointer, or by field name where the encoding is `form`.
    """

    method: Literal["POST", "PUT", "PATCH", "DELETE"] = "POST"
    path: PathTemplate
    encoding: Literal["json", "form"] = "json"
    content_type: str | None = Field(default=None, pattern=r"^[\x21-\x7e][\x20-\x7e]{0,199}$")
    inject: Mapping[str, str] = Field(default_factory=dict)
    query: Mapping[QueryName, str] = Field(default_factory=dict)
    headers: Mapping[HeaderName, str] = Field(default_factory=dict)
    envelope: Later = None

    _path = field_validator("path")(_check_path)
    _headers = field_validator("headers")(_check_headers)

    _values = field_validator("inject", "query")(_check_values)

    @model_validator(mode="after")
    def _injects_where_it_can(self) -> Self:
        if self.encoding == "json" and not all(name.startswith("/") for name in self.inject):
            raise ValueError('inject names a JSON pointer such as "/metadata/key"')
        if self.encoding == "form" and any(not re.fullmatch(r"[\x21-\x7e]{1,200}", name) for name in self.inject):
            raise ValueError("inject names a form field")
        return self


class Read(Part):
    """
    How a look at the receiver's records is made. Only GET: a look causes no effect.

    One record, or a list under `items` (read to its end: `next` points at the cursor of the next page, which travels as
    the query field `cursor`; or `more` points at a boolean, and the cursor is `cursor_item` of the last item).
    `identity` points at our sent key in a record; only a path that names the sent key may do without. `state` points at
    the word by which the receiver says how it went; a word in none of the lists proves nothing.
    """

    method: Literal["GET"] = "GET"
    path: PathTemplate
    query: Mapping[QueryName, str] = Field(default_factory=dict)
    headers: Mapping[HeaderName, str] = Field(default_factory=dict)
    items: Pointer | None = None
    identity: Pointer | None = None
    external_id: Pointer | None = None
    next: Pointer | None = None
    more: Pointer | None = None
    cursor: QueryName | None = None
    cursor_item: Pointer | None = None
    pages_max: int = Field(default=10, ge=1, le=1_000, alias="max_pages")
    state: Pointer | None = None
    confirmed: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()

    _path = field_validator("path")(_check_path)
    _headers = field_validator("headers")(_check_headers)

    _query = field_validator("query")(_check_values)

    @model_validator(mode="after")
    def _can_be_read_to_its_end(self) -> Self:
        paged = self.next is not None or self.more is not None
        if paged and (self.items is None or self.cursor is None):
            raise ValueError("pages need `items` and the query field `cursor`")
        if self.next is not None and self.more is not None:
            raise ValueError("`next` and `more` are two ways of paging: one of them")
        if (self.more is not None) != (self.cursor_item is not None) or (self.cursor is not None and not paged):
            raise ValueError("`more` goes with `cursor_item`, and a `cursor` with `next` or `more`")
        return self

    @model_validator(mode="after")
    def _knows_our_record(self) -> Self:
        if self.identity is None and (self.items is not None or "sent_key" not in variables(self.path)):
            raise ValueError("without `identity` a record that merely looks alike would count as ours")
        words = (*self.confirmed, *self.ended, *self.partial, *self.pending)
        if (self.state is None) != (not words) or (self.state is not None and not self.confirmed):
            raise ValueError("`state` goes with lists of words, `confirmed` at least")
        if len(set(words)) != len(words):
            raise ValueError("a word stands in two lists of states")
        return self


class ToolConfig(Part):
    """
    One operation that can be asked for.

    `deadline` bounds one attempt, counted from its begin. `recover` says what comes first in doubt. `person_settle` is
    how long after an attempt a person's "no effect" is refused where the contract states no bound.
    """

    receiver: ReceiverName
    deadline: Duration = 10.0
    request: Request | None = None
    read: Read | None = None
    contract: Contract | None = None
    requires_approval: bool = False
    policy_version: int = Field(default=1, ge=1, le=2_147_483_647)
    person_settle: Duration = 3600.0
    recover: Literal["lookup_first", "resend_first"] = "lookup_first"
    identity_retention: Duration = math.inf

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if not 0 < self.deadline <= _DAY_SECONDS:
            raise ValueError("a deadline is more than 0s and at most 24h")
        if math.isinf(self.person_settle):
            raise ValueError("person_settle is finite: somebody must be able to decide")
        return self
