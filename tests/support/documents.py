"""What documents name: files, tests and commands. Pure, but for a look whether a file is there."""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
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
OTHERS: Final = (
    "./hourmark.toml",
    "hourmark.toml",
    "types/sources.toml",
    "conftest.py",
    "named-files.json",
    "_index/",
    "_surplus/",
    "_unaudited/",
)  # of those who run Hourmark, or of storage
_CODE: Final = re.compile(r"`([^`\n]+)`")
_PATH: Final = re.compile(
    r"((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml|json|yaml|lock)|…)(?:::(\w+))?"
)
_BLOCK: Final = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_COMMAND: Final = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
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
        if (match := _PATH.fullmatch(code)) and not _is_of_users(code):
            path, name = match.group(1), match.group(2) or ""
            found.append((found[-1][0] if path == "…" else path, name))
    return found


def _is_of_users(path: str) -> bool:
    return path in ("…", *OTHERS) or path.startswith("pipeline/")  # what `hourmark init` writes


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


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """Return the language and the content of each code block that names its language.

    Blocks may be indented, as within a numbered list; their content is not.
    """
    return [(language, textwrap.dedent(body)) for _, language, body in _BLOCK.findall(text)]


def code_blocks(text: str, language: str) -> list[str]:
    """Return the content of each code block of a language."""
    return [body for named, body in fenced_blocks(text) if named == language]


def block_commands(block: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output that the block shows, or "".

    A command follows `$ `; continued lines are joined.
    """
    return [
        (re.sub(r" *\\\n *", " ", command), output) for command, output in _COMMAND.findall(block)
    ]


def console_commands(text: str) -> list[tuple[str, str]]:
    """Return the commands of all console blocks of a page with their output."""
    return [command for block in code_blocks(text, "console") for command in block_commands(block)]


def console_lines(text: str) -> list[str]:
    """Return the commands of console blocks without their output."""
    return [command for command, _ in console_commands(text)]


def simple_commands(line: str) -> list[list[str]]:
    """Return the words of each simple command of a shell line, without redirections.

    Assignments and keywords before a command are left out. `a && X=1 b > c` has the commands `a` and `b`.
    """
    tokens = shlex.shlex(line, posix=True, punctuation_chars=True)
    tokens.whitespace_split = True
    found: list[list[str]] = [[]]
    redirected = False
    for token in tokens:
        if set(token) <= {*"();|&"}:
            found.append([])
        elif set(token) <= {*"<>&"}:
            redirected = True
        elif redirected:
            redirected = False
        elif found[-1] or not (_ASSIGNMENT.match(token) or token in ("do", "then")):
            found[-1].append(token)
    return [words for words in found if words]


def hourmark_arguments(words: list[str]) -> list[str] | None:
    """Return the arguments of Hourmark within a simple command, or None if it runs another program.

    Sees through `sudo`, `ssh`, `kubectl exec … --` and containers:
    `docker compose exec etl /opt/hourmark/hourmark bucket ls` has the arguments `bucket ls`.
    """
    if not words:
        return None
    program, *rest = words
    if program == "hourmark" or program.endswith("/hourmark"):
        return rest
    if program in ("sudo", "ssh"):
        while rest and rest[0].startswith("-"):
            rest = rest[2:] if rest[0] in ("-u", "-g", "-p", "-i") else rest[1:]
        return hourmark_arguments(rest[1:] if program == "ssh" else rest)
    if program in ("kubectl", "runuser") and "--" in rest:
        return hourmark_arguments(rest[rest.index("--") + 1 :])
    if program in ("docker", "podman", "podman-compose"):
        for place, word in enumerate(rest):
            if word.endswith("/hourmark") or (word == "operator" and "run" in rest[:place]):
                return rest[place + 1 :]
    return None


def all_commands(
    command: click.Command = root, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all commands below it, each with the words after `hourmark`."""
    yield " ".join(words), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            below = command.get_command(context, word)
            assert below is not None
            yield from all_commands(below, (*words, word))


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command of Hourmark that these words begin with, and the words after its name."""
    found: click.Command = root
    while isinstance(found, click.Group):
        if found.invoke_without_command and (not words or words[0].startswith("-")):
            break
        if found is root and words == ["--version"]:
            break
        assert words, f"{found.name} is a group, and no command"
        inner = found.get_command(click.Context(found), words[0])
        assert inner is not None, f"no command {words[0]}"
        found, words = inner, words[1:]
    return found, words
