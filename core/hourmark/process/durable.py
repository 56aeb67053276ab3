"""Durable file operations: when they return, the data is on disk.

This is the one implementation of the sequence temporary file, fsync, rename, fsync of the folder.
Readers see the old content or the new content, never a mixture.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file's content atomically and durably.

    The content is written to a temporary file in the same folder, synced and renamed. When the
    function returns, the content survives a power failure. Missing parent folders are created.

    Args:
        path: The file.
        content: Its new content.
        mode: Permissions of the file. The default is 0o600.

    Raises:
        OSError: The file cannot be written. The old content is unchanged unless syncing the folder
            failed.
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
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # the system names none when a write fails
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable with `fsync`.

    Call this function after files were created or renamed in the folder. The contents of the files
    are not synced.

    Args:
        folder: Path of the folder.

    Raises:
        OSError: The folder does not exist or cannot be synced.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
