"""Units of work: which listed rows a task takes on, and how it reads them. Pure planning; reading by `Storage` and Arrow.

A unit is bounded in bytes: many small listings together, or one id range of a large one. All rows of one id stand in one unit,
whatever their hour, so duplicates meet. Listings stand in a unit by type, as they do in staged files, so the row groups of a
file are read about once a round. Reading goes file by file, and row groups outside of the id range are not fetched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etl.ledger.rows import StagedGroup
from etl.staging.files import EVENT_SCHEMA, ID_MAX, IdRange, Rows, read_rows
from etl.storage import Storage

_LISTING_COST: Final = 1 << 16  # a listing without bytes still is a file to write: worth so many bytes of datums
_UNIT_BYTES_MIN: Final = 1 << 20  # what is worth a task of its own


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """What a freeze has listed for one bucket: groups of its hour, and of earlier hours (its late events)."""

    event_type: str
    hour_s: int  # of the bucket
    groups: tuple[StagedGroup, ...]

    @property
    def datum_bytes(self) -> int:
        """Of all its rows."""
        return sum(g.datum_bytes for g in self.groups)


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """Work of one task: whole listings, or the ids of one that lie in `slot`. Pickles."""

    listings: tuple[Listing, ...]
    slot: IdRange | None = None  # None: all ids


def plan_units(listings: Iterable[Listing], unit_bytes_max: int, tasks: int = 1) -> list[Unit]:
    """Units of at most `unit_bytes_max` bytes of datums, in order of type and hour; listings without groups give none.

    Smaller ones where there would be fewer than `tasks`. A large listing is cut by id as if each group's ids were spread evenly
    between its first and last: a slot may be larger than wanted where they are not.
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


def read_unit(unit: Unit, storage: Storage, columns: Sequence[str]) -> pa.Table:
    """These columns of the unit's rows, after `listing` (int32, which of `unit.listings`) and `hour` (int64, the row's own).

    In no order between files; a group's rows stand together, sorted by id. Unreadable names a file that must be staged again.
    """
    tables = [_labelled(*read, columns) for read in _read_files(unit, storage, columns)]
    return pa.concat_tables(tables) if tables else _labelled(_no_rows(columns), [], np.empty(0, np.int64), columns)


def _read_files(
    unit: Unit, storage: Storage, columns: Sequence[str]
) -> Iterator[tuple[pa.Table, list[tuple[int, int]], npt.NDArray[np.int64]]]:
    """File by file: its rows, the (listing, hour) of each group in turn, and how many rows each gave."""
    by_path: dict[str, list[tuple[int, int, int, int]]] = {}
    for at, listing in enumerate(unit.listings):
        for g in listing.groups:
            if unit.slot is None or _overlaps(g, unit.slot):
                by_path.setdefault(g.path, []).append((g.first_row, g.rows, at, g.hour_s))
    for path, groups in sorted(by_path.items()):
        groups.sort()
        table, counts = read_rows(storage, path, [Rows(first, count) for first, count, _, _ in groups], columns, unit.slot)
        yield table, [(at, hour) for _, _, at, hour in groups], counts


def _labelled(
    table: pa.Table, groups: Collection[tuple[int, int]], counts: npt.NDArray[np.int64], columns: Sequence[str]
) -> pa.Table:
    labels = np.array(list(groups), np.int64).reshape(-1, 2)
    listing, hour = np.repeat(labels[:, 0].astype(np.int32), counts), np.repeat(labels[:, 1], counts)
    return pa.table([pa.array(listing), pa.array(hour), *table.columns], names=["listing", "hour", *columns])


def _no_rows(columns: Sequence[str]) -> pa.Table:
    return pa.schema([EVENT_SCHEMA.field(name) for name in columns]).empty_table()


def _overlaps(group: StagedGroup, slot: IdRange) -> bool:
    return int.from_bytes(group.first_id, "big") <= slot.high and int.from_bytes(group.last_id, "big") >= slot.low


def _slots(listing: Listing, parts: int) -> list[Unit]:
    """The listing in id ranges of about equal bytes that together hold every id; fewer where ids do not allow as many."""
    cuts = sorted(set(_cuts(listing.groups, parts)))
    lows, highs = [0, *cuts], [*(c - 1 for c in cuts), ID_MAX]
    return [Unit((listing,), IdRange(low, high)) for low, high in zip(lows, highs, strict=True)]


def _cuts(groups: Collection[StagedGroup], parts: int) -> Iterator[int]:
    """Ids at which the bytes below are k/parts of all. Sweep: between two ends of groups, bytes grow evenly with the id."""
    steps: dict[int, tuple[float, int]] = {}  # id → change of bytes per id, and of groups, from there on
    for g in groups:
        low, high = int.from_bytes(g.first_id, "big"), int.from_bytes(g.last_id, "big") + 1
        for at, sign in ((low, 1), (high, -1)):
            density, active = steps.get(at, (0.0, 0))
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
