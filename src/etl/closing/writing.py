"""Writes sealed hours: deduplicated rows into Avro containers, as one job for many types at once; no event is decoded.

A task reads a unit (see `rows`), sorts it by id, drops equal neighbours and late events whose id a closed bucket holds, and
copies each bucket's datums in that order into containers: one a schema, late ones apart. Containers are sorted by id. Slots of
a large listing that stand in one task go into the same container, until it has reached the wanted size. What was written is read
again from storage by the task that wrote it, so the check is spread like the work.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etl.closing.containers import Containers, Run, WrittenFile
from etl.closing.ids import IndexWriter, as_ids, held
from etl.closing.rows import Listing, Unit, plan_units, read_unit
from etl.closing.runner import Runner
from etl.ledger.database import Database
from etl.ledger.id_indexes import ClosedBucket, closed_buckets
from etl.ledger.rows import StagedGroup
from etl.staging.columns import binary_buffers, run_starts
from etl.storage import Storage
from hourmark.config import Config
from hourmark.errors import Finding
from hourmark.hours import Hour

__all__ = ["SealedHour", "WriteLimits", "WriteTask", "WrittenFile", "plan_tasks", "write_hours", "write_on", "write_task"]

_WRITERS: Final = 16  # files of small types open at once in a task: a file on HDFS is mostly waiting


@dataclasses.dataclass(frozen=True)
class SealedHour:
    """What one bucket is to hold."""

    event_type: str
    hour: Hour
    listed: tuple[StagedGroup, ...]

    @property
    def late_hours_s(self) -> frozenset[int]:
        """Origin hours of its late events."""
        return frozenset(g.hour_s for g in self.listed if g.hour_s < self.hour.start_s)


@dataclasses.dataclass(frozen=True, slots=True)
class WriteLimits:
    """Bytes of datums in a unit, of a container file, and how many tasks run at a time."""

    unit_bytes_max: int
    target_file_bytes: int
    tasks: int


@dataclasses.dataclass(frozen=True)
class WriteTask:
    """One unit, or neighbouring slots of one listing; `earlier` for each listing of the units."""

    units: tuple[Unit, ...]
    earlier: tuple[tuple[ClosedBucket, ...], ...]


def write_on(
    runner: Runner,
    storage: Storage,
    database: Database,
    config: Config,
    sealed: Collection[SealedHour],
    schemas: Mapping[int, str],
    folder: str,
) -> list[WrittenFile]:
    """Write a round by units, wherever they run: see `etl.closing.engine.Engine.write`."""
    etl = config.etl
    late: dict[str, set[int]] = {}
    for s in sealed:
        late.setdefault(s.event_type, set()).update(s.late_hours_s)
    return write_hours(
        runner, storage, sealed, closed_buckets(database, late, config.parsing.bucket_seconds), schemas, folder,
        WriteLimits(etl.unit_bytes_max, etl.target_file_bytes, etl.tasks),
    )  # fmt: skip


def write_hours(
    runner: Runner,
    storage: Storage,
    sealed: Collection[SealedHour],
    closed: Mapping[str, Sequence[ClosedBucket]],
    schemas: Mapping[int, str],
    folder: str,
    limits: WriteLimits,
) -> list[WrittenFile]:
    """Write all of them into `folder`; an hour without rows gives no file. Safe to repeat into another folder.

    `closed`: by type, closed buckets that may hold late events of it already; of one type, hours that are late events of another
    hour of the same call are an error. Unreadable names a staged file that must be staged again. What concerns one hour alone
    comes back as its `trouble`.
    """
    work = functools.partial(
        write_task, storage=storage, schemas=schemas, folder=folder, target_file_bytes=limits.target_file_bytes
    )
    return [file for files in runner.map(work, plan_tasks(sealed, closed, limits)) for file in files]


def plan_tasks(
    sealed: Collection[SealedHour], closed: Mapping[str, Sequence[ClosedBucket]], limits: WriteLimits
) -> list[WriteTask]:
    """Tasks of a round; the slots of one listing are dealt to as many as run at a time."""
    hours = {(s.event_type, s.hour.start_s) for s in sealed}
    assert not any((s.event_type, late) in hours for s in sealed for late in s.late_hours_s), "an hour and its own late events"
    earlier = {(s.event_type, s.hour.start_s): _earlier(s, closed.get(s.event_type, ())) for s in sealed}
    tasks: list[WriteTask] = []
    slots: dict[Listing, list[Unit]] = {}
    for unit in plan_units(
        [Listing(s.event_type, s.hour.start_s, s.listed) for s in sealed], limits.unit_bytes_max, tasks=limits.tasks
    ):
        if unit.slot is not None:
            slots.setdefault(unit.listings[0], []).append(unit)
        else:
            tasks.append(WriteTask((unit,), tuple(earlier[x.event_type, x.hour_s] for x in unit.listings)))
    for listing, units in slots.items():
        each = -(-len(units) // limits.tasks)
        for first in range(0, len(units), each):
            tasks.append(WriteTask(tuple(units[first : first + each]), (earlier[listing.event_type, listing.hour_s],)))
    return tasks


def _earlier(sealed: SealedHour, closed: Sequence[ClosedBucket]) -> tuple[ClosedBucket, ...]:
    return tuple(b for b in closed if b.hour_s < sealed.hour.start_s) if sealed.late_hours_s else ()


def write_task(
    task: WriteTask, *, storage: Storage, schemas: Mapping[int, str], folder: str, target_file_bytes: int
) -> list[WrittenFile]:
    """One task's containers, and the index of their ids beside them."""
    index_path = f"{folder}/{uuid.uuid4().hex}.ids"
    containers = functools.partial(Containers, storage, folder, schemas, target_file_bytes)
    files: list[WrittenFile] = []
    with storage.create(index_path) as file, IndexWriter(file, index_path) as index, containers() as shared:
        for unit in task.units:
            files += _write_unit(unit, task.earlier, storage, index, containers, shared)
        files += shared.finish()
    return files


