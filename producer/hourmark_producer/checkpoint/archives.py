"""What the checkpoint keeps of packed files: which were there, when a source was last looked at,
and what was read and is over.

archives  packed files that need no look any more, by what a rename leaves as it is; `file_id`: it is read as that file
looked    per source: when a full look at it began, by this host's clock; behind by EVERY_S at most
departed  up to where files and generations were read that are over: packed, they are known by it. The latest. `high`: up to
          where their bytes are accounted for, as read or as lost
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from hourmark_producer.files.tracked_file import Position

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


class Stamp(NamedTuple):
    """Of a packed file that has its end: the same under every name, and another one's after a
    change.
    """

    inode: int  # signed, as SQLite's integers are
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(
            status.st_ino - (1 << 64) if status.st_ino >> 63 else status.st_ino,
            status.st_size,
            status.st_mtime_ns,
        )


def add_high(db: sqlite3.Connection) -> None:
    """Add what versions up to 0.3.0 did not write; they can go on with the table. sqlite3.Error."""
    if "high" not in {column for _, column, *_ in db.execute("PRAGMA table_info(departed)")}:
        db.execute(_HIGH)


def know(stamp: Stamp, file_id: str | None = None) -> _Change:
    """It needs no look any more, or is read as this file."""
    return "INSERT OR REPLACE INTO archives VALUES (?,?,?,?)", (*stamp, file_id)


def forget(stamps: Iterable[Stamp]) -> list[_Change]:
    """They are not there any more."""
    return [
        ("DELETE FROM archives WHERE inode=? AND size=? AND mtime_ns=?", tuple(stamp))
        for stamp in stamps
    ]


def look_at(looked_ms: Mapping[str, int]) -> list[_Change]:
    """Sources were looked at."""
    return [
        ("INSERT OR REPLACE INTO looked VALUES (?,?)", (source, at_ms))
        for source, at_ms in looked_ms.items()
    ]


def depart(
    position: Position, unread: tuple[bytes, int] = (b"", 0), *, high: int = 0
) -> list[_Change]:
    """A file or generation that was read up to there is over.

    `unread`: where nothing of it could be read, as it was one line without its end: its first
    bytes, and its size. `high`: its size when what was unread of it was counted as lost, in bytes:
    what it was packed into is not counted again up to there.
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


def known(db: sqlite3.Connection) -> dict[Stamp, str | None]:
    """Those that were there, and which files they are read as."""
    rows = db.execute("SELECT inode, size, mtime_ns, file_id FROM archives")
    return {Stamp(inode, size, mtime_ns): file_id for inode, size, mtime_ns, file_id in rows}


def looked(db: sqlite3.Connection) -> dict[str, int]:
    """When each source was last looked at, Unix milliseconds."""
    return dict(db.execute("SELECT source, at_ms FROM looked").fetchall())


def departed(db: sqlite3.Connection) -> list[Position]:
    """Up to where was read what is over."""
    rows = db.execute("SELECT head, offset, anchor, high FROM departed")
    return [
        Position(head=bytes(head), offset=offset, anchor=bytes(anchor), size_seen=high)
        for head, offset, anchor, high in rows
    ]
