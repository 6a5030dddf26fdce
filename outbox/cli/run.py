"""relay, reconciler, dev, demo: the programs. Each is imported when it is started."""

import importlib
from pathlib import Path
from typing import Any

import click

from outbox.cli.commands import act
from outbox.cli.session import Session
from outbox.errors import ConfigError


def _start(session: Session, program: str, receivers: tuple[str, ...] = ()) -> int:
    arguments = ["--config", str(session.config)] if session.config is not None else []
    for name in receivers:
        arguments += ["--receiver", name]
    code: int = _import(f"{program}.__main__").main(arguments)
    return code


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError.at(
            "installation", f"{error.name} is not installed", "not_installed", hint="pip install 'outbox-relay[demo]'"
        ) from None


@act("relay")
@click.option("--receiver", "receivers", multiple=True, help="Serve this receiver only. May be given several times.")
def relay_command(session: Session, receivers: tuple[str, ...]) -> int:
    """
    Deliver intents to their receivers, until SIGTERM.

    As many as wanted, on as many hosts: they share the lanes. SIGTERM lets running attempts end; a second one does not.

    \b
    Examples:
      outbox relay
      outbox relay --receiver warehouse --receiver mail
    """  # noqa: D301
    return _start(session, "relay", receivers)


@act("reconciler")
@click.option("--receiver", "receivers", multiple=True, help="Ask this receiver only. May be given several times.")
def reconciler_command(session: Session, receivers: tuple[str, ...]) -> int:
    """
    Settle what is unknown: ask the receivers what happened, until SIGTERM. It causes no effect.

    \b
    Example:
      outbox reconciler
    """  # noqa: D301
    return _start(session, "reconciler", receivers)


@act("dev")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".outbox"),
    show_default=True,
    help="Where the data are kept.",
)
def dev_command(session: Session, folder: Path) -> int:
    """
    Run everything in this terminal: PostgreSQL, relay, reconciler, and an echo receiver with a ledger.

    Ctrl-C stops all of it, in order. So does the end of any of them, which is named (exit code 1). Each line says which
    program it is of; with --json, or where there is no terminal, it is a JSON object. Commands in other terminals of
    this folder find its database by themselves.

    \b
    Example:
      outbox init && outbox dev
    """  # noqa: D301
    code: int = _import("outbox.demo.dev").run(folder=folder, config=session.config, as_json=session.as_json)
    return code


@act("demo")
@click.option("--intents", type=click.IntRange(1, 1_000_000), default=2_000, show_default=True)
@click.option("--keep", is_flag=True, help="Leave everything running, and print how to look around.")
def demo_command(session: Session, intents: int, *, keep: bool) -> int:
    """
    Run the main job while it is being broken, and let the receiver's own ledger judge.

    Makes a database of its own (on OUTBOX_DEMO_DSN, else on an embedded PostgreSQL), and never touches another one.
    Ends with 1 if anything was duplicated or lost, or if a planned fault did not land.

    \b
    Examples:
      outbox demo
      outbox demo --intents 200 --json
    """  # noqa: D301
    code: int = _import("outbox.demo.run").run(intents=intents, as_json=session.as_json, keep=keep)
    return code