def _write_unit(
    unit: Unit,
    earlier: Sequence[Sequence[ClosedBucket]],
    storage: Storage,
    index: IndexWriter,
    containers: functools.partial[Containers],
    shared: Containers,
) -> list[WrittenFile]:
    """Runs of a slot go into the task's `shared` containers, others into files of their own. The unit's memory ends with it."""
    chosen, files = _chosen(unit, earlier, storage)
    runs = list(_runs(unit, chosen, index))
    if len(runs) > 1 and unit.slot is None:
        return files + _write_each(containers, runs)
    for run in runs:
        shared.write(run)
    return files


def _write_each(containers: functools.partial[Containers], runs: Sequence[Run]) -> list[WrittenFile]:
    """Each run as a file of its own, several at a time."""

    def write(run: Run) -> list[WrittenFile]:
        with containers() as own:
            own.write(run)
            return own.finish()

    with ThreadPoolExecutor(_WRITERS) as pool:
        return [file for files in pool.map(write, runs) for file in files]


@dataclasses.dataclass(frozen=True)
class _Chosen:
    """The rows that buckets get, sorted by (listing, late or not, schema, id); `keys` says the first three in one number."""

    keys: npt.NDArray[np.int64]
    hours: npt.NDArray[np.int64]
    ids: npt.NDArray[np.uint8]  # rows x 16
    datums: pa.LargeBinaryArray


def _chosen(unit: Unit, earlier: Sequence[Sequence[ClosedBucket]], storage: Storage) -> tuple[_Chosen, list[WrittenFile]]:
    """Each id once, none that a closed bucket holds; with the trouble of listings for which that cannot be told."""
    table = read_unit(unit, storage, ("event_id", "schema_id", "datum"))
    listing = table.column("listing").to_numpy().astype(np.int64)
    hours, schemas = table.column("hour").to_numpy(), table.column("schema_id").to_numpy()
    ids = as_ids(table.column("event_id"))
    words = ids.view(">u8").reshape(-1, 2)
    head, tail = words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)
    order = np.lexsort((tail, head, listing))
    order = order[run_starts(listing[order], head[order], tail[order])]
    starts = np.array([x.hour_s for x in unit.listings], np.int64)
    late = hours[order] < starts[listing[order]]
    keep, troubles = np.ones(len(order), bool), []
    for at in np.unique(listing[order[late]]).tolist():
        own = np.flatnonzero(late & (listing[order] == at))
        try:
            keep[own] = ~held(storage, earlier[at], ids[order[own]])
        except Finding as error:
            troubles.append(WrittenFile.of_trouble(unit.listings[at].event_type, unit.listings[at].hour_s, str(error)))
    order, late = order[keep], late[keep]
    keys = _key(listing[order], late, schemas[order])
    if len(keys) and (keys[1:] < keys[:-1]).any():
        again = np.argsort(keys, kind="stable")
        order, keys = order[again], keys[again]
    datums = table.column("datum")
    del table  # what is copied from here on is large
    whole = datums.cast(pa.large_binary()).combine_chunks()
    del datums
    return _Chosen(keys, hours[order], words.view(np.uint8).reshape(-1, 16)[order], whole.take(pa.array(order))), troubles


def _key(listing: npt.NDArray[np.int64], late: npt.NDArray[np.bool_], schemas: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """On-time rows sort after late ones, as their ids do: then nothing is to be sorted again where a listing has one schema."""
    return listing << 33 | (~late).astype(np.int64) << 32 | schemas.astype(np.int64)


def _runs(unit: Unit, chosen: _Chosen, index: IndexWriter) -> Iterator[Run]:
    """What goes into one container, in turn; its ids are written to the index."""
    if not len(chosen.keys):
        return
    base = index.write(chosen.ids)
    offsets, data = binary_buffers(chosen.datums)
    tails = chosen.ids[:, 8:].copy().view(">u8").ravel().astype(np.uint64)
    starts = run_starts(chosen.keys)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(chosen.keys)], strict=True):
        key = int(chosen.keys[start])
        listing = unit.listings[key >> 33]
        yield Run(
            listing.event_type, listing.hour_s, not key >> 32 & 1, key & 0xFFFFFFFF, data.data,
            offsets[start : end + 1], tails[start:end], chosen.hours[start:end], index.path, base + start,
        )  # fmt: skip
