"""Units of work: which listed rows one task reads, and how it reads them.

Planning is pure. Reading uses `Storage` and Arrow, and verifies each group: the number of rows and
their digest must match the ledger, otherwise the group's file is `Unreadable`.

A unit is bounded in bytes: it contains many small listings, or one id range of a large listing. All
rows of one id are in the same unit, whatever their hour, so duplicates are found. Listings are
ordered by type, as in staged files, so a file's row groups are read about once per round. Files are
read one at a time, and row groups outside the id range are not fetched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hourmark_etl.arrow import (
    Int64s,
    UInt64s,
    distinct_schemas_by_run,
    low64_of_ids,
    range_ids_to_ints,
    value_hashes,
)
from hourmark_etl.errors import Unreadable
from hourmark_etl.ids.lookups import to_id_array
from hourmark_etl.model import RANGE_WEIGHT, EventTotals, StagedGroup
from hourmark_etl.staging.files import EVENT_SCHEMA, ID_MAX, IdRange, RowSlice, read_rows
from hourmark_etl.storage import Storage

_LISTING_COST: Final = (
    1 << 16
)  # a listing of any size is a file to write, which costs as much as this many bytes
_UNIT_BYTES_MIN: Final = 1 << 20  # smallest unit that is worth a task of its own


class Listing(NamedTuple):
    """The staged rows of one bucket.

    Staged files contain copies of Kafka records. A group contains the rows of one event type and
    hour in one staged file.

    Attributes:
        event_type: The bucket's event type.
        hour_s: Unix seconds at the start of the bucket's hour.
        groups: Groups of the bucket's hour and, for late events, of earlier hours.
    """

    event_type: str
    hour_s: int  # of the bucket
    groups: tuple[StagedGroup, ...]

    @property
    def datum_bytes(self) -> int:
        """Return the total size of the bucket's staged events, including duplicates.

        Returns:
            Bytes of Avro datums; 0 if there are no groups.
        """
        return sum(g.datum_bytes for g in self.groups)


class Unit(NamedTuple):
    """The staged rows that one task reads at once.

    A unit contains all rows of several small buckets, or the rows in one range of event ids of a
    large bucket. Staged rows are events that were copied from Kafka. Instances can be pickled.

    Attributes:
        listings: The rows of each bucket; exactly one bucket if `slot` is set.
        slot: Range of event ids to read; None for all ids.
    """

    listings: tuple[Listing, ...]
    slot: IdRange | None = None  # None: all ids


def plan_units(listings: Iterable[Listing], unit_bytes_max: int, tasks: int = 1) -> list[Unit]:
    """Divide the staged rows of several buckets into units of limited size.

    Staged rows are events that were copied from Kafka to files on storage. Each unit is read by one
    task. Small buckets are combined into one unit. Large buckets are split by event id, assuming
    that ids are evenly distributed. If they are not, `read_unit` raises `OversizedUnit`.

    Args:
        listings: The rows of each bucket. Buckets without rows are skipped.
        unit_bytes_max: Maximum size of a unit, in bytes of encoded events.
        tasks: Number of tasks that can run in parallel. Smaller units are created if this is
            necessary to use all tasks.

    Returns:
        Units in order of event type and hour; empty if there are no rows.
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


class OversizedUnit(Exception):  # control flow, not an error
    """Raised by `read_unit` if an id range contains more bytes than the limit.

    This happens if event ids are not evenly distributed. Catch this exception and read the two
    parts one after the other instead.

    Attributes:
        parts: The two units to read instead, in the order of their ids.
    """

    def __init__(self, parts: tuple[Unit, Unit]) -> None:
        super().__init__(parts)
        self.parts = parts


