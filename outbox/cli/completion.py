"""completion: what a shell needs to complete commands and options."""

import click
from click.shell_completion import get_completion_class

from outbox.cli.commands import act
from outbox.cli.output import write_json
from outbox.cli.session import Session

SHELLS = ("bash", "zsh", "fish")


@act("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(session: Session, shell: str) -> None:
    """
    Print the script that completes commands and options in a shell.

    \b
    Examples:
      outbox completion bash > ~/.local/share/bash-completion/completions/outbox
      outbox completion zsh > ~/.zfunc/_outbox
      outbox completion fish > ~/.config/fish/completions/outbox.fish
    """  # noqa: D301
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    root = click.get_current_context().find_root().command
    completer = found(root, {}, "outbox", "_OUTBOX_COMPLETE")
    # Not `source()`: it would start that shell to ask for its version.
    script = completer.source_template % completer.source_vars()
    if session.as_json:
        write_json({"shell": shell, "script": script})
    else:
        click.echo(script)
