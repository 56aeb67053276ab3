"""Rows of closed buckets: recent ones individually, older ones packed by type and day.

The marker on storage is authoritative; the ledger keeps a copy of each, because closing and
operators query many at once. Manifests of one type differ in few numbers, so packing saves most of
the space. A packed row is a zstandard frame with a checksum: one line of JSON with
[hour, grade, closed at (ms), bytes of its manifest] per bucket, then the manifests. Days are in
UTC. The newest bucket of a type is never packed. `late_hours` names the buckets that hold late
events of an hour, so that a lookup does not read every later bucket.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import zstandard
from sqlalchemy import (
    BigInteger,
    ColumnClause,
    Connection,
    Text,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    text,
)
from sqlalchemy import column as sql_column

from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, Lease, replace_rows
from hourmark_etl.ledger.digests import check_digest, with_digest

DAY_S: Final = 86_400
KEPT_DAYS: Final = 8  # whole days before today whose rows are not packed
_BUCKETS, _DAYS, _LATE = tables.buckets, tables.bucket_days, tables.late_hours
_AT_ONCE: Final = 1000  # pairs in one query: two variables each, below every database's limit
_STREAMED: Final = 500  # rows that are fetched at once
_PACKED_AT_ONCE: Final = 50  # days in one transaction: other writers of the ledger wait for it
_UNPACKED_MAX: Final = 1 << 30
_ROW_COLUMNS: Final = ("type", "hour", "grade", "closed_at_ms", "manifest")  # of a `BucketRow`


class BucketRow(NamedTuple):
    """The ledger's record of one closed bucket.

    The ledger is the state database of the ETL.

    Attributes:
        event_type: Name of the event type.
        hour_s: Start of the bucket's hour, Unix seconds.
        grade: Grade of the bucket: `proved`, `timed_out` or `forced`.
        closed_at_ms: Time at which the bucket was closed, Unix milliseconds.
        manifest: Content of the bucket's `_SUCCESS` file.
    """

    event_type: str
    hour_s: int
    grade: str
    closed_at_ms: int
    manifest: str


def make_damaged_bucket_error(event_type: str, hour_s: int) -> DamagedRow:
    """Create the error for a row of a closed bucket that contains no valid manifest.

    Args:
        event_type: Event type of the bucket.
        hour_s: Start of the bucket's hour, Unix seconds.

    Returns:
        The error, which the caller raises.
    """
    return DamagedRow(_BUCKETS.name, f"type {event_type!r}, hour {hour_s}", event_type)


def insert_closed_buckets(connection: Connection, closed: Iterable[tuple[Hour, Manifest]]) -> None:
    """Insert one ledger row per closed bucket.

    The hours of the bucket's late events (events of earlier hours) are inserted into the table
    `late_hours`, so that a search for duplicates finds the bucket.

    Args:
        connection: The caller's transaction.
        closed: Pairs of the bucket's hour and its manifest.
    """
    closed = list(closed)
    if closed:
        connection.execute(insert(_BUCKETS), [_row(hour, manifest) for hour, manifest in closed])
        put_late_hours(
            connection,
            [row for hour, m in closed for row in make_late_hour_rows(m.type, hour, m.late)],
        )


def _row(hour: Hour, manifest: Manifest) -> dict[str, Any]:
    return {
        "type": manifest.type,
        "hour": hour.start_s,
        "grade": manifest.grade.value,
        "manifest": manifest.encode().decode(),
        "closed_at_ms": manifest.closed_at_ms,
    }


def make_late_hour_rows(event_type: str, hour: Hour, late: Iterable[str]) -> list[dict[str, Any]]:
    """Create rows of the table `late_hours`, which records the buckets that contain late events.

    A late event belongs to an earlier hour than its bucket.

    Args:
        event_type: Event type of the bucket.
        hour: Hour of the bucket.
        late: Hours of the bucket's late events, as text.

    Returns:
        One row per late hour, with its digest, ready to be inserted; empty if `late` is empty.

    Raises:
        ValueError: An element of `late` is not a valid hour.
    """
    of_bucket = {"type": event_type, "hour": hour.start_s}
    return [
        with_digest(_LATE, {**of_bucket, "origin": Hour.parse(label, hour.length_s).start_s})
        for label in late
    ]


def put_late_hours(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows into the table `late_hours`; existing rows with the same key are replaced.

    Args:
        connection: The caller's transaction.
        rows: Rows as `make_late_hour_rows` returns them.
    """
    replace_rows(connection, _LATE, ("type", "origin", "hour"), rows)


