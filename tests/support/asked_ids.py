"""What closed buckets say of ids, and what was opened for it."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any, BinaryIO, Self, cast

import numpy as np
import pytest
from tests.support.bucket_world import World, hour_at
from tests.support.memory_storage import MemoryStorage

from hourmark.errors import Finding
from hourmark_etl.closing.write import writing
from hourmark_etl.ids.lookups import IdQuery, IndexWriter, find_contained_ids
from hourmark_etl.ledger.closed import ClosedBucket, closed_buckets
from hourmark_etl.storage import Storage


def bucket_of(world: World, number: int = 0) -> ClosedBucket:
    (found,) = closed_buckets(world.database, {"click": {hour_at(number).start_s}}, 3600)["click"]
    return found


def asked(storage: Storage, bucket: ClosedBucket, ids: list[bytes]) -> list[bool]:
    (found,) = find_contained_ids(storage, [IdQuery([bucket], np.array(ids, "S16"))])
    if isinstance(found, Finding):
        raise found
    return list(found)


class Watched:
    """A file that was opened; `before` is called with the place and the size of each read."""

    def __init__(self, file: BinaryIO, before: Callable[[int, int], None]) -> None:
        self._file, self._before = file, before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int = -1) -> bytes:
        """As the file does."""
        self._before(self._file.tell(), size)
        return self._file.read(size)

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        """As the file does."""
        return self._file.seek(place, whence)


def watched(
    patch: pytest.MonkeyPatch, storage: Storage, before: Callable[[int, int], None]
) -> None:
    """From now on, what is read of files is watched, in all storages of this one's kind."""
    kind = type(storage)
    opened = kind.open

    def opening(self: Any, path: str, *, size: int | None = None) -> BinaryIO:
        return cast(BinaryIO, Watched(opened(self, path, size=size), before))

    patch.setattr(kind, "open", opening)


def small_blocks(patch: pytest.MonkeyPatch, rows: int) -> None:
    """Index files that are written from now on have blocks of so many ids."""
    patch.setattr(writing, "IndexWriter", functools.partial(IndexWriter, rows_in_block=rows))


class Opened(MemoryStorage):
    """Remembers what was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        self.opened.append(path)
        return super().open(path, size=size)
