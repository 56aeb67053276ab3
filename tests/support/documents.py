"""What documents name: files, tests and commands. Pure, but for a look whether a file is there."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from hourmark.cli import root

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = tuple(
    ROOT / room
    for room in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"][
        "members"
    ]
)
SHORT: Final = {
    "u/": "tests/unit/etl/",
    "i/": "tests/integration/",
}  # in docs/internals/reliability.md
OTHERS: Final = (
    "./hourmark.toml",
    "hourmark.toml",
    "types/sources.toml",
    "named-files.json",
    "_index/",
    "_surplus/",
    "_unaudited/",
)  # of those who run Hourmark, or of storage
_CODE: Final = re.compile(r"`([^`\n]+)`")
_PATH: Final = re.compile(
    r"((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml|json|yaml|lock)|…)(?:::(\w+))?"
)
_LINK: Final = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def documents() -> list[Path]:
    """All that people read: those at the top, in docs, and each room's own."""
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *(room / "README.md" for room in ROOMS),
    ]


def without_blocks(text: str) -> str:
    """The text without what stands between fences: that is code of its own."""
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def named(text: str) -> list[tuple[str, str]]:
    """Files or folders in backticks, and the test in each or "", in their order; `…::test` is in
    the file named before.
    """
    found: list[tuple[str, str]] = []
    for code in _CODE.findall(without_blocks(text)):
        if (match := _PATH.fullmatch(code)) and code not in ("…", *OTHERS):
            path, name = match.group(1), match.group(2) or ""
            found.append(
                (found[-1][0] if path == "…" else SHORT.get(path[:2], path[:2]) + path[2:], name)
            )
    return found


def missing(text: str, folder: Path = ROOT) -> list[str]:
    """What is named, or linked from a document in `folder`, and is not there."""
    links = [link for link in _LINK.findall(without_blocks(text)) if "://" not in link]
    absent = [link for link in links if not (folder / link).exists()]
    for path, name in named(text):
        place = next((base / path for base in _bases() if (base / path).exists()), None)
        if place is None:
            absent.append(path)
        elif name and name not in {
            n.name for n in ast.walk(ast.parse(place.read_text())) if isinstance(n, ast.FunctionDef)
        }:
            absent.append(f"{path}::{name}")
    return absent


def _bases() -> Iterator[Path]:
    """Where a short path may begin: the top, a room, its package."""
    yield ROOT
    for room in ROOMS:
        yield room
        yield from room.glob("hourmark*")


def console_lines(text: str) -> list[str]:
    """What console blocks say after `$ `."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def console_commands(text: str) -> list[tuple[str, str]]:
    """Return each command of the console blocks of a page, with the output that the page shows.

    A line that ends with a backslash continues on the next one. The output is an empty string if
    the page shows none.
    """
    blocks = "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL))
    joined = re.sub(r"\\\n *", "", blocks)
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", joined, re.MULTILINE)


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command of Hourmark that these words begin with, and the words after its name."""
    found: click.Command = root
    while isinstance(found, click.Group):
        if found.invoke_without_command and (not words or words[0].startswith("-")):
            break
        assert words, f"{found.name} is a group, and no command"
        inner = found.get_command(click.Context(found), words[0])
        assert inner is not None, f"no command {words[0]}"
        found, words = inner, words[1:]
    return found, words
