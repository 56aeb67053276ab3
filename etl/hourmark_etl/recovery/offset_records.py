"""Backup files on storage of offsets that only the ledger contains, but that proofs depend on.

These are the last successful checks of edge partitions, and the offset gaps. Without them, a
rebuilt ledger cannot determine whether an edge deleted records that were never copied, or what a
log lost before it grew again.

Each ledger has one file `_ledger/offsets-<ledger>-<digest>.json`; a new one is written before the
old one is deleted. If there are several, it is unknown which is the newest: a driver was killed in
between, or an older copy of the ledger is in use. In this case, the gaps of all files are used, but
no checks, because a check that succeeds after an accepted gap does not prove what was promised
there. Without checks, everything that an edge has deleted counts as a gap.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import BaseModel, ValidationError
from sqlalchemy import select

from hourmark.clock import Clock
from hourmark.errors import Finding, Unavailable
from hourmark.kafka.topic_names import AUDIT
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.batches import decode_position
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.partitions.offset_gaps import (
    EdgeCheck,
    OffsetGap,
    all_gaps,
    put_gaps,
    read_last_checks,
)
from hourmark_etl.staging.verified import compute_digest
from hourmark_etl.storage import ContentLost, Storage, list_if_exists
from hourmark_etl.storage.folders import LEDGER_FOLDER

EVERY_SECONDS: Final = 60.0
_NAME: Final = re.compile(r"offsets-(?P<ledger>[0-9a-f-]+)-(?P<digest>[0-9a-f]{32})\.json")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedAuditOffset:
    """The offset up to which a partition of a central audit topic has been staged.

    Staging copies records from Kafka to files on storage. Audit records state how many events each
    byte range of a log file contains.

    Attributes:
        topic: Topic name on the central cluster.
        partition: Partition number.
        topic_id: Kafka topic id.
        epoch_next: Offset after the last staged record.
        leader_epoch: Leader epoch of the last staged record.
    """

    topic: str
    partition: int
    topic_id: str
    epoch_next: int
    leader_epoch: int


class OffsetBackupFile(BaseModel, frozen=True, extra="forbid"):
    """Backup file on storage with the edge checks and offset gaps of a ledger.

    The ledger is the state database of the ETL. An edge check records that a partition of an edge
    cluster has lost no records. An offset gap is a range of offsets whose records are missing.
    Neither can be derived from other data, so this file is needed to rebuild a lost ledger.

    Attributes:
        format: Version of the file format.
        ledger: Id of the ledger.
        commit: Commit number of the ledger when the file was written.
        checks: Last successful check of each edge partition.
        gaps: All offset gaps in the ledger.
        staged: Offsets up to which audit topics have been copied to storage; empty if version 0.3.0
            wrote the file.
    """

    format: Literal[1]
    ledger: str
    commit: int
    checks: tuple[EdgeCheck, ...]
    gaps: tuple[OffsetGap, ...]
    staged: tuple[StagedAuditOffset, ...] = ()

    def encode(self) -> bytes:
        """Return the content of the file as JSON in UTF-8."""
        return self.model_dump_json().encode()


class OffsetBackupWriter:
    """Maintains a backup of the ledger's edge checks and offset gaps on storage.

    An edge check records that a partition of an edge cluster has lost no records. An offset gap is
    a range of offsets whose records are missing. Call `poll` periodically. Not thread-safe.

    Args:
        storage: Storage for the backup file.
        database: The ledger (the ETL's state database).
        clock: Clock for the interval between backups.
    """

    def __init__(self, storage: Storage, database: Database, clock: Clock) -> None:
        self._storage, self._database, self._clock = storage, database, clock
        self._due_s = clock.monotonic_s()
        self._kept: OffsetBackupFile | None = None

    def poll(self, lease: Lease) -> None:
        """Update the backup file once a minute, or immediately if the offset gaps have changed.

        If storage or the ledger (the ETL's state database) fails, a warning is logged and a later
        call tries again.

        Args:
            lease: Lease of the closer, the process that closes hours.

        Raises:
            StaleDriver: Another closer has taken over the lease.
        """
        try:
            if self._clock.monotonic_s() >= self._due_s or (
                self._kept and self._kept.gaps != tuple(all_gaps(self._database))
            ):
                self._due_s = self._clock.monotonic_s() + EVERY_SECONDS
                self.update(lease)
        except (Unavailable, Finding) as error:
            _LOG.warning(
                "the mirror's positions could not be saved on storage; retrying in %.0f s: %s",
                EVERY_SECONDS,
                error,
            )

    def update(self, lease: Lease) -> None:
        """Write the edge checks and offset gaps to storage immediately, if they have changed.

        An edge check records that a partition of an edge cluster has lost no records. An offset gap
        is a range of offsets whose records are missing. Unlike `poll`, this method raises errors of
        storage and the ledger.

        Args:
            lease: Lease of the closer, the process that closes hours.

        Raises:
            StaleDriver: Another closer has taken over the lease.
            Unavailable: Storage or the ledger does not respond.
        """
        record = _create_record(self._database)
        content = record.model_copy(
            update={"commit": 0}
        )  # the commit number changes without a change of content
        if content != self._kept:
            standing = [path for path, _ in _list_records(self._storage, record.ledger)]
            self._database.check_lease(
                lease
            )  # records of a later closer are written after this and are kept
            _replace_records(self._storage, record, standing)
            self._kept = content


def _create_record(database: Database) -> OffsetBackupFile:
    # Read the ledger's checks and gaps. Gaps are read after checks, so that a gap whose acceptance
    # reset a check is included.
    ledger, commit = database.identity()
    checks = [check for _, check in sorted(read_last_checks(database).items())]
    staged = read_staged_audit_offsets(
        database
    )  # read before the gaps, so that any loss since is among them
    return OffsetBackupFile(
        format=1,
        ledger=ledger,
        commit=commit,
        checks=tuple(checks),
        gaps=tuple(all_gaps(database)),
        staged=staged,
    )


def read_staged_audit_offsets(database: Database) -> tuple[StagedAuditOffset, ...]:
    """Return the offsets up to which the audit topics have been staged (copied to storage).

    Audit records state how many events each byte range of a log file contains.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        One entry per partition, sorted by topic and partition. Partitions for which no leader epoch
        is recorded are omitted.
    """
    query = select(tables.positions).where(tables.positions.c.topic.like(f"%{AUDIT}"))
    known = sorted(
        (decode_position(row) for row in database.fetch(query).mappings()),
        key=lambda p: (p.topic, p.partition),
    )
    return tuple(
        StagedAuditOffset(
            topic=p.topic,
            partition=p.partition,
            topic_id=p.topic_id,
            epoch_next=p.epoch_next,
            leader_epoch=p.leader_epoch,
        )
        for p in known
        if p.leader_epoch is not None and p.epoch_next is not None
    )


def _replace_records(storage: Storage, record: OffsetBackupFile, standing: Collection[str]) -> None:
    written = record.encode()
    path = f"{LEDGER_FOLDER}/offsets-{record.ledger}-{compute_digest(written).hex()}.json"
    if path not in standing:
        storage.write_new(path, written)
    for older in standing:
        if older != path:
            storage.delete(older)


@dataclass(frozen=True)
class OffsetBackup:
    """Combined content of all backup files with the edge checks and offset gaps of a ledger.

    The ledger is the state database of the ETL. Normally there is one backup file on storage. After
    a crash there may be several.

    Attributes:
        commit: Highest commit number of the ledger in the files; 0 if there are no files.
        checks: Last check of each edge partition that found no lost records. None unless there is
            exactly one file and it is intact; otherwise, it is unknown which checks are current.
        gaps: Ranges of offsets whose records are missing, from all intact files.
        notes: Human-readable reasons why information is missing; empty if the content is complete,
            or if there are no files.
        staged: Offsets up to which the audit topics have been staged (copied to storage).
    """

    commit: int
    checks: tuple[EdgeCheck, ...] | None
    gaps: tuple[OffsetGap, ...]
    notes: tuple[str, ...]
    staged: tuple[StagedAuditOffset, ...] = ()


def read_offset_backup(storage: Storage, ledger: str) -> OffsetBackup:
    """Read and combine all backup files with the edge checks and offset gaps of a ledger.

    The ledger is the state database of the ETL. An edge check records that a partition of an edge
    cluster has lost no records. An offset gap is a range of offsets whose records are missing.

    Args:
        storage: Storage with the files.
        ledger: Id of the ledger.

    Returns:
        The combined content. Its `checks` are None unless there is exactly one file and it is
        intact.

    Raises:
        StorageError: Storage is unavailable.
    """
    found = {
        path: _read_record(storage, path, digest) for path, digest in _list_records(storage, ledger)
    }
    notes = [
        f"{storage.url(path)}: {record}"
        for path, record in found.items()
        if isinstance(record, str)
    ]
    records = sorted(
        (r for r in found.values() if isinstance(r, OffsetBackupFile)), key=lambda r: r.commit
    )
    if len(found) > 1:
        notes.append(f"{', '.join(map(storage.url, found))}: only one of these files should exist")
    gaps = dict.fromkeys(gap for r in records for gap in r.gaps)
    checks = None if notes or not records else records[0].checks
    staged = tuple(at for r in records for at in r.staged)
    return OffsetBackup(
        max((r.commit for r in records), default=0), checks, tuple(gaps), tuple(notes), staged
    )


def record_lost_ends(
    storage: Storage,
    ledger: str,
    commit: int,
    known_offsets: OffsetBackup,
    lost_ends: Collection[OffsetGap],
) -> None:
    """Write a backup file with the offset gaps that a ledger rebuild has found at the ends of logs.

    An offset gap is a range of offsets whose records are missing. Call this function before the
    rebuilt ledger (the ETL's state database) is committed. When a log grows again, it no longer
    shows that it has lost records, and a later rebuild needs this file.

    The new file includes the gaps of the existing files and replaces them. If `known_offsets` is
    incomplete, the existing files are kept.

    Args:
        storage: Storage for the backup file.
        ledger: Id of the ledger.
        commit: Commit number of the rebuilt ledger.
        known_offsets: Combined content of the existing files.
        lost_ends: Offset gaps at the ends of logs. If it is empty, nothing is written.

    Raises:
        Unavailable: Storage does not respond.
    """
    if lost_ends:
        gaps = (*known_offsets.gaps, *lost_ends)
        record = OffsetBackupFile(
            format=1,
            ledger=ledger,
            commit=commit,
            checks=known_offsets.checks or (),
            gaps=gaps,
            staged=known_offsets.staged,
        )
        standing = [path for path, _ in _list_records(storage, ledger)]
        _replace_records(storage, record, [] if known_offsets.notes else standing)


def import_recorded_gaps(storage: Storage, database: Database) -> None:
    """Import offset gaps from the backup files on storage into the ledger.

    An offset gap is a range of offsets whose records are missing. If the ledger is an older copy,
    it may not contain all gaps. Call this function at startup. An open gap is skipped if the ledger
    contains the same gap and an operator has accepted it.

    Args:
        storage: Storage with the files.
        database: The ledger (the ETL's state database).

    Raises:
        Unavailable: Storage or the ledger does not respond.
    """
    found = read_offset_backup(storage, database.identity()[0])
    for note in found.notes:
        _LOG.warning(
            "if this ledger is an older copy, it may lack gaps that were found since: %s",
            note,
        )
    known = set(all_gaps(database))
    since = {
        (gap.topic, gap.what)
        for gap in known.difference(found.gaps)
        if gap.accepted_at_ms is not None
    }
    missing = [
        g
        for g in found.gaps
        if g not in known and (g.accepted_at_ms is not None or (g.topic, g.what) not in since)
    ]
    if missing:
        with database.transaction() as connection:
            put_gaps(connection, missing)


def _read_record(storage: Storage, path: str, digest: str) -> OffsetBackupFile | str:
    # Return the record, or a readable reason why it cannot be used.
    try:
        content = storage.read(path)
        if compute_digest(content).hex() != digest:
            return "its content does not match its digest"
        return OffsetBackupFile.model_validate_json(content)
    except ContentLost as error:
        return str(error)
    except ValidationError as error:
        return f"not a record of offsets that this version of Hourmark can read: {error}"


def _list_records(storage: Storage, ledger: str) -> list[tuple[str, str]]:
    found = ((e.name, _NAME.fullmatch(e.name)) for e in list_if_exists(storage, LEDGER_FOLDER))
    return [
        (f"{LEDGER_FOLDER}/{name}", m["digest"])
        for name, m in found
        if m is not None and m["ledger"] == ledger
    ]
