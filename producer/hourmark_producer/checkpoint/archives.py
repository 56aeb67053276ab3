"""What the checkpoint stores about compressed files.

| table | content |
|---|---|
| `archives` | compressed files that need no further examination, by inode, size and modification time, which a rename does not change; `file_id` is set if the content is read as that file |
| `looked` | start of the latest full scan of each source, by this host's clock; at most `EVERY_S` seconds out of date |
| `departed` | how far deleted or truncated content was read, so that its compressed form is recognized; all bytes before the offset `high` were read or counted as lost |
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
    """Inode, size and modification time of a compressed file, which identify it after a rename.

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
        """Create the stamp of a compressed file from the result of `os.stat`.

        Args:
            status: Result of `os.stat` for the compressed file.
        """
        return cls(
            status.st_ino - (1 << 64) if status.st_ino >> 63 else status.st_ino,
            status.st_size,
            status.st_mtime_ns,
        )


def migrate_departed_table(db: sqlite3.Connection) -> None:
    """Add the column `high` to a checkpoint that version 0.3.0 or earlier created.

    The column belongs to the table `departed`, which records how far deleted or truncated content
    was read. All bytes before the offset `high` were read or counted as lost. Does nothing if the
    column exists. Earlier versions can still use the table.

    Args:
        db: Database of the checkpoint.

    Raises:
        sqlite3.Error: The table cannot be changed.
    """
    if "high" not in {column for _, column, *_ in db.execute("PRAGMA table_info(departed)")}:
        db.execute(_HIGH)


def save_archive(stamp: ArchiveStamp, file_id: str | None = None) -> _Change:
    """Return the SQL statement that marks a compressed file as examined.

    The tailer examines each new compressed file once, to determine whether it contains unread
    lines. Execute the statement with `Checkpoint.commit`.

    Args:
        stamp: Identifies the compressed file.
        file_id: Id of the tracked file under which its content is sent; None if its content is not
            sent.

    Returns:
        The statement and its parameters.
    """
    return "INSERT OR REPLACE INTO archives VALUES (?,?,?,?)", (*stamp, file_id)


def delete_archives(stamps: Iterable[ArchiveStamp]) -> list[_Change]:
    """Return the SQL statements that delete the records of examined compressed files.

    Execute them with `Checkpoint.commit`. Stamps without a record are ignored.

    Args:
        stamps: Stamps of the compressed files.

    Returns:
        One statement with its parameters per stamp.
    """
    return [
        ("DELETE FROM archives WHERE inode=? AND size=? AND mtime_ns=?", tuple(stamp))
        for stamp in stamps
    ]


def save_scan_times(scan_began_ms: Mapping[str, int]) -> list[_Change]:
    """Return the SQL statements that save the time of the latest full scan of each source.

    Execute them with `Checkpoint.commit`.

    Args:
        scan_began_ms: Maps each source name to the start time of its latest full scan, in Unix
            milliseconds.

    Returns:
        One statement with its parameters per source.
    """
    return [
        ("INSERT OR REPLACE INTO looked VALUES (?,?)", (source, at_ms))
        for source, at_ms in scan_began_ms.items()
    ]


def save_departed(
    position: FilePosition, unread: tuple[bytes, int] = (b"", 0), *, high: int = 0
) -> list[_Change]:
    """Return the SQL statements that record how far deleted or truncated content was read.

    By this record, the tailer recognizes a compressed copy that appears later, and reads only the
    unread bytes. Only the latest `DEPARTED_MAX` records are kept. Execute the statements with
    `Checkpoint.commit`.

    Args:
        position: The position up to which the content was read.
        unread: First bytes and size of the content in bytes. Needed only if nothing was read, which
            means that `position.offset` is 0.
        high: Size of the content in bytes if its unread bytes were counted as lost, so that they
            are not counted again; otherwise 0.

    Returns:
        The statements with their parameters. Empty if nothing was read and `unread` is empty,
        because the content could not be recognized.
    """
    head, size = unread
    if position.offset == 0 and not (head and size):  # without its beginning it could be any
        return []
    values = (
        (position.head, position.offset, position.anchor, high)
        if position.offset
        else (head, size, b"", high)
    )
    return [
        ("INSERT INTO departed (head, offset, anchor, high) VALUES (?,?,?,?)", values),
        (
            "DELETE FROM departed WHERE number <= (SELECT max(number) FROM departed) - ?",
            (DEPARTED_MAX,),
        ),
    ]


def read_archives(db: sqlite3.Connection) -> dict[ArchiveStamp, str | None]:
    """Return the compressed files that were already examined for unread lines.

    Args:
        db: Database of the checkpoint.

    Returns:
        Maps the stamp of each compressed file to the id of the tracked file under which its content
        is sent; None if its content is not sent. Empty if no compressed file was examined.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    rows = db.execute("SELECT inode, size, mtime_ns, file_id FROM archives")
    return {ArchiveStamp(inode, size, mtime_ns): file_id for inode, size, mtime_ns, file_id in rows}


def read_scan_times(db: sqlite3.Connection) -> dict[str, int]:
    """Return the time of the latest full scan of each source.

    Args:
        db: Database of the checkpoint.

    Returns:
        Maps each source name to the start time of the scan, in Unix milliseconds. Sources without a
        recorded scan are omitted.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    return dict(db.execute("SELECT source, at_ms FROM looked").fetchall())


def read_departed(db: sqlite3.Connection) -> list[FilePosition]:
    """Return how far deleted or truncated content was read, as recorded by `save_departed`.

    The tailer compares new compressed files with these positions to recognize content that was
    already read.

    Args:
        db: Database of the checkpoint.

    Returns:
        One position per record; an empty list if there are none. `size_seen` of a position is the
        offset up to which all bytes were read or counted as lost.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    rows = db.execute("SELECT head, offset, anchor, high FROM departed")
    return [
        FilePosition(head=bytes(head), offset=offset, anchor=bytes(anchor), size_seen=high)
        for head, offset, anchor, high in rows
    ]
