"""Checks that late rows of a settled range are copies of rows in closed buckets.

If a range is sent again after its hour closed, the same rows arrive again, and writing drops them.
Software that parses the range differently produces other rows. Usually its audit record shows that
(`readings`). If its service died before writing the record, only the record of the first parse
exists, and the other rows would be added to a later bucket. Therefore, if a settled promise covers
late rows, their ids are looked up in closed buckets, as writing does (`ids`). Ids that no bucket
contains are a conflict of the hour that lists them: an override closes it as `forced`, and its
manifest names the range.

The check is skipped for ranges that are missing from a closed bucket according to its manifest
(`Manifest.lacks`), because the late rows may be the missing ones.

Lookups happen only if such rows exist, and only groups of their hours are read.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark_etl.arrow import distinct_values, semi_join
from hourmark_etl.closing.proof.evidence import StagedRowsItem, plan_row_items, read_item_rows
from hourmark_etl.closing.proof.promises import KEY, KEYS, distinct_rows
from hourmark_etl.closing.runner import Runner
from hourmark_etl.ids.lookups import IdQuery, find_contained_ids, to_id_array
from hourmark_etl.ids.removed_buckets import separate_removed
from hourmark_etl.ledger.closed import ClosedBucket, closed_buckets, read_missing_ranges
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.staged.listings import read_assigned_groups
from hourmark_etl.model import Frontier
from hourmark_etl.storage import Storage


class ReparsedRange(NamedTuple):
    """A byte range of a log file whose second delivery contained other events than the first.

    The probable cause is that the lines were parsed with different rules. The events of the first
    delivery are in closed buckets; the additional events of the second one are in none.

    Attributes:
        range_id: Id of the byte range, 8 bytes.
        what: Description of the differences, for log messages.
    """

    range_id: bytes
    what: str


class LateRowsCheck(NamedTuple):
    """Result of checking the late rows of one hourly bucket.

    Late rows are events that arrived after the bucket of their hour was closed. They are assigned
    to a later bucket.

    Attributes:
        second_readings: Byte ranges that must have been parsed twice with different results. A
            closed bucket was verified to contain the whole range, but it does not contain these
            late rows.
        unknown: Human-readable reasons why some rows could not be checked.
    """

    second_readings: tuple[ReparsedRange, ...] = ()
    unknown: tuple[str, ...] = ()


class LateRowsItem(NamedTuple):
    """Input of a task that searches closed buckets for late rows.

    Late rows are events that arrived after the bucket of their hour was closed.

    Attributes:
        rows: The late rows of one or more new buckets.
        closed: For each bucket in `rows.frontier_indexes`, the closed buckets to search.
    """

    rows: StagedRowsItem
    closed: tuple[tuple[ClosedBucket, ...], ...]


class UnmatchedRows(NamedTuple):
    """Numbers of late rows that closed buckets do not contain, by byte range.

    Late rows are events that arrived after the bucket of their hour was closed.

    Attributes:
        found: Columns `frontier_index` (index of the bucket to which the rows are assigned), `hour`
            (Unix seconds), `range_id` and `rows`, the number of distinct event ids that no closed
            bucket contains.
        unknown: Maps a bucket index to the human-readable reason why its rows could not be checked.
            Empty if all rows were checked.
    """

    found: pa.Table
    unknown: Mapping[int, str]


def check_late_rows(
    runner: Runner,
    storage: Storage,
    database: Database,
    frontiers: Mapping[int, Frontier],
    ranges: pa.Table,
    unit_bytes_max: int,
) -> dict[int, LateRowsCheck]:
    """Check whether late rows are duplicates of rows in closed buckets.

    Late rows are events that arrived after the bucket of their hour was closed. They are assigned
    to a new bucket. If a closed bucket was verified to contain a whole byte range, late rows of the
    range must be duplicates. If they are not, the range was parsed twice with different results.

    Args:
        runner: Runs the lookups.
        storage: Storage with staged files and closed buckets.
        database: Database of the ledger.
        frontiers: Event type and hour of each new bucket, by bucket index.
        ranges: Byte ranges that closed buckets contain, with the columns `frontier_index` (bucket
            index), `hour` (Unix seconds) and `range_id`.
        unit_bytes_max: Maximum size of a task, in bytes of encoded events.

    Returns:
        Results by bucket index, for each bucket in `ranges`.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    if not len(ranges):
        return {}
    hours = defaultdict[int, set[int]](set)
    for key in distinct_values(ranges, ["frontier_index", "hour"]).to_pylist():
        hours[key["frontier_index"]].add(key["hour"])
    of = {at: frontiers[at] for at in sorted(hours)}
    groups = read_assigned_groups(database, list(of.values()))
    late = {
        at: (f, [g for g in listed if g.hour_s in hours[at]])
        for (at, f), listed in zip(of.items(), groups, strict=True)
    }
    closed = {
        at: separate_removed(
            storage,
            closed_buckets(database, {f.event_type: hours[at]}, f.hour.length_s)[f.event_type],
            f.hour.length_s,
        )
        for at, f in of.items()
    }
    ranges = _without_hours(ranges, {at: of.unknown_hours for at, of in closed.items()})
    items = [
        LateRowsItem(i, tuple(closed[at].searchable for at in i.frontier_indexes))
        for i in plan_row_items(late, {}, unit_bytes_max)
    ]
    strays = runner.map(
        functools.partial(find_unmatched_rows, storage=storage, ranges=ranges), items
    )
    return {
        at: LateRowsCheck(
            _second_readings(
                database,
                f,
                [s.found.filter(pc.equal(s.found.column("frontier_index"), at)) for s in strays],
            ),
            tuple(sorted({s.unknown[at] for s in strays if at in s.unknown})),
        )
        for at, f in of.items()
    }


