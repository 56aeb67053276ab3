"""`hourmark init` recognizes the time of a file of which one line has none that can be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.support.log_formats.model import WRITTEN_MS, day, iso, message, ms, pick

from hourmark_declare.proposing.file_sample import read_sample
from hourmark_declare.proposing.selection import Proposal, propose
from hourmark_declare.proposing.times.time_formats import choose_time_format

pytestmark = pytest.mark.slow

MARK: Final = "\ufeff"


def level(n: int) -> str:
    return pick(n, "INFO", "WARN", "ERROR")


def zulu(n: int) -> str:
    # some with a fraction of the second, as Go writes them
    return f"{iso(n)}.{ms(n)}Z" if n % 3 else f"{iso(n)}Z"


# How a time is written, and how a line with this time is.
LINES: Final[dict[str, tuple[Callable[[int], str], Callable[[str, int], str]]]] = {
    "json": (zulu, lambda time, n: json.dumps({"time": time, "level": level(n), "msg": "x"})),
    "logfmt": (zulu, lambda time, n: f'time={time} level={level(n)} n={n} msg="{message(7)}"'),
    "csv": (day, lambda time, n: f"{time},{level(n)},{n},pc-1"),
    "tsv": (zulu, lambda time, n: f"{time}\t{level(n)}\t{n}\tpc-1"),
    "text": (day, lambda time, n: f"{time} {level(n)} [main] {message(n)}"),
    "text in brackets": (day, lambda time, n: f"[{time}] {level(n)}: {message(n)}"),
    "plain text": (day, lambda time, n: f"{time} {message(n)}"),
    "syslog": (zulu, lambda time, n: f"<34>1 {time} pc-1 sshd {n + 100} - - {message(n)}"),
}
DAMAGE: Final[dict[str, Callable[[str], str]]] = {
    "a leap second": lambda time: f"{time[:11]}23:59:60{time[19:]}",
    "no such month": lambda time: time.replace("-11-", "-13-"),
    "a letter": lambda time: f"{time[:15]}x{time[16:]}",
    "half of it": lambda time: time[:13],
}


def proposal(folder: Path, text: str) -> Proposal:
    log = folder / "a.log"
    log.write_text(text)
    return propose(
        read_sample(log)._replace(written_ms=WRITTEN_MS), "app", zone="UTC", host="tailer-1"
    )


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize(("lines", "damaged"), [(5, 3), (12, 0), (12, 11), (40, 20)])
def test_one_damaged_time_does_not_hide_the_others(
    tmp_path: Path, kind: str, damage: str, lines: int, damaged: int
) -> None:
    time_of, line_of = LINES[kind]
    times = [time_of(n) for n in range(lines)]
    times[damaged] = DAMAGE[damage](times[damaged])
    found = proposal(tmp_path, "".join(f"{line_of(of, n)}\n" for n, of in enumerate(times)))
    assert found.oldest is not None
    assert found.safest is None
    assert found.oldest.startswith("2026-11-21T10:00:0")


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("lines", [5, 40])
def test_a_byte_order_mark_does_not_hide_the_times(tmp_path: Path, kind: str, lines: int) -> None:
    time_of, line_of = LINES[kind]
    text = "".join(f"{line_of(time_of(n), n)}\n" for n in range(lines))
    found = proposal(tmp_path, MARK + text)
    plain = proposal(tmp_path, text)
    assert (found.newest, found.safest) == (plain.newest, None)
    assert found.newest is not None


@pytest.mark.parametrize("start", ["", MARK])
def test_a_header_row_of_a_short_table_is_no_doubt(tmp_path: Path, start: str) -> None:
    rows = "".join(f"{day(n)},{level(n)},{n}\n" for n in range(4))
    found = proposal(tmp_path, f"{start}time,level,number\n{rows}")
    assert (found.oldest, found.safest) == ("2026-11-21T10:00:00.000Z", None)


def test_a_line_with_a_damaged_time_is_a_record_of_its_own(tmp_path: Path) -> None:
    times = [*(day(n) for n in range(11)), "2026-13-21 10:00:59"]
    found = proposal(tmp_path, "".join(f"{of} INFO {message(n)}\n" for n, of in enumerate(times)))
    assert (found.records, found.fitting, found.candidate.record_start) == (12, 11, "")


def test_leap_seconds_are_times_however_many_there_are() -> None:
    # They cannot be read (RFC 5424 forbids them, Unix time has none), and their lines are kept.
    times = [*(f"2026-11-21 23:59:{n}" for n in range(50, 60)), *["2026-11-21 23:59:60"] * 3]
    choice = choose_time_format(times, WRITTEN_MS)
    assert choice is not None
    assert choice.format == "%Y-%m-%d %H:%M:%S"


@pytest.mark.parametrize(
    "others", [["25/11/2026 10:00:00"], ["25/11/2026 10:00:00", "31/13/2026 10:00:00"]]
)
def test_a_date_that_only_one_order_reads_is_no_damaged_one(others: list[str]) -> None:
    times = [*(f"0{n}/11/2026 10:00:00" for n in range(1, 9)), *others]
    choice = choose_time_format(times, WRITTEN_MS)
    assert choice is not None
    assert (choice.format, choice.doubts) == ("%d/%m/%Y %H:%M:%S", ())


def test_a_column_of_which_two_values_are_no_times_is_none() -> None:
    times = [*(f"2026-11-21 23:59:{n}" for n in range(50, 60)), "started", "done"]
    assert choose_time_format(times, WRITTEN_MS) is None
