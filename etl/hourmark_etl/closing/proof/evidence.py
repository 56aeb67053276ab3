"""The data that a proof reads, as tasks for a `Runner`.

Listed rows and earlier unaudited rows are read by unit, promises by file. Each task returns the
aggregated tables of `promises`; individual rows do not leave the task.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hourmark_etl.arrow import Int32s, range_ids_to_ints, semi_join
from hourmark_etl.closing.proof.promises import (
    HELD,
    KEY,
    PROMISED,
    ROWS,
    count_rows_by_range,
    distinct_pairs,
)
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
_NEVER: Final = (1 << 63) - 1  # greater than every offset
_FILES_IN_ITEM: Final = 16  # audit files are small
_LOG = logging.getLogger(__name__)


class StagedRowsItem(NamedTuple):
    """Input of a proof task that reads the staged rows of one or more hourly buckets.

    Staged rows are events that were copied from Kafka. A proof compares them with audit records to
    verify that no event is missing. It covers several buckets, which are numbered from 0.

    Attributes:
        unit: The rows to read: all rows of several small buckets, or an id range of a large one.
        frontier_indexes: Number of the bucket to which each element of `unit.listings` belongs.
        earlier: Files with rows of earlier buckets that had no audit record when the content of
            their bucket was fixed. Each element is a pair of a bucket number and a path. The rows
            are added to those of the bucket with this number.
    """

    unit: Unit
    frontier_indexes: tuple[int, ...]
    earlier: tuple[tuple[int, str], ...]


class AuditPath(NamedTuple):
    """Path of a staged file of audit records, and the site that the records come from.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour.

    Attributes:
        path: Path relative to the storage root.
        site: Id of the site.
    """

    path: str
    site: str = FIRST_SITE


class AuditFilesItem(NamedTuple):
    """Input of a task that reads staged files of audit records.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour.

    Attributes:
        files: The files to read, with the site of each file's records.
    """

    files: tuple[AuditPath, ...]


class RangeEvidence(NamedTuple):
    """Result of one proof task: counted staged rows, or entries of audit records.

    A proof compares staged rows (events that were copied from Kafka) with promises. A promise is
    one entry of an audit record. It states how many events a byte range of a log file contains for
    one event type and hour. A task reads either rows or promises, so one of the tables is empty.

    Attributes:
        row_counts: Number of staged rows, and sums of their ids and value hashes, for each bucket,
            hour and byte range. The columns are those of `count_rows_by_range`.
        promised: The promises to compare with each bucket, one row per bucket and promise. The
            columns are those of `PromiseFilter.select_counting`.
    """

    row_counts: pa.Table
    promised: pa.Table


class PromiseFilter(NamedTuple):
    """Selects the entries of audit records (promises) with which hourly buckets are compared.

    A promise states how many events a byte range of a log file contains for one event type and
    hour. It is compared with the bucket of its hour. If it arrives after that bucket was closed, it
    is compared with the next open bucket of its type. Instances can be pickled.

    Attributes:
        frontiers: One tuple per bucket: bucket index, event type, hour (Unix seconds), and start
            offsets by site. Promises for earlier hours are selected only from these offsets on,
            because those below were compared with earlier buckets. None selects no promises for
            earlier hours.
        below: End offsets (exclusive), by site, of the audit records to select; None for no limit.
    """

    frontiers: tuple[
        tuple[int, str, int, AuditOffsets | None], ...
    ]  # frontier index, type, hour, settled_next (None: no earlier hours')
    below: AuditOffsets | None  # None: no upper limit

    @classmethod
    def for_frontiers(
        cls, frontiers: Mapping[int, Frontier], cut_offsets: AuditOffsets
    ) -> PromiseFilter:
        """Create the filter for the buckets of one proof.

        Args:
            frontiers: Event type and hour of each bucket, by bucket index. The index identifies the
                bucket in the returned tables.
            cut_offsets: End offsets (exclusive), by site, of the audit records to select.

        Returns:
            A filter that selects the promises for the hours of the buckets, and those for earlier
            hours that were not compared with earlier buckets.
        """
        return cls(
            tuple(
                (at, f.event_type, f.hour.start_s, f.settled_next) for at, f in frontiers.items()
            ),
            cut_offsets,
        )

    def select_counting(self, rows: pa.Table, site: str) -> pa.Table:
        """Return the promises in an audit file that must be compared with any of the buckets.

        A promise is one entry of an audit record. It states how many events a byte range of a log
        file contains for one event type and hour.

        Args:
            rows: Rows of a staged file of audit records, one per promise.
            site: Id of the site that all rows come from.

        Returns:
            A table with one row per bucket and promise; no rows if there are no such promises. The
            columns are `frontier_index` (bucket index), `hour` (Unix seconds) and `range_id` of the
            events, their `count`, the `sum` of their ids, the `checksum` of their values (may be
            null), and the `offset` and human-readable `origin` of the audit record.
        """
        if self.below is not None:
            rows = rows.filter(pc.less(rows.column("offset"), self.below.offset_of(site)))
        known = self._known(rows, site)
        hour, own, offset, settled = (
            known.column(name).to_numpy() for name in ("hour", "own", "offset", "settled")
        )
        counts = (hour == own) | ((hour < own) & (offset >= settled))
        return known.filter(pa.array(counts)).select(PROMISED.names)

    def select_settled(self, rows: pa.Table, site: str) -> pa.Table:
        """Return the promises in an audit file that were compared with earlier buckets.

        A promise is one entry of an audit record. It states how many events a byte range of a log
        file contains for one event type and hour. It was compared earlier if its offset is below
        the offset of the bucket and site in `frontiers`.

        Args:
            rows: Rows of a staged file of audit records, one per promise.
            site: Id of the site that all rows come from.

        Returns:
            A table with one row per bucket and promise, with the columns of `select_counting`; no
            rows if there are no such promises.
        """
        known = self._known(rows, site)
        return known.filter(pc.less(known.column("offset"), known.column("settled"))).select(
            PROMISED.names
        )

    def _known(self, rows: pa.Table, site: str) -> pa.Table:
        own = (
            (*of, _NEVER if settled is None else settled.offset_of(site))
            for *of, settled in self.frontiers
        )
        columns = list(zip(*own, strict=True))
        kinds = ("int32", "string", "int64", "int64")
        frontiers = pa.table(
            [pa.array(c, k) for c, k in zip(columns, kinds, strict=True)],
            ["frontier_index", "type", "own", "settled"],
        )
        return rows.join(frontiers, "type", join_type="inner", use_threads=False)


def plan_row_items(
    groups: Mapping[int, tuple[Frontier, Sequence[StagedGroup]]],
    earlier_unaudited: Mapping[int, Sequence[str]],
    unit_bytes_max: int,
) -> list[StagedRowsItem]:
    """Split the staged rows of several hourly buckets into proof tasks of limited size.

    Staged rows are events that were copied from Kafka. Tasks also read the rows of earlier buckets
    that had no audit record, because a later audit record may cover them.

    Args:
        groups: The buckets to verify, by bucket index. Each value is a pair of the bucket's event
            type and hour, and the groups of its staged rows.
        earlier_unaudited: Paths of files with rows of earlier buckets that had no audit record, by
            bucket index. The files of buckets without staged rows are read by one additional task.
        unit_bytes_max: Maximum size of a task, in bytes of encoded events. Larger buckets are split
            by event id.

    Returns:
        The tasks, which together read each staged row once; empty if there are no rows to read.
    """
    listings = {(f.event_type, f.hour.start_s): at for at, (f, _) in groups.items()}
    units = plan_units(
        (Listing(f.event_type, f.hour.start_s, tuple(g)) for f, g in groups.values()),
        unit_bytes_max,
    )
    items = []
    for unit in units:
        frontier_indexes = tuple(listings[x.event_type, x.hour_s] for x in unit.listings)
        items.append(
            StagedRowsItem(
                unit,
                frontier_indexes,
                tuple(
                    (at, path) for at in frontier_indexes for path in earlier_unaudited.get(at, ())
                ),
            )
        )
    unlisted = [
        (at, path)
        for at, (_, listed) in groups.items()
        if not listed
        for path in earlier_unaudited.get(at, ())
    ]
    return [*items, StagedRowsItem(Unit(()), (), tuple(unlisted))] if unlisted else items


def plan_promise_items(groups: Iterable[AuditGroup]) -> list[AuditFilesItem]:
    """Plan the tasks that read the given groups of audit records.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour. A group contains the entries for one event type and hour in one staged file. Each file
    is read only once, even if it contains several groups.

    Args:
        groups: The groups to read.

    Returns:
        Tasks of up to 16 files each; empty if there are no groups.
    """
    return plan_file_items({AuditPath(g.path, g.site) for g in groups})


def plan_file_items(files: Collection[AuditPath]) -> list[AuditFilesItem]:
    """Plan the tasks that read the given staged files of audit records.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour.

    Args:
        files: The files to read.

    Returns:
        Tasks of up to 16 files each, sorted by path; empty if there are no files.
    """
    ascending = sorted(files)
    return [
        AuditFilesItem(tuple(ascending[at : at + _FILES_IN_ITEM]))
        for at in range(0, len(ascending), _FILES_IN_ITEM)
    ]


def read_item(
    item: StagedRowsItem | AuditFilesItem, storage: Storage, promise_filter: PromiseFilter
) -> RangeEvidence:
    """Run one proof task: read its staged rows or audit records, and aggregate rows by byte range.

    Args:
        item: The task.
        storage: Storage with the staged files.
        promise_filter: Filter for the entries of audit records to return.

    Returns:
        For a `StagedRowsItem`, the aggregated rows and an empty `promised` table. For an
        `AuditFilesItem`, the selected entries and an empty `row_counts` table.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    if isinstance(item, StagedRowsItem):
        return RangeEvidence(
            count_rows_by_range(read_item_rows(item, storage)), PROMISED.empty_table()
        )
    found = [
        promise_filter.select_counting(read_promises(storage, path), site)
        for path, site in item.files
    ]
    return RangeEvidence(HELD.empty_table(), pa.concat_tables([PROMISED.empty_table(), *found]))


