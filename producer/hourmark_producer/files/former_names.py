"""What a rotated, copied or packed file may have been called before (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hourmark_producer.files.patterns import PACKED

_SEPARATORS: Final = ".-_~"
_OF_NUMBERS: Final = "0123456789T.-_"
DATE_DIGITS: Final = 6  # at least, as in 202611


def without_numbers(path: str, *, digits_min: int = 1) -> Iterator[str]:
    """As rotation names files: without the number, or the date, at its end or before its extension,
    and without its packing.

    `digits_min`: behind another separator than a dot. `app-2.log` may as well be the log of another
    program.
    """
    folder, slash, name = path.rpartition("/")
    for packing in PACKED:
        name = name.removesuffix(packing)
    stem, _, extension = name.rpartition(".")
    for before, after in [(name, ""), (stem, f".{extension}")]:
        for at in range(len(before) - 1, 0, -1):
            if before[at] not in _OF_NUMBERS:
                break
            digits = sum(map(str.isdigit, before[at:]))
            if (
                before[at] in _SEPARATORS
                and before[at + 1 : at + 2].isdigit()
                and (before[at] == "." or digits >= digits_min)
            ):
                yield folder + slash + before[:at] + after


def former_names(path: str) -> Iterator[str]:
    """As anybody does: also without whatever else stands at its end, behind a separator."""
    for at in range(len(path) - 1, path.rfind("/") + 1, -1):
        if path[at] in _SEPARATORS:
            yield path[:at]
    yield from without_numbers(path)
