"""Files that survive a crash: whoever returns from here may rely on the disk having it.

The one helper for the pattern temp file → fsync → rename → fsync of the folder. Readers see the old
content or the new, never a part.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` with `content`, atomically and durably; the folder is made where it is
    missing.

    Raises OSError (disk full, read-only, …); then the old content still stands.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable (names, not contents)."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
