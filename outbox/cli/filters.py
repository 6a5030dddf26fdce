"""Selecting by tool, receiver and cause: the same options wherever something is listed, or done to many."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from outbox.errors import NotFound
from outbox.settings.problems import did_you_mean, nobody_has
from outbox.states import Cause
from outbox.store import Store

Function = TypeVar("Function", bound=Callable[..., Any])


class CauseName(click.ParamType[str]):
    """A word of the vocabulary of causes."""

    name = "cause"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take the word, or say which one was probably meant."""
        known = [cause.value for cause in Cause]
        if value not in known:
            self.fail(f"there is no cause {value!r}{did_you_mean(value, known)}", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Offer what begins so."""
        return [CompletionItem(cause.value) for cause in Cause if cause.value.startswith(incomplete)]


CAUSE: Final = CauseName()


def filters(function: Function) -> Function:
    """Add --tool, --receiver and --cause to a command that lists."""
    for option in (
        click.option("--cause", type=CAUSE, metavar="CAUSE", help='Those that are there for this cause, as "timeout".'),
        click.option("--receiver", help="Those of this receiver."),
        click.option("--tool", help="Those of this tool."),
    ):
        function = option(function)
    return function


async def check_names(store: Store, *, tool: str | None = None, receiver: str | None = None) -> None:
    """
    For a selection in which there is nothing: raise NotFound where it names a tool or a receiver that nobody knows.

    Only then, since a tool that was removed has its history still. The store holds the statements of `registry`.
    """
    for kind, name, statement in (("tool", tool, "read_tools"), ("receiver", receiver, "read_receivers")):
        if name is None:
            continue
        known = [row["name"] for row in await store.dicts(statement)]
        if name not in known:
            raise NotFound(nobody_has(kind, name, known), hint="See: outbox contracts")