def read_item_by_part(
    item: StagedRowsItem | AuditFilesItem,
    storage: Storage,
    promise_filter: PromiseFilter,
    part_count: int,
) -> dict[int, RangeEvidence]:
    """Run one proof task and partition its result by byte range.

    The part number of a byte range is the same in the results of all tasks.

    Args:
        item: The task.
        storage: Storage with the staged files.
        promise_filter: Filter for the entries of audit records to return.
        part_count: Number of parts.

    Returns:
        Results by part number, from 0 to `part_count` - 1. Empty parts are omitted.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    found = read_item(item, storage, promise_filter)
    of = [range_ids_to_ints(table.column("range_id")) % np.uint64(part_count) for table in found]
    return {
        part: RangeEvidence(
            *(table.filter(pa.array(own == part)) for table, own in zip(found, of, strict=True))
        )
        for part in np.unique(np.concatenate(of)).tolist()
    }


def read_new_unaudited(item: StagedRowsItem, storage: Storage, ranges: pa.Table) -> pa.Table:
    """Return the staged rows of byte ranges that have no audit record.

    Staged rows are events that were copied from Kafka. An audit record states how many events a
    byte range of a log file contains. Rows that an earlier bucket has already stored as rows
    without an audit record are omitted.

    Args:
        item: The task whose rows to read.
        storage: Storage with the staged files.
        ranges: The byte ranges without an audit record, with the columns `frontier_index` (bucket
            index), `hour` (Unix seconds) and `range_id`.

    Returns:
        Columns `frontier_index`, `hour`, `range_id`, `event_id`, `value_hash` and `earlier` (always
        false). Each pair of event id and value hash appears once per byte range.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    distinct = distinct_pairs(semi_join(read_item_rows(item, storage), ranges, KEY))
    return distinct.filter(pc.invert(distinct.column("earlier")))


