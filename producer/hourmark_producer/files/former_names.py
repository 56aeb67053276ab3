"""Names that a rotated, copied or compressed file may have had before. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hourmark_producer.files.patterns import PACKED

_SEPARATORS: Final = ".-_~"
_OF_NUMBERS: Final = "0123456789T.-_"
DATE_DIGITS: Final = 6  # at least, as in 202611


def without_numbers(path: str, *, digits_min: int = 1) -> Iterator[str]:
    """Yield the names that a file may have had before rotation added a number or a date.

    The number is removed at the end of the name or before its extension, after removing a suffix
    such as `.gz`: `app.log` for `app.log.1`, `app-20261124.log` or `app.log.1.gz`.

    Args:
        path: Path of the file.
        digits_min: Minimum number of digits after a separator other than a dot. `app-2.log` may
            also be the log of another program.
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
    """Yield all names that a file may have had before it was rotated or copied.

    In addition to `without_numbers`, whatever follows any separator is removed: `app.log` for
    `app.log.backup`. The same name may be yielded more than once.
    """
    for at in range(len(path) - 1, path.rfind("/") + 1, -1):
        if path[at] in _SEPARATORS:
            yield path[:at]
    yield from without_numbers(path)
