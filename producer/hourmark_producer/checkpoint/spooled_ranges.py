"""The ranges that are spooled, and the file of their larger bodies.

The larger bodies of spooled ranges, in a file beside the checkpoint, whose rows say where in it.

SQLite writes what it is given page by page, and twice: into its log, and from there into the
database. For ranges of a backlog that took more CPU than all else that a spool needs. Small ones
stay in the database: they need no second fsync there.

A body is synced before the transaction that names its place, and the place is given to another only
once the transaction that took the range out is durable. So no row ever names what is not there,
whenever the power goes. A checkpoint that is closed in order has all bodies in its database again.

The checkpoint's table `ranges`: what is on its way, with bodies that are in a row or beside the
database.

`meta.format` says what a version needs to be able to go on with it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import zstandard

from hourmark.process.durable import sync_folder
from hourmark_producer.checkpoint.rows import fields_of

if TYPE_CHECKING:
    from hourmark_producer.checkpoint.database import Change
    from hourmark_producer.files.tracked_file import Outgoing

BESIDE_BYTES: Final = 32 << 10  # a body of so much goes into the file
_BLOCK_BYTES: Final = 4096  # no two bodies share one: writing one leaves the others alone
_ENDING_BYTES: Final = 4  # zstd ends a frame with the checksum of what is in it


class BodyDamaged(Exception):
    """What lies at its place is not the body that was put there."""


class Extent(NamedTuple):
    """Where a body lies, and how it ends."""

    at: int
    size: int
    ending: bytes

    @classmethod
    def read(cls, text: str) -> Extent:
        """As `str` wrote it. ValueError."""
        at, size, ending = text.split(":")
        return cls(int(at), int(size), bytes.fromhex(ending))

    def __str__(self) -> str:
        return f"{self.at}:{self.size}:{self.ending.hex()}"


class Bodies:
    """The file, open. Used by whoever holds the checkpoint's database."""

    def __init__(self, path: Path, taken: Mapping[int, Extent]) -> None:
        """`taken`: by sequence number. OSError."""
        is_new = not path.exists()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._taken = dict(taken)
        self._doubted = set[int]()
        if is_new:
            sync_folder(path.parent)
        elif not taken:
            os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        """Let go of the file; a thread that is late writes into no other that has its number."""
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def put(self, bodies: Mapping[int, bytes]) -> dict[int, Extent]:
        """Where they lie now, durably. OSError: nowhere."""
        placed = dict[int, Extent]()
        for sequence, body in bodies.items():
            placed[sequence] = Extent(
                self._room(len(body), placed.values()), len(body), body[-_ENDING_BYTES:]
            )
            _write(self._descriptor, body, placed[sequence].at)
        if placed:
            os.fdatasync(self._descriptor)
        self._taken |= placed
        return placed

    def settled(self, left: Collection[int]) -> None:
        """A transaction is durable, in which these ranges were taken out; what was in doubt before
        it never came to be.
        """
        for sequence in (*left, *self._doubted):
            self._taken.pop(sequence, None)
        self._doubted.clear()

    def doubt(self, put: Collection[int]) -> None:
        """The transaction that names these failed: none of it is seen again, but until the next it
        may be on the disk.
        """
        self._doubted |= set(put)

    def get(self, extent: Extent) -> bytes:
        """OSError, BodyDamaged."""
        body = os.pread(self._descriptor, extent.size, extent.at)
        if len(body) != extent.size or body[-_ENDING_BYTES:] != extent.ending:
            raise BodyDamaged(f"a range's body is not at byte {extent.at}, where it was written")
        return body

    def check(self, lengths: Mapping[int, int]) -> None:
        """That all are whole, of so many bytes inflated. OSError, BodyDamaged."""
        for sequence, extent in self._taken.items():
            try:
                is_whole = (
                    len(zstandard.ZstdDecompressor().decompress(self.get(extent)))
                    == lengths[sequence]
                )
            except zstandard.ZstdError:
                is_whole = False
            if not is_whole:
                raise BodyDamaged(f"a range's body at byte {extent.at} is not as it was written")

    def _room(self, size: int, placed: Collection[Extent]) -> int:
        """The first place that is free for it."""
        at = 0
        for extent in sorted((*self._taken.values(), *placed)):
            if extent.at - at >= size:
                break
            at = -(-(extent.at + extent.size) // _BLOCK_BYTES) * _BLOCK_BYTES
        return at


def _write(descriptor: int, body: bytes, at: int) -> None:
    left = memoryview(body)
    while left:
        written = os.pwrite(descriptor, left, at)
        left, at = left[written:], at + written


FORMAT: Final = 1
SEVERAL: Final = (
    2  # of some file more than one range is on its way, which a version of format 1 would not send
)
BESIDE: Final = (
    3  # some bodies lie beside the database, where a version of another format would not look
)
_SPOOL: Final = "INSERT INTO ranges VALUES (?,?,?,?)"
_UNSPOOL: Final = "DELETE FROM ranges WHERE sequence=?"
_NOTE_FORMAT: Final = "UPDATE meta SET format=? WHERE format<?"
_IS_SEVERAL: Final = "SELECT 1 FROM ranges GROUP BY file_id HAVING count(*) > 1"
_BESIDE: Final = "SELECT sequence, body FROM ranges WHERE typeof(body)='text'"


def spool(outgoing: Outgoing, body: bytes) -> Change:
    """A range on its way, with its compressed body."""
    fields = fields_of(outgoing.range)
    return _SPOOL, (outgoing.sequence, outgoing.range.file_id, json.dumps(fields), body)


def unspool(sequence: int) -> Change:
    """A range that was acknowledged."""
    return _UNSPOOL, (sequence,)


def note_several() -> Change:
    """Of a file more than one range is about to be on its way."""
    return _NOTE_FORMAT, (SEVERAL, SEVERAL)


def bodies_of(db: sqlite3.Connection, path: Path) -> Bodies:
    """Those beside the database.

    OSError, ValueError, BodyDamaged: not all of them are there as they were written.
    """
    taken = {sequence: Extent.read(text) for sequence, text in db.execute(_BESIDE)}
    lengths = (
        "SELECT sequence, json_extract(range, '$.end') - json_extract(range, '$.start') FROM ranges"
    )
    bodies = Bodies(path, taken)
    try:
        bodies.check(dict(db.execute(lengths).fetchall()))
    except BaseException:
        bodies.close()
        raise
    return bodies


def placed(bodies: Bodies, changes: Sequence[Change]) -> list[Change]:
    """The same changes, with large bodies beside the database by now. OSError."""
    extents = bodies.put(
        {row[0]: row[3] for sql, row in changes if sql is _SPOOL and len(row[3]) >= BESIDE_BYTES}
    )
    if not extents:
        return list(changes)
    return [
        (_NOTE_FORMAT, (BESIDE, BESIDE)),
        *(
            (sql, (*row[:3], str(extents[row[0]])))
            if sql is _SPOOL and row[0] in extents
            else (sql, row)
            for sql, row in changes
        ),
    ]


def settled(bodies: Bodies, changes: Sequence[Change], *, done: bool) -> None:
    """`done`: they are durable; else none of them is."""
    if done:
        bodies.settled([row[0] for sql, row in changes if sql is _UNSPOOL])
    else:
        bodies.doubt([row[0] for sql, row in changes if sql is _SPOOL])


def body_of(db: sqlite3.Connection, bodies: Bodies, sequence: int) -> bytes:
    """A spooled one, compressed. sqlite3.Error, OSError, BodyDamaged."""
    (body,) = db.execute("SELECT body FROM ranges WHERE sequence=?", (sequence,)).fetchone()
    return bodies.get(Extent.read(body)) if isinstance(body, str) else bytes(body)


def bring_in(db: sqlite3.Connection, bodies: Bodies) -> None:
    """All into the database, which is whole alone then, and of the least format. sqlite3.Error,
    OSError, BodyDamaged: not.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        for sequence, text in db.execute(_BESIDE).fetchall():
            db.execute(
                "UPDATE ranges SET body=? WHERE sequence=?",
                (bodies.get(Extent.read(text)), sequence),
            )
        db.execute(
            f"UPDATE meta SET format=CASE WHEN EXISTS ({_IS_SEVERAL}) THEN ? ELSE ? END",  # noqa: S608
            (SEVERAL, FORMAT),
        )
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def allow_several(db: sqlite3.Connection) -> None:
    """Ranges of a file: a version before this one allowed a single one."""
    (made,) = db.execute(
        "SELECT sql FROM sqlite_master WHERE type='table' AND name='ranges'"
    ).fetchone()
    if "UNIQUE" not in made:
        return
    columns = (
        "(sequence INTEGER PRIMARY KEY, file_id TEXT NOT NULL, range TEXT NOT NULL, body "
        "BLOB NOT NULL)"
    )
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute(f"CREATE TABLE ranges_made_anew {columns}")
        db.execute("INSERT INTO ranges_made_anew SELECT sequence, file_id, range, body FROM ranges")
        db.execute(
            "DROP TABLE ranges"
        )  # with its triggers, and without firing them: `books` makes them again
        db.execute("ALTER TABLE ranges_made_anew RENAME TO ranges")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
