"""Verifies that an object store lets exactly one of several simultaneous writers create an object.

Publishing relies on it. Some stores ignore the condition of a put. Others check whether the object
exists and then write, so that they refuse the second of two writes but not all of eight at once.
"""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from hourmark_etl.errors import UnsafeStorage
from hourmark_etl.storage.errors import AlreadyExists
from hourmark_etl.storage.object_storage import ObjectStorage

_FOLDER: Final = "_probe"
_KEYS: Final = 3
_WRITERS: Final = 8
_WAIT_SECONDS: Final = 60.0  # until all writers are ready


def check_conditional_puts(storage: ObjectStorage) -> None:
    """Let eight writers race for each of three new objects, which are deleted at the end.

    Args:
        storage: Storage to check.

    Raises:
        UnsafeStorage: Several writers, or none, created an object, or the object has the content of
            another writer. The storage must not be used.
        StorageError: The store is unavailable or refuses the requests.
    """
    folder = f"{_FOLDER}/{uuid.uuid4().hex}"
    try:
        for number in range(_KEYS):
            _race(storage, f"{folder}/{number}")
    finally:
        storage.delete(folder)


def _race(storage: ObjectStorage, path: str) -> None:
    ready = threading.Barrier(_WRITERS)

    def write(content: bytes) -> bool:
        ready.wait(_WAIT_SECONDS)
        try:
            storage.write_new(path, content)
        except AlreadyExists:
            return False
        return True

    contents = [f"{path} {number} {uuid.uuid4().hex}".encode() for number in range(_WRITERS)]
    with ThreadPoolExecutor(_WRITERS) as pool:
        created = list(pool.map(write, contents))
    if created.count(True) != 1:
        raise UnsafeStorage(
            f"{storage.url('')}: {created.count(True)} of {_WRITERS} simultaneous conditional puts "
            "of one new object succeeded instead of one, so two drivers could publish different "
            "buckets for the same hour. Use a store that supports `If-None-Match: *`"
        )
    if storage.read(path) != contents[created.index(True)]:
        raise UnsafeStorage(
            f"{storage.url(path)} does not have the content of the only writer whose conditional "
            "put succeeded. Use a store that supports `If-None-Match: *`"
        )
