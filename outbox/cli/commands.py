"""What every command has: the global options, in front of its name or behind it, and help that teaches by example."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from outbox.cli.session import Session
from outbox.settings.problems import did_you_mean

Function = TypeVar("Function", bound=Callable[..., Any])

Sections = Mapping[str, Mapping[str, tuple[str, str]]]


def _store(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value:
            setattr(context.ensure_object(Session), name, value)

    return callback


def global_options() -> list[click.Parameter]:
    """The options that each command takes, wherever they stand."""
    return [
        click.Option(
            ["--config"],
            type=click.Path(path_type=Path),
            expose_value=False,
            callback=_store("config"),
            help="The file to read.  [default: $OUTBOX_CONFIG, else outbox.toml]",
        ),
        click.Option(
            ["--tenant"],
            expose_value=False,
            callback=_store("tenant"),
            help="Whose operations are meant.  [default: everybody's; put needs it]",
        ),
        click.Option(
            ["--json", "as_json"],
            is_flag=True,
            expose_value=False,
            callback=_store("as_json"),
            help="Print one JSON document, errors too.",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            expose_value=False,
            callback=_store("debug"),
            help="Print tracebacks.",
        ),
    ]


class Act(click.Command):
    """A command with the global options."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += global_options()


def act(name: str) -> Callable[[Function], Act]:
    """Make a command of a function that takes the session first. Its docstring is the help."""

    def decorate(function: Function) -> Act:
        return click.command(name, cls=Act)(click.pass_obj(function))

    return decorate


class Lazy(click.Group):
    """A group whose commands are imported when they are called. Their one-line helps stand in the table."""

    def __init__(self, *arguments: Any, commands_by_section: Sections, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sections = commands_by_section
        self.params += global_options()

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name them in the order of the table."""
        return [name for section in self._sections.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one."""
        for section in self._sections.values():
            if cmd_name in section:
                module = importlib.import_module(f"outbox.cli.{section[cmd_name][0]}")
                command: click.Command = getattr(module, f"{cmd_name}_command")
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called, or say which one was probably meant."""
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            raise click.UsageError(
                f"There is no command {args[0]!r}{did_you_mean(args[0], self.list_commands(ctx))}", ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the helps of all commands without importing one."""
        width = max(len(name) for section in self._sections.values() for name in section)
        for title, section in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), help_) for name, (_, help_) in section.items()])
