"""Pages of docs/operate/runbooks as a test plays them: commands by section, and what each must print.

A console block holds commands after `$ `, each followed by lines of its output. `…` stands for any
text; words in capitals, such as `TYPE`, for what the test gives. A command that ends with a
backslash, and a line of output that ends with `…` before one that begins with it, continue there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tests.support.documents import ROOT, block_commands, code_blocks
from tests.support.waiting import wait_for

from hourmark.process.alarms import RUNBOOKS

SECTIONS: Final = ("What you see", "What it means", "What to do", "When it is over")
SEEN, TO_DO, OVER = SECTIONS[0], SECTIONS[2], SECTIONS[3]
_ANY: Final = "…"

Execute = Callable[[str], str]  # a command line; what it prints on stdout and stderr


@dataclass(frozen=True, slots=True)
class Command:
    """A command line of a page, and the lines that its output must have, in any order."""

    line: str
    output: tuple[str, ...]

    def filled(self, names: Mapping[str, str]) -> Command:
        """With the test's values for the words in capitals."""

        def fill(text: str) -> str:
            for name, value in names.items():
                text = re.sub(rf"\b{name}\b", value, text)
            return text

        return Command(fill(self.line), tuple(map(fill, self.output)))

    def missing(self, printed: str) -> list[str]:
        """Lines of the page that are in no line of what was printed."""
        lines = [" ".join(line.split()) for line in printed.splitlines()]
        return [
            wanted
            for wanted in self.output
            if not any(_pattern(wanted).fullmatch(line) for line in lines)
        ]


def _pattern(line: str) -> re.Pattern[str]:
    parts = [re.escape(part.strip()) for part in " ".join(line.split()).split(_ANY)]
    return re.compile(" ?.*".join(parts))


@dataclass(frozen=True, slots=True)
class Page:
    """A runbook."""

    name: str
    text: str

    @classmethod
    def read(cls, name: str) -> Page:
        """From the folder of runbooks."""
        return cls(name, (ROOT / RUNBOOKS / f"{name}.md").read_text())

    @property
    def sections(self) -> dict[str, str]:
        """Text by heading, in the page's order."""
        _, *parts = re.split(r"^## ", self.text, flags=re.MULTILINE)
        return {heading: text for heading, _, text in (part.partition("\n") for part in parts)}

    def blocks(self, section: str) -> list[list[Command]]:
        """The commands of each console block."""
        return [parse_commands(body) for body in code_blocks(self.sections[section], "console")]

    def play(
        self,
        section: str,
        execute: Execute,
        names: Mapping[str, str] = MappingProxyType({}),
        *,
        block: int | None = None,
        within_s: float = 300.0,
    ) -> None:
        """Run the section's commands in turn, or those of one block, each until it prints what the
        page says; `names` has a value for each word in capitals.
        """
        blocks = self.blocks(section)
        for command in (c for b in (blocks if block is None else [blocks[block]]) for c in b):
            _play(command.filled(names), execute, within_s)


def parse_commands(body: str) -> list[Command]:
    """The commands of a console block, in its order."""
    return [
        Command(line, tuple(_joined(filter(str.strip, output.splitlines()))))
        for line, output in block_commands(body)
    ]


def _joined(output: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for line in output:
        if lines and lines[-1].endswith(_ANY) and line.lstrip().startswith(_ANY):
            lines[-1] += line.strip()
        else:
            lines.append(line)
    return lines


def _play(command: Command, execute: Execute, within_s: float) -> None:
    printed = ""

    def prints() -> bool:
        nonlocal printed
        printed = execute(command.line)
        return not command.missing(printed)

    try:
        wait_for(prints, f"{command.line!r} prints what its runbook says", within_s, 1.0)
    except AssertionError as error:
        raise AssertionError(f"{error}: {command.missing(printed)} not in:\n{printed}") from None


def pages() -> list[Page]:
    """All of them."""
    files = sorted((ROOT / RUNBOOKS).glob("*.md"))
    return [Page.read(file.stem) for file in files if file.name != "index.md"]
