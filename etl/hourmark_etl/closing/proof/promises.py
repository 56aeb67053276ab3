"""Compares promises with rows, range by range: pure functions on Arrow tables.

Rows are counted once per (range, id), however often they occur; promises once per (range, content).
A key is (frontier_index, hour, range id), where `frontier_index` is the index of a frontier in the round. Id ranges
of units are disjoint, so their counts can be added. Sums are modulo 2^64, like the promised ones.

Values are compared if the promise has a checksum and each row of the range a hash. The comparison
uses distinct pairs of id and hash, as the delivery service did for the checksum, so two contents of
one id in a batch both count. A copy with another content is a pair of its own, so a duplicate does
not hide a changed value.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hourmark_etl.arrow import anti_join, low64_of_ids

_UNMET: Final = (
    "frontier_index",
    "hour",
    "range_id",
    "count",
    "sum",
    "found",
    "origin",
    "checksum",
    "same_ids",
)
KEY: Final = ["frontier_index", "hour", "range_id"]
KEYS: Final = pa.schema(
    [("frontier_index", "int32"), ("hour", "int64"), ("range_id", pa.binary(8))]
)
# One row an event of a listed group, or of an earlier bucket's unaudited rows. `value_hash`: null
# in files of unaudited rows that version 0.3.0 wrote.
ROWS: Final = pa.schema(
    [*KEYS, ("event_id", pa.binary(16)), ("value_hash", "uint64"), ("earlier", "bool")]
)
# Distinct ids of a range: `fresh` of them are listed now and were not unaudited before; `held` and
# `sum` are of all. `values`: the sum of the value hashes of distinct pairs of id and hash;
# `unhashed`: how many pairs have no hash.
HELD: Final = pa.schema(
    [
        *KEYS,
        ("fresh", "int64"),
        ("held", "int64"),
        ("sum", "uint64"),
        ("values", "uint64"),
        ("unhashed", "int64"),
    ]
)
# One row a promise of an audit record; `sum` as staged, signed; `checksum` null where it has none.
PROMISED: Final = pa.schema(
    [
        *KEYS,
        ("count", "int64"),
        ("sum", "int64"),
        ("checksum", "uint64"),
        ("offset", "int64"),
        ("origin", "string"),
    ]
)


class UnmetPromise(NamedTuple):
    """A promise (an entry of an audit record) that does not match the staged rows.

    A promise states, for one event type and hour, how many events a byte range of a log file
    contains, and the sums of their ids and values. Staged rows are events copied from Kafka.

    Attributes:
        frontier_index: Index of the bucket with which the promise was compared.
        hour: Hour of the events, in Unix seconds.
        range_id: Id of the byte range, 8 bytes.
        promised: Promised number of events.
        sum: Promised sum of the low 64 bits of the event ids, as a signed integer.
        found: Number of distinct event ids in the staged rows.
        origin: Human-readable source of the byte range.
        checksum: Promised sum of the value hashes; None if the promise has no checksum.
        same_ids: Whether the ids match, so that only the values differ.
    """

    frontier_index: int
    hour: int
    range_id: bytes
    promised: int
    sum: int  # signed
    found: int
    origin: str
    checksum: int | None = None
    same_ids: bool = False  # ids are equal, values differ


@dataclasses.dataclass(frozen=True, kw_only=True)
class RangeCounts:
    """Result of comparing audit records with the staged rows of several buckets.

    A promise is one entry of an audit record. It states how many events a byte range of a log file
    contains for one event type and hour. It is met if the staged rows (events copied from Kafka)
    match. `merge_counts` combines the results of disjoint byte ranges.

    Attributes:
        records: Number of byte ranges with a promise, by bucket index and hour (Unix seconds).
        promised: Number of promised events, with the same keys.
        checked: Number of promised events whose values match a checksum, with the same keys.
        unaudited: Byte ranges with rows but without a promise. The columns are `frontier_index`
            (bucket index), `hour`, `range_id` and `rows`, the number of distinct event ids that
            earlier buckets have not stored as unaudited.
        unmet: Promises that are not met, with a limited number for the hour of each bucket.
        unnamed: Number of unmet promises that `unmet` omits, by bucket index.
    """

    records: Mapping[tuple[int, int], int]
    promised: Mapping[tuple[int, int], int]
    checked: Mapping[tuple[int, int], int]
    unaudited: pa.Table
    unmet: tuple[UnmetPromise, ...]
    unnamed: Mapping[int, int]


def distinct_rows(rows: pa.Table) -> pa.Table:
    """Remove duplicate event ids within each byte range of a log file.

    A row is an event that was copied from Kafka, possibly more than once.

    Args:
        rows: Rows with the columns `frontier_index` (bucket index), `hour` (Unix seconds),
            `range_id`, `event_id`, `value_hash` and `earlier`. `earlier` is true for rows of
            earlier buckets that had no audit record.

    Returns:
        One row per distinct id, with the columns `frontier_index`, `hour`, `range_id`, `event_id`
        and `earlier`. `earlier` is true if it is true for any row with this id.
    """
    by_id = [*KEY, "event_id"]
    return (
        rows.group_by(by_id, use_threads=False)
        .aggregate([("earlier", "max")])
        .rename_columns([*by_id, "earlier"])
    )


def distinct_pairs(rows: pa.Table) -> pa.Table:
    """Remove duplicate pairs of event id and value hash within each byte range of a log file.

    A row is an event that was copied from Kafka, possibly more than once.

    Args:
        rows: Rows with the columns `frontier_index` (bucket index), `hour` (Unix seconds),
            `range_id`, `event_id`, `value_hash` and `earlier`. `earlier` is true for rows of
            earlier buckets that had no audit record.

    Returns:
        One row per distinct pair, with the same columns. `earlier` is true if it is true for any
        row with this event id.
    """
    by_pair = [*KEY, "event_id", "value_hash"]
    pairs = rows.group_by(by_pair, use_threads=False).aggregate([])
    return pairs.join(distinct_rows(rows), by_pair[:-1], use_threads=False).select(ROWS.names)


def count_rows_by_range(rows: pa.Table) -> pa.Table:
    """Count the distinct rows of each byte range and add up their ids and value hashes.

    A row is an event that was copied from Kafka, possibly more than once.

    Args:
        rows: Rows with the columns `frontier_index` (bucket index), `hour` (Unix seconds),
            `range_id`, `event_id`, `value_hash` and `earlier`. `earlier` is true for rows of
            earlier buckets that had no audit record.

    Returns:
        One row per bucket, hour and byte range, with the columns `frontier_index`, `hour`,
        `range_id`, `fresh` (number of ids that are not `earlier`), `held` (number of all ids),
        `sum` (sum of the low 64 bits of the ids), `values` (sum of the value hashes) and `unhashed`
        (number of distinct rows without a hash). Sums are modulo 2^64.
    """
    distinct = distinct_rows(rows)
    fresh = pc.invert(distinct.column("earlier")).cast("int64")
    counted = (
        distinct.select(KEY)
        .append_column("fresh", fresh)
        .append_column("low64", pa.array(low64_of_ids(distinct.column("event_id"))))
    )
    ids = counted.group_by(KEY, use_threads=False).aggregate(
        [("fresh", "sum"), ([], "count_all"), ("low64", "sum")]
    )
    pairs = rows.group_by([*KEY, "event_id", "value_hash"], use_threads=False).aggregate([])
    unhashed = pairs.column("value_hash").is_null().cast("int64")
    hashes = pc.fill_null(pairs.column("value_hash"), pa.scalar(0, "uint64"))
    valued = pairs.select(KEY).append_column("values", hashes).append_column("unhashed", unhashed)
    values = valued.group_by(KEY, use_threads=False).aggregate(
        [("values", "sum"), ("unhashed", "sum")]
    )
    return ids.join(values, KEY, use_threads=False).rename_columns(HELD.names).cast(HELD)


def compare_ranges(
    held_parts: Sequence[pa.Table],
    promised_parts: Sequence[pa.Table],
    hours: Sequence[int],
    named_max: int,
) -> RangeCounts:
    """Compare audit records with the staged rows of the same byte ranges.

    Staged rows are events that were copied from Kafka. A promise is one entry of an audit record.
    It states how many events a byte range contains for one type and hour. It is met if the number
    and the sum of the event ids match. If both sides have checksums of the values, these must match
    as well. The function performs no I/O.

    Args:
        held_parts: Tables from `count_rows_by_range`. Counts of the same byte range are added up.
        promised_parts: Tables of promises from `PromiseFilter.select_counting`.
        hours: Hour of each bucket in Unix seconds, by bucket index.
        named_max: Maximum number of unmet promises to return for the hour of each bucket. Unmet
            promises for earlier hours are always returned.

    Returns:
        Totals by bucket index and hour, byte ranges without a promise, and unmet promises.
    """
    rows = _sum_by_range(pa.concat_tables([HELD.empty_table(), *held_parts]))
    promises = _distinct_promises(pa.concat_tables([PROMISED.empty_table(), *promised_parts]))
    joined = promises.join(rows, KEY, right_suffix="_held", use_threads=False)
    found = pc.fill_null(joined.column("held"), 0)
    same_sum = pc.equal(
        joined.column("sum").combine_chunks().view("uint64"), joined.column("sum_held")
    )
    same_ids = pc.and_(pc.equal(joined.column("count"), found), pc.fill_null(same_sum, False))
    is_checked = pc.and_(
        joined.column("checksum").is_valid(),
        pc.fill_null(pc.equal(joined.column("unhashed"), 0), False),
    )
    same_values = pc.fill_null(pc.equal(joined.column("checksum"), joined.column("values")), False)
    kept = pc.and_(same_ids, pc.or_(pc.invert(is_checked), same_values))
    wrong = (
        joined.append_column("found", found)
        .append_column("same_ids", same_ids)
        .filter(pc.invert(kept))
    )
    checked = joined.filter(pc.and_(kept, is_checked))
    unpromised = anti_join(rows.filter(pc.greater(rows.column("fresh"), 0)), promises, KEY)
    once = promises.group_by(KEY, use_threads=False).aggregate([("count", "max")])
    by_hour = (
        once.group_by(KEY[:2], use_threads=False)
        .aggregate([([], "count_all"), ("count_max", "sum")])
        .to_pylist()
    )
    once_checked = checked.group_by(KEY, use_threads=False).aggregate([("count", "max")])
    checked_by_hour = (
        once_checked.group_by(KEY[:2], use_threads=False)
        .aggregate([("count_max", "sum")])
        .to_pylist()
    )
    unmet, unnamed = _list_unmet(wrong, hours, named_max)
    return RangeCounts(
        records={(r["frontier_index"], r["hour"]): r["count_all"] for r in by_hour},
        promised={(r["frontier_index"], r["hour"]): r["count_max_sum"] for r in by_hour},
        checked={(r["frontier_index"], r["hour"]): r["count_max_sum"] for r in checked_by_hour},
        unaudited=unpromised.select([*KEY, "fresh"]).rename_columns([*KEY, "rows"]),
        unmet=unmet,
        unnamed=unnamed,
    )


def merge_counts(verdicts: Sequence[RangeCounts]) -> RangeCounts:
    """Combine the results of `compare_ranges` for disjoint sets of byte ranges.

    Args:
        verdicts: The results; at least one.

    Returns:
        One result for all byte ranges.
    """
    records, promised, checked = (Counter[tuple[int, int]]() for _ in range(3))
    unnamed = Counter[int]()
    for v in verdicts:
        records.update(v.records)
        promised.update(v.promised)
        checked.update(v.checked)
        unnamed.update(v.unnamed)
    return RangeCounts(
        records=records,
        promised=promised,
        checked=checked,
        unaudited=pa.concat_tables([v.unaudited for v in verdicts]),
        unmet=tuple(sorted((u for v in verdicts for u in v.unmet), key=lambda u: u[:7])),
        unnamed=unnamed,
    )


def _sum_by_range(parts: pa.Table) -> pa.Table:
    return (
        parts.group_by(KEY, use_threads=False)
        .aggregate([(name, "sum") for name in HELD.names[len(KEY) :]])
        .rename_columns(HELD.names)
    )


def _distinct_promises(promises: pa.Table) -> pa.Table:
    return (
        promises.group_by([*KEY, "count", "sum", "checksum"], use_threads=False)
        .aggregate([("origin", "first")])
        .rename_columns([*KEY, "count", "sum", "checksum", "origin"])
    )


def _list_unmet(
    wrong: pa.Table, hours: Sequence[int], named_max: int
) -> tuple[tuple[UnmetPromise, ...], dict[int, int]]:
    if not len(wrong):
        return (), {}
    wrong = wrong.sort_by([(name, "ascending") for name in KEY])
    frontier_index, hour = (
        wrong.column("frontier_index").to_numpy(),
        wrong.column("hour").to_numpy(),
    )
    timely = (
        hour == np.asarray(hours, np.int64)[frontier_index]
    )  # these sort last within a frontier, after earlier hours
    starts = np.flatnonzero(np.diff(frontier_index * 2 + timely, prepend=-1))
    rank = np.arange(len(frontier_index)) - np.repeat(
        starts, np.diff(np.append(starts, len(frontier_index)))
    )
    named = ~timely | (rank < named_max)
    columns = [wrong.filter(pa.array(named)).column(name).to_pylist() for name in _UNMET]
    counts = np.bincount(frontier_index[~named], minlength=1)
    unnamed = {at: int(count) for at, count in enumerate(counts) if count}
    return tuple(UnmetPromise(*row) for row in zip(*columns, strict=True)), unnamed
