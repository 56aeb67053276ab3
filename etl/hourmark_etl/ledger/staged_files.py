"""What staging has left behind: files whose rows are needed or stand in closed buckets, and folders
that no commit can name.

A staged file that cannot be read is replaced by one that was staged again from the same spans: same
groups, another file.

Where that cannot be, an override gives the file up, for one type.
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
from hourmark_etl.ledger.bucket_rows import newest_closed_before
from hourmark_etl.ledger.database import Database, Lease, remove
from hourmark_etl.ledger.digests import check, rewrite
from hourmark_etl.ledger.frontier_rows import offsets_of
from hourmark_etl.ledger.frontiers import force_sealed
from hourmark_etl.ledger.offset_gaps import OffsetGap, put_gaps
from hourmark_etl.model import (
    AUDIT,
    EVENTS,
    FIRST_SITE,
    NO_AUDIT_OFFSETS,
    AuditOffsets,
    Frontier,
    OffsetSpan,
    StagedFile,
    StagedGroup,
    Sums,
    to_unsigned,
)

_FILES = tables.staged_files
_PLACES_MAX: Final = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Garbage:
    """A staged file that nothing will read again; `folder` is its batch's."""

    file_id: int
    path: str
    folder: str


def closed_event_files(
    database: Database, after_id: int, closed_before_ms: int, limit: int
) -> tuple[list[Garbage], int]:
    """Event files all of whose groups stand in buckets closed before this time, among the `limit`
    files after this id.

    Returns them, and the id to go on after: 0 once all were looked at, so that one old file that is
    still needed holds up none.
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


def settled_audit_files(
    database: Database, after_id: int, below: AuditOffsets, limit: int
) -> tuple[list[Garbage], int]:
    """The same of audit files, all of whose promises are of closed hours and lie below these
    central audit offsets.
    """
    groups, frontiers = tables.audit_groups, tables.frontiers
    needed = (
        select(groups.c.file_id)
        .join(frontiers, frontiers.c.type == groups.c.type)
        .where(
            or_(
                _at_or_past(groups.c.last_offset, below.offset_of(FIRST_SITE), below),
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
) -> tuple[list[Garbage], int]:
    looked = select(_FILES.c.id, _FILES.c.path, _FILES.c.batch).where(
        _FILES.c.kind == kind, _FILES.c.id > after_id
    )
    with database.reading() as connection:
        found = [
            Garbage(*row) for row in connection.execute(looked.order_by(_FILES.c.id).limit(limit))
        ]
        if not found:
            return [], 0
        span = needed.where(file_id >= found[0].file_id, file_id <= found[-1].file_id).distinct()
        kept: set[int] = set(connection.execute(span).scalars())
    return [f for f in found if f.file_id not in kept], found[-1].file_id if len(
        found
    ) == limit else 0


def _needed(database: Database) -> dict[Table, ColumnElement[bool]]:
    """By table of groups, joined with their frontier: whose rows no closed bucket holds yet, or no
    seal has settled.

    Promises of a further site are needed until every type has settled them: files hold those of
    all.
    """
    groups, audits, frontiers = tables.groups.c, tables.audit_groups.c, tables.frontiers.c
    settled = [
        offsets_of(*row)
        for row in database.ask(select(frontiers.settled_next, frontiers.settled_further))
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
    """Promises at or past an offset of their site: `first`, or that of a further one; all of a site
    that has none.
    """
    site = tables.audit_groups.c.site
    further = offsets.further_sites
    return or_(
        and_(site.is_(None), offset >= first),
        and_(site.is_not(None), site.not_in(sorted(further))),
        *(and_(site == name, offset >= at) for name, at in further.items()),
    )


def oldest_frontier_ms(database: Database) -> int:
    """When the oldest hour began that is not closed; 0 where there are no types."""
    return 1000 * (database.ask(select(func.min(tables.frontiers.c.hour))).scalar() or 0)


def settled_before(
    database: Database, event_type: str, closed_before_ms: int
) -> AuditOffsets | None:
    """Up to where the type's last bucket closed before this time was proved; None if there
    is none.
    """
    with database.reading() as connection:
        found = newest_closed_before(connection, event_type, closed_before_ms)
    return (
        None
        if found is None
        else AuditOffsets.from_offsets(json.loads(found.manifest)["evidence"]["audit_next"])
    )


def forget_files(database: Database, lease: Lease, files: Collection[Garbage]) -> set[str]:
    """Before the files are deleted: one that nobody names harms nothing.

    Returns the folders of which no file is left.
    """
    ids = [{"id": f.file_id, "file_id": f.file_id} for f in files]
    with database.transaction(lease) as connection:
        for table, key in (
            (tables.groups, "file_id"),
            (tables.audit_groups, "file_id"),
            (_FILES, "id"),
        ):
            remove(connection, table, [key], ids)
        folders = {f.folder for f in files}
        left = set(
            connection.execute(
                select(_FILES.c.batch).where(_FILES.c.batch.in_(sorted(folders))).distinct()
            ).scalars()
        )
    return folders - left


def folders(database: Database) -> tuple[set[str], dict[str, int]]:
    """Batch folders that the ledger names, and the epoch of each lease, in one consistent view."""
    with database.reading() as connection:
        named = set(connection.execute(select(_FILES.c.batch).distinct()).scalars())
        epochs: dict[str, int] = dict(
            connection.execute(select(tables.leases.c.name, tables.leases.c.epoch)).all()
        )
    return named, epochs


@dataclasses.dataclass(frozen=True)
class KnownFile:
    """A staged file, its batch's folder, and its groups by (type, hour)."""

    file_id: int
    file: StagedFile
    folder: str
    groups: Mapping[tuple[str, int], Sums]


