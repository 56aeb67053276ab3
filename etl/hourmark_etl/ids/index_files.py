"""Files that index the event ids of closed buckets.

A file's name contains the time when it was published and the id of the attempt that published it.
Markers contain the attempt that published their bucket, so a rebuilt ledger can assign index files
to its buckets.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Iterable
from typing import Final

from hourmark_etl.ids.lookups import bucket_key, read_index_runs
from hourmark_etl.ledger.closed import IdIndexSegment
from hourmark_etl.storage import AccessDenied, ContentLost, Storage, list_if_exists
from hourmark_etl.storage.folders import INDEX_FOLDER

Bucket = tuple[str, int]  # type, hour (start, Unix seconds)
_NAME: Final = re.compile(r"\d{8}T\d{6}-(?P<attempt>[^-]+)-[^-]+-(?P<digest>[0-9a-f]+)\.ids")
_LOG = logging.getLogger(__name__)


def published_index_path(task_path: str, digest: str, attempt: str, now_ms: int) -> str:
    """Return the path under which an index file of event ids is published.

    Args:
        task_path: HDFS path at which a task wrote the index.
        digest: Digest of the index in hex.
        attempt: Id of the publishing attempt that published the buckets.
        now_ms: Time of publication in Unix milliseconds.

    Returns:
        HDFS path relative to the storage root. It contains the time, the attempt and the digest.
    """
    task = task_path.rpartition("/")[2].removesuffix(".ids")
    return f"{INDEX_FOLDER}/{format_timestamp(now_ms)}-{attempt}-{task}-{digest}.ids"


def format_timestamp(time_ms: int) -> str:
    """Format a time for the name of an index file, for example `20260131T120000`.

    Args:
        time_ms: Unix milliseconds.

    Returns:
        Date and time in UTC, without fractions of a second.
    """
    return f"{dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC):%Y%m%dT%H%M%S}"


def list_index_files(storage: Storage) -> dict[str, str]:
    """Return all published index files of event ids.

    Files with other names are ignored. If there are several copies of an index, only one is
    returned.

    Args:
        storage: The storage to list.

    Returns:
        A mapping from HDFS path to the id of the publishing attempt that wrote the index; empty if
        there is no index.

    Raises:
        StorageError: Storage is unavailable.
    """
    matches = (
        match
        for entry in list_if_exists(storage, INDEX_FOLDER)
        if (match := _NAME.fullmatch(entry.name))
    )
    return {
        f"{INDEX_FOLDER}/{match[0]}": match["attempt"]
        for match in {match["digest"]: match for match in matches}.values()
    }


def read_bucket_runs(
    storage: Storage, path: str, buckets: Iterable[Bucket]
) -> list[tuple[str, int, IdIndexSegment]]:
    """Find the rows of an index file that belong to the given buckets.

    An index file contains the event ids of several buckets. If it is missing, damaged or not
    readable, a warning is logged and the result is empty.

    Args:
        storage: The storage with the index.
        path: Path of the index file.
        buckets: Pairs of event type and hour (Unix seconds at its start) to look for. Other buckets
            in the file are ignored.

    Returns:
        A triple for each bucket found, in the order of the file: event type, hour (Unix seconds at
        its start), and the rows of the file that contain the bucket's ids.

    Raises:
        StorageError: Storage is unavailable, so the index may be intact.
    """
    marks = {bucket_key(*bucket): bucket for bucket in buckets}
    try:
        runs = read_index_runs(storage, path)
    except (ContentLost, AccessDenied, OSError, EOFError, ValueError) as error:
        _LOG.warning(
            "the event id index %s cannot be used (%s); lookups for late events will read the "
            "buckets instead",
            path,
            error,
        )
        return []
    return [
        (*marks[run.mark], IdIndexSegment(path, run.first_row, run.rows))
        for run in runs
        if run.mark in marks
    ]
