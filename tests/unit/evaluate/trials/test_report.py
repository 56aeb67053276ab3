"""What is shown of a result: whole, safe to open, and the same in each record_format."""

from __future__ import annotations

import dataclasses
import html.parser
import re
import xml.etree.ElementTree as ET

import pytest
from tests.support.documents import ROOT
from tests.support.evaluations import (
    GOOD_COUNTS,
    GOOD_DISTURBANCE,
    GOOD_TRIAL,
    NOT_TRIED,
    evaluation,
)

from hourmark_evaluate.report.html_page import as_html, plot_rates
from hourmark_evaluate.report.markdown import as_markdown
from hourmark_evaluate.report.published_figures import comparison_rows
from hourmark_evaluate.report.tables import remarks
from hourmark_evaluate.results import TrialResult, as_json, from_json
from hourmark_evaluate.trials import TRIALS

HOSTILE = dataclasses.replace(GOOD_TRIAL, notes=("<script>alert(1)</script> | “a” & b",))
STUCK = dataclasses.replace(
    GOOD_TRIAL,
    name="stuck",
    counts=(dataclasses.replace(GOOD_COUNTS, lost=3),),
    disturbances=(GOOD_DISTURBANCE, dataclasses.replace(GOOD_DISTURBANCE, recovered_s=None)),
)


def test_a_result_is_kept_and_read_again() -> None:
    result = evaluation(GOOD_TRIAL, NOT_TRIED, STUCK)
    assert from_json(as_json(result)) == result
    with pytest.raises(ValueError, match="trials"):
        from_json(b"{}")


def test_the_page_needs_nothing_else_and_runs_nothing() -> None:
    page = as_html(evaluation(HOSTILE, NOT_TRIED))
    html.parser.HTMLParser().feed(page)
    assert not re.search(r"<script|src=|href=|url\(", page)
    assert "&lt;script&gt;alert(1)" in page and "needs --stop-broker" in page
    assert page.count("<svg") == 1


def test_a_plot_is_well_formed_and_shows_each_disturbance() -> None:
    drawn = ET.fromstring(plot_rates(GOOD_TRIAL.timeline, [GOOD_DISTURBANCE]))
    assert len(drawn.findall("polyline")) == 2
    assert [band.findtext("title") for band in drawn.findall("rect")] == ["broker 2 killed"]
    assert plot_rates((), ()) == ""


@pytest.mark.parametrize("render", [as_html, as_markdown])
def test_what_is_broken_is_said_in_each_form(render: object) -> None:
    assert callable(render)
    shown = render(evaluation(STUCK))
    assert "BROKEN" in shown and "3 records acknowledged but not read" in shown and "never" in shown


@pytest.mark.parametrize("render", [as_html, as_markdown])
def test_what_was_not_brought_to_its_end_is_said_with_its_reason(render: object) -> None:
    assert callable(render)
    shown = render(
        evaluation(
            TrialResult(name="leaders", title="leaders killed", broken_off="nobody came back")
        )
    )
    assert "BROKEN" in shown and "leaders: aborted; nobody came back" in shown


def test_what_was_not_counted_is_not_told() -> None:
    claims = dataclasses.replace(GOOD_TRIAL.claims, early_max=None) if GOOD_TRIAL.claims else None
    (before,) = [
        said
        for said in remarks(evaluation(dataclasses.replace(GOOD_TRIAL, claims=claims)))
        if "sampled" in said
    ]
    assert "before readers received" not in before
    counted = dataclasses.replace(claims, early_max=7, early_s=0.25) if claims else None
    (now,) = [
        said
        for said in remarks(evaluation(dataclasses.replace(GOOD_TRIAL, claims=counted)))
        if "sampled" in said
    ]
    assert "7 were committed up to 0.2 s before readers received them" in now


def test_what_is_said_of_several_workers_is_what_was_seen_of_so_many() -> None:
    one = dataclasses.replace(GOOD_TRIAL, takeovers=(), notes=("the mirror ran with 1 worker",))
    central = dataclasses.replace(GOOD_COUNTS, place="central", acknowledged=900, doubled=2)
    two = dataclasses.replace(GOOD_TRIAL, counts=(GOOD_COUNTS, central))
    said = [
        next(
            row[3]
            for row in comparison_rows(evaluation(trial))
            if row[0] == "several mirror workers"
        )
        for trial in (one, two)
    ]
    assert said == [
        "the mirror ran with 1 worker",
        "the leading one of 2 workers was killed: another one led after 11.5 s. "
        "Of 900 records on the central cluster: 0 lost, 2 doubled, 0 phantom",
    ]


def test_cells_of_tables_are_as_many_as_their_heads() -> None:
    tables: list[list[str]] = [[]]
    for line in as_markdown(evaluation(HOSTILE, NOT_TRIED, STUCK)).splitlines():
        if line.startswith("|"):
            tables[-1].append(line)
        elif tables[-1]:
            tables.append([])
    assert len([table for table in tables if table]) == 5
    for table in filter(None, tables):
        assert len({len(re.split(r"(?<!\\)\|", line)) for line in table}) == 1, table


def test_the_page_of_the_documentation_is_made_from_the_result_that_is_kept_beside_it() -> None:
    kept = from_json((ROOT / "docs" / "internals" / "evaluation.json").read_bytes())
    assert (ROOT / "docs" / "internals" / "evaluation.md").read_text() == as_markdown(kept), (
        "run `./hourmark evaluate --from docs/internals/evaluation.json --markdown docs/internals/evaluation.md`"
    )
    assert [trial.name for trial in kept.trials] == list(TRIALS), "every trial stands on the page"
