"""Each runbook has the same form, its commands exist, and it is linked from where operators meet
its fault.
"""

from __future__ import annotations

import functools
import re
import shlex

import pytest
from tests.support.documents import ROOT, resolved
from tests.support.runbooks import OVER, SECTIONS, SEEN, Command, Page, pages

from hourmark.process.alarms import Alarm, AlarmName

# Programs that are not Hourmark's, and what their tests in tests/faults/test_runbooks.py do instead.
OTHERS = ("sudo systemctl restart", "sudo chronyc makestep", "hdfs", "kafka-configs.sh", "curl -s")
PAGES = pages()
NAMES = [page.name for page in PAGES]
INDEX = (ROOT / "docs" / "operate" / "runbooks" / "index.md").read_text()
CODE = re.compile(r"`(hourmark [^`]+)`")


def commands(page: Page) -> list[Command]:
    return [command for section in SECTIONS for block in page.blocks(section) for command in block]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_has_the_four_sections_each_with_content(page: Page) -> None:
    assert page.text.startswith(f"# {page.name}\n\nThis runbook is for operators on call when ")
    assert tuple(page.sections) == SECTIONS
    assert all(text.strip() for text in page.sections.values())
    assert page.blocks(SEEN), "it shows how the fault looks"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_of_a_page_parses(page: Page) -> None:
    for command in commands(page):
        if command.line.startswith(OTHERS):
            continue
        program, *words = shlex.split(command.filled({"FILE": str(ROOT / "README.md")}).line)
        assert program == "hourmark", command.line
        found, arguments = resolved(words)
        with found.make_context(found.name, arguments):  # parses and checks, runs nothing
            pass


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_command_that_a_sentence_mentions_exists_with_its_options(page: Page) -> None:
    for code in CODE.findall(re.sub(r"```.*?```", "", page.text, flags=re.DOTALL)):
        found, arguments = resolved(shlex.split(code)[1:])
        known = {option for parameter in found.params for option in parameter.opts}
        assert {word for word in arguments if word.startswith("--")} <= known, code


@pytest.mark.parametrize("name", AlarmName)
def test_an_alarm_has_a_page_and_says_what_to_do(name: AlarmName) -> None:
    alarm = Alarm(name, "subject", "seen")
    assert name in NAMES
    assert alarm.to_do and alarm.to_do in str(alarm) and alarm.runbook in str(alarm)


def test_every_page_is_linked_from_the_index_and_every_alarm_from_the_mirrors_page() -> None:
    mirror = (ROOT / "docs" / "operate" / "mirror.md").read_text()
    assert [n for n in AlarmName if f"[`{n}`](runbooks/{n}.md)" not in mirror] == []
    assert [n for n in NAMES if f"| [{n}]({n}.md)" not in INDEX] == []


@functools.cache
def played() -> str:
    """The tests that inject faults."""
    return "".join(
        (ROOT / "tests" / file).read_text()
        for file in ("faults/test_runbooks.py", "integration/test_ledger_runbook.py")
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name not in {*AlarmName}])
def test_a_page_is_played_against_its_fault_and_says_when_it_is_over(name: str) -> None:
    assert f'Page.read("{name}")' in played()
    assert Page.read(name).blocks(OVER)


def test_output_is_compared_by_line_with_gaps() -> None:
    command = Command("hourmark x", ("a … c", "TYPE: open…")).filled({"TYPE": "click"})
    assert command.missing("  a   b c\nclick: open now\n") == []
    assert command.missing("a b\nclick: closed\n") == ["a … c", "click: open…"]
