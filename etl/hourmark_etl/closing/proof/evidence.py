"""What the proof reads, as items of work for a `Runner`: listed rows and earlier unaudited rows
unit by unit, promises file by file.

Each item gives the tables of `promises` for what it read; nothing of a row leaves its task but its
share of a range's count.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hourmark_etl.arrow import Int32s, matching, range_words
from hourmark_etl.closing.proof.promises import HELD, KEY, PROMISED, ROWS, distinct_pairs, held
from hourmark_etl.closing.units import Listing, Unit, plan_units, read_unit
from hourmark_etl.model import FIRST_SITE, AuditGroup, AuditOffsets, Frontier, StagedGroup
from hourmark_etl.staging.files import AUDIT_SCHEMA, IdRange, load_all, read_all
from hourmark_etl.staging.verified import DAMAGE
from hourmark_etl.storage import ContentLost, Storage

UNAUDITED_SCHEMA: Final = pa.schema(  # files of version 0.3.0 have no `value_hash`
    [
        ("hour", "int64"),
        ("event_id", pa.binary(16)),
        ("range_id", pa.binary(8)),
        ("value_hash", "uint64"),
    ]
)
_NEVER: Final = (1 << 63) - 1  # no offset lies past it
_FILES_IN_ITEM: Final = 16  # audit files: small
_LOG = logging.getLogger(__name__)


class RowsItem(NamedTuple):
    """A unit of listed rows.

    `asked`: the frontier of each of its listings; `earlier`: (asked, path) of files of unaudited
    rows.
    """

    unit: Unit
    asked: tuple[int, ...]
    earlier: tuple[tuple[int, str], ...]


class AuditPath(NamedTuple):
    """A file of audit records, all of one site's."""

    path: str
    site: str = FIRST_SITE


class PromisesItem(NamedTuple):
    """Files of audit records."""

    files: tuple[AuditPath, ...]


class Found(NamedTuple):
    """What an item gave: tables HELD and PROMISED."""

    held: pa.Table
    promised: pa.Table


class Windows(NamedTuple):
    """Which promises count: for each frontier those of its hour below the cut, and earlier hours'
    from `settled_next` on.
    """

    frontiers: tuple[
        tuple[int, str, int, AuditOffsets | None], ...
    ]  # asked, type, hour, settled_next (None: no earlier hours')
    below: AuditOffsets | None  # None: wherever they lie

    @classmethod
    def of(cls, asked: Mapping[int, Frontier], below: AuditOffsets) -> Windows:
        """Of these frontiers, by their index."""
        return cls(
            tuple((at, f.event_type, f.hour.start_s, f.settled_next) for at, f in asked.items()),
            below,
        )

    def counting(self, rows: pa.Table, site: str) -> pa.Table:
        """Rows of AUDIT_SCHEMA, of one site → PROMISED: once for each frontier for which one
        counts.
        """
        if self.below is not None:
            rows = rows.filter(pc.less(rows.column("offset"), self.below.at(site)))
        known = self._known(rows, site)
        hour, own, offset, settled = (
            known.column(name).to_numpy() for name in ("hour", "own", "offset", "settled")
        )
        counts = (hour == own) | ((hour < own) & (offset >= settled))
        return known.filter(pa.array(counts)).select(PROMISED.names)

    def settled(self, rows: pa.Table, site: str) -> pa.Table:
        """The same of those that a frontier has settled, wherever its cut is."""
        known = self._known(rows, site)
        return known.filter(pc.less(known.column("offset"), known.column("settled"))).select(
            PROMISED.names
        )

    def _known(self, rows: pa.Table, site: str) -> pa.Table:
        """Once for each frontier of their type."""
        own = (
            (*of, _NEVER if settled is None else settled.at(site))
            for *of, settled in self.frontiers
        )
        columns = list(zip(*own, strict=True))
        kinds = ("int32", "string", "int64", "int64")
        frontiers = pa.table(
            [pa.array(c, k) for c, k in zip(columns, kinds, strict=True)],
            ["asked", "type", "own", "settled"],
        )
        return rows.join(frontiers, "type", join_type="inner", use_threads=False)


def rows_items(
    groups: Mapping[int, tuple[Frontier, Sequence[StagedGroup]]],
    earlier: Mapping[int, Sequence[str]],
    unit_bytes_max: int,
) -> list[RowsItem]:
    """Units of these frontiers' listed groups; each frontier's earlier unaudited rows go with its
    units, or into one of its own.
    """
    listings = {(f.event_type, f.hour.start_s): at for at, (f, _) in groups.items()}
    units = plan_units(
        (Listing(f.event_type, f.hour.start_s, tuple(g)) for f, g in groups.values()),
        unit_bytes_max,
    )
    items = []
    for unit in units:
        asked = tuple(listings[x.event_type, x.hour_s] for x in unit.listings)
        items.append(
            RowsItem(unit, asked, tuple((at, path) for at in asked for path in earlier.get(at, ())))
        )
    unlisted = [
        (at, path)
        for at, (_, listed) in groups.items()
        if not listed
        for path in earlier.get(at, ())
    ]
    return [*items, RowsItem(Unit(()), (), tuple(unlisted))] if unlisted else items


def promises_items(groups: Iterable[AuditGroup]) -> list[PromisesItem]:
    """The files of these groups, each once."""
    return file_items({AuditPath(g.path, g.site) for g in groups})


