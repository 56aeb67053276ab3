"""`hourmark completion`: the script by which a shell completes commands, options and their values.

What it offers comes from the program itself, as it is asked (click's protocol), so it is of the
version that is installed.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

SHELLS: Final = ("bash", "zsh", "fish")


def completion_script(shell: str) -> str:
    """What the shell reads, to complete a program `hourmark` on its path."""
    made = get_completion_class(shell)
    assert made is not None, f"click completes no {shell}"
    return (
        made.source_template
        % made(click.Group(), {}, "hourmark", "_HOURMARK_COMPLETE").source_vars()
    )


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script by which SHELL completes `hourmark`. Debian packages bring it.

    \b
    Examples:
      hourmark completion bash > ~/.local/share/bash-completion/completions/hourmark
      hourmark completion zsh > ~/.zfunc/_hourmark
      hourmark completion fish > ~/.config/fish/completions/hourmark.fish
    """
    click.echo(completion_script(shell))
