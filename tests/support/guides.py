"""Pages of docs/how-to as a test follows them: files that they show, and commands with output.

A block whose first line is `# NAME.toml` is the content of that file. A console block holds
commands after `$ `, each followed by lines of its output (`tests/support/runbooks.py`).
`$ cat FILE` shows the content of a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.support.documents import ROOT, fenced_blocks
from tests.support.runbooks import Command, parse_commands

FOLDER: Final = ROOT / "docs" / "how-to"
_FILE: Final = re.compile(r"# (\w[\w/.-]*\.toml)\n")


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file of which a page shows the whole content."""

    name: str
    text: str


def steps(page: str) -> Iterator[ShownFile | Command]:
    """Yield files and commands of a page's text, in its order."""
    for language, body in fenced_blocks(page):
        if language == "toml" and (shown := _FILE.match(body)):
            yield ShownFile(shown[1], body)
        elif language == "console":
            yield from map(_file_or_command, parse_commands(body))


def commands(page: str) -> list[Command]:
    """Return the commands of a page's text, in its order."""
    return [step for step in steps(page) if isinstance(step, Command)]


def _file_or_command(command: Command) -> ShownFile | Command:
    program, _, name = command.line.partition(" ")
    if program != "cat" or " " in name or name.startswith("/"):
        return command
    return ShownFile(name, "".join(f"{line}\n" for line in command.output))
