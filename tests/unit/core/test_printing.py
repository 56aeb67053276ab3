"""Texts that fit on a line: they end with a word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hourmark.printing import cut_text


def test_a_text_is_cut_at_the_end_of_a_word() -> None:
    text = "tailer web-1 had caught up, 9 s before"
    assert cut_text(text, 50) == text
    assert cut_text(text, len(text)) == text
    assert cut_text(text, 20) == "tailer web-1 had …"
    assert cut_text(text, 22) == "tailer web-1 had …", "the last word ends with it"
    assert cut_text(text, 27) == "tailer web-1 had caught up …"


def test_a_word_that_is_too_long_is_cut() -> None:
    assert cut_text("x" * 100, 10) == "x" * 10 + " …"
    assert cut_text("a " + "x" * 100, 10) == "a xxxxxxxx …"


@given(st.text("ab ,"), st.integers(1, 20))
def test_what_is_kept_is_the_beginning(text: str, length_max: int) -> None:
    kept = cut_text(text, length_max)
    assert kept == text or text.startswith(kept.removesuffix(" …"))
    assert len(kept) <= length_max + 2 or kept == text
