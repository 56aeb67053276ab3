"""`hourmark init` reports how far a proposal can be trusted, and asks about guesses."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hourmark_declare.init_cli import init
from hourmark_declare.proposing.candidate import Candidate
from hourmark_declare.proposing.confidence import Confidence, assess
from hourmark_declare.proposing.times.time_formats import choose_order, choose_time_format
from hourmark_declare.proposing.times.timestamps import match_timestamp

WRITTEN_MS = 1_795_262_400_000  # 2026-11-21T12:00:00Z
AMBIGUOUS = "".join(f"03/04/2025 10:00:{n:02} INFO started\n" for n in range(40))


def order(*texts: str, written_ms: int = WRITTEN_MS) -> tuple[str, bool]:
    form = match_timestamp(texts[0])
    assert form is not None
    choice = choose_order(form, texts, written_ms)
    return choice.format, bool(choice.doubts)


def invoked(*arguments: str) -> Any:
    return CliRunner().invoke(init, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("fitting", "records", "has_time", "expected"),
    [
        (199, 200, True, Confidence.HIGH),
        (190, 200, True, Confidence.MEDIUM),
        (150, 200, True, Confidence.LOW),
        (200, 200, False, Confidence.MEDIUM),
        (9, 9, True, Confidence.MEDIUM),
    ],
)
def test_confidence_follows_from_what_fits(
    fitting: int, records: int, has_time: bool, expected: Confidence
) -> None:
    found = assess(
        Candidate(form="x"), records=records, fitting=fitting, caught=0, has_time=has_time
    )
    assert found.confidence == expected
    assert bool(found.reasons) == (expected is not Confidence.HIGH)


def test_a_doubt_makes_any_proposal_a_guess() -> None:
    doubted = Candidate(form="x", doubts=("it could be another",))
    found = assess(doubted, records=200, fitting=200, caught=0, has_time=True)
    assert (found.confidence, found.reasons) == (Confidence.LOW, ("it could be another",))


def test_the_order_of_a_date_follows_from_what_can_be_read_and_when_it_was_written() -> None:
    assert order("21/11/2026 10:00:00") == ("%d/%m/%Y %H:%M:%S", False), "there is no month 21"
    assert order("11/21/2026 10:00:00") == ("%m/%d/%Y %H:%M:%S", False)
    assert order("03/04/2026 10:00:00 PM") == ("%m/%d/%Y %I:%M:%S %p", False)
    near = 1_775_000_000_000  # 2026-03-31T23:33:20Z
    assert order("31/03/2026 23:00:00", "01/04/2026 00:00:00", written_ms=near)[1] is False
    assert order("04/03/2026 10:00:00", written_ms=1_772_700_000_000) == (
        "%d/%m/%Y %H:%M:%S",
        False,
    ), "written on the 5th of March"
    assert order("01/02/2026 10:00:00", "02/02/2026 10:00:00", "03/02/2026 10:00:00") == (
        "%d/%m/%Y %H:%M:%S",
        False,
    ), "days in a row, rather than months"
    assert order("03/04/2025 10:00:00")[1] is True
    assert order("26/11/19 10:00:00") == ("%y/%m/%d %H:%M:%S", False), "the other one is years ago"
    assert order("08/11/09 10:00:00") == ("%y/%m/%d %H:%M:%S", False), "as Spark writes it"


def test_values_of_a_column_are_times_only_if_nearly_all_are() -> None:
    assert choose_time_format(["2026-11-21 10:00:00"] * 9 + ["x", "y"], WRITTEN_MS) is None
    assert choose_time_format(["10:00:00"] * 9, WRITTEN_MS) is None, "no date"
    assert choose_time_format(["-", ""], WRITTEN_MS) is None


def test_each_proposal_has_its_confidence_and_reasons(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"2026-11-21 10:00:{n:02} INFO started\n" for n in range(40)))
    assert "confidence: high\n" in invoked(str(log), "--out", str(tmp_path / "o")).output
    told = json.loads(invoked(str(log), "--out", str(tmp_path / "o"), "--json").stdout)
    assert (told["proposals"][0]["confidence"], told["proposals"][0]["reasons"]) == ("high", [])
    assert told["proposals"][0]["guess"] is None


def test_with_yes_the_safest_is_kept_of_a_guess(tmp_path: Path) -> None:
    log, out = tmp_path / "a.log", tmp_path / "out"
    log.write_text(AMBIGUOUS)
    done = invoked(str(log), "--out", str(out), "--yes")
    assert "is a guess: times such as 03/04/2025 10:00:00 are read as %d/%m/%Y" in done.output
    assert "the safest is kept: lines that begin with a time, which is kept as text" in done.output
    text = (out / "types/a.toml").read_text()
    assert "(?P<log_time>" in text
    assert "time_format" not in text
    told = json.loads(invoked(str(log), "--out", str(tmp_path / "p"), "--json").stdout)
    (one,) = told["proposals"]
    assert (one["confidence"], one["guess"]) == ("low", "lines that begin with a time")


def test_of_a_form_that_few_lines_have_the_safest_is_text(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    pairs = "".join(f'{{"time": "2026-11-21T10:00:{n:02}Z", "n": {n}}}\n' for n in range(40))
    log.write_text(pairs + "of no form\n" * 20)
    done = invoked(str(log), "--out", str(tmp_path / "out"), "--yes")
    assert "only 67% of the records have this form; the others would be dead letters" in done.output
    assert 'payload = "text"' in (tmp_path / "out/types/a.toml").read_text()


def test_a_header_row_is_named_where_records_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "a.csv"
    rows = (f"2026-11-21T10:00:{n:02}Z;st-{n % 3};{n}.5\n" for n in range(40))
    log.write_text("timestamp;station;temperature\n" + "".join(rows))
    done = invoked(str(log), "--out", str(tmp_path / "out"), "--yes")
    assert (
        "40 of 41 sample records fit, 1 other, the header row, is kept whole, with the time of "
        "reading" in done.output
    )


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "is_read"), [("y", True), ("n", False)])
def test_in_a_terminal_guesses_are_asked_about(tmp_path: Path, answer: str, is_read: bool) -> None:
    log, out = tmp_path / "a.log", tmp_path / "out"
    log.write_text(AMBIGUOUS)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\ny\n".encode())
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from hourmark_declare.init_cli import init; init()",
            str(log),
            "--out",
            str(out),
        ],
        stdin=theirs,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    os.close(ours)
    os.close(theirs)
    assert "Use it? Otherwise: lines that begin with a time, which is kept as text" in done.stderr
    assert ("time_format" in (out / "types/a.toml").read_text()) == is_read
