"""Promises against rows, range by range: pure functions over Arrow tables.

Rows are counted once per (range, id), wherever and however often they stand; promises once per (range, content). A key is (asked,
hour, range id), where `asked` is the index of a frontier of the round. Ids that are cut into slots are disjoint, so what each
slot counts adds up. Sums are modulo 2^64, as promised ones are.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hourmark_etl.arrow import low64s, unmatched

KEY: Final = ["asked", "hour", "range_id"]
KEYS: Final = pa.schema([("asked", "int32"), ("hour", "int64"), ("range_id", pa.binary(8))])
# One row an event of a listed group, or of an earlier bucket's unaudited rows.
ROWS: Final = pa.schema([*KEYS, ("event_id", pa.binary(16)), ("earlier", "bool")])
# Distinct ids of a range: `fresh` of them are listed now and were not unaudited before; `held` and `sum` speak of all.
HELD: Final = pa.schema([*KEYS, ("fresh", "int64"), ("held", "int64"), ("sum", "uint64")])
# One row a promise of an audit record; `sum` as staged, signed.
PROMISED: Final = pa.schema([*KEYS, ("count", "int64"), ("sum", "int64"), ("offset", "int64"), ("origin", "string")])


class Unmet(NamedTuple):
    """A promise without exactly its rows."""

    asked: int
    hour: int
    range_id: bytes
    promised: int
    sum: int  # signed
    held: int
    origin: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RangeCounts:
    """What became of some ranges. Verdicts of disjoint ranges add up (`merged`).

    `records` and `promised` speak of distinct promises, by (asked, hour). `unaudited`: columns KEY and `rows`, distinct ids that
    no promise of this verdict explains. `unmet`: all late ones; of those of the frontier's own hour so many that they can be
    named, the others are only counted in `unnamed`, by asked.
    """

    records: Mapping[tuple[int, int], int]
    promised: Mapping[tuple[int, int], int]
    unaudited: pa.Table
    unmet: tuple[Unmet, ...]
    unnamed: Mapping[int, int]


def distinct_rows(rows: pa.Table) -> pa.Table:
    """Each (range, id) of a table of ROWS once; `earlier` where it was an unaudited row of an earlier bucket, whether or not it
    is listed now."""
    return rows.group_by([*KEY, "event_id"], use_threads=False).aggregate([("earlier", "max")]).rename_columns(ROWS.names)


def held(rows: pa.Table) -> pa.Table:
    """Rows → HELD."""
    distinct = distinct_rows(rows)
    fresh = pc.invert(distinct.column("earlier")).cast("int64")
    counted = (
        distinct.select(KEY).append_column("fresh", fresh).append_column("low64", pa.array(low64s(distinct.column("event_id"))))
    )
    return (
        counted.group_by(KEY, use_threads=False)
        .aggregate([("fresh", "sum"), ([], "count_all"), ("low64", "sum")])
        .rename_columns(HELD.names)
        .cast(HELD)
    )


def judge(
    held_parts: Sequence[pa.Table], promised_parts: Sequence[pa.Table], hours: Sequence[int], named_max: int
) -> RangeCounts:
    """Compare the HELD and the PROMISED tables of some ranges: all that there is of them. `hours`: of each frontier asked for."""
    rows = _added_up(pa.concat_tables([HELD.empty_table(), *held_parts]))
    promises = _distinct(pa.concat_tables([PROMISED.empty_table(), *promised_parts]))
    joined = promises.join(rows, KEY, right_suffix="_held", use_threads=False)
    found = pc.fill_null(joined.column("held"), 0)
    same_sum = pc.equal(joined.column("sum").combine_chunks().view("uint64"), joined.column("sum_held"))
    kept = pc.and_(pc.equal(joined.column("count"), found), pc.fill_null(same_sum, False))
    wrong = joined.append_column("found", found).filter(pc.invert(kept))
    unpromised = unmatched(rows.filter(pc.greater(rows.column("fresh"), 0)), promises, KEY)
    once = promises.group_by(KEY, use_threads=False).aggregate([("count", "max")])
    by_hour = once.group_by(KEY[:2], use_threads=False).aggregate([([], "count_all"), ("count_max", "sum")]).to_pylist()
    unmet, unnamed = _unmet(wrong, hours, named_max)
    return RangeCounts(
        records={(r["asked"], r["hour"]): r["count_all"] for r in by_hour},
        promised={(r["asked"], r["hour"]): r["count_max_sum"] for r in by_hour},
        unaudited=unpromised.select([*KEY, "fresh"]).rename_columns([*KEY, "rows"]),
        unmet=unmet,
        unnamed=unnamed,
    )


def merged(verdicts: Sequence[RangeCounts]) -> RangeCounts:
    """The verdict on all ranges of all of these. There must be one."""
    records, promised, unnamed = Counter[tuple[int, int]](), Counter[tuple[int, int]](), Counter[int]()
    for v in verdicts:
        records.update(v.records)
        promised.update(v.promised)
        unnamed.update(v.unnamed)
    return RangeCounts(
        records=records,
        promised=promised,
        unaudited=pa.concat_tables([v.unaudited for v in verdicts]),
        unmet=tuple(sorted(u for v in verdicts for u in v.unmet)),
        unnamed=unnamed,
    )


def _added_up(parts: pa.Table) -> pa.Table:
    return (
        parts.group_by(KEY, use_threads=False)
        .aggregate([("fresh", "sum"), ("held", "sum"), ("sum", "sum")])
        .rename_columns(HELD.names)
    )


def _distinct(promises: pa.Table) -> pa.Table:
    """Each content of a key once."""
    return (
        promises.group_by([*KEY, "count", "sum"], use_threads=False)
        .aggregate([("origin", "first")])
        .rename_columns([*KEY, "count", "sum", "origin"])
    )


def _unmet(wrong: pa.Table, hours: Sequence[int], named_max: int) -> tuple[tuple[Unmet, ...], dict[int, int]]:
    if not len(wrong):
        return (), {}
    wrong = wrong.sort_by([(name, "ascending") for name in KEY])
    asked, hour = wrong.column("asked").to_numpy(), wrong.column("hour").to_numpy()
    timely = hour == np.asarray(hours, np.int64)[asked]  # the last of its frontier's rows, as others are of earlier hours
    starts = np.flatnonzero(np.diff(asked * 2 + timely, prepend=-1))
    rank = np.arange(len(asked)) - np.repeat(starts, np.diff(np.append(starts, len(asked))))
    named = ~timely | (rank < named_max)
    columns = [wrong.filter(pa.array(named)).column(name).to_pylist() for name in (*KEY, "count", "sum", "found", "origin")]
    counts = np.bincount(asked[~named], minlength=1)
    unnamed = {at: int(count) for at, count in enumerate(counts) if count}
    return tuple(Unmet(*row) for row in zip(*columns, strict=True)), unnamed
