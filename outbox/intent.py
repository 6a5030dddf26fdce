"""
The intent: an immutable action, as a service writes it.

Whatever an intent says has been checked when it exists; nothing is found out later that could have been known here.
Who asks (tenant and principal) is no part of it: `Outbox` binds that once, from the authenticated context.
"""

import re
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from outbox.canonical import SIZE_MAX_BYTES, canonical_object
from outbox.digest import intent_digest
from outbox.errors import InvalidIntent, JsonRefused, Problem

ID_MAX_CHARS = 200
NAME_MAX_BYTES = 2_000  # resource and ordering key
HEADER_VALUE_MAX_CHARS = 200

_ID = re.compile(r"[!-~]+")
_TOOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HEADER_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+( *;[ -~]+)?", re.ASCII)
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# C0 and C1 controls with NUL, CR and LF, the two Unicode line breaks, and lone surrogates.
_NO_NAME = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def _grammar(pattern: re.Pattern[str], rule: str, max_chars: int) -> AfterValidator:
    def check(text: str) -> str:
        if len(text) > max_chars:
            raise ValueError(f"longer than {max_chars} characters")
        if not pattern.fullmatch(text):
            raise ValueError(rule)
        return text

    return AfterValidator(check)


def _name(text: str) -> str:
    if _NO_NAME.search(text):
        raise ValueError("control characters, line breaks and lone surrogates are not allowed")
    if not 1 <= len(text.encode()) <= NAME_MAX_BYTES:
        raise ValueError(f"1 to {NAME_MAX_BYTES} bytes of UTF-8 are allowed")
    return text


def _instant(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("outside the years 1 to 9999 in UTC") from None


def _arguments(given: object) -> object:
    return canonical_object(given) if isinstance(given, str | Mapping) else given


Id = Annotated[str, _grammar(_ID, "printable ASCII without spaces is needed", ID_MAX_CHARS)]
ToolName = Annotated[
    str, _grammar(_TOOL, "a letter or digit, then letters, digits, dots, dashes and underscores are needed", 100)
]
Name = Annotated[str, AfterValidator(_name)]
HeaderValue = Annotated[
    str,
    _grammar(_HEADER_VALUE, "it travels in a header: printable ASCII, no space at an end", HEADER_VALUE_MAX_CHARS),
]
MediaType = Annotated[str, _grammar(_MEDIA_TYPE, "not a media type", HEADER_VALUE_MAX_CHARS)]
TraceParent = Annotated[str, _grammar(_TRACEPARENT, "not a W3C traceparent", 55)]
Instant = Annotated[AwareDatetime, AfterValidator(_instant)]
CanonicalObject = Annotated[str, BeforeValidator(_arguments)]


def new_operation_id() -> str:
    """Make an id that nobody else makes: a UUIDv7 (RFC 9562), whose time keeps neighbours together in the index."""
    bits = time.time_ns() // 1_000_000 << 80 | 7 << 76 | secrets.randbits(76)
    return str(UUID(int=bits & ~(3 << 62) | 2 << 62))


class Intent(BaseModel):
    """
    One action that is wanted. InvalidIntent, with every problem, if it breaks a rule.

    `arguments` is a mapping or JSON text, and is held as RFC 8785 JSON; `body` with `content_type` stands in its place
    for payloads that are not JSON. An intent with neither has no arguments, `{}`.
    `operation_id` is made here if none is given: the same object, put again after a failure, is the same operation.
    An id from the business (`order-17/charge`) also survives the process.
    `expected_version` is the version of the resource that the decision was made on; operations of one `ordering_key`
    run one after the other; before `not_before` and after `expires_at` no attempt begins.
    `compensates` and `revision_of` name other operations of the tenant, `on_behalf_of` another principal.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    tool: ToolName
    operation_id: Id = Field(default_factory=new_operation_id)
    resource: Name | None = None
    arguments: CanonicalObject | None = Field(default=None, repr=False)
    content_type: MediaType | None = None
    body: bytes | None = Field(default=None, repr=False, max_length=SIZE_MAX_BYTES)
    expected_version: HeaderValue | None = None
    ordering_key: Name | None = None
    not_before: Instant | None = None
    expires_at: Instant | None = None
    compensates: Id | None = None
    revision_of: Id | None = None
    on_behalf_of: Id | None = None
    traceparent: TraceParent | None = None

    # The fields hold what validation made of them; the constructor also takes what it can be made from. Type checkers
    # see this signature, at run time pydantic's own stands behind it.
    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            tool: str,
            operation_id: str = ...,
            resource: str | None = None,
            arguments: Mapping[str, Any] | str | None = None,
            content_type: str | None = None,
            body: bytes | None = None,
            expected_version: str | None = None,
            ordering_key: str | None = None,
            not_before: datetime | None = None,
            expires_at: datetime | None = None,
            compensates: str | None = None,
            revision_of: str | None = None,
            on_behalf_of: str | None = None,
            traceparent: str | None = None,
        ) -> None: ...
    else:

        def __init__(self, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise InvalidIntent(_problems(error)) from None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: object) -> object:
        if isinstance(given, dict) and given.get("arguments") is None and given.get("body") is None:
            return given | {"arguments": "{}"}
        return given

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.arguments is not None and self.body is not None:
            raise ValueError("either arguments or a body, not both")
        if (self.body is None) != (self.content_type is None):
            raise ValueError("a body and its content_type go together")
        if self.not_before and self.expires_at and self.not_before >= self.expires_at:
            raise ValueError("it expires before it may begin")
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002
        """Copy with changes, and check again. The id stays unless it is changed too."""
        return type(self)(**(dict(self) | dict(update or {})))

    def digest(self, tenant_id: str) -> bytes:
        """SHA-256 of what this intent states when this tenant puts it (`outbox.digest`)."""
        return intent_digest(
            tenant_id,
            self.operation_id,
            self.tool,
            self.resource,
            self.expected_version,
            self.arguments,
            content_type=self.content_type,
            body=self.body,
        )


def _problems(error: ValidationError) -> list[Problem]:
    """Translate, without the values: arguments and bodies are nobody's business in a log."""
    found = []
    for detail in error.errors(include_url=False, include_input=False):
        place = ".".join(map(str, detail["loc"]))
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, JsonRefused):
            found.append(Problem(place + cause.place, cause.detail, cause.reason))
        elif cause:
            found.append(Problem(place, str(cause)))
        else:
            found.append(Problem(place, detail["msg"], detail["type"]))
    return found
