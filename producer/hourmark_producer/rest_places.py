"""Where what is left of a file may lie, by name: packed files of a vanished one, and copies of a truncated one."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from typing import Final

from hourmark_producer.discovery import PACKED
from hourmark_producer.files import TrackedFile

_ROOT: Final = re.compile(r"\.*[^.\d]*")
_SEPARATORS: Final = "._-~"
_DATED: Final = re.compile(r"[.\-_]\d")


def packed_places(file: TrackedFile, paths: Iterable[str]) -> dict[str, int]:
    """Packed files whose name begins as the file's does, up to its first digit or dot; the newest first."""
    root = _root(file.place.seen_at)
    dated: list[tuple[int, str, int]] = []
    for path in dict.fromkeys(paths):
        if path.endswith(PACKED) and os.path.basename(path).startswith(root):  # noqa: PTH119
            with contextlib.suppress(OSError):
                _add(dated, path)
    return {path: inode for _, path, inode in sorted(dated, reverse=True)}


def copy_places(file: TrackedFile) -> dict[str, int]:
    """Files beside it with a name of its own and something behind it or before its last dot; packed or not, the newest first.

    OSError where its folder cannot be looked into: that says nothing of what is in it, unless the file is deleted.
    """
    dated: list[tuple[int, str, int]] = []
    for place in dict.fromkeys(path for path in (file.place.seen_at, file.target, file.place.path, *file.other_names) if path):
        folder, name = os.path.split(place)
        stem = name.rpartition(".")[0] or name
        with contextlib.suppress(*([OSError] if file.deleted else [])), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name != name and _is_named_after(entry.name, name, stem):
                    with contextlib.suppress(OSError):
                        _add(dated, entry.path)
    return {path: inode for _, path, inode in sorted(dated, reverse=True)}


def _add(dated: list[tuple[int, str, int]], path: str) -> None:
    """Regular files alone: a socket cannot be opened. OSError."""
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
