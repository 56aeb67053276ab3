"""Chooses how buckets are published on a storage."""

from __future__ import annotations

from typing import cast

from hourmark_etl.closing.publication.attempts import RenamePublication
from hourmark_etl.closing.publication.port import BucketPublication
from hourmark_etl.closing.publication.selection import SelectPublication
from hourmark_etl.storage import FolderStorage, ObjectStorage, Storage


def open_publication(storage: Storage) -> BucketPublication:
    """Return the publishing protocol for a storage.

    Args:
        storage: The storage of attempts and buckets.

    Returns:
        A `SelectPublication` for an object store, otherwise a `RenamePublication`.
    """
    if isinstance(storage, ObjectStorage):
        return SelectPublication(storage)
    return RenamePublication(cast(FolderStorage, storage))  # each other storage has folders
