"""Staged files in the ledger: which are still needed, and which batch folders exist.

A staged file that cannot be read is replaced by a new one with the same groups, staged from the
same spans. If that is impossible, an override gives up the file for one type.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import zstandard
from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Row,
    Select,
    Table,
    and_,
    delete,
    func,
    or_,
    select,
    union,
)

from hourmark.errors import Finding
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import find_newest_closed_bucket
from hourmark_etl.ledger.database import Database, Lease, delete_rows
from hourmark_etl.ledger.digests import check_digest, update_rows
from hourmark_etl.ledger.frontier_rows import decode_audit_offsets
from hourmark_etl.ledger.frontiers import force_sealed_hours
from hourmark_etl.ledger.partitions.offset_gaps import OffsetGap, put_gaps
from hourmark_etl.model import (
    AUDIT,
    EVENTS,
    FIRST_SITE,
    NO_AUDIT_OFFSETS,
    AuditOffsets,
    EventTotals,
    Frontier,
    OffsetSpan,
    StagedFile,
    StagedGroup,
    to_unsigned,
)

_FILES = tables.staged_files
_PLACES_MAX: Final = 5


@dataclasses.dataclass(frozen=True, slots=True)
class UnneededFile:
    """A staged file that no open bucket needs any more, so that it can be deleted.

    A staged file contains records that were copied from Kafka.

    Attributes:
        file_id: Row id in the ledger (the ETL's state database).
        path: Path relative to the storage root.
        folder: Path of the folder with all files of the same batch, relative to the storage root.
    """

    file_id: int
    path: str
    folder: str


def find_closed_event_files(
    database: Database, after_id: int, closed_before_ms: int, limit: int
) -> tuple[list[UnneededFile], int]:
    """Find staged event files whose rows are all in buckets closed before a given time.

    A staged file contains records that were copied from Kafka. The returned files are no longer
    needed and can be deleted. Each call examines the next `limit` files, so files that are still
    needed do not block others.

    Args:
        database: The ledger (the ETL's state database).
        after_id: Row id after which to continue; 0 for the first call.
        closed_before_ms: Only buckets closed before this time are considered, Unix milliseconds.
        limit: Number of files to examine.

    Returns:
        A pair: the unneeded files, and `after_id` for the next call. The latter is 0 after the last
        file was examined.
    """
    groups, buckets = tables.groups, tables.buckets
    needed = (
        select(groups.c.file_id)
        .outerjoin(
            buckets, and_(buckets.c.type == groups.c.type, buckets.c.hour == groups.c.listed_hour)
        )
        .where(
            or_(
                buckets.c.closed_at_ms.is_(None),
                buckets.c.closed_at_ms >= closed_before_ms,
                groups.c.hour
                > groups.c.listed_hour,  # nothing lists such a group: the row is damaged
            )
        )
    )
    return _unneeded(database, EVENTS, after_id, limit, needed, groups.c.file_id)


def find_settled_audit_files(
    database: Database, after_id: int, below_offsets: AuditOffsets, limit: int
) -> tuple[list[UnneededFile], int]:
    """Find staged files of audit records that no open bucket needs, so that they can be deleted.

    An audit record states how many events a delivery service wrote for a byte range of a log file.
    Staged files hold copies of such Kafka records. A record is needed until the bucket of its hour
    is closed, and until it has been compared with the events in a closed bucket. Each call examines
    the next `limit` files.

    Args:
        database: The ledger (the ETL's state database).
        after_id: Row id after which to continue; 0 for the first call.
        below_offsets: Files with an audit record at or after these offsets are kept.
        limit: Number of files to examine.

    Returns:
        A pair: the unneeded files, and `after_id` for the next call. The latter is 0 after the last
        file was examined.
    """
    groups, frontiers = tables.audit_groups, tables.frontiers
    needed = (
        select(groups.c.file_id)
        .join(frontiers, frontiers.c.type == groups.c.type)
        .where(
            or_(
                _at_or_past(
                    groups.c.last_offset, below_offsets.offset_of(FIRST_SITE), below_offsets
                ),
                _needed(database)[groups],
            )
        )
    )
    return _unneeded(database, AUDIT, after_id, limit, needed, groups.c.file_id)


def _unneeded(
    database: Database,
    kind: str,
    after_id: int,
    limit: int,
    needed: Select[Any],
    file_id: ColumnElement[int],
) -> tuple[list[UnneededFile], int]:
    looked = select(_FILES.c.id, _FILES.c.path, _FILES.c.batch).where(
        _FILES.c.kind == kind, _FILES.c.id > after_id
    )
    with database.reading() as connection:
        found = [
            UnneededFile(*row)
            for row in connection.execute(looked.order_by(_FILES.c.id).limit(limit))
        ]
        if not found:
            return [], 0
        span = needed.where(file_id >= found[0].file_id, file_id <= found[-1].file_id).distinct()
        kept: set[int] = set(connection.execute(span).scalars())
    return [f for f in found if f.file_id not in kept], found[-1].file_id if len(
        found
    ) == limit else 0


def _needed(database: Database) -> dict[Table, ColumnElement[bool]]:
    # Promises of a further site are needed until every type has settled them: a file holds promises
    # of all types.
    groups, audits, frontiers = tables.groups.c, tables.audit_groups.c, tables.frontiers.c
    settled = [
        decode_audit_offsets(*row)
        for row in database.fetch(select(frontiers.settled_next, frontiers.settled_further))
    ]
    by_all = functools.reduce(AuditOffsets.minimum, settled) if settled else NO_AUDIT_OFFSETS
    return {
        tables.groups: or_(groups.listed_hour.is_(None), groups.listed_hour >= frontiers.hour),
        tables.audit_groups: or_(
            audits.hour >= frontiers.hour,
            _at_or_past(audits.last_offset, frontiers.settled_next, by_all),
        ),
    }


def _at_or_past(
    offset: ColumnElement[int], first: ColumnElement[int] | int, offsets: AuditOffsets
) -> ColumnElement[bool]:
    site = tables.audit_groups.c.site
    further = offsets.further_sites
    return or_(
        and_(site.is_(None), offset >= first),
        and_(site.is_not(None), site.not_in(sorted(further))),
        *(and_(site == name, offset >= at) for name, at in further.items()),
    )


def read_oldest_open_hour_ms(database: Database) -> int:
    """Return the start of the oldest hour, across all event types, whose bucket is not closed.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Start of the hour, Unix milliseconds; 0 if the ledger has no event types.
    """
    return 1000 * (database.fetch(select(func.min(tables.frontiers.c.hour))).scalar() or 0)


def find_offsets_settled_before(
    database: Database, event_type: str, closed_before_ms: int
) -> AuditOffsets | None:
    """Return the offsets up to which a type's audit records had been checked at a given time.

    An audit record states how many events a delivery service wrote for a byte range of a log file.
    Before a bucket is closed, its events are compared with the audit records below certain offsets,
    which are stored in its manifest as `audit_next`.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Name of the event type.
        closed_before_ms: Only buckets closed before this time are considered, Unix milliseconds.

    Returns:
        The `audit_next` of the newest of these buckets; None if there is no such bucket.
    """
    with database.reading() as connection:
        found = find_newest_closed_bucket(connection, event_type, closed_before_ms)
    return (
        None
        if found is None
        else AuditOffsets.from_offsets(json.loads(found.manifest)["evidence"]["audit_next"])
    )


def delete_file_rows(database: Database, lease: Lease, files: Collection[UnneededFile]) -> set[str]:
    """Delete the ledger rows of staged files. The caller then deletes the files from storage.

    A staged file contains records that were copied from Kafka.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        files: The files to delete.

    Returns:
        Paths of the batch folders that have no file left in the ledger.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    ids = [{"id": f.file_id, "file_id": f.file_id} for f in files]
    with database.transaction(lease) as connection:
        for table, key in (
            (tables.groups, "file_id"),
            (tables.audit_groups, "file_id"),
            (_FILES, "id"),
        ):
            delete_rows(connection, table, [key], ids)
        batch_folders = {f.folder for f in files}
        left = set(
            connection.execute(
                select(_FILES.c.batch).where(_FILES.c.batch.in_(sorted(batch_folders))).distinct()
            ).scalars()
        )
    return batch_folders - left


def read_folders_and_epochs(database: Database) -> tuple[set[str], dict[str, int]]:
    """Read the known batch folders and the lease epochs, which identify abandoned folders.

    A batch folder contains the files of one batch of records that were copied from Kafka. A folder
    on storage is abandoned if the ledger does not refer to it and its writer has lost its lease.
    The epoch of a lease is a number that increases each time another process takes over the lease.
    Both results are read in one transaction.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        A pair: paths of the batch folders relative to the storage root, and the epoch of each lease
        by its name.
    """
    with database.reading() as connection:
        named = set(connection.execute(select(_FILES.c.batch).distinct()).scalars())
        epochs: dict[str, int] = dict(
            connection.execute(select(tables.leases.c.name, tables.leases.c.epoch)).all()
        )
    return named, epochs


@dataclasses.dataclass(frozen=True)
class LedgerFile:
    """The ledger's description of a staged file and its groups.

    A staged file contains records that were copied from Kafka. The rows of one event type and hour
    in it are called a group. The ledger is the state database of the ETL.

    Attributes:
        file_id: Row id in the ledger.
        file: Path, kind, row count and Kafka offsets of the file.
        folder: Folder of the batch that wrote the file.
        groups: Totals of each group, by pairs of event type and hour in Unix seconds.
    """

    file_id: int
    file: StagedFile
    folder: str
    groups: Mapping[tuple[str, int], EventTotals]


def read_ledger_file(database: Database, path: str) -> LedgerFile:
    """Return the ledger's description of a staged file and of its groups.

    A group contains the rows of one event type and hour in one staged file, which holds copies of
    Kafka records.

    Args:
        database: The ledger (the ETL's state database).
        path: Path of the file, relative to the storage root.

    Returns:
        The file with its groups, and its row id in the ledger.

    Raises:
        Finding: The ledger does not contain the file.
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    with database.reading() as connection:
        row = (
            connection.execute(select(_FILES).where(_FILES.c.path == path)).mappings().one_or_none()
        )
        if row is None:
            raise Finding(
                f"the ledger does not contain the staged file {path}; `hourmark ledger check` "
                "compares ledger and storage"
            )
        check_digest(_FILES, row)
        groups: dict[tuple[str, int], EventTotals] = {}
        for table in (tables.groups, tables.audit_groups):
            for of in connection.execute(
                select(table).where(table.c.file_id == row["id"])
            ).mappings():
                check_digest(table, of, path, of["type"])
                groups[of["type"], of["hour"]] = EventTotals(
                    of["rows"],
                    digest=to_unsigned(of["low64_sum"]),
                    values=to_unsigned(of["value_sum"] or 0),
                    unchecked=of["rows"] if of["value_sum"] is None else 0,
                )
    return LedgerFile(row["id"], _staged_file(row), row["batch"], groups)


def _staged_file(row: Mapping[Any, Any]) -> StagedFile:
    spans = tuple(OffsetSpan.from_list(s) for s in json.loads(zstandard.decompress(row["spans"])))
    observed_ms = (
        None
        if row["observed_from_ms"] is None
        else (row["observed_from_ms"], row["observed_to_ms"])
    )
    return StagedFile(
        path=row["path"], kind=row["kind"], rows=row["rows"], spans=spans, observed_ms=observed_ms
    )


def find_types_needing_file(database: Database, path: str) -> set[str]:
    """Return the event types whose open hours still need rows of a staged file.

    Rows are needed to write a bucket or to prove that it is complete. A staged file contains
    records that were copied from Kafka.

    Args:
        database: The ledger (the ETL's state database).
        path: Path of the file, relative to the storage root.

    Returns:
        Names of event types; empty if no type needs the file, or the ledger does not contain it.
    """
    return set(
        database.fetch(select_needed_groups(database, "type", _FILES.c.path == path)).scalars()
    )


def select_needed_groups(
    database: Database, column: str, *where: ColumnElement[bool]
) -> CompoundSelect[Any]:
    """Create an SQL query for the groups of rows that are still needed to close a bucket.

    A group contains the rows of one event type and hour in one staged file, which holds copies of
    Kafka records. Events are needed until their bucket is closed, audit records until they have
    been compared with closed buckets. The query is not executed.

    Args:
        database: The ledger (the ETL's state database).
        column: Column to select, which must exist in both `staged_groups` and `audit_groups`.
        *where: Further SQL conditions.

    Returns:
        A union of a query for groups of events and one for groups of audit records.
    """
    return union(
        *(
            select(groups.c[column])
            .join(_FILES, _FILES.c.id == groups.c.file_id)
            .join(tables.frontiers, tables.frontiers.c.type == groups.c.type)
            .where(still, *where)
            for groups, still in _needed(database).items()
        )
    )


def replace_damaged_file(
    database: Database,
    lease: Lease,
    damaged_file: LedgerFile,
    path: str,
    groups: Collection[StagedGroup],
) -> None:
    """Replace a damaged staged file in the ledger with a new file that has the same rows.

    A staged file contains records that were copied from Kafka. Files on storage are not changed;
    the caller deletes the damaged file afterwards.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease under which the ledger is changed.
        damaged_file: The damaged file.
        path: Path of the new file, relative to the storage root.
        groups: The rows of each event type and hour in the new file; empty for a file of audit
            records. Only their `first_row` is stored, because all other values are the same as in
            the damaged file.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    rows = {(g.event_type, g.hour_s): g.first_row for g in groups}
    with database.transaction(lease) as connection:
        for table in (tables.groups, tables.audit_groups):
            moved = []
            for row in connection.execute(
                select(table).where(table.c.file_id == damaged_file.file_id)
            ).mappings():
                check_digest(table, row, damaged_file.file.path, row["type"])
                moved.append(
                    (
                        row,
                        {"first_row": rows[row["type"], row["hour"]]}
                        if table is tables.groups
                        else {},
                    )
                )
            update_rows(connection, table, moved, path)
        row = (
            connection.execute(select(_FILES).where(_FILES.c.id == damaged_file.file_id))
            .mappings()
            .one()
        )
        check_digest(_FILES, row)
        update_rows(connection, _FILES, [(row, {"path": path})])


def remove_lost_file(
    database: Database,
    lease: Lease,
    lost_file: LedgerFile,
    frontier: Frontier,
    gap: OffsetGap,
    override_text: str,
) -> None:
    """Remove the rows of one event type in a lost staged file from the ledger.

    A staged file contains records that were copied from Kafka. Call this function if the file
    cannot be restored and an operator's override orders to close buckets without it. The lost
    records are stored as an offset gap. Buckets whose content is already fixed and includes such
    rows get the grade `forced`.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        lost_file: The lost file.
        frontier: The oldest open hour of the type, with its seals.
        gap: Offset gap to store.
        override_text: Human-readable text about the override, which is added to the manifests.

    Raises:
        StaleDriver: Another process has taken over the lease, or the type's sealed hours have
            changed; nothing was changed.
    """
    with database.transaction(lease) as connection:
        lost, removed = defaultdict[int, EventTotals](EventTotals), 0
        for table in (tables.groups, tables.audit_groups):
            own = (table.c.file_id == lost_file.file_id, table.c.type == frontier.event_type)
            for row in connection.execute(select(table).where(*own)):
                removed += row.rows
                if table is tables.groups:
                    lost[row.listed_hour] += _event_totals(row)
            connection.execute(delete(table).where(*own))
        own_row = _FILES.c.id == lost_file.file_id
        file = connection.execute(select(_FILES).where(own_row)).mappings().one()
        check_digest(_FILES, file)
        # The row count of the file must remain the total of its groups.
        update_rows(connection, _FILES, [(file, {"rows": file["rows"] - removed})])
        force_sealed_hours(connection, frontier, lost, (override_text, gap.what))
        put_gaps(connection, [gap])


def _event_totals(row: Row[Any]) -> EventTotals:
    is_known = row.value_sum is not None
    values, unchecked = (to_unsigned(row.value_sum), 0) if is_known else (0, row.rows)
    return EventTotals(row.rows, row.rows, to_unsigned(row.low64_sum), values, unchecked)


def format_spans(spans: Sequence[OffsetSpan]) -> str:
    """Describe ranges of Kafka offsets for a message.

    Args:
        spans: Offset ranges to describe.

    Returns:
        Human-readable text with the topics, partitions and offsets of the first 5 ranges, followed
        by the number of further ranges, if there are any.
    """
    named = ", ".join(
        f"topic {s.topic} partition {s.partition} offsets [{s.start}, {s.end})"
        for s in spans[:_PLACES_MAX]
    )
    return (
        named
        if len(spans) <= _PLACES_MAX
        else f"{named} and {len(spans) - _PLACES_MAX} more partitions"
    )
