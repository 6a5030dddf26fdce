"""
Every error that this project raises on purpose.

    OutboxError
    |-- Misuse                       you: the call or the file is wrong, and will be wrong again
    |   |-- InvalidIntent            an intent breaks a rule; `problems` says which, and where
    |   |-- JsonRefused              a JSON value would not arrive as it was given; `reason` names why
    |   |-- IntentConflict           that id already names another action; `fields` says what differs
    |   |-- IntentRace               another transaction is writing that id: roll back, and run yours again
    |   |-- UnknownTool              no such tool in this database
    |   |-- UnsupportedConnection    not a connection that put, get and wait can use
    |   |-- NotInTransaction         a put where nothing would commit together with it
    |   |-- WaitInsideTransaction    waiting here could never see the end
    |   |-- FeedReset                the cursor is of another life of the database
    |   |-- ConfigError              the configuration is wrong; `problems` has all of it
    |   |-- IllegalMove              not a move of the state table
    |   |-- Refused                  an operator's act is not allowed now
    |   |-- NotFound                 nothing has that name
    |   `-- AmbiguousId              several tenants have an operation of that id
    |-- ReceiverError                they: the receiver, or the way to it
    |   |-- UnsafeTarget             an address, a path or a header that must not be used
    |   |-- UnknownTransport         no receiver of that transport is installed
    |   `-- SecretMissing            a reference to a secret leads nowhere
    `-- DatabaseError                the database, or our place in it
        |-- LeaseLost                somebody else holds the lane
        |-- SchemaMismatch           the schema is not one that this program knows
        |-- DatabaseUnavailable      no answer
        |-- NotPermitted             the role lacks a right
        |-- Unstorable               a value that no column takes
        |-- RolesRefused             this installation does not let us make roles; the hint has the SQL to run
        `-- RoleSettings             the role lacks a setting that a promise rests on

What a receiver *answers* is no error: it is an outcome (`outbox.outcome`).
The docstring of a class is its default message. `code` is stable and appears in `--json`; `hint` says what to do.
No message holds arguments, bodies or secrets.
"""

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what, and a stable word for it."""

    place: str
    message: str
    code: str = "invalid"

    def __str__(self) -> str:
        """`place: message`."""
        return f"{self.place}: {self.message}" if self.place else self.message


class OutboxError(Exception):
    """Something is wrong."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message or (inspect.getdoc(type(self)) or "").partition("\n\n")[0].replace("\n", " "))
        self.hint = hint

    @property
    def message(self) -> str:
        """What happened, without the hint."""
        return str(self.args[0])

    def __str__(self) -> str:
        stop = "" if self.message.endswith((".", "!", "?", ":")) else "."
        return f"{self.message}{stop} {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle calls the class with `args`, which hold the finished message and not what the subclass was made from.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[OutboxError], args: tuple[Any, ...], facts: dict[str, Any]) -> OutboxError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


# ----------------------------------------------------------------------------------------------------------------- you


class Misuse(OutboxError):
    """The call is wrong, and will be wrong again."""

    code = "misuse"


class _Problems(Misuse):
    problems: tuple[Problem, ...]

    def __init__(self, problems: Iterable[Problem], *, hint: str | None = None) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)) or None, hint=hint)

    @classmethod
    def at(cls, place: str, message: str, code: str = "invalid", *, hint: str | None = None) -> Self:
        """The error of one problem."""
        return cls([Problem(place, message, code)], hint=hint)


class InvalidIntent(_Problems, ValueError):
    """The intent breaks a rule."""

    code = "invalid_intent"


class ConfigError(_Problems):
    """The configuration is wrong."""

    code = "config_error"


class JsonRefused(Misuse, ValueError):
    """The JSON value would not arrive as it was given."""

    code = "json_refused"

    def __init__(self, reason: str, place: str, detail: str) -> None:
        super().__init__(str(Problem(place, detail)))
        self.reason = reason
        self.place = place
        self.detail = detail


class IntentConflict(Misuse):
    """The operation id already names another action."""

    code = "intent_conflict"

    def __init__(self, operation_id: str, fields: Sequence[str]) -> None:
        super().__init__(
            f"Operation {operation_id!r} exists, and differs in: {', '.join(fields)}.",
            hint="The same id is the same action: take a new id for a new action.",
        )
        self.operation_id = operation_id
        self.fields = tuple(fields)


class IntentRace(Misuse):
    """Another transaction wrote the same operation id first, which this transaction cannot see."""

    code = "intent_race"

    def __init__(self, message: str | None = None, *, sqlstate: str = "40001") -> None:
        super().__init__(message, hint="Roll back, and run the whole transaction again.")
        self.sqlstate = sqlstate


class UnknownTool(Misuse):
    """No such tool is registered in this database."""

    code = "unknown_tool"


class UnsupportedConnection(Misuse, TypeError):
    """Not a connection that an intent can be written on."""

    code = "unsupported_connection"


class NotInTransaction(Misuse):
    """The connection is in no transaction: the intent would commit alone, whatever becomes of your own rows."""

    code = "not_in_transaction"


class FeedReset(Misuse):
    """The end that this cursor names is not there: the database is another one, or lost it in a failover."""

    code = "feed_reset"


class WaitInsideTransaction(Misuse):
    """The operation was put by a transaction that is still open: it cannot end before that commits."""

    code = "wait_inside_transaction"


class IllegalMove(Misuse):
    """Not a move of the state table."""

    code = "illegal_move"


class Refused(Misuse):
    """That is not allowed now."""

    code = "refused"


class NotFound(Misuse):
    """Nothing has that name."""

    code = "not_found"


class AmbiguousId(Misuse):
    """Several tenants have an operation of that id."""

    code = "ambiguous_id"

    def __init__(self, operation_id: str, tenants: Sequence[str]) -> None:
        super().__init__(
            f"Operation {operation_id!r} exists for tenants {', '.join(tenants)}.", hint="Name one with --tenant."
        )
        self.operation_id = operation_id
        self.tenants = tuple(tenants)


# ---------------------------------------------------------------------------------------------------------------- they


class ReceiverError(OutboxError):
    """The receiver, or the way to it, is wrong."""

    code = "receiver_error"


class UnsafeTarget(ReceiverError):
    """The target must not be used."""

    code = "unsafe_target"


class UnknownTransport(ReceiverError):
    """No receiver of that transport is installed."""

    code = "unknown_transport"


class SecretMissing(ReceiverError):
    """The reference to a secret leads nowhere."""

    code = "secret_missing"


# ------------------------------------------------------------------------------------------------------------ database


class DatabaseError(OutboxError):
    """The database cannot do that."""

    code = "database_error"


class LeaseLost(DatabaseError):
    """Somebody else holds the lane, or nobody does."""

    code = "lease_lost"


class SchemaMismatch(DatabaseError):
    """The schema is not one that this program knows."""

    code = "schema_mismatch"


class DatabaseUnavailable(DatabaseError):
    """The database does not answer."""

    code = "database_unavailable"


class NotPermitted(DatabaseError):
    """The database role lacks a right."""

    code = "not_permitted"


class Unstorable(DatabaseError):
    """A value cannot be stored."""

    code = "unstorable"


class RolesRefused(DatabaseError):
    """This installation does not let us make roles."""

    code = "roles_refused"


class RoleSettings(DatabaseError):
    """The database role lacks a setting that a promise rests on."""

    code = "role_settings"
