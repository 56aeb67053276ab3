"""What the proof asks of the ledger, for a whole round of frontiers at once: a few queries,
whatever the number of types.

A frontier asks for its listed groups, and for the promises that count for its hour H below the
central audit offsets of a cut: those of H, and those of earlier hours from `settled_next` on; each
site's by its own offsets. Every row is read and its digest compared; sums are added up here. The
books, and `hourmark ledger check`, ask for groups too.
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
from hourmark_etl.ledger.digests import check
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
    """Of one frontier, by origin hour (Unix seconds).

    `promised` leaves out the groups of `partially_counted`: only some of their rows count, which
    their files tell.
    """

    listed: Mapping[int, Sums]
    promised: Mapping[int, Sums]
    partially_counted: tuple[AuditGroup, ...]


def round_sums(
    database: Database, asked: Sequence[Frontier], below: AuditOffsets
) -> list[RoundSums]:
    """For each frontier in turn; `below`: the cut of promises."""
    groups, promises = listed_groups(database, asked), counting_promises(database, asked, below)
    return [
        _summed(f, listed, counting, below)
        for f, listed, counting in zip(asked, groups, promises, strict=True)
    ]


def _summed(
    f: Frontier, groups: Iterable[StagedGroup], promises: Iterable[AuditGroup], below: AuditOffsets
) -> RoundSums:
    listed, promised = defaultdict[int, Sums](Sums), defaultdict[int, Sums](Sums)
    partially_counted = []
    for g in groups:
        listed[g.hour_s] += listed_sums([g])
    for a in promises:
        if a.last_offset >= below.offset_of(a.site) or (
            a.hour_s < f.hour.start_s and a.first_offset < f.settled_next.offset_of(a.site)
        ):
            partially_counted.append(a)
        else:
            promised[a.hour_s] += promised_sums(a)
    return RoundSums(listed, promised, tuple(partially_counted))


def listed_sums(groups: Iterable[StagedGroup]) -> Sums:
    """What the groups add up to."""
    return sum(map(row_sums, groups), Sums())


def row_sums(g: StagedGroup) -> Sums:
    """Return what the rows of one group add up to."""
    if g.value_sum is None:
        return Sums(g.rows, g.rows, g.low64_sum, unchecked=g.rows)
    return Sums(g.rows, g.rows, g.low64_sum, g.value_sum)


def promised_sums(a: AuditGroup) -> Sums:
    """Return what the promises of one group add up to."""
    unchecked = a.promised if a.unchecked is None else a.unchecked
    return Sums(a.rows, a.promised, a.low64_sum, a.value_sum or 0, unchecked)


def listed_groups(database: Database, asked: Sequence[Frontier]) -> list[list[StagedGroup]]:
    """For each frontier in turn, what a freeze has listed for its hour, late events' groups
    included.
    """
    c = _LISTED.c
    listed = [(FIRST_SITE, lambda one: and_(c.type == one.type, c.listed_hour == one.hour))]
    return _found(database, asked, _LISTED, group_of, listed)


def listed_schema_ids(database: Database, asked: Sequence[Frontier]) -> list[set[int]]:
    """For each frontier in turn, the schema ids of the rows that a freeze has listed for its
    hour.
    """
    c = _LISTED.c
    found: list[set[int]] = [set() for _ in asked]
    for one in _portions(asked, FIRST_SITE):
        listed = and_(c.type == one.c.type, c.listed_hour == one.c.hour)
        for at, schema_ids in database.ask(
            select(one.c.at, c.schema_ids).join(_LISTED, listed).distinct()
        ):
            with contextlib.suppress(
                ValueError, TypeError
            ):  # a damaged row is named where its digest is compared
                found[at].update(json.loads(schema_ids))
    return found


def counting_promises(
    database: Database, asked: Sequence[Frontier], below: AuditOffsets
) -> list[list[AuditGroup]]:
    """For each frontier in turn, groups of which at least one promise counts for its hour."""
    c = _PROMISED.c

    def of_the_hour(one: Any, below_of: ColumnElement[bool]) -> ColumnElement[bool]:
        return and_(c.type == one.type, c.hour == one.hour, below_of)

    def late(one: Any, below_of: ColumnElement[bool]) -> ColumnElement[bool]:
        return and_(c.type == one.type, c.last_offset >= one.settled, c.hour < one.hour, below_of)

    conditions = [
        (
            site,
            functools.partial(counts, below_of=and_(c.first_offset < offset, _is_of(site, below))),
        )
        for site, offset in below.by_site
        for counts in (of_the_hour, late)
    ]
    found = _found(database, asked, _PROMISED, audit_group_of, conditions)
    if unknown := sorted(
        {g.site for of in found for g in of} - {site for site, _ in below.by_site}
    ):
        raise Finding(
            f"the ledger has promises of {', '.join(unknown)}, of which the cut knows "
            "nothing: see kafka.further_edges"
        )
    return found


def _is_of(site: str, below: AuditOffsets) -> ColumnElement[bool]:
    """With the first site's promises, those of a site that `below` does not name: so that nobody
    goes past them unseen.
    """
    column = _PROMISED.c.site
    return (
        or_(column.is_(None), column.not_in(sorted(below.further_sites)))
        if site == FIRST_SITE
        else column == site
    )


def _found(
    database: Database,
    asked: Sequence[Frontier],
    table: Table,
    group: Callable[[Mapping[Any, Any], str], _Group],
    conditions: Iterable[tuple[str, Callable[[Any], ColumnElement[bool]]]],
) -> list[list[_Group]]:
    """For each frontier in turn, the groups of the table that meet a condition; each `group` is
    made of a row and its path.

    `conditions`: by the frontiers' columns, each a query of its own, with what is settled of a
    site.
    """
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
    at_least: AuditOffsets,
    below: AuditOffsets | None,
) -> list[AuditGroup]:
    """Groups of these hours with a promise, perhaps, at central audit offsets [at_least, below);
    `below` None: wherever.
    """
    c = _PROMISED.c
    query = _with_path(_PROMISED).where(c.type == event_type, c.hour.in_(sorted(hours_s)))
    if below is not None:
        between = (
            and_(
                _is_of(site, below),
                c.first_offset < offset,
                c.last_offset >= at_least.offset_of(site),
            )
            for site, offset in below.by_site
        )
        query = query.where(or_(false(), *between))
    return [
        audit_group_of(row, event_type)
        for row in database.ask(query.order_by(_PROMISED.c.id)).mappings()
    ]


def group_of(row: Mapping[Any, Any], event_type: str) -> StagedGroup:
    """Of a whole row and its file's path.

    DamagedRow if it is not as it was written, or listed for an hour before its own.
    """
    check(_LISTED, row, row["path"], event_type)
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


def audit_group_of(row: Mapping[Any, Any], event_type: str) -> AuditGroup:
    """The same of promises."""
    check(_PROMISED, row, row["path"], event_type)
    return from_columns(
        AuditGroup,
        row,
        low64_sum=to_unsigned(row["low64_sum"]),
        site=row["site"] or FIRST_SITE,
        value_sum=_unsigned(row["value_sum"]),
    )


def _portions(asked: Sequence[Frontier], site: str) -> Iterator[Any]:
    """The frontiers as tables of SQL: at (which of `asked`), type, hour, settled (of the site)."""
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
    """As text, because SQLAlchemy compiles a VALUES of its own anew each time."""
    each = ", ".join(f"(:at{n}, :type{n}, :hour{n}, :settled{n})" for n in range(rows))
    # names only
    return (
        "SELECT column1 AS at, column2 AS type, column3 AS hour, column4 AS settled FROM "  # noqa: S608
        f"(VALUES {each}) AS given"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class FileDifference:
    """A staged file of which the ledger's groups have other rows than the file."""

    path: str
    kind: str
    rows: int
    in_groups: int


def file_differences(connection: Connection) -> list[FileDifference]:
    """Staged files whose groups do not add up to them."""
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


def groups_of(database: Database, event_type: str, origin_s: int) -> list[StagedGroup]:
    """The staged groups of one type and origin hour, wherever they are listed."""
    return [group for group, _ in listed_groups_of(database, event_type, origin_s)]


def listed_groups_of(
    database: Database, event_type: str, origin_s: int
) -> list[tuple[StagedGroup, int | None]]:
    """The same, each with the hour of the bucket it is listed for (Unix seconds), where a freeze
    has listed it.
    """
    query = (
        _with_path(_LISTED)
        .where(_LISTED.c.type == event_type, _LISTED.c.hour == origin_s)
        .order_by(_LISTED.c.id)
    )
    return [
        (group_of(row, event_type), row["listed_hour"]) for row in database.ask(query).mappings()
    ]
