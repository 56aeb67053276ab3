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
    log = folder / "app.log"
    times = [last - dt.timedelta(minutes=30 - n) for n in range(31)]
    log.write_text(
        "".join(f"{at:%Y-%m-%d %H:%M:%S} INFO started job {at.minute}\n" for at in times)
    )
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
