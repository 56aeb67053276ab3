"""The spooled ranges in the table `ranges`, and the file of their large bodies.

SQLite writes each body page by page and twice: to its log, and from there to the database. For a
backlog this used more CPU than the rest of the spool. So bodies of at least `BESIDE_BYTES` are
stored in a file next to the database, and the row contains their location. Smaller ones stay in the
database, where they need no second fsync.

A body is synced before the transaction that refers to it, and its space is reused only after the
transaction that removes the range is durable. So no row ever refers to missing bytes, even after a
power loss. When a checkpoint is closed in order, all bodies are moved back into the database.

`meta.format` states which versions can read the spool.
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
from hourmark_producer.checkpoint.rows import range_to_fields

if TYPE_CHECKING:
    from hourmark_producer.checkpoint.database import Change
    from hourmark_producer.files.tracked_file import SpooledRange

BESIDE_BYTES: Final = 32 << 10  # a body of so much goes into the file
_BLOCK_BYTES: Final = 4096  # no two bodies share one: writing one leaves the others alone
_ENDING_BYTES: Final = 4  # zstd ends a frame with the checksum of what is in it


class BodyDamaged(Exception):
    """Raised when the stored content of a byte range is missing or damaged."""


class Extent(NamedTuple):
    """The location of the compressed content of one byte range in the body file.

    The tailer keeps the content of a byte range until a delivery service acknowledges it. Large
    content is stored in the body file (`BodyFile`), the rest in the checkpoint database.

    Attributes:
        at: Offset of the first byte in the body file.
        size: Size in bytes.
        ending: The last bytes of the content. They are compared with the file when the content is
            read, to detect that the file was replaced or damaged.
    """

    at: int
    size: int
    ending: bytes

    @classmethod
    def read(cls, text: str) -> Extent:
        """Parse the text form of a location in the body file, which `str(extent)` returns.

        Args:
            text: The text, as the checkpoint database stores it.

        Raises:
            ValueError: The text is malformed.
        """
        at, size, ending = text.split(":")
        return cls(int(at), int(size), bytes.fromhex(ending))

    def __str__(self) -> str:
        return f"{self.at}:{self.size}:{self.ending.hex()}"


class BodyFile:
    """A file next to the checkpoint database that stores large bodies of unacknowledged ranges.

    A body is the compressed content of one byte range of a log file. Not thread-safe: the caller
    must hold the lock of the checkpoint.
    """

    def __init__(self, path: Path, taken: Mapping[int, Extent]) -> None:
        """Open the file, or create it if it does not exist.

        If no range is stored in it, an existing file is truncated.

        Args:
            path: Path of the file.
            taken: Location of each stored range by its sequence number. This space is not reused.

        Raises:
            OSError: The file cannot be opened.
        """
        is_new = not path.exists()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._taken = dict(taken)
        self._doubted = set[int]()
        if is_new:
            sync_folder(path.parent)
        elif not taken:
            os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        """Close the file. Later calls of `put`, `get` and `check` raise OSError."""
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def put(self, bodies: Mapping[int, bytes]) -> dict[int, Extent]:
        """Write bodies to free space in the file and sync them to disk.

        Args:
            bodies: Compressed bodies by sequence number of the range.

        Returns:
            The location of each body, by sequence number.

        Raises:
            OSError: The bodies could not be written or synced. No space is reserved for them.
        """
        placed = dict[int, Extent]()
        for sequence, body in bodies.items():
            placed[sequence] = Extent(
                self._find_free_space(len(body), placed.values()), len(body), body[-_ENDING_BYTES:]
            )
            _write(self._descriptor, body, placed[sequence].at)
        if placed:
            os.fdatasync(self._descriptor)
        self._taken |= placed
        return placed

    def free(self, removed: Collection[int]) -> None:
        """Release the space of ranges that a durable transaction removed.

        Also releases the space that `keep_space_reserved` reserved for failed transactions.

        Args:
            removed: Sequence numbers of the removed ranges.
        """
        for sequence in (*removed, *self._doubted):
            self._taken.pop(sequence, None)
        self._doubted.clear()

    def keep_space_reserved(self, sequences: Collection[int]) -> None:
        """Keep the space of range bodies reserved after their transaction failed.

        Rows of the failed transaction may be on disk until a later transaction is durable. Until
        then, their space must not be reused. `free` releases it.

        Args:
            sequences: Sequence numbers of the ranges.
        """
        self._doubted |= set(sequences)

    def get(self, extent: Extent) -> bytes:
        """Return the compressed body at a location.

        Args:
            extent: Location in the file, from `put` or the checkpoint.

        Raises:
            BodyDamaged: The stored bytes do not have the expected size or ending.
            OSError: The file cannot be read.
        """
        body = os.pread(self._descriptor, extent.size, extent.at)
        if len(body) != extent.size or body[-_ENDING_BYTES:] != extent.ending:
            raise BodyDamaged(
                f"the body of a range is missing at byte {extent.at}, where it was written"
            )
        return body

    def check(self, lengths: Mapping[int, int]) -> None:
        """Check that every stored body can be decompressed and has its expected size.

        Args:
            lengths: Decompressed size of each body in bytes, by sequence number.

        Raises:
            BodyDamaged: A body is missing or damaged.
            OSError: The file cannot be read.
        """
        for sequence, extent in self._taken.items():
            try:
                is_whole = (
                    len(zstandard.ZstdDecompressor().decompress(self.get(extent)))
                    == lengths[sequence]
                )
            except zstandard.ZstdError:
                is_whole = False
            if not is_whole:
                raise BodyDamaged(
                    f"the body of a range at byte {extent.at} was changed after it was written"
                )

    def _find_free_space(self, size: int, placed: Collection[Extent]) -> int:
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


def add_to_spool(outgoing: SpooledRange, body: bytes) -> Change:
    """Return the SQL statement that stores a byte range until a service acknowledges it.

    The range is added to the spool, which is the table `ranges` of the checkpoint. Execute the
    statement with `Checkpoint.commit`.

    Args:
        outgoing: The fields of the range and its sequence number.
        body: The compressed bytes of the range.

    Returns:
        The statement and its parameters.
    """
    fields = range_to_fields(outgoing.range)
    return _SPOOL, (outgoing.sequence, outgoing.range.file_id, json.dumps(fields), body)


def remove_from_spool(sequence: int) -> Change:
    """Return the SQL statement that removes an acknowledged byte range from the checkpoint.

    Execute it with `Checkpoint.commit`. If the bytes of the range are stored in a separate file,
    `commit` also releases their space.

    Args:
        sequence: Sequence number of the range.

    Returns:
        The statement and its parameters.
    """
    return _UNSPOOL, (sequence,)


def raise_checkpoint_format() -> Change:
    """Return the SQL statement that raises the format number for several ranges per file.

    Commit it in the transaction that stores a second unacknowledged byte range of a file. Earlier
    versions support only one such range per file, and refuse to open a checkpoint (the tailer's
    database) with the higher number. Execute the statement with `Checkpoint.commit`.

    Returns:
        The statement and its parameters.
    """
    return _NOTE_FORMAT, (SEVERAL, SEVERAL)


def open_bodies(db: sqlite3.Connection, path: Path) -> BodyFile:
    """Open the file of large range bodies next to the checkpoint, and check every body in it.

    A body is the compressed content of a byte range that is not acknowledged yet.

    Args:
        db: Database of the checkpoint, which holds the location of each body.
        path: Path of the file, which is created if it does not exist.

    Returns:
        The open file. The caller must close it.

    Raises:
        BodyDamaged: A body is missing or damaged. The file is closed.
        ValueError: A location in the database is malformed.
        OSError: The file cannot be opened or read.
    """
    taken = {sequence: Extent.read(text) for sequence, text in db.execute(_BESIDE)}
    lengths = (
        "SELECT sequence, json_extract(range, '$.end') - json_extract(range, '$.start') FROM ranges"
    )
    bodies = BodyFile(path, taken)
    try:
        bodies.check(dict(db.execute(lengths).fetchall()))
    except BaseException:
        bodies.close()
        raise
    return bodies


def store_large_bodies(bodies: BodyFile, changes: Sequence[Change]) -> list[Change]:
    """Write the large bodies of a transaction to the body file before the transaction is executed.

    A body is the compressed content of a byte range. Bodies of at least `BESIDE_BYTES` are large.

    Args:
        bodies: The body file, which is next to the checkpoint database.
        changes: SQL statements of the transaction, with their parameters.

    Returns:
        The statements to execute instead, in which each large body is replaced by its location in
        the file. If there is a large body, they also raise the format number of the checkpoint, so
        that earlier versions refuse to open it.

    Raises:
        OSError: No body was stored.
    """
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


def update_body_space(bodies: BodyFile, changes: Sequence[Change], *, done: bool) -> None:
    """Update the reserved space in the body file after a transaction has ended.

    The body file stores the large compressed contents (bodies) of byte ranges. After a successful
    transaction, the space of the removed ranges is released. After a failed one, the space of the
    added ranges stays reserved, because their rows may still be on disk.

    Args:
        bodies: The body file.
        changes: SQL statements of the transaction, with their parameters.
        done: True if the transaction is durable, False if it was rolled back.
    """
    if done:
        bodies.free([row[0] for sql, row in changes if sql is _UNSPOOL])
    else:
        bodies.keep_space_reserved([row[0] for sql, row in changes if sql is _SPOOL])


def read_body(db: sqlite3.Connection, bodies: BodyFile, sequence: int) -> bytes:
    """Return the compressed content of an unacknowledged byte range.

    It is stored in the database or, if it is large, in the body file.

    Args:
        db: Database of the checkpoint.
        bodies: The body file.
        sequence: Sequence number of the range, which the checkpoint must contain.

    Raises:
        BodyDamaged: The content in the body file is damaged.
        OSError: The body file cannot be read.
        sqlite3.Error: The database cannot be read.
    """
    (body,) = db.execute("SELECT body FROM ranges WHERE sequence=?", (sequence,)).fetchone()
    return bodies.get(Extent.read(body)) if isinstance(body, str) else bytes(body)


def move_bodies_into_database(db: sqlite3.Connection, bodies: BodyFile) -> None:
    """Copy all large range bodies into the database, so that the body file is no longer needed.

    The format number of the checkpoint is set to the lowest one that supports its ranges, so that
    earlier versions can open it. The body file is not changed.

    Args:
        db: Database of the checkpoint.
        bodies: The file in which large bodies (compressed contents of byte ranges) are stored.

    Raises:
        BodyDamaged: A body is damaged; nothing was changed.
        OSError: The body file cannot be read; nothing was changed.
        sqlite3.Error: The database cannot be written; nothing was changed.
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


def migrate_ranges_table(db: sqlite3.Connection) -> None:
    """Convert the table `ranges` of an early version, which allowed one range per file.

    Does nothing if the table is current. The triggers of the table are dropped; the caller must
    create them again with `create_accounting`.

    Args:
        db: Database of the checkpoint.

    Raises:
        sqlite3.Error: The database cannot be changed.
    """
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
