"""Read-only access to the checkpoint from another process, whether or not a tailer is running.

Nothing in the folder is changed. If there is a write-ahead log, it is read in one transaction, like
any second reader of SQLite. If there is none, the database is opened as immutable: any other way
would create an empty log, from which the next start would conclude that no log was lost.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hourmark.errors import Unavailable, UsageError
from hourmark_producer.checkpoint import books
from hourmark_producer.counters import Loss, Losses

_WAIT_S = 5.0


class UnacknowledgedRange(NamedTuple):
    """The position of an unacknowledged byte range in its file.

    Attributes:
        generation: Generation of the file. Each truncation begins a new generation.
        start: Offset of the first byte.
        end: Offset after the last byte.
    """

    generation: int
    start: int
    end: int


class CheckpointedFile(NamedTuple):
    """One tracked file, as the checkpoint (the tailer's database) describes it.

    Attributes:
        file_id: Id of the file.
        source: Name of its source.
        path: Path at which the file was first found.
        seen_at: Path at which the file was last found.
        missing: Whether the file can no longer be found.
        generation: Current generation. Each truncation begins a new generation.
        offset: Offset of the next byte to read.
        high: Largest content size observed in this generation, in bytes.
        device: Device number.
        inode: Inode number.
        spooled: Ranges of the file that are not acknowledged yet.
        anchor: The bytes just before the offset.
    """

    file_id: str
    source: str
    path: str
    seen_at: str
    missing: bool
    generation: int
    offset: int
    high: int
    device: int
    inode: int
    spooled: tuple[UnacknowledgedRange, ...]
    anchor: bytes = b""  # what stood before the offset

    @property
    def in_flight(self) -> int:
        """Return the number of bytes that were read but are not acknowledged yet."""
        return sum(spooled.end - spooled.start for spooled in self.spooled)


class CheckpointSnapshot(NamedTuple):
    """The content of a checkpoint (the tailer's database) at one moment.

    Attributes:
        host_id: Id of the host.
        files: Tracked files, ordered by source and latest path.
        losses: Total losses of all runs, by source name.
        recent_losses: The latest individual losses, oldest first; empty if nothing was lost.
        accounting: Byte totals of all sources; None if the checkpoint was written by a version that
            did not count them.
    """

    host_id: str
    files: list[CheckpointedFile]
    losses: dict[str, Losses]
    recent_losses: list[Loss]
    accounting: books.AccountingSnapshot | None  # None: of a version that kept none


def read_snapshot(path: Path) -> CheckpointSnapshot:
    """Read a checkpoint without changing it, even while a tailer is running.

    Args:
        path: Path of the checkpoint.

    Raises:
        UsageError: There is no checkpoint at `path`, or this user may not read it.
        Unavailable: The checkpoint cannot be read at the moment.
    """
    if not path.exists():
        raise UsageError(
            f"there is no checkpoint at {path}: no tailer has run with this tailer.state_dir "
            "yet; start one with `hourmark tail`"
        )
    with open_read_only(path) as db:
        ((host_id,),) = db.execute("SELECT host_id FROM meta").fetchall()
        tables = {
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        }
        kept = books.read_accounting(db) if {"totals", "accounts"} <= tables else None
        losses = dict(db.execute("SELECT source, bytes FROM losses").fetchall())
        unknown = (
            dict(db.execute("SELECT source, occasions FROM unknown").fetchall())
            if "unknown" in tables
            else {}
        )
        return CheckpointSnapshot(
            host_id=host_id,
            files=list(_files(db, tables)),
            losses={
                source: Losses(losses.get(source, 0), unknown.get(source, 0))
                for source in losses.keys() | unknown.keys()
            },
            recent_losses=_recent_losses(db) if "occasions" in tables else [],
            accounting=kept,
        )


@contextlib.contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Return a context manager that opens an existing checkpoint read-only.

    It yields the database connection. All reads in the context see the same state of the database.

    Args:
        path: Path of the checkpoint.

    Raises:
        UsageError: This user may not read the checkpoint.
        Unavailable: The checkpoint cannot be read at the moment.
    """
    has_log = path.with_name(f"{path.name}-wal").exists()
    address = f"{path.absolute().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}"
    try:
        db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=_WAIT_S)
        with contextlib.closing(db):
            db.execute("PRAGMA query_only=ON")
            db.execute("BEGIN")
            yield db
    except sqlite3.Error as error:
        if not os.access(path, os.R_OK) or not os.access(path.parent, os.X_OK | os.R_OK):
            raise UsageError(
                f"{path} cannot be read by this user; run the command as the tailer's user, or "
                "as root"
            ) from error
        raise Unavailable(
            f"the checkpoint {path} cannot be read: {error}; try again; if the error persists, "
            "check the tailer's log"
        ) from error


def _files(db: sqlite3.Connection, tables: set[str]) -> Iterator[CheckpointedFile]:
    account = (
        "LEFT JOIN accounts a ON a.file_id = f.file_id AND a.generation = f.generation"
        if "accounts" in tables
        else "LEFT JOIN (SELECT NULL AS file_id, NULL AS high) a ON a.file_id = f.file_id"
    )
    place = ", ".join(f"json_extract(range, '$.{name}')" for name in UnacknowledgedRange._fields)
    spooled = defaultdict[str, list[UnacknowledgedRange]](list)
    for file_id, *fields in db.execute(f"SELECT file_id, {place} FROM ranges ORDER BY sequence"):  # noqa: S608
        spooled[file_id].append(UnacknowledgedRange(*fields))
    rows = db.execute(
        # names of this module
        "SELECT f.file_id, source, path, seen_at, missing, f.generation, offset, "  # noqa: S608
        f"max(size_seen, coalesce(high, 0)), device, inode, f.anchor FROM files f {account} "
        "ORDER BY source, seen_at"
    )
    for (
        file_id,
        source,
        file_path,
        seen_at,
        missing,
        generation,
        offset,
        high,
        device,
        inode,
        anchor,
    ) in rows:
        yield CheckpointedFile(
            file_id,
            source,
            os.fsdecode(file_path),
            os.fsdecode(seen_at),
            bool(missing),
            generation,
            offset,
            high,
            device % (1 << 64),
            inode % (1 << 64),
            tuple(spooled[file_id]),
            bytes(anchor),
        )


def _recent_losses(db: sqlite3.Connection) -> list[Loss]:
    rows = db.execute(
        "SELECT source, path, at_ms, bytes, unknown, what FROM occasions ORDER BY number"
    ).fetchall()
    return [
        Loss(
            source=source,
            path=os.fsdecode(path),
            at_ms=at_ms,
            bytes=count,
            unknown=unknown,
            what=what,
        )
        for source, path, at_ms, count, unknown, what in rows
    ]
