"""What closed buckets say of ids, and what was opened for it."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
from tests.support.bucket_world import World, hour_at
from tests.support.memory_storage import MemoryStorage

from hourmark.errors import Finding
from hourmark_etl.ids.lookups import IdQuery, find_contained_ids
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


class Opened(MemoryStorage):
    """Remembers what was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        self.opened.append(path)
        return super().open(path, size=size)
