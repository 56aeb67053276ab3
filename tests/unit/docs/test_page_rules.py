"""Pages of docs/ keep the form that CONTRIBUTING.md describes: who it is for, short paragraphs,
headings, a bounded length.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.documents import ROOT

DOCS = ROOT / "docs"
COLUMNS = 100
LINES = 300
LINES_WITHOUT_HEADING = 40
SENTENCES = 5
GENERATED = {
    "reference/configuration.md",
    "reference/commands.md",
    "internals/evaluation.md",
    *(f"internals/{path.name}" for path in (DOCS / "internals").glob("evidence-*.md")),
}  # by a tool; their length is that of what they list
# Pages of one form of their own; the lists of pages have no text but links.
OWN_FORM = ("operate/runbooks/", "internals/decisions/")


def pages(*besides: str) -> list[str]:
    """All pages but those that begin so."""
    names = sorted(str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md"))
    return [name for name in names if not name.startswith(besides or ("none",))]


def is_generated(page: str) -> bool:
    return page in GENERATED or page.startswith("reference/commands/")


def text(page: str) -> str:
    return (DOCS / page).read_text()


def blocks(page: str) -> list[list[str]]:
    """Paragraphs, lists, tables and code, each as its lines."""
    found: list[list[str]] = [[]]
    fenced = False
    for line in text(page).splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if not line.strip() and not fenced:
            found.append([])
        else:
            found[-1].append(line)
    return [block for block in found if block]


def is_prose(block: list[str]) -> bool:
    return not block[0].lstrip().startswith(("#", "|", "```", "- ", "* ", "1.", ">")) and not (
        block[0][:1].isdigit()
    )


def sentences(paragraph: str) -> int:
    """Ends of sentences, without those in code and of numbers and abbreviations."""
    plain = re.sub(r"`[^`]*`", "x", paragraph)
    plain = re.sub(r"\b(e\.g|i\.e|etc|vs)\.", "x", plain)
    return len(re.findall(r"[.!?](?:[\")\]]*)(?=\s+[A-Z`\[(]|$)", plain))


@pytest.mark.parametrize("page", pages(*OWN_FORM))
def test_a_page_begins_with_its_title_audience_and_outcome(page: str) -> None:
    title, audience = blocks(page)[:2]
    assert title[0].startswith("# ") and len(title) == 1
    assert audience[0].startswith("This "), f"{page}: {audience[0]}"
    assert sentences(" ".join(audience)) <= 3


@pytest.mark.parametrize("page", [page for page in pages() if not is_generated(page)])
def test_a_page_has_lines_that_fit_a_screen(page: str) -> None:
    wide = [
        f"{number}: {line}"
        for number, line in enumerate(text(page).splitlines(), 1)
        if len(line) > COLUMNS
        and not line.lstrip().startswith("|")
        and not re.search(r"\]\(\S+$|https?://\S+$", line)  # a link is not broken
    ]
    assert wide == []
    assert len(text(page).splitlines()) <= LINES


@pytest.mark.parametrize("page", [page for page in pages() if not is_generated(page)])
def test_a_heading_is_never_far(page: str) -> None:
    since, fenced = 0, False
    for number, line in enumerate(text(page).splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        if line.startswith("#") and not fenced:
            since = 0
        elif not line.startswith("|"):  # rows of a table are looked up
            since += 1
        assert since <= LINES_WITHOUT_HEADING, f"{page}:{number}"


@pytest.mark.parametrize("page", pages())
def test_a_paragraph_has_few_sentences(page: str) -> None:
    long = [
        block[0]
        for block in blocks(page)
        if is_prose(block) and sentences(" ".join(block)) > SENTENCES
    ]
    assert long == []


def test_the_readme_fits_three_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize(
    ("paragraph", "count"),
    [
        ("One. Two! Three?", 3),
        ("Version 3.11 and `a. B`, e.g. This.", 1),
        ("No end", 0),
        ("It ends (here.) Then it goes on.", 2),
    ],
)
def test_sentences_are_counted(paragraph: str, count: int) -> None:
    assert sentences(paragraph) == count


def test_what_breaks_a_rule_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wide.md").write_text("# T\n\nNo outcome.\n\n" + "word " * 30 + "\n" + "x\n" * 41)
    (tmp_path / "long.md").write_text("# T\n\nThis is. A. B. C. D. E.\n" + "\n- x\n" * 200)
    monkeypatch.setattr("tests.unit.docs.test_page_rules.DOCS", tmp_path)
    for check, page in (
        (test_a_page_begins_with_its_title_audience_and_outcome, "wide.md"),
        (test_a_page_has_lines_that_fit_a_screen, "wide.md"),
        (test_a_page_has_lines_that_fit_a_screen, "long.md"),
        (test_a_heading_is_never_far, "wide.md"),
        (test_a_paragraph_has_few_sentences, "long.md"),
    ):
        with pytest.raises(AssertionError):
            check(page)
