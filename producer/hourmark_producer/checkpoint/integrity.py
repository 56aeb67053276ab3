"""Whether the checkpoint is whole: its write-ahead log, and the mark of a run.

Whether a write-ahead log is whole. What SQLite cannot read ends the log for it, without a word.

SQLite reads its log up to the first frame whose checksum is wrong, and takes that for the end:
right for a commit that a power cut tore, but a flipped bit in the middle takes every later commit
with it, and the checkpoint would be an older state, whole and in order. Two things tell:

- The wal-index (…-shm) says how many frames were committed. It outlives kill -9, and is written
  after the log is synced: the log never holds fewer. SQLite makes it anew when it opens a database.
- Without it, or with one from before a power cut: a commit is synced before the next one is
  written, so at most one may be torn. Where more than one follows the end that SQLite sees, the log
  was damaged. Frames of other salts are none of its own: where SQLite began its log anew in place,
  as with 0.2.0, those of the one before stand behind the end.

So the log is read here first, without SQLite, which would change what tells. It is some MB at most,
and there after a kill only. Formats: https://sqlite.org/walformat.html, sections 2.1, 4.1 and 4.2.

Whether a run of the tailer is under way, marked in its checkpoint so that a lost write-ahead log is
noticed.

A run's newest commits are in the log alone. Without it the database is an older state, whole and in
order, and going on from there would send other ranges under old places. So the database itself says
LOGGED, "there is more in the log", while the log's first commit says ALL. Who opens it and reads
LOGGED, where there was no log, knows that it was lost. Where another program closed the database in
order, and so moved the log into it, ALL is read: nothing is lost.
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
_DAMAGED: Final = "was damaged: what was sent last is not known"


class Index(NamedTuple):
    """What a wal-index says.

    `this_boot`: it was written by a process of this boot, so it is no older than the log.
    """

    frames: int
    salts: bytes
    this_boot: bool


class Frame(NamedTuple):
    """One page as it was written."""

    is_commit: bool
    salts: bytes
    checksum: tuple[int, int]
    content: bytes  # all that is summed


def what_is_missing(path: Path) -> str:
    """Why the log of the database at `path`, which nobody has open, is not whole; empty where it
    is.
    """
    log, index = path.with_name(f"{path.name}-wal").read_bytes(), read_index(path)
    order = "=" if len(log) < _LOG_HEADER.size else ">" if log[3] & 1 else "<"
    frames = list(_frames(log))
    recovered = _recovered(log, frames, order)
    if index is not None and _is_of(index, log, frames) and recovered < index.frames:
        return (
            f"its write-ahead log holds {recovered} whole frames of {index.frames}: it {_DAMAGED}"
        )
    salts = _salts(log, order)
    own = (run for run in _runs(frames[recovered:], order) if salts in (None, run[-1].salts))
    commits = max((sum(frame.is_commit for frame in run) for run in own), default=0)
    if commits > _TORN_MAX:
        return (
            f"after frame {recovered}, and one that is not whole, its write-ahead log goes on "
            f"with other commits: it {_DAMAGED}"
        )
    return ""


def read_index(path: Path) -> Index | None:
    """The wal-index of the database at `path`; None where there is none in order."""
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
    return Index(frames, salts, this_boot=changed_s > booted_s)


def _is_of(index: Index, log: bytes, frames: list[Frame]) -> bool:
    """Whether it is this log's, and not that of an earlier one."""
    if len(log) < _LOG_HEADER.size:
        return index.this_boot
    return index.salts == _LOG_HEADER.unpack_from(log)[4] or any(
        index.salts == frame.salts for frame in frames[:1]
    )


def _frames(log: bytes) -> Iterator[Frame]:
    if len(log) < _LOG_HEADER.size:
        return
    page_bytes = _LOG_HEADER.unpack_from(log)[2]
    if not 512 <= page_bytes <= 65_536 or page_bytes & (page_bytes - 1):
        page_bytes = 4096  # the header is damaged; this is SQLite's default
    size = _FRAME_HEADER.size + page_bytes
    for at in range(_LOG_HEADER.size, len(log) - size + 1, size):
        _, pages, salts, first, second = _FRAME_HEADER.unpack_from(log, at)
        content = log[at : at + 8] + log[at + _FRAME_HEADER.size : at + size]
        yield Frame(pages != 0, salts, (first, second), content)


def _recovered(log: bytes, frames: list[Frame], order: str) -> int:
    """How many frames SQLite reads: up to the last commit before the first frame that is not
    whole.
    """
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
    """Of the log's own frames; None where its header is not whole."""
    if len(log) < _LOG_HEADER.size:
        return None
    magic, version, _, _, salts, *checksum = _LOG_HEADER.unpack_from(log)
    whole = magic & ~1 == _MAGIC and version == _VERSION
    return (
        bytes(salts)
        if whole and _sum((0, 0), log[: _LOG_HEADER.size - 8], order) == tuple(checksum)
        else None
    )


def _runs(frames: list[Frame], order: str) -> Iterator[list[Frame]]:
    """Frames that were written one after another, by their checksums; each with the one before,
    which may be the bad one.
    """
    begin = 0
    for at in range(1, len(frames) + 1):
        if at == len(frames) or not _follows(frames[at - 1], frames[at], order):
            yield frames[max(0, begin - 1) : at]
            begin = at


def _follows(before: Frame, frame: Frame, order: str) -> bool:
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
    """`log_is_there`: before this connection was made, which makes one."""
    (mark,) = db.execute("SELECT coalesce(max(under_way), 0) FROM run").fetchone()
    return mark == _LOGGED and not log_is_there


def begin_log(db: sqlite3.Connection) -> None:
    """Move the log into the database, and begin a new one. sqlite3.Error where the disk is full:
    all is as it was then.
    """
    _put(db, _LOGGED)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    _put(db, _ALL)


def end(db: sqlite3.Connection) -> None:
    """The run ends in order: closing the database moves the log into it."""
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
