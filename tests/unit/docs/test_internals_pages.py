"""docs/internals: each command exists with its options, and each program that is run exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from tests.faults.chaos.__main__ import chaos
from tests.support.documents import ROOT, console_lines, resolved, without_blocks

from hourmark.cli import root

PAGES = [
    page
    for page in sorted((ROOT / "docs" / "internals").glob("*.md"))
    if not page.name.startswith("evidence-") or page.name == "evidence-chaos.md"
]
LINES = [line for page in PAGES for line in console_lines(page.read_text())]
MENTIONED = sorted(
    {
        code.removeprefix("./")
        for page in PAGES
        for code in re.findall(r"`((?:\./)?hourmark [^`\n]+)`", without_blocks(page.read_text()))
    }
)
MODULES = sorted(
    {
        name
        for page in PAGES
        for name in re.findall(r"python -m ((?:bench|tools)\.\w+)", page.read_text())
    }
)


def parsed(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command, also one of the chaos tests, and the words after its name."""
    if words[0] == "chaos" and words[1:]:
        found = chaos.get_command(click.Context(chaos), words[1])
        assert found is not None, words
        return found, words[2:]
    return resolved(words)


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_parses(line: str) -> None:
    words = [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=\S+", word)]
    if words[0] == ".venv/bin/python":
        module, name = words[1:3]
        assert module == "-m" and (name == "pytest" or name in MODULES)
        assert all((ROOT / word).exists() for word in words[3:])
        return
    assert words[0].removeprefix("./") == "hourmark"
    command, arguments = parsed(words[1:])
    with command.make_context(
        command.name, [word.replace("schedule.json", "pyproject.toml") for word in arguments]
    ):
        pass


@pytest.mark.parametrize("line", MENTIONED)
def test_a_command_that_is_mentioned_exists_with_its_options(line: str) -> None:
    words = shlex.split(line)[1:]
    if isinstance(root.get_command(click.Context(root), words[0]), click.Group) and not words[1:]:
        return  # a group, without one of its commands
    command, arguments = parsed(words)
    if command.name == "bench":  # passes its options on; the benchmark's own parser knows them
        source = "".join(file.read_text() for file in (ROOT / "bench").glob("*.py"))
        assert (ROOT / "bench" / f"{arguments[0]}.py").exists()
        assert [w for w in arguments if w.startswith("--") and f'"{w}"' not in source] == []
        return
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in arguments if word.startswith("--")} <= known


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_is_run_exists(name: str) -> None:
    path = ROOT / Path(*name.split(".")).with_suffix(".py")
    assert "__main__" in path.read_text()


def test_commands_are_found() -> None:
    assert len(LINES) >= 5 and len(MENTIONED) > 20 and len(MODULES) >= 5
