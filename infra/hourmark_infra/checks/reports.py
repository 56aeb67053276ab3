"""Failed tests, read from the JUnit XML report that pytest writes at the end of a session.

The output of the whole suite has thousands of lines, and services that run it often keep only the
last of them. `hourmark test` therefore lists all failed tests in its last lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from xml.etree import ElementTree

# Some services show only the last thousand characters of the output.
MAX_LISTED: Final = 8
MAX_CHARACTERS: Final = 220


def failed_tests(report: Path) -> list[str]:
    """Return one line for each test that failed.

    Args:
        report: JUnit XML report written by `pytest --junitxml`. It need not exist, because pytest
            does not write it if it ends early, for example because of a usage error.

    Returns:
        Module, name and message of each failed test, in the order of the report. Each line has at
        most 220 characters. If there are more than 8 tests, the last line states how many are not
        listed.
    """
    if not report.is_file():
        return []
    lines = [
        _line(case, outcome)
        for case in ElementTree.parse(report).iter("testcase")  # noqa: S314  # pytest wrote it
        for outcome in case
        if outcome.tag in ("failure", "error")
    ]
    left_out = len(lines) - MAX_LISTED
    return lines if left_out <= 0 else [*lines[:MAX_LISTED], f"and {left_out} more"]


def _line(case: ElementTree.Element, outcome: ElementTree.Element) -> str:
    message = " ".join(outcome.get("message", "").split())
    line = f"{case.get('classname')}::{case.get('name')}: {message}"
    return line if len(line) <= MAX_CHARACTERS else f"{line[: MAX_CHARACTERS - 3]}..."