def _without_hours(ranges: pa.Table, hours: Mapping[int, Collection[Hour]]) -> pa.Table:
    # Rows of removed buckets are in no bucket that exists, which says nothing about their ranges.
    for at, unknown in hours.items():
        for hour in unknown:
            is_unknown = pc.and_(
                pc.equal(ranges.column("frontier_index"), at),
                pc.equal(ranges.column("hour"), hour.start_s),
            )
            ranges = ranges.filter(pc.invert(is_unknown))
    return ranges


def find_unmatched_rows(item: LateRowsItem, storage: Storage, ranges: pa.Table) -> UnmatchedRows:
    """Count the late rows of given byte ranges that no closed bucket contains.

    Late rows are events that arrived after the bucket of their hour was closed.

    Args:
        item: The rows and the closed buckets to search.
        storage: Storage with staged files and closed buckets.
        ranges: The byte ranges. The columns are `frontier_index` (index of the bucket to which the
            rows are assigned), `hour` (Unix seconds) and `range_id`.

    Returns:
        The counts by byte range. A closed bucket that cannot be read raises no exception; the
        reason is in `unknown`.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    rows_once = distinct_rows(semi_join(read_item_rows(item.rows, storage), ranges, KEY))
    found, unknown = [KEYS.empty_table()], dict[int, str]()
    own = {
        at: rows_once.filter(pc.equal(rows_once.column("frontier_index"), at))
        for at in item.rows.frontier_indexes
    }
    held = find_contained_ids(
        storage,
        [
            IdQuery(of, to_id_array(own[at].column("event_id")))
            for at, of in zip(own, item.closed, strict=True)
        ],
    )
    for (at, rows), is_held in zip(own.items(), held, strict=True):
        if isinstance(is_held, Finding):
            unknown[at] = str(is_held)
        else:
            found.append(rows.filter(pa.array(np.logical_not(is_held))).select(KEY))
    counted = (
        pa.concat_tables(found).group_by(KEY, use_threads=False).aggregate([([], "count_all")])
    )
    return UnmatchedRows(counted.rename_columns([*KEY, "rows"]), unknown)


def _second_readings(
    database: Database, f: Frontier, strays: Collection[pa.Table]
) -> tuple[ReparsedRange, ...]:
    ranges = defaultdict[bytes, Counter[int]](Counter)
    for row in (row for part in strays for row in part.to_pylist()):
        ranges[row["range_id"]][row["hour"]] += row["rows"]
    if not ranges:
        return ()
    lacked = read_missing_ranges(
        database, f.event_type, min(min(hours) for hours in ranges.values())
    )
    if lacked.more:
        return ()
    return tuple(
        ReparsedRange(range_id, _describe(range_id, hours, f.hour.length_s))
        for range_id, hours in sorted(ranges.items())
        if range_id.hex() not in lacked.ranges
    )


def _describe(range_id: bytes, hours: Mapping[int, int], length_s: int) -> str:
    late = ", ".join(
        f"{rows} late events of {Hour(hour_s, length_s)}" for hour_s, rows in sorted(hours.items())
    )
    return (
        f"range {range_id.hex()} was settled by its audit record, but {late} are in no closed "
        "bucket: was it read a second time, "
        "otherwise, by a delivery service that died before its audit record?"
    )
