"""The checkpoint: the state that survives kill -9 and power loss.

One SQLite database (WAL, synchronous=FULL) in the state folder.

| table | content |
|---|---|
| `meta` | format version, host id |
| `run` | whether a run is in progress, or ended without a shutdown |
| `files` | per file: identity, place, position |
| `ranges` | the spool: every range that was cut and is not acknowledged yet, with all its fields and its compressed body, or the place of the body (`spooled_ranges`). A retry is the same range byte for byte, even if the file is truncated or gone. Ranges are acknowledged in any order: a file is acknowledged without gap up to the first that is left |
| `losses` | per source: bytes known to be lost; never decreases |
| `unknown` | per source: number of losses of unknown size; never decreases |
| `occasions` | the latest losses, with file and time |
| `targets` | per file found by a symbolic link: the path that it resolves to |
| `kept` | per partly truncated file: up to where its generation holds bytes that were read in the one before |
| `formers` | per truncated file: its position before, to recognize a copy of it |
| `accounts` | per file: what scans observed since it was last examined, so that a restart forgets no loss |
| `begun` | sources that were scanned: files that appear later are read from their start |
| `archives`, `looked`, `departed` | compressed files, see `archives` |
| `forgotten` | positions of files that are gone, see `forgotten` |
| `delivered` | files that were completely delivered when the latest run ended, see `delivered` |
| `marks` | per file: digests at recent offsets, see `marks` |

Order of operations: one transaction spools a range and moves its file's position; then the range is
sent; once acknowledged it is deleted, in the transaction that spools the file's next range. So
after kill -9 a range is sent again unchanged, or not at all. Small files share these transactions.
`commit` returns when the changes are on disk; concurrent commits of several threads share one
fsync.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from hourmark.errors import Unavailable
from hourmark.process.durable import sync_folder
from hourmark_producer.checkpoint import (
    archives,
    books,
    delivered,
    forgotten,
    integrity,
    marks,
)
from hourmark_producer.checkpoint.integrity import find_log_damage
from hourmark_producer.checkpoint.rows import (
    identity_columns,
    json_to_range,
    location_columns,
    orphaned_ranges_to_file,
    position_columns,
    restore_account,
    row_to_file,
)
from hourmark_producer.checkpoint.spooled_ranges import (
    BESIDE,
    FORMAT,
    SEVERAL,
    BodyDamaged,
    BodyFile,
    migrate_ranges_table,
    move_bodies_into_database,
    open_bodies,
    read_body,
    store_large_bodies,
    update_body_space,
)
from hourmark_producer.counters import Loss, Losses
from hourmark_producer.files.tracked_file import (
    EarlierGenerations,
    FileAccount,
    FileLocation,
    FilePosition,
    SpooledRange,
    TrackedFile,
)

_LOG_BYTES_MAX: Final = 4 << 20  # of the write-ahead log
_SCHEMA: Final = """
CREATE TABLE meta (format INTEGER NOT NULL, host_id TEXT NOT NULL);
CREATE TABLE files (
    file_id TEXT PRIMARY KEY, device INTEGER NOT NULL, inode INTEGER NOT NULL, birth_ns INTEGER NOT NULL,
    source TEXT NOT NULL, path BLOB NOT NULL, seen_at BLOB NOT NULL, missing INTEGER NOT NULL,
    generation INTEGER NOT NULL, offset INTEGER NOT NULL, in_line INTEGER NOT NULL,
    anchor BLOB NOT NULL, size_seen INTEGER NOT NULL
);
CREATE TABLE ranges (sequence INTEGER PRIMARY KEY, file_id TEXT NOT NULL, range TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE losses (source TEXT PRIMARY KEY, bytes INTEGER NOT NULL);
"""
# Beside what format 1 began with: a version from before them passes over these tables, and can go
# on with the rest.
_LATER: Final = """
CREATE TABLE IF NOT EXISTS unknown (source TEXT PRIMARY KEY, occasions INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS occasions (
    number INTEGER PRIMARY KEY, source TEXT NOT NULL, path BLOB NOT NULL, at_ms INTEGER NOT NULL,
    bytes INTEGER NOT NULL, unknown INTEGER NOT NULL, what TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS accounts (
    file_id TEXT PRIMARY KEY, generation INTEGER NOT NULL, settled INTEGER NOT NULL, doubted INTEGER NOT NULL,
    high INTEGER NOT NULL, shrinks TEXT NOT NULL, head BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS formers (
    file_id TEXT PRIMARY KEY, generation INTEGER NOT NULL, offset INTEGER NOT NULL, anchor BLOB NOT NULL, head BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS kept (file_id TEXT PRIMARY KEY, generation INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS targets (file_id TEXT PRIMARY KEY, path BLOB NOT NULL);
"""
_BEGUN: Final = "CREATE TABLE IF NOT EXISTS begun (source TEXT PRIMARY KEY);"
_LOOK_AT_DISK: Final = "check that the disk is writable and has free space"
_DISK_ERRORS: Final = frozenset(
    (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_BUSY,
    )
)
RECENT_LOSSES_MAX: Final = 1000  # the counts keep them all

Change = tuple[str, Sequence[Any]]  # a statement and its parameters
_Found = TypeVar("_Found")


class CheckpointFailed(Unavailable):
    """Raised when the checkpoint database cannot be read or written, for example on a full disk.

    The failed operation changed nothing, so the caller may repeat it.
    """


class CheckpointBroken(Exception):
    """Raised when a checkpoint database is damaged or incomplete, or has an unsupported format.

    The database cannot be used. An operator must restore a good copy or start with an empty one.
    """


def insert_file(file: TrackedFile) -> Change:
    """Return the SQL statement that adds a tracked file to the table `files`.

    Execute it with `Checkpoint.commit`.

    Args:
        file: The file, with its identity, location and position.

    Returns:
        The statement and its parameters.
    """
    row = (
        file.file_id,
        *identity_columns(file),
        *location_columns(file.place),
        *position_columns(file.progress.position),
    )
    return f"INSERT INTO files VALUES ({','.join('?' * len(row))})", row  # noqa: S608


def save_location(file: TrackedFile, place: FileLocation) -> Change:
    """Return the SQL statement that saves the source and the paths of a file.

    Execute it with `Checkpoint.commit`.

    Args:
        file: The file. Its current device, inode and birth time are also saved.
        place: Source and paths of the file.

    Returns:
        The statement and its parameters.
    """
    row = (*identity_columns(file), *location_columns(place), file.file_id)
    return (
        (
            "UPDATE files SET device=?, inode=?, birth_ns=?, source=?, path=?, seen_at=?, "
            "missing=? WHERE file_id=?"
        ),
        row,
    )


def save_position(file_id: str, position: FilePosition) -> Change:
    """Return the SQL statement that saves the read position of a file.

    Execute it with `Checkpoint.commit`.

    Args:
        file_id: Id of the file, which must be in the table `files`.
        position: Generation of the file, and offset of the next byte to read.

    Returns:
        The statement and its parameters.
    """
    row = (*position_columns(position), file_id)
    return (
        "UPDATE files SET generation=?, offset=?, in_line=?, anchor=?, size_seen=? WHERE file_id=?",
        row,
    )


def delete_file(file_id: str) -> list[Change]:
    """Return the SQL statements that delete a file from the checkpoint.

    Unacknowledged byte ranges of the file are kept, because they must still be sent. Execute the
    statements with `Checkpoint.commit`.

    Args:
        file_id: Id of the file.

    Returns:
        The statements with their parameters, in the order in which they must be executed.
    """
    tables = "files", "accounts", "targets", "formers", "marks", "kept"
    return [(f"DELETE FROM {table} WHERE file_id=?", (file_id,)) for table in tables]  # noqa: S608


def save_account(
    file_id: str, position: FilePosition, account: FileAccount | None = None
) -> Change:
    """Return the SQL statement that saves the sizes and truncations that scans observed of a file.

    These observations are called the account of the file. They are saved so that lost bytes are
    counted even after a restart. Execute the statement with `Checkpoint.commit`. It changes nothing
    if the checkpoint already accounts for later truncations of the file.

    Args:
        file_id: Id of the file.
        position: Position at the latest examination of the file.
        account: Largest size and truncations observed since then. If None, the size and the first
            bytes of `position` are saved.

    Returns:
        The statement and its parameters.
    """
    account = account or FileAccount(position.size_seen, (), position.head)
    sql = (
        "INSERT INTO accounts VALUES (?,?,?,?,?,?,?) ON CONFLICT (file_id) DO UPDATE SET "
        "generation=excluded.generation, "
        "settled=excluded.settled, doubted=CASE WHEN accounts.settled = excluded.settled "
        "THEN MAX(accounts.doubted, excluded.doubted) ELSE excluded.doubted END, "
        "high=excluded.high, shrinks=excluded.shrinks, head=excluded.head "
        "WHERE accounts.settled <= excluded.settled"
    )
    shrinks = json.dumps([(*sizes, head.hex()) for *sizes, head in account.shrinks])
    return sql, (
        file_id,
        position.generation,
        position.settled,
        position.doubted,
        account.high,
        shrinks,
        account.head,
    )


def mark_source_scanned(source: str) -> Change:
    """Return the SQL statement that records that a source was scanned at least once.

    `Checkpoint.scanned_sources` returns the recorded sources. Execute the statement with
    `Checkpoint.commit`.

    Args:
        source: Name of the source.

    Returns:
        The statement and its parameters.
    """
    return "INSERT OR IGNORE INTO begun VALUES (?)", (source,)


def save_link_target(file_id: str, path: str) -> Change:
    """Return the SQL statement that saves the path to which a symbolic link to a file resolves.

    The tailer then recognizes the file by either path. Execute the statement with
    `Checkpoint.commit`.

    Args:
        file_id: Id of the file.
        path: Path to which the symbolic link resolves.

    Returns:
        The statement and its parameters.
    """
    return "INSERT OR REPLACE INTO targets VALUES (?,?)", (file_id, os.fsencode(path))


def save_pre_truncation_position(file_id: str, position: FilePosition) -> Change:
    """Return the SQL statement that saves the read position of a file before a truncation.

    The tailer uses this position to recognize a copy of the earlier content. Execute the statement
    with `Checkpoint.commit`.

    Args:
        file_id: Id of the file.
        position: Position up to which the file was read before the truncation.

    Returns:
        The statement and its parameters.
    """
    return "INSERT OR REPLACE INTO formers VALUES (?,?,?,?,?)", (
        file_id,
        position.generation,
        position.offset,
        position.anchor,
        position.head,
    )


def save_kept_bytes(file_id: str, generation: int, kept_to: int) -> Change:
    """Return the SQL statement that saves how many read bytes a truncated file still contains.

    If the file is truncated again, these bytes do not count as lost. Execute the statement with
    `Checkpoint.commit`.

    Args:
        file_id: Id of the file.
        generation: Number of times the file was truncated, including this truncation.
        kept_to: Offset up to which the file contains bytes that were read before the truncation.

    Returns:
        The statement and its parameters.
    """
    return "INSERT OR REPLACE INTO kept VALUES (?,?,?)", (file_id, generation, kept_to)


def save_pre_truncation_position_if_current(file_id: str, position: FilePosition) -> Change:
    """Return the SQL statement that saves the position before a truncation unless it is outdated.

    Use it instead of `save_pre_truncation_position` if another thread may have changed the position
    of the file. The statement changes nothing if the generation in the table `files` differs from
    that of `position`, or if the table does not contain the file. Execute it with
    `Checkpoint.commit`.

    Args:
        file_id: Id of the file.
        position: Position up to which the file was read before the truncation was detected.

    Returns:
        The statement and its parameters.
    """
    _, row = save_pre_truncation_position(file_id, position)
    at = (file_id, position.generation)
    return (
        (
            "INSERT OR REPLACE INTO formers SELECT ?,?,?,?,? FROM files WHERE file_id=? AND "
            "generation=?"
        ),
        (*row, *at),
    )


def add_loss(loss: Loss) -> list[Change]:
    """Return the SQL statements that record a loss.

    The loss is added to the totals of its source, and to the list of recent losses. The list
    contains only the latest `RECENT_LOSSES_MAX` losses. Execute the statements with
    `Checkpoint.commit`.

    Args:
        loss: The bytes that were destroyed before they were read.

    Returns:
        The statements with their parameters.
    """
    known = (
        "INSERT INTO losses VALUES (?,?) ON CONFLICT (source) DO UPDATE SET bytes = bytes + "
        "excluded.bytes"
    )
    unknown = (
        "INSERT INTO unknown VALUES (?,?) ON CONFLICT (source) DO UPDATE SET occasions = "
        "occasions + excluded.occasions"
    )
    row = (loss.source, os.fsencode(loss.path), loss.at_ms, loss.bytes, loss.unknown, loss.what)
    return [
        (known, (loss.source, loss.bytes)),
        (unknown, (loss.source, loss.unknown)),
        (
            (
                "INSERT INTO occasions (source, path, at_ms, bytes, unknown, what) VALUES "
                "(?,?,?,?,?,?)"
            ),
            row,
        ),
        (
            "DELETE FROM occasions WHERE number <= (SELECT max(number) FROM occasions) - ?",
            (RECENT_LOSSES_MAX,),
        ),
    ]


class Checkpoint:
    """The durable state of the tailer, stored in one SQLite database. Thread-safe.

    `create` creates an empty checkpoint on disk, and `open` opens an existing one.
    """

    def __init__(self, db: sqlite3.Connection, log: Path, bodies: BodyFile) -> None:
        """Take ownership of an open database. Use `open` to create an instance.

        Args:
            db: The database.
            log: Path of its write-ahead log.
            bodies: The file that stores large range bodies.
        """
        self._db = db
        self._log = log
        self._bodies = bodies
        self._database = threading.Lock()  # held while the database is used
        self._waiting: deque[_Ticket] = deque()

    @classmethod
    def create(cls, path: Path, host_id: str, *, scanned: Sequence[str] = ()) -> None:
        """Create an empty checkpoint at `path`, atomically and durably.

        Args:
            path: Where to create it. An existing file is replaced.
            host_id: Id of this host.
            scanned: Names of sources that count as already scanned. All their files are read from
                the start.

        Raises:
            CheckpointFailed: The database cannot be written; `path` is unchanged.
            OSError: The file cannot be moved to `path` or synced.
        """
        temporary = path.with_name(f"{path.name}.new")
        temporary.unlink(missing_ok=True)
        db = sqlite3.connect(temporary, isolation_level=None)
        try:
            db.executescript(f"BEGIN;{_SCHEMA}{_BEGUN}")
            db.execute("INSERT INTO meta VALUES (?,?)", (FORMAT, host_id))
            for source in scanned:
                db.execute(*mark_source_scanned(source))
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise CheckpointFailed(
                f"cannot create a checkpoint at {path}: {error}; {_LOOK_AT_DISK}"
            ) from error
        finally:
            db.close()
        os.chmod(temporary, 0o600)  # noqa: PTH101
        temporary.replace(path)
        sync_folder(path.parent)

    @classmethod
    def open(cls, path: Path) -> tuple[Checkpoint, str]:
        """Open the checkpoint at `path` and check that it is complete and undamaged.

        A checkpoint of an earlier version is migrated.

        Args:
            path: Path of the database file.

        Returns:
            The checkpoint, and the host id that it contains.

        Raises:
            CheckpointBroken: The checkpoint is empty, damaged, incomplete, or of an unsupported
                format.
            CheckpointFailed: The disk is full, or the file cannot be read or written.
            FileNotFoundError: There is no file at `path`.
        """
        if path.stat().st_size == 0:
            raise CheckpointBroken("it is empty")
        log_is_there = _log_of(path).exists()
        if log_is_there and (missing := find_log_damage(path)):
            raise CheckpointBroken(missing)
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            (check,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if check != "ok":
                raise CheckpointBroken(check)
            ((version, host_id),) = db.execute("SELECT format, host_id FROM meta").fetchall()
            if version not in (FORMAT, SEVERAL, BESIDE):
                raise CheckpointBroken(
                    f"it has format {version}, but this version of Hourmark reads only formats "
                    f"{FORMAT} to {BESIDE}"
                )
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("PRAGMA wal_autocheckpoint=0")  # `run_mark` does it
            db.execute(
                "PRAGMA temp_store=MEMORY"
            )  # else each statement that has a trigger makes a file, and removes it
            _complete_schema(db)
            _check_schema(db)
            if integrity.log_was_lost(db, log_is_there=log_is_there):
                raise CheckpointBroken(
                    "the previous run was not shut down cleanly, and its write-ahead log "
                    "(…-wal) is missing: it was removed or not copied, so the latest position "
                    "is unknown"
                )
            bodies = open_bodies(db, _beside(path))
            integrity.restart_log(db)
        except (sqlite3.DatabaseError, OSError, ValueError, BodyDamaged, CheckpointBroken) as error:
            db.close()
            if (
                isinstance(error, OSError)
                or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK_ERRORS
            ):
                raise CheckpointFailed(
                    f"the checkpoint {path} cannot be opened: {error}; {_LOOK_AT_DISK}"
                ) from error
            raise CheckpointBroken(str(error)) from error
        return cls(db, _log_of(path), bodies), host_id

    def close(self) -> None:
        """Close the checkpoint at the end of an orderly run.

        First moves large range bodies into the database. If that fails, the method raises no error
        and does not close the database, so that the write-ahead log and its commits are kept.
        """
        with self._database:
            try:
                move_bodies_into_database(self._db, self._bodies)
                integrity.mark_run_ended(self._db)
            except (
                sqlite3.Error,
                OSError,
                BodyDamaged,
            ):  # closing would remove the log, as if all were in order
                return
            self._db.close()
            self._bodies.close()

    def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes in one transaction and wait until they are on disk.

        Concurrent calls from several threads share one transaction and succeed or fail together.

        Args:
            changes: SQL statements with their parameters, in order.

        Raises:
            CheckpointFailed: None of the changes was applied.
        """
        ticket = _Ticket(changes)
        self._waiting.append(ticket)
        with self._database:
            if not ticket.done:
                self._write([self._waiting.popleft() for _ in range(len(self._waiting))])
        assert ticket.done, (
            "the thread that holds the lock writes every waiting ticket, including its own"
        )
        if ticket.error is not None:
            raise CheckpointFailed(
                f"the checkpoint cannot be written: {ticket.error}; check that the disk is not full"
            ) from ticket.error

    def _write(self, batch: list[_Ticket]) -> None:
        error: sqlite3.Error | OSError | None = sqlite3.OperationalError(
            "the write did not finish"
        )  # until COMMIT has returned
        changes = [change for ticket in batch for change in ticket.changes]
        try:
            changes = store_large_bodies(self._bodies, changes)
            self._db.execute("BEGIN IMMEDIATE")
            for change in changes:
                self._db.execute(*change)
            self._db.execute("COMMIT")
            error = None
            self._begin_log_if_long()
        except (sqlite3.Error, OSError) as problem:
            error = problem
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            update_body_space(self._bodies, changes, done=error is None)
            for ticket in batch:
                ticket.error, ticket.done = error, True

    def _begin_log_if_long(self) -> None:
        with contextlib.suppress(
            sqlite3.Error, OSError
        ):  # what was committed is durable; the next commit tries again
            if self._log.stat().st_size > _LOG_BYTES_MAX:
                integrity.restart_log(self._db)

    def files(self) -> list[TrackedFile]:
        """Return all files in the checkpoint, with their unacknowledged byte ranges.

        A file may have been deleted from the checkpoint while some of its ranges are
        unacknowledged. Its ranges are returned in a placeholder file that is marked as retired,
        which means that nothing more is read from it.

        Returns:
            The files; an empty list if the checkpoint is empty.
        """
        with self._database:
            in_flight = dict[str, tuple[SpooledRange, ...]]()
            for sequence, file_id, text in self._db.execute(
                "SELECT sequence, file_id, range FROM ranges ORDER BY sequence"
            ):
                in_flight[file_id] = (
                    *in_flight.get(file_id, ()),
                    SpooledRange(sequence, json_to_range(text)),
                )
            rows = self._db.execute("SELECT * FROM files").fetchall()
            targets = dict(self._db.execute("SELECT file_id, path FROM targets").fetchall())
            formers = {file_id: row for file_id, *row in self._db.execute("SELECT * FROM formers")}
            accounts = {
                file_id: row for file_id, *row in self._db.execute("SELECT * FROM accounts")
            }
            kept = {
                file_id: (generation, count)
                for file_id, generation, count in self._db.execute("SELECT * FROM kept")
            }
            marked = marks.read_marks(self._db)
        files = [row_to_file(row, in_flight.pop(row[0], ())) for row in rows]
        for file in files:
            file.target = os.fsdecode(targets.get(file.file_id, b""))
            former = None
            if file.file_id in formers:
                generation, offset, anchor, head = formers[file.file_id]
                former = FilePosition(
                    generation=generation, offset=offset, anchor=bytes(anchor), head=bytes(head)
                )
            file.earlier = EarlierGenerations(latest=former, kept=kept.get(file.file_id, (0, 0)))
            marks.restore_marks(file, marked.get(file.file_id, {}))
            if file.file_id in accounts:
                restore_account(file, *accounts[file.file_id])
        return files + [orphaned_ranges_to_file(ranges) for ranges in in_flight.values()]

    def scanned_sources(self) -> set[str]:
        """Return the names of the sources that were scanned at least once.

        Early versions did not record scans. Therefore, a source also counts as scanned if the
        checkpoint contains files or byte totals of the source.
        """
        with self._database:
            rows = self._db.execute(
                "SELECT source FROM begun UNION SELECT source FROM files UNION SELECT "
                "source FROM totals"
            )
            return {source for (source,) in rows}

    def last_sequence(self) -> int:
        """Return the highest sequence number of the unacknowledged byte ranges.

        Returns:
            The number; 0 if there are no such ranges.
        """
        with self._database:
            (highest,) = self._db.execute(
                "SELECT coalesce(max(sequence), 0) FROM ranges"
            ).fetchone()
        return int(highest)

    def body(self, sequence: int) -> bytes:
        """Return the compressed bytes of an unacknowledged range.

        Args:
            sequence: Sequence number of the range, which must be in the checkpoint.

        Raises:
            CheckpointFailed: The bytes cannot be read or are damaged.
        """
        try:
            with self._database:
                return read_body(self._db, self._bodies, sequence)
        except (sqlite3.Error, OSError, BodyDamaged) as error:
            raise CheckpointFailed(
                f"the checkpoint cannot be read: {error}; check the disk"
            ) from error

    def losses(self) -> dict[str, Losses]:
        """Return the total losses of each source.

        Returns:
            Maps each source name to its number of lost bytes and of losses of unknown size. Sources
            without losses are omitted.
        """
        with self._database:
            known = dict(self._db.execute("SELECT source, bytes FROM losses").fetchall())
            unknown = dict(self._db.execute("SELECT source, occasions FROM unknown").fetchall())
        return {
            source: Losses(known.get(source, 0), unknown.get(source, 0))
            for source in known.keys() | unknown.keys()
        }

    def read_accounting(self) -> books.AccountingSnapshot:
        """Return the byte totals of all sources and the read positions of all files.

        All numbers are from the same moment.

        Raises:
            CheckpointFailed: The database cannot be read.
        """
        return self.read(books.read_accounting)

    def read(self, query: Callable[[sqlite3.Connection], _Found]) -> _Found:
        """Run a read-only query on the checkpoint database and return its result.

        The database is locked for other threads during the call.

        Args:
            query: Function that takes the database connection and returns the result. It must not
                write.

        Raises:
            CheckpointFailed: `query` raised sqlite3.Error, because the database cannot be read.
        """
        try:
            with self._database:
                return query(self._db)
        except sqlite3.Error as error:
            raise CheckpointFailed(
                f"the checkpoint cannot be read: {error}; check the disk"
            ) from error

    def recent_losses(self) -> list[Loss]:
        """Return the most recent losses: file content that was destroyed before it was read.

        Returns:
            The losses, oldest first, at most `RECENT_LOSSES_MAX`; empty if nothing was lost.
        """
        with self._database:
            rows = self._db.execute(
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


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}-bodies")


@dataclasses.dataclass(slots=True)
class _Ticket:
    changes: Sequence[Change]
    done: bool = False
    error: sqlite3.Error | OSError | None = None


def _complete_schema(db: sqlite3.Connection) -> None:
    db.executescript(
        _LATER
        + _BEGUN
        + integrity.SCHEMA
        + archives.SCHEMA
        + marks.SCHEMA
        + forgotten.SCHEMA
        + delivered.SCHEMA
    )
    migrate_ranges_table(db)
    archives.migrate_departed_table(db)
    books.create_accounting(db)


def _check_schema(db: sqlite3.Connection) -> None:
    # SQLite parses a trigger only when it fires. If its text is damaged, no commit succeeds.
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        new.executescript(_SCHEMA)
        _complete_schema(new)
        expected = _describe_schema(new)
    found = _describe_schema(db)
    if damaged := sorted(name for name in expected if found.get(name) != expected[name]):
        raise CheckpointBroken(f"its schema is damaged: {', '.join(damaged)}")


def _describe_schema(db: sqlite3.Connection) -> dict[str, frozenset[str]]:
    found = {}
    for kind, name, text in db.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'trigger')"
    ).fetchall():
        columns = db.execute("SELECT name FROM pragma_table_info(?)", (name,)).fetchall()
        found[name] = frozenset(c for (c,) in columns) if kind == "table" else frozenset([text])
    return found
