"""The interface of all storage backends.

Paths are relative to the root (see `paths`). Implementations are small frozen values that pickle,
so that a Spark worker can use them; none caches what it read. Errors: `errors`; a path that is not
clean raises ValueError.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import BinaryIO, Final, Protocol, TypeVar

from hourmark_etl.storage.errors import AccessDenied, NotFound

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")
_AT_ONCE: Final = 8  # requests to storage
_LOG: Final = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One name in a folder; the size of a folder is 0.

    `changed_ms`: when it last changed, by the storage's own clock; HDFS gives the beginning for a
    file that is being written.
    """

    name: str
    size: int
    is_folder: bool
    changed_ms: int = dataclasses.field(default=0, compare=False)


class Storage(Protocol):
    """Files and folders below one root."""

    def write_new(self, path: str, content: bytes, *, unseen: bool = False) -> None:
        """Make a file at once: readers see all of it or nothing.

        AlreadyExists if anything stands there.

        Parent folders are made. On return the content is durable as the backend has it (see its
        module). `unseen`: as `create`.
        """
        with self.create(path, unseen=unseen) as file:
            file.write(content)

    def create(self, path: str, *, unseen: bool = False) -> AbstractContextManager[BinaryIO]:
        """The same, streamed in bounded memory: the file appears, finished, when the block ends
        without an exception.

        An exception inside leaves nothing. AlreadyExists is raised before the block where it is
        known by then, and at its end otherwise. A crash leaves an unfinished file below
        `.unfinished/`, never below the target's folder: but where it is `unseen`, as nobody reads
        what stands there before it is renamed, a backend may write in place, which is cheaper.
        """

    def read(self, path: str, *, size: int | None = None) -> bytes:
        """The whole content. NotFound if there is no such file. `size`: where it is known."""
        with self.open(path, size=size) as file:
            return file.read()

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        """A seekable, buffered reader.

        NotFound if there is no such file: of a known `size` perhaps not before it is read.
        """

    def size(self, path: str) -> int:
        """Bytes of the file. NotFound if there is no such file."""

    def exists(self, path: str) -> bool:
        """Whether a file or a folder stands there."""

    def list(self, folder: str) -> list[Entry]:
        """What stands in the folder ("" is the root), sorted by name.

        NotFound if there is no such folder.

        A missing folder is an error, not an empty one: a wrong root must never look like a bucket
        without files.
        """

    def make_folder(self, path: str) -> None:
        """Make the folder and its parents; fine if it is there."""

    def rename_new(self, source: str, target: str) -> None:
        """Move a file or folder, at once, to a name where nothing stands: the only atomic point of
        publishing.

        The target's parents are made first. NotFound if the source is missing (whether or not the
        target exists); AlreadyExists if anything stands at the target, an empty folder included:
        then nothing has changed. Of many callers exactly one wins. A lost answer is looked up: it
        is a success where what stands at the target is what was the source.
        """

    def delete(self, path: str) -> None:
        """Remove the file, or the folder with all in it; fine if it is missing.

        Its name vanishes at once.
        """

    def url(self, path: str) -> str:
        """What Spark's JVM reads: `hdfs://…` or `file:///…`, as `org.apache.hadoop.fs.Path` takes
        it (not escaped).
        """


def entries_of(storage: Storage, folder: str) -> list[Entry]:
    """What stands in the folder; nothing where it does not exist (yet)."""
    try:
        return storage.list(folder)
    except NotFound:
        return []


def delete_all(storage: Storage, paths: Iterable[str]) -> int:
    """Remove each, some at a time, and say how many went.

    One that may not be removed stays, is named in the log, and holds up no other.
    """

    def is_gone(path: str) -> bool:
        try:
            storage.delete(path)
        except AccessDenied as error:
            _LOG.warning("it cannot be deleted, and is left: %s", error)
            return False
        return True

    return sum(at_once(is_gone, paths))


def at_once(ask: Callable[[_Asked], _Answer], of: Iterable[_Asked]) -> Iterator[_Answer]:
    """The answers of storage, in turn; some are asked for at the same time."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(ask, of)
