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
    Frontier,
    StagedGroup,
    Sums,
    from_columns,
    to_unsigned,
)

_Group = TypeVar("_Group")
_AT_ONCE: Final = 1000  # frontiers in one query: four variables each, below every database's limit
_LISTED: Final = tables.groups
_PROMISED: Final = tables.audit_groups


@dataclasses.dataclass(frozen=True)
class RoundSums:
    """Sums of the listed rows and of the promises of one frontier, by origin hour (Unix seconds).

    Attributes:
        listed: Sums of the listed groups.
        promised: Sums of the promises, without the groups in `partially_counted`.
        partially_counted: Groups of which only some promises count; their files show which.
    """

    listed: Mapping[int, Sums]
    promised: Mapping[int, Sums]
    partially_counted: tuple[AuditGroup, ...]


def read_round_sums(
    database: Database, frontiers: Sequence[Frontier], below_offsets: AuditOffsets
) -> list[RoundSums]:
    """Return the sums of each frontier, in the order of the frontiers.

    Args:
        database: The ledger.
        frontiers: Frontiers.
        below_offsets: Audit offsets of the cut; promises at or after them do not count.

    Raises:
        DamagedRow: The digest of a ledger row does not match its content.
        Finding: The ledger has promises of a site that the cut does not contain.
    """
    groups, promises = (
        listed_groups(database, frontiers),
        counting_promises(database, frontiers, below_offsets),
    )
    return [
        _summed(f, listed, counting, below_offsets)
        for f, listed, counting in zip(frontiers, groups, promises, strict=True)
    ]


def _summed(
    f: Frontier, groups: Iterable[StagedGroup], promises: Iterable[AuditGroup], below: AuditOffsets
) -> RoundSums:
    listed, promised = defaultdict[int, Sums](Sums), defaultdict[int, Sums](Sums)
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
    return RoundSums(listed, promised, tuple(partially_counted))


def sum_groups(groups: Iterable[StagedGroup]) -> Sums:
    """Add up the row counts and digests of groups of events; zeros if there are no groups."""
    return sum(map(sum_group, groups), Sums())


def sum_group(group: StagedGroup) -> Sums:
    """Return the row count and digest of one group of events as `Sums`.

    Rows count as unchecked if the group has no sum of value hashes.
    """
    if group.value_sum is None:
        return Sums(group.rows, group.rows, group.low64_sum, unchecked=group.rows)
    return Sums(group.rows, group.rows, group.low64_sum, group.value_sum)


def sum_promises(group: AuditGroup) -> Sums:
    """Return the counts and digest that one group of audit records promises, as `Sums`."""
    unchecked = group.promised if group.unchecked is None else group.unchecked
    return Sums(group.rows, group.promised, group.low64_sum, group.value_sum or 0, unchecked)


def listed_groups(database: Database, frontiers: Sequence[Frontier]) -> list[list[StagedGroup]]:
    """Return the staged groups assigned to each frontier's hour, including groups of late events.

    Args:
        database: The ledger.
        frontiers: Frozen or sealed hours of event types.

    Returns:
        One list per frontier, in the given order.

    Raises:
        DamagedRow: The digest of a ledger row does not match its content.
    """
    c = _LISTED.c
    listed = [(FIRST_SITE, lambda one: and_(c.type == one.type, c.listed_hour == one.hour))]
    return _select_groups(database, frontiers, _LISTED, decode_group, listed)


def listed_schema_ids(database: Database, frontiers: Sequence[Frontier]) -> list[set[int]]:
    """Return the schema ids of the rows assigned to each frontier's hour.

    Rows with an unreadable list of ids are skipped; other queries report them as damaged.

    Args:
        database: The ledger.
        frontiers: Frozen or sealed hours of event types.

    Returns:
        One set per frontier, in the given order.
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


def counting_promises(
    database: Database, frontiers: Sequence[Frontier], below_offsets: AuditOffsets
) -> list[list[AuditGroup]]:
    """Return the groups of which at least one promise counts for each frontier's hour.

    Args:
        database: The ledger.
        frontiers: Frontiers.
        below_offsets: Audit offsets of the cut; promises at or after them do not count.

    Returns:
        One list per frontier, in the given order.

    Raises:
        DamagedRow: The digest of a ledger row does not match its content.
        Finding: The ledger has promises of a site that the cut does not contain.
    """
    c = _PROMISED.c

    def of_the_hour(one: Any, below_of: ColumnElement[bool]) -> ColumnElement[bool]:
        return and_(c.type == one.type, c.hour == one.hour, below_of)

    def late(one: Any, below_of: ColumnElement[bool]) -> ColumnElement[bool]:
        return and_(c.type == one.type, c.last_offset >= one.settled, c.hour < one.hour, below_of)

    conditions = [
        (
            site,
            functools.partial(
                counts, below_of=and_(c.first_offset < offset, _is_of(site, below_offsets))
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
            f"the ledger has promises of {', '.join(unknown)}, of which the cut knows "
            "nothing: see kafka.further_edges"
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


def promises_between(
    database: Database,
    event_type: str,
    hours_s: Collection[int],
    from_offsets: AuditOffsets,
    below_offsets: AuditOffsets | None,
) -> list[AuditGroup]:
    """Return groups of promises that may have a promise in a range of audit offsets.

    Args:
        database: The ledger.
        event_type: Event type.
        hours_s: Hours of the promises, Unix seconds.
        from_offsets: Lowest audit offset of each site.
        below_offsets: End of the range of each site, not included; None for no limits at all.

    Raises:
        DamagedRow: The digest of a ledger row does not match its content.
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
    """Decode a group of events from its ledger row.

    Args:
        row: Complete row of the table `staged_groups`, and the column `path` of its file.
        event_type: Event type to name in the error.

    Raises:
        DamagedRow: The row differs from what was written, or is listed for an hour before its own.
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
    """Decode a group of promises from its ledger row.

    Args:
        row: Complete row of the table `audit_groups`, and the column `path` of its file.
        event_type: Event type to name in the error.

    Raises:
        DamagedRow: The digest of a ledger row does not match its content.
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
    """A staged file whose groups in the ledger have another number of rows than the file.

    Attributes:
        path: Path relative to the storage root.
        kind: EVENTS or AUDIT.
        rows: Rows of the file.
        in_groups: Rows of its groups.
    """

    path: str
    kind: str
    rows: int
    in_groups: int


def file_differences(connection: Connection) -> list[FileDifference]:
    """Return the staged files whose groups do not add up to the file's number of rows.

    Args:
        connection: A transaction of the ledger.
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


def groups_in_hour(database: Database, event_type: str, origin_s: int) -> list[StagedGroup]:
    """Return the staged groups of one event type and origin hour (Unix seconds), listed or not.

    Raises:
        DamagedRow: The digest of a ledger row does not match its content.
    """
    return [group for group, _ in groups_with_listing(database, event_type, origin_s)]


def groups_with_listing(
    database: Database, event_type: str, origin_s: int
) -> list[tuple[StagedGroup, int | None]]:
    """Return the staged groups of an event type and origin hour, with the buckets listing them.

    Args:
        database: The ledger.
        event_type: Event type.
        origin_s: Origin hour, Unix seconds.

    Returns:
        Pairs of a group and the hour of its bucket (Unix seconds), or None if no freeze has listed
        it.

    Raises:
        DamagedRow: The digest of a ledger row does not match its content.
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
