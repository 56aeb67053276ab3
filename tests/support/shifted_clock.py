"""Hourmark with a clock that a test puts wrong while it runs: `python -m
tests.support.shifted_clock serve --config FILE`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from hourmark.clock import SystemClock
from hourmark.process.durable import write_durably

# the file that holds by how many ms; where there is none, it is right
OFFSET_VARIABLE: Final = "HOURMARK_TEST_CLOCK_OFFSET"


def install() -> None:
    """All of Hourmark's wall time in this process comes from one clock; time that is measured stays
    as it is.
    """
    file, right = Path(os.environ[OFFSET_VARIABLE]), SystemClock.now_ms

    def now_ms(clock: SystemClock) -> int:
        with suppress(FileNotFoundError):
            return right(clock) + int(file.read_text())
        return right(clock)

    setattr(SystemClock, "now_ms", now_ms)  # noqa: B010  # a method of another's class


def shift(file: Path, offset_ms: int) -> None:
    """From now on."""
    write_durably(file, str(offset_ms).encode())


if __name__ == "__main__":
    install()
    from hourmark.cli import main

    main()
