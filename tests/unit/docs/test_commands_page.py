"""docs/reference/commands.md and docs/reference/commands/*.md are the help of the commands.

Whether its examples parse: test_commands.py.
"""

from __future__ import annotations

import re

import pytest
from tests.support.documents import all_commands, console_lines
from tools.commands_page import FOLDER, OVERVIEW, pages

from hourmark.cli import COMMANDS

PAGES = pages()
EXAMPLES = {line for text in PAGES.values() for line in console_lines(text)}


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
    assert sorted(titles) == sorted(f"hourmark {words}" for words, _ in all_commands() if words)
    assert [name for name in COMMANDS if f"[`hourmark {name}`](" not in PAGES[OVERVIEW]] == []


def test_every_example_is_found() -> None:
    assert len(EXAMPLES) > 100
