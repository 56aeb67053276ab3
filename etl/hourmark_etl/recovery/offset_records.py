"""Records on storage of offsets that only the ledger knows but that proofs depend on.

These are the mirrors' positions at the last checks of each edge, and the offset gaps. Without them,
a rebuilt ledger cannot know whether an edge deleted records that were never copied, nor what a log
lost that has grown since.

Each ledger has one file `_ledger/offsets-<ledger>-<digest>.json`; a new one is written before the
old one is deleted. If there are several, the newest is unknown: a driver was killed in between, or
an older copy of the ledger is in use. Then the gaps of all files count, and no checks, because a
check that succeeds after an accepted gap does not prove what was promised there. Without checks,
everything that an edge has deleted counts as a gap.
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
from hourmark_etl.folders import LEDGER_FOLDER
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.batches import decode_position
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.offset_gaps import EdgeCheck, OffsetGap, all_gaps, last_checks, put_gaps
from hourmark_etl.staging.verified import compute_digest
from hourmark_etl.storage import ContentLost, Storage, list_if_exists

EVERY_SECONDS: Final = 60.0
_NAME: Final = re.compile(r"offsets-(?P<ledger>[0-9a-f-]+)-(?P<digest>[0-9a-f]{32})\.json")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedAuditOffset:
    """The offset up to which an audit topic on the central cluster was staged.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        topic_id: Kafka topic id.
        epoch_next: Offset after the last staged record.
        leader_epoch: Leader epoch of that record.
    """

    topic: str
    partition: int
    topic_id: str
    epoch_next: int
    leader_epoch: int


class OffsetRecord(BaseModel, frozen=True, extra="forbid"):
    """The content of a file that records a ledger's checks and gaps.

    Attributes:
        format: Version of the format.
        ledger: Id of the ledger.
        commit: The ledger's commit number when the file was written.
        checks: Last checks of all edges.
        gaps: All known offset gaps.
        staged: How far audit topics were staged; version 0.3.0 did not write it.
    """

    format: Literal[1]
    ledger: str
    commit: int
    checks: tuple[EdgeCheck, ...]
    gaps: tuple[OffsetGap, ...]
    staged: tuple[StagedAuditOffset, ...] = ()

    def encode(self) -> bytes:
        """Return the record as JSON."""
        return self.model_dump_json().encode()


class OffsetRecorder:
    """Keeps the record of checks and gaps on storage up to date.

    It belongs to the driver that closes, and writes are protected by the closer's lease.
    """

    def __init__(self, storage: Storage, database: Database, clock: Clock) -> None:
        self._storage, self._database, self._clock = storage, database, clock
        self._due_s = clock.monotonic_s()
        self._kept: OffsetRecord | None = None

    def poll(self, lease: Lease) -> None:
        """Update the record once a minute, or immediately if gaps have changed.

        Errors of storage or ledger are logged, and the next round tries again.

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
                "where the mirror stands is not kept on storage, and tried again in %.0f s: %s",
                EVERY_SECONDS,
                error,
            )

    def update(self, lease: Lease) -> None:
        """Write the current checks and gaps if they differ from the last record.

        Raises:
            StaleDriver: Another closer has taken over the lease.
            Unavailable: Storage or the ledger does not answer.
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


def _create_record(database: Database) -> OffsetRecord:
    # Read the ledger's checks and gaps. Gaps are read after checks, so that a gap whose acceptance
    # reset a check is included.
    ledger, commit = database.identity()
    checks = [check for _, check in sorted(last_checks(database).items())]
    staged = staged_audit_offsets(
        database
    )  # read before the gaps, so that any loss since is among them
    return OffsetRecord(
        format=1,
        ledger=ledger,
        commit=commit,
        checks=tuple(checks),
        gaps=tuple(all_gaps(database)),
        staged=staged,
    )


def staged_audit_offsets(database: Database) -> tuple[StagedAuditOffset, ...]:
    """Return the offsets up to which audit topics are staged, if their leader epoch is known."""
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


def _replace_records(storage: Storage, record: OffsetRecord, standing: Collection[str]) -> None:
    written = record.encode()
    path = f"{LEDGER_FOLDER}/offsets-{record.ledger}-{compute_digest(written).hex()}.json"
    if path not in standing:
        storage.write_new(path, written)
    for older in standing:
        if older != path:
            storage.delete(older)


@dataclass(frozen=True)
class KnownOffsets:
    """The combined content of a ledger's offset records.

    Attributes:
        commit: Highest commit number of the records; 0 if there are none.
        checks: Last checks of all edges; None if they are unknown.
        gaps: All offset gaps.
        notes: Readable reasons why information is missing.
        staged: How far audit topics were staged.
    """

    commit: int
    checks: tuple[EdgeCheck, ...] | None
    gaps: tuple[OffsetGap, ...]
    notes: tuple[str, ...]
    staged: tuple[StagedAuditOffset, ...] = ()


def read_offset_records(storage: Storage, ledger: str) -> KnownOffsets:
    """Read a ledger's records of edge checks and offset gaps from storage, and combine them.

    Args:
        storage: The storage.
        ledger: Id of the ledger.

    Returns:
        The combined content. Its `checks` are None unless there is exactly one intact record.

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
        (r for r in found.values() if isinstance(r, OffsetRecord)), key=lambda r: r.commit
    )
    if len(found) > 1:
        notes.append(f"{', '.join(map(storage.url, found))}: of these only one should stand")
    gaps = dict.fromkeys(gap for r in records for gap in r.gaps)
    checks = None if notes or not records else records[0].checks
    staged = tuple(at for r in records for at in r.staged)
    return KnownOffsets(
        max((r.commit for r in records), default=0), checks, tuple(gaps), tuple(notes), staged
    )


