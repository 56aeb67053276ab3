"""Unaudited rows: rows that no audit record had promised when their bucket was sealed.

Their service was killed before it wrote the audit record, or the record came after the cut. The
rows are in the bucket like all others. Their keys are stored, because a later promise must find
them: hour, event id, range id and value hash, one file per bucket,
`_unaudited/<type>/<hour>-<epoch>-<digest>.parquet`. The closer's epoch is in the name so that no
closer reuses a file that an older closer may be about to delete. The digest is in the name so that
the file verifies itself (`staging.verified`), and so that a repeated proof finds its file. A file
is valid once the seal's transaction has added it to the ledger's table `unaudited`. Others are left
over from failed proofs and are deleted when a closer starts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from hourmark_etl.arrow import anti_join
from hourmark_etl.closing.proof.evidence import (
    UNAUDITED_SCHEMA,
    origin_hours,
    plan_promise_items,
    read_matching_promises,
    read_unaudited,
)
from hourmark_etl.closing.proof.promises import KEY
from hourmark_etl.errors import Unreadable
from hourmark_etl.ledger import closed as ledger
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.staged.listings import find_audit_groups_between
from hourmark_etl.model import AuditOffsets, Frontier
from hourmark_etl.staging.files import write_rows
from hourmark_etl.staging.pieces import StagedNote
from hourmark_etl.storage import AlreadyExists, Storage, delete_all, list_if_exists
from hourmark_etl.storage.folders import UNAUDITED_FOLDER

UNAUDITED: Final = "unaudited"  # the kind of such a file, in its note
FILES_AT_ONCE: Final = 16  # read by one call of `UnauditedCleaner.clean`
_LOG = logging.getLogger(__name__)
_AUDIT_FILES_MAX: Final = 64  # read for one of them; with more, it stays until it is old


class UnauditedFile(NamedTuple):
    """A file with the rows of one bucket that had no audit record when its content was fixed.

    An audit record states how many events a byte range of a log file contains. If an audit record
    for these rows arrives later, it is compared with this file.

    Attributes:
        event_type: The bucket's event type.
        hour_s: Unix seconds at the start of the bucket's hour.
        path: Path relative to the storage root.
        rows: Number of rows.
    """

    event_type: str
    hour_s: int
    path: str
    rows: int

    def ledger_row(self, audit_next: AuditOffsets, sealed_at_ms: int) -> Mapping[str, Any]:
        """Create the row of the ledger's table `unaudited` for this file.

        The ledger is the state database of the ETL.

        Args:
            audit_next: End offsets (exclusive), by site, of the audit records with which the bucket
                was compared.
            sealed_at_ms: Time at which the bucket's content was fixed, in Unix milliseconds.

        Returns:
            Values by column name.
        """
        return ledger.make_unaudited_row(
            self.event_type, self.hour_s, self.path, self.rows, audit_next, sealed_at_ms
        )


def write_unaudited(
    storage: Storage, epoch: int, frontier: Frontier, rows: pa.Table
) -> UnauditedFile:
    """Write the rows of an hourly bucket that have no audit record to a file.

    An audit record states how many events a byte range of a log file contains. If an audit record
    for these rows arrives later, it is compared with the file. If a failed attempt to close the
    bucket has left a file of the same name, it is replaced.

    Args:
        storage: Storage to write to.
        epoch: Epoch (fencing token) of the closer's lease. It becomes part of the file name.
        frontier: Event type and hour of the bucket.
        rows: Distinct rows with the columns `hour`, `event_id`, `range_id` and `value_hash`; other
            columns are ignored.

    Returns:
        The file. The caller must insert `UnauditedFile.ledger_row` into the ledger, in the
        transaction that fixes the content of the bucket.

    Raises:
        StorageError: The file could not be written.
    """
    rows = rows.select(UNAUDITED_SCHEMA.names).sort_by(
        [(name, "ascending") for name in ("hour", "range_id", "event_id")]
    )
    stem = f"{UNAUDITED_FOLDER}/{frontier.event_type}/{str(frontier.hour).replace(':', '-')}-{epoch:012d}"
    note = StagedNote(ledger="", kind=UNAUDITED, rows=len(rows))
    try:
        written = write_rows(storage, stem, rows, note)
    # written by an earlier, failed proof; its current content is unknown
    except AlreadyExists as error:
        storage.delete(error.path)
        written = write_rows(storage, stem, rows, note)
    return UnauditedFile(frontier.event_type, frontier.hour.start_s, written.path, len(rows))


def find_leftover_files(storage: Storage, database: Database) -> list[str]:
    """Return the files of unaudited rows that the ledger (the ETL's state database) does not list.

    Unaudited rows are rows of a bucket that had no audit record when the bucket's content was
    fixed. Files that are not listed were left by a failed attempt to close a bucket. Before it
    deletes them, the caller must check that it still holds the closer's lease.

    Args:
        storage: Storage to search.
        database: Database of the ledger.

    Returns:
        Paths relative to the storage root; empty if there are no such files.

    Raises:
        StorageError: Storage is unavailable.
    """
    folders = [
        f"{UNAUDITED_FOLDER}/{entry.name}" for entry in list_if_exists(storage, UNAUDITED_FOLDER)
    ]
    standing = [
        f"{folder}/{entry.name}" for folder in folders for entry in list_if_exists(storage, folder)
    ]
    named = {row.path for row in ledger.read_unaudited_files(database)}
    return [path for path in standing if path not in named]


class UnauditedCleaner:
    """Deletes files of unaudited rows that are no longer needed.

    Unaudited rows are rows of a bucket that had no audit record when the bucket's content was
    fixed. They are stored in a file because an audit record may arrive later. The file is deleted
    when audit records for all its rows have been compared with a later bucket, or after `keep_ms`.

    Args:
        storage: Storage with the files.
        database: Database of the ledger.
        keep_ms: Maximum age of a file in milliseconds, measured from the time at which the bucket's
            content was fixed.
    """

    def __init__(self, storage: Storage, database: Database, keep_ms: int) -> None:
        self._storage, self._database, self._keep_ms = storage, database, keep_ms
        self._checked_up_to: dict[
            str, AuditOffsets
        ] = {}  # path → settled_next when it was last read

    def clean(self, lease: Lease, now_ms: int) -> int:
        """Delete files that are no longer needed.

        Each call reads at most 16 files to determine whether they are needed; later calls continue.
        The row of a file in the ledger (the ETL's state database) is deleted before the file.

        Args:
            lease: Lease of the closer, the process that closes buckets.
            now_ms: Current time in Unix milliseconds.

        Returns:
            The number of deleted files.

        Raises:
            StaleDriver: Another closer has taken over the lease.
            StorageError: Storage is unavailable.
        """
        found = ledger.read_unaudited_files(self._database)
        self._checked_up_to = {f.path: self._checked_up_to.get(f.path, f.audit_next) for f in found}
        done = [f for f in found if f.sealed_at_ms + self._keep_ms < now_ms]
        for f in [
            f
            for f in found
            if not self._checked_up_to[f.path].reaches(f.settled_next) and f not in done
        ][:FILES_AT_ONCE]:
            self._checked_up_to[f.path] = f.settled_next
            try:
                if self._is_promised(f):
                    done.append(f)
            except Unreadable as error:  # the file is kept until it expires
                _LOG.warning("cannot determine whether %s is still needed: %s", f.path, error)
        if done:
            ledger.delete_unaudited_rows(self._database, lease, [f.path for f in done])
        return delete_all(self._storage, [f.path for f in done])

    def _is_promised(self, file: ledger.UnauditedFileRow) -> bool:
        rows = read_unaudited(self._storage, file.path)
        if len(rows) != file.rows:
            return False
        groups = find_audit_groups_between(
            self._database, file.event_type, origin_hours(rows), file.audit_next, file.settled_next
        )
        items = plan_promise_items(groups)
        if sum(len(i.files) for i in items) > _AUDIT_FILES_MAX:
            return False
        for item in items:
            found = read_matching_promises(
                item, self._storage, file.event_type, rows, file.audit_next, file.settled_next
            )
            rows = anti_join(rows, found, KEY[1:])
        return not len(rows)
