"""Storage on an object store (`s3://…`), which has neither folders nor renames.

A folder is a common prefix of keys: it exists while there is an object below it. Objects appear
atomically. `write_new` is a conditional put that stores a random id with the object. After every
response that is not a clear success, the id is read back: it shows whether this write, another
write or no write created the object. The store must be strongly consistent; `race_probe` verifies
that it respects conditional puts.
"""

from __future__ import annotations

import builtins
import dataclasses
import io
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, cast

from hourmark_etl.storage.errors import AccessDenied, AlreadyExists, NotFound, StorageError
from hourmark_etl.storage.interface import Storage, StorageEntry
from hourmark_etl.storage.object_client import ObjectClient, ObjectWriter
from hourmark_etl.storage.paths import check_path

WINDOW_BYTES: Final = 8 << 20  # read at once
_UPLOAD_BUFFER_BYTES: Final = 1 << 20
RETRY_PAUSES_S: Final = (0.1, 0.5, 2.0, 5.0)  # before each repetition of a conditional put


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectStorage(Storage):
    """Storage backend for an object store.

    Attributes:
        client: Client of the store, below the storage root.
        retry_pauses_s: Pause before each repetition of a conditional put, in seconds. Its length
            limits the number of repetitions.
    """

    client: ObjectClient
    retry_pauses_s: tuple[float, ...] = RETRY_PAUSES_S

    def write_new(
        self,
        path: str,
        content: bytes | memoryview,
        *,
        unpublished: bool = False,  # noqa: ARG002  # an object is always complete
    ) -> None:
        """Create an object with a conditional put. See `Storage.write_new`.

        If the store refuses the put, or does not answer, the object is read back. If it is the one
        of this call, the call succeeds.

        Args:
            path: Path of the new object, relative to the storage root.
            content: Bytes to write, at most 5 GiB.
            unpublished: Without effect: an object is always complete.

        Raises:
            AlreadyExists: Another write created the object.
            StorageError: The store did not confirm the write. The object may still appear.
        """
        write_id = uuid.uuid4().hex
        for pause_s in (*self.retry_pauses_s, None):
            refused: StorageError | None = None
            try:
                if self.client.put_new(check_path(path), content, write_id):
                    return
            except AccessDenied:
                raise
            except StorageError as error:
                refused = error
            standing = self.client.find_object(path)
            if standing is not None and standing.write_id == write_id:
                return
            if standing is not None:
                raise AlreadyExists(path, self.url(path), "exists already") from refused
            if pause_s is None:
                raise refused or StorageError(
                    path,
                    self.url(path),
                    f"{len(self.retry_pauses_s) + 1} conditional puts were refused, but the object "
                    "does not exist",
                )
            time.sleep(pause_s)

    @contextmanager
    def create(self, path: str, *, unpublished: bool = False) -> Iterator[BinaryIO]:
        """Upload an object whose size is not known in advance. See `Storage.create`.

        Args:
            path: Path of the new object, relative to the storage root.
            unpublished: Set to True if no other caller writes the path. The object is then uploaded
                in parts, and an existing object would be replaced. Otherwise the content is held in
                memory and written with `write_new`.

        Raises:
            AlreadyExists: The object exists. It is detected at the end of the block, and only if
                `unpublished` is False.
        """
        if not unpublished:
            buffer = io.BytesIO()
            yield buffer
            self.write_new(path, buffer.getvalue())
            return
        upload = self.client.begin_upload(check_path(path))
        raw = _Upload(upload)
        file = io.BufferedWriter(cast(Any, raw), _UPLOAD_BUFFER_BYTES)
        try:
            yield cast(BinaryIO, file)
            file.flush()
        except BaseException:
            raw.is_abandoned = True  # the upload is never completed
            raise
        upload.close()

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        known = self.size(path) if size is None else size
        reader = _ObjectReader(self.client, check_path(path), known)
        return cast(BinaryIO, io.BufferedReader(reader, WINDOW_BYTES))

    def size(self, path: str) -> int:
        found = self.client.find_object(check_path(path))
        if found is None:
            raise NotFound(path, self.url(path), "there is no such object")
        return found.size

    def exists(self, path: str) -> bool:
        if path and self.client.find_object(check_path(path)) is not None:
            return True
        below = self.client.list_level(check_path(path, root_allowed=True))
        return bool(below.objects or below.prefixes)

    def list(self, folder: str) -> builtins.list[StorageEntry]:
        below = self.client.list_level(check_path(folder, root_allowed=True))
        if not below.objects and not below.prefixes:
            raise NotFound(folder, self.url(folder), "there are no objects below this prefix")
        folders = [StorageEntry(name, 0, True) for name in below.prefixes]
        return sorted([*below.objects, *folders])

    def list_files(self, folder: str) -> builtins.list[str]:
        """Return the paths of all objects below a prefix, at any depth.

        Args:
            folder: Prefix, relative to the storage root.

        Returns:
            Paths relative to the storage root; empty if there are no objects.
        """
        return self.client.list_all(check_path(folder))

    def copy_file(self, source: str, target: str) -> None:
        """Copy an object within the store. An existing target is replaced atomically.

        Repeating the copy of an object that never changes is harmless, so a lost response needs no
        special handling.

        Args:
            source: Path of the object.
            target: Path of the copy.

        Raises:
            NotFound: The source does not exist.
            StorageError: The store did not confirm the copy. It may exist.
        """
        self.client.copy(check_path(source), check_path(target))

    def move_file(self, source: str, target: str) -> None:
        self.copy_file(source, target)
        self.client.delete([source])

    def delete(self, path: str) -> None:
        self.client.delete([*self.list_files(path), path])

    def url(self, path: str) -> str:
        return self.client.url(check_path(path, root_allowed=True)).rstrip("/")


class _Upload(io.RawIOBase):
    def __init__(self, upload: ObjectWriter) -> None:
        super().__init__()
        self._upload = upload
        self.is_abandoned = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.is_abandoned:  # the buffer is flushed when it is released
            return len(data)
        return self._upload.write(data)


class _ObjectReader(io.RawIOBase):
    def __init__(self, client: ObjectClient, key: str, size: int) -> None:
        super().__init__()
        self._client, self._key, self._size = client, key, size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"cannot seek to the negative offset {start + offset}")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        data = self._client.read_range(self._key, self._position, wanted)
        if not data:
            raise StorageError(
                self._key,
                self._client.url(self._key),
                f"has no bytes at offset {self._position}, but its size was {self._size}",
            )
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
