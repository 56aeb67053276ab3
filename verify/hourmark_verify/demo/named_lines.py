"""Files that the user names, written out as live traffic: each line, byte for byte, is the MSG of
an RFC 5424 line.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hourmark_verify.demo.live_log import Due
from hourmark_verify.demo.rendering import app_name, rendered

TYPE: Final = "lines"


def named_lines(path: Path) -> Iterator[Due]:
    """The file's lines, evenly spread.

    Read twice, never held as a whole; an unterminated last line counts.
    """
    with path.open("rb") as file:
        count = sum(1 for _ in file)
    with path.open("rb") as file:
        for number, line in enumerate(
            itertools.islice(file, count)
        ):  # what is appended meanwhile is not part of the demo
            message = line.removesuffix(b"\n")
            yield Due(number / max(1, count - 1), rendered(app_name(path.name), TYPE, message))


def own_lines(path: Path) -> Path:
    """A file of the demo's own making, for who names none: ordinary lines, and the odd ones that
    real files have.
    """
    odd = [
        b"",
        b"\r",
        b"caf\xc3\xa9",
        b"\xff\xfe no UTF-8",
        b"a NUL \x00 within",
        b"one\rtwo",
        b"tab\tand CRLF\r",
        b"x" * 100_000,
    ]
    lines = [
        odd[n // 20 % len(odd)]
        if n % 20 == 7
        else b"2026-01-02 03:%02d:%02d INFO request %d served" % (n // 60 % 60, n % 60, n)
        for n in range(1200)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(lines))  # the last one without its LF
    return path
