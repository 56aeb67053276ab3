"""Writes sealed hours: deduplicated rows into Avro containers, as one job for many types at once;
no event is decoded.

Each datum is checked by the schema of its container, and the event id in it against the row's: a
row that is not valid holds its hour, or is left out where an override says so. Staging checks the
same, but not what version 0.3.0 staged, nor under a schema id that the ledger did not know.

A task reads a unit (see `rows`), sorts it by id, drops equal neighbours and late events whose id a
closed bucket holds, and copies each bucket's datums in that order into containers: one a schema,
late ones apart. Containers are sorted by id. Slots of a large listing that stand in one task go
into the same container, until it has reached the wanted size. What was written is read again from
storage by the task that wrote it, so the check is spread like the work.

What is written is what was proved: of every group all rows are read that are listed, with their
values, and of every origin hour of a bucket, rows, digest and checksum of values of what was
written and of the duplicates that were left out add up to what is listed. Value hashes are computed
from datums twice: when a unit is read, so a file whose values are not those that were staged is
staged again, and from the bytes that go into a container, so a change on the way there holds the
hour.
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

from hourmark.avro.datum_check import Verdict, program_of
from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark_etl.arrow import Bools, Int32s, Int64s, UInt8s, UInt64s, binary_buffers, run_starts
from hourmark_etl.closing.runner import Runner
from hourmark_etl.closing.units import (
    Listing,
    Overfull,
    Unit,
    check_read,
    plan_units,
    read_unit,
    sums_by_hour,
)
from hourmark_etl.closing.write.containers import Containers, Run, WrittenFile, WrittenHour
from hourmark_etl.datums import datum_verdicts, reason_of
from hourmark_etl.ids.lookups import Asked, IndexWriter, as_ids, held
from hourmark_etl.ledger.closed import ClosedBucket
from hourmark_etl.ledger.listings import row_sums
from hourmark_etl.model import StagedGroup, Sums, from_row
from hourmark_etl.storage import Storage

_Key = TypeVar("_Key")
_OVERFULL: Final = (
    2  # a slot is read in parts where it has so many times the bytes that it was planned for
)
_FAULTS_SHOWN: Final = 10  # rows of an hour that cannot be written, and are named
_WRITERS: Final = (
    16  # files of small types open at once in a task: a file on HDFS is mostly waiting
)


class SealedHour(NamedTuple):
    """What one bucket is to hold."""

    event_type: str
    hour: Hour
    listed: tuple[StagedGroup, ...]
    leaves_out: bool = False  # rows that cannot be written, as an override says
    # what only a closed bucket tells that cannot be read: late events that it holds, its marker
    gives_up: bool = False

    @property
    def late_hours_s(self) -> frozenset[int]:
        """Origin hours of its late events."""
        return frozenset(g.hour_s for g in self.listed if g.hour_s < self.hour.start_s)


class WriteLimits(NamedTuple):
    """Bytes of datums in a unit, of a container file, and how many tasks run at a time."""

    unit_bytes_max: int
    target_file_bytes: int
    tasks: int


class WriteTask(NamedTuple):
    """One unit, or neighbouring slots of one listing; `earlier` for each listing of the units."""

    units: tuple[Unit, ...]
    earlier: tuple[tuple[ClosedBucket, ...], ...]


@dataclasses.dataclass(frozen=True)
class Written:
    """What a task, or several, did: see `WrittenFile` and `WrittenHour`. By (type, the bucket's
    hour), but what was `read`.
    """

    files: list[WrittenFile] = dataclasses.field(default_factory=list)
    read: dict[StagedGroup, Sums] = dataclasses.field(default_factory=dict)
    duplicates: dict[tuple[str, int], dict[int, Sums]] = dataclasses.field(default_factory=dict)
    left_out: dict[tuple[str, int], dict[int, Sums]] = dataclasses.field(default_factory=dict)
    faults: dict[tuple[str, int], list[str]] = dataclasses.field(
        default_factory=dict
    )  # of some rows that were left out
    troubles: dict[tuple[str, int], str] = dataclasses.field(default_factory=dict)

    def add(self, other: Written) -> None:
        """What another did, too."""
        self.files.extend(other.files)
        self.troubles.update(other.troubles)
        _add(self.read, other.read)
        for mine, others in ((self.duplicates, other.duplicates), (self.left_out, other.left_out)):
            for key, by_hour in others.items():
                _add(mine.setdefault(key, {}), by_hour)
        for key, faults in other.faults.items():
            self.faults.setdefault(key, []).extend(faults)


def _add(total: dict[_Key, Sums], part: Mapping[_Key, Sums]) -> None:
    for key, sums in part.items():
        total[key] = total.get(key, Sums()) + sums


def write_hours(
    runner: Runner,
    storage: Storage,
    sealed: Collection[SealedHour],
    closed: Mapping[str, Sequence[ClosedBucket]],
    schemas: Mapping[int, str],
    folder: str,
    limits: WriteLimits,
) -> list[WrittenHour]:
    """Write all of them into `folder`, and say what was written of each, in turn.

    Safe to repeat into another folder.

    `closed`: by type, closed buckets that may hold late events of it already; of one type, hours
    that are late events of another hour of the same call are an error. Unreadable names a staged
    file that must be staged again. What concerns one hour alone comes back as its `trouble`.
    """
    work = functools.partial(
        write_task, storage=storage, schemas=schemas, folder=folder, limits=limits
    )
    done = Written()
    for part in runner.map(work, plan_tasks(sealed, closed, limits)):
        done.add(part)
    check_read((g for s in sealed for g in s.listed), done.read)
    files = defaultdict[tuple[str, int], list[WrittenFile]](list)
    for f in done.files:
        files[f.event_type, f.hour_s].append(f)
    return [_written_hour(s, tuple(files[s.event_type, s.hour.start_s]), done) for s in sealed]


def _written_hour(sealed: SealedHour, files: tuple[WrittenFile, ...], done: Written) -> WrittenHour:
    key = sealed.event_type, sealed.hour.start_s
    duplicates, left_out = done.duplicates.get(key, {}), done.left_out.get(key, {})
    faults = tuple(sorted(done.faults.get(key, ()))[:_FAULTS_SHOWN])
    listed, found = dict[int, Sums](), dict[int, Sums]()
    for g in sealed.listed:
        _add(listed, {g.hour_s: dataclasses.replace(row_sums(g), records=0)})
    for part in (duplicates, left_out, *(f.hours for f in files)):
        _add(found, part)
    unknown = [done.troubles[key]] if key in done.troubles else []
    troubles = [f.trouble for f in files]
    for start_s in sorted(listed.keys() | found.keys()):
        wanted, got = listed.get(start_s, Sums()), found.get(start_s, Sums())
        if wanted.unchecked:  # groups of version 0.3.0 are listed without a checksum
            wanted = dataclasses.replace(wanted, values=got.values, unchecked=0)
        if got != wanted:
            hour = Hour(start_s, sealed.hour.length_s)
            troubles.append(
                f"{wanted.events} rows of {sealed.event_type} {hour} are listed for "
                f"{sealed.hour}, digest {wanted.digest:016x}, "
                f"checksum of values {wanted.values:016x}, and {got.events} were written or "
                "left out as duplicates, digest "
                f"{got.digest:016x}, checksum of values {got.values:016x}; it is not published, "
                "and written again"
            )
    count = sum(of.events for of in left_out.values())
    unwritable = (
        [f"{count} rows cannot be written: {'; '.join(faults)}"]
        if count and not sealed.leaves_out
        else []
    )
    unwritable += [] if sealed.gives_up else unknown
    trouble = "; ".join(sorted({t for t in troubles if t}))
    return from_row(
        WrittenHour,
        (*key, files, duplicates, trouble, left_out, faults, "; ".join(unwritable), tuple(unknown)),
    )


def plan_tasks(
    sealed: Collection[SealedHour],
    closed: Mapping[str, Sequence[ClosedBucket]],
    limits: WriteLimits,
) -> list[WriteTask]:
    """Tasks of a round; the slots of one listing are dealt to as many as run at a time."""
    hours = {(s.event_type, s.hour.start_s) for s in sealed}
    assert not any((s.event_type, late) in hours for s in sealed for late in s.late_hours_s), (
        "an hour and its own late events"
    )
    earlier = {
        (s.event_type, s.hour.start_s): tuple(
            b for b in closed.get(s.event_type, ()) if s.late_hours_s and b.hour_s < s.hour.start_s
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
) -> Written:
    """One task's containers, and the index of their ids beside them."""
    index_path = f"{folder}/{uuid.uuid4().hex}.ids"
    containers = functools.partial(Containers, storage, folder, schemas, limits.target_file_bytes)
    programs = {schema_id: program_of(text) for schema_id, text in schemas.items()}
    done = Written()

    def write_own(run: Run) -> list[WrittenFile]:
        with containers() as own:
            own.write(run)
            return own.finish()

    def write_unit(unit: Unit) -> None:
        """Runs of a slot go into `shared` containers, others into files of their own.

        The unit's memory ends with it.
        """
        parts: tuple[Unit, ...] = ()
        try:
            chosen = _chosen(
                unit, task.earlier, storage, programs, done, _OVERFULL * limits.unit_bytes_max
            )
        except Overfull as overfull:
            parts = overfull.parts
        for part in parts:  # what was read of the whole has been let go of
            write_unit(part)
        if parts:
            return
        runs = list(_runs(unit, chosen, index))
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
    """The rows that buckets get, sorted by (listing, late or not, schema, id); `keys` says the
    first three in one number.
    """

    keys: Int64s
    hours: Int64s
    digests: UInt64s
    ids: UInt8s  # rows x 16
    datums: pa.LargeBinaryArray


