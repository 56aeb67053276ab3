"""Files that were completely delivered when a run ended, and to which no more is written.

If such a file is deleted before the next run, nothing is lost. Of every other file that is deleted
while no tailer runs, it is unknown what was written after the last scan. A file is not expected to
be written any more in two cases:

- The run ended with a goodbye, the statement that this host sends nothing more.
- The file was rotated, and had not been written for `waits.UNMATCHED_LINGER_S` (600) seconds.

The table `delivered` is valid until the next run begins, so that it does not outlast a crash.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from hourmark_producer.files import waits
from hourmark_producer.files.tracked_file import TrackedFile

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS delivered (
    file_id TEXT PRIMARY KEY, generation INTEGER NOT NULL, offset INTEGER NOT NULL, mtime_ns INTEGER NOT NULL
);
"""
CLEAR: Final[tuple[str, tuple[Any, ...]]] = ("DELETE FROM delivered", ())
_Change = tuple[str, tuple[Any, ...]]


class DeliveredContent(NamedTuple):
    """The content of a file that was completely delivered when a run of the tailer ended.

    Attributes:
        generation: Number of times that the file had been truncated or replaced.
        offset: Size of the content in bytes.
        mtime_ns: Modification time of the file in Unix nanoseconds.
    """

    generation: int
    offset: int
    mtime_ns: int


def save_delivered(files: Iterable[TrackedFile], now_ms: int, *, goodbye: bool) -> list[_Change]:
    """Return the SQL statements that record completely delivered files at the end of a run.

    If such a file is deleted before the next run, nothing is lost. A file is recorded only if no
    more is expected to be written to it: because the run reported that this host sends nothing
    more, or because the file was rotated some time ago. Execute the statements with
    `Checkpoint.commit`.

    Args:
        files: All tracked files.
        now_ms: Current time in Unix milliseconds.
        goodbye: Whether the run reported that this host sends nothing more.

    Returns:
        One statement with its parameters per recorded file; an empty list if there is none.
    """
    rows = (
        (
            file.file_id,
            file.progress.position.generation,
            file.progress.position.offset,
            file.observed.mtime_ns,
        )
        for file in files
        if file.progress.position.offset > 0
        and file.is_up_to_date
        and (goodbye or _is_idle_and_rotated(file, now_ms))
    )
    return [("INSERT INTO delivered VALUES (?,?,?,?)", row) for row in rows]


def read_delivered(db: sqlite3.Connection) -> dict[str, DeliveredContent]:
    """Return the files that were completely delivered at the end of the previous run.

    Args:
        db: Database of the checkpoint.

    Returns:
        Maps each file id to the content that was delivered; empty if there is none.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    rows = db.execute("SELECT file_id, generation, offset, mtime_ns FROM delivered")
    return {file_id: DeliveredContent(*content) for file_id, *content in rows}


class DeliveredFiles:
    """A collection of files that the previous run delivered completely.

    If one of these files was deleted since then, nothing was lost. Files are removed from the
    collection once a scan finds them. `file in delivered` is False for a file with unread or
    unacknowledged bytes.

    Args:
        contents: Result of `read_delivered`.
    """

    def __init__(self, contents: Mapping[str, DeliveredContent]) -> None:
        self._contents = dict(contents)

    def discard(self, file: TrackedFile) -> None:
        """Remove a file from the collection. Does nothing if it is not in the collection.

        Call this method when a scan finds the file, or when the file may have been written to since
        the previous run.

        Args:
            file: The file.
        """
        self._contents.pop(file.file_id, None)

    def discard_if_compressed_later(self, file: TrackedFile, candidates: Iterable[str]) -> None:
        """Remove a file if a compressed copy of it may contain lines that were not delivered.

        That is the case if the modification time of the copy is later than that of the delivered
        content, because compression programs keep the modification time.

        Args:
            file: A file that vanished.
            candidates: Paths of compressed files that may be copies of the file, judging by their
                names.
        """
        if (delivered := self._contents.get(file.file_id)) is not None:
            for path in candidates:
                with contextlib.suppress(OSError):
                    if os.stat(path).st_mtime_ns > delivered.mtime_ns:  # noqa: PTH116
                        self.discard(file)

    def __len__(self) -> int:
        return len(self._contents)

    def __contains__(self, file: TrackedFile) -> bool:
        progress = file.progress  # one consistent moment
        delivered = self._contents.get(file.file_id)
        position, account = progress.position, file.observed.account_since(progress)
        return (
            delivered is not None
            and (position.generation, position.offset) == delivered[:2]
            and account.high <= position.offset
            and not (account.shrinks or progress.in_flight)
        )


def _is_idle_and_rotated(file: TrackedFile, now_ms: int) -> bool:
    idle_s = now_ms / 1000 - file.observed.mtime_ns / 1_000_000_000
    return file.place.seen_at != file.place.path and idle_s >= waits.UNMATCHED_LINGER_S
