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
    """The input of a proof task that reads the staged rows of one or more hours.

    Staged rows are events that were copied from Kafka. They are compared with audit records, which
    state how many events a byte range of a log file contains. Several hourly buckets are proved
    complete at once. Each is identified by its bucket index, a number that starts at 0.

    Attributes:
        unit: The rows to read: all rows of several small buckets, or an id range of a large one.
        frontier_indexes: The bucket index of each element of `unit.listings`.
        earlier: Files with rows of earlier buckets that had no audit record when the content of
            those buckets was fixed. Each element is a pair of the index of the bucket that is
            proved with these rows, and the file's path.
    """

    unit: Unit
    frontier_indexes: tuple[int, ...]
    earlier: tuple[tuple[int, str], ...]


class AuditPath(NamedTuple):
    """The path of a staged file of audit records, and the site that they come from.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour.

    Attributes:
        path: Path relative to the storage root.
        site: Id of the site.
    """

    path: str
    site: str = FIRST_SITE


class AuditFilesItem(NamedTuple):
    """The input of a task that reads some staged files of audit records.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour.

    Attributes:
        files: Path of each file, relative to the storage root, and the site whose Kafka cluster the
            file was copied from.
    """

    files: tuple[AuditPath, ...]


class RangeEvidence(NamedTuple):
    """The result of one proof task: staged rows and audit records, aggregated by byte range.

    Staged rows are events that were copied from Kafka. An audit record promises the events of a
    byte range of a log file: it states how many events the range contains for each event type and
    hour. Both tables may be empty.

    Attributes:
        row_counts: Number of staged rows and sums of their ids and value hashes for each bucket,
            hour and byte range, with the columns that `count_rows_by_range` returns.
        promised: One row for each bucket and promise that counts for it, with the columns that
            `PromiseFilter.select_counting` returns.
    """

    row_counts: pa.Table
    promised: pa.Table


