"""docs/reference/commands.md and docs/reference/commands/*.md are the help of the commands, whose
examples parse.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from tests.support.documents import console_lines, resolved
from tools.commands_page import FOLDER, OVERVIEW, pages

from hourmark.cli import COMMANDS, root

PAGES = pages()
EXAMPLES = sorted(
    {line for text in PAGES.values() for line in console_lines(text.replace("\\\n", ""))}
)


def commands(command: click.Command, words: tuple[str, ...] = ("hourmark",)) -> list[str]:
    """The command and all commands below it, as they are typed."""
    if not isinstance(command, click.Group):
        return [" ".join(words)]
    context = click.Context(command)
    inner = [
        name
        for word in command.list_commands(context)
        if (below := command.get_command(context, word))
        for name in commands(below, (*words, word))
    ]
    return [" ".join(words), *inner]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_what_the_generator_gives(path: str) -> None:
    assert (FOLDER / path).read_text() == PAGES[path], "run `python -m tools.commands_page`"


def test_there_is_no_other_page() -> None:
    found = {str(path.relative_to(FOLDER)) for path in (FOLDER / "commands").iterdir()}
    assert {OVERVIEW, *found} == set(PAGES)


def test_each_command_has_a_section_and_each_of_the_first_level_a_row() -> None:
    titles = [
        title for text in PAGES.values() for title in re.findall(r"^#+ (hourmark .*)$", text, re.M)
    ]
    assert sorted(titles) == sorted(commands(root)[1:])
    assert [name for name in COMMANDS if f"[`hourmark {name}`](" not in PAGES[OVERVIEW]] == []


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_of_the_help_parses(line: str, tmp_path: Path) -> None:
    words = shlex.split(line, comments=True)
    start = len(words) - words[::-1].index("hourmark")  # the last command of a pipe
    end = next((n for n, word in enumerate(words) if n > start and word in ("|", ">")), None)
    command, arguments = resolved([there(word, tmp_path) for word in words[start:end]])
    with command.make_context(command.name, arguments):  # parses and checks, runs nothing
        pass


def there(word: str, folder: Path) -> str:
    """A word of a command; an empty file in its place where it names a file."""
    if not re.search(r"\.(toml|log|json|properties)$|^/var/log/\w+$", word):
        return word
    place = folder / Path(word).name
    place.touch()
    return str(place)


def test_every_example_is_found() -> None:
    assert len(EXAMPLES) > 100