def find_buckets_with_late_events(
    connection: Connection, origins_s: Mapping[str, Collection[int]]
) -> dict[tuple[str, int], set[int]]:
    """Find the closed buckets that contain late events of the given hours.

    A late event belongs to an earlier hour than its bucket.

    Args:
        connection: A transaction of the ledger.
        origins_s: Maps each event type to the hours to search for, in Unix seconds.

    Returns:
        A mapping from buckets, as pairs of event type and hour in Unix seconds, to those of the
        requested hours whose events the bucket contains. Empty if there are no such buckets.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    found = defaultdict[tuple[str, int], set[int]](set)
    pairs = [
        (event_type, origin) for event_type, origins in origins_s.items() for origin in origins
    ]
    for one in iterate_pair_tables(pairs):
        same = and_(_LATE.c.type == one.c.type, _LATE.c.origin == one.c.at)
        for row in connection.execute(select(_LATE).join(one, same)).mappings():
            check_digest(_LATE, row, event_type=row["type"])
            found[row["type"], row["hour"]].add(row["origin"])
    return found


def read_bucket_manifests(
    connection: Connection, buckets: Collection[tuple[str, int]]
) -> dict[tuple[str, int], str]:
    """Return the manifests of closed buckets.

    Args:
        connection: A transaction of the ledger.
        buckets: Pairs of event type and hour in Unix seconds.

    Returns:
        A mapping from pairs of event type and hour in Unix seconds to manifests as JSON text.
        Buckets that are not closed are omitted.

    Raises:
        DamagedRow: A packed ledger row, which stores the buckets of one day, is damaged.
    """
    found: dict[tuple[str, int], str] = {}
    for one in iterate_pair_tables(buckets):
        query = select(_BUCKETS.c.type, _BUCKETS.c.hour, _BUCKETS.c.manifest)
        same = and_(_BUCKETS.c.type == one.c.type, _BUCKETS.c.hour == one.c.at)
        found |= {
            (event_type, hour_s): manifest
            for event_type, hour_s, manifest in connection.execute(query.join(one, same))
        }
    missing = set(buckets) - found.keys()
    hours = defaultdict[str, set[int]](set)
    for event_type, hour_s in missing:
        hours[event_type].add(hour_s)
    for one in iterate_pair_tables(
        {(event_type, hour_s // DAY_S * DAY_S) for event_type, hour_s in missing}
    ):
        days = select(_DAYS).join(one, and_(_DAYS.c.type == one.c.type, _DAYS.c.day == one.c.at))
        for day in connection.execute(days).mappings():
            of_type = day["type"]
            found |= {
                (of_type, row.hour_s): row.manifest
                for row in _unpacked(day, hours[of_type].__contains__)
            }
    return found


def bucket_rows(
    connection: Connection,
    event_type: str | None = None,
    *,
    from_s: int = 0,
    to_s: int | None = None,
    has_days: bool = True,
) -> Generator[BucketRow]:
    """Yield the ledger's rows of closed buckets in a time span.

    Rows of old days, which are packed into one row per day, come first. Within each event type,
    rows are in ascending order of their hours. Rows are streamed, so memory use does not depend on
    their number.

    Args:
        connection: A transaction of the ledger, which must stay open during the iteration.
        event_type: Name of the event type to read; None reads all types.
        from_s: First hour, Unix seconds.
        to_s: Last hour, Unix seconds, inclusive; None sets no limit.
        has_days: Whether the ledger has a table of packed days; False if its schema version is
            below 6.

    Yields:
        One row per closed bucket; nothing if no bucket was closed in the time span.

    Raises:
        DamagedRow: A packed ledger row is damaged.
    """
    days = select(_DAYS).where(_DAYS.c.day >= from_s // DAY_S * DAY_S)
    days = days.order_by(_DAYS.c.type, _DAYS.c.day)
    recent = select(*(_BUCKETS.c[name] for name in _ROW_COLUMNS)).where(_BUCKETS.c.hour >= from_s)
    if event_type is not None:
        days, recent = (
            days.where(_DAYS.c.type == event_type),
            recent.where(_BUCKETS.c.type == event_type),
        )
    if to_s is not None:
        days, recent = days.where(_DAYS.c.day <= to_s), recent.where(_BUCKETS.c.hour <= to_s)
    streamed = {"yield_per": _STREAMED}
    if has_days:
        with connection.execute(
            days, execution_options=streamed
        ) as result:  # a damaged day ends the loop early
            for day in result.mappings():
                yield from _unpacked(
                    day, lambda hour_s: hour_s >= from_s and (to_s is None or hour_s <= to_s)
                )
    with connection.execute(
        recent.order_by(_BUCKETS.c.type, _BUCKETS.c.hour), execution_options=streamed
    ) as result:
        for row in result:
            yield BucketRow(*row)


def select_bucket_rows(
    connection: Connection,
    ends_s: Mapping[str, int],
    from_s: int = 0,
    grades: Collection[str] = (),
) -> Iterator[BucketRow]:
    """Yield the ledger's rows of closed buckets, with a separate end time for each event type.

    Two database queries are run per 1000 types. Rows are streamed, so memory use does not depend
    on their number.

    Args:
        connection: A transaction of the ledger, which must stay open during the iteration.
        ends_s: Maps each event type to the end of its time span (exclusive), Unix seconds. If
            empty, nothing is yielded.
        from_s: First hour, Unix seconds.
        grades: Grades to read; if empty, all grades are read.

    Yields:
        One row per closed bucket, in no particular order.

    Raises:
        DamagedRow: A packed ledger row is damaged.
    """
    columns = [_BUCKETS.c[name] for name in _ROW_COLUMNS]
    streamed = {"yield_per": _STREAMED}
    last_s = max(ends_s.values(), default=0)  # a constant, by which PostgreSQL estimates the rows
    for one in iterate_pair_tables([*ends_s.items()]):
        own_days = and_(
            _DAYS.c.type == one.c.type,
            _DAYS.c.day >= from_s // DAY_S * DAY_S,
            _DAYS.c.day < one.c.at,
            _DAYS.c.day < last_s,
        )
        query = select(_DAYS).join(one, own_days)
        with connection.execute(query, execution_options=streamed) as result:
            for day in result.mappings():
                hours_s = range(from_s, ends_s[day["type"]])
                unpacked = _unpacked(day, hours_s.__contains__)
                yield from (row for row in unpacked if not grades or row.grade in grades)
        own = and_(
            _BUCKETS.c.type == one.c.type,
            _BUCKETS.c.hour >= from_s,
            _BUCKETS.c.hour < one.c.at,
            _BUCKETS.c.hour < last_s,
        )
        recent = select(*columns).join(one, own)
        if grades:
            recent = recent.where(_BUCKETS.c.grade.in_(sorted(grades)))
        for found in connection.execute(recent, execution_options=streamed):
            yield BucketRow(*found)


def find_newest_closed_bucket(
    connection: Connection, event_type: str, closed_before_ms: int
) -> BucketRow | None:
    """Return the newest bucket of a type among those closed before a given time.

    Args:
        connection: A transaction of the ledger.
        event_type: Name of the event type.
        closed_before_ms: Only buckets closed before this time are considered, Unix milliseconds.

    Returns:
        The bucket's row; None if no bucket was closed before that time.
    """
    recent = select(*(_BUCKETS.c[name] for name in _ROW_COLUMNS)).where(
        _BUCKETS.c.type == event_type, _BUCKETS.c.closed_at_ms < closed_before_ms
    )
    if row := connection.execute(recent.order_by(_BUCKETS.c.hour.desc()).limit(1)).first():
        return BucketRow(*row)
    days = select(_DAYS).where(
        _DAYS.c.type == event_type, _DAYS.c.first_hour * 1000 < closed_before_ms
    )
    for day in connection.execute(days.order_by(_DAYS.c.day.desc())).mappings():
        rows = _unpacked(day, lambda hour_s: hour_s * 1000 < closed_before_ms)
        if closed := [row for row in rows if row.closed_at_ms < closed_before_ms]:
            return closed[-1]
    return None


def read_newest_manifest_with_files(connection: Connection) -> Manifest | None:
    """Return the manifest of the newest closed bucket that has files, of all event types.

    If several buckets of the newest hour have files, the one that was closed last is chosen.
    Damaged rows are skipped; `hourmark ledger check` reports them.

    Args:
        connection: A transaction of the ledger.

    Returns:
        The manifest; None if no closed bucket has files.
    """
    newest = _newest_recent_manifest_with_files(connection)
    days = select(_DAYS).order_by(_DAYS.c.day.desc())
    if newest is not None:  # a type without later buckets keeps an old row that is not packed
        start_s = Hour.parse(newest.hour, newest.bucket_seconds).start_s
        days = days.where(_DAYS.c.day >= start_s // DAY_S * DAY_S)
    known = [] if newest is None else [newest]
    with connection.execute(days, execution_options={"yield_per": 1}) as result:
        for _, of_day in itertools.groupby(result.mappings(), key=lambda day: day["day"]):
            rows = (row for day in of_day for row in _undamaged_rows(day))
            if found := [m for row in rows if (m := _manifest_with_files(row.manifest))]:
                return max([*known, *found], key=lambda m: (m.hour, m.closed_at_ms))
    return newest


def _newest_recent_manifest_with_files(connection: Connection) -> Manifest | None:
    newest_first = _BUCKETS.c.hour.desc(), _BUCKETS.c.closed_at_ms.desc(), _BUCKETS.c.type
    query = select(_BUCKETS.c.type, _BUCKETS.c.hour).order_by(*newest_first)
    keys = [(event_type, hour_s) for event_type, hour_s in connection.execute(query)]
    for at in range(0, len(keys), _STREAMED):
        some = keys[at : at + _STREAMED]
        texts = read_bucket_manifests(connection, some)
        if found := next(filter(None, (_manifest_with_files(texts[key]) for key in some)), None):
            return found
    return None


def _undamaged_rows(day: Mapping[Any, Any]) -> list[BucketRow]:
    try:
        return _unpacked(day, lambda _: True)
    except DamagedRow:
        return []


def _manifest_with_files(text: str) -> Manifest | None:
    try:
        manifest = Manifest.decode(text.encode())
    except ValueError:  # a damaged row
        return None
    return manifest if manifest.files else None


class ClosedSpan(NamedTuple):
    """The number and the time span of the closed hourly buckets of one event type.

    Attributes:
        hours: Number of closed buckets.
        first_s: Hour of the first closed bucket, Unix seconds.
        last_s: Hour of the last closed bucket, Unix seconds.
    """

    hours: int
    first_s: int
    last_s: int


def read_closed_spans(connection: Connection) -> dict[str, ClosedSpan]:
    """Return the number of closed buckets of each event type, with the first and the last hour.

    Args:
        connection: A transaction of the ledger.

    Returns:
        One entry per event type; types without a closed bucket are omitted.
    """
    found: dict[str, ClosedSpan] = {}
    packed = select(
        _DAYS.c.type,
        func.sum(_DAYS.c.hours),
        func.min(_DAYS.c.first_hour),
        func.max(_DAYS.c.last_hour),
    )
    recent = select(
        _BUCKETS.c.type, func.count(), func.min(_BUCKETS.c.hour), func.max(_BUCKETS.c.hour)
    )
    for query in (packed.group_by(_DAYS.c.type), recent.group_by(_BUCKETS.c.type)):
        for event_type, hours, first_s, last_s in connection.execute(query):
            before = found.get(event_type, ClosedSpan(0, first_s, last_s))
            found[event_type] = ClosedSpan(
                before.hours + int(hours), min(before.first_s, first_s), max(before.last_s, last_s)
            )
    return found


def pack_old_bucket_rows(database: Database, lease: Lease, now_ms: int, days_max: int) -> int:
    """Pack the ledger rows of old closed buckets into one row per event type and day.

    This reduces the size of the ledger. Each call packs at most the oldest unpacked day of each
    type, and only if the day ended at least 8 days ago. A day is not packed while staged files
    still have rows assigned to one of its hours, or while one of its bucket rows is damaged.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        now_ms: Current time, Unix milliseconds.
        days_max: Maximum number of packed rows to create in this call.

    Returns:
        The number of packed rows that were created; 0 if no day can be packed.

    Raises:
        StaleDriver: Another process has taken over the lease.
    """
    before_s = now_ms // 1000 // DAY_S * DAY_S - KEPT_DAYS * DAY_S
    chosen = _packable(database, before_s)[:days_max]
    packed = 0
    for at in range(0, len(chosen), _PACKED_AT_ONCE):
        with database.transaction(lease) as connection:
            rows = [
                row
                for event_type, day_s in chosen[at : at + _PACKED_AT_ONCE]
                if (row := _packed_day(connection, event_type, day_s))
            ]
            if rows:
                connection.execute(insert(_DAYS), rows)
                own = (
                    _BUCKETS.c.type == bindparam("of_type"),
                    _BUCKETS.c.hour.between(bindparam("first"), bindparam("last")),
                )
                connection.execute(
                    delete(_BUCKETS).where(*own),
                    [
                        {"of_type": r["type"], "first": r["first_hour"], "last": r["last_hour"]}
                        for r in rows
                    ],
                )
            packed += len(rows)
    return packed


def _packable(database: Database, before_s: int) -> list[tuple[str, int]]:
    # The oldest unpacked day of each type, if all of it may be packed. The newest bucket of a type
    # stays unpacked; it may be years before the frontier, as a back-fill skips empty hours.
    frontiers, groups = tables.frontiers, tables.groups
    oldest = (
        select(func.min(_BUCKETS.c.hour))
        .where(_BUCKETS.c.type == frontiers.c.type)
        .scalar_subquery()
    )
    newest = (
        select(func.max(_BUCKETS.c.hour))
        .where(_BUCKETS.c.type == frontiers.c.type)
        .scalar_subquery()
    )
    listed = (
        select(func.min(groups.c.listed_hour))
        .where(groups.c.type == frontiers.c.type)
        .scalar_subquery()
    )
    found = []
    for event_type, newest_s, oldest_s, listed_s in database.fetch(
        select(frontiers.c.type, newest, oldest, listed)
    ):
        if oldest_s is None:
            continue
        day_s = oldest_s // DAY_S * DAY_S
        end_s = day_s + DAY_S
        if end_s <= before_s and end_s <= newest_s and (listed_s is None or listed_s >= end_s):
            found.append((event_type, day_s))
    return sorted(found, key=lambda of: (of[1], of[0]))


def _packed_day(connection: Connection, event_type: str, day_s: int) -> dict[str, Any] | None:
    query = select(_BUCKETS.c.hour, _BUCKETS.c.grade, _BUCKETS.c.closed_at_ms, _BUCKETS.c.manifest)
    own = (_BUCKETS.c.type == event_type, _BUCKETS.c.hour >= day_s, _BUCKETS.c.hour < day_s + DAY_S)
    rows = [
        BucketRow(event_type, *row)
        for row in connection.execute(query.where(*own).order_by(_BUCKETS.c.hour))
    ]
    try:
        for row in rows:
            Manifest.decode(row.manifest.encode())
    except ValueError:
        return None
    return encode_packed_day(event_type, day_s, rows)


def encode_packed_day(event_type: str, day_s: int, rows: Sequence[BucketRow]) -> dict[str, Any]:
    """Encode all bucket rows of one event type and day as a row of the table `bucket_days`.

    Args:
        event_type: Name of the event type.
        day_s: Start of the day in UTC, Unix seconds.
        rows: Bucket rows of that day in ascending order; at least one.

    Returns:
        The values by column name, ready to be inserted.
    """
    texts = [row.manifest.encode() for row in rows]
    index = [
        [row.hour_s, row.grade, row.closed_at_ms, len(content)]
        for row, content in zip(rows, texts, strict=True)
    ]
    whole = json.dumps(index).encode() + b"\n" + b"".join(texts)
    row = {
        "type": event_type,
        "day": day_s,
        "first_hour": rows[0].hour_s,
        "last_hour": rows[-1].hour_s,
        "hours": len(rows),
        "content": zstandard.ZstdCompressor(level=9, write_checksum=True).compress(whole),
    }
    return with_digest(_DAYS, row)


def _unpacked(day: Mapping[Any, Any], is_wanted: Callable[[int], bool]) -> list[BucketRow]:
    event_type = day["type"]
    check_digest(_DAYS, day, event_type=event_type)
    try:
        head, _, texts = (
            zstandard.ZstdDecompressor()
            .decompress(day["content"], max_output_size=_UNPACKED_MAX)
            .partition(b"\n")
        )
        rows, at = [], 0
        for hour_s, grade, closed_at_ms, size in json.loads(head):
            if is_wanted(hour_s):
                rows.append(
                    BucketRow(
                        event_type, hour_s, grade, closed_at_ms, texts[at : at + size].decode()
                    )
                )
            at += size
        return rows
    except (zstandard.ZstdError, ValueError, TypeError) as error:
        raise DamagedRow(_DAYS.name, f"type {event_type!r}", event_type) from error


def iterate_pair_tables(pairs: Collection[tuple[str, int]]) -> Iterator[Any]:
    """Yield SQL tables that contain the given pairs, for use in joins.

    Each table contains up to 1000 pairs, which stays below the databases' limits on parameters.

    Args:
        pairs: Pairs of an event type and a time in Unix seconds; duplicates are dropped.

    Yields:
        Common table expressions with the columns `type` and `at`; nothing if there are no pairs.
    """
    columns: list[ColumnClause[Any]] = [sql_column("type", Text), sql_column("at", BigInteger)]
    ordered = sorted(set(pairs))
    for first in range(0, len(ordered), _AT_ONCE):
        portion = ordered[first : first + _AT_ONCE]
        given = [
            bindparam(f"{column.name}{n}", value, column.type)
            for n, pair in enumerate(portion)
            for column, value in zip(columns, pair, strict=True)
        ]
        each = ", ".join(f"(:type{n}, :at{n})" for n in range(len(portion)))
        # names only
        query = f"SELECT column1 AS type, column2 AS at FROM (VALUES {each}) AS given"  # noqa: S608
        yield text(query).bindparams(*given).columns(*columns).cte("asked")
