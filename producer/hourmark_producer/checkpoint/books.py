"""Accounting of every byte: seen = acknowledged + in flight + pending + skipped + known lost.

The table `totals` holds, per source, the bytes that were acknowledged, the bytes that were skipped
(by a setting, or because they are a copy), and `ended`: bytes of files and generations that are
gone, and all lost bytes.

Database triggers update the table in the transaction that changes the counted rows, so it is
consistent after any crash. Bytes seen are `ended` plus the size of each tracked file. The two sides
are counted independently, one from files and the other from ranges: a byte that is missing from one
of them unbalances the equation.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from hourmark_producer.files.fingerprints import TruncationVerdict, assess_truncations
from hourmark_producer.files.tracked_file import TrackedFile

_LOOKS: Final = (
    5  # a file's step ends in the checkpoint first, then in memory: a moment later both agree
)
_BETWEEN_S: Final = 0.01
_TABLE: Final = (
    "CREATE TABLE totals (source TEXT PRIMARY KEY, acknowledged INTEGER NOT NULL DEFAULT 0, "
    "skipped INTEGER NOT NULL DEFAULT 0, "
    "ended INTEGER NOT NULL DEFAULT 0)"
)
# a checkpoint of a version without books: what is on its way counts as seen once more
_SEED: Final = (
    (
        "INSERT INTO totals (source, acknowledged) SELECT source, sum(offset) FROM files "
        "GROUP BY source"
    ),
    "INSERT INTO totals (source, ended) SELECT source, bytes FROM losses WHERE true "
    "ON CONFLICT (source) DO UPDATE SET ended = ended + excluded.ended",
    "INSERT INTO totals (source, ended) SELECT json_extract(range, '$.source'), "
    "json_extract(range, '$.end') - "
    "json_extract(range, '$.start') FROM ranges WHERE true ON CONFLICT (source) DO UPDATE SET "
    "ended = ended + excluded.ended",
)


def _add(column: str, source: str, count: str) -> str:
    return (
        # names of this module
        f"INSERT INTO totals (source, {column}) VALUES ({source}, {count}) "  # noqa: S608
        f"ON CONFLICT (source) DO UPDATE SET {column} = {column} + excluded.{column};"
    )


_SOURCE: Final = "json_extract(OLD.range, '$.source')"
_LENGTH: Final = "json_extract(OLD.range, '$.end') - json_extract(OLD.range, '$.start')"
_TRIGGERS: Final = {
    "range_left": f"AFTER DELETE ON ranges BEGIN {_add('acknowledged', _SOURCE, _LENGTH)} END",
    "generation_ended": (
        "AFTER UPDATE OF generation ON files WHEN NEW.generation != OLD.generation "
        f"BEGIN {_add('ended', 'OLD.source', 'OLD.offset')} END"
    ),
    "file_forgotten": f"AFTER DELETE ON files BEGIN {_add('ended', 'OLD.source', 'OLD.offset')} END",
    "file_changed_source": (
        "AFTER UPDATE OF source ON files WHEN NEW.source != OLD.source "
        f"BEGIN {_add('ended', 'OLD.source', 'OLD.offset')} "
        f"{_add('ended', 'NEW.source', '-NEW.offset')} END"
    ),
    "first_lost": f"AFTER INSERT ON losses BEGIN {_add('ended', 'NEW.source', 'NEW.bytes')} END",
    "more_lost": (
        "AFTER UPDATE OF bytes ON losses BEGIN "
        f"{_add('ended', 'NEW.source', 'NEW.bytes - OLD.bytes')} END"
    ),
}


class FileAccountingRow(NamedTuple):
    """The fields of a tracked file in the checkpoint that are needed for accounting.

    Attributes:
        file_id: Id of the file.
        source: Name of its source.
        generation: Number of times that its content was truncated or replaced.
        offset: Offset of the next byte to read, within this generation.
        missing: Whether the file can no longer be found.
        settled: Number of truncations whose lost bytes are already included in the totals of the
            source; None if the checkpoint has no such number for the current generation.
    """

    file_id: str
    source: str
    generation: int
    offset: int
    missing: bool
    settled: int | None


class SourceTotals(NamedTuple):
    """The byte totals of one source, as stored in the checkpoint.

    All values are in bytes and cover all runs of the tailer.

    Attributes:
        acknowledged: Bytes that a delivery service acknowledged.
        skipped: Bytes that were not sent because of a setting, or because they are a copy.
        ended: Bytes of content that no longer exists because its file was deleted, replaced or
            truncated. Includes the bytes that were read and the lost bytes.
        in_flight: Bytes that were read and are stored in the checkpoint until they are
            acknowledged.
        lost: Bytes that were destroyed before they were read. They are included in `ended`.
    """

    acknowledged: int = 0
    skipped: int = 0
    ended: int = 0
    in_flight: int = 0
    lost: int = 0


class AccountingSnapshot(NamedTuple):
    """The byte totals of all sources and the read positions of all files at one moment.

    `read_accounting` reads it from the checkpoint. `compute_balances` uses it to account for all
    observed bytes.

    Attributes:
        totals: Totals by source name.
        files: One row for each tracked file.
    """

    totals: Mapping[str, SourceTotals]
    files: list[FileAccountingRow]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceBalance:
    """Byte counts of one source: observed bytes, and their current states.

    Each observed byte has exactly one state, so `seen` must equal the sum of the other attributes.
    All values are in bytes.

    Attributes:
        seen: Bytes observed in files.
        acknowledged: Bytes that a delivery service acknowledged.
        in_flight: Bytes that were read and are stored on disk until they are acknowledged.
        pending: Bytes that are not read yet.
        skipped: Bytes that were not sent because of a setting, or because they are a copy.
        lost: Bytes that were destroyed before they were read.
    """

    seen: int = 0
    acknowledged: int = 0
    in_flight: int = 0
    pending: int = 0
    skipped: int = 0
    lost: int = 0

    @property
    def off_by(self) -> int:
        """Return the accounting error in bytes: `seen` minus the sum of the other attributes.

        The value is 0 if the accounting is consistent. Any other value indicates a bug in the
        tailer.
        """
        return (
            self.seen - self.acknowledged - self.in_flight - self.pending - self.skipped - self.lost
        )


def create_accounting(db: sqlite3.Connection) -> None:
    """Create the table of byte totals by source, and the triggers that update it.

    An existing table is kept. Otherwise, the totals are computed from the other tables of the
    checkpoint: files, losses and byte ranges.

    Args:
        db: Database of the checkpoint.

    Raises:
        sqlite3.Error: The database cannot be written. The transaction is rolled back.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        if not db.execute(
            "SELECT 1 FROM sqlite_master WHERE type='table' AND name='totals'"
        ).fetchone():
            for statement in (_TABLE, *_SEED):
                db.execute(statement)
        for name, trigger in _TRIGGERS.items():
            db.execute(f"CREATE TRIGGER IF NOT EXISTS {name} {trigger}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def count_skipped(source: str, count: int) -> tuple[str, tuple[Any, ...]]:
    """Return the SQL statement that counts bytes of a source as skipped.

    Execute it with `Checkpoint.commit`.

    Args:
        source: Name of the source.
        count: Number of bytes that are not sent because of a setting, or because they are a copy.

    Returns:
        The statement and its parameters.
    """
    return _add("skipped", "?", "?").rstrip(";"), (source, count)


def read_accounting(db: sqlite3.Connection) -> AccountingSnapshot:
    """Return the byte totals of all sources and the positions of all tracked files.

    The caller must hold a transaction or exclude other writers, so that all tables are read at the
    same moment.

    Args:
        db: Database of the checkpoint.

    Returns:
        The totals of each source, and one row for each tracked file.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    in_flight = Counter[str]()
    for (text,) in db.execute("SELECT range FROM ranges"):
        fields = json.loads(text)
        in_flight[fields["source"]] += fields["end"] - fields["start"]
    lost = dict(db.execute("SELECT source, bytes FROM losses").fetchall())
    totals: dict[str, tuple[int, int, int]] = {
        row[0]: row[1:]
        for row in db.execute("SELECT source, acknowledged, skipped, ended FROM totals")
    }
    rows = db.execute(
        "SELECT file_id, source, f.generation, offset, missing, CASE WHEN a.generation = "
        "f.generation THEN settled END "
        "FROM files f LEFT JOIN accounts a USING (file_id)"
    ).fetchall()
    files = [FileAccountingRow(*row) for row in rows]
    sources = {*totals, *in_flight, *lost, *(row.source for row in files)}
    made = dict[str, SourceTotals]()
    for source in sources:
        acknowledged, skipped, ended = totals.get(source, (0, 0, 0))
        made[source] = SourceTotals(
            acknowledged, skipped, ended, in_flight[source], lost.get(source, 0)
        )
    return AccountingSnapshot(made, files)


def compute_balances(
    snapshot: AccountingSnapshot, unread: Mapping[str, int]
) -> dict[str, SourceBalance]:
    """Compute the byte balance of each source: how many bytes were observed, and their states.

    Args:
        snapshot: Byte totals and file positions from the checkpoint.
        unread: Maps each file id to the number of bytes after the offset of the file, including
            destroyed bytes that are not yet counted as lost. A file without an entry counts as 0.

    Returns:
        Maps each source name to its balance, in sorted order.
    """
    offsets, pending = Counter[str](), Counter[str]()
    for row in snapshot.files:
        offsets[row.source] += row.offset
        pending[row.source] += unread.get(row.file_id, 0)
    return {
        source: SourceBalance(
            seen=total.ended + offsets[source] + pending[source],
            acknowledged=total.acknowledged,
            in_flight=total.in_flight,
            pending=pending[source],
            skipped=total.skipped,
            lost=total.lost,
        )
        for source, total in sorted(snapshot.totals.items())
    }


def read_current_balances(
    read_snapshot: Callable[[], AccountingSnapshot], files: Iterable[TrackedFile]
) -> dict[str, SourceBalance]:
    """Compute the byte balance of each source while the tailer is running.

    A position is written to the checkpoint a moment before it changes in memory. If the two differ
    for a file, both are read again, up to five times. If they still differ, the file counts as
    having no unread bytes.

    Args:
        read_snapshot: Function that reads the byte totals and file positions from the checkpoint.
        files: The tracked files. They are iterated once for each read.

    Returns:
        Maps each source name to its balance, in sorted order.

    Raises:
        CheckpointFailed: `read_snapshot` could not read the checkpoint.
    """
    snapshot, unread = read_snapshot(), dict[str, int]()
    for _ in range(_LOOKS):
        by_id = {file.file_id: file for file in files}
        found = {
            row.file_id: _count_unread_bytes(by_id[row.file_id], row)
            for row in snapshot.files
            if row.file_id in by_id
        }
        unread = {file_id: count for file_id, count in found.items() if count is not None}
        if len(unread) == len(found):
            break
        time.sleep(_BETWEEN_S)
        snapshot = read_snapshot()
    return compute_balances(snapshot, unread)


def _count_unread_bytes(file: TrackedFile, row: FileAccountingRow) -> int | None:
    # None if memory and checkpoint disagree on the position, because the file is being processed
    progress, missing = file.progress, file.place.missing
    position = progress.position
    if (row.generation, row.missing) != (position.generation, missing) or row.settled not in (
        None,
        position.settled,
    ):
        return None
    if missing:
        return 0
    account = file.observed.account_since(progress)
    judgement = assess_truncations(row.offset, account.shrinks)
    return judgement.lost_bytes + max(
        0, account.high - (0 if judgement.verdict is TruncationVerdict.REPLACED else row.offset)
    )
