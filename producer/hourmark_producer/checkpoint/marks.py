"""Digests of the bytes before recent positions of a file, which identify shorter copies of it.

copytruncate copies a log and then truncates it. Bytes that are written and read in between are not
in the copy, so the anchor at the position does not match the copy, but the bytes at an earlier
position do. The table `marks` holds, per file and generation, the first bytes and the latest
positions, each with a digest of the bytes before it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import sqlite3
import struct
from collections.abc import Callable
from typing import Any, Final

from hourmark_producer.files.fingerprints import ANCHOR_BYTES, HEAD_BYTES
from hourmark_producer.files.tracked_file import FilePosition, TrackedFile

MARKS_MAX: Final = 24
_NEAR: Final = (
    32  # so far apart they are behind the head, where many files begin with the same lines
)
GENERATIONS_MAX: Final = 4  # that are over, the latest one apart
_MARK: Final = struct.Struct(">Q8s")
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS marks (
    file_id TEXT NOT NULL, generation INTEGER NOT NULL, head BLOB NOT NULL, marks BLOB NOT NULL, PRIMARY KEY (file_id, generation)
) WITHOUT ROWID;
"""
_Change = tuple[str, tuple[Any, ...]]


def next_marks(before: FilePosition, body: bytes | memoryview, anchor: bytes) -> bytes:
    """Return the marks of a file after another byte range was read from it.

    A mark is an offset and a digest of the bytes just before it. With the marks of a file, the
    tailer recognizes a copy that ends before the offset up to which the file was read.

    Each range adds a mark at its end. The first range also adds marks at several offsets within it.
    The latest `MARKS_MAX` marks are kept.

    Args:
        before: Position of the file at the start of the range, with the existing marks.
        body: Bytes of the range.
        anchor: The last `ANCHOR_BYTES` (256) bytes of the file up to the end of the range, or fewer
            if the file is shorter.

    Returns:
        The marks in order of offset, 16 bytes each: the offset as a big-endian 64-bit integer, and
        a BLAKE2b digest of 8 bytes. `FilePosition.marks` has the same format.
    """
    near, far = (
        range(HEAD_BYTES, 2 * ANCHOR_BYTES, _NEAR),
        (2 * ANCHOR_BYTES << n for n in itertools.count()),
    )
    places = itertools.takewhile(lambda place: place < len(body), itertools.chain(near, far))
    within = (
        () if before.offset else ((place, body[place - ANCHOR_BYTES : place]) for place in places)
    )
    marks = [
        _MARK.pack(place, _digest(stood))
        for place, stood in (*within, (before.offset + len(body), anchor))
    ]
    return (before.marks + b"".join(marks))[-MARKS_MAX * _MARK.size :]


def matches_last_mark(marks: bytes, size: int, read: Callable[[int, int], bytes]) -> bool:
    """Return whether content matches the last mark that lies within it.

    A mark is an offset with a digest of the bytes just before it.

    Args:
        marks: Marks of a position, in the format of `next_marks`.
        size: Size of the content in bytes.
        read: Function that takes an offset and a number of bytes, and returns these bytes of the
            content.

    Returns:
        False if the digests differ, or if no mark lies within the content.
    """
    places = [place for place in _MARK.iter_unpack(marks) if place[0] <= size]
    if not places:
        return False
    offset, digest = places[-1]
    start = max(0, offset - ANCHOR_BYTES)
    return bool(_digest(read(start, offset - start)) == digest)


def save_marks(file_id: str, position: FilePosition) -> _Change:
    """Return the SQL statement that saves the marks of a file's position.

    Marks are digests of the content at recent offsets. The tailer uses them to recognize a copy of
    the file that is shorter than the part already read. Execute the statement with
    `Checkpoint.commit`.

    Args:
        file_id: Id of the file.
        position: The position, whose `marks` are saved.

    Returns:
        The statement and its parameters.
    """
    return "INSERT OR REPLACE INTO marks VALUES (?,?,?,?)", (
        file_id,
        position.generation,
        position.head,
        position.marks,
    )


def delete_old_marks(file_id: str, generation: int) -> _Change:
    """Return the SQL statement that deletes the marks of the oldest generations of a file.

    Marks are digests of the content, which identify copies of the file. Each truncation begins a
    new generation. Execute the statement with `Checkpoint.commit`.

    Args:
        file_id: Id of the file.
        generation: Its current generation. The marks of this generation and of the
            `GENERATIONS_MAX` before it are kept.

    Returns:
        The statement and its parameters.
    """
    return "DELETE FROM marks WHERE file_id=? AND generation<?", (
        file_id,
        generation - GENERATIONS_MAX,
    )


def read_marks(db: sqlite3.Connection) -> dict[str, dict[int, FilePosition]]:
    """Return the saved marks (digests of the content at recent offsets) of all files.

    Args:
        db: Database of the checkpoint.

    Returns:
        Maps each file id to its positions by generation (number of truncations of the file). A
        position contains its offset, first bytes and marks. Other fields have default values.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    found = dict[str, dict[int, FilePosition]]()
    for file_id, generation, head, marks in db.execute(
        "SELECT file_id, generation, head, marks FROM marks ORDER BY generation"
    ):
        offset, _ = _MARK.unpack(marks[-_MARK.size :])
        position = FilePosition(
            generation=generation,
            offset=offset,
            size_seen=offset,
            head=bytes(head),
            marks=bytes(marks),
        )
        found.setdefault(file_id, {})[generation] = position
    return found


def restore_marks(file: TrackedFile, marked: dict[int, FilePosition]) -> None:
    """Add the saved marks (digests of content at recent offsets) to a file from the checkpoint.

    Marks of the current content and of the content before the latest truncation are added to the
    existing positions. For still earlier content, the positions themselves are added.

    Args:
        file: The file, which is modified.
        marked: Result of `read_marks` for this file, by generation. Entries that are used are
            removed.
    """
    now, former = file.progress.position, file.earlier.latest
    if (here := marked.pop(now.generation, None)) and here.offset == now.offset:
        file.progress = dataclasses.replace(
            file.progress, position=dataclasses.replace(now, marks=here.marks)
        )
    if (
        former is not None
        and (before := marked.pop(former.generation, here))
        and before.generation == former.generation
    ):
        former = dataclasses.replace(former, marks=before.marks)
    older = tuple(position for position in marked.values() if position.generation < now.generation)
    file.earlier = dataclasses.replace(file.earlier, latest=former, older=older)


def _digest(anchor: bytes | memoryview) -> bytes:
    return hashlib.blake2b(anchor, digest_size=8).digest()