def record_lost_ends(
    storage: Storage,
    ledger: str,
    commit: int,
    known_offsets: KnownOffsets,
    lost_ends: Collection[OffsetGap],
) -> None:
    """Record lost ends of logs that a rebuild found, before the rebuild commits.

    Once a log has grown again, only this record shows another rebuild, or a copy of the old ledger,
    that records were lost. Gaps that have other causes are found again and need not be recorded.
    Records that cannot be read are kept.

    Args:
        storage: The storage.
        ledger: Id of the ledger.
        commit: Commit number of the rebuilt ledger.
        known_offsets: The combined existing records.
        lost_ends: The lost ends.
    """
    if lost_ends:
        gaps = (*known_offsets.gaps, *lost_ends)
        record = OffsetRecord(
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
    """Add offset gaps from the records on storage that the ledger does not know.

    They are missing if the ledger is an older copy that is used again. An open gap counts as known
    if the ledger has it as open or as accepted. A driver calls this at startup.

    Args:
        storage: The storage.
        database: The ledger.
    """
    found = read_offset_records(storage, database.identity()[0])
    for note in found.notes:
        _LOG.warning(
            "where an older copy of the ledger goes on, gaps that were found since may "
            "be unknown: %s",
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


def _read_record(storage: Storage, path: str, digest: str) -> OffsetRecord | str:
    # Return the record, or a readable reason why it cannot be used.
    try:
        content = storage.read(path)
        if compute_digest(content).hex() != digest:
            return "it is not as it was written"
        return OffsetRecord.model_validate_json(content)
    except ContentLost as error:
        return str(error)
    except ValidationError as error:
        return f"no record of offsets that this version reads: {error}"


def _list_records(storage: Storage, ledger: str) -> list[tuple[str, str]]:
    found = ((e.name, _NAME.fullmatch(e.name)) for e in list_if_exists(storage, LEDGER_FOLDER))
    return [
        (f"{LEDGER_FOLDER}/{name}", m["digest"])
        for name, m in found
        if m is not None and m["ledger"] == ledger
    ]
