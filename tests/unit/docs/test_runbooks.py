"""Each alarm has a page that tells what to do, and each page an alarm."""

from __future__ import annotations

import pytest
from tests.support.documents import ROOT

from hourmark.process.alarms import RUNBOOKS, Alarm, AlarmName

PARTS = ("## What it means", "## How to check", "## What to do", "## When it is over")


def test_there_is_a_page_for_each_alarm_and_no_other() -> None:
    assert {page.stem for page in (ROOT / RUNBOOKS).glob("*.md")} == {*AlarmName}


@pytest.mark.parametrize("name", AlarmName)
def test_a_page_answers_the_four_questions_and_an_alarm_says_what_to_do(name: AlarmName) -> None:
    alarm = Alarm(name, "subject", "seen")
    page = (ROOT / alarm.runbook).read_text()
    assert page.startswith(f"# {name}\n")
    assert [line for line in page.splitlines() if line.startswith("## ")] == list(PARTS)
    assert all(part.strip() for part in page.split("\n## ")[1:])
    assert alarm.to_do and alarm.to_do in str(alarm) and alarm.runbook in str(alarm)


def test_every_alarm_is_in_the_table_of_operations() -> None:
    table = (ROOT / "docs" / "mirror.md").read_text()
    assert [name for name in AlarmName if f"[`{name}`](runbooks/{name}.md)" not in table] == []
