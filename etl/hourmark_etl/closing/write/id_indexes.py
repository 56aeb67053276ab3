"""Keeps the index files of published buckets, as long and as many bytes as the settings say.

A cache: its loss costs reading.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final

from hourmark.records.event_id import SIZE
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.folders import INDEX_FOLDER
from hourmark_etl.ids.kept import kept_path, label
from hourmark_etl.ledger import closed
from hourmark_etl.ledger.closed import IdRun
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.storage import Storage, StorageError, delete_all, list_if_exists

_UNNAMED_MS: Final = 86_400_000  # a file so old that the ledger does not name never will be named
_LOG = logging.getLogger(__name__)


def keep_indexes(
    storage: Storage,
    database: Database,
    lease: Lease,
    attempt: str,
    published: Iterable[Manifest],
    written: Collection[WrittenHour],
    now_ms: int,
) -> None:
    """Move the attempt's index files out of its folder, and remember them for the buckets that were
    published by this attempt.

    May be done before the ledger closes those hours: a run counts for a closed bucket only. What
    storage refuses is logged; the buckets themselves are read then.
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
            moved[path] = kept_path(path, digest, attempt, now_ms)
            storage.rename_new(path, moved[path])
    except StorageError as error:
        _LOG.warning(
            "ids of this round's buckets are not indexed, late events will read the "
            "buckets instead: %s",
            error,
        )
        return
    runs = [
        (w.event_type, w.hour_s, IdRun(moved[run.path], run.first_row, run.rows))
        for w in kept_files
        for run in w.index
    ]
    closed.replace_index_runs(database, lease, runs, SIZE)


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
    """Forget what is older than `hours_max`, or the oldest beyond `bytes_max`, and delete files
    that no bucket needs.

    How many files were deleted, at most `files_max`; the rest waits for the next call. A file that
    was kept less than a day ago stays: its row may be on its way.
    """
    closed.trim_index(database, lease, now_ms // 1000 - hours_max * 3600, bytes_max)
    named = closed.index_paths(database)
    fresh = label(now_ms - _UNNAMED_MS)
    found = [
        f"{INDEX_FOLDER}/{entry.name}"
        for entry in list_if_exists(storage, INDEX_FOLDER)
        if entry.name < fresh
    ]
    doomed = [path for path in found if path not in named][:files_max]
    return delete_all(storage, doomed)
