"""Files whose times are later than their last change: from a host in another zone, or with a clock
that is ahead.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest

from hourmark_declare.proposing.confidence import Confidence
from hourmark_declare.proposing.file_sample import read_sample
from hourmark_declare.proposing.selection import Proposal, propose

HOUR = dt.timedelta(hours=1)


def proposed(folder: Path, last: dt.datetime, written: dt.datetime) -> Proposal:
    """For a file of 30 lines, the last of them at `last`, that was changed at `written`."""
    times = [last - dt.timedelta(minutes=30 - n) for n in range(31)]
    lines = [f"{at:%Y-%m-%d %H:%M:%S} INFO started job {at.minute}" for at in times]
    return proposed_lines(folder, lines, written)


def proposed_lines(folder: Path, lines: list[str], written: dt.datetime | None = None) -> Proposal:
    log = folder / "app.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    if written is not None:
        os.utime(log, (written.timestamp(), written.timestamp()))
    return propose(read_sample(log), "app", zone="UTC", host="h")


@pytest.mark.parametrize("days", [0, 40])
def test_a_file_of_another_zone_keeps_its_form_and_the_zone_is_asked_for(
    tmp_path: Path, days: int
) -> None:
    written = dt.datetime.now(dt.UTC) - days * 24 * HOUR - 10 * HOUR
    found = proposed(tmp_path, written + 9 * HOUR, written)
    assert (found.candidate.form, found.fitting) == ("lines that begin with a time", 31)
    assert found.assessment.confidence is Confidence.MEDIUM
    (reason,) = found.assessment.reasons
    assert "9.0 h after the last change of the file" in reason and "--zone" in reason


def test_times_ahead_of_the_clock_are_a_guess_that_names_what_will_happen(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    found = proposed(tmp_path, now + 5 * HOUR, now)
    assert (found.candidate.form, found.fitting) == ("lines that begin with a time", 31)
    assert found.assessment.confidence is Confidence.LOW and found.safest is not None
    (reason,) = found.assessment.reasons
    for part in ("5.0 h ahead of this machine's clock", "dead letters", "--zone"):
        assert part in reason


def test_times_shortly_before_the_last_change_are_no_reason(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    found = proposed(tmp_path, now, now)
    assert found.assessment == (Confidence.HIGH, ())


def test_a_single_time_in_the_future_is_no_reason_to_doubt_the_others(tmp_path: Path) -> None:
    written = dt.datetime.now(dt.UTC)
    times = [written - dt.timedelta(seconds=100 - n) for n in range(100)]
    times[50] = times[50].replace(year=2099)
    found = proposed_lines(tmp_path, [f"{at:%Y-%m-%d %H:%M:%S} INFO job ended" for at in times])
    assert found.candidate.form == "lines that begin with a time"
    assert (found.fitting, found.dead_letters["future"]) == (99, 1)
    assert found.assessment == (Confidence.HIGH, ())


@pytest.mark.parametrize("days", [0, 40])
def test_times_without_a_year_are_not_moved_by_other_times_in_the_future(
    tmp_path: Path, days: int
) -> None:
    """A system log in which some programs write RFC 5424."""
    written = dt.datetime.now(dt.UTC) - days * 24 * HOUR
    times = [written + 9 * HOUR - dt.timedelta(minutes=30 - n) for n in range(31)]
    lines = [
        f"<13>1 {at:%Y-%m-%dT%H:%M:%SZ} host app 1 - - started"
        if number % 3
        else f"<13>{at - 9 * HOUR:%b %d %H:%M:%S} host app[1]: started"
        for number, at in enumerate(times)
    ]
    found = proposed_lines(tmp_path, lines, written)
    assert (found.candidate.form, found.fitting) == ("a system log", 31)
    assert found.newest is not None
    assert abs(dt.datetime.fromisoformat(found.newest) - times[-1]) < HOUR


def test_a_time_after_all_others_is_not_omitted_from_the_reason(tmp_path: Path) -> None:
    written = dt.datetime.now(dt.UTC)
    times = [written - dt.timedelta(minutes=30 - n) for n in range(31)]
    times[3] = times[3].replace(year=2500)
    found = proposed_lines(tmp_path, [f"{at:%Y-%m-%d %H:%M:%S} INFO job ended" for at in times])
    assert found.assessment.reasons == ("3% of the records do not have this form",)
