"""`hourmark init` proposes for each format of the corpus the structure that an engineer declares.

`python -m tests.support.log_formats.scoring` prints the scores.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.log_formats import CORPUS, FURTHER
from tests.support.log_formats.model import LogFormat
from tests.support.log_formats.scoring import propose_format, score
from tests.support.tiers import representative

from hourmark_declare.proposing.config_files import render_type_files
from hourmark_declare.proposing.file_sample import read_sample
from hourmark_declare.proposing.selection import propose

DAMAGE: Final = (
    *"{}[]()<>\"'\\|,;:-#*/=@ \té\r",
    "{0}",
    "{{",
    "(?P<x>",
    "[é 1]",
    "[pid 1]",
    "\x1b[0m",
    "10:00:00",
    "2026-11-21 10:00:00",
)
# Formats whose proposal is not fully right. A format that becomes right must be removed from here.
KNOWN_FAILURES: Final = frozenset[str]()


@pytest.mark.parametrize(
    "form",
    [
        *representative(CORPUS, keep=len(CORPUS) // 6, suite=len(CORPUS)),
        *representative(FURTHER, keep=0, suite=len(FURTHER) // 4),
    ],
    ids=lambda form: form.name,
)
def test_the_proposed_structure_is_what_an_engineer_declares(
    form: LogFormat, tmp_path: Path
) -> None:
    scores = score(propose_format(form, tmp_path), form.expected)
    wrong = [aspect for aspect, right in scores.items() if not right]
    if form.name in KNOWN_FAILURES:
        assert wrong, f"{form.name} is fully right now: remove it from KNOWN_FAILURES"
    else:
        assert not wrong, f"{form.name}: {', '.join(wrong)} differ"


def test_the_corpus_has_sixty_formats_and_at_least_fifty_five_are_right() -> None:
    names = [form.name for form in CORPUS]
    assert len(names) == len(set(names)) >= 60
    assert frozenset(names) >= KNOWN_FAILURES
    assert len(names) - len(KNOWN_FAILURES) >= 55


@pytest.mark.parametrize("form", CORPUS, ids=lambda form: form.name)
def test_a_sample_has_a_broken_line_and_no_final_line_feed(form: LogFormat) -> None:
    text = form.text()
    assert text == form.text()
    assert not text.endswith("\n")
    assert text.count("\n") >= 200


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_lines_never_stop_a_proposal(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    form = data.draw(st.sampled_from(CORPUS))
    lines = form.text().split("\n")[: data.draw(st.integers(1, 20))]
    damage = st.tuples(st.integers(0, 19), st.integers(0, 200), st.sampled_from(DAMAGE))
    for index, at, text in data.draw(st.lists(damage, max_size=20)):
        line = lines[index % len(lines)]
        lines[index % len(lines)] = line[:at] + text + line[at + 1 :]
    path = tmp_path_factory.mktemp("damaged") / "a.log"
    path.write_text("\n".join(lines), newline="")
    found = propose(read_sample(path), "app", zone="UTC", host="h")
    assert found.fitting <= found.records
    for text in render_type_files([found]).values():
        tomllib.loads(text)