class UnitRows(NamedTuple):
    """The staged rows of a unit, with totals to verify them.

    Staged rows are events that were copied from Kafka to files on storage.

    Attributes:
        table: Columns `listing` (int32, index into `unit.listings`), `hour` (int64, hour of event
            time in Unix seconds), `digest` (uint64, computed from event id and range id),
            `value_hash` (uint64), and the requested columns.
        read: Totals of the rows by group. A group contains the rows of one event type and hour in
            one staged file.
    """

    table: pa.Table
    read: Mapping[StagedGroup, EventTotals]


def read_unit(
    unit: Unit, storage: Storage, columns: Sequence[str], datum_bytes_max: int | None = None
) -> UnitRows:
    """Read the rows of a unit from staged files, and verify them against the ledger's totals.

    The ledger (the ETL's state database) stores totals for each group: the rows of one event type
    and hour in one staged file. If the unit is an id range, it contains only a part of each group,
    so totals are not verified; call `verify_read_rows` after all units have been read.

    Args:
        unit: The rows to read.
        storage: Storage with the staged files.
        columns: Names of the columns to return. `datum_bytes_max` requires the column `datum`.
        datum_bytes_max: Maximum size of an id range, in bytes of encoded events; None for no limit.

    Returns:
        The rows, and totals by group. The rows of a group are adjacent and sorted by event id.

    Raises:
        Unreadable: A file is missing or damaged, or differs from the ledger. It must be staged
            again.
        OversizedUnit: The id range exceeds `datum_bytes_max` and can be split.
    """
    datum_bytes = 0
    tables, read = (
        [_labelled(EVENT_SCHEMA.empty_table(), [], np.empty(0, np.int64), columns)],
        dict[StagedGroup, EventTotals](),
    )
    for table, groups, counts in _read_files(
        unit, storage, {"event_id", "range_id", *columns, "value_hash"}
    ):
        tables.append(_labelled(table, groups, counts, columns))
        digests, values = (
            _sums_of_runs(tables[-1].column(name), counts) for name in ("digest", "value_hash")
        )
        for (_, g), *sums in zip(groups, counts.tolist(), digests, values, strict=True):
            read[g] = EventTotals(0, *sums)
        if "schema_id" in columns:
            _check_schemas(
                groups, distinct_schemas_by_run(counts, table.column("schema_id").to_numpy())
            )
        if unit.slot is not None and datum_bytes_max is not None:
            datum_bytes += pc.sum(pc.binary_length(table.column("datum"))).as_py() or 0
            if datum_bytes > datum_bytes_max and (parts := _halves(unit, unit.slot, tables)):
                raise OversizedUnit(parts)
    if unit.slot is None:
        verify_read_rows((g for x in unit.listings for g in x.groups), read)
    return UnitRows(pa.concat_tables(tables), read)


def verify_read_rows(
    groups: Iterable[StagedGroup], read: Mapping[StagedGroup, EventTotals]
) -> None:
    """Verify that the rows read from staged files match the totals in the ledger.

    The ledger is the state database of the ETL. It stores totals for each group, which contains the
    rows of one event type and hour in one staged file.

    Args:
        groups: The groups that should have been read, with their expected totals.
        read: Totals of the rows that were read, by group.

    Raises:
        Unreadable: The number of rows, the digest or the checksum of a group differs. The error
            names the staged file, which must be staged again.
    """
    for g in groups:
        found = read.get(g, EventTotals())
        if (found.events, found.digest) == (g.rows, g.low64_sum) and g.value_sum not in (
            None,
            found.values,
        ):
            raise Unreadable(
                g.path,
                f"the values of {g.rows} rows of {g.event_type} in the hour from Unix second "
                f"{g.hour_s} have the checksum {found.values:016x} instead of "
                f"{g.value_sum:016x}, so they differ from those that were staged",
            )
        if (found.events, found.digest) != (g.rows, g.low64_sum):
            raise Unreadable(
                g.path,
                f"{found.events} rows of {g.event_type} in the hour from Unix second {g.hour_s} "
                f"were read, with digest {found.digest:016x}; expected {g.rows} rows with digest "
                f"{g.low64_sum:016x}",
            )


