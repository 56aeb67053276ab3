"""Storage in a dictionary, for tests that run thousands of histories.

Passes the same contract suite as the real ones.

`url` names nothing that another process could read.
"""

from __future__ import annotations

import builtins
import io
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from hourmark_etl.storage import AlreadyExists, NotFound, StorageEntry, StorageError
from hourmark_etl.storage.paths import SCRATCH, check_path, parent_folder

_BY_NAME: dict[str, MemoryStorage] = {}


class Snapshot(NamedTuple):
    """What a storage holds at one moment: files by path, and folders."""

    files: Mapping[str, bytes]
    folders: frozenset[str]


class MemoryStorage:
    """See `hourmark_etl.storage.interface.Storage`.

    A pickled one is the same one, within this process.
    """

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self._files: dict[str, bytes] = {}
        self._folders: set[str] = {""}
        self._lock = threading.RLock()
        _BY_NAME[self.name] = self

    def forget(self) -> None:
        """Free its memory; it cannot be unpickled any more."""
        _BY_NAME.pop(self.name, None)
        self._files.clear()

    def __reduce__(self) -> tuple[Callable[[str], MemoryStorage], tuple[str]]:
        return _by_name, (self.name,)

    def write_new(
        self, path: str, content: bytes | memoryview, *, unpublished: bool = False
    ) -> None:
        with self._lock:
            self._refuse_standing(path)
            self._make_parents(path)
            self._files[path] = bytes(content)

    @contextmanager
    def create(self, path: str, *, unpublished: bool = False) -> Iterator[BinaryIO]:
        self._refuse_standing(path)
        self._folders.add(SCRATCH)
        buffer = io.BytesIO()
        yield buffer
        self.write_new(path, buffer.getvalue())

    def read(self, path: str, *, size: int | None = None) -> bytes:
        with self._lock:
            try:
                return self._files[check_path(path)]
            except KeyError:
                raise NotFound(path, self.url(path), "there is no such file") from None

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def size(self, path: str) -> int:
        return len(self.read(path))

    def exists(self, path: str) -> bool:
        with self._lock:
            return self._stands(check_path(path, root_allowed=True))

    def list(self, folder: str) -> builtins.list[StorageEntry]:
        with self._lock:
            if check_path(folder, root_allowed=True) not in self._folders or (
                folder == "" and len(self._folders) == 1 and not self._files
            ):
                raise NotFound(folder, self.url(folder), "there is no such folder")
            now_ms = (
                time.time_ns() // 1_000_000
            )  # when a file changed is not kept: none is ever old
            files = [
                StorageEntry(p.rpartition("/")[2], len(c), False, now_ms)
                for p, c in self._files.items()
                if parent_folder(p) == folder
            ]
            folders = [
                StorageEntry(p.rpartition("/")[2], 0, True, now_ms)
                for p in self._folders
                if p and parent_folder(p) == folder
            ]
            return sorted(files + folders)

    def make_folder(self, path: str) -> None:
        with self._lock:
            if check_path(path) in self._files:
                raise AlreadyExists(path, self.url(path), "a file stands there")
            self._make_parents(path)
            self._folders.add(path)

    def rename_new(self, source: str, target: str, *, unpublished: bool = False) -> None:
        with self._lock:
            if not self._stands(check_path(source)):
                raise NotFound(source, self.url(source), "the source does not exist")
            self._refuse_standing(target)
            if target.startswith(f"{source}/"):
                raise StorageError(target, self.url(target), "a folder cannot be moved into itself")
            self._make_parents(target)
            for moved in [p for p in self._files if p == source or p.startswith(f"{source}/")]:
                self._files[target + moved[len(source) :]] = self._files.pop(moved)
            for moved in [p for p in self._folders if p == source or p.startswith(f"{source}/")]:
                self._folders.remove(moved)
                self._folders.add(target + moved[len(source) :])

    def move_file(self, source: str, target: str) -> None:
        self.rename_new(source, target, unpublished=True)

    def delete(self, path: str) -> None:
        with self._lock:
            doomed = check_path(path)
            for p in [p for p in self._files if p == doomed or p.startswith(f"{doomed}/")]:
                del self._files[p]
            self._folders -= {p for p in self._folders if p == doomed or p.startswith(f"{doomed}/")}

    def url(self, path: str) -> str:
        return f"memory://{self.name}/{check_path(path, root_allowed=True)}"

    def snapshot(self) -> Snapshot:
        """All that is stored now."""
        with self._lock:
            return Snapshot(dict(self._files), frozenset(self._folders))

    def restore(self, stored: Snapshot) -> None:
        """Store this, and nothing else."""
        with self._lock:
            self._files, self._folders = dict(stored.files), set(stored.folders)

    def content(self, folder: str) -> dict[str, bytes]:
        """All files below the folder, by path: for checks."""
        with self._lock:
            return {p: c for p, c in self._files.items() if p.startswith(f"{folder}/")}

    def damage(self, path: str) -> None:
        """Cut the file in half, as a bad disk might."""
        with self._lock:
            self._files[path] = self._files[path][: len(self._files[path]) // 2]

    def _stands(self, path: str) -> bool:
        return path in self._files or path in self._folders

    def _refuse_standing(self, path: str) -> None:
        if self._stands(check_path(path)):
            raise AlreadyExists(path, self.url(path), "exists already")

    def _make_parents(self, path: str) -> None:
        folder = parent_folder(path)
        while folder:
            if folder in self._files:
                raise AlreadyExists(
                    folder, self.url(folder), "a file exists where a folder is needed"
                )
            self._folders.add(folder)
            folder = parent_folder(folder)


def _by_name(name: str) -> MemoryStorage:
    return _BY_NAME[name]
