"""Which paths globs name, those of a source's `exclude` above all (pure).

`*`, `?`, `[…]` match within a name, hidden ones too; `**` any folders.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence


def is_named_by(path: str, globs: Sequence[str]) -> bool:
    """Whether one of the globs is this absolute path. A glob without a slash is of the name, in any folder."""
    names = _names(path)
    return any(_matches(names, _names(glob)) if "/" in glob else fnmatch.fnmatchcase(names[-1], glob) for glob in globs)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    if not names or not parts:
        return not names and not parts
    if parts[0] == "**":  # the last part of all: any file below; else no folder, or one more
        return len(parts) == 1 or _matches(names, parts[1:]) or _matches(names[1:], parts)
    return fnmatch.fnmatchcase(names[0], parts[0]) and _matches(names[1:], parts[1:])