def totals_by_hour(hours: Int64s, digests: UInt64s, hashes: UInt64s) -> dict[int, EventTotals]:
    """Compute the totals of rows for each hour of event time.

    The three arrays have one element per row.

    Args:
        hours: Hour of each row in Unix seconds.
        digests: Digest of each row, which depends on its event id and range id.
        hashes: Hash of each row's value.

    Returns:
        Number of rows, and sums of their digests and hashes modulo 2^64, by hour in Unix seconds;
        empty if there are no rows.
    """
    own = {hour: hours == hour for hour in np.unique(hours).tolist()}
    return {
        hour: EventTotals(
            0, int(rows.sum()), *(int(of[rows].sum(dtype=np.uint64)) for of in (digests, hashes))
        )
        for hour, rows in own.items()
    }


def _sums_of_runs(column: pa.ChunkedArray, counts: Int64s) -> list[int]:
    below = np.concatenate([np.zeros(1, np.uint64), np.cumsum(column.to_numpy())])
    ends = np.cumsum(counts)
    sums: list[int] = (below[ends] - below[ends - counts]).tolist()  # intended to wrap at 64 bits
    return sums


def _read_files(
    unit: Unit, storage: Storage, columns: set[str]
) -> Iterator[tuple[pa.Table, list[tuple[int, StagedGroup]], Int64s]]:
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
        if (
            "datum" not in names and table.column("value_hash").null_count
        ):  # written by version 0.3.0
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
    digests = low64_of_ids(table.column("event_id")) + range_ids_to_ints(
        table.column("range_id")
    ) * np.uint64(RANGE_WEIGHT)
    own = [pa.array(listing), pa.array(hour), pa.array(digests), _hashes(table)]
    return pa.table(
        [*own, *table.select(list(columns)).columns],
        names=["listing", "hour", "digest", "value_hash", *columns],
    )


def _hashes(table: pa.Table) -> pa.ChunkedArray:
    if "datum" not in table.column_names:
        return table.column("value_hash")
    return pa.chunked_array([_hashes_of(batch) for batch in table.to_batches()], "uint64")


def _hashes_of(batch: pa.RecordBatch) -> pa.Array:
    low64 = low64_of_ids(pa.chunked_array([batch.column("event_id")]))
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
                f"rows of {g.event_type} with schema ids {ids} were read, but only "
                f"{g.schema_ids} are listed",
            )


def _overlaps(group: StagedGroup, slot: IdRange) -> bool:
    return (
        int.from_bytes(group.first_id, "big") <= slot.high
        and int.from_bytes(group.last_id, "big") >= slot.low
    )


def _halves(unit: Unit, slot: IdRange, tables: Sequence[pa.Table]) -> tuple[Unit, Unit] | None:
    # Split a unit at the median of the ids that were read; None if there is only one id.
    ids = np.unique(np.concatenate([to_id_array(table.column("event_id")) for table in tables]))
    if len(ids) < 2:
        return None
    cut = int.from_bytes(
        ids[len(ids) // 2].ljust(16, b"\0"), "big"
    )  # numpy strips trailing zero bytes
    return unit._replace(slot=IdRange(slot.low, cut - 1)), unit._replace(
        slot=IdRange(cut, slot.high)
    )


def _slots(listing: Listing, parts: int) -> list[Unit]:
    cuts = sorted(set(_cuts(listing.groups, parts)))
    lows, highs = [0, *cuts], [*(c - 1 for c in cuts), ID_MAX]
    return [Unit((listing,), IdRange(low, high)) for low, high in zip(lows, highs, strict=True)]


def _cuts(groups: Collection[StagedGroup], parts: int) -> Iterator[int]:
    # Yield the ids that split the groups into `parts` of about equal bytes. It sweeps over the
    # first and last ids of all groups; between two of them, bytes grow evenly.
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
