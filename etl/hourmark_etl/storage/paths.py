"""Paths below the storage root: relative, separated by `/`, with the same names on all backends.

HDFS does not allow `:` or the names `.` and `..`, so all backends reject them: a path that works on
a local disk also works on a cluster.
"""

from __future__ import annotations

import uuid
from typing import Final

# Unfinished files, and local folders being deleted, are here and not next to their target: a crash
# leaves nothing in any folder that a reader lists. One file system (HDFS: one encryption zone) must
# hold the whole root.
SCRATCH: Final = ".unfinished"


def check_path(path: str, *, root_allowed: bool = False) -> str:
    """Validate a relative storage path and return it unchanged.

    Args:
        path: Path relative to the storage root.
        root_allowed: Whether to accept the empty path, which is the root.

    Returns:
        The value of `path`.

    Raises:
        ValueError: The path contains an empty name, `.`, `..`, a colon or a control character.
    """
    if path == "" and root_allowed:
        return path
    for name in path.split("/"):
        if name in ("", ".", "..") or ":" in name or any(ord(character) < 32 for character in name):
            raise ValueError(
                f"{path!r} is not a valid storage path: it must be relative, without empty "
                "names, '.', '..', ':' or control characters"
            )
    return path


def parent_folder(path: str) -> str:
    """Return the path of the folder that contains a file or folder.

    Args:
        path: Path relative to the storage root.

    Returns:
        Path of the parent. For a path without a slash, this is "" (the root).
    """
    return path.rpartition("/")[0]


def scratch_path() -> str:
    """Return a new, unique path for a temporary file or folder.

    Nothing is created on storage.

    Returns:
        Path below `.unfinished/`, relative to the storage root.
    """
    return f"{SCRATCH}/{uuid.uuid4().hex}"
