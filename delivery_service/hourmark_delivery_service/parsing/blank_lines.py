"""Blank lines: no byte but CR before the LF. They make no record, and are counted."""

from __future__ import annotations

import re
from typing import Final

_OTHER: Final = re.compile(rb"[^\r\n]")


def blank_lines(body: bytes, at: int) -> tuple[int, int]:
    """Where the blank lines end that begin with the line at `at`, and how many there are: in one go, as it may be a million."""
    other = _OTHER.search(body, at)
    end = body.rfind(b"\n", at, len(body) if other is None else other.start()) + 1
    return (end, body.count(b"\n", at, end)) if end else (at, 0)
