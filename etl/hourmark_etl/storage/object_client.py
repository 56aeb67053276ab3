"""The requests that Hourmark sends to an object store, as a port with one client per kind of store.

A client sends each request once or with its library's retries, and reports what the store answered.
It draws no conclusions: `put_new` may report a refusal although the object was created by an
earlier try of the same request. `object_storage` resolves this by reading back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from hourmark_etl.storage.interface import StorageEntry


class ObjectListing(NamedTuple):
    """The objects and prefixes directly below a prefix.

    Attributes:
        prefixes: Names of the next path segment of deeper objects, without slashes.
        objects: The objects at this level.
    """

    prefixes: Sequence[str]
    objects: Sequence[StorageEntry]


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectStatus:
    """Properties of an object.

    Attributes:
        size: Size in bytes.
        write_id: Id of the write that created the object; empty if it was not created by `put_new`.
    """

    size: int
    write_id: str


class ObjectWriter(Protocol):
    """Upload of an object whose size is not known in advance."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Append bytes and return their number."""

    def close(self) -> None:
        """Complete the upload. The object then exists with all bytes.

        A writer that is not closed creates no object.

        Raises:
            StorageError: The store did not confirm the upload. The object may exist.
        """


class ObjectClient(Protocol):
    """Client of one bucket of an object store, below one prefix.

    Keys are paths relative to this prefix. Methods raise StorageError if the store does not answer
    or refuses the request; the request may have been executed nevertheless. Instances are
    immutable, thread-safe and picklable, and contain no credentials.
    """

    def put_new(self, key: str, content: bytes | memoryview, write_id: str) -> bool:
        """Create an object with one conditional request.

        Args:
            key: Key of the object.
            content: Bytes of the object.
            write_id: Unique id that is stored in the object's metadata.

        Returns:
            True if the store confirmed that this request created the object. False if it reported
            that the object exists, or a conflict; an earlier try of the request may have created
            the object, and after a conflict there may be no object.
        """

    def begin_upload(self, key: str) -> ObjectWriter:
        """Begin to upload an object in parts. An existing object is replaced.

        Args:
            key: Key of the object. No other caller may write it.
        """

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return bytes of an object.

        Args:
            key: Key of the object.
            start: Offset of the first byte. It must lie within the object.
            length: Number of bytes, at least 1. Fewer are returned at the end of the object.

        Raises:
            NotFound: The object does not exist.
        """

    def find_object(self, key: str) -> ObjectStatus | None:
        """Return the properties of an object; None if it does not exist."""

    def list_level(self, prefix: str) -> ObjectListing:
        """List the objects and prefixes directly below a prefix.

        Args:
            prefix: Path without a slash at its end; "" is the root.

        Returns:
            An empty listing if there are none.
        """

    def list_all(self, prefix: str) -> list[str]:
        """Return the keys of all objects below a prefix, at any depth.

        Args:
            prefix: Path without a slash at its end.
        """

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store. An existing target is replaced atomically.

        Args:
            source: Key of an existing object of at most 5 GiB.
            target: Key of the copy.

        Raises:
            NotFound: The source does not exist.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. Objects that do not exist are ignored."""

    def url(self, key: str) -> str:
        """Return the URL of a key or prefix for messages, such as `s3://bucket/prefix/key`."""
