"""Deletes files that are no longer needed, a bounded number per call.

After a crash, the next call deletes what is left.

- Event files: once a closed bucket contains every group of the file and `etl.staged_keep_seconds`
  have passed, so that `audit --ranges` can still name ranges of recently closed hours.
- Audit files: `kafka.retention_hours` plus one day after their promises were settled, because a
  duplicate of a record may arrive until then. Files from one hour before the oldest open hour on
  are always kept, so that a rebuild of a lost ledger finds them.
- Folders of batches that were never committed: their names contain the epoch of a consumer that has
  been replaced, so no commit can refer to them.
- Uploads that a crash interrupted: one day after they started. If the writer is only paused or a
  clock is wrong, the writer finds its file missing and starts again; no partial file is published.
- Unaudited rows and id indexes: see `closing.proof.unaudited` and `closing.write.id_indexes`.

A file's row in the ledger is deleted before the file, so no listing refers to a deleted file.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from typing import Final

from hourmark.clock import Clock
from hourmark.config.loading import Config
from hourmark.errors import Finding, Unavailable
from hourmark.records.dead_letters import TYPE as DEAD_LETTERS
from hourmark_etl.closing.cut.readiness import LatestReports, describe_clock_difference
from hourmark_etl.closing.proof.unaudited import UnauditedCleaner
from hourmark_etl.closing.write.id_indexes import clean_indexes
from hourmark_etl.ledger.bucket_rows import pack_old_bucket_rows
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.hosts.reporters import reporters
from hourmark_etl.ledger.partitions.offset_gaps import all_gaps, has_lost_end
from hourmark_etl.ledger.staged import staged_files as ledger
from hourmark_etl.ledger.staged.set_aside import delete_old_set_aside_rows
from hourmark_etl.ledger.staged.staged_files import UnneededFile
from hourmark_etl.model import EARLIEST_MS, HourState
from hourmark_etl.storage import Storage, delete_all, list_if_exists
from hourmark_etl.storage.folders import STAGING_FOLDER
from hourmark_etl.storage.paths import SCRATCH

EVERY_SECONDS: Final = 60.0
DAYS_AT_ONCE: Final = 1000  # number of types whose oldest day is packed in one round
FILES_AT_ONCE: Final = 200  # examined per call, of each kind
FOLDERS_AT_ONCE: Final = 200
UNFINISHED_KEPT_MS: Final = 86_400_000
_LOG = logging.getLogger(__name__)
_HOUR_MS: Final = 3_600_000
_FOLDER: Final = re.compile(r"(?P<epoch>\d{12})-(?P<shard>[a-z][a-z0-9-]*)-[0-9a-f]{32}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CleanupCounts:
    """Numbers of files and folders that one cleanup round deleted.

    Staged files hold copies of Kafka records. Buckets are written from them.

    Attributes:
        event_files: Number of staged files of events.
        audit_files: Number of staged files of audit records. An audit record states how many events
            a byte range of a log file contains.
        folders: Number of folders of uncommitted batches and of interrupted uploads.
        unaudited_files: Number of files with events that had no audit record when the content of
            their bucket was fixed.
        index_files: Number of indexes of the event ids in closed buckets.
    """

    event_files: int
    audit_files: int
    folders: int
    unaudited_files: int
    index_files: int


class Cleaner:
    """Deletes staged files, uploads and indexes that are no longer needed.

    Staged files hold copies of Kafka records. Call `poll` periodically. Each round deletes a
    limited number of files. Deletions require the lease of the closer, the process that closes
    buckets. A process that has lost the lease deletes nothing. Not thread-safe.

    Args:
        storage: Storage with the files.
        database: Database of the ledger, which records the files that are still needed.
        config: Configuration with the retention periods.
        clock: Clock for retention periods and for the interval between rounds.
    """

    def __init__(self, storage: Storage, database: Database, config: Config, clock: Clock) -> None:
        self._storage, self._database, self._etl, self._clock = storage, database, config.etl, clock
        self._bucket_seconds = config.parsing.bucket_seconds
        self._audit_keep_ms = (config.kafka.retention_hours + 24) * _HOUR_MS
        self._unaudited = UnauditedCleaner(storage, database, self._audit_keep_ms)
        self._events_after = self._audit_after = 0
        self._due_s = clock.monotonic_s() + EVERY_SECONDS

    def poll(self, lease: Lease) -> None:
        """Run one cleanup round if 60 seconds have passed since the last one.

        Nothing is deleted while the clocks of this process and the delivery services differ by more
        than 5 minutes, or while the ledger (the ETL's state database) has damaged rows. If storage
        or the ledger fails, the error is logged and the next round tries again.

        Args:
            lease: Lease of the closer, the process that closes buckets.

        Raises:
            StaleDriver: Another closer has taken over the lease.
        """
        if self._clock.monotonic_s() < self._due_s:
            return
        self._due_s = self._clock.monotonic_s() + EVERY_SECONDS
        try:
            if apart := describe_clock_difference(
                LatestReports(reporters(self._database)), self._clock.now_ms()
            ):
                _LOG.warning("nothing is deleted, because the clock may be wrong: %s", apart)
                return
            if any(
                f.state is HourState.DAMAGED
                for f in frontiers(self._database, self._bucket_seconds)
            ):
                _LOG.error(
                    "nothing is deleted while the ledger has damaged rows; `hourmark ledger "
                    "check` lists them"
                )
                return
            cleaned = self.clean(lease, self._clock.now_ms())
        except (Unavailable, Finding) as error:
            _LOG.warning(
                "cleanup was interrupted and will continue in %.0f s: %s", EVERY_SECONDS, error
            )
            return
        if any(dataclasses.astuple(cleaned)):
            _LOG.info(
                "deleted %d event and %d audit files, %d unfinished batches or "
                "uploads, %d unaudited and %d id files",
                *dataclasses.astuple(cleaned),
            )

    def clean(self, lease: Lease, now_ms: int) -> CleanupCounts:
        """Run one cleanup round, which deletes a limited number of files.

        Args:
            lease: Lease of the closer, the process that closes buckets.
            now_ms: Current time in Unix milliseconds.

        Returns:
            Numbers of deleted files and folders. The next round continues with the remaining ones.

        Raises:
            Unavailable: Storage or the ledger is unavailable.
            StaleDriver: Another closer has taken over the lease.
        """
        closed_before_ms = now_ms - round(self._etl.staged_keep_seconds * 1000)
        events, self._events_after = ledger.find_closed_event_files(
            self._database, self._events_after, closed_before_ms, FILES_AT_ONCE
        )
        needed_from_ms = ledger.read_oldest_open_hour_ms(self._database) - EARLIEST_MS
        below = ledger.find_offsets_settled_before(
            self._database, DEAD_LETTERS, min(now_ms - self._audit_keep_ms, needed_from_ms)
        )
        audits: list[UnneededFile] = []
        if below is not None:
            audits, self._audit_after = ledger.find_settled_audit_files(
                self._database, self._audit_after, below, FILES_AT_ONCE
            )
        self._delete(lease, events + audits)
        delete_old_set_aside_rows(self._database, lease, now_ms)
        pack_old_bucket_rows(self._database, lease, now_ms, DAYS_AT_ONCE)
        return CleanupCounts(
            event_files=len(events),
            audit_files=len(audits),
            folders=self._delete_unfinished(lease, now_ms, needed_from_ms),
            unaudited_files=self._unaudited.clean(lease, now_ms),
            index_files=clean_indexes(
                self._storage,
                self._database,
                lease,
                hours_max=self._etl.index_hours,
                bytes_max=self._etl.index_bytes_max,
                now_ms=now_ms,
            ),
        )

    def _delete(self, lease: Lease, files: list[UnneededFile]) -> None:
        if not files:
            return
        emptied = ledger.delete_file_rows(self._database, lease, files)
        delete_all(self._storage, [file.path for file in files if file.folder not in emptied])
        delete_all(self._storage, sorted(emptied))

    def _delete_unfinished(self, lease: Lease, now_ms: int, needed_from_ms: int) -> int:
        batches = list_if_exists(self._storage, STAGING_FOLDER)
        named, epochs = ledger.read_folders_and_epochs(
            self._database
        )  # read after the listing, because a folder may be committed in between
        folders = [f"{STAGING_FOLDER}/{b.name}" for b in batches if _is_replaced(b.name, epochs)]
        # Where records are lost, such a folder may hold them (an older copy of the ledger was
        # restored); a rebuild uses it.
        may_hold = any(
            gap.accepted_at_ms is None
            or (has_lost_end(gap) and needed_from_ms < gap.accepted_at_ms)
            for gap in all_gaps(self._database)
        )
        doomed = [] if may_hold else [folder for folder in folders if folder not in named]
        uploads = list_if_exists(self._storage, SCRATCH)
        doomed += [
            f"{SCRATCH}/{u.name}" for u in uploads if u.changed_ms < now_ms - UNFINISHED_KEPT_MS
        ]
        doomed = doomed[:FOLDERS_AT_ONCE]
        if doomed:
            self._database.check_lease(lease)  # a closer that was replaced deletes nothing
        return delete_all(self._storage, doomed)


def _is_replaced(name: str, epochs: dict[str, int]) -> bool:
    match = _FOLDER.fullmatch(name)
    return match is not None and int(match["epoch"]) < epochs.get(f"consumer:{match['shard']}", 0)
