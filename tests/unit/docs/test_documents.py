"""Documents name what is there: files, links, tests of a file, and commands with their options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.documents import ROOT, documents, missing, named

PAGE = re.compile(r"\bdocs/[\w/.-]+\.md\b")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_and_test_that_is_named_exists(document: Path) -> None:
    assert missing(document.read_text(), document.parent) == []


def test_every_page_that_the_product_names_exists() -> None:
    sources = [
        *ROOT.glob("*/hourmark*/**/*.py"),
        *ROOT.glob("packaging/**/*.toml"),
        *ROOT.glob("infra/**/*.yaml"),
        *ROOT.glob("examples/**/*.toml"),
        ROOT / "docker-compose.yml",
    ]
    pages = {page for file in sources for page in PAGE.findall(file.read_text())}
    assert len(pages) > 10
    assert sorted(page for page in pages if not (ROOT / page).exists()) == []


def test_files_are_found_in_documents() -> None:
    pages = (ROOT / "docs" / "internals").glob("evidence-*.md")
    assert sum(len(named(page.read_text())) for page in pages) > 150
    assert len(named(CONTRIBUTING)) > 30


def test_what_is_not_there_is_noticed() -> None:
    text = (
        "`tests/unit/etl/ids/test_ids.py::test_nothing_of_the_kind`, `tests/nowhere.py`, `…::test_x`, "
        "[a](docs/nothing.md#b), `storage/none.py`"
    )
    assert missing(text) == [
        "docs/nothing.md",
        "tests/unit/etl/ids/test_ids.py::test_nothing_of_the_kind",
        "tests/nowhere.py",
        "tests/nowhere.py",
        "storage/none.py",
    ]


def test_what_is_there_by_a_short_name_is_found() -> None:
    assert (
        missing(
            "`storage/interface.py`, `README.md`, `types/sources.toml`, `/metrics`, `a/b "
            "c`, [x](https://example.org)"
        )
        == []
    )
