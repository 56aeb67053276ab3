"""Files that are gone and forgotten: up to where each was read, in the checkpoint alone.

A file that left its source's patterns, or could not be found any more, stays tracked so that it is
read on should it come back. Once its inode is not in its folder any more it takes no memory and no
part of a scan; should it come back all the same, from another folder, its row tells where to go on.
The latest FORGOTTEN_MAX are kept, some hundred bytes each.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final, NamedTuple

from hourmark_producer.checkpoint.rows import device_row
from hourmark_producer.files.identity import Identity
from hourmark_producer.files.tracked_file import Position, TrackedFile

FORGOTTEN_MAX: Final = 10_000
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS forgotten (
    number INTEGER PRIMARY KEY, inode INTEGER NOT NULL, birth_ns INTEGER NOT NULL, file_id TEXT NOT NULL,
    generation INTEGER NOT NULL, offset INTEGER NOT NULL, in_line INTEGER NOT NULL, anchor BLOB NOT NULL, head BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS forgotten_by_birth ON forgotten (birth_ns, inode);
"""
_Change = tuple[str, tuple[Any, ...]]


class Forgotten(NamedTuple):
    """A file that is known no more. `position`: up to where it was read."""

    file_id: str
    position: Position


def forget(file: TrackedFile) -> list[_Change]:
    """Return the changes that keep where to go on.

    The file must have a birth time: else its inode may be another's by now.
    """
    assert file.identity.birth_ns, (
        "a file without a birth time is not told from the next one on its inode"
    )
    _, inode, birth_ns = device_row(file)
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


def find(db: sqlite3.Connection, identity: Identity) -> Forgotten | None:
    """Return what is known of a file of this inode and birth time; None where nothing is.

    Raises sqlite3.Error.

    The device is not compared: its number may differ after a restart of the machine.
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
    position = Position(
        generation=generation,
        offset=offset,
        in_line=bool(in_line),
        anchor=bytes(anchor),
        head=bytes(head),
        size_seen=offset,
    )
    return Forgotten(file_id, position)
