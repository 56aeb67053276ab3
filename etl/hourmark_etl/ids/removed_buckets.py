"""Separates closed buckets whose ids can be looked up from those that were removed by retention."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER
from hourmark_etl.buckets.tombstones import BadTombstone, find_removed_bucket
from hourmark_etl.ledger.closed import ClosedBucket
from hourmark_etl.storage import Storage

_LOG: Final = logging.getLogger(__name__)


class SearchableBuckets(NamedTuple):
    """Closed buckets of one event type, by whether their event ids can be looked up.

    Attributes:
        searchable: Buckets that exist, or whose ids are completely in the id index.
        removed: Buckets that were removed by retention and are not in the index.
    """

    searchable: tuple[ClosedBucket, ...]
    removed: tuple[ClosedBucket, ...]

    @property
    def unknown_hours(self) -> frozenset[Hour]:
        """Return the hours of which it is unknown whether an event was in a bucket."""
        return frozenset(hour for bucket in self.removed for hour in bucket.origin_hours)


def separate_removed(
    storage: Storage,
    buckets: Iterable[ClosedBucket],
    bucket_seconds: int,
    *,
    needs_files: bool = False,
) -> SearchableBuckets:
    """Separate removed buckets from those in which late events can be looked up.

    A late event of a removed bucket cannot be compared with it, and is kept. Without this function,
    its hour would wait until the bucket is restored.

    A bucket that is removed between this call and the search cannot be read. The search then
    returns a `Finding`, and the next call returns the bucket as removed.

    Args:
        storage: Storage with the buckets. Only tombstones are read.
        buckets: Closed buckets of one event type.
        bucket_seconds: Length of a bucket in seconds.
        needs_files: Whether the index of ids does not replace the files of a bucket.

    Returns:
        The buckets in the given order.

    Raises:
        StorageError: Storage is unavailable.
    """
    searchable, removed = [], []
    for bucket in buckets:
        hour = Hour(bucket.hour_s, bucket_seconds)
        is_indexed = bucket.is_indexed and not needs_files
        if is_indexed or not _is_removed(storage, bucket.event_type, hour):
            searchable.append(bucket)
        else:
            removed.append(bucket)
    return SearchableBuckets(tuple(searchable), tuple(removed))


def _is_removed(storage: Storage, event_type: str, hour: Hour) -> bool:
    # A damaged tombstone proves nothing. If the bucket is gone, reading its files fails, and only
    # hours that need them wait.
    try:
        is_named = find_removed_bucket(storage, event_type, hour) is not None
    except BadTombstone as error:
        _LOG.error("%s", error)
        return False
    return is_named and not storage.exists(f"{hour.bucket_path(event_type)}/{MARKER}")
