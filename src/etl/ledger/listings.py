"""What the proof asks of the ledger, for a whole round of frontiers at once: a few queries, whatever the number of types.

A frontier asks for its listed groups, and for the promises that count for its hour H below a central audit offset: those of H,
and those of earlier hours from `settled_next` on. Sums are added up in SQL, so a thousand types cost a thousand rows and not one
for each staged group. They are kept as signed 64-bit integers and added as two halves, because no database adds modulo 2^64.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnClause,
    ColumnElement,
    Connection,
    Integer,
    Text,
    and_,
    bindparam,
    func,
    literal,
    or_,
    select,
    text,
)
from sqlalchemy import column as sql_column

from etl.ledger import tables
from etl.ledger.database import Database
from etl.ledger.rows import AuditGroup, Frontier, StagedGroup, to_unsigned

_AT_ONCE: Final = 1000  # frontiers in one query: four variables each, below every database's limit
_LOW: Final = (1 << 32) - 1
_LISTED: Final = tables.groups
_PROMISED: Final = tables.audit_groups
_PATH: Final = tables.staged_files.c.path


@dataclasses.dataclass(frozen=True, slots=True)
class Sums:
    """Of rows, or of promises: how many records, how many events, and the digest of these events modulo 2^64."""

    records: int = 0
    events: int = 0
    digest: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.records + other.records, self.events + other.events, to_unsigned(self.digest + other.digest))


@dataclasses.dataclass(frozen=True)
class RoundSums:
    """Of one frontier, by origin hour (Unix seconds).

    `promised` leaves out the groups of `straddling`: only some of their rows count, which their files tell.
    """

    listed: Mapping[int, Sums]
    promised: Mapping[int, Sums]
    straddling: tuple[AuditGroup, ...]


def round_sums(database: Database, asked: Sequence[Frontier], below: int) -> list[RoundSums]:
    """For each frontier in turn, one consistent view; `below`: the central audit offset of the cut."""
    listed: list[dict[int, Sums]] = [{} for _ in asked]
    promised: list[dict[int, Sums]] = [{} for _ in asked]
    straddling: list[list[AuditGroup]] = [[] for _ in asked]
    with database.reading() as connection:
        for one in _portions(asked):
            for at, hour, *sums in connection.execute(_summed(one, _LISTED, _LISTED.c.rows, _is_listed(one))):
                listed[at][hour] = _sums(*sums)
            for counts in (_of_the_hour(one, below), _late(one, below)):
                whole = and_(counts, _PROMISED.c.last_offset < below, ~_begins_before(one))
                for at, hour, *sums in connection.execute(_summed(one, _PROMISED, _PROMISED.c.promised, whole)):
                    promised[at][hour] = _sums(*sums)
                split = and_(counts, or_(_PROMISED.c.last_offset >= below, _begins_before(one)))
                for at, group in _audit_groups(connection, one, split):
                    straddling[at].append(group)
    return [RoundSums(*of) for of in zip(listed, promised, map(tuple, straddling), strict=True)]


def listed_groups(database: Database, asked: Sequence[Frontier]) -> list[list[StagedGroup]]:
    """For each frontier in turn, what a freeze has listed for its hour, late events' groups included."""
    found: list[list[StagedGroup]] = [[] for _ in asked]
    with database.reading() as connection:
        for one in _portions(asked):
            query = (
                select(
                    one.c.at, _PATH, _LISTED.c.type, _LISTED.c.hour, _LISTED.c.rows, _LISTED.c.bytes, _LISTED.c.tail_sum,
                    _LISTED.c.schema_ids, _LISTED.c.first_row, _LISTED.c.first_id, _LISTED.c.last_id,
                )
                .select_from(one)
                .join(_LISTED, _is_listed(one))
                .join(tables.staged_files, tables.staged_files.c.id == _LISTED.c.file_id)
                .order_by(one.c.at, _LISTED.c.id)
            )  # fmt: skip
            for row in connection.execute(query):
                schema_ids = tuple(json.loads(row[7]))
                found[row[0]].append(StagedGroup(*row[1:6], to_unsigned(row[6]), schema_ids, *row[8:11]))
    return found


def counting_promises(database: Database, asked: Sequence[Frontier], below: int) -> list[list[AuditGroup]]:
    """For each frontier in turn, groups of which at least one promise counts for its hour."""
    found: list[list[AuditGroup]] = [[] for _ in asked]
    with database.reading() as connection:
        for one in _portions(asked):
            for counts in (_of_the_hour(one, below), _late(one, below)):
                for at, group in _audit_groups(connection, one, counts):
                    found[at].append(group)
    return found


