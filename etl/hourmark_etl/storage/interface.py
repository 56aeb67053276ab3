"""The interface of all storage backends.

Paths are relative to the root (see `paths`); a path that is not clean raises ValueError.
Implementations are small immutable values that can be pickled, so Spark workers can use them. No
implementation caches file contents. Exceptions are defined in `errors`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import BinaryIO, Final, Protocol, TypeVar

from hourmark_etl.storage.errors import AccessDenied, NotFound

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_AT_ONCE: Final = 8  # requests to storage
_LOG: Final = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class StorageEntry:
    """One entry of a folder listing.

    Attributes:
        name: File or folder name, without the folder's path.
        size: Size in bytes; 0 for a folder.
        is_folder: Whether the entry is a folder.
        changed_ms: Time of the last change, Unix milliseconds by the storage's clock. HDFS reports
            the creation time for a file that is still being written. Ignored in comparisons.
    """

    name: str
    size: int
    is_folder: bool
    changed_ms: int = dataclasses.field(default=0, compare=False)


class Storage(Protocol):
    """A file system of files and folders below one storage root.

    Paths are relative to the root and separated by `/`. All methods raise StorageError if the
    storage is unavailable or refuses the operation, and ValueError for an invalid path. Instances
    are immutable and can be pickled and shared by threads.
    """

    def write_new(self, path: str, content: bytes, *, unpublished: bool = False) -> None:
        """Create a file atomically: readers see either no file or the complete content.

        Parent folders are created. When the method returns, the content is as durable as the
        storage guarantees.

        Args:
            path: Path relative to the root.
            content: Bytes to write.
            unpublished: True if no reader accesses the path before it is renamed; this may be
                cheaper.

        Raises:
            AlreadyExists: The path exists.
        """
        with self.create(path, unpublished=unpublished) as file:
            file.write(content)

    def create(self, path: str, *, unpublished: bool = False) -> AbstractContextManager[BinaryIO]:
        """Return a context manager that yields a binary stream for a new file.

        Memory is bounded. The complete file appears when the block ends without an exception; an
        exception inside the block leaves no file. After a crash an unfinished file may remain below
        `.unfinished/`, but not in the target's folder.

        Args:
            path: Path relative to the root.
            unpublished: Whether no reader accesses the path before it is renamed. The backend may then
                write the file in place, which is cheaper.

        Raises:
            AlreadyExists: The path exists. Raised on entry if the backend knows by then, otherwise
                when the block ends.
        """

    def read(self, path: str, *, size: int | None = None) -> bytes:
        """Return the whole content of a file.

        Args:
            path: Path relative to the root.
            size: Size of the file in bytes, if the caller knows it; saves a request.

        Raises:
            NotFound: No such file exists.
        """
        with self.open(path, size=size) as file:
            return file.read()

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        """Return a seekable, buffered reader of a file.

        Args:
            path: Path relative to the root.
            size: Size of the file in bytes, if the caller knows it; saves a request.

        Raises:
            NotFound: No such file exists. If `size` is given, the error may be raised by the first
                read.
        """

    def size(self, path: str) -> int:
        """Return the size of a file in bytes.

        Raises:
            NotFound: No such file exists, or the path is a folder.
        """

    def exists(self, path: str) -> bool:
        """Return whether a file or a folder exists at the path.

        Raises:
            StorageError: The storage is unavailable.
        """

    def list(self, folder: str) -> list[StorageEntry]:
        """Return the entries of a folder, sorted by name; "" is the root.

        Raises:
            NotFound: The folder does not exist. A missing folder is not treated as empty, so a
                wrong root is never mistaken for a bucket without files.
        """

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents; do nothing if the folder exists."""

    def rename_new(self, source: str, target: str) -> None:
        """Move a file or folder atomically to a path that does not exist.

        The target's parents are created first. If several callers rename to the same target,
        exactly one succeeds. If the response to a request is lost, the backend checks whether the
        rename has happened.

        Args:
            source: Path of the existing file or folder.
            target: New path.

        Raises:
            NotFound: The source does not exist, whether or not the target exists.
            AlreadyExists: The target exists, even as an empty folder. Nothing was changed.
        """

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content; do nothing if the path does not exist.

        The path disappears atomically.

        Raises:
            AccessDenied: The user may not delete it.
        """

    def url(self, path: str) -> str:
        """Return the URL of a path for Spark's JVM.

        Returns:
            A URL `hdfs://…` or `file:///…`, without escaping, as `org.apache.hadoop.fs.Path`
            expects it.
        """


def list_if_exists(storage: Storage, folder: str) -> list[StorageEntry]:
    """Return a folder's entries, sorted by name, or an empty list if it does not exist."""
    try:
        return storage.list(folder)
    except NotFound:
        return []


def delete_all(storage: Storage, paths: Iterable[str]) -> int:
    """Delete several paths concurrently.

    Args:
        storage: Storage of the paths.
        paths: Files or folders; folders are deleted with their content.

    Returns:
        The number of paths that no longer exist. A path that the user may not delete is logged and
        not counted.

    Raises:
        StorageError: The storage is unavailable, or refuses for another reason.
    """

    def is_gone(path: str) -> bool:
        try:
            storage.delete(path)
        except AccessDenied as error:
            _LOG.warning("cannot delete, skipped: %s", error)
            return False
        return True

    return sum(map_concurrently(is_gone, paths))


def map_concurrently(
    function: Callable[[_Item], _Result], items: Iterable[_Item]
) -> Iterator[_Result]:
    """Call a function with each item in up to 8 threads, and yield the results in order.

    If a call raises an exception, the exception is raised in place of its result and ends the
    iteration.

    Args:
        function: Function to call; it must be thread-safe.
        items: The items.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(function, items)
