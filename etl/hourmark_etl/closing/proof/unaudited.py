"""Unaudited: listed rows of which no audit record had promised anything when their bucket was
sealed.

Their service was killed before the audit record, or the record came after the cut. They are
bucketed like all others, and what tells them apart is kept, because a promise that comes later must
find them: hour, event id, range id and value hash of each, one file a bucket,
`_unaudited/<type>/<hour>-<epoch>-<digest>.parquet`. The closer's epoch: so that no closer takes
over a file that an older one may be about to delete. The digest: so that the file verifies itself
(`staging.verified`), and a proof that is tried again finds its file there. A file counts once the
seal's transaction has put it into the ledger's table `unaudited`; others are left over from proofs
that failed, and are deleted when a closer begins.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from hourmark_etl.arrow import unmatched
from hourmark_etl.closing.proof.evidence import (
    UNAUDITED_SCHEMA,
    hours_of,
    matching_promises,
    promises_items,
    read_unaudited,
)
from hourmark_etl.closing.proof.promises import KEY
from hourmark_etl.errors import Unreadable
from hourmark_etl.folders import UNAUDITED_FOLDER
from hourmark_etl.ledger import closed as ledger
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.listings import promises_between
from hourmark_etl.model import AuditOffsets, Frontier
from hourmark_etl.staging.files import write_rows
from hourmark_etl.staging.pieces import StagedNote
from hourmark_etl.storage import AlreadyExists, Storage, delete_all, list_if_exists

UNAUDITED: Final = "unaudited"  # the kind of such a file, in its note
FILES_AT_ONCE: Final = 16  # looked into by one call of `UnauditedCleaner.clean`
_LOG = logging.getLogger(__name__)
_AUDIT_FILES_MAX: Final = 64  # read for one of them; with more, it stays until it is old


class UnauditedFile(NamedTuple):
    """Unaudited of one bucket; `hour_s`: the bucket's, Unix seconds."""

    event_type: str
    hour_s: int
    path: str
    rows: int

    def ledger_row(self, audit_next: AuditOffsets, sealed_at_ms: int) -> Mapping[str, Any]:
        """Its row of the table `unaudited`, for the seal's transaction."""
        return ledger.unaudited_row(
            self.event_type, self.hour_s, self.path, self.rows, audit_next, sealed_at_ms
        )


def write_unaudited(
    storage: Storage, epoch: int, frontier: Frontier, rows: pa.Table
) -> UnauditedFile:
    """Keep these rows (columns of UNAUDITED_SCHEMA, each once) for the frontier's hour, which is
    not sealed yet.
    """
    rows = rows.select(UNAUDITED_SCHEMA.names).sort_by(
        [(name, "ascending") for name in ("hour", "range_id", "event_id")]
    )
    stem = f"{UNAUDITED_FOLDER}/{frontier.event_type}/{str(frontier.hour).replace(':', '-')}-{epoch:012d}"
    note = StagedNote(ledger="", kind=UNAUDITED, rows=len(rows))
    try:
        written = write_rows(storage, stem, rows, note)
    # by a proof that was tried before, of no seal; nobody knows what became of it since
    except AlreadyExists as error:
        storage.delete(error.path)
        written = write_rows(storage, stem, rows, note)
    return UnauditedFile(frontier.event_type, frontier.hour.start_s, written.path, len(rows))


def unaudited_left_over(storage: Storage, database: Database) -> list[str]:
    """Unaudited files that no seal names.

    They may be deleted by a closer that held its lease after this: listed before the ledger is
    asked, none of them can be one that a later closer has written.
    """
    folders = [
        f"{UNAUDITED_FOLDER}/{entry.name}" for entry in list_if_exists(storage, UNAUDITED_FOLDER)
    ]
    standing = [
        f"{folder}/{entry.name}" for folder in folders for entry in list_if_exists(storage, folder)
    ]
    named = {row.path for row in ledger.unaudited_files(database)}
    return [path for path in standing if path not in named]


class UnauditedCleaner:
    """Deletes unaudited rows that nothing can ask for: promised meanwhile, or older than audit
    records are kept.

    A row is promised where an audit record of its range, at or past its seal's cut, lies below its
    type's `settled_next`: that promise was settled by a seal. `keep_ms`: how long audit files are
    kept after they were staged.
    """

    def __init__(self, storage: Storage, database: Database, keep_ms: int) -> None:
        self._storage, self._database, self._keep_ms = storage, database, keep_ms
        self._looked: dict[str, AuditOffsets] = {}  # path → settled_next when it was looked into

    def clean(self, lease: Lease, now_ms: int) -> int:
        """Returns how many files it deleted; looks into `FILES_AT_ONCE` at most.

        The ledger forgets a file before it goes.
        """
        found = ledger.unaudited_files(self._database)
        self._looked = {f.path: self._looked.get(f.path, f.audit_next) for f in found}
        done = [f for f in found if f.sealed_at_ms + self._keep_ms < now_ms]
        for f in [
            f for f in found if not self._looked[f.path].reaches(f.settled_next) and f not in done
        ][:FILES_AT_ONCE]:
            self._looked[f.path] = f.settled_next
            try:
                if self._is_promised(f):
                    done.append(f)
            except Unreadable as error:  # it stays, until it is old
                _LOG.warning("whether %s is still needed is not known: %s", f.path, error)
        if done:
            ledger.forget_unaudited(self._database, lease, [f.path for f in done])
        return delete_all(self._storage, [f.path for f in done])

    def _is_promised(self, file: ledger.UnauditedFile) -> bool:
        rows = read_unaudited(self._storage, file.path)
        if len(rows) != file.rows:
            return False
        groups = promises_between(
            self._database, file.event_type, hours_of(rows), file.audit_next, file.settled_next
        )
        items = promises_items(groups)
        if sum(len(i.files) for i in items) > _AUDIT_FILES_MAX:
            return False
        for item in items:
            found = matching_promises(
                item, self._storage, file.event_type, rows, file.audit_next, file.settled_next
            )
            rows = unmatched(rows, found, KEY[1:])
        return not len(rows)