class PromiseFilter(NamedTuple):
    """Selects the promises of audit records that are compared with each of several buckets.

    A promise is the part of an audit record that states how many events a byte range of a log file
    contains for one event type and hour. A promise counts for a bucket if it is for the bucket's
    hour, or if it is for an earlier hour and arrived too late for the earlier buckets. Instances
    can be pickled.

    Attributes:
        frontiers: One tuple per bucket: its index, which identifies it in results; its event type;
            its hour (Unix seconds); and for each site the audit offset from which on promises for
            earlier hours count. Promises below that offset were checked with earlier buckets. If it
            is None, promises for earlier hours do not count.
        below: For each site, the offset (exclusive) in its audit topic up to which audit records
            count; None for no limit.
    """

    frontiers: tuple[
        tuple[int, str, int, AuditOffsets | None], ...
    ]  # frontier index, type, hour, settled_next (None: no earlier hours')
    below: AuditOffsets | None  # None: no upper limit

    @classmethod
    def for_frontiers(
        cls, frontiers: Mapping[int, Frontier], cut_offsets: AuditOffsets
    ) -> PromiseFilter:
        """Create the filter for several buckets that are proved complete together.

        A promise is the part of an audit record that states how many events a byte range contains
        for one type and hour.

        Args:
            frontiers: The event type and hour of each bucket, by bucket index (a number that
                identifies the bucket in the returned tables).
            cut_offsets: Offset (exclusive) of each site's audit topic up to which audit records
                count.

        Returns:
            A filter that also selects promises for earlier hours that arrived too late to be
            checked with earlier buckets.
        """
        return cls(
            tuple(
                (at, f.event_type, f.hour.start_s, f.settled_next) for at, f in frontiers.items()
            ),
            cut_offsets,
        )

    def select_counting(self, rows: pa.Table, site: str) -> pa.Table:
        """Return the promises in a file of audit records that count for any of the buckets.

        A promise states how many events a byte range of a log file contains for one event type and
        hour.

        Args:
            rows: Rows of a staged file of audit records, one per promise.
            site: Id of the site that all rows come from.

        Returns:
            A table with one row per promise and bucket; it has no rows if no promise counts. The
            columns are `frontier_index` (bucket index); `hour` (Unix seconds) and `range_id` of the
            promised events; their `count`, the `sum` of their ids, and the `checksum` of their
            values, which may be null; and `offset` and readable `origin` of the audit record.
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
        """Return the promises in a file of audit records that were checked with earlier buckets.

        A promise is the part of an audit record that states how many events a byte range contains
        for one type and hour. It was checked earlier if its offset is below the bucket's audit
        offset in `frontiers`.

        Args:
            rows: Rows of a staged file of audit records, one per promise.
            site: Id of the site that all rows come from.

        Returns:
            A table with one row per promise and bucket, with the columns that `select_counting`
            returns. It has no rows if there are no such promises.
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
    """Split the staged rows of several hours into proof tasks of limited size.

    Staged rows are events that were copied from Kafka. An audit record promises the events of a
    byte range of a log file. Each task also reads the unaudited rows (rows without an audit record)
    of earlier buckets, because a later audit record may promise them.

    Args:
        groups: The hours to prove, keyed by a number that identifies each hour in this call. The
            value is the oldest open hour of an event type and the groups of its staged rows.
        earlier_unaudited: Paths of files with unaudited rows, with the same keys. The files of all
            hours without staged rows are combined in one further task.
        unit_bytes_max: Maximum size of a task, in bytes of encoded events. An hour that is larger is
            split by event id.

    Returns:
        The tasks, which together read each row once; empty if there is nothing to read.
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
    """Plan the tasks that read the audit records of some groups.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour. A group consists of the audit records for one event type and hour in one file. Each
    file is read only once, even if several groups are in it.

    Args:
        groups: The groups to read.

    Returns:
        Tasks of up to 16 files each; empty if there are no groups.
    """
    return plan_file_items({AuditPath(g.path, g.site) for g in groups})


def plan_file_items(files: Collection[AuditPath]) -> list[AuditFilesItem]:
    """Plan the tasks that read some staged files of audit records.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour.

    Args:
        files: The files to read.

    Returns:
        Tasks of up to 16 files each, in the order of their paths; empty if there are no files.
    """
    ascending = sorted(files)
    return [
        AuditFilesItem(tuple(ascending[at : at + _FILES_IN_ITEM]))
        for at in range(0, len(ascending), _FILES_IN_ITEM)
    ]


def read_item(
    item: StagedRowsItem | AuditFilesItem, storage: Storage, windows: PromiseFilter
) -> RangeEvidence:
    """Run one proof task: read its rows or audit records and aggregate them by byte range.

    Args:
        item: The task.
        storage: Storage with the staged files.
        windows: Filter for the promises (numbers of events that audit records state) to return.

    Returns:
        For a `StagedRowsItem`, the aggregated rows and an empty table of promises. For an
        `AuditFilesItem`, the selected promises and an empty table of rows.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    if isinstance(item, StagedRowsItem):
        return RangeEvidence(
            count_rows_by_range(read_item_rows(item, storage)), PROMISED.empty_table()
        )
    found = [
        windows.select_counting(read_promises(storage, path), site) for path, site in item.files
    ]
    return RangeEvidence(HELD.empty_table(), pa.concat_tables([PROMISED.empty_table(), *found]))


