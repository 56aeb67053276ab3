"""Paths below the root: relative, `/` between names, the same set of names on every backend.

HDFS refuses `:` and the names `.` and `..`, so they are refused everywhere: what works on a local
disk works on a cluster.
"""

from __future__ import annotations

import uuid
from typing import Final

# Unfinished files, and local folders being deleted, stand here and not beside their target: a crash
# leaves nothing in any folder that a reader lists. One file system (HDFS: one encryption zone) must
# hold the whole root.
SCRATCH: Final = ".unfinished"


def checked(path: str, *, root_allowed: bool = False) -> str:
    """`path` itself; ValueError (a fault of the program) if it is not a clean relative path."""
    if path == "" and root_allowed:
        return path
    for name in path.split("/"):
        if name in ("", ".", "..") or ":" in name or any(ord(character) < 32 for character in name):
            raise ValueError(
                f"{path!r} is no storage path: relative, without empty names, '.', '..', "
                "':' or control characters"
            )
    return path


def parent(path: str) -> str:
    """The folder that holds it; "" is the root."""
    return path.rpartition("/")[0]


def scratch_path() -> str:
    """A name that nobody else uses."""
    return f"{SCRATCH}/{uuid.uuid4().hex}"