def promises_between(
    database: Database, event_type: str, hours_s: Collection[int], at_least: int, below: int
) -> list[AuditGroup]:
    """Groups of these hours with a promise, perhaps, at central audit offsets [at_least, below)."""
    query = (
        select(_PATH, *_audit_columns())
        .select_from(_PROMISED)
        .join(tables.staged_files, tables.staged_files.c.id == _PROMISED.c.file_id)
        .where(
            _PROMISED.c.type == event_type,
            _PROMISED.c.hour.in_(sorted(hours_s)),
            _PROMISED.c.first_offset < below,
            _PROMISED.c.last_offset >= at_least,
        )
        .order_by(_PROMISED.c.id)
    )
    with database.reading() as connection:
        return [_audit_group(row) for row in connection.execute(query)]


def _portions(asked: Sequence[Frontier]) -> Iterator[Any]:
    """The frontiers as tables of SQL: at (which of `asked`), type, hour, settled."""
    columns: list[ColumnClause[Any]] = [
        sql_column("at", Integer), sql_column("type", Text), sql_column("hour", BigInteger), sql_column("settled", BigInteger),
    ]  # fmt: skip
    for first in range(0, len(asked), _AT_ONCE):
        portion = asked[first : first + _AT_ONCE]
        given = [
            bindparam(f"{column.name}{n}", value, column.type)
            for n, f in enumerate(portion)
            for column, value in zip(columns, (first + n, f.event_type, f.hour.start_s, f.settled_next), strict=True)
        ]
        yield text(_values(len(portion))).bindparams(*given).columns(*columns).cte("asked")


@functools.lru_cache(maxsize=64)
def _values(rows: int) -> str:
    """As text, because SQLAlchemy compiles a VALUES of its own anew each time."""
    each = ", ".join(f"(:at{n}, :type{n}, :hour{n}, :settled{n})" for n in range(rows))
    return f"SELECT column1 AS at, column2 AS type, column3 AS hour, column4 AS settled FROM (VALUES {each}) AS given"  # noqa: S608  # names only


def _is_listed(one: Any) -> ColumnElement[bool]:
    return and_(_LISTED.c.type == one.c.type, _LISTED.c.listed_hour == one.c.hour)


def _of_the_hour(one: Any, below: int) -> ColumnElement[bool]:
    return and_(_PROMISED.c.type == one.c.type, _PROMISED.c.hour == one.c.hour, _PROMISED.c.first_offset < below)


def _late(one: Any, below: int) -> ColumnElement[bool]:
    return and_(
        _PROMISED.c.type == one.c.type,
        _PROMISED.c.last_offset >= one.c.settled,
        _PROMISED.c.hour < one.c.hour,
        _PROMISED.c.first_offset < below,
    )


def _begins_before(one: Any) -> ColumnElement[bool]:
    """Of late promises: some are settled already."""
    return and_(_PROMISED.c.hour < one.c.hour, _PROMISED.c.first_offset < one.c.settled)


def _summed(one: Any, table: Any, events: Any, condition: ColumnElement[bool]) -> Any:
    records = func.sum(table.c.rows)
    low, high = func.sum(table.c.tail_sum.op("&")(_LOW)), func.sum(table.c.tail_sum.op(">>")(literal(32, Integer)))
    return (
        select(one.c.at, table.c.hour, records, func.sum(events), low, high)
        .select_from(one)
        .join(table, condition)
        .group_by(one.c.at, table.c.hour)
    )


def _sums(records: int, events: int, low: int, high: int) -> Sums:
    return Sums(int(records), int(events), to_unsigned((int(high) << 32) + int(low)))


def _audit_columns() -> tuple[Any, ...]:
    t = _PROMISED.c
    return t.type, t.hour, t.rows, t.first_offset, t.last_offset, t.promised, t.tail_sum


def _audit_groups(connection: Connection, one: Any, condition: ColumnElement[bool]) -> Iterator[tuple[int, AuditGroup]]:
    query = (
        select(one.c.at, _PATH, *_audit_columns())
        .select_from(one)
        .join(_PROMISED, condition)
        .join(tables.staged_files, tables.staged_files.c.id == _PROMISED.c.file_id)
        .order_by(one.c.at, _PROMISED.c.id)
    )
    for row in connection.execute(query):
        yield row[0], _audit_group(row[1:])


def _audit_group(row: Sequence[Any]) -> AuditGroup:
    path, event_type, hour_s, rows, first, last, promised, tail_sum = row
    return AuditGroup(path, event_type, hour_s, rows, first, last, promised, to_unsigned(tail_sum))
