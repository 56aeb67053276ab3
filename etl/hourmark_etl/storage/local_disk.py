"""Storage on a local disk (`file:///…`), for tests, small installations and network file systems.

A write is durable when the file and the folders that hold its name are synced with fsync.
`os.rename` silently replaces a file and an empty folder, so publishing uses Linux's renameat2(2)
with RENAME_NOREPLACE. A file system without it (EINVAL) raises an error; there is no fallback.
"""

from __future__ import annotations

import builtins
import ctypes
import dataclasses
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from hourmark.process.durable import sync_folder
from hourmark_etl.storage.errors import (
    AccessDenied,
    AlreadyExists,
    BadBlocks,
    NoSpace,
    NotFound,
    StorageError,
)
from hourmark_etl.storage.interface import FolderStorage, StorageEntry
from hourmark_etl.storage.paths import check_path, scratch_path

_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1

_ERRORS: Final[dict[int | None, type[StorageError]]] = {
    errno.EEXIST: AlreadyExists,
    errno.ENOTEMPTY: AlreadyExists,
    errno.ENOENT: NotFound,
    errno.EISDIR: NotFound,
    errno.ENOTDIR: NotFound,
    errno.EACCES: AccessDenied,
    errno.EPERM: AccessDenied,
    errno.EROFS: AccessDenied,
    errno.ENOSPC: NoSpace,
    errno.EDQUOT: NoSpace,
    errno.EIO: BadBlocks,
}


@dataclasses.dataclass(frozen=True, slots=True)
class LocalDisk(FolderStorage):
    """Storage backend that stores files in a folder of the local file system.

    Attributes:
        root: Root folder. The first write creates it.
    """

    root: Path

    @contextmanager
    # writing in place would save nothing here
    def create(self, path: str, *, unpublished: bool = False) -> Iterator[BinaryIO]:  # noqa: ARG002
        target = self._file(path)
        if os.path.lexists(target):
            raise AlreadyExists(path, self.url(path), "exists already")
        unfinished = scratch_path()
        temporary = self._file(unfinished)
        try:
            with self._errors(path):
                _make_folders(temporary.parent)
                file = temporary.open("xb", buffering=1 << 20)
            with file:
                yield file
                with self._errors(path):
                    file.flush()
                    os.fsync(file.fileno())
            self._rename(unfinished, path)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._translated(path, error) from error
            raise

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:  # noqa: ARG002  # likewise
        with self._errors(path):
            return self._file(path).open("rb")

    def size(self, path: str) -> int:
        with self._errors(path):
            file = self._file(path)
            if file.is_dir():
                raise IsADirectoryError(errno.EISDIR, "is a folder, not a file")
            return file.stat().st_size

    def exists(self, path: str) -> bool:
        try:
            with self._errors(path):
                self._folder(path).stat()
        except NotFound:
            return False
        return True

    def list(self, folder: str) -> builtins.list[StorageEntry]:
        entries = []
        with self._errors(folder), os.scandir(self._folder(folder)) as found:
            for entry in found:
                with suppress(FileNotFoundError):  # gone since
                    is_folder, status = entry.is_dir(), entry.stat()
                    # Not its modification time: a folder that `delete` moved away may be old, and
                    # is being removed.
                    entries.append(
                        StorageEntry(
                            entry.name,
                            0 if is_folder else status.st_size,
                            is_folder,
                            status.st_ctime_ns // 1_000_000,
                        )
                    )
        return sorted(entries)

    def make_folder(self, path: str) -> None:
        with self._errors(path):
            _make_folders(self._file(path))

    def rename_new(self, source: str, target: str, *, unpublished: bool = False) -> None:  # noqa: ARG002
        if not os.path.lexists(self._file(source)):
            raise NotFound(source, self.url(source), "the source does not exist")
        self._rename(source, target)

    def delete(self, path: str) -> None:
        found = self._file(path)
        if not os.path.lexists(found):
            return
        doomed = self._file(scratch_path())
        with self._errors(path):
            _make_folders(doomed.parent)
            with suppress(FileNotFoundError):  # another caller was faster
                found.rename(
                    doomed
                )  # the name vanishes at once; what follows may be cut short by a crash
                sync_folder(found.parent)
                if doomed.is_dir() and not doomed.is_symlink():
                    shutil.rmtree(doomed)
                else:
                    doomed.unlink()

    def url(self, path: str) -> str:
        return f"file://{self._folder(path)}"

    def _rename(self, source: str, target: str) -> None:
        old, new = self._file(source), self._file(target)
        with self._errors(target):
            _make_folders(new.parent)
            try:
                _rename_noreplace(old, new)
            except FileNotFoundError as error:
                raise NotFound(source, self.url(source), "the source does not exist") from error
        # Verified, because a file system may report success without renaming.
        if os.path.lexists(old) or not os.path.lexists(new):
            raise StorageError(
                target,
                self.url(target),
                f"the rename of {source} was reported as successful, but did not happen",
            )
        sync_folder(new.parent)
        sync_folder(old.parent)

    def _file(self, path: str) -> Path:
        return self.root / check_path(path)

    def _folder(self, path: str) -> Path:
        return self.root / check_path(path, root_allowed=True)

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._translated(path, error) from error

    def _translated(self, path: str, error: OSError) -> StorageError:
        kind = _ERRORS.get(error.errno, StorageError)
        return kind(path, self.url(path), error.strerror or str(error))


def _make_folders(folder: Path) -> None:
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        with suppress(FileExistsError):
            new.mkdir()
        if not new.is_dir():
            raise FileExistsError(errno.EEXIST, f"{new} is a file, but a folder is needed")
        sync_folder(new.parent)


def _rename_noreplace(old: Path, new: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise OSError(
            errno.ENOSYS,
            "this system has no renameat2; storage on a local disk requires Linux with glibc "
            "2.28 or later",
        )
    if (
        libc.renameat2(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), _RENAME_NOREPLACE)
        != 0
    ):
        code = ctypes.get_errno()
        if code == errno.EINVAL:
            raise OSError(
                code,
                "this file system, or this pair of folders, does not support a rename that "
                "fails if the target exists",
            )
        raise OSError(code, os.strerror(code))
