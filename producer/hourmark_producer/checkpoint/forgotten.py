"""Positions of files that are no longer tracked, kept only in the checkpoint.

If a file no longer matches the patterns of its source, or cannot be found, it stays tracked.
Reading continues if it returns. Once its inode is no longer in its folder, tracking ends, and the
file uses neither memory nor scan time. If it returns from another folder, reading continues at the
saved position. The latest `FORGOTTEN_MAX` positions are kept, with some hundred bytes each.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final, NamedTuple

from hourmark.process.file_identity import FileIdentity
from hourmark_producer.checkpoint.rows import identity_columns
from hourmark_producer.files.tracked_file import FilePosition, TrackedFile

FORGOTTEN_MAX: Final = 10_000
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS forgotten (
    number INTEGER PRIMARY KEY, inode INTEGER NOT NULL, birth_ns INTEGER NOT NULL, file_id TEXT NOT NULL,
    generation INTEGER NOT NULL, offset INTEGER NOT NULL, in_line INTEGER NOT NULL, anchor BLOB NOT NULL, head BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS forgotten_by_birth ON forgotten (birth_ns, inode);
"""
_Change = tuple[str, tuple[Any, ...]]


class ForgottenFile(NamedTuple):
    """The saved state of a file that the tailer no longer tracks.

    If the file is found again, it keeps its id, and reading continues at the saved position.

    Attributes:
        file_id: Id of the file.
        position: The position up to which it was read.
    """

    file_id: str
    position: FilePosition


def save_forgotten(file: TrackedFile) -> list[_Change]:
    """Return the SQL statements that save the position of a file before it stops being tracked.

    Execute them with `Checkpoint.commit`. Only the latest `FORGOTTEN_MAX` positions are kept.

    Args:
        file: The file. It must have a birth time, because another file may later have the same
            inode.

    Returns:
        Two statements with their parameters: the first saves the position, the second deletes the
        oldest positions.
    """
    assert file.identity.birth_ns, (
        "a file without a birth time cannot be distinguished from the next one with its inode"
    )
    _, inode, birth_ns = identity_columns(file)
    at = file.progress.position
    columns = "inode, birth_ns, file_id, generation, offset, in_line, anchor, head"
    row = (inode, birth_ns, file.file_id, at.generation, at.offset, at.in_line, at.anchor, at.head)
    return [
        # names of this module
        (f"INSERT INTO forgotten ({columns}) VALUES (?,?,?,?,?,?,?,?)", row),  # noqa: S608
        (
            "DELETE FROM forgotten WHERE number <= (SELECT max(number) FROM forgotten) - ?",
            (FORGOTTEN_MAX,),
        ),
    ]


def find_forgotten(db: sqlite3.Connection, identity: FileIdentity) -> ForgottenFile | None:
    """Find the saved state of a previously tracked file by its inode and birth time.

    The device number is not compared, because it may change when the machine restarts.

    Args:
        db: Database of the checkpoint.
        identity: Device, inode and birth time of an open file that is not tracked.

    Returns:
        Id and position of the file; None if no position is saved for it, or if `identity` has no
        birth time.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    if not identity.birth_ns:
        return None
    inode = identity.inode - (1 << 64) if identity.inode >> 63 else identity.inode
    row = db.execute(
        "SELECT file_id, generation, offset, in_line, anchor, head FROM forgotten WHERE "
        "birth_ns=? AND inode=? "
        "ORDER BY number DESC LIMIT 1",
        (identity.birth_ns, inode),
    ).fetchone()
    if row is None:
        return None
    file_id, generation, offset, in_line, anchor, head = row
    position = FilePosition(
        generation=generation,
        offset=offset,
        in_line=bool(in_line),
        anchor=bytes(anchor),
        head=bytes(head),
        size_seen=offset,
    )
    return ForgottenFile(file_id, position)
