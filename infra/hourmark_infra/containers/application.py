"""A program that logs, as others are: RFC 5424 lines of two types into a file, which is rotated by
rename.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hourmark.clock import Clock

LINES_A_SECOND: Final = 5
ROTATE_BYTES: Final = 1 << 20
_KEPT: Final = 99  # rotated files; a day's worth, at these rates


def write_for_ever(log: Path, clock: Clock) -> None:
    """Append line by line; each is one write of whole bytes."""
    draw = random.Random(clock.now_ms())  # noqa: S311  # what is shown to nobody need not be secret
    number = 0
    while True:
        rotate(log)
        with log.open("ab", buffering=0) as file:
            while file.tell() < ROTATE_BYTES:
                number += 1
                file.write(line(number, clock.now_ms(), draw))
                clock.sleep(1 / LINES_A_SECOND)


def line(number: int, now_ms: int, draw: random.Random) -> bytes:
    """A line with its LF: nine of ten are pages that were viewed, one is plain text."""
    now = (
        datetime.fromtimestamp(now_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
    head = f"<14>1 {now} application program {number}"
    if number % 10 == 0:
        return f"{head} app-log - {number} pages were shown\n".encode()
    page = {
        "page": f"/page/{draw.randrange(100)}",
        "milliseconds": draw.randrange(500),
        "user": f"user-{draw.randrange(1000)}",
    }
    return f"{head} page-viewed - {json.dumps(page)}\n".encode()


def rotate(log: Path) -> None:
    """Where the file is full, rename it, and those before it; the oldest is removed."""
    if not log.exists() or log.stat().st_size < ROTATE_BYTES:
        return
    for path, to in _renames(log):
        if path.exists():
            path.replace(to)


def _renames(log: Path) -> Iterator[tuple[Path, Path]]:
    for number in range(_KEPT, 0, -1):
        yield (
            log.with_name(f"{log.name}.{number - 1}" if number > 1 else log.name),
            log.with_name(f"{log.name}.{number}"),
        )
