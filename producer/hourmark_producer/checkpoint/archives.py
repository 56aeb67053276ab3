"""What the checkpoint stores about compressed files.

| table | content |
|---|---|
| `archives` | compressed files that need no further examination, by what a rename does not change; `file_id` is set if the content is read as that file |
| `looked` | per source, when its latest full scan began, by this host's clock; at most `EVERY_S` seconds out of date |
| `departed` | how far files and generations that are gone were read, so that a compressed file of them is recognized; `high` is the offset up to which their bytes are accounted for as read or lost |
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from hourmark_producer.files.tracked_file import FilePosition

EVERY_S: Final = 60.0
DEPARTED_MAX: Final = 1000
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS archives (
    inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, file_id TEXT, PRIMARY KEY (inode, size, mtime_ns)
);
CREATE TABLE IF NOT EXISTS looked (source TEXT PRIMARY KEY, at_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS departed (
    number INTEGER PRIMARY KEY, head BLOB NOT NULL, offset INTEGER NOT NULL, anchor BLOB NOT NULL,
    high INTEGER NOT NULL DEFAULT 0
);
"""
_HIGH: Final = "ALTER TABLE departed ADD COLUMN high INTEGER NOT NULL DEFAULT 0"
_Change = tuple[str, tuple[Any, ...]]


class ArchiveStamp(NamedTuple):
    """Inode, size and modification time, which identify a complete compressed file under any name.

    Attributes:
        inode: Inode number as a signed 64-bit integer, as SQLite stores it.
        size: Size in bytes.
        mtime_ns: Modification time in Unix nanoseconds.
    """

    inode: int  # signed, as SQLite's integers are
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> ArchiveStamp:
        """Return the stamp of the file with this status."""
        return cls(
            status.st_ino - (1 << 64) if status.st_ino >> 63 else status.st_ino,
            status.st_size,
            status.st_mtime_ns,
        )


def migrate_departed_table(db: sqlite3.Connection) -> None:
    """Add the column `high` to the table `departed` of a checkpoint from version 0.3.0 or earlier.

    Earlier versions can still use the table.

    Raises:
        sqlite3.Error: The table cannot be changed.
    """
    if "high" not in {column for _, column, *_ in db.execute("PRAGMA table_info(departed)")}:
        db.execute(_HIGH)


def save_archive(stamp: ArchiveStamp, file_id: str | None = None) -> _Change:
    """Return the SQL statement that records a compressed file as examined.

    Args:
        stamp: Identifies the compressed file.
        file_id: Id of the tracked file that its content is read as; None if it is not read.
    """
    return "INSERT OR REPLACE INTO archives VALUES (?,?,?,?)", (*stamp, file_id)


def delete_archives(stamps: Iterable[ArchiveStamp]) -> list[_Change]:
    """Return the SQL statements that remove compressed files which no longer exist."""
    return [
        ("DELETE FROM archives WHERE inode=? AND size=? AND mtime_ns=?", tuple(stamp))
        for stamp in stamps
    ]


def save_scan_times(looked_ms: Mapping[str, int]) -> list[_Change]:
    """Return the SQL statements that save scan times, in Unix milliseconds by source."""
    return [
        ("INSERT OR REPLACE INTO looked VALUES (?,?)", (source, at_ms))
        for source, at_ms in looked_ms.items()
    ]


def save_departed(
    position: FilePosition, unread: tuple[bytes, int] = (b"", 0), *, high: int = 0
) -> list[_Change]:
    """Return the SQL statements that record how far a file or generation that is gone was read.

    Only the latest `DEPARTED_MAX` records are kept.

    Args:
        position: Up to where it was read.
        unread: If nothing could be read because its only line had no end: its first bytes and its
            size.
        high: Content size in bytes when its unread bytes were counted as lost, so that they are not
            counted again for the compressed file.

    Returns:
        No changes if the beginning of the content is unknown.
    """
    head, size = unread
    if position.offset == 0 and not (head and size):  # without its beginning it could be any
        return []
    told = (
        (position.head, position.offset, position.anchor, high)
        if position.offset
        else (head, size, b"", high)
    )
    return [
        ("INSERT INTO departed (head, offset, anchor, high) VALUES (?,?,?,?)", told),
        (
            "DELETE FROM departed WHERE number <= (SELECT max(number) FROM departed) - ?",
            (DEPARTED_MAX,),
        ),
    ]


def read_archives(db: sqlite3.Connection) -> dict[ArchiveStamp, str | None]:
    """Return the recorded compressed files, and the id of the file each is read as, or None."""
    rows = db.execute("SELECT inode, size, mtime_ns, file_id FROM archives")
    return {ArchiveStamp(inode, size, mtime_ns): file_id for inode, size, mtime_ns, file_id in rows}


def read_scan_times(db: sqlite3.Connection) -> dict[str, int]:
    """Return when each source was last scanned, in Unix milliseconds."""
    return dict(db.execute("SELECT source, at_ms FROM looked").fetchall())


def read_departed(db: sqlite3.Connection) -> list[FilePosition]:
    """Return how far files and generations that are gone were read."""
    rows = db.execute("SELECT head, offset, anchor, high FROM departed")
    return [
        FilePosition(head=bytes(head), offset=offset, anchor=bytes(anchor), size_seen=high)
        for head, offset, anchor, high in rows
    ]
