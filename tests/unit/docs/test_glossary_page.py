"""docs/reference/glossary.md is short, and each term has the standard term beside it."""

from __future__ import annotations

from tests.support.documents import ROOT

TERMS_MAX = 25


def rows() -> list[list[str]]:
    """The cells of each row below the header."""
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[1:]]


def test_there_are_few_terms_in_their_order() -> None:
    terms = [term for term, *_ in rows()]
    assert 15 < len(terms) <= TERMS_MAX
    assert terms == sorted(terms)


def test_each_term_has_a_meaning_and_a_standard_term() -> None:
    assert all(len(row) == 3 and all(row) for row in rows())
