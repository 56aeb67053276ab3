"""Marks: what stood before the latest places up to which a file was read, so that a copy that holds
less than that is known.

copytruncate copies a log and then truncates it; what is written and read in between is not in the
copy. The anchor at the position says nothing of such a copy, but a place that was read to a little
earlier does.

marks  per file and generation, of the latest ones: the first bytes, and the latest places, each with a digest of the bytes before
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
from hourmark_producer.files.tracked_file import Position, TrackedFile

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


def next_marks(before: Position, body: bytes | memoryview, anchor: bytes) -> bytes:
    """After one more range.

    `anchor`: its last bytes, and those before. The first range has places within it, too.
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


def is_marked(marks: bytes, size: int, read: Callable[[int, int], bytes]) -> bool:
    """Whether content of this size has, before the last place that is in it, what was read there.

    `read`: offset, count.
    """
    places = [place for place in _MARK.iter_unpack(marks) if place[0] <= size]
    if not places:
        return False
    offset, digest = places[-1]
    start = max(0, offset - ANCHOR_BYTES)
    return bool(_digest(read(start, offset - start)) == digest)


def save_marks(file_id: str, position: Position) -> _Change:
    """Those of a position."""
    return "INSERT OR REPLACE INTO marks VALUES (?,?,?,?)", (
        file_id,
        position.generation,
        position.head,
        position.marks,
    )


def forget_older(file_id: str, generation: int) -> _Change:
    """It is over; some before it are kept, too."""
    return "DELETE FROM marks WHERE file_id=? AND generation<?", (
        file_id,
        generation - GENERATIONS_MAX,
    )


def known(db: sqlite3.Connection) -> dict[str, dict[int, Position]]:
    """By file and generation, as far as marks tell positions: without their anchors."""
    found = dict[str, dict[int, Position]]()
    for file_id, generation, head, marks in db.execute(
        "SELECT file_id, generation, head, marks FROM marks ORDER BY generation"
    ):
        offset, _ = _MARK.unpack(marks[-_MARK.size :])
        position = Position(
            generation=generation,
            offset=offset,
            size_seen=offset,
            head=bytes(head),
            marks=bytes(marks),
        )
        found.setdefault(file_id, {})[generation] = position
    return found


def restore(file: TrackedFile, marked: dict[int, Position]) -> None:
    """What was known of it by the run before."""
    now, former = file.progress.position, file.former
    if (here := marked.pop(now.generation, None)) and here.offset == now.offset:
        file.progress = dataclasses.replace(
            file.progress, position=dataclasses.replace(now, marks=here.marks)
        )
    if (
        former is not None
        and (before := marked.pop(former.generation, here))
        and before.generation == former.generation
    ):
        file.former = dataclasses.replace(former, marks=before.marks)
    file.older = tuple(
        position for position in marked.values() if position.generation < now.generation
    )


def _digest(anchor: bytes | memoryview) -> bytes:
    return hashlib.blake2b(anchor, digest_size=8).digest()
