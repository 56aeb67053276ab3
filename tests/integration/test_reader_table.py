"""The table of docs/reference/readers.md is what each program does with each codec and format."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import readers_page
from tools.readers_page import FORMS, PAGE, Reader, measure, render_table, replace_table, write_hour


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_page_shows_what_each_reader_does(tmp_path: Path) -> None:
    page = PAGE.read_text()
    assert page == replace_table(page, render_table(measure(tmp_path)))


def test_a_reader_that_returns_other_events_or_fails_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hour").mkdir()
    write_hour(tmp_path / "hour")
    assert {path.name for path in (tmp_path / "hour").iterdir()} >= {form.name for form in FORMS}

    def results(program: str) -> tuple[bool | None, ...]:
        return readers_page.read_forms(tmp_path, Reader("sh", program, ""), ["sh", "-c"])

    refuses = "echo unknown codec >&2; exit 1"
    assert results(f"echo {readers_page.EXPECTED}") == (True, True, None)
    assert results(refuses) == (False, False, None)
    with pytest.raises(RuntimeError, match=r"sh read deflate\.avro as \['19 1 2'\]"):
        results("echo 19 1 2")
    with pytest.raises(RuntimeError, match=r"sh failed on deflate\.avro: no such module"):
        results("echo no such module >&2; exit 1")


def test_a_page_without_the_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="the page does not have the lines"):
        replace_table("# Readers\n", "| reader |\n")
