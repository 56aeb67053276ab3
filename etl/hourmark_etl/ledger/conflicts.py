"""Ranges with two audit records that differ: what they hold, and which audit files have been
compared so far.

A conflict holds one hour of one type, and nothing but an override closes that. It goes with its
hour's close, whose manifest names it: from then on copies of records that were compared say nothing
new (`closing.proof.readings`).
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
    """In the table's columns. `what`: the range and what each record promises, human-readable."""

    event_type: str
    hour_s: int
    range_id: bytes
    what: str
    found_at_ms: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditFile:
    """A staged file of audit records; `observed_from_ms` to `observed_to_ms`: when its ranges were
    observed.
    """

    file_id: int
    path: str
    rows: int
    observed_from_ms: int
    observed_to_ms: int
    site: str = FIRST_SITE


def conflicts(database: Database) -> dict[str, list[Conflict]]:
    """By type, all there are. A damaged row holds its type's frontier hour, whichever that is."""
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
    """Where a row is not as it was written, all go, and every audit file is to be compared anew:
    which row it was.

    A row that names another type or hour than it did would hold these, and let go its own.
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
    found: Mapping[str, Sequence[Conflict]], frontier: Frontier
) -> list[Conflict]:
    """Return what holds the frontier's hour."""
    return [c for c in found.get(frontier.event_type, ()) if c.hour_s <= frontier.hour.start_s]


def conflict_texts(found: Mapping[str, Sequence[Conflict]], frontier: Frontier) -> tuple[str, ...]:
    """What holds the frontier's hour, human-readable."""
    return tuple(c.what for c in conflicts_holding(found, frontier))


def uncompared_files(
    database: Database, rows_max: int, without: Collection[str]
) -> list[AuditFile]:
    """The oldest audit files that were not compared, `without` these paths: one at least, and no
    more rows than that.
    """
    chosen: list[AuditFile] = []
    rows = 0
    for file in _audit_files(database, _FILES.c.compared.is_(False)):
        if file.path in without:
            continue
        rows += file.rows
        if chosen and rows > rows_max:
            break
        chosen.append(file)
    return chosen


def compared_files(database: Database, from_ms: int, to_ms: int) -> list[AuditFile]:
    """Those that were compared and may hold records of ranges observed in this span, both ends
    included.
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
    """These files are compared with all others, and this is what was found: in one transaction, so
    neither without the other.
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
