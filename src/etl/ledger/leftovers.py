"""What staging has left behind: files whose rows stand in closed buckets, and folders that no commit can name any more."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Table, and_, bindparam, delete, func, or_, select

from etl.ledger import tables
from etl.ledger.database import Database, Lease
from etl.ledger.rows import AUDIT, EVENTS

_FILES = tables.staged_files
# By table of groups, joined with their frontier: whose rows no closed bucket holds yet, or no seal has settled.
NEEDED: Final[dict[Table, ColumnElement[bool]]] = {
    tables.groups: or_(tables.groups.c.listed_hour.is_(None), tables.groups.c.listed_hour >= tables.frontiers.c.hour),
    tables.audit_groups: or_(
        tables.audit_groups.c.last_offset >= tables.frontiers.c.settled_next,
        tables.audit_groups.c.hour >= tables.frontiers.c.hour,
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Leftover:
    """A staged file that nothing will read again; `folder` is its batch's."""

    file_id: int
    path: str
    folder: str


def closed_event_files(database: Database, after_id: int, closed_before_ms: int, limit: int) -> tuple[list[Leftover], int]:
    """Event files all of whose groups stand in buckets closed before this time, among the `limit` files after this id.

    Returns them, and the id to go on after: 0 once all were looked at, so that one old file that is still needed holds up none.
    """
    groups, buckets = tables.groups, tables.buckets
    needed = (
        select(groups.c.file_id)
        .outerjoin(buckets, and_(buckets.c.type == groups.c.type, buckets.c.hour == groups.c.listed_hour))
        .where(
            or_(
                buckets.c.closed_at_ms.is_(None),
                buckets.c.closed_at_ms >= closed_before_ms,
                groups.c.hour > groups.c.listed_hour,  # nothing lists such a group: the row is damaged
            )
        )
    )
    return _unneeded(database, EVENTS, after_id, limit, needed, groups.c.file_id)


def settled_audit_files(database: Database, after_id: int, below: int, limit: int) -> tuple[list[Leftover], int]:
    """The same of audit files, all of whose promises are of closed hours and lie below this central audit offset."""
    groups, frontiers = tables.audit_groups, tables.frontiers
    needed = (
        select(groups.c.file_id)
        .join(frontiers, frontiers.c.type == groups.c.type)
        .where(or_(groups.c.last_offset >= below, NEEDED[groups]))
    )
    return _unneeded(database, AUDIT, after_id, limit, needed, groups.c.file_id)


def _unneeded(
    database: Database, kind: str, after_id: int, limit: int, needed: Select[Any], file_id: ColumnElement[int]
) -> tuple[list[Leftover], int]:
    looked = select(_FILES.c.id, _FILES.c.path, _FILES.c.batch).where(_FILES.c.kind == kind, _FILES.c.id > after_id)
    with database.reading() as connection:
        found = [Leftover(*row) for row in connection.execute(looked.order_by(_FILES.c.id).limit(limit))]
        if not found:
            return [], 0
        span = needed.where(file_id >= found[0].file_id, file_id <= found[-1].file_id).distinct()
        kept: set[int] = set(connection.execute(span).scalars())
    return [f for f in found if f.file_id not in kept], found[-1].file_id if len(found) == limit else 0


def oldest_frontier_ms(database: Database) -> int:
    """When the oldest hour began that is not closed; 0 where there are no types."""
    return 1000 * (database.ask(select(func.min(tables.frontiers.c.hour))).scalar() or 0)


def settled_before(database: Database, event_type: str, closed_before_ms: int) -> int:
    """The central audit offset that the type's last bucket closed before this time was proved up to; 0 if there is none."""
    buckets = tables.buckets
    query = (
        select(buckets.c.manifest)
        .where(buckets.c.type == event_type, buckets.c.closed_at_ms < closed_before_ms)
        .order_by(buckets.c.hour.desc())
        .limit(1)
    )
    manifest = database.ask(query).scalar()
    return 0 if manifest is None else max(json.loads(manifest)["evidence"]["audit_next"].values(), default=0)


def forget_files(database: Database, lease: Lease, files: Collection[Leftover]) -> set[str]:
    """Before the files are deleted: one that nobody names harms nothing. Returns the folders of which no file is left."""
    ids = [{"of": f.file_id} for f in files]
    with database.transaction(lease) as connection:
        for table in (tables.groups, tables.audit_groups):
            connection.execute(delete(table).where(table.c.file_id == bindparam("of")), ids)
        connection.execute(delete(_FILES).where(_FILES.c.id == bindparam("of")), ids)
        folders = {f.folder for f in files}
        left = set(connection.execute(select(_FILES.c.batch).where(_FILES.c.batch.in_(sorted(folders))).distinct()).scalars())
    return folders - left


def folders(database: Database) -> tuple[set[str], dict[str, int]]:
    """Batch folders that the ledger names, and the epoch of each lease, in one consistent view."""
    with database.reading() as connection:
        named = set(connection.execute(select(_FILES.c.batch).distinct()).scalars())
        epochs: dict[str, int] = dict(connection.execute(select(tables.leases.c.name, tables.leases.c.epoch)).all())
    return named, epochs
