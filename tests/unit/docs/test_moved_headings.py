"""`tools/moved_headings.tsv` leads from each heading of 0.3.0's documentation to a heading of today."""

from __future__ import annotations

import re

from tests.support.documents import ROOT, without_blocks


def anchors(page: str) -> set[str]:
    """Anchors as GitHub and MyST make them."""
    headings = re.findall(r"^#{1,5} (.*)$", without_blocks((ROOT / page).read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def test_each_heading_of_before_has_a_place() -> None:
    lines = (ROOT / "tools" / "moved_headings.tsv").read_text().splitlines()[1:]
    assert len(lines) > 150
    for line in lines:
        _, places = line.split("\t")
        for place in places.split(", "):
            page, _, anchor = place.partition("#")
            assert not anchor or anchor in anchors(page), line
            assert (ROOT / page).is_file(), line
