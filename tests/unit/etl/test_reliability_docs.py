"""docs/reliability.md: every test that it names exists, and every fault names one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "reliability.md").read_text()
SHORT = {"u/": "tests/unit/etl/", "i/": "tests/integration/"}


def named(text: str) -> list[tuple[str, str]]:
    """Files or folders, and the test in each or "", in their order; `…` is the file named before."""
    found: list[tuple[str, str]] = []
    for path, name in re.findall(r"`((?:u/|i/|tests/)[\w/.]*|…)(?:::(\w+))?`", text):
        full = found[-1][0] if path == "…" else SHORT.get(path[:2], path[:2]) + path[2:]
        found.append((full, name))
    return found


def missing(text: str) -> list[str]:
    """What is named, and is not there."""
    absent = []
    for path, name in named(text):
        place = ROOT / path
        if not place.exists():
            absent.append(path)
        elif name and name not in {n.name for n in ast.walk(ast.parse(place.read_text())) if isinstance(n, ast.FunctionDef)}:
            absent.append(f"{path}::{name}")
    return absent


def rows(text: str) -> list[str]:
    """Of all tables, without their headers."""
    return [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| fault")]


def test_every_test_that_is_named_exists() -> None:
    assert len(named(TEXT)) > 50
    assert missing(TEXT) == []


@pytest.mark.parametrize("row", rows(TEXT))
def test_every_fault_names_how_it_is_known(row: str) -> None:
    *_, known_by, _ = row.split(" |")
    assert named(known_by) or known_by.strip() == "histories" or "histories" in known_by, row


def test_a_test_that_is_not_there_is_noticed() -> None:
    assert missing("`u/test_ids.py::test_nothing_of_the_kind`, `tests/nowhere.py`") == [
        "tests/unit/etl/test_ids.py::test_nothing_of_the_kind", "tests/nowhere.py",
    ]  # fmt: skip
