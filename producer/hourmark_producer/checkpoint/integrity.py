"""Checks that the checkpoint and its write-ahead log are complete.

SQLite reads its write-ahead log up to the first frame with a wrong checksum and takes that for the
end. This is right for a commit that a power loss tore, but a flipped bit in the middle silently
discards all later commits. Two facts reveal this:

- The wal-index (`-shm`) contains the number of committed frames. It survives kill -9 and is written
  after the log is synced, so the log never holds fewer frames. SQLite rebuilds it when it opens a
  database.
- If the wal-index is missing, or older than a power loss: a commit is synced before the next one is
  written, so at most one can be torn. If more than one follows the end that SQLite sees, the log is
  damaged. Frames with other salts are ignored: they remain from a previous log in the same file.

The log is therefore read here before SQLite opens the database, which would change the evidence. It
is a few MB at most, and exists only after a kill. Formats: https://sqlite.org/walformat.html,
sections 2.1, 4.1 and 4.2.

A lost write-ahead log is detected by a mark in the table `run`. The newest commits of a run are
only in the log; without it the database is an older but consistent state, and continuing from there
would send other ranges under the same ids. So the database itself contains the mark LOGGED ("the
log contains more"), and the first commit in the log changes it to ALL. If LOGGED is read and there
was no log, the log was lost. If another program closed the database and moved the log into it, ALL
is read, and nothing was lost.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_VERSION: Final = 3_007_000  # of both
_INDEX: Final = struct.Struct("=I8xB3xI12x8s")  # version, whether it is initialized, frames, salts
_INDEX_BYTES: Final = 48  # with its checksum; there twice
_LOG_HEADER: Final = struct.Struct(
    ">IIII8sII"
)  # magic, version, page size, number, salts, checksum
_FRAME_HEADER: Final = struct.Struct(">II8sII")  # page, pages after a commit or 0, salts, checksum
_MAGIC: Final = 0x377F0682  # or one more: then checksums are big-endian
_TORN_MAX: Final = 1  # commits
_DAMAGED: Final = "was damaged, so the latest position is unknown"


class WalIndexHeader(NamedTuple):
    """The header of a SQLite wal-index (the `-shm` file).

    Attributes:
        frames: Number of committed frames in the write-ahead log.
        salts: Salt values of the log that the index belongs to.
        this_boot: Whether the file was written after the machine booted. If False, the index may be
            older than the log.
    """

    frames: int
    salts: bytes
    this_boot: bool


class WalFrame(NamedTuple):
    """One frame of a SQLite write-ahead log, which holds one page of the database.

    Attributes:
        is_commit: Whether the frame ends a transaction.
        salts: Salt values of the log that the frame belongs to.
        checksum: Cumulative checksum up to and including this frame.
        content: The bytes that the checksum covers.
    """

    is_commit: bool
    salts: bytes
    checksum: tuple[int, int]
    content: bytes  # all that is summed


def find_log_damage(path: Path) -> str:
    """Check the SQLite write-ahead log of a database for damage.

    Args:
        path: Path of the database. No process may have it open, and its log must exist.

    Returns:
        A description of the damage; an empty string if the log is intact.

    Raises:
        OSError: The log cannot be read.
    """
    log, index = path.with_name(f"{path.name}-wal").read_bytes(), read_wal_index(path)
    order = "=" if len(log) < _LOG_HEADER.size else ">" if log[3] & 1 else "<"
    frames = list(_frames(log))
    recovered = _count_recoverable_frames(log, frames, order)
    if index is not None and _is_of(index, log, frames) and recovered < index.frames:
        return (
            f"its write-ahead log contains {recovered} valid frames of {index.frames}: it "
            f"{_DAMAGED}"
        )
    salts = _salts(log, order)
    own = (
        run for run in _split_at_breaks(frames[recovered:], order) if salts in (None, run[-1].salts)
    )
    commits = max((sum(frame.is_commit for frame in run) for run in own), default=0)
    if commits > _TORN_MAX:
        return (
            f"after frame {recovered} and an incomplete frame, its write-ahead log contains "
            f"further commits: it {_DAMAGED}"
        )
    return ""


def read_wal_index(path: Path) -> WalIndexHeader | None:
    """Return the header of the wal-index of the database at `path`.

    Args:
        path: Path of the database, without the suffix `-shm`.

    Returns:
        The header; None if the wal-index is missing or invalid.

    Raises:
        OSError: The wal-index cannot be read.
    """
    try:
        with path.with_name(f"{path.name}-shm").open("rb") as file:
            content = file.read(2 * _INDEX_BYTES)
            changed_s = os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    first, second = content[:_INDEX_BYTES], content[_INDEX_BYTES:]
    if (
        first != second
        or len(second) != _INDEX_BYTES
        or _sum((0, 0), first[:40], "=") != struct.unpack("=II", first[40:])
    ):
        return None
    version, is_initialized, frames, salts = _INDEX.unpack(first[:40])
    if version != _VERSION or not is_initialized:
        return None
    booted_s = time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_BOOTTIME)
    return WalIndexHeader(frames, salts, this_boot=changed_s > booted_s)


def _is_of(index: WalIndexHeader, log: bytes, frames: list[WalFrame]) -> bool:
    if len(log) < _LOG_HEADER.size:
        return index.this_boot
    return index.salts == _LOG_HEADER.unpack_from(log)[4] or any(
        index.salts == frame.salts for frame in frames[:1]
    )


def _frames(log: bytes) -> Iterator[WalFrame]:
    if len(log) < _LOG_HEADER.size:
        return
    page_bytes = _LOG_HEADER.unpack_from(log)[2]
    if not 512 <= page_bytes <= 65_536 or page_bytes & (page_bytes - 1):
        page_bytes = 4096  # the header is damaged; this is SQLite's default
    size = _FRAME_HEADER.size + page_bytes
    for at in range(_LOG_HEADER.size, len(log) - size + 1, size):
        _, pages, salts, first, second = _FRAME_HEADER.unpack_from(log, at)
        content = log[at : at + 8] + log[at + _FRAME_HEADER.size : at + size]
        yield WalFrame(pages != 0, salts, (first, second), content)


def _count_recoverable_frames(log: bytes, frames: list[WalFrame], order: str) -> int:
    # SQLite reads up to the last commit before the first invalid frame.
    salts = _salts(log, order)
    if salts is None:
        return 0
    recovered, summed = 0, _LOG_HEADER.unpack_from(log)[5:]
    for number, frame in enumerate(frames, 1):
        summed = _sum(summed, frame.content, order)
        if frame.salts != salts or summed != frame.checksum:
            break
        recovered = number if frame.is_commit else recovered
    return recovered


def _salts(log: bytes, order: str) -> bytes | None:
    if len(log) < _LOG_HEADER.size:
        return None
    magic, version, _, _, salts, *checksum = _LOG_HEADER.unpack_from(log)
    whole = magic & ~1 == _MAGIC and version == _VERSION
    return (
        bytes(salts)
        if whole and _sum((0, 0), log[: _LOG_HEADER.size - 8], order) == tuple(checksum)
        else None
    )


def _split_at_breaks(frames: list[WalFrame], order: str) -> Iterator[list[WalFrame]]:
    # A sequence begins with the frame before the break, which may be the damaged one.
    begin = 0
    for at in range(1, len(frames) + 1):
        if at == len(frames) or not _follows(frames[at - 1], frames[at], order):
            yield frames[max(0, begin - 1) : at]
            begin = at


def _follows(before: WalFrame, frame: WalFrame, order: str) -> bool:
    return (
        before.salts == frame.salts
        and _sum(before.checksum, frame.content, order) == frame.checksum
    )


def _sum(start: tuple[int, int], content: bytes, order: str) -> tuple[int, int]:
    first, second = start
    for one, other in struct.iter_unpack(f"{order}II", content):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


SCHEMA: Final = "CREATE TABLE IF NOT EXISTS run (under_way INTEGER NOT NULL);"
_ENDED, _LOGGED, _ALL = 0, 1, 2


def log_was_lost(db: sqlite3.Connection, *, log_is_there: bool) -> bool:
    """Return whether the write-ahead log of the database was deleted after an unclean shutdown.

    Commits that were only in the log are then lost.

    Args:
        db: The open database.
        log_is_there: Whether the log existed before this connection was opened. Opening a
            connection creates the log.
    """
    (mark,) = db.execute("SELECT coalesce(max(under_way), 0) FROM run").fetchone()
    return mark == _LOGGED and not log_is_there


def restart_log(db: sqlite3.Connection) -> None:
    """Move all commits from the SQLite write-ahead log into the database, and start a new log.

    Args:
        db: The open database.

    Raises:
        sqlite3.Error: The disk is full or cannot be written. No commit is lost.
    """
    _put(db, _LOGGED)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    _put(db, _ALL)


def mark_run_ended(db: sqlite3.Connection) -> None:
    """Record a clean shutdown, so that the next start does not require a write-ahead log.

    Args:
        db: The open database.

    Raises:
        sqlite3.Error: The database cannot be written.
    """
    _put(db, _ENDED)


def _put(db: sqlite3.Connection, mark: int) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("DELETE FROM run")
        db.execute("INSERT INTO run VALUES (?)", (mark,))
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
