"""The sections of `outbox.toml` that say where the database is and how the daemons run."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from outbox.contract.tool import ReceiverName
from outbox.dsn import dsn_problem
from outbox.duration import Duration, parse_duration


def _check_dsn(dsn: str) -> str:
    if problem := dsn_problem(dsn):
        raise ValueError(problem)
    return dsn


Dsn = Annotated[str, Field(min_length=1, max_length=4_000), AfterValidator(_check_dsn)]


def _between(shortest: str, longest: str) -> AfterValidator:
    low, high = parse_duration(shortest), parse_duration(longest)

    def check(seconds: float) -> float:
        if not low <= seconds <= high:
            raise ValueError(f"it is between {shortest} and {longest}")
        return seconds

    return AfterValidator(check)


Pause = Annotated[Duration, _between("10ms", "1h")]
Port = Annotated[int, Field(ge=1, le=65_535)]


class Section(BaseModel):
    """One section of the file. Names that it does not know are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_by_name=True, validate_by_alias=True
    )


class DatabaseSettings(Section):
    """
    The database that holds the outbox.

    `pooler`: the DSNs lead through a transaction-mode pooler, so nothing may rest on a session and no statement is
    prepared. `listen_dsn` goes around it, for notifications; without one, behind a pooler, daemons only poll.
    `shared_role`: daemons may run as another role than `outbox_relay` and `outbox_reconciler`, whose settings are then
    checked at every start.
    """

    dsn: Dsn | None = Field(default=None, repr=False)
    listen_dsn: Dsn | None = Field(default=None, repr=False)
    pooler: bool = False
    shared_role: bool = False


class DaemonSettings(Section):
    """What both daemons have. `metrics_port` unset: no metrics are served."""

    dsn: Dsn | None = Field(default=None, repr=False)
    poll_seconds: Annotated[Duration, _between("10ms", "60s")] = Field(default=0.5, alias="poll")
    """How long an idle daemon waits before it looks again, however quiet the bell is."""
    grace_seconds: Annotated[Duration, _between("0s", "1h")] = Field(default=20.0, alias="grace")
    """After SIGTERM, how long work in flight may take to end."""
    registry_poll_seconds: Pause = Field(default=5.0, alias="registry_poll")
    heartbeat_seconds: Annotated[Duration, _between("100ms", "10s")] = Field(default=5.0, alias="heartbeat")
    """How often a daemon says that it lives; after 30 s of silence it counts as dead for people."""
    connections_max: int = Field(default=6, ge=2, le=100)
    metrics_port: Port | None = None
    metrics_host: str = "127.0.0.1"
    log: Literal["auto", "json", "console"] = "auto"
    """auto: for people on a terminal, JSON lines elsewhere."""


class RelaySettings(DaemonSettings):
    """
    The relay.

    `receivers`: serve these only. `batch_max` bounds what one statement begins where a resend is safe; elsewhere an
    operation begins only when a slot is free. `answers_max` bounds the answers that are kept in memory while the
    database is away: once it is reached, nothing new begins.
    """

    receivers: tuple[ReceiverName, ...] | None = None
    batch_max: int = Field(default=200, ge=1, le=10_000)
    answers_max: int = Field(default=10_000, ge=1, le=1_000_000)
    look_behind_seconds: Pause = Field(default=5.0, alias="look_behind")
    """How often a holder looks behind its cursor, for rows that committed late or were made due by others."""


class ReconcilerSettings(DaemonSettings):
    """
    The reconciler.

    `batch` operations are claimed at once, for the time `claim`. `concurrency` of each receiver's are looked up at a
    time, or as many as its own `concurrency` says if that is less.
    """

    batch_max: int = Field(default=100, ge=1, le=10_000, alias="batch")
    concurrency: int = Field(default=64, ge=1, le=1_000)
    claim_seconds: Pause = Field(default=60.0, alias="claim")
    belt_seconds: Pause = Field(default=10.0, alias="belt")
    """How often orphaned attempts and lapsed permissions are swept, by one reconciler at a time."""
