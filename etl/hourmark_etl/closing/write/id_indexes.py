"""Publishes the id indexes of buckets and deletes old ones, within limits of age and size.

Indexes are a cache: without them, buckets are read instead.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final

from hourmark.records.event_id import SIZE
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.ids.index_files import format_timestamp, published_index_path
from hourmark_etl.ledger import closed
from hourmark_etl.ledger.closed import IdIndexSegment
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.storage import Storage, StorageError, delete_all, list_if_exists
from hourmark_etl.storage.folders import INDEX_FOLDER

_UNNAMED_MS: Final = 86_400_000  # a file of this age that the ledger does not refer to is unused
_LOG = logging.getLogger(__name__)


def publish_indexes(
    storage: Storage,
    database: Database,
    lease: Lease,
    attempt: str,
    published: Iterable[Manifest],
    written: Collection[WrittenHour],
    now_ms: int,
) -> None:
    """Publish the event id indexes of the buckets that a publishing attempt has published.

    The index files are moved to their final paths and recorded in the ledger. If storage fails, a
    warning is logged and the buckets have no index. Lookups of event ids then read the buckets.

    Args:
        storage: Storage with the index files.
        database: Database of the ledger.
        lease: Lease of the closer, the process that closes buckets.
        attempt: Id of the publishing attempt.
        published: Manifests of the published buckets. Manifests of other attempts are ignored.
        written: The buckets that the attempt wrote.
        now_ms: Current time in Unix milliseconds.

    Raises:
        StaleDriver: Another closer has taken over the lease.
    """
    own = {
        (m.type, Hour.parse(m.hour, m.bucket_seconds).start_s)
        for m in published
        if m.attempt == attempt
    }
    kept_files = [f for w in written if (w.event_type, w.hour_s) in own for f in w.files]
    moved: dict[str, str] = {}
    try:
        for path, digest in sorted(
            {(run.path, w.index_digest) for w in kept_files for run in w.index}
        ):
            moved[path] = published_index_path(path, digest, attempt, now_ms)
            storage.move_file(path, moved[path])
    except StorageError as error:
        _LOG.warning(
            "event ids of this round's buckets are not indexed, so lookups for late events will "
            "read the buckets instead: %s",
            error,
        )
        return
    runs = [
        (w.event_type, w.hour_s, IdIndexSegment(moved[run.path], run.first_row, run.rows))
        for w in kept_files
        for run in w.index
    ]
    closed.replace_index_segments(database, lease, runs, SIZE)


def clean_indexes(
    storage: Storage,
    database: Database,
    lease: Lease,
    *,
    hours_max: int,
    bytes_max: int,
    now_ms: int,
    files_max: int = 1000,
) -> int:
    """Delete event id indexes that exceed the maximum age or the maximum total size.

    Files that the ledger (the ETL's state database) does not list are deleted after one day. Newer
    ones are kept, because they may not be recorded in the ledger yet.

    Args:
        storage: Storage with the index files.
        database: Database of the ledger.
        lease: Lease of the closer, the process that closes buckets.
        hours_max: Maximum age of an index in hours.
        bytes_max: Maximum total size of all indexes in bytes. The oldest are deleted first.
        now_ms: Current time in Unix milliseconds.
        files_max: Maximum number of files to delete in one call.

    Returns:
        The number of deleted files.

    Raises:
        StaleDriver: Another closer has taken over the lease.
        StorageError: Storage is unavailable.
    """
    closed.trim_id_index(database, lease, now_ms // 1000 - hours_max * 3600, bytes_max)
    named = closed.read_index_paths(database)
    fresh = format_timestamp(now_ms - _UNNAMED_MS)
    found = [
        f"{INDEX_FOLDER}/{entry.name}"
        for entry in list_if_exists(storage, INDEX_FOLDER)
        if entry.name < fresh
    ]
    doomed = [path for path in found if path not in named][:files_max]
    return delete_all(storage, doomed)
