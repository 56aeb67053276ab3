"""Conflicts between audit records, and which audit files have been compared.

A conflict exists if two audit records of one byte range differ. It keeps one hour of one type open
until an override closes the hour. It is deleted when the hour closes, and the manifest names it.
Afterwards, copies of the compared records are ignored (`closing.proof.readings`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import ColumnElement, bindparam, delete, func, select, update

from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, Lease, replace_rows
from hourmark_etl.ledger.digests import check_digest, with_digest
from hourmark_etl.model import AUDIT, FIRST_SITE, Frontier, from_columns, from_row, to_columns

_TABLE = tables.conflicts
_FILES = tables.staged_files
_GROUPS = tables.audit_groups


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A contradiction between two audit records of the same byte range, which blocks one bucket.

    An audit record states how many events a delivery service wrote for one byte range of a log
    file. If two records of a range differ, the hourly bucket that they concern is closed only by an
    operator's override.

    Attributes:
        event_type: Name of the event type.
        hour_s: Start of the blocked hour, Unix seconds.
        range_id: Id of the byte range.
        what: Readable description of the range and of what both records state.
        found_at_ms: Time of detection, Unix milliseconds.
    """

    event_type: str
    hour_s: int
    range_id: bytes
    what: str
    found_at_ms: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditFile:
    """A staged Parquet file that contains audit records of one site.

    An audit record states how many events a delivery service wrote for a byte range of a log file.
    A site is an edge cluster.

    Attributes:
        file_id: Row id in the ledger.
        path: Path relative to the storage root.
        rows: Number of rows, one for each event type and hour of each audit record.
        observed_from_ms: Earliest time at which one of the recorded byte ranges was observed, Unix
            milliseconds.
        observed_to_ms: Latest such time, Unix milliseconds.
        site: Name of the site whose audit topic the records come from.
    """

    file_id: int
    path: str
    rows: int
    observed_from_ms: int
    observed_to_ms: int
    site: str = FIRST_SITE


def conflicts(database: Database) -> dict[str, list[Conflict]]:
    """Return all contradictions between audit records of the same byte range, by event type.

    An audit record states how many events a delivery service wrote for a byte range of a log file.
    A damaged row is returned as a conflict with `hour_s` 0 and the error as its text. It blocks the
    oldest open bucket of its type.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Conflicts by event type, sorted by hour and range id; types without conflicts are omitted.
    """
    found: dict[str, list[Conflict]] = {}
    for row in database.fetch(
        select(_TABLE).order_by(_TABLE.c.type, _TABLE.c.hour, _TABLE.c.range_id)
    ).mappings():
        one = from_columns(Conflict, row)
        try:
            check_digest(_TABLE, row)
        except DamagedRow as damaged:
            one = dataclasses.replace(one, hour_s=0, what=str(damaged))
        found.setdefault(one.event_type, []).append(one)
    return found


