"""`hourmark init` on padded times, header parts that some records lack, and numbers that are absent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.log_formats.model import WRITTEN_MS, day, message, pick

from hourmark_declare.line_trial import LineTrial, ReadContext
from hourmark_declare.proposing.candidate import Candidate
from hourmark_declare.proposing.confidence import Confidence, assess
from hourmark_declare.proposing.file_sample import read_sample
from hourmark_declare.proposing.selection import Proposal, propose
from hourmark_declare.proposing.times.time_formats import choose_time_format

RECORDS: Final = 60


def proposal(folder: Path, line: Callable[[int], str]) -> Proposal:
    log = folder / "a.log"
    log.write_text("\n".join(map(line, range(RECORDS))) + "\n")
    sample = read_sample(log)._replace(written_ms=WRITTEN_MS)
    return propose(sample, "app", zone="UTC", host="tailer-1")


def fields_of(found: Proposal) -> list[dict[str, Any]]:
    context = ReadContext(
        observed_at_ms=WRITTEN_MS,
        zone="UTC",
        host="tailer-1",
        record_start=found.candidate.record_start,
    )
    trial = LineTrial.from_declarations(found.candidate.without_catch_all.to_declarations("app"))
    return [of.fields for of in trial.parse_records("app", found.sample.lines, context)]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("2026-11-13  9:02:11", "2026-11-13 10:02:11"), "%Y-%m-%d %H:%M:%S"),
        (("2026-11- 3 09:02:11", "2026-11-13 10:02:11"), "%Y-%m-%d %H:%M:%S"),
        (("261113  9:02:11", "261113 10:02:11"), "%y%m%d %H:%M:%S"),
        (("11/13/2026  9:02 AM", "11/13/2026 10:02 AM"), "%m/%d/%Y %I:%M %p"),
        (("11/13/2026 9:02 AM", "11/13/2026 10:02 AM"), "%m/%d/%Y %I:%M %p"),
        (("13.11.2026,  9:02:11", "13.11.2026, 10:02:11"), "%d.%m.%Y, %H:%M:%S"),
        (("2026-11-13  9.02.11", "2026-11-13 10.02.11"), "%Y-%m-%d %H.%M.%S"),
        (("2026-11-13  9:02", "2026-11-13 10:02"), "%Y-%m-%d %H:%M"),
        (("Fri,  6 Nov 2026 09:02:11", "Fri, 13 Nov 2026 09:02:11"), "%a, %d %b %Y %H:%M:%S"),
        (("November  3, 2026 09:02:11", "November 13, 2026 09:02:11"), "%B %d, %Y %H:%M:%S"),
    ],
)
def test_hours_and_days_that_are_padded_with_spaces_are_of_the_format_of_the_others(
    tmp_path: Path, texts: tuple[str, str], expected: str
) -> None:
    for order in (texts, texts[::-1]):
        choice = choose_time_format([*order] * 5, WRITTEN_MS)
        assert choice is not None
        assert choice.format == expected
    found = proposal(tmp_path, lambda n: f"{texts[n % 2]} {pick(n, 'INFO', 'WARN')} {message(n)}")
    assert (found.fitting, found.candidate.record_start) == (RECORDS, "")
    assert {fields["level"] for fields in fields_of(found)} == {"INFO", "WARN"}


@pytest.mark.parametrize("padded", [30, 2])
def test_clocks_alone_may_be_padded_with_a_space(tmp_path: Path, padded: int) -> None:
    def line(n: int) -> str:
        return f"{9 if n < padded else 10:2}:02:{n:02} INFO {message(n)}"

    found = proposal(tmp_path, line)
    assert (found.fitting, found.candidate.record_start) == (RECORDS, "")
    assert {fields["level"] for fields in fields_of(found)} == {"INFO"}


def test_durations_below_an_hour_are_no_times(tmp_path: Path) -> None:
    found = proposal(tmp_path, lambda n: f"0:00:{n:02}.048543000 {4711 + n % 3} INFO {message(n)}")
    assert found.oldest is None


def test_lines_with_a_date_that_would_be_joined_to_other_records_are_a_doubt(
    tmp_path: Path,
) -> None:
    def line(n: int) -> str:  # no format reads a space behind the T
        return f"2026-11-13T{9 + n // 20:2}:02:11 INFO {message(n)}"

    found = proposal(tmp_path, line)
    assert found.assessment.confidence is Confidence.LOW
    assert any("20 lines have a date but no time" in of for of in found.assessment.reasons)
    stack = proposal(tmp_path, lambda n: f"{day(n)} ERROR {message(n)}\n\tat shop.Cart: 2026-11-13")
    assert stack.assessment.confidence is Confidence.HIGH


def _pairs(n: int) -> str:
    job = ["", " job=mail", f" job=mail run={n}"][n % 3] if n % 12 else ""
    return f"{day(n)} tid={n % 3}a{job} {pick(n, 'INFO', 'WARN')}: {message(n)}"


def _bracket(n: int) -> str:
    job = f"[{pick(n, 'mail', 'price')}#{n % 9}]" if n % 12 else ""
    return f"{day(n)} worker-{n % 4}[{800 + n % 5}]{job} {pick(n, 'INFO', 'WARN')} {message(n)}"


def _bracket_and_word(n: int) -> str:
    job = f"[{n % 9}] " if n % 15 else ""
    return f"{day(n)} [main] {job}{pick(n, 'INFO', 'WARN')} [a{n % 3}] {message(n)}"


@pytest.mark.parametrize("line", [_pairs, _bracket, _bracket_and_word])
def test_the_level_is_found_with_and_without_the_parts_before_it(
    tmp_path: Path, line: Callable[[int], str]
) -> None:
    records = fields_of(proposal(tmp_path, line))
    assert len(records) == RECORDS
    assert [of["level"] for of in records] == [pick(n, "INFO", "WARN") for n in range(RECORDS)]
    assert [of["message"] for of in records] == [message(n) for n in range(RECORDS)]


def test_short_ids_with_a_prefix_are_ids(tmp_path: Path) -> None:
    found = proposal(tmp_path, lambda n: f"{day(n)} 0x{n % 3 * 977:x} INFO {message(n)}")
    assert {str(of["id"]) for of in fields_of(found)} == {"0x0", "0x3d1", "0x7a2"}


def test_fields_that_the_pattern_does_not_fill_are_a_reason_for_less_confidence(
    tmp_path: Path,
) -> None:
    found = assess(
        Candidate(form="x"),
        records=200,
        fitting=200,
        caught=0,
        has_time=True,
        unfilled=("thread", "pid"),
    )
    assert found.confidence is Confidence.MEDIUM
    assert found.reasons == ("most records have no value for thread, pid: check the pattern",)
    right = proposal(tmp_path, _bracket)
    assert right.candidate.shares["level"] > 0.9
    assert right.unfilled == []


@pytest.mark.parametrize("absent", ["[N/A]", "N/A", "NA", "null", "None", "-", ""])
@pytest.mark.parametrize("separator", [", ", ",", "\t"])
def test_numbers_that_are_absent_in_some_rows_are_null(
    tmp_path: Path, absent: str, separator: str
) -> None:
    def line(n: int) -> str:
        watts = absent if n % 20 == 7 else f"{n / 2:.2f}"
        return separator.join((day(n), f"gpu-{n % 4}", str(n), watts, f"{n % 30} %"))

    found = proposal(tmp_path, lambda n: line(n) if n else separator.join(("time", *"abcd")))
    rows = [of for of in fields_of(found) if of.get("b") is not None]
    assert [row["c"] for row in rows] == [None if n % 20 == 7 else n / 2 for n in range(1, RECORDS)]
