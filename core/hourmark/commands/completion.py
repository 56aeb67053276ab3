"""`hourmark completion`: print a shell completion script.

The script requests completions from the installed program (click's protocol), so they always match
its version.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

SHELLS: Final = ("bash", "zsh", "fish")


def completion_script(shell: str) -> str:
    """Return the shell completion script for `hourmark`.

    Args:
        shell: `bash`, `zsh` or `fish`.

    Returns:
        The content of the script. Save it in the shell's completion folder.

    Raises:
        AssertionError: click does not support the shell.
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
    """Print the completion script for bash, zsh or fish.

    The Debian packages of Hourmark install this script.

    \b
    Examples:
      hourmark completion bash > ~/.local/share/bash-completion/completions/hourmark
      hourmark completion zsh > ~/.zfunc/_hourmark
      hourmark completion fish > ~/.config/fish/completions/hourmark.fish
    """
    click.echo(completion_script(shell))