def known_file(database: Database, path: str) -> KnownFile:
    """Finding if the ledger does not name the file."""
    with database.reading() as connection:
        row = (
            connection.execute(select(_FILES).where(_FILES.c.path == path)).mappings().one_or_none()
        )
        if row is None:
            raise Finding(
                f"the ledger names no staged file {path}; `hourmark ledger check` "
                "compares ledger and storage"
            )
        check(_FILES, row)
        groups: dict[tuple[str, int], Sums] = {}
        for table in (tables.groups, tables.audit_groups):
            for of in connection.execute(
                select(table).where(table.c.file_id == row["id"])
            ).mappings():
                check(table, of, path, of["type"])
                groups[of["type"], of["hour"]] = Sums(
                    of["rows"],
                    digest=to_unsigned(of["low64_sum"]),
                    values=to_unsigned(of["value_sum"] or 0),
                    unchecked=of["rows"] if of["value_sum"] is None else 0,
                )
    return KnownFile(row["id"], _staged_file(row), row["batch"], groups)


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


def types_in(database: Database, path: str) -> set[str]:
    """The types whose next buckets need events, or promises, of the file; none if the ledger does
    not name it any more.
    """
    return set(database.ask(needed_of(database, "type", _FILES.c.path == path)).scalars())


def needed_of(database: Database, column: str, *where: ColumnElement[bool]) -> CompoundSelect[Any]:
    """The column, of groups that are needed still."""
    return union(
        *(
            select(groups.c[column])
            .join(_FILES, _FILES.c.id == groups.c.file_id)
            .join(tables.frontiers, tables.frontiers.c.type == groups.c.type)
            .where(still, *where)
            for groups, still in _needed(database).items()
        )
    )


def replace_file(
    database: Database, lease: Lease, known: KnownFile, path: str, groups: Collection[StagedGroup]
) -> None:
    """From now on the file's rows stand in `path`; `groups` say where (none for promises)."""
    rows = {(g.event_type, g.hour_s): g.first_row for g in groups}
    with database.transaction(lease) as connection:
        for table in (tables.groups, tables.audit_groups):
            moved = []
            for row in connection.execute(
                select(table).where(table.c.file_id == known.file_id)
            ).mappings():
                check(table, row, known.file.path, row["type"])
                moved.append(
                    (
                        row,
                        {"first_row": rows[row["type"], row["hour"]]}
                        if table is tables.groups
                        else {},
                    )
                )
            rewrite(connection, table, moved, path)
        row = (
            connection.execute(select(_FILES).where(_FILES.c.id == known.file_id)).mappings().one()
        )
        check(_FILES, row)
        rewrite(connection, _FILES, [(row, {"path": path})])


def give_up(
    database: Database, lease: Lease, known: KnownFile, f: Frontier, gap: OffsetGap, forced: str
) -> None:
    """The type no longer waits for its rows of the file; hours that were sealed with them are
    forced. `forced`: whose word it is.

    Offsets and audit cut of a seal stay: a closer that has written such an hour whole may still
    publish it.
    """
    with database.transaction(lease) as connection:
        lost = defaultdict[int, Sums](Sums)
        for table in (tables.groups, tables.audit_groups):
            own = (table.c.file_id == known.file_id, table.c.type == f.event_type)
            if table is tables.groups:
                for row in connection.execute(select(table).where(*own)):
                    is_known = row.value_sum is not None
                    values, unchecked = (
                        (to_unsigned(row.value_sum), 0) if is_known else (0, row.rows)
                    )
                    lost[row.listed_hour] += Sums(
                        row.rows, row.rows, to_unsigned(row.low64_sum), values, unchecked
                    )
            connection.execute(delete(table).where(*own))
        force_sealed(connection, f, lost, (forced, gap.what))
        put_gaps(connection, [gap])


def places(spans: Sequence[OffsetSpan]) -> str:
    """Topics, partitions and offsets, as many as a person reads."""
    named = ", ".join(
        f"topic {s.topic} partition {s.partition} offsets [{s.start}, {s.end})"
        for s in spans[:_PLACES_MAX]
    )
    return (
        named
        if len(spans) <= _PLACES_MAX
        else f"{named} and {len(spans) - _PLACES_MAX} more partitions"
    )
