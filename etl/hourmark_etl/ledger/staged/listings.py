"""Queries of the proof for all frontiers of a round: a few queries for any number of types.

A frontier with hour H needs its listed groups, and the promises that count for H below the audit
offsets of a cut: those of H, and those of earlier hours from `settled_next` on, per site. The
digest of every row is compared when it is read, and sums are computed here. Reconciliation and
`hourmark ledger check` use these queries too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnClause,
    ColumnElement,
    Connection,
    Integer,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    false,
    func,
    or_,
    select,
    text,
)
from sqlalchemy import column as sql_column

from hourmark.errors import Finding
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.digests import check_digest
from hourmark_etl.model import (
    AUDIT,
    EVENTS,
    FIRST_SITE,
    AuditGroup,
    AuditOffsets,
    EventTotals,
    Frontier,
    StagedGroup,
    from_columns,
    to_unsigned,
)

_Group = TypeVar("_Group")
_AT_ONCE: Final = 1000  # frontiers in one query: four variables each, below every database's limit
_LISTED: Final = tables.groups
_PROMISED: Final = tables.audit_groups


@dataclasses.dataclass(frozen=True)
class ProofTotals:
    """Counts and checksums of events that show whether a bucket is complete, by hour of event time.

    Two sides are compared: staged events, which were copied from Kafka to files on storage, and
    promised events, which delivery services state in audit records. If the totals of both sides
    are equal, the bucket is complete, and its staged files need not be read.

    Attributes:
        listed: Totals of the staged rows that are assigned to the bucket, by hour in Unix seconds.
        promised: Totals of the promised events, by hour in Unix seconds, without those in
            `partially_counted`.
        partially_counted: Groups of audit records of which only some must be compared with the
            bucket. Totals of these records can be determined only from the staged files.
    """

    listed: Mapping[int, EventTotals]
    promised: Mapping[int, EventTotals]
    partially_counted: tuple[AuditGroup, ...]


def read_proof_totals(
    database: Database, frontiers: Sequence[Frontier], below_offsets: AuditOffsets
) -> list[ProofTotals]:
    """Return the totals that show whether buckets are complete.

    Staged events were copied from Kafka to files on storage. Promised events are those that
    delivery services state in audit records. If the totals of both are equal, a bucket is complete.

    Args:
        database: The ledger (the ETL's state database).
        frontiers: The hours of the buckets, each the oldest open hour of its event type. They must
            be frozen, that is, their staged rows are assigned to their buckets.
        below_offsets: Only audit records below these offsets count.

    Returns:
        One `ProofTotals` per bucket, in the given order.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
        Finding: The ledger has audit records of a site that `below_offsets` does not name.
    """
    groups, promises = (
        read_assigned_groups(database, frontiers),
        find_counted_audit_groups(database, frontiers, below_offsets),
    )
    return [
        _summed(f, listed, counting, below_offsets)
        for f, listed, counting in zip(frontiers, groups, promises, strict=True)
    ]


def _summed(
    f: Frontier, groups: Iterable[StagedGroup], promises: Iterable[AuditGroup], below: AuditOffsets
) -> ProofTotals:
    listed, promised = (
        defaultdict[int, EventTotals](EventTotals),
        defaultdict[int, EventTotals](EventTotals),
    )
    partially_counted = []
    for g in groups:
        listed[g.hour_s] += sum_groups([g])
    for a in promises:
        if a.last_offset >= below.offset_of(a.site) or (
            a.hour_s < f.hour.start_s and a.first_offset < f.settled_next.offset_of(a.site)
        ):
            partially_counted.append(a)
        else:
            promised[a.hour_s] += sum_promises(a)
    return ProofTotals(listed, promised, tuple(partially_counted))


def sum_groups(groups: Iterable[StagedGroup]) -> EventTotals:
    """Return the totals of several groups of staged events.

    A group contains the rows of one event type and hour in one staged file, which holds copies of
    Kafka records.

    Args:
        groups: Groups to add up.

    Returns:
        The number of rows, digests and value hashes; all zero if there are no groups.
    """
    return sum(map(sum_group, groups), EventTotals())


def sum_group(group: StagedGroup) -> EventTotals:
    """Return the totals of one group of staged events.

    A group contains the rows of one event type and hour in one staged file, which holds copies of
    Kafka records. Groups that version 0.3.0 staged have no value hashes; all their rows count as
    `unchecked`.

    Args:
        group: The group.

    Returns:
        The number of rows, and the sums of their digests and value hashes.
    """
    if group.value_sum is None:
        return EventTotals(group.rows, group.rows, group.low64_sum, unchecked=group.rows)
    return EventTotals(group.rows, group.rows, group.low64_sum, group.value_sum)


def sum_promises(group: AuditGroup) -> EventTotals:
    """Return the totals of the events that one group of audit records describes.

    A group contains the audit records of one event type and hour in one staged file, which holds
    copies of Kafka records. An audit record states ("promises") how many events a delivery service
    wrote for a byte range of a log file. Groups that version 0.3.0 staged have no value hashes; all
    their events count as `unchecked`.

    Args:
        group: The group of audit records.

    Returns:
        The numbers of audit records and promised events, and the sums of their digests and value
        hashes.
    """
    unchecked = group.promised if group.unchecked is None else group.unchecked
    return EventTotals(group.rows, group.promised, group.low64_sum, group.value_sum or 0, unchecked)


def read_assigned_groups(
    database: Database, frontiers: Sequence[Frontier]
) -> list[list[StagedGroup]]:
    """Return the staged events that are assigned to each bucket, as groups of rows.

    A group contains the rows of one event type and hour in one staged file, which holds copies of
    Kafka records. Groups are assigned to a bucket when its hour is frozen, that is, before the
    bucket is checked for completeness. A bucket may have groups of earlier hours (late events).

    Args:
        database: The ledger (the ETL's state database).
        frontiers: The hours whose buckets are requested. They must be frozen or sealed (closing has
            begun).

    Returns:
        One list per frontier, in the given order; a list is empty if its bucket has no staged rows.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    c = _LISTED.c
    listed = [(FIRST_SITE, lambda one: and_(c.type == one.type, c.listed_hour == one.hour))]
    return _select_groups(database, frontiers, _LISTED, decode_group, listed)


def read_assigned_schema_ids(database: Database, frontiers: Sequence[Frontier]) -> list[set[int]]:
    """Return the schema ids of the staged rows that are assigned to each bucket.

    The ledger stores a list of schema ids for the rows of each event type and hour in each staged
    file, which holds copies of Kafka records. Lists that cannot be parsed are skipped, because
    other queries report the damaged row.

    Args:
        database: The ledger (the ETL's state database).
        frontiers: The hours whose buckets are requested. Rows are assigned to a bucket when its
            hour is frozen.

    Returns:
        One set per hour, in the given order; a set is empty if the bucket has no staged rows.
    """
    c = _LISTED.c
    found: list[set[int]] = [set() for _ in frontiers]
    for one in _portions(frontiers, FIRST_SITE):
        listed = and_(c.type == one.c.type, c.listed_hour == one.c.hour)
        for at, schema_ids in database.fetch(
            select(one.c.at, c.schema_ids).join(_LISTED, listed).distinct()
        ):
            with contextlib.suppress(
                ValueError, TypeError
            ):  # a damaged row is named where its digest is compared
                found[at].update(json.loads(schema_ids))
    return found


def find_counted_audit_groups(
    database: Database, frontiers: Sequence[Frontier], below_offsets: AuditOffsets
) -> list[list[AuditGroup]]:
    """Find the groups of audit records with which each bucket must be compared.

    An audit record states how many events a delivery service wrote for a byte range of a log file.
    A group contains the audit records of one event type and hour in one staged file, which holds
    copies of Kafka records. A group is returned if a bucket must be compared with at least one of
    its records. These are the records below `below_offsets`

    - of the bucket's own hour, and
    - of earlier hours, if they arrived too late for an earlier bucket.

    Args:
        database: The ledger (the ETL's state database).
        frontiers: The hours whose buckets are requested, each the oldest open hour of its type.
        below_offsets: For each site (edge cluster), the end offset (exclusive) in its audit topic.

    Returns:
        One list of groups per frontier, in the given order; a list is empty if there are no audit
        records to compare.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
        Finding: The ledger has audit records of a site that `below_offsets` does not name.
    """
    c = _PROMISED.c

    def of_the_hour(
        one: Any,
        below_of: ColumnElement[bool],
        end: int,  # noqa: ARG001  # the same arguments as `late`
    ) -> ColumnElement[bool]:
        return and_(c.type == one.type, c.hour == one.hour, below_of)

    def late(one: Any, below_of: ColumnElement[bool], end: int) -> ColumnElement[bool]:
        # Nothing is late for the later hours of a round, which are settled up to the same offsets.
        return and_(
            one.settled < end,
            c.type == one.type,
            c.last_offset >= one.settled,
            c.hour < one.hour,
            below_of,
        )

    conditions = [
        (
            site,
            functools.partial(
                counts,
                below_of=and_(c.first_offset < offset, _is_of(site, below_offsets)),
                end=offset,
            ),
        )
        for site, offset in below_offsets.by_site
        for counts in (of_the_hour, late)
    ]
    found = _select_groups(database, frontiers, _PROMISED, decode_audit_group, conditions)
    if unknown := sorted(
        {g.site for of in found for g in of} - {site for site, _ in below_offsets.by_site}
    ):
        raise Finding(
            f"the ledger has promises of the sites {', '.join(unknown)}, which the cut does not "
            "include; check kafka.further_edges"
        )
    return found


def _is_of(site: str, below: AuditOffsets) -> ColumnElement[bool]:
    # Promises of sites that `below` does not name count as the first site's, so that they are
    # noticed.
    column = _PROMISED.c.site
    return (
        or_(column.is_(None), column.not_in(sorted(below.further_sites)))
        if site == FIRST_SITE
        else column == site
    )


def _select_groups(
    database: Database,
    asked: Sequence[Frontier],
    table: Table,
    group: Callable[[Mapping[Any, Any], str], _Group],
    conditions: Iterable[tuple[str, Callable[[Any], ColumnElement[bool]]]],
) -> list[list[_Group]]:
    found: list[list[_Group]] = [[] for _ in asked]
    with database.reading() as connection:
        for site, is_asked in conditions:
            for one in _portions(asked, site):
                query = (
                    _with_path(table, one.c.at)
                    .join(one, is_asked(one.c))
                    .order_by(one.c.at, table.c.id)
                )
                for row in connection.execute(query).mappings():
                    found[row["at"]].append(group(row, asked[row["at"]].event_type))
    return found


def _with_path(table: Table, *more: ColumnElement[Any]) -> Select[Any]:
    files = tables.staged_files
    return (
        select(*more, files.c.path, table)
        .select_from(table)
        .join(files, files.c.id == table.c.file_id)
    )


def find_audit_groups_between(
    database: Database,
    event_type: str,
    hours_s: Collection[int],
    from_offsets: AuditOffsets,
    below_offsets: AuditOffsets | None,
) -> list[AuditGroup]:
    """Find the groups of audit records of an event type that overlap a range of offsets.

    An audit record states how many events a delivery service wrote for a byte range of a log file.
    A group contains the audit records of one event type and hour in one staged file, which holds
    copies of Kafka records. A returned group may also contain records outside the range.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Name of the event type.
        hours_s: Hours to which the described events belong, Unix seconds.
        from_offsets: Start of the range in the audit topic of each site (edge cluster).
        below_offsets: End of the range (exclusive) for each site. If it is None, `from_offsets` is
            ignored, and groups at all offsets are returned.

    Returns:
        The groups in the order in which they were staged; empty if there are none.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    c = _PROMISED.c
    query = _with_path(_PROMISED).where(c.type == event_type, c.hour.in_(sorted(hours_s)))
    if below_offsets is not None:
        between = (
            and_(
                _is_of(site, below_offsets),
                c.first_offset < offset,
                c.last_offset >= from_offsets.offset_of(site),
            )
            for site, offset in below_offsets.by_site
        )
        query = query.where(or_(false(), *between))
    return [
        decode_audit_group(row, event_type)
        for row in database.fetch(query.order_by(_PROMISED.c.id)).mappings()
    ]


def decode_group(row: Mapping[Any, Any], event_type: str) -> StagedGroup:
    """Convert a row of the table `staged_groups` to a group of staged events.

    A group contains the rows of one event type and hour in one staged file, which holds copies of
    Kafka records.

    Args:
        row: All columns of the row, and the column `path` of its staged file.
        event_type: Event type to store in the error.

    Returns:
        The group, with its path, totals and range of event ids.

    Raises:
        DamagedRow: The row does not match its digest, or the group is assigned to a bucket before
            its own hour.
    """
    check_digest(_LISTED, row, row["path"], event_type)
    if row["listed_hour"] is not None and row["listed_hour"] < row["hour"]:
        raise DamagedRow(
            _LISTED.name, f"id {row['id']}, of {row['path']}, listed before its hour", event_type
        )
    schema_ids = tuple(json.loads(row["schema_ids"]))
    return from_columns(
        StagedGroup,
        row,
        low64_sum=to_unsigned(row["low64_sum"]),
        schema_ids=schema_ids,
        value_sum=_unsigned(row["value_sum"]),
    )


def _unsigned(value: int | None) -> int | None:
    return None if value is None else to_unsigned(value)


def decode_audit_group(row: Mapping[Any, Any], event_type: str) -> AuditGroup:
    """Convert a row of the table `audit_groups` to a group of audit records.

    A group contains the audit records of one event type and hour in one staged file, which holds
    copies of Kafka records. An audit record states how many events a delivery service wrote for a
    byte range of a log file.

    Args:
        row: All columns of the row, and the column `path` of its staged file.
        event_type: Event type to store in the error.

    Returns:
        The group, with its path, totals and range of audit offsets.

    Raises:
        DamagedRow: The row does not match its digest; restore or rebuild the ledger (the ETL's
            state database).
    """
    check_digest(_PROMISED, row, row["path"], event_type)
    return from_columns(
        AuditGroup,
        row,
        low64_sum=to_unsigned(row["low64_sum"]),
        site=row["site"] or FIRST_SITE,
        value_sum=_unsigned(row["value_sum"]),
    )


def _portions(asked: Sequence[Frontier], site: str) -> Iterator[Any]:
    columns: list[ColumnClause[Any]] = [
        sql_column("at", Integer),
        sql_column("type", Text),
        sql_column("hour", BigInteger),
        sql_column("settled", BigInteger),
    ]
    for first in range(0, len(asked), _AT_ONCE):
        portion = asked[first : first + _AT_ONCE]
        given = [
            bindparam(f"{column.name}{n}", value, column.type)
            for n, f in enumerate(portion)
            for column, value in zip(
                columns,
                (first + n, f.event_type, f.hour.start_s, f.settled_next.offset_of(site)),
                strict=True,
            )
        ]
        yield text(_values(len(portion))).bindparams(*given).columns(*columns).cte("asked")


@functools.lru_cache(maxsize=64)
def _values(rows: int) -> str:
    # Text, because SQLAlchemy compiles its own VALUES each time.
    each = ", ".join(f"(:at{n}, :type{n}, :hour{n}, :settled{n})" for n in range(rows))
    # names only
    return (
        "SELECT column1 AS at, column2 AS type, column3 AS hour, column4 AS settled FROM "  # noqa: S608
        f"(VALUES {each}) AS given"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class FileDifference:
    """A staged file whose row count in the ledger differs from the sum of its groups' row counts.

    The ledger is the state database of the ETL. A group contains the rows of one event type and
    hour in one staged file, which holds copies of Kafka records.

    Attributes:
        path: Path relative to the storage root.
        kind: Whether the file contains events (`EVENTS`) or audit records (`AUDIT`).
        rows: Number of rows of the file, as recorded in the ledger.
        in_groups: Total number of rows of the file's groups.
    """

    path: str
    kind: str
    rows: int
    in_groups: int


def find_file_differences(connection: Connection) -> list[FileDifference]:
    """Find the staged files whose row count differs from the sum of the row counts of their groups.

    A group contains the rows of one event type and hour in one staged file, which holds copies of
    Kafka records. A difference means that the ledger is damaged.

    Args:
        connection: A transaction of the ledger (the ETL's state database).

    Returns:
        One entry per such file; empty if all files are consistent.
    """
    files, found = tables.staged_files, []
    for kind, groups in ((EVENTS, tables.groups), (AUDIT, tables.audit_groups)):
        summed = func.coalesce(func.sum(groups.c.rows), 0)
        query = (
            select(files.c.path, files.c.rows, summed)
            .outerjoin(groups, groups.c.file_id == files.c.id)
            .where(files.c.kind == kind)
            .group_by(files.c.id, files.c.path, files.c.rows)
            .having(summed != files.c.rows)
        )
        found += [
            FileDifference(path, kind, rows, int(added))
            for path, rows, added in connection.execute(query)
        ]
    return found


def read_groups_of_hour(database: Database, event_type: str, origin_s: int) -> list[StagedGroup]:
    """Return all staged events of one type and hour, as groups of rows.

    A group contains the rows of one event type and hour in one staged file, which holds copies of
    Kafka records. Groups that are not assigned to a bucket yet are included.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Name of the event type.
        origin_s: Hour of the event timestamps, Unix seconds.

    Returns:
        The groups; empty if no events of the hour were staged, or their files were deleted.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    return [group for group, _ in read_groups_with_buckets(database, event_type, origin_s)]


def read_groups_with_buckets(
    database: Database, event_type: str, origin_s: int
) -> list[tuple[StagedGroup, int | None]]:
    """Return all staged events of one type and hour, as groups of rows with the bucket of each.

    A group contains the rows of one event type and hour in one staged file, which holds copies of
    Kafka records.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Name of the event type.
        origin_s: Hour of the event timestamps, Unix seconds.

    Returns:
        Pairs of a group and the hour of its bucket in Unix seconds. The hour is None if the group
        is not assigned to a bucket yet.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    query = (
        _with_path(_LISTED)
        .where(_LISTED.c.type == event_type, _LISTED.c.hour == origin_s)
        .order_by(_LISTED.c.id)
    )
    return [
        (decode_group(row, event_type), row["listed_hour"])
        for row in database.fetch(query).mappings()
    ]
