"""Failed tests, read from the JUnit XML report that pytest writes at the end of a session.

The output of the whole suite has thousands of lines, and services that run it often keep only the
last of them. `hourmark test` therefore lists all failed tests in its last lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

# Some services show only the last thousand characters of the output.
MAX_LISTED: Final = 8
MAX_CHARACTERS: Final = 220


def describe_failed_tests(report: Path) -> list[str]:
    """Return one line for each test that failed.

    Args:
        report: JUnit XML report written by `pytest --junitxml`. It need not exist, because pytest
            does not write it if it ends early, for example because of a usage error.

    Returns:
        Module, name and message of each failed test, in the order of the report. Each line has at
        most 220 characters. If there are more than 8 tests, the last line states how many are not
        listed.
    """
    lines = [_describe(case, outcome) for case, outcome in _failures(report)]
    left_out = len(lines) - MAX_LISTED
    return lines if left_out <= 0 else [*lines[:MAX_LISTED], f"and {left_out} more"]


def failed_node_ids(report: Path) -> list[str]:
    """Return the node ids of the tests that failed, as arguments of pytest.

    Args:
        report: JUnit XML report written with the pytest option `junit_family=xunit1`, which names
            the file of each test. It need not exist.

    Returns:
        Each node id once, such as `tests/unit/test_ids.py::test_order[utc]`. Tests that are
        functions are supported, methods of classes are not.
    """
    return list(
        dict.fromkeys(f"{case.get('file')}::{case.get('name')}" for case, _ in _failures(report))
    )


def _failures(report: Path) -> Iterator[tuple[ElementTree.Element, ElementTree.Element]]:
    if report.is_file():
        for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314  # pytest wrote it
            for outcome in case:
                if outcome.tag in ("failure", "error"):
                    yield case, outcome


def _describe(case: ElementTree.Element, outcome: ElementTree.Element) -> str:
    message = " ".join(outcome.get("message", "").split())
    line = f"{case.get('classname')}::{case.get('name')}: {message}"
    return line if len(line) <= MAX_CHARACTERS else f"{line[: MAX_CHARACTERS - 3]}..."
