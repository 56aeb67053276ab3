"""Blank lines: no byte but CR before the LF. They make no record, and are counted."""

from __future__ import annotations

import re
from typing import Final

_OTHER: Final = re.compile(rb"[^\r\n]")
_LETTERS: Final = bytes(byte if byte == ord("\n") else ord("x") for byte in range(256))


def blank_lines(body: bytes, at: int) -> tuple[int, int]:
    """Where the blank lines end that begin with the line at `at`, and how many there are: in one go, as it may be a million."""
    other = _OTHER.search(body, at)
    end = body.rfind(b"\n", at, len(body) if other is None else other.start()) + 1
    return (end, body.count(b"\n", at, end)) if end else (at, 0)


def lines(body: bytes) -> int:
    """How many there are, with the last that has no LF."""
    return body.count(b"\n") + (not body.endswith(b"\n"))


def lines_not_blank(body: bytes) -> int:
    """How many are not blank; a body that begins with a blank one may be said to have one more. A mebibyte takes milliseconds."""
    if b"\n\n" not in body and b"\r" not in body:
        return lines(body)
    unended = body[body.rfind(b"\n") + 1 :]
    return body.translate(_LETTERS, delete=b"\r").count(b"x\n") + (unended != b"")