def read_item_by_part(
    item: StagedRowsItem | AuditFilesItem,
    storage: Storage,
    windows: PromiseFilter,
    part_count: int,
) -> dict[int, RangeEvidence]:
    """Run one proof task and split its result into parts, so that each byte range is in one part.

    A range id has the same part number in the results of all tasks.

    Args:
        item: The task.
        storage: Storage with the staged files.
        windows: Filter for the promises (numbers of events that audit records state) to return.
        part_count: Number of parts.

    Returns:
        Results by part number, from 0 to `part_count` - 1; empty parts are missing.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    found = read_item(item, storage, windows)
    of = [range_ids_to_ints(table.column("range_id")) % np.uint64(part_count) for table in found]
    return {
        part: RangeEvidence(
            *(table.filter(pa.array(own == part)) for table, own in zip(found, of, strict=True))
        )
        for part in np.unique(np.concatenate(of)).tolist()
    }


def read_new_unaudited(item: StagedRowsItem, storage: Storage, ranges: pa.Table) -> pa.Table:
    """Return the staged rows of some byte ranges that have no audit record.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour. Rows that an earlier bucket has already stored as rows without an audit record are
    left out.

    Args:
        item: The task whose rows to read.
        storage: Storage with the staged files.
        ranges: The byte ranges without an audit record, columns `frontier_index` (the index of a
            bucket in the proof), `hour` (Unix seconds) and `range_id`.

    Returns:
        Columns `frontier_index`, `hour`, `range_id`, `event_id`, `value_hash` and `earlier` (always
        false). Each pair of event id and value hash of a range occurs once.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    distinct = distinct_pairs(semi_join(read_item_rows(item, storage), ranges, KEY))
    return distinct.filter(pc.invert(distinct.column("earlier")))


def read_settled_promises(
    item: AuditFilesItem, storage: Storage, windows: PromiseFilter, ranges: pa.Table
) -> pa.Table:
    """Return the promises of some byte ranges that were checked with earlier buckets.

    A promise is the part of an audit record that states how many events a byte range of a log file
    contains for one event type and hour.

    Args:
        item: The files of audit records to read.
        storage: Storage with the staged files.
        windows: Contains, for each bucket, the audit offsets below which promises were checked
            earlier.
        ranges: The byte ranges, columns `frontier_index` (the index of a bucket in `windows`),
            `hour` (Unix seconds) and `range_id`.

    Returns:
        A table with the columns that `PromiseFilter.select_settled` returns; it has no rows if
        nothing is found.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    found = [
        semi_join(windows.select_settled(read_promises(storage, path), site), ranges, KEY)
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
    """Return the rows of audit files for an event type, some byte ranges and a span of offsets.

    An audit file contains audit records, one row for each event type and hour of a record. A row
    states how many events a byte range of a log file contains.

    Args:
        item: The files to read.
        storage: The storage.
        event_type: The event type.
        ranges: The byte ranges, columns `hour` (Unix seconds) and `range_id`.
        from_offsets: First offset to return, for the audit topic of each site.
        below_offsets: End of the span (exclusive), for the audit topic of each site.

    Returns:
        The matching rows, with all columns of the files; no rows if nothing matches.

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

    An audit record promises a number of events for each event type and hour of a byte range.

    Args:
        storage: The storage.
        path: HDFS path of the file, relative to the storage root.

    Returns:
        All rows and columns of the file.

    Raises:
        Unreadable: The file is missing or damaged and must be staged again first.
        StorageError: Storage is unavailable.
    """
    return read_all(storage, path, AUDIT_SCHEMA.names)


def read_item_rows(item: StagedRowsItem, storage: Storage) -> pa.Table:
    """Read the staged rows of a proof task, and its unaudited rows of earlier buckets.

    Staged rows are events that were copied from Kafka. Unaudited rows are rows that no audit record
    described when the content of their bucket was fixed.

    Args:
        item: The task whose rows to read.
        storage: Storage with the staged files.

    Returns:
        Columns `frontier_index` (the index of a bucket in the proof), `hour` (Unix seconds),
        `range_id`, `event_id`, `value_hash` and `earlier`, which is true for the unaudited rows of
        earlier buckets. The unaudited rows come last.

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
    """Return the stored rows of a bucket that had no audit record when its content was fixed.

    An audit record states how many events a byte range of a log file contains. If the file is
    missing or damaged, the function logs a warning and returns an empty table. This is safe,
    because the rows are only needed to prove that a later hour is complete.

    Args:
        storage: The storage.
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
            "the file of unaudited rows %s cannot be read (%s): a promise that it would "
            "keep stays unmet",
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
    """Return the distinct hours of event time that occur in a table.

    Args:
        rows: A table with a column `hour` (Unix seconds at the start of the hour).

    Returns:
        Unix seconds, in no particular order; empty if there are no rows.
    """
    hours: list[int] = pc.unique(rows.column("hour")).to_pylist()
    return hours
