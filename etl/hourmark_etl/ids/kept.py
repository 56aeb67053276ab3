"""Index files as they stand on storage.

A name says when the file was kept, and by which attempt; markers say by which attempt their bucket
was published. So a ledger that is rebuilt finds what speaks of its buckets.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Iterable
from typing import Final

from hourmark_etl.folders import INDEX_FOLDER
from hourmark_etl.ids.lookups import mark_of, runs_in
from hourmark_etl.ledger.closed import IdRun
from hourmark_etl.storage import AccessDenied, ContentLost, Storage, list_if_exists

Bucket = tuple[str, int]  # type, hour (start, Unix seconds)
_NAME: Final = re.compile(r"\d{8}T\d{6}-(?P<attempt>[^-]+)-[^-]+-(?P<digest>[0-9a-f]+)\.ids")
_LOG = logging.getLogger(__name__)


def kept_path(written: str, digest: str, attempt: str, now_ms: int) -> str:
    """Where an index is kept that this attempt wrote there."""
    task = written.rpartition("/")[2].removesuffix(".ids")
    return f"{INDEX_FOLDER}/{label(now_ms)}-{attempt}-{task}-{digest}.ids"


def label(time_ms: int) -> str:
    """Of a file's name: when it was kept."""
    return f"{dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC):%Y%m%dT%H%M%S}"


def kept_files(storage: Storage) -> dict[str, str]:
    """Index files → the attempt that kept them; of copies one.

    Those are left out whose names do not tell it.
    """
    told = (
        match
        for entry in list_if_exists(storage, INDEX_FOLDER)
        if (match := _NAME.fullmatch(entry.name))
    )
    return {
        f"{INDEX_FOLDER}/{match[0]}": match["attempt"]
        for match in {match["digest"]: match for match in told}.values()
    }


def kept_runs(
    storage: Storage, path: str, published: Iterable[Bucket]
) -> list[tuple[str, int, IdRun]]:
    """What an index says of these buckets, that its attempt published; nothing where it is gone,
    damaged, or may not be read.

    StorageError where storage is away: an index that is left out costs reading those buckets for
    good.
    """
    marks = {mark_of(*bucket): bucket for bucket in published}
    try:
        runs = runs_in(storage, path)
    except (ContentLost, AccessDenied, OSError, EOFError, ValueError) as error:
        _LOG.warning(
            "the index of ids %s is not to be read (%s), late events will read the buckets instead",
            path,
            error,
        )
        return []
    return [
        (*marks[run.mark], IdRun(path, run.first_row, run.rows))
        for run in runs
        if run.mark in marks
    ]
