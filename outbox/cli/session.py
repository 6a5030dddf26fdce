"""One run of the command line: what was asked for globally, where the database is, and how it ends."""

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from outbox.cli import output
from outbox.errors import (
    ConfigError,
    DatabaseError,
    IntentConflict,
    IntentRace,
    NotFound,
    OutboxError,
    Problem,
    ReceiverError,
    Refused,
    UnknownTool,
)
from outbox.settings import Configuration, Settings, load_configuration, load_settings
from outbox.store import Store

Result = TypeVar("Result")

# Where `outbox dev` says, while it runs, which database it has made for this folder.
DEV_DSN_FILE: Final = Path(".outbox") / "dsn"

# The most specific class that an error is an instance of decides; everything else of ours is a wrong call.
EXIT_CODES: Final[tuple[tuple[type[OutboxError] | tuple[type[OutboxError], ...], int], ...]] = (
    ((NotFound, UnknownTool), 3),
    (Refused, 4),
    (DatabaseError, 5),
    ((IntentConflict, IntentRace), 6),
    (ReceiverError, 4),
    (OutboxError, 2),
)


def exit_code_of(error: OutboxError) -> int:
    """The exit code that an error ends with."""
    return next(code for kinds, code in EXIT_CODES if isinstance(error, kinds))


@dataclass
class Session:
    """The global options, and what follows from them."""

    config: Path | None = None
    tenant: str | None = None
    as_json: bool = False
    debug: bool = False
    # What stands on stdout is a stream of documents: an error is none of them, and goes to stderr.
    streaming: bool = False

    def settings(self) -> Settings:
        """The settings of the file, the environment and nothing else."""
        return load_settings(self.config)

    def configuration(self) -> Configuration:
        """The whole file."""
        return load_configuration(self.config)

    def dsn(self, settings: Settings) -> str:
        """The database: the configured one, else that of an `outbox dev` that runs in this folder."""
        if settings.database.dsn is None and DEV_DSN_FILE.is_file():
            return DEV_DSN_FILE.read_text("utf-8").strip()
        return settings.dsn

    def needed_tenant(self) -> str:
        """The tenant, where there is no way to guess it."""
        if self.tenant is None:
            raise click.UsageError("Whose operation is it? Name the tenant with --tenant.", click.get_current_context())
        return self.tenant

    @asynccontextmanager
    async def store(self, *groups: str) -> AsyncIterator[Store]:
        """The database with the statements of these groups."""
        settings = self.settings()
        async with Store(self.dsn(settings), *groups, name="outbox cli", pooler=settings.database.pooler) as opened:
            yield opened

    def run(self, job: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end."""
        return asyncio.run(job)


def fail(session: Session, code: str, message: str, hint: str | None = None, problems: Iterable[Problem] = ()) -> None:
    """Print an error: with --json on stdout, as the one document; else for people, on stderr."""
    listed = list(problems)
    if session.as_json:
        error: dict[str, Any] = {"code": code, "message": message, "hint": hint}
        if listed:
            error["problems"] = [
                {"place": problem.place, "message": problem.message, "code": problem.code} for problem in listed
            ]
        output.write_json({"error": error}, sys.stderr if session.streaming else sys.stdout)
        return
    if listed:
        count = f"{len(listed)} problems" if len(listed) > 1 else "one problem"
        message = f"{'The configuration has' if code == ConfigError.code else 'There is'} {count}:"
    output.complain(message, hint, [str(problem) for problem in listed])