def file_items(files: Collection[AuditPath]) -> list[PromisesItem]:
    """These files of audit records."""
    ascending = sorted(files)
    return [
        PromisesItem(tuple(ascending[at : at + _FILES_IN_ITEM]))
        for at in range(0, len(ascending), _FILES_IN_ITEM)
    ]


def read_item(item: RowsItem | PromisesItem, storage: Storage, windows: Windows) -> Found:
    """The item's share of the tables. Unreadable names a staged file that must be staged again."""
    if isinstance(item, RowsItem):
        return Found(held(item_rows(item, storage)), PROMISED.empty_table())
    found = [windows.counting(read_promises(storage, path), site) for path, site in item.files]
    return Found(HELD.empty_table(), pa.concat_tables([PROMISED.empty_table(), *found]))


def scattered(
    item: RowsItem | PromisesItem, storage: Storage, windows: Windows, parts: int
) -> dict[int, Found]:
    """The same, by parts of the range ids, so that all of a range meets in one part."""
    found = read_item(item, storage, windows)
    of = [range_words(table.column("range_id")) % np.uint64(parts) for table in found]
    return {
        part: Found(
            *(table.filter(pa.array(own == part)) for table, own in zip(found, of, strict=True))
        )
        for part in np.unique(np.concatenate(of)).tolist()
    }


def unaudited_rows(item: RowsItem, storage: Storage, keys: pa.Table) -> pa.Table:
    """Rows of these ranges (columns KEY) that are listed and were not unaudited before, each pair
    of id and value hash once.
    """
    distinct = distinct_pairs(matching(item_rows(item, storage), keys, KEY))
    return distinct.filter(pc.invert(distinct.column("earlier")))


def older_promises(
    item: PromisesItem, storage: Storage, windows: Windows, keys: pa.Table
) -> pa.Table:
    """PROMISED of these ranges (columns KEY), as far as their frontiers have settled them."""
    found = [
        matching(windows.settled(read_promises(storage, path), site), keys, KEY)
        for path, site in item.files
    ]
    return pa.concat_tables([PROMISED.empty_table(), *found])


def matching_promises(
    item: PromisesItem,
    storage: Storage,
    event_type: str,
    keys: pa.Table,
    at_least: AuditOffsets,
    below: AuditOffsets,
) -> pa.Table:
    """Rows of AUDIT_SCHEMA of the type and of these (hour, range_id), at central audit offsets
    [at_least, below).
    """
    found = [AUDIT_SCHEMA.empty_table()]
    for path, site in item.files:
        rows = read_promises(storage, path)
        offset = rows.column("offset")
        between = pc.and_(
            pc.greater_equal(offset, at_least.at(site)), pc.less(offset, below.at(site))
        )
        rows = rows.filter(pc.and_(between, pc.equal(rows.column("type"), event_type)))
        found.append(matching(rows, keys, KEY[1:]))
    return pa.concat_tables(found)


def read_promises(storage: Storage, path: str) -> pa.Table:
    """All of a staged file of audit records."""
    return read_all(storage, path, AUDIT_SCHEMA.names)


def item_rows(item: RowsItem, storage: Storage) -> pa.Table:
    """The item's rows as a table of ROWS, earlier unaudited rows among them."""
    read = read_unit(item.unit, storage, ("range_id", "event_id")).table
    asked = np.array(item.asked, np.int32)[read.column("listing").to_numpy()]
    return pa.concat_tables(
        [
            _as_rows(read, asked, earlier=False),
            *(_earlier(storage, at, path, item.unit.slot) for at, path in item.earlier),
        ]
    )


def read_unaudited(storage: Storage, path: str) -> pa.Table:
    """A file of unaudited rows.

    One that is gone, or damaged, is empty: rows of it can only keep promises, so its loss proves
    nothing.

    StorageError where it may be there, and cannot be read for now.
    """
    try:
        return load_all(storage, path, UNAUDITED_SCHEMA.names)
    except MemoryError:
        raise
    except (ContentLost, *DAMAGE) as error:
        _LOG.warning(
            "the file of unaudited rows %s cannot be read (%s): a promise that it would "
            "keep stays unmet",
            path,
            error,
        )
        return UNAUDITED_SCHEMA.empty_table()


def _earlier(storage: Storage, asked: int, path: str, slot: IdRange | None) -> pa.Table:
    rows = read_unaudited(storage, path)
    if slot is not None:
        ids = rows.column("event_id")
        low, high = (
            pa.scalar(edge.to_bytes(16, "big"), ids.type) for edge in (slot.low, slot.high)
        )
        rows = rows.filter(pc.and_(pc.greater_equal(ids, low), pc.less_equal(ids, high)))
    return _as_rows(rows, np.full(len(rows), asked, np.int32), earlier=True)


def _as_rows(rows: pa.Table, asked: Int32s, *, earlier: bool) -> pa.Table:
    """A table of ROWS."""
    own = [rows.column(name) for name in ROWS.names[1:5]]
    return pa.table([pa.array(asked), *own, pa.array(np.full(len(rows), earlier))], schema=ROWS)


def hours_of(rows: pa.Table) -> Collection[int]:
    """The distinct origin hours of rows."""
    hours: list[int] = pc.unique(rows.column("hour")).to_pylist()
    return hours
