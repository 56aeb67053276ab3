"""Whether late rows of a settled range are what they are taken for: copies of rows that closed
buckets hold.

A range that is sent again after its hour was closed brings the same rows again, and writing drops
them. Software that reads it otherwise brings others. Its audit record tells that (`readings`);
where its service died before the record, nothing speaks of these rows but the record of the first
reading, and they would stand beside that in a later bucket. So the ids of late rows that a settled
promise explains are looked up in closed buckets, as writing does (`ids`). Those that none holds are
of a second reading, and a conflict of the hour that lists them: an override closes it as `forced`,
and its manifest names the range.

Not where a bucket was closed without rows of that range, and says so: what comes late may be those
(`lacked_since`).

Ids are looked up where there are such rows alone, and of what is listed only groups of their hours
are read.
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
from hourmark_etl.arrow import distinct, matching
from hourmark_etl.closing.proof.evidence import RowsItem, item_rows, rows_items
from hourmark_etl.closing.proof.promises import KEY, KEYS, distinct_rows
from hourmark_etl.closing.runner import Runner
from hourmark_etl.ids.lookups import Asked, as_ids, held
from hourmark_etl.ledger.closed import ClosedBucket, closed_buckets, missing_since
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.listings import listed_groups
from hourmark_etl.model import Frontier
from hourmark_etl.storage import Storage


class SecondReading(NamedTuple):
    """A settled range with late rows that are no copies. `what`: human-readable."""

    range_id: bytes
    what: str


class Told(NamedTuple):
    """Of one frontier. `unknown`: why it cannot be told of all."""

    otherwise: tuple[SecondReading, ...] = ()
    unknown: tuple[str, ...] = ()


class LookupItem(NamedTuple):
    """A unit of late rows. `closed`: for each frontier of `rows.asked`, what may hold them."""

    rows: RowsItem
    closed: tuple[tuple[ClosedBucket, ...], ...]


class Strays(NamedTuple):
    """What an item gave: columns KEY and `rows`, distinct ids that no closed bucket holds; by
    asked, why it cannot be told.
    """

    found: pa.Table
    unknown: Mapping[int, str]


def second_readings(
    runner: Runner,
    storage: Storage,
    database: Database,
    asked: Mapping[int, Frontier],
    keys: pa.Table,
    unit_bytes_max: int,
) -> dict[int, Told]:
    """Of these settled ranges (columns KEY), by asked.

    Unreadable names a staged file that must be staged again.
    """
    if not len(keys):
        return {}
    hours = defaultdict[int, set[int]](set)
    for key in distinct(keys, ["asked", "hour"]).to_pylist():
        hours[key["asked"]].add(key["hour"])
    of = {at: asked[at] for at in sorted(hours)}
    groups = listed_groups(database, list(of.values()))
    late = {
        at: (f, [g for g in listed if g.hour_s in hours[at]])
        for (at, f), listed in zip(of.items(), groups, strict=True)
    }
    closed = {
        at: closed_buckets(database, {f.event_type: hours[at]}, f.hour.length_s)[f.event_type]
        for at, f in of.items()
    }
    items = [
        LookupItem(i, tuple(closed[at] for at in i.asked))
        for i in rows_items(late, {}, unit_bytes_max)
    ]
    strays = runner.map(functools.partial(look_up, storage=storage, keys=keys), items)
    return {
        at: Told(
            _not_waived(
                database, f, [s.found.filter(pc.equal(s.found.column("asked"), at)) for s in strays]
            ),
            tuple(sorted({s.unknown[at] for s in strays if at in s.unknown})),
        )
        for at, f in of.items()
    }


def look_up(item: LookupItem, storage: Storage, keys: pa.Table) -> Strays:
    """Rows of these ranges (columns KEY) that no closed bucket holds."""
    distinct = distinct_rows(matching(item_rows(item.rows, storage), keys, KEY))
    found, unknown = [KEYS.empty_table()], dict[int, str]()
    own = {at: distinct.filter(pc.equal(distinct.column("asked"), at)) for at in item.rows.asked}
    told = held(
        storage,
        [
            Asked(of, as_ids(own[at].column("event_id")))
            for at, of in zip(own, item.closed, strict=True)
        ],
    )
    for (at, rows), is_held in zip(own.items(), told, strict=True):
        if isinstance(is_held, Finding):
            unknown[at] = str(is_held)
        else:
            found.append(rows.filter(pa.array(np.logical_not(is_held))).select(KEY))
    counted = (
        pa.concat_tables(found).group_by(KEY, use_threads=False).aggregate([([], "count_all")])
    )
    return Strays(counted.rename_columns([*KEY, "rows"]), unknown)


def _not_waived(
    database: Database, f: Frontier, strays: Collection[pa.Table]
) -> tuple[SecondReading, ...]:
    ranges = defaultdict[bytes, Counter[int]](Counter)
    for row in (row for part in strays for row in part.to_pylist()):
        ranges[row["range_id"]][row["hour"]] += row["rows"]
    if not ranges:
        return ()
    lacked = missing_since(database, f.event_type, min(min(hours) for hours in ranges.values()))
    if lacked.more:
        return ()
    return tuple(
        SecondReading(range_id, _described(range_id, hours, f.hour.length_s))
        for range_id, hours in sorted(ranges.items())
        if range_id.hex() not in lacked.ranges
    )


def _described(range_id: bytes, hours: Mapping[int, int], length_s: int) -> str:
    late = ", ".join(
        f"{rows} late events of {Hour(hour_s, length_s)}" for hour_s, rows in sorted(hours.items())
    )
    return (
        f"range {range_id.hex()} was settled by its audit record, but {late} are in no closed "
        "bucket: was it read a second time, "
        "otherwise, by a delivery service that died before its audit record?"
    )
