"""docs/internals/evidence-*.md: the pages are generated, and every fault names the tests that know
it.

Whether the tests exist: tests/unit/docs/test_documents.py.
"""

from __future__ import annotations

import pytest
from tests.support.documents import ROOT, named
from tools.evidence_pages import FOLDER, pages

INDEX = (FOLDER / "guarantees-and-evidence.md").read_text()


def rows(text: str) -> list[str]:
    """The rows of all tables, without headers."""
    return [
        line
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith("| fault")
    ]


ROWS = [row for text in pages().values() for row in rows(text)]


def test_the_pages_are_what_the_generator_gives() -> None:
    written = {path: path.read_text() for path in FOLDER.glob("evidence-*.md")}
    del written[FOLDER / "evidence-chaos.md"]  # by `./hourmark chaos report`
    assert written == pages(), "run `python -m tools.evidence_pages`"


def test_there_are_as_many_faults_as_are_known() -> None:
    assert len(ROWS) >= 129


@pytest.mark.parametrize("row", ROWS)
def test_every_fault_names_how_it_is_known(row: str) -> None:
    assert row.count(" | ") == 4, row
    *_, known_by, _ = row.split(" |")
    tests = [path for path, _ in named(known_by)]
    assert tests and all(path.startswith("tests/") for path in tests), row


def test_every_page_is_linked() -> None:
    assert [
        path.name for path in FOLDER.glob("evidence-*.md") if f"]({path.name})" not in INDEX
    ] == []
    assert "](evidence-nothing.md)" not in INDEX


def test_the_words_of_results_are_defined() -> None:
    for word in ("recovered", "refused", "reported"):
        assert f"- **{word}**" in INDEX.lower()
    assert ROOT / "docs" / "internals" == FOLDER
