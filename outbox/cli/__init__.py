"""
The command `outbox`.

One module per kind of act, imported when one of its commands is called (the table below): `outbox --help` waits for no
driver.

Exit codes: 0 done, 2 usage, 3 not found, 4 refused, 5 database, 6 conflict; 1 is a fault of this program.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import click

from outbox.cli.commands import Lazy
from outbox.cli.session import Session, exit_code_of, fail
from outbox.errors import OutboxError

COMMANDS = {
    "Set up": {
        "init": ("setup", "Write a first outbox.toml."),
        "migrate": ("setup", "Bring the database to this version's schema."),
        "apply": ("setup", "Store the receivers, tools and contracts of a file."),
        "contracts": ("setup", "Print what each tool's contract promises."),
        "completion": ("completion", "Complete commands in bash, zsh or fish."),
        "inbox": ("inbox", "Install an inbox in the database of a receiver."),
    },
    "Write": {
        "put": ("write", "Put one intent."),
    },
    "Look": {
        "list": ("lists", "List operations, the newest first."),
        "stuck": ("stuck", "List what will not move on its own, or is late."),
        "show": ("read", "Show everything about one operation."),
        "why": ("read", "Explain one operation in sentences."),
        "feed": ("feed", "Tell how operations ended, each once, in order."),
        "report": ("report", "Count what happened lately, by tool and receiver."),
        "doctor": ("doctor", "Check everything, and say what to do."),
        "top": ("top", "Watch receivers and daemons."),
    },
    "Decide": {
        "approve": ("permit", "Permit a proposed operation."),
        "revoke": ("permit", "Withdraw a permission."),
        "cancel": ("act", "End an operation that hides no effect."),
        "retry": ("act", "Try again now, where that is safe."),
        "resolve": ("act", "State what happened to an unknown operation."),
        "unblock": ("order", "Let an ordering key pass an operation."),
        "expedite": ("order", "Begin an operation next."),
    },
    "Keep": {
        "pause": ("hold", "Stop attempts of a receiver, a tool or a tenant."),
        "resume": ("hold", "Let them begin again."),
        "purge": ("history", "Move old history into tombstones."),
        "redact": ("history", "Remove personal data from an ended operation."),
        "repair": ("history", "Place intents that no trigger has placed."),
        "audit": ("history", "List who did what, and why."),
    },
    "Run": {
        "relay": ("run", "Deliver intents to their receivers."),
        "reconciler": ("run", "Settle what is unknown."),
        "dev": ("run", "Run everything in this terminal, on an embedded PostgreSQL."),
        "demo": ("run", "Run the main job while it is being broken, and judge it."),
    },
}


@click.command(cls=Lazy, commands_by_section=COMMANDS)
@click.version_option(package_name="outbox-relay", prog_name="outbox")
def cli() -> None:
    """
    Operations with real effects, and an honest answer about each.

    A service puts intents in its own transactions; the relay delivers them; the reconciler settles what is unknown.

    \b
    Examples:
      outbox init && outbox dev          everything in one terminal
      outbox stuck                       what needs somebody
      outbox why order-17                what is known about one operation, and what follows
    """  # noqa: D301 - click's own mark for lines that it leaves alone


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. No traceback reaches a user unless `--debug` asks for it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    session = Session(as_json="--json" in arguments, debug="--debug" in arguments)
    before, sys.excepthook = sys.excepthook, _excepthook(session)
    code = _run(session, arguments)
    # Not in a `finally`: an exception that nobody foresaw is on its way to that hook.
    sys.excepthook = before
    return code


def _run(session: Session, arguments: list[str]) -> int:
    try:
        code = cli.main(arguments, prog_name="outbox", standalone_mode=False, obj=session)
        sys.stdout.flush()
    except click.ClickException as error:
        hint = None
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"See: {error.ctx.command_path} --help"
        fail(session, "usage", error.format_message(), hint)
        return 2
    except OutboxError as error:
        if session.debug:
            traceback.print_exc()
        fail(session, error.code, error.message, error.hint, getattr(error, "problems", ()))
        return exit_code_of(error)
    except (click.Abort, KeyboardInterrupt):
        fail(session, "interrupted", "Interrupted.", None)
        return 130
    except (BrokenPipeError, SystemExit) as error:
        # Click and Rich both turn a broken pipe into an exit with 1, which here is a fault of this program.
        if not isinstance(error if isinstance(error, BrokenPipeError) else error.__context__, BrokenPipeError):
            raise
        # Whoever read our output has enough of it. What is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def _excepthook(session: Session) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    """What nobody foresaw: one sentence for users, the traceback for whoever asks for it. Python exits with 1."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if session.debug:
            traceback.print_exception(kind, error, trace)
            return
        place = traceback.extract_tb(trace)[-1] if trace else None
        where = f" at {Path(place.filename).name}, line {place.lineno}" if place else ""
        message = f"This is a fault of the program, not yours: {kind.__name__}{where}."
        fail(session, "bug", message, "Run it again with --debug, and report what that prints.")

    return hook
