"""Writes sealed hours as Avro containers, one job for many types, without decoding events.

Each datum is validated against the schema of its container, and the event id in it against the
row's id. A row that is not valid blocks its hour, or is left out if an override allows it. Staging
performs the same check, except in version 0.3.0 and for schema ids that the ledger did not know.

A task reads a unit (see `units`), sorts it by id, drops duplicates and late events whose id is in a
closed bucket, and copies each bucket's datums in this order into containers: one per schema, late
events separately. Containers are sorted by id. Id ranges of a large listing that belong to one task
share a container until it reaches the target size. The task that wrote a file reads it back, so the
check is distributed like the work.

What is written is what was proved. All listed rows of every group are read and their values
verified. For every origin hour of a bucket, the number, digest and value checksum of written rows
and dropped duplicates must add up to the listed totals. Value hashes are computed from datums
twice: when a unit is read, so that a changed staged file is staged again; and from the bytes that
go into a container, so that a change on the way blocks the hour.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from hourmark.avro.datum_check import DatumVerdict, event_program
from hourmark.config.groups import AvroCodec
from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark_etl.arrow import (
    Bools,
    Int32s,
    Int64s,
    UInt8s,
    UInt64s,
    binary_buffers,
    datum_verdicts,
    describe_verdict,
    find_run_starts,
)
from hourmark_etl.closing.runner import Runner
from hourmark_etl.closing.units import (
    Listing,
    OversizedUnit,
    Unit,
    plan_units,
    read_unit,
    totals_by_hour,
    verify_read_rows,
)
from hourmark_etl.closing.write.containers import ContainerSet, DatumRun, WrittenFile, WrittenHour
from hourmark_etl.ids.lookups import IdQuery, IndexWriter, find_contained_ids, to_id_array
from hourmark_etl.ledger.closed import ClosedBucket
from hourmark_etl.ledger.staged.listings import sum_group
from hourmark_etl.model import EventTotals, StagedGroup, from_row
from hourmark_etl.storage import Storage

_Key = TypeVar("_Key")
_OVERFULL: Final = 2  # an id range this many times larger than planned is read in parts
_FAULTS_SHOWN: Final = 10  # number of invalid rows of an hour that are named
_WRITERS: Final = (
    16  # files of small types that a task writes in parallel, because HDFS is mostly waiting
)


class SealedHour(NamedTuple):
    """An hourly bucket to write, whose content is fixed in the ledger (the ETL's state database).

    Attributes:
        event_type: Event type of the bucket.
        hour: Hour of the bucket.
        listed: Groups of staged rows (events copied from Kafka) that belong to the bucket,
            including late events (events of earlier hours). A group contains the rows of one event
            type and hour in one staged file.
        leaves_out: Whether an operator's override permits omitting rows that cannot be written.
        gives_up: Whether an override permits skipping checks that require an unreadable closed
            bucket, such as the search for duplicates of late events.
    """

    event_type: str
    hour: Hour
    listed: tuple[StagedGroup, ...]
    leaves_out: bool = False  # an override omits rows that cannot be written
    # an override gives up checks that need an unreadable closed bucket
    gives_up: bool = False

    @property
    def late_hours_s(self) -> frozenset[int]:
        """Return the hours of event time of the bucket's late events.

        Returns:
            Unix seconds at the start of each hour; empty if there are no late events.
        """
        return frozenset(g.hour_s for g in self.listed if g.hour_s < self.hour.start_s)


class WriteLimits(NamedTuple):
    """Size limits and parallelism for writing buckets.

    Attributes:
        unit_bytes_max: Maximum size of the rows that a task reads at once, in bytes of encoded
            events.
        target_file_bytes: Target size of a container file in bytes.
        tasks: Number of tasks that run in parallel.
        codec: Codec of the container files.
    """

    unit_bytes_max: int
    target_file_bytes: int
    tasks: int
    codec: AvroCodec


class WriteTask(NamedTuple):
    """Input of a write task: the rows to write, and the buckets to search for duplicates.

    Attributes:
        units: The rows to write: rows of one or more buckets in one unit, or several units with
            adjacent id ranges of one bucket.
        earlier: For each bucket in the units' `listings`, the closed buckets that may already
            contain its late events (events of earlier hours).
    """

    units: tuple[Unit, ...]
    earlier: tuple[tuple[ClosedBucket, ...], ...]


@dataclasses.dataclass(frozen=True)
class WriteResult:
    """Results of one or more write tasks.

    The keys of all mappings except `read` are pairs of event type and the bucket's hour (Unix
    seconds). Totals are grouped by hour of event time (Unix seconds).

    Attributes:
        files: The files that were written.
        read: Totals of the rows that were read, by group. A group contains the rows of one event
            type and hour in one staged file.
        duplicates: Totals of duplicates, which were not written.
        left_out: Totals of invalid rows, which were not written.
        faults: Human-readable reasons why rows in `left_out` are invalid, for some of these rows.
        lookup_errors: Human-readable reason why closed buckets could not be searched for
            duplicates. Buckets without such an error are missing.
    """

    files: list[WrittenFile] = dataclasses.field(default_factory=list)
    read: dict[StagedGroup, EventTotals] = dataclasses.field(default_factory=dict)
    duplicates: dict[tuple[str, int], dict[int, EventTotals]] = dataclasses.field(
        default_factory=dict
    )
    left_out: dict[tuple[str, int], dict[int, EventTotals]] = dataclasses.field(
        default_factory=dict
    )
    faults: dict[tuple[str, int], list[str]] = dataclasses.field(
        default_factory=dict
    )  # of some rows that were left out
    lookup_errors: dict[tuple[str, int], str] = dataclasses.field(default_factory=dict)

    def add(self, other: WriteResult) -> None:
        """Add the results of other tasks to this object, which is changed in place.

        Args:
            other: Results of tasks that wrote other rows.
        """
        self.files.extend(other.files)
        self.lookup_errors.update(other.lookup_errors)
        _add(self.read, other.read)
        for mine, others in ((self.duplicates, other.duplicates), (self.left_out, other.left_out)):
            for key, by_hour in others.items():
                _add(mine.setdefault(key, {}), by_hour)
        for key, faults in other.faults.items():
            self.faults.setdefault(key, []).extend(faults)


def _add(total: dict[_Key, EventTotals], part: Mapping[_Key, EventTotals]) -> None:
    for key, sums in part.items():
        total[key] = total.get(key, EventTotals()) + sums


def write_hours(
    runner: Runner,
    storage: Storage,
    sealed: Collection[SealedHour],
    closed_buckets: Mapping[str, Sequence[ClosedBucket]],
    schemas: Mapping[int, str],
    folder: str,
    limits: WriteLimits,
    parquet_types: Collection[str] = frozenset(),
) -> list[WrittenHour]:
    """Write the Avro container files of hourly buckets to a new folder, without duplicate events.

    Late events (events of earlier hours) are dropped if a closed bucket already contains them. If a
    single bucket cannot be published, no exception is raised; the reason is in `publish_error` or
    `unwritable` of its result. After an exception, repeat the call with a different folder.

    Args:
        runner: Runs the write tasks.
        storage: Storage with staged files and buckets.
        sealed: The buckets to write. No late event may belong to the hour of another bucket.
        closed_buckets: Closed buckets that may already contain the late events, by event type.
        schemas: Avro schemas as JSON, by schema id.
        folder: Path of the new folder.
        limits: Size limits and number of parallel tasks.
        parquet_types: Event types whose rows are also written as Parquet files.

    Returns:
        The files and totals of each bucket, in the order of `sealed`.

    Raises:
        Unreadable: A staged file is missing or damaged.
    """
    work = functools.partial(
        write_task,
        storage=storage,
        schemas=schemas,
        folder=folder,
        limits=limits,
        parquet_types=frozenset(parquet_types),
    )
    done = WriteResult()
    for part in runner.map(work, plan_tasks(sealed, closed_buckets, limits)):
        done.add(part)
    verify_read_rows((g for s in sealed for g in s.listed), done.read)
    files = defaultdict[tuple[str, int], list[WrittenFile]](list)
    for f in done.files:
        files[f.event_type, f.hour_s].append(f)
    return [_written_hour(s, tuple(files[s.event_type, s.hour.start_s]), done) for s in sealed]


def _written_hour(
    sealed: SealedHour, files: tuple[WrittenFile, ...], done: WriteResult
) -> WrittenHour:
    key = sealed.event_type, sealed.hour.start_s
    duplicates, left_out = done.duplicates.get(key, {}), done.left_out.get(key, {})
    faults = tuple(sorted(done.faults.get(key, ()))[:_FAULTS_SHOWN])
    listed, found = dict[int, EventTotals](), dict[int, EventTotals]()
    for g in sealed.listed:
        _add(listed, {g.hour_s: dataclasses.replace(sum_group(g), records=0)})
    for part in (duplicates, left_out, *(f.hours for f in files)):
        _add(found, part)
    unknown = [done.lookup_errors[key]] if key in done.lookup_errors else []
    differences = [f.read_back_error for f in files]
    for start_s in sorted(listed.keys() | found.keys()):
        wanted, got = listed.get(start_s, EventTotals()), found.get(start_s, EventTotals())
        if wanted.unchecked:  # groups of version 0.3.0 are listed without a checksum
            wanted = dataclasses.replace(wanted, values=got.values, unchecked=0)
        if got != wanted:
            hour = Hour(start_s, sealed.hour.length_s)
            differences.append(
                f"{wanted.events} rows of {sealed.event_type} {hour} are listed for "
                f"{sealed.hour}, digest {wanted.digest:016x}, checksum of values "
                f"{wanted.values:016x}, but {got.events} were written or removed as duplicates, "
                f"digest {got.digest:016x}, checksum of values {got.values:016x}; the bucket is "
                "not published and will be written again"
            )
    count = sum(of.events for of in left_out.values())
    unwritable = (
        [f"{count} rows cannot be written: {'; '.join(faults)}"]
        if count and not sealed.leaves_out
        else []
    )
    unwritable += [] if sealed.gives_up else unknown
    difference = "; ".join(sorted({t for t in differences if t}))
    return from_row(
        WrittenHour,
        (
            *key,
            files,
            duplicates,
            difference,
            left_out,
            faults,
            "; ".join(unwritable),
            tuple(unknown),
        ),
    )


def plan_tasks(
    sealed: Collection[SealedHour],
    closed_buckets: Mapping[str, Sequence[ClosedBucket]],
    limits: WriteLimits,
) -> list[WriteTask]:
    """Divide the buckets to write into tasks of limited size.

    Small buckets share a task. A large bucket is split by event id into at most `limits.tasks`
    tasks.

    Args:
        sealed: The buckets to write. No late event (event of an earlier hour) may belong to the
            hour of another bucket of its type, because only closed buckets are searched for
            duplicates.
        closed_buckets: Closed buckets that may already contain the late events, by event type.
        limits: Size limits and number of parallel tasks.

    Returns:
        The tasks; empty if no bucket has rows.
    """
    hours = {(s.event_type, s.hour.start_s) for s in sealed}
    assert not any((s.event_type, late) in hours for s in sealed for late in s.late_hours_s), (
        "an hour and its own late events"
    )
    earlier = {
        (s.event_type, s.hour.start_s): tuple(
            b
            for b in closed_buckets.get(s.event_type, ())
            if s.late_hours_s and b.hour_s < s.hour.start_s
        )
        for s in sealed
    }
    listings = [Listing(s.event_type, s.hour.start_s, s.listed) for s in sealed]
    tasks: list[tuple[Unit, ...]] = []
    slots = defaultdict[Listing, list[Unit]](list)
    for unit in plan_units(listings, limits.unit_bytes_max, limits.tasks):
        if unit.slot is None:
            tasks.append((unit,))
        else:
            slots[unit.listings[0]].append(unit)
    for units in slots.values():
        each = -(-len(units) // limits.tasks)
        tasks += [tuple(units[first : first + each]) for first in range(0, len(units), each)]
    return [
        WriteTask(units, tuple(earlier[x.event_type, x.hour_s] for x in units[0].listings))
        for units in tasks
    ]


def write_task(
    task: WriteTask,
    *,
    storage: Storage,
    schemas: Mapping[int, str],
    folder: str,
    limits: WriteLimits,
    parquet_types: Collection[str] = frozenset(),
) -> WriteResult:
    """Write the container files of one task, and an index of their event ids.

    Duplicates of other rows and of events in closed buckets are dropped and counted.

    Args:
        task: The rows to write.
        storage: Storage with staged files and closed buckets, to which the files are written.
        schemas: Avro schemas as JSON, by schema id.
        folder: Path of the folder for the files.
        limits: Size limits and number of parallel tasks.
        parquet_types: Event types whose rows are also written as Parquet files.

    Returns:
        The written files, and totals of the rows that were read, dropped or left out.

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again first.
    """
    index_path = f"{folder}/{uuid.uuid4().hex}.ids"
    containers = functools.partial(
        ContainerSet,
        storage,
        folder,
        schemas,
        limits.target_file_bytes,
        limits.codec,
        parquet_types=parquet_types,
    )
    programs = {schema_id: event_program(text) for schema_id, text in schemas.items()}
    done = WriteResult()

    def write_own(run: DatumRun) -> list[WrittenFile]:
        with containers() as own:
            own.write(run)
            return own.finish()

    def write_unit(unit: Unit) -> None:
        parts: tuple[Unit, ...] = ()
        try:
            chosen = _select_rows(
                unit, task.earlier, storage, programs, done, _OVERFULL * limits.unit_bytes_max
            )
        except OversizedUnit as overfull:
            parts = overfull.parts
        for part in parts:  # the rows of the whole unit have been released
            write_unit(part)
        if parts:
            return
        runs = list(_split_into_runs(unit, chosen, index))
        if len(runs) > 1 and unit.slot is None:
            with ThreadPoolExecutor(_WRITERS) as pool:
                done.files.extend(itertools.chain.from_iterable(pool.map(write_own, runs)))
        else:
            for run in runs:
                shared.write(run)

    with storage.create(index_path, unpublished=True) as file, containers() as shared:
        index = IndexWriter(file, index_path)
        for unit in task.units:
            write_unit(unit)
        done.files.extend(shared.finish())
        index.finish()
    return dataclasses.replace(
        done, files=[dataclasses.replace(f, index_digest=index.digest) for f in done.files]
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Chosen:
    keys: Int64s  # listing, lateness and schema; rows are sorted by this, then by id
    hours: Int64s
    digests: UInt64s
    ids: UInt8s  # rows x 16
    datums: pa.LargeBinaryArray


def _select_rows(
    unit: Unit,
    earlier: Sequence[Sequence[ClosedBucket]],
    storage: Storage,
    programs: Mapping[int, bytes],
    result: WriteResult,
    datum_bytes_max: int,
) -> _Chosen:
    # Read a unit and select its valid rows: each id once, and none that a closed bucket contains.
    # Totals of what was read, duplicates, invalid rows and lookup errors are added to `result`.
    table, read = read_unit(unit, storage, ("event_id", "schema_id", "datum"), datum_bytes_max)
    _add(result.read, read)
    listing = table.column("listing").to_numpy().astype(np.int64)
    hours, digests, hashes, schemas = (
        table.column(name).to_numpy() for name in ("hour", "digest", "value_hash", "schema_id")
    )
    ids = to_id_array(table.column("event_id"))
    words = ids.view(">u8").reshape(-1, 2)
    head, tail = words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)
    datums = table.column("datum").cast(pa.large_binary()).combine_chunks()
    table = table.drop_columns(["datum"])  # release memory before the copies below
    verdicts = datum_verdicts(words.view(np.uint8).reshape(-1, 16), datums, schemas, programs)
    is_bad = verdicts != DatumVerdict.VALID
    by_id = (tail, head, listing)
    order = np.lexsort(
        (is_bad, *by_id) if is_bad.any() else by_id
    )  # of rows with one id, a valid one comes first
    keep = np.zeros(len(order), bool)
    keep[find_run_starts(listing[order], head[order], tail[order])] = True
    starts = np.array([x.hour_s for x in unit.listings], np.int64)
    late = hours[order] < starts[listing[order]]
    asked = _split_by_listing(listing[order], np.flatnonzero(keep & late))
    held = find_contained_ids(storage, [IdQuery(earlier[at], ids[order[own]]) for at, own in asked])
    for (at, own), is_held in zip(asked, held, strict=True):
        if isinstance(is_held, Finding):
            result.lookup_errors[unit.listings[at].event_type, unit.listings[at].hour_s] = str(
                is_held
            )
        else:
            keep[own] = ~is_held
    for left, rows in ((result.duplicates, ~keep), (result.left_out, keep & is_bad[order])):
        for at, dropped in _split_by_listing(listing[order], np.flatnonzero(rows)):
            own = order[dropped]
            key = unit.listings[at].event_type, unit.listings[at].hour_s
            _add(left.setdefault(key, {}), totals_by_hour(hours[own], digests[own], hashes[own]))
            if left is result.left_out:
                result.faults.setdefault(key, []).extend(
                    f"event {ids[row].hex()}: {describe_verdict(int(verdicts[row]), int(schemas[row]))}"
                    for row in own[:_FAULTS_SHOWN]
                )
    keep &= ~is_bad[order]
    order, late = order[keep], late[keep]
    keys = _sort_keys(listing[order], late, schemas[order])
    if len(keys) and (keys[1:] < keys[:-1]).any():
        again = np.argsort(keys, kind="stable")
        order, keys = order[again], keys[again]
    kept_ids = words.view(np.uint8).reshape(-1, 16)[order]
    return _Chosen(
        keys=keys,
        hours=hours[order],
        digests=digests[order],
        ids=kept_ids,
        datums=datums.take(pa.array(order)),
    )


def _split_by_listing(listing: Int64s, rows: Int64s) -> list[tuple[int, Int64s]]:
    starts = find_run_starts(listing[rows])
    return [(int(listing[own[0]]), own) for own in np.split(rows, starts[1:]) if len(own)]


def _sort_keys(listing: Int64s, late: Bools, schemas: Int32s) -> Int64s:
    return listing << 33 | (~late).astype(np.int64) << 32 | schemas.astype(np.int64)


def _split_into_runs(unit: Unit, chosen: _Chosen, index: IndexWriter) -> Iterator[DatumRun]:
    # Yield the rows of each container as a run and write their ids to the index.
    if not len(chosen.keys):
        return
    offsets, data = binary_buffers(chosen.datums)
    starts = find_run_starts(chosen.keys)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(chosen.keys)], strict=True):
        key = int(chosen.keys[start])
        listing = unit.listings[key >> 33]
        row = index.write(listing.event_type, listing.hour_s, chosen.ids[start:end])
        yield DatumRun(
            event_type=listing.event_type,
            hour_s=listing.hour_s,
            late=not key >> 32 & 1,
            schema_id=key & 0xFFFFFFFF,
            data=data.data,
            offsets=offsets[start : end + 1],
            ids=chosen.ids[start:end],
            digests=chosen.digests[start:end],
            hours=chosen.hours[start:end],
            index_path=index.path,
            index_row=row,
        )
