"""A credential: a reference to a secret, and the names by which it is known without it."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from outbox.contract.base import SENDER_HEADERS, HeaderName, Part, refuse_words

SECRET_REFERENCE: Final = r"^(?:env:[A-Za-z_][A-Za-z0-9_{}]*|file:/\S+)$"  # noqa: S105 - no secret
SecretReference = Annotated[str, StringConstraints(pattern=SECRET_REFERENCE)]
CredentialId = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,200}$")]


class Auth(Part):
    """
    A credential, by reference: `env:NAME` or `file:/path`, with `{tenant}` inside where each tenant has its own.

    `id` names the credential and `account` what it belongs to (the id, if left out): these are stored and compared, the
    secret never is. The secret of a `dsn` is a whole libpq connection string; its account is the name of the inbox.

    A credential of several secrets has the others in `secret_headers`, by the name of the header that each is sent in.
    `secret` is the one that decides what it may do: a key that both credentials of a receiver need is none such.
    """

    kind: Annotated[Literal["bearer", "header", "dsn"], refuse_words("oauth2", "sigv4", "basic")]
    secret: SecretReference = Field(repr=False)
    id: CredentialId
    account: CredentialId | None = None
    header: HeaderName | None = None
    secret_headers: Mapping[HeaderName, SecretReference] = Field(default_factory=dict, repr=False)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.kind == "header") != (self.header is not None):
            raise ValueError('`header` belongs to kind = "header", and to no other')
        if self.kind == "dsn" and self.account is None:
            raise ValueError("a dsn needs the `account`: the name of the inbox that it leads to")
        if self.kind == "dsn" and self.secret_headers:
            raise ValueError("a dsn is sent in no header: it has no `secret_headers`")
        if len(set(self.header_names)) != len(self.header_names):
            raise ValueError("the same header twice")
        if reserved := sorted(SENDER_HEADERS.intersection(self.header_names)):
            raise ValueError(f"set by the sender itself: {', '.join(reserved)}")
        return self

    @property
    def sent(self) -> tuple[tuple[str, str], ...]:
        """Each header that it is sent in, with the reference to its secret; `secret` first. None for a dsn."""
        if self.kind == "dsn":
            return ()
        return ((self.header or "Authorization", self.secret), *self.secret_headers.items())

    @property
    def header_names(self) -> tuple[str, ...]:
        """The names of those headers, in lower case."""
        return tuple(name.lower() for name, _ in self.sent)

    @property
    def references(self) -> tuple[str, ...]:
        """All references to secrets; `secret` first."""
        return (self.secret, *self.secret_headers.values())

    @property
    def per_tenant(self) -> bool:
        """Each tenant has a secret of its own."""
        return any("{tenant}" in reference for reference in self.references)

    @property
    def account_id(self) -> str:
        """The account that the credential belongs to."""
        return self.account or self.id

    def shares_power_with(self, other: "Auth") -> bool:
        """Whether one holds the secret that decides what the other may do. References are compared, never secrets."""
        return self.secret in other.references or other.secret in self.references
