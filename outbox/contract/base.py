"""What every piece of a contract or a configuration is made of."""

import re
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints


class Part(BaseModel):
    """
    A piece of what users write: immutable, and every name that it does not know is refused.

    Problems never quote the value they complain about: it may be a secret in the wrong place.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_by_name=True, validate_by_alias=True
    )


def _refuse_later(value: object) -> None:
    if value is not None:
        raise ValueError("not supported yet by this version")


def refuse_words(*words: str) -> BeforeValidator:
    """Refuse, by name, words that the design knows and this version does not deliver."""

    def refuse(value: object) -> object:
        if isinstance(value, str) and value in words:
            raise ValueError(f"{value!r} is not supported yet by this version")
        return value

    return BeforeValidator(refuse)


# A name that the design knows and this version does not deliver: refused by name, never ignored.
Later: TypeAlias = Annotated[None, BeforeValidator(_refuse_later), Field(default=None, exclude=True, repr=False)]

# RFC 9110 tokens, and RFC 6901 pointers that point at something.
HEADER_NAME: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$"
POINTER: Final = r"^(?:/(?:[^~/]|~[01])*)+$"
HeaderName = Annotated[str, StringConstraints(pattern=HEADER_NAME)]
Pointer = Annotated[str, StringConstraints(pattern=POINTER, max_length=500)]

# Headers that carry credentials: a configuration says in them nothing that is stored.
CREDENTIAL_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})

# Headers that the sender owns: a configuration that sets one would break framing, or forge a fence or a trace.
SENDER_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "outbox-fence",
        "outbox-operation",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


def check_header_value(value: str) -> str:
    """Refuse what is unsafe in a header: CR, LF, NUL, other controls, non-ASCII, white space at an edge."""
    if not _HEADER_VALUE.fullmatch(value):
        raise ValueError("a header value is printable ASCII without white space at its edges")
    return value


def word_or_part(*words: str) -> BeforeValidator:
    """Let `key = "none"` stand beside `key = { ... }` with one clear message."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and value not in words:
            raise ValueError(f"write {' or '.join(map(repr, words))}, or a table")
        return value

    return BeforeValidator(check)
