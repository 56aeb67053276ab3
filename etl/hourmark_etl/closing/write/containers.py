"""Container files of buckets while they are written: rolled over at the wanted size, read back when
finished.

Datums are copied without decoding: `writing` has checked each by the schema that the container
gets. A schema that differs in names alone passes, as datums hold none, so the container's must have
the name of the bucket's type.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

import numpy as np

from hourmark.avro.framing import event_schema
from hourmark_etl.arrow import Int64s, UInt8s, UInt64s, datum_hashes
from hourmark_etl.buckets.avro_container import ContainerReader, ContainerWriter, Digesting
from hourmark_etl.closing.units import sums_by_hour
from hourmark_etl.ledger.closed import IdRun
from hourmark_etl.model import Sums
from hourmark_etl.storage import Storage

_STEP_BYTES: Final = 8 << 20  # of datums between looks at a container's size
_Key = tuple[
    str, int, bool, int
]  # of a container: type, the bucket's hour, whether it is of late events, schema id


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """One container file, below the job's folder. `id_sum`: of the ids' last 8 bytes, modulo 2^64.

    `hours`: its rows by origin hour (Unix seconds), with their digest and the checksum of the
    datums that were written. `trouble`: what did not read back, "" if nothing is wrong.
    """

    event_type: str
    hour_s: int  # of the bucket
    late: bool
    schema_id: int
    path: str
    records: int
    bytes: int
    blake2b: str
    id_sum: int
    hours: Mapping[int, Sums]
    index: tuple[IdRun, ...] = ()
    index_digest: str = ""  # of the file that `index` names
    trouble: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenHour:
    """What one bucket is to be made of.

    `duplicates`: rows that were listed and left out, as their ids stand in it or in an earlier
    bucket, by origin hour. `trouble`: why it is not to be published, "" if nothing is wrong.
    `left_out`: rows whose datums cannot be written, by origin hour; `faults`: some of them, with
    their reasons. `unwritable`: the same as a trouble, where no override gives it up; `unverified`:
    what one has given up.
    """

    event_type: str
    hour_s: int
    files: tuple[WrittenFile, ...]
    duplicates: Mapping[int, Sums]
    trouble: str
    left_out: Mapping[int, Sums] = dataclasses.field(default_factory=dict)
    faults: tuple[str, ...] = ()
    unwritable: str = ""
    unverified: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """Rows of one bucket, schema and lateness, ascending by id: datum i is
    data[offsets[i]:offsets[i + 1]].
    """

    event_type: str
    hour_s: int
    late: bool
    schema_id: int
    data: memoryview
    offsets: Int64s
    ids: UInt8s  # rows x 16
    digests: UInt64s
    hours: Int64s
    index_path: str
    index_row: int  # of the first

    def part(self, start: int, end: int) -> Run:
        """Rows [start, end) of it."""
        return dataclasses.replace(
            self,
            offsets=self.offsets[start : end + 1],
            ids=self.ids[start:end],
            digests=self.digests[start:end],
            hours=self.hours[start:end],
            index_row=self.index_row + start,
        )


class Containers(ExitStack):
    """Open containers of a task; what was written and not finished when its block ends with an
    exception is gone.
    """

    def __init__(
        self, storage: Storage, folder: str, schemas: Mapping[int, str], target_bytes: int
    ) -> None:
        super().__init__()
        self._storage, self._folder, self._schemas, self._target_bytes = (
            storage,
            folder,
            schemas,
            target_bytes,
        )
        self._open: dict[_Key, _OpenContainer] = {}
        self._finished: list[WrittenFile] = []

    def write(self, run: Run) -> None:
        """Append; a run must not begin below what its container holds already."""
        key = (run.event_type, run.hour_s, run.late, run.schema_id)
        start, end = 0, len(run.ids)
        while start < end:
            until = int(np.searchsorted(run.offsets, run.offsets[start] + _STEP_BYTES, "right")) - 1
            until = min(end, max(until, start + 1))
            if key not in self._open:
                path = f"{self._folder}/{uuid.uuid4().hex}.avro"
                file = self.enter_context(ExitStack())
                self._open[key] = _OpenContainer(
                    self._storage, path, file, self._schemas[run.schema_id], key
                )
            self._open[key].write(run.part(start, until))
            if self._open[key].size >= self._target_bytes:
                self._finished.append(self._open.pop(key).finish())
            start = until

    def finish(self) -> list[WrittenFile]:
        """Finish all files: they are on storage then, and were read back."""
        while self._open:
            self._finished.append(self._open.popitem()[1].finish())
        return self._finished


class _OpenContainer:
    """A container being written, with what the manifest will say of it; `file` is closed
    with it.
    """

    def __init__(
        self, storage: Storage, path: str, file: ExitStack, schema_json: str, of: _Key
    ) -> None:
        self._storage, self._path, self._file, self._of = storage, path, file, of
        self._writer = ContainerWriter(
            file.enter_context(storage.create(path, unpublished=True)), schema_json
        )
        self._index: list[IdRun] = []
        self._id_sum = 0
        self._hours = defaultdict[int, Sums](Sums)

    @property
    def size(self) -> int:
        return self._writer.size

    def write(self, run: Run) -> None:
        self._writer.append_run(run.data, run.offsets)
        tails = run.ids[:, 8:].copy().view(">u8").ravel().astype(np.uint64)
        self._id_sum += int(tails.sum(dtype=np.uint64))
        hashes = datum_hashes(tails, run.schema_id, run.offsets, run.data)
        for hour, rows in sums_by_hour(run.hours, run.digests, hashes).items():
            self._hours[hour] += rows
        self._add_index(run.index_path, run.index_row, len(run.ids))

    def _add_index(self, path: str, first_row: int, rows: int) -> None:
        """Neighbouring rows of the index as one run: parts of a sorted whole."""
        if self._index and (
            self._index[-1].path,
            self._index[-1].first_row + self._index[-1].rows,
        ) == (path, first_row):
            last = self._index.pop()
            first_row, rows = last.first_row, last.rows + rows
        self._index.append(IdRun(path, first_row, rows))

    def finish(self) -> WrittenFile:
        stats = self._writer.close()
        self._file.close()
        event_type, hour_s, late, schema_id = self._of
        written = WrittenFile(
            event_type=event_type,
            hour_s=hour_s,
            late=late,
            schema_id=schema_id,
            path=self._path,
            records=stats.records,
            bytes=stats.bytes,
            blake2b=stats.blake2b,
            id_sum=self._id_sum % (1 << 64),
            hours=self._hours,
            index=tuple(self._index),
        )
        return dataclasses.replace(written, trouble=read_back(self._storage, written))


def read_back(storage: Storage, written: WrittenFile) -> str:
    """Read the file from storage: what of it is not as it was written (digest, size, records,
    type); "" if all is.
    """
    with storage.open(written.path, size=written.bytes) as file:
        seen = Digesting(file)
        try:
            # it reads, and nothing else
            container = ContainerReader(seen)  # type: ignore[arg-type]
            _check_type(container, written.event_type)
            records = sum(block.records for block in container)
        except Exception as error:  # noqa: BLE001  # damaged bytes make a decoder raise anything
            return (
                f"{storage.url(written.path)} does not read back as Avro "
                f"({type(error).__name__}: {error})"
            )
    found, wanted = (
        (records, seen.bytes, seen.digest.hexdigest()),
        (written.records, written.bytes, written.blake2b),
    )
    return (
        f"{storage.url(written.path)} reads back as {found}, {wanted} was written"
        if found != wanted
        else ""
    )


def _check_type(container: ContainerReader, event_type: str) -> None:
    """ValueError if the container's schema is not one of the type."""
    schema = json.loads(container.metadata["avro.schema"])
    wanted = event_schema(event_type, [])
    if (schema["name"], schema.get("namespace")) != (wanted["name"], wanted["namespace"]):
        raise ValueError(
            f"its schema is of {schema.get('namespace')}.{schema['name']}, and not of the "
            f"type {event_type}"
        )
