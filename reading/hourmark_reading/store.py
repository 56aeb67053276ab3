"""Access to the root of the buckets, on any store that fsspec supports."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import IO, Any

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs


@dataclasses.dataclass(frozen=True)
class BucketStore:
    """The root of the buckets on a store. Instances can be pickled.

    All paths are relative to the root. Methods raise the exceptions of fsspec, mostly `OSError`, if
    the store is unavailable or denies access.

    Attributes:
        url: URL of the root, such as `file:///data/hourmark` or `webhdfs://namenode:9870/hourmark`.
        options: Options of fsspec for the store.
    """

    url: str
    options: Mapping[str, Any]

    def list_folders(self, path: str) -> list[str] | None:
        """Return the names of the folders in a folder, in ascending order; None if it is absent."""
        try:
            entries = self._file_system.ls(self._full_path(path), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return sorted(
            entry["name"].rstrip("/").rpartition("/")[2]
            for entry in entries
            if entry["type"] == "directory"
        )

    def list_files(self, path: str) -> list[str]:
        """Return the names of the files in a folder, in ascending order; empty if it is absent."""
        try:
            entries = self._file_system.ls(self._full_path(path), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(
            entry["name"].rpartition("/")[2] for entry in entries if entry["type"] == "file"
        )

    def read_start(self, path: str, size: int) -> bytes | None:
        """Return at most the first `size` bytes of a file; None if it does not exist."""
        try:
            with self.open(path) as file:
                return file.read(size)
        except FileNotFoundError:
            return None

    def open(self, path: str) -> IO[bytes]:
        """Open a file to read it from its start.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        file: IO[bytes] = self._file_system.open(self._full_path(path), "rb")
        return file

    def full_url(self, path: str) -> str:
        """Return the URL of a file or folder."""
        return f"{self.url.rstrip('/')}/{path}"

    def walk_levels(self, path: str, prefixes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield the values of nested folders `prefix=value`, in ascending order.

        Args:
            path: Folder in which to begin.
            prefixes: Prefixes of the folder names by level, such as `hour=`.
        """
        for name in self.list_folders(path) or ():
            if name.startswith(prefixes[0]):
                value = name.removeprefix(prefixes[0])
                if len(prefixes) == 1:
                    yield (value,)
                else:
                    for below in self.walk_levels(f"{path}/{name}", prefixes[1:]):
                        yield (value, *below)

    @cached_property
    def _located(self) -> tuple[AbstractFileSystem, str]:
        # Buckets appear at any time, so listings must not be kept.
        file_system, root = url_to_fs(self.url, use_listings_cache=False, **self.options)
        return file_system, root.rstrip("/")

    @property
    def _file_system(self) -> AbstractFileSystem:
        return self._located[0]

    def _full_path(self, path: str) -> str:
        return f"{self._located[1]}/{path}" if path else self._located[1] or "/"