def read_settled_promises(
    item: AuditFilesItem, storage: Storage, promise_filter: PromiseFilter, ranges: pa.Table
) -> pa.Table:
    """Return the promises for given byte ranges that were compared with earlier buckets.

    A promise is one entry of an audit record. It states how many events a byte range of a log file
    contains for one event type and hour.

    Args:
        item: The files of audit records to read.
        storage: Storage with the staged files.
        promise_filter: Filter that determines which promises were compared earlier.
        ranges: The byte ranges, with the columns `frontier_index` (bucket index in the filter),
            `hour` (Unix seconds) and `range_id`.

    Returns:
        A table with the columns of `PromiseFilter.select_settled`; no rows if nothing is found.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    found = [
        semi_join(promise_filter.select_settled(read_promises(storage, path), site), ranges, KEY)
        for path, site in item.files
    ]
    return pa.concat_tables([PROMISED.empty_table(), *found])


def read_matching_promises(
    item: AuditFilesItem,
    storage: Storage,
    event_type: str,
    ranges: pa.Table,
    from_offsets: AuditOffsets,
    below_offsets: AuditOffsets,
) -> pa.Table:
    """Return the rows of audit files for one event type, given byte ranges and an offset range.

    A row of an audit file states how many events a byte range of a log file contains for one event
    type and hour.

    Args:
        item: The files to read.
        storage: Storage with the files.
        event_type: Name of the event type.
        ranges: The byte ranges, with the columns `hour` (Unix seconds) and `range_id`.
        from_offsets: Start of the offset range (inclusive) in the audit topic of each site.
        below_offsets: End of the offset range (exclusive) in the audit topic of each site.

    Returns:
        The matching rows with all columns of the files; no rows if nothing matches.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    found = [AUDIT_SCHEMA.empty_table()]
    for path, site in item.files:
        rows = read_promises(storage, path)
        offset = rows.column("offset")
        between = pc.and_(
            pc.greater_equal(offset, from_offsets.offset_of(site)),
            pc.less(offset, below_offsets.offset_of(site)),
        )
        rows = rows.filter(pc.and_(between, pc.equal(rows.column("type"), event_type)))
        found.append(semi_join(rows, ranges, KEY[1:]))
    return pa.concat_tables(found)


