"""`hourmark completion`: print the script with which a shell completes commands and options.

Completions come from the installed program itself when they are requested (click's protocol), so
they always match its version.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

SHELLS: Final = ("bash", "zsh", "fish")


def completion_script(shell: str) -> str:
    """Return the script with which a shell completes commands and options of `hourmark`.

    Args:
        shell: `bash`, `zsh` or `fish`. Another name fails an assertion.

    Returns:
        The text of the script, to be stored in the shell's folder of completions.
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None, f"click does not support {shell}"
    return (
        completion_class.source_template
        % completion_class(click.Group(), {}, "hourmark", "_HOURMARK_COMPLETE").source_vars()
    )


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script with which SHELL completes `hourmark`. Debian packages install it.

    \b
    Examples:
      hourmark completion bash > ~/.local/share/bash-completion/completions/hourmark
      hourmark completion zsh > ~/.zfunc/_hourmark
      hourmark completion fish > ~/.config/fish/completions/hourmark.fish
    """
    click.echo(completion_script(shell))
