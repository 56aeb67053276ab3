"""Conflicts: ranges with two audit records that differ, and which audit files have been compared.

A conflict holds one hour of one type until an override closes the hour. It is deleted when the hour
closes, and the manifest names it; copies of compared records are ignored from then on
(`closing.proof.readings`).
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
    """A byte range with two audit records that differ, which keeps one hour of a type open.

    Attributes:
        event_type: Event type.
        hour_s: Hour that is held, Unix seconds.
        range_id: Id of the range.
        what: The range and the promises of both records, human-readable.
        found_at_ms: Time of detection, Unix milliseconds.
    """

    event_type: str
    hour_s: int
    range_id: bytes
    what: str
    found_at_ms: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditFile:
    """A staged file of audit records.

    Attributes:
        file_id: Row id in the ledger.
        path: Path relative to the storage root.
        rows: Number of rows.
        observed_from_ms: First time at which its ranges were observed, Unix milliseconds.
        observed_to_ms: Last such time.
        site: Site of the audit topic.
    """

    file_id: int
    path: str
    rows: int
    observed_from_ms: int
    observed_to_ms: int
    site: str = FIRST_SITE


def conflicts(database: Database) -> dict[str, list[Conflict]]:
    """Return all conflicts between audit records, by event type.

    A conflict is a pair of differing audit records of one byte range; it keeps an hour open. A
    damaged row is returned with hour 0, so that it keeps the type's next hour to close open.
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


def reset_if_damaged(database: Database, lease: Lease) -> DamagedRow | None:
    """Delete all conflicts and mark all audit files as not compared if a conflict row is damaged.

    A damaged row might hold the wrong hour and release its own.

    Returns:
        The error of the damaged row, or None if all rows are intact.
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


def conflicts_holding(
    by_type: Mapping[str, Sequence[Conflict]], frontier: Frontier
) -> list[Conflict]:
    """Return the conflicts that hold a type's next hour open.

    Args:
        by_type: Conflicts by event type.
        frontier: The type's next hour to close.
    """
    return [c for c in by_type.get(frontier.event_type, ()) if c.hour_s <= frontier.hour.start_s]


def conflict_texts(
    by_type: Mapping[str, Sequence[Conflict]], frontier: Frontier
) -> tuple[str, ...]:
    """Return human-readable texts of the conflicts that hold a type's next hour open.

    Args:
        by_type: Conflicts by event type.
        frontier: The type's next hour to close.
    """
    return tuple(c.what for c in conflicts_holding(by_type, frontier))


def uncompared_files(
    database: Database, rows_max: int, skip_paths: Collection[str]
) -> list[AuditFile]:
    """Return the oldest staged audit files that were not compared with the others yet.

    At least one file is returned if there is any.

    Args:
        database: The ledger.
        rows_max: Maximum number of rows in all returned files, unless the first has more.
        skip_paths: Paths to leave out.
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


def compared_files(database: Database, from_ms: int, to_ms: int) -> list[AuditFile]:
    """Return compared audit files that may have byte ranges observed between two times.

    Args:
        database: The ledger.
        from_ms: First time, Unix milliseconds.
        to_ms: Last time, Unix milliseconds, included.
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


def record_compared(
    database: Database, lease: Lease, files: Collection[AuditFile], found: Collection[Conflict]
) -> None:
    """Mark audit files as compared and insert the conflicts found, in one transaction.

    Args:
        database: The ledger.
        lease: Lease of the closer.
        files: Files that were compared with all others.
        found: Conflicts to insert; those known for the same type, hour and range are replaced.

    Raises:
        StaleDriver: The lease was taken over.
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
