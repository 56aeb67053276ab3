"""Units of work: which listed rows a task takes on, and how it reads them.

Pure planning; reading by `Storage` and Arrow.

What is read is counted, group by group: rows and digest must be what is listed, or the group's file
is Unreadable.

A unit is bounded in bytes: many small listings together, or one id range of a large one. All rows
of one id stand in one unit, whatever their hour, so duplicates meet. Listings stand in a unit by
type, as they do in staged files, so the row groups of a file are read about once a round. Reading
goes file by file, and row groups outside of the id range are not fetched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hourmark_etl.arrow import Int64s, UInt64s, low64s, range_words, schemas_of_runs, value_hashes
from hourmark_etl.errors import Unreadable
from hourmark_etl.ids.lookups import as_ids
from hourmark_etl.model import RANGE_WEIGHT, StagedGroup, Sums
from hourmark_etl.staging.files import EVENT_SCHEMA, ID_MAX, IdRange, RowSlice, read_rows
from hourmark_etl.storage import Storage

_LISTING_COST: Final = (
    1 << 16
)  # a listing without bytes still is a file to write: worth so many bytes of datums
_UNIT_BYTES_MIN: Final = 1 << 20  # what is worth a task of its own


class Listing(NamedTuple):
    """What a freeze has listed for one bucket: groups of its hour, and of earlier hours (its late
    events).
    """

    event_type: str
    hour_s: int  # of the bucket
    groups: tuple[StagedGroup, ...]

    @property
    def datum_bytes(self) -> int:
        """Of all its rows."""
        return sum(g.datum_bytes for g in self.groups)


class Unit(NamedTuple):
    """Work of one task: whole listings, or the ids of one that lie in `slot`. Pickles."""

    listings: tuple[Listing, ...]
    slot: IdRange | None = None  # None: all ids


def plan_units(listings: Iterable[Listing], unit_bytes_max: int, tasks: int = 1) -> list[Unit]:
    """Units of at most `unit_bytes_max` bytes of datums, in order of type and hour; listings
    without groups give none.

    Smaller ones where there would be fewer than `tasks`. A large listing is cut by id as if each
    group's ids were spread evenly between its first and last: where they are not, a slot turns out
    to be `Overfull`.
    """
    filled = sorted((x for x in listings if x.groups), key=lambda x: (x.event_type, x.hour_s))
    weights = [x.datum_bytes + _LISTING_COST for x in filled]
    bytes_max = min(unit_bytes_max, max(sum(weights) // tasks + 1, _UNIT_BYTES_MIN))
    units: list[Unit] = []
    taken: list[Listing] = []
    size = 0
    for listing, weight in zip(filled, weights, strict=True):
        if taken and size + weight > bytes_max:
            units.append(Unit(tuple(taken)))
            taken, size = [], 0
        if listing.datum_bytes > bytes_max:
            units += _slots(listing, -(-listing.datum_bytes // bytes_max))
        else:
            taken.append(listing)
            size += weight
    return [*units, Unit(tuple(taken))] if taken else units


class Overfull(Exception):  # no error: it is read in parts
    """A slot has far more bytes than it was planned for.

    `parts`: what to read in its place, in turn.
    """

    def __init__(self, parts: tuple[Unit, Unit]) -> None:
        super().__init__(parts)
        self.parts = parts


class UnitRows(NamedTuple):
    """A unit's rows, and what was `read` of each group.

    Columns: `listing` (int32, which of `unit.listings`), `hour` (int64, the row's own), `digest`
    (uint64, the row's share of its group's), `value_hash` (uint64), then those asked for.
    """

    table: pa.Table
    read: Mapping[StagedGroup, Sums]


def read_unit(
    unit: Unit, storage: Storage, columns: Sequence[str], datum_bytes_max: int | None = None
) -> UnitRows:
    """Rows in no order between files; a group's rows stand together, sorted by id.

    Unreadable names a file that must be staged again; of a slot, whose groups are read by several
    units, `check_read` is to tell. Value hashes are computed from the datums where these are asked
    for, or the file has none; otherwise they are the file's.

    Overfull, once more than `datum_bytes_max` of a slot are read, unless all are of one id: many
    events of one moment lie close together.
    """
    datum_bytes = 0
    tables, read = (
        [_labelled(EVENT_SCHEMA.empty_table(), [], np.empty(0, np.int64), columns)],
        dict[StagedGroup, Sums](),
    )
    for table, groups, counts in _read_files(
        unit, storage, {"event_id", "range_id", *columns, "value_hash"}
    ):
        tables.append(_labelled(table, groups, counts, columns))
        digests, values = (
            _sums_of_runs(tables[-1].column(name), counts) for name in ("digest", "value_hash")
        )
        for (_, g), *sums in zip(groups, counts.tolist(), digests, values, strict=True):
            read[g] = Sums(0, *sums)
        if "schema_id" in columns:
            _check_schemas(groups, schemas_of_runs(counts, table.column("schema_id").to_numpy()))
        if unit.slot is not None and datum_bytes_max is not None:
            datum_bytes += pc.sum(pc.binary_length(table.column("datum"))).as_py() or 0
            if datum_bytes > datum_bytes_max and (parts := _halves(unit, unit.slot, tables)):
                raise Overfull(parts)
    if unit.slot is None:
        check_read((g for x in unit.listings for g in x.groups), read)
    return UnitRows(pa.concat_tables(tables), read)


def check_read(groups: Iterable[StagedGroup], read: Mapping[StagedGroup, Sums]) -> None:
    """Unreadable for a file of which other rows were read than are listed."""
    for g in groups:
        found = read.get(g, Sums())
        if (found.events, found.digest) == (g.rows, g.low64_sum) and g.value_sum not in (
            None,
            found.values,
        ):
            raise Unreadable(
                g.path,
                f"the values of {g.rows} rows of {g.event_type} in the hour from Unix second "
                f"{g.hour_s} have the checksum "
                f"{found.values:016x}, {g.value_sum:016x} is listed: they are not those that "
                "were staged",
            )
        if (found.events, found.digest) != (g.rows, g.low64_sum):
            raise Unreadable(
                g.path,
                f"{found.events} rows of {g.event_type} in the hour from Unix second {g.hour_s} "
                "were read, with digest "
                f"{found.digest:016x}; {g.rows} with {g.low64_sum:016x} are listed",
            )


def sums_by_hour(hours: Int64s, digests: UInt64s, hashes: UInt64s) -> dict[int, Sums]:
    """Return how many rows each hour has, and the sums of their digests and of their value
    hashes.
    """
    own = {hour: hours == hour for hour in np.unique(hours).tolist()}
    return {
        hour: Sums(
            0, int(rows.sum()), *(int(of[rows].sum(dtype=np.uint64)) for of in (digests, hashes))
        )
        for hour, rows in own.items()
    }


def _sums_of_runs(column: pa.ChunkedArray, counts: Int64s) -> list[int]:
    """Return the sum modulo 2^64 of each run of so many rows."""
    below = np.concatenate([np.zeros(1, np.uint64), np.cumsum(column.to_numpy())])
    ends = np.cumsum(counts)
    sums: list[int] = (
        below[ends] - below[ends - counts]
    ).tolist()  # they wrap at 64 bits, as they must
    return sums


def _read_files(
    unit: Unit, storage: Storage, columns: set[str]
) -> Iterator[tuple[pa.Table, list[tuple[int, StagedGroup]], Int64s]]:
    """File by file: its rows, the groups in turn, each with its listing, and how many rows each
    gave.
    """
    by_path = defaultdict[str, list[tuple[int, StagedGroup]]](list)
    for at, listing in enumerate(unit.listings):
        for g in listing.groups:
            if unit.slot is None or _overlaps(g, unit.slot):
                by_path[g.path].append((at, g))
    hashed = {"event_id", "schema_id", "datum"}
    names = columns - {"value_hash"} | hashed if "datum" in columns else columns
    for path, groups in sorted(by_path.items()):
        groups.sort(key=lambda of: of[1].first_row)
        rows = [RowSlice(g.first_row, g.rows) for _, g in groups]
        table, counts = read_rows(storage, path, rows, sorted(names), unit.slot)
        if "datum" not in names and table.column("value_hash").null_count:  # of version 0.3.0
            table, counts = read_rows(
                storage, path, rows, sorted(columns - {"value_hash"} | hashed), unit.slot
            )
        yield table, groups, counts


def _labelled(
    table: pa.Table,
    groups: Sequence[tuple[int, StagedGroup]],
    counts: Int64s,
    columns: Sequence[str],
) -> pa.Table:
    labels = np.array([(at, g.hour_s) for at, g in groups], np.int64).reshape(-1, 2)
    listing, hour = (
        np.repeat(labels[:, 0].astype(np.int32), counts),
        np.repeat(labels[:, 1], counts),
    )
    digests = low64s(table.column("event_id")) + range_words(table.column("range_id")) * np.uint64(
        RANGE_WEIGHT
    )
    own = [pa.array(listing), pa.array(hour), pa.array(digests), _hashes(table)]
    return pa.table(
        [*own, *table.select(list(columns)).columns],
        names=["listing", "hour", "digest", "value_hash", *columns],
    )


def _hashes(table: pa.Table) -> pa.ChunkedArray:
    """Return the value hashes of the datums in the table; where it has none, those of the file."""
    if "datum" not in table.column_names:
        return table.column("value_hash")
    return pa.chunked_array([_hashes_of(batch) for batch in table.to_batches()], "uint64")


def _hashes_of(batch: pa.RecordBatch) -> pa.Array:
    low64 = low64s(pa.chunked_array([batch.column("event_id")]))
    return pa.array(
        value_hashes(low64, batch.column("schema_id").to_numpy(), batch.column("datum"))
    )


def _check_schemas(
    groups: Sequence[tuple[int, StagedGroup]], found: Sequence[tuple[int, ...]]
) -> None:
    for (_, g), ids in zip(groups, found, strict=True):
        if not set(ids) <= set(g.schema_ids):
            raise Unreadable(
                g.path,
                f"rows of {g.event_type} with schema ids {ids} were read, {g.schema_ids} "
                "are listed",
            )


def _overlaps(group: StagedGroup, slot: IdRange) -> bool:
    return (
        int.from_bytes(group.first_id, "big") <= slot.high
        and int.from_bytes(group.last_id, "big") >= slot.low
    )


def _halves(unit: Unit, slot: IdRange, tables: Sequence[pa.Table]) -> tuple[Unit, Unit] | None:
    """Cut where half of the ids of these tables lie below; None where they are one id."""
    ids = np.unique(np.concatenate([as_ids(table.column("event_id")) for table in tables]))
    if len(ids) < 2:
        return None
    cut = int.from_bytes(
        ids[len(ids) // 2].ljust(16, b"\0"), "big"
    )  # numpy takes zeros off a text's end
    return unit._replace(slot=IdRange(slot.low, cut - 1)), unit._replace(
        slot=IdRange(cut, slot.high)
    )


def _slots(listing: Listing, parts: int) -> list[Unit]:
    """The listing in id ranges of about equal bytes that together hold every id; fewer where ids do
    not allow as many.
    """
    cuts = sorted(set(_cuts(listing.groups, parts)))
    lows, highs = [0, *cuts], [*(c - 1 for c in cuts), ID_MAX]
    return [Unit((listing,), IdRange(low, high)) for low, high in zip(lows, highs, strict=True)]


def _cuts(groups: Collection[StagedGroup], parts: int) -> Iterator[int]:
    """Ids at which the bytes below are k/parts of all.

    Sweep: between two ends of groups, bytes grow evenly with the id.
    """
    steps = defaultdict[int, tuple[float, int]](
        lambda: (0.0, 0)
    )  # id → change of bytes per id, and of groups, from there on
    for g in groups:
        low, high = int.from_bytes(g.first_id, "big"), int.from_bytes(g.last_id, "big") + 1
        for at, sign in ((low, 1), (high, -1)):
            density, active = steps[at]
            steps[at] = (density + sign * g.datum_bytes / (high - low), active + sign)
    share = sum(g.datum_bytes for g in groups) / parts
    below, wanted, before, density, active = 0.0, share, 0, 0.0, 0
    for at, (change, came) in sorted(steps.items()):
        grown = below + density * (at - before)
        while active and wanted <= grown and wanted < share * (parts - 0.5):
            yield before + max(1, int((wanted - below) / density))
            wanted += share
        active += came
        below, density, before = grown, density + change if active else 0.0, at
