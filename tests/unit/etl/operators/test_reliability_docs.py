"""docs/internals/reliability.md: every fault names how it is known.

Whether the tests exist: tests/unit/docs/test_documents.py.
"""

from __future__ import annotations

import pytest
from tests.support.documents import ROOT, named

TEXT = (ROOT / "docs" / "internals" / "reliability.md").read_text()


def rows(text: str) -> list[str]:
    """Of all tables, without headers; the list of trials is made by a command, and held to its file
    by a test of its own.
    """
    text, made, _ = text.partition("<!-- made by `./hourmark chaos report`")
    assert made, "the list of trials stands last"
    return [
        line
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith("| fault")
    ]


@pytest.mark.parametrize("row", rows(TEXT))
def test_every_fault_names_how_it_is_known(row: str) -> None:
    *_, known_by, _ = row.split(" |")
    assert (
        any(path.startswith("tests/") for path, _ in named(known_by)) or "histories" in known_by
    ), row
