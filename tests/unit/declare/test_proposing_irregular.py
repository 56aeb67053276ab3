"""`hourmark init` on short dates, enclosed messages, line protocol, nested times and rare lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.support.log_formats.model import WRITTEN_MS, day, message, pick

from hourmark_declare.proposing.file_sample import read_sample
from hourmark_declare.proposing.lines.key_parts import keys_in_order
from hourmark_declare.proposing.selection import Proposal, propose
from hourmark_declare.proposing.times.time_formats import choose_time_format

RECORDS: Final = 60


def proposal(folder: Path, line: Callable[[int], str], newline: str = "\n") -> Proposal:
    log = folder / "a.log"
    log.write_text("\n".join(map(line, range(RECORDS))) + "\n", newline=newline)
    sample = read_sample(log)._replace(written_ms=WRITTEN_MS)
    return propose(sample, "app", zone="UTC", host="tailer-1")


def test_padded_dates_beside_shorter_ones_are_of_their_format() -> None:
    choice = choose_time_format(["9/30/26 10:00:00", "10/01/26 10:00:00"] * 5, WRITTEN_MS)
    assert choice is not None
    assert choice.format == "%m/%d/%y %H:%M:%S"
    alone = choose_time_format(["26/10/01 10:00:00"] * 5, WRITTEN_MS)
    assert alone is not None
    assert alone.format == "%y/%m/%d %H:%M:%S"


def test_dates_with_dots_are_days_first_unless_they_would_be_ahead() -> None:
    def order(text: str) -> tuple[str, bool]:
        choice = choose_time_format([text] * 5, WRITTEN_MS)
        assert choice is not None
        return choice.format, bool(choice.doubts)

    assert order("03.04.2025 10:00:00") == ("%d.%m.%Y %H:%M:%S", False)
    assert order("11.20.2026 10:00:00") == ("%m.%d.%Y %H:%M:%S", False), "there is no month 20"
    assert order("11.12.2026 10:00:00") == ("%m.%d.%Y %H:%M:%S", False), "December is ahead"


def test_only_brackets_around_whole_messages_are_left_out(tmp_path: Path) -> None:
    enclosed = proposal(tmp_path, lambda n: f"{day(n)} <INFO> <{message(n)} <at>>")
    assert enclosed.examples[0].fields["message"] == "started <at>"
    several = proposal(tmp_path, lambda n: f"{day(n)} INFO <a{n}, b and c> {message(n)} <z{n}>")
    assert str(several.examples[0].fields["message"]).endswith("<z0>")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        ([["a", "c"], ["b", "c"], ["a", "b"]], ["a", "b", "c"]),
        ([["a", "b"], ["b", "a"]], []),
        ([["a", "a"]], []),
    ],
)
def test_keys_have_an_order_only_if_all_rows_agree(
    rows: list[list[str]], expected: list[str]
) -> None:
    assert keys_in_order(rows) == expected


def test_keys_of_line_protocol_that_were_not_in_the_sample_do_not_hide_the_others(
    tmp_path: Path,
) -> None:
    found = proposal(
        tmp_path,
        lambda n: (
            f"net{',new=1' * (n == 1)},host=web-{n % 3},path=/v{n}{',zone=b' * (n == 1)} "
            f'bytes={n}i,note="a, b c"{",z=1" * (n == 1)} {1_795_255_200 + n}000000000'
        ),
    )
    assert found.fitting == found.records == RECORDS
    first, second, *_ = found.examples
    assert (first.host, first.fields["path"], first.fields["bytes"]) == ("web-0", "/v0", 0)
    assert (first.fields["note"], first.fields["new"]) == ("a, b c", None)
    assert (second.host, second.fields["path"], second.fields["z"]) == ("web-1", "/v1", 1)


def test_an_object_whose_time_is_nested_keeps_its_other_values(tmp_path: Path) -> None:
    found = proposal(
        tmp_path,
        lambda n: json.dumps(
            {"time": {"$date": f"{day(n)[:10]}T10:00:00Z", "kind": "utc"}, "n": {"rows": n}}
        ),
    )
    assert found.candidate.line["payload"] == "json"
    assert found.oldest == "2026-11-21T10:00:00.000Z"
    values = {str(value) for value in found.examples[1].fields.values()}
    assert {"utc", "1"} <= values


def test_lines_that_only_share_the_level_keep_it(tmp_path: Path) -> None:
    found = proposal(
        tmp_path,
        lambda n: (
            f"[ERROR] {message(n)}"
            if n % 20 == 0
            else f"[{pick(n, 'INFO', 'WARN')}] 10.0.0.{n}:80 - {n + 100} ok in {n} ms"
        ),
    )
    assert found.fitting == RECORDS
    assert found.examples[0].fields["level"] == "ERROR"
    assert found.examples[1].fields["address"] == "10.0.0.1"


def test_a_header_may_lack_the_name_of_a_quoted_text(tmp_path: Path) -> None:
    def line(n: int) -> str:
        return (
            "Date,Level,Event"
            if n == 0
            else f'{day(n)},{pick(n, "Info", "Error")},{n},"a\n{n} ""b"""'
        )

    found = proposal(tmp_path, line, newline="\r\n")
    assert (found.records, found.fitting) == (RECORDS, RECORDS - 1)
    assert found.examples[0].fields["message"] == 'a\r\n1 ""b""'
    assert found.examples[0].fields["Event"] == 1


def test_the_last_column_has_no_carriage_return(tmp_path: Path) -> None:
    def line(n: int) -> str:
        return "id;time;note" if n == 0 else f"{n};{day(n)};{pick(n, 'fine', 'late, sent')}"

    found = proposal(tmp_path, line, newline="\r\n")
    assert found.examples[0].fields["note"] in ("fine", "late, sent")


def test_numbers_with_a_decimal_comma_are_texts(tmp_path: Path) -> None:
    found = proposal(
        tmp_path, lambda n: f"{day(n - 1)};{n % 7 - 4},{n:02};ok" if n else "time;value;note"
    )
    assert found.examples[0].fields["value"] == "-3,01"
    assert found.fitting == RECORDS - 1


@pytest.mark.parametrize("offset", ["-240", "+330"])
def test_offsets_in_minutes_are_asked_about(tmp_path: Path, offset: str) -> None:
    found = proposal(tmp_path, lambda n: f"{day(n)}.123456{offset} E{n} INFO {message(n)}")
    assert found.examples[0].time == "2026-11-21T10:00:00.123Z"
    assert "pid" not in found.examples[0].fields
    assert found.safest is not None
    assert found.assessment.reasons == (
        f"the offset in minutes behind the times, such as {offset}, is not applied: they are read "
        "in the zone of the source",
    )


def test_an_offset_of_no_minutes_is_utc(tmp_path: Path) -> None:
    found = proposal(tmp_path, lambda n: f"{day(n)}.123456+000 E{n} INFO {message(n)}")
    assert found.examples[0].time == "2026-11-21T10:00:00.123Z"
    assert (found.candidate.zone, found.safest) == ("UTC", None)
