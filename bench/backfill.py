"""Hours per minute at which `hourmark run --once` back-fills a log file of 2005.

    python -m bench.backfill --hours 3000 [--keep FOLDER]

The file has one line in every second hour. A local stack of its own delivers and closes it. The
time counts from the cut, at which all lines are staged, until the last bucket is published: freeze,
proof, seal, write and publication of all hours.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

BEGUN: Final = dt.datetime(2005, 6, 3, 15, 42, 50, tzinfo=dt.UTC)
_EVERY: Final = dt.timedelta(hours=2)


def write_old_log(file: Path, hours: int) -> list[str]:
    """Write a log file with a line in every second hour from June 2005 on.

    Args:
        file: File to create.
        hours: Number of lines.

    Returns:
        Labels of the hours of the lines, such as `2005-06-03T15`, in ascending order.
    """
    times = [BEGUN + n * _EVERY for n in range(hours)]
    lines = [f"{at:%Y-%m-%d %H:%M:%S} INFO line {n}\n" for n, at in enumerate(times)]
    file.write_text("".join(lines))
    return [f"{at:%Y-%m-%dT%H}" for at in times]


def _run(folder: Path, *arguments: str) -> bytes:
    environment = {**os.environ, "HOURMARK_HOME": str(folder / "home"), "TZ": "UTC"}
    command = [sys.executable, "-m", "hourmark", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True)
    return done.stdout


def measure(folder: Path, hours: int) -> dict[str, float]:
    """Deliver and close an old log file on a stack of its own.

    Args:
        folder: Folder for the stack and the log file. The stack is purged at the end.
        hours: Number of hours with a line.

    Returns:
        The number of buckets, the seconds from the cut to the last publication (`seconds`), those
        from the first publication on (`publishing_seconds`), and the rate in hours per minute.
    """
    labels = write_old_log(folder / "old.log", hours)
    try:
        told = json.loads(_run(folder, "run", "--once", "old.log", "--yes", "--json"))
        closed = [row["hour"] for row in told["buckets"] if row["grade"] == "proved"]
        assert closed == labels, "each line is in a proved bucket of its own hour"
        show = ("--json", "--config", told["config"])
        first, last = (
            json.loads(_run(folder, "bucket", "show", "old", label, *show))
            for label in (labels[0], labels[-1])
        )
    finally:
        _run(folder, "purge", "--yes")
    seconds = (last["closed_at_ms"] - last["evidence"]["cut_at_ms"]) / 1000
    return {
        "buckets": hours,
        "seconds": seconds,
        "publishing_seconds": (last["closed_at_ms"] - first["closed_at_ms"]) / 1000,
        "hours_per_minute": round(60 * hours / seconds),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=3000)
    parser.add_argument("--keep", type=Path, help="existing folder for logs; default: temporary")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        result = measure(asked.keep or Path(temporary), asked.hours)
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
