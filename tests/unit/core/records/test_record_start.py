"""Where records begin: the search in one go tells what a look at each line alone does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark.records import record_start as module
from hourmark.records.record_start import RecordStart

PATTERNS = [
    r"^a",
    "a",
    "a$",
    "^$",
    r"^\d\d",
    r"(?i)^A",
    "x|^b",
    r"\S",
    r"[^a]",
    r"(?s)a.b",
    r"a\s*b",
    r"^\s",
    "(a)(b)?",
    r"\bb",
    r"\Bb",
    "a*",
    r"\x0a",
    "ä",
]
LINE = st.text("ab 1\r2xä", max_size=6).map(str.encode)


@given(
    st.sampled_from(PATTERNS),
    st.lists(LINE, min_size=1, max_size=20),
    st.integers(1, 40),
    st.booleans(),
)
def test_it_is_found_in_each_line_as_if_that_were_alone(
    pattern: str, lines: list[bytes], step: int, ended: bool
) -> None:
    body = b"\n".join(lines) + b"\n" * ended
    alone = re.compile(pattern.encode())
    expected, at = [], 0
    for line in body.removesuffix(b"\n").split(b"\n"):
        if alone.search(line):
            expected.append(at)
        at += len(line) + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STEP_BYTES", step)
        found = [*RecordStart(pattern).starts(body, 0, len(body))]
    assert found == [at for at in expected if at < len(body)]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "RE2"),
        ("((a{1000}){1000})", "RE2"),
        ("(?=a)", "RE2"),
        (r"\1", "RE2"),
        (r"\Aa", "use ^"),
        (r"a\z", "use ^"),
        (r"\C", "use ^"),
        ("(?i-m:^)", "use ^"),
        ("", "1 to 1000"),
        ("x" * 1001, "1 to 1000"),
        ("ä" * 501, "1 to 1000"),
        ("[ab]{999}" * 2, "too large"),
        ("\ud800", "surrogates"),
    ],
)
def test_what_is_no_pattern_of_a_line_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        RecordStart(pattern)


def test_a_backslash_before_a_letter_may_be_meant() -> None:
    assert [*RecordStart(r"\\A").starts(b"\\A\nA\n", 0, 5)] == [0]
