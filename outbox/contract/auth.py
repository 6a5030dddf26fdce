"""A credential: a reference to a secret, and the names by which it is known without it."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from outbox.contract.base import HeaderName, Part, refuse_words

SecretReference = Annotated[str, StringConstraints(pattern=r"^(?:env:[A-Za-z_][A-Za-z0-9_{}]*|file:/\S+)$")]
CredentialId = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,200}$")]


class Auth(Part):
    """
    A credential, by reference: `env:NAME` or `file:/path`, with `{tenant}` inside where each tenant has its own.

    `id` names the credential and `account` what it belongs to (the id, if left out): these are stored and compared, the
    secret never is. The secret of a `dsn` is a whole libpq connection string; its account is the name of the inbox.
    """

    kind: Annotated[Literal["bearer", "header", "dsn"], refuse_words("oauth2", "sigv4", "basic")]
    secret: SecretReference = Field(repr=False)
    id: CredentialId
    account: CredentialId | None = None
    header: HeaderName | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.kind == "header") != (self.header is not None):
            raise ValueError('`header` belongs to kind = "header", and to no other')
        if self.kind == "dsn" and self.account is None:
            raise ValueError("a dsn needs the `account`: the name of the inbox that it leads to")
        return self

    @property
    def per_tenant(self) -> bool:
        """Each tenant has a secret of its own."""
        return "{tenant}" in self.secret

    @property
    def account_id(self) -> str:
        """The account that the credential belongs to."""
        return self.account or self.id
