"""Reports errors of the file system to users as messages instead of tracebacks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hourmark.errors import Unavailable

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def file_errors_reported() -> Iterator[None]:
    """Convert an `OSError` raised in a `with` block into `Unavailable` with a message for users.

    Also usable as a decorator. An `OSError` that names no file is usually a defect of the program,
    so it is not converted unless the disk is full or the current folder was deleted.

    Raises:
        Unavailable: A file or folder cannot be used, the disk is full, or the current folder was
            deleted.
    """
    try:
        yield
    except OSError as error:
        if (message := _describe(error)) is None:
            raise
        raise Unavailable(message) from error


def _describe(error: OSError) -> str | None:
    if error.errno in _FULL:
        where = f"cannot write {error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}; free disk space, then repeat the command"
    if error.filename:
        return (
            f"cannot use {error.filename}: {error.strerror}; grant access to it, or use another "
            "path, then repeat the command"
        )
    if error.errno == errno.ENOENT and not _current_folder_exists():
        return "the current folder was deleted; change to another one, then repeat the command"
    return None


def _current_folder_exists() -> bool:
    try:
        os.stat(".")  # noqa: PTH116  # Path.exists would hide the error
        os.getcwd()  # noqa: PTH109  # the call that failed
    except OSError:
        return False
    return True
