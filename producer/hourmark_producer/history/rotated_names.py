"""Names that rotation, copying and compression give to a file.

Two directions: the former names that a file's name may derive from (`app.log` for `app.log.1.gz`),
and the files in the same folders whose names may derive from a file's name. A name proves nothing:
it only limits which contents are compared.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from hourmark_producer.files.patterns import PACKED
from hourmark_producer.files.tracked_file import TrackedFile

_SEPARATORS: Final = ".-_~"
_OF_NUMBERS: Final = "0123456789T.-_"
DATE_DIGITS: Final = 6  # at least, as in 202611
_ROOT: Final = re.compile(r"\.*[^.\d]*")
_DATED: Final = re.compile(r"[.\-_]\d")


def strip_rotation_suffixes(path: str, *, digits_min: int = 1) -> Iterator[str]:
    """Yield the names that a file may have had before log rotation added a number or a date.

    The suffix of a compressed file, such as `.gz`, is removed first. Then the number is removed
    from the end of the name, or from before the extension. For example, `app.log.1`,
    `app-20261124.log` and `app.log.1.gz` all yield `app.log`. A name without a number yields
    nothing.

    Args:
        path: Path of the file.
        digits_min: Minimum number of digits after a separator other than a dot. Increase it if a
            short number, as in `app-2.log`, may be part of the original name.
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
    """Yield all paths that a file may have had before it was rotated or copied.

    Yields the path up to each separator in the file name, such as `app.log` for `app.log.backup`,
    and then the paths from `strip_rotation_suffixes`. A path may be yielded more than once.

    Args:
        path: Path of the file.
    """
    for at in range(len(path) - 1, path.rfind("/") + 1, -1):
        if path[at] in _SEPARATORS:
            yield path[:at]
    yield from strip_rotation_suffixes(path)


def find_compressed_candidates(
    file: TrackedFile, paths: Iterable[str], suffixes: tuple[str, ...] = PACKED
) -> dict[str, int]:
    """Return the compressed files that may contain the content of a file, judging by their names.

    The name of a compressed file must begin with the name of the file up to its first digit or dot.
    Contents are not compared.

    Args:
        file: The uncompressed file.
        paths: Paths to select from. Paths without the suffix of a compressed file are ignored.
        suffixes: Suffixes of compressed files; by default those that can be decompressed.

    Returns:
        Maps each path to its inode number, most recently modified first. Empty if no name matches.
    """
    root = _root(file.place.seen_at)
    dated: list[tuple[int, str, int]] = []
    for path in dict.fromkeys(paths):
        if path.endswith(suffixes) and os.path.basename(path).startswith(root):  # noqa: PTH119
            with contextlib.suppress(OSError):
                _add(dated, path)
    return {path: inode for _, path, inode in sorted(dated, reverse=True)}


def find_copy_candidates(file: TrackedFile) -> dict[str, int]:
    """Return the files that may be copies of a file, judging by their names.

    Searches all folders in which the file has or had a name. The name of a copy is the name of the
    file plus a suffix, or with a number before the extension. Copies may be compressed.

    Args:
        file: The original.

    Returns:
        Maps each path to its inode number, most recently modified first. Empty if no name matches.

    Raises:
        OSError: A folder cannot be listed. For a deleted file, such folders are skipped.
    """
    dated: list[tuple[int, str, int]] = []
    for place in dict.fromkeys(
        path
        for path in (file.place.seen_at, file.target, file.place.path, *file.other_names)
        if path
    ):
        folder, name = os.path.split(place)
        stem = name.rpartition(".")[0] or name
        with (
            contextlib.suppress(*([OSError] if file.deleted else [])),
            os.scandir(folder) as entries,
        ):
            for entry in entries:
                if entry.name != name and _is_named_after(entry.name, name, stem):
                    with contextlib.suppress(OSError):
                        _add(dated, entry.path)
    return {path: inode for _, path, inode in sorted(dated, reverse=True)}


def _add(dated: list[tuple[int, str, int]], path: str) -> None:
    status = os.stat(path)  # noqa: PTH116
    if stat.S_ISREG(status.st_mode):
        dated.append((status.st_mtime_ns, path, status.st_ino))


def _is_named_after(name: str, live: str, stem: str) -> bool:
    return (name.startswith(live) and name[len(live)] in _SEPARATORS) or (
        _DATED.match(name, len(stem)) is not None and name.startswith(stem)
    )


def _root(path: str) -> str:
    match = _ROOT.match(os.path.basename(path))  # noqa: PTH119
    assert match is not None, "it matches nothing, too"
    return match[0].rstrip("-_~")
