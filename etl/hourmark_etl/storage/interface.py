"""The interface of all storage backends, and of those with folders that can be renamed.

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
    """Entry of a folder listing.

    Attributes:
        name: File or folder name, without the folder's path.
        size: Size in bytes; 0 for a folder.
        is_folder: Whether the entry is a folder.
        changed_ms: Modification time in Unix milliseconds, according to the storage's clock. For a
            file that is being written, HDFS reports the creation time. Comparisons of entries
            ignore this attribute.
    """

    name: str
    size: int
    is_folder: bool
    changed_ms: int = dataclasses.field(default=0, compare=False)


class Storage(Protocol):
    """Interface of files and folders below one storage root.

    On an object store, a folder is a common prefix of objects; it exists while it is not empty.
    Paths are relative to the root and use `/` as separator. All methods raise StorageError if the
    storage is unavailable or refuses the operation, and ValueError if a path is invalid. Instances
    are immutable, thread-safe and picklable.
    """

    def write_new(
        self, path: str, content: bytes | memoryview, *, unpublished: bool = False
    ) -> None:
        """Create a file atomically: readers see either no file or the complete content.

        Parent folders are created. When the method returns, the content is as durable as the
        storage guarantees.

        Args:
            path: Path of the new file, relative to the storage root.
            content: Bytes to write.
            unpublished: Set to True if no reader accesses the path before the caller has read the
                file back. The write may then be faster, see `create`.

        Raises:
            AlreadyExists: The path exists.
        """
        with self.create(path, unpublished=unpublished) as file:
            file.write(content)

    def create(self, path: str, *, unpublished: bool = False) -> AbstractContextManager[BinaryIO]:
        """Return a context manager that yields a binary stream for writing a new file.

        The content is not held in memory as a whole. The complete file appears when the `with`
        block ends without an exception. If the block raises an exception, no file is created. After
        a crash, an unfinished file may remain below `.unfinished/`, but not in the target's folder.

        Args:
            path: Path of the new file, relative to the storage root.
            unpublished: Set to True if no reader accesses the path before the caller has read the
                file back, or if readers detect a file that is not complete. The backend may then
                write the file in place and rely on the storage's confirmation, which is faster.

        Returns:
            A context manager whose value is a writable binary stream.

        Raises:
            AlreadyExists: The path exists. The backend may detect this on entry, or only at the end
                of the block.
        """

    def read(self, path: str, *, size: int | None = None) -> bytes:
        """Return the complete content of a file.

        Args:
            path: Path of the file, relative to the storage root.
            size: Size of the file in bytes if known. This saves a request.

        Returns:
            The bytes of the file; empty for an empty file.

        Raises:
            NotFound: The path does not exist or is a folder.
        """
        with self.open(path, size=size) as file:
            return file.read()

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        """Open a file for reading, and return a seekable, buffered binary stream.

        The caller must close the stream.

        Args:
            path: Path of the file, relative to the storage root.
            size: Size of the file in bytes if known. This saves a request.

        Returns:
            A stream positioned at the start of the file.

        Raises:
            NotFound: The path does not exist or is a folder. If `size` is given, the first read may
                raise this error instead.
        """

    def size(self, path: str) -> int:
        """Return the size of a file in bytes.

        Args:
            path: Path of the file, relative to the storage root.

        Returns:
            Number of bytes; 0 for an empty file.

        Raises:
            NotFound: The path does not exist or is a folder.
        """

    def exists(self, path: str) -> bool:
        """Return whether a file or a folder exists at a path.

        Args:
            path: Path relative to the storage root.

        Returns:
            False if the path or its parent folder does not exist.

        Raises:
            StorageError: The storage is unavailable, so the result is unknown.
        """

    def list(self, folder: str) -> list[StorageEntry]:
        """List the files and folders in a folder, without recursion.

        A missing folder raises an error, so that a wrong storage root is never mistaken for an
        empty bucket. Use `list_if_exists` if the folder may not exist.

        Args:
            folder: Path of the folder, relative to the storage root; "" is the root.

        Returns:
            One entry for each file and folder, sorted by name; empty if the folder is empty.

        Raises:
            NotFound: The folder does not exist.
        """

    def move_file(self, source: str, target: str) -> None:
        """Move a file to a path that no other caller uses.

        Missing parent folders of the target are created. The target appears complete. After a crash
        or an error, both files may exist.

        Args:
            source: Path of the existing file. No other caller may use it.
            target: New path. No other caller may use it, and it must not exist.

        Raises:
            NotFound: The source does not exist.
        """

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content.

        On a storage with folders, the path disappears atomically; on an object store, the objects
        below it disappear one by one. If the path does not exist, nothing is done.

        Args:
            path: Path relative to the storage root.

        Raises:
            AccessDenied: The storage user has no permission to delete the path.
        """

    def url(self, path: str) -> str:
        """Return the URL of a path, for messages and for readers of buckets.

        Args:
            path: Path relative to the storage root. It need not exist.

        Returns:
            A URL `hdfs://…`, `file:///…` or `s3://…`. Special characters are not escaped, as
            `org.apache.hadoop.fs.Path` requires.
        """


class FolderStorage(Storage, Protocol):
    """Interface of a storage with folders that can be renamed: HDFS, or a file system."""

    def make_folder(self, path: str) -> None:
        """Create a folder and its missing parents. If the folder exists, nothing is done.

        Args:
            path: Path of the folder, relative to the storage root.
        """

    def rename_new(self, source: str, target: str, *, unpublished: bool = False) -> None:
        """Move a file or folder atomically to a path that does not exist yet.

        Missing parent folders of the target are created. If several callers rename to the same
        target, exactly one succeeds. If the response to a request is lost, the backend determines
        whether the rename was executed.

        Args:
            source: Path of the existing file or folder.
            target: New path.
            unpublished: Set to True if no other caller uses the source or the target, and the
                caller checks that the target exists. This may save a request.

        Raises:
            NotFound: The source does not exist, whether or not the target exists.
            AlreadyExists: The target exists, even as an empty folder. Nothing was changed.
        """

    def move_file(self, source: str, target: str) -> None:
        self.rename_new(source, target, unpublished=True)


def list_if_exists(storage: Storage, folder: str) -> list[StorageEntry]:
    """List the files and folders in a folder, without recursion. A missing folder is empty.

    Args:
        storage: Storage of the folder.
        folder: Path of the folder, relative to the storage root; "" is the root.

    Returns:
        Entries sorted by name; empty if the folder is empty or does not exist.

    Raises:
        StorageError: The storage is unavailable or refuses the request.
    """
    try:
        return storage.list(folder)
    except NotFound:
        return []


def delete_all(storage: Storage, paths: Iterable[str]) -> int:
    """Delete several paths concurrently.

    Args:
        storage: Storage of the paths.
        paths: Files or folders, relative to the storage root. Folders are deleted with their
            content.

    Returns:
        Number of paths that no longer exist, including paths that did not exist before. If the
        storage user has no permission to delete a path, a warning is logged and it is not counted.

    Raises:
        StorageError: The storage is unavailable, or refuses a request for another reason. Some
            paths may have been deleted.
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

    If a call raises an exception, the iterator raises it instead of yielding the result, and then
    ends.

    Args:
        function: Function to call; it must be thread-safe.
        items: Items to pass to the function.

    Yields:
        The result of each call, in the order of `items`.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(function, items)