def reset_damaged_conflicts(database: Database, lease: Lease) -> DamagedRow | None:
    """Delete all stored conflicts if one is damaged, so that all audit files are compared again.

    An audit record states how many events a delivery service wrote for a byte range of a log file.
    A conflict is a contradiction between two audit records, which keeps one hourly bucket open. A
    damaged row may name a wrong hour. Without the reset, the bucket of that hour would stay open,
    and the bucket that the audit records concern might be closed.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes buckets.

    Returns:
        The error of the damaged row, which is not raised; None if all rows are intact and nothing
        was changed.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    try:
        for row in database.fetch(select(_TABLE)).mappings():
            check_digest(_TABLE, row)
    except DamagedRow as damaged:
        with database.transaction(lease) as connection:
            connection.execute(delete(_TABLE))
            connection.execute(update(_FILES).where(_FILES.c.kind == AUDIT).values(compared=False))
        return damaged
    return None


def find_blocking_conflicts(
    by_type: Mapping[str, Sequence[Conflict]], frontier: Frontier
) -> list[Conflict]:
    """Return the conflicts that keep the next hourly bucket of an event type from being closed.

    A conflict is a contradiction between two audit records of the same byte range. An audit record
    states how many events a delivery service wrote for a byte range of a log file.

    Args:
        by_type: Conflicts by event type, as `conflicts` returns them.
        frontier: The oldest open hour of the type.

    Returns:
        The type's conflicts in this hour or an earlier one; empty if there are none.
    """
    return [c for c in by_type.get(frontier.event_type, ()) if c.hour_s <= frontier.hour.start_s]


def format_blocking_conflicts(
    by_type: Mapping[str, Sequence[Conflict]], frontier: Frontier
) -> tuple[str, ...]:
    """Describe the conflicts that keep the next hourly bucket of an event type from being closed.

    A conflict is a contradiction between two audit records of the same byte range. An audit record
    states how many events a delivery service wrote for a byte range of a log file.

    Args:
        by_type: Conflicts by event type, as `conflicts` returns them.
        frontier: The oldest open hour of the type.

    Returns:
        One readable text per conflict; empty if there are none.
    """
    return tuple(c.what for c in find_blocking_conflicts(by_type, frontier))


def find_uncompared_files(
    database: Database, rows_max: int, skip_paths: Collection[str]
) -> list[AuditFile]:
    """Return the oldest audit files that have not been compared with the other audit files.

    Files are compared to find audit records that contradict each other. An audit record states how
    many events a delivery service wrote for a byte range of a log file.

    Args:
        database: The ledger (the ETL's state database).
        rows_max: Maximum total number of rows. The first file is returned even if it has more.
        skip_paths: Paths of files to omit.

    Returns:
        The files in the order in which they were staged; empty if all files are compared or
        omitted.
    """
    chosen: list[AuditFile] = []
    rows = 0
    for file in _audit_files(database, _FILES.c.compared.is_(False)):
        if file.path in skip_paths:
            continue
        rows += file.rows
        if chosen and rows > rows_max:
            break
        chosen.append(file)
    return chosen


def find_compared_files(database: Database, from_ms: int, to_ms: int) -> list[AuditFile]:
    """Return the compared audit files that may refer to a time span.

    Each audit record states when its byte range of a log file was observed. A file is returned if
    the span from the earliest to the latest of these times overlaps the given span.

    Args:
        database: The ledger (the ETL's state database).
        from_ms: Start of the time span, Unix milliseconds.
        to_ms: End of the time span, Unix milliseconds, inclusive.

    Returns:
        The files in the order in which they were staged; empty if there are none.
    """
    return _audit_files(
        database,
        _FILES.c.compared.is_(True),
        _FILES.c.observed_to_ms >= from_ms,
        _FILES.c.observed_from_ms <= to_ms,
    )


def _audit_files(database: Database, *which: ColumnElement[bool]) -> list[AuditFile]:
    of_site = (
        select(_GROUPS.c.site).where(_GROUPS.c.file_id == _FILES.c.id).limit(1).scalar_subquery()
    )  # it is of one
    query = (
        select(
            _FILES.c.id,
            _FILES.c.path,
            _FILES.c.rows,
            _FILES.c.observed_from_ms,
            _FILES.c.observed_to_ms,
            func.coalesce(of_site, FIRST_SITE),
        )
        .where(_FILES.c.kind == AUDIT, *which)
        .order_by(_FILES.c.id)
    )
    return [from_row(AuditFile, row) for row in database.fetch(query)]


def record_compared_files(
    database: Database, lease: Lease, files: Collection[AuditFile], found: Collection[Conflict]
) -> None:
    """Mark audit files as compared, and store the contradictions found, in one transaction.

    An audit record states how many events a delivery service wrote for a byte range of a log file.
    Records of the same range contradict each other if they differ.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        files: Files that have been compared with all previously compared files.
        found: Contradictions to store. They replace stored ones of the same type, hour and byte
            range.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    with database.transaction(lease) as connection:
        replace_rows(
            connection,
            _TABLE,
            ("type", "hour", "range_id"),
            [with_digest(_TABLE, to_columns(c)) for c in found],
        )
        compared = [{"of": f.file_id} for f in files]
        if compared:
            connection.execute(
                update(_FILES).where(_FILES.c.id == bindparam("of")).values(compared=True), compared
            )