def read_promises(storage: Storage, path: str) -> pa.Table:
    """Read a staged file of audit records.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour.

    Args:
        storage: Storage with the file.
        path: Path of the file, relative to the storage root.

    Returns:
        All rows and columns of the file. There is one row per event type and hour of a record.

    Raises:
        Unreadable: The file is missing or damaged and must be staged again first.
        StorageError: Storage is unavailable.
    """
    return read_all(storage, path, AUDIT_SCHEMA.names)


def read_item_rows(item: StagedRowsItem, storage: Storage) -> pa.Table:
    """Read the rows of a proof task: staged rows, and unaudited rows of earlier buckets.

    Staged rows are events that were copied from Kafka. Unaudited rows had no audit record when the
    content of their bucket was fixed.

    Args:
        item: The task whose rows to read.
        storage: Storage with the staged files.

    Returns:
        Columns `frontier_index` (bucket index), `hour` (Unix seconds), `range_id`, `event_id`,
        `value_hash` and `earlier`. `earlier` is true for the unaudited rows of earlier buckets,
        which come last.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    read = read_unit(item.unit, storage, ("range_id", "event_id")).table
    frontier_indexes = np.array(item.frontier_indexes, np.int32)[read.column("listing").to_numpy()]
    return pa.concat_tables(
        [
            _as_rows(read, frontier_indexes, earlier=False),
            *(_earlier(storage, at, path, item.unit.slot) for at, path in item.earlier),
        ]
    )


def read_unaudited(storage: Storage, path: str) -> pa.Table:
    """Read a file with the rows of a bucket that had no audit record.

    An audit record states how many events a byte range of a log file contains. If the file is
    missing or damaged, a warning is logged and an empty table is returned. No event is lost: the
    rows are only needed to verify that a later bucket is complete.

    Args:
        storage: Storage with the file.
        path: Path of the file, relative to the storage root.

    Returns:
        Columns `hour` (Unix seconds), `event_id`, `range_id` and `value_hash`; no rows if the file
        is missing or damaged.

    Raises:
        StorageError: Storage is unavailable, so the file may exist.
    """
    try:
        return load_all(storage, path, UNAUDITED_SCHEMA.names)
    except MemoryError:
        raise
    except (ContentLost, *DAMAGE) as error:
        _LOG.warning(
            "the file of unaudited rows %s cannot be read (%s), so a promise that these rows "
            "would fulfill remains unmet",
            path,
            error,
        )
        return UNAUDITED_SCHEMA.empty_table()


def _earlier(storage: Storage, frontier_indexes: int, path: str, slot: IdRange | None) -> pa.Table:
    rows = read_unaudited(storage, path)
    if slot is not None:
        ids = rows.column("event_id")
        low, high = (
            pa.scalar(edge.to_bytes(16, "big"), ids.type) for edge in (slot.low, slot.high)
        )
        rows = rows.filter(pc.and_(pc.greater_equal(ids, low), pc.less_equal(ids, high)))
    return _as_rows(rows, np.full(len(rows), frontier_indexes, np.int32), earlier=True)


def _as_rows(rows: pa.Table, frontier_indexes: Int32s, *, earlier: bool) -> pa.Table:
    own = [rows.column(name) for name in ROWS.names[1:5]]
    return pa.table(
        [pa.array(frontier_indexes), *own, pa.array(np.full(len(rows), earlier))], schema=ROWS
    )


def origin_hours(rows: pa.Table) -> Collection[int]:
    """Return the distinct values of the column `hour` of a table.

    Args:
        rows: A table with a column `hour` (Unix seconds at the start of the hour of event time).

    Returns:
        Unix seconds, in no particular order; empty if there are no rows.
    """
    hours: list[int] = pc.unique(rows.column("hour")).to_pylist()
    return hours