def _chosen(
    unit: Unit,
    earlier: Sequence[Sequence[ClosedBucket]],
    storage: Storage,
    programs: Mapping[int, bytes],
    done: Written,
    datum_bytes_max: int,
) -> _Chosen:
    """Each id once, none that a closed bucket holds, and only valid datums.

    Adds to `done` what was read, the duplicates, the rows that cannot be written, and the trouble
    of listings for which duplicates cannot be told.
    """
    table, read = read_unit(unit, storage, ("event_id", "schema_id", "datum"), datum_bytes_max)
    _add(done.read, read)
    listing = table.column("listing").to_numpy().astype(np.int64)
    hours, digests, hashes, schemas = (
        table.column(name).to_numpy() for name in ("hour", "digest", "value_hash", "schema_id")
    )
    ids = as_ids(table.column("event_id"))
    words = ids.view(">u8").reshape(-1, 2)
    head, tail = words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)
    datums = table.column("datum").cast(pa.large_binary()).combine_chunks()
    table = table.drop_columns(["datum"])  # what is copied from here on is large
    verdicts = datum_verdicts(words.view(np.uint8).reshape(-1, 16), datums, schemas, programs)
    is_bad = verdicts != Verdict.VALID
    by_id = (tail, head, listing)
    order = np.lexsort(
        (is_bad, *by_id) if is_bad.any() else by_id
    )  # of rows with one id, a valid one comes first
    keep = np.zeros(len(order), bool)
    keep[run_starts(listing[order], head[order], tail[order])] = True
    starts = np.array([x.hour_s for x in unit.listings], np.int64)
    late = hours[order] < starts[listing[order]]
    asked = _by_listing(listing[order], np.flatnonzero(keep & late))
    told = held(storage, [Asked(earlier[at], ids[order[own]]) for at, own in asked])
    for (at, own), is_held in zip(asked, told, strict=True):
        if isinstance(is_held, Finding):
            done.troubles[unit.listings[at].event_type, unit.listings[at].hour_s] = str(is_held)
        else:
            keep[own] = ~is_held
    for left, rows in ((done.duplicates, ~keep), (done.left_out, keep & is_bad[order])):
        for at, dropped in _by_listing(listing[order], np.flatnonzero(rows)):
            own = order[dropped]
            key = unit.listings[at].event_type, unit.listings[at].hour_s
            _add(left.setdefault(key, {}), sums_by_hour(hours[own], digests[own], hashes[own]))
            if left is done.left_out:
                done.faults.setdefault(key, []).extend(
                    f"event {ids[row].hex()}: {reason_of(int(verdicts[row]), int(schemas[row]))}"
                    for row in own[:_FAULTS_SHOWN]
                )
    keep &= ~is_bad[order]
    order, late = order[keep], late[keep]
    keys = _key(listing[order], late, schemas[order])
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


def _by_listing(listing: Int64s, rows: Int64s) -> list[tuple[int, Int64s]]:
    """These rows, apart by their listing, by which all are sorted."""
    starts = run_starts(listing[rows])
    return [(int(listing[own[0]]), own) for own in np.split(rows, starts[1:]) if len(own)]


def _key(listing: Int64s, late: Bools, schemas: Int32s) -> Int64s:
    """On-time rows sort after late ones, as their ids do: then nothing is to be sorted again where
    a listing has one schema.
    """
    return listing << 33 | (~late).astype(np.int64) << 32 | schemas.astype(np.int64)


def _runs(unit: Unit, chosen: _Chosen, index: IndexWriter) -> Iterator[Run]:
    """What goes into one container, in turn; its ids are written to the index."""
    if not len(chosen.keys):
        return
    offsets, data = binary_buffers(chosen.datums)
    starts = run_starts(chosen.keys)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(chosen.keys)], strict=True):
        key = int(chosen.keys[start])
        listing = unit.listings[key >> 33]
        row = index.write(listing.event_type, listing.hour_s, chosen.ids[start:end])
        yield Run(
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
