"""Glob patterns of a tailer's source, matched against a path without access to the file system."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence


def matches_any_glob(path: str, globs: Sequence[str]) -> bool:
    """Return whether an absolute path matches at least one glob pattern.

    A pattern without a slash is matched against the file name only.

    Args:
        path: Absolute path of a file.
        globs: Glob patterns.
    """
    names = _names(path)
    return any(
        _matches(names, _names(glob)) if "/" in glob else fnmatch.fnmatchcase(names[-1], glob)
        for glob in globs
    )


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    if not names or not parts:
        return not names and not parts
    if parts[0] == "**":  # the last part of all: any file below; else no folder, or one more
        return len(parts) == 1 or _matches(names, parts[1:]) or _matches(names[1:], parts)
    return fnmatch.fnmatchcase(names[0], parts[0]) and _matches(names[1:], parts[1:])
