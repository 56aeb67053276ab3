"""Writes container files of buckets: splits them at the target size and reads them back.

Datums are copied without decoding: `writing` has validated each of them against the container's
schema. A schema that differs only in names would pass, because datums contain no names; so
read-back checks that the container's schema has the name of the bucket's type.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import Final

import numpy as np

from hourmark.avro.framing import event_schema
from hourmark.config.groups import AvroCodec
from hourmark_etl.arrow import Int64s, UInt8s, UInt64s, datum_hashes
from hourmark_etl.buckets.avro_container import ContainerReader, ContainerWriter
from hourmark_etl.buckets.digesting_reader import DigestingReader
from hourmark_etl.buckets.parquet_rows import DatumConverter
from hourmark_etl.closing.units import totals_by_hour
from hourmark_etl.closing.write.parquet_files import ParquetFiles, WrittenParquet
from hourmark_etl.ledger.closed import IdIndexSegment
from hourmark_etl.model import EventTotals
from hourmark_etl.storage import Storage

STEP_BYTES: Final = 8 << 20  # bytes of datums between checks of a container's size
_Key = tuple[
    str, int, bool, int
]  # of a container: type, the bucket's hour, whether it is of late events, schema id


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """An Avro container file that was written but is not part of a bucket yet.

    Attributes:
        event_type: The bucket's event type.
        hour_s: Unix seconds at the start of the bucket's hour.
        late: Whether the file contains late events (events of earlier hours).
        schema_id: Schema id of all events.
        path: Path relative to the storage root.
        records: Number of events.
        bytes: Size of the file in bytes.
        blake2b: BLAKE2b digest of the file in hex.
        id_sum: Sum of the last 8 bytes of all event ids, modulo 2^64.
        hours: Totals of the written rows by hour of event time (Unix seconds).
        codec: Codec of the file.
        index: Positions of the events' ids in an id index file, which is used to find late
            duplicates.
        index_digest: Digest of the id index file in hex.
        read_back_error: Difference that was found when the file or one of its Parquet files was
            read back, as human-readable text; empty if there is none.
        parquet: Parquet files with the same rows, in the same order; empty if none were requested.
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
    hours: Mapping[int, EventTotals]
    codec: AvroCodec
    index: tuple[IdIndexSegment, ...] = ()
    index_digest: str = ""  # of the file that `index` names
    read_back_error: str = ""
    parquet: tuple[WrittenParquet, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenHour:
    """The written files of one bucket, and the totals of rows that were not written.

    Attributes:
        event_type: The bucket's event type.
        hour_s: Unix seconds at the start of the bucket's hour.
        files: The written files; empty if the bucket has no events.
        duplicates: Totals of dropped duplicates by hour of event time (Unix seconds). Events with
            the same ids are in this bucket or in an earlier one.
        publish_error: Why the bucket must not be published; empty if there is no error.
        left_out: Totals of invalid rows, which were not written, by hour of event time.
        faults: Human-readable reasons why rows in `left_out` are invalid, for some of these rows.
        unwritable: Why the bucket must not be published without an operator's override; empty if
            there is no such problem.
        unverified: Human-readable descriptions of checks that were not possible.
    """

    event_type: str
    hour_s: int
    files: tuple[WrittenFile, ...]
    duplicates: Mapping[int, EventTotals]
    publish_error: str
    left_out: Mapping[int, EventTotals] = dataclasses.field(default_factory=dict)
    faults: tuple[str, ...] = ()
    unwritable: str = ""
    unverified: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatumRun:
    """Consecutive rows of one bucket with the same schema, sorted by event id.

    The encoded event of row i is `data[offsets[i]:offsets[i + 1]]`.

    Attributes:
        event_type: The bucket's event type.
        hour_s: Unix seconds at the start of the bucket's hour.
        late: Whether the rows are late events (events of earlier hours).
        schema_id: Schema id of all rows.
        data: Buffer with the encoded events.
        offsets: Byte offsets into `data`, one more than the number of rows.
        ids: Event ids, as an array of shape (rows, 16).
        digests: Digest of each row, which depends on its event id and range id.
        hours: Hour of event time of each row, in Unix seconds.
        index_path: Path of the id index file with the ids of these rows. It is used to find late
            duplicates.
        index_row: Index of the first row's id in the id index file.
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

    def part(self, start: int, end: int) -> DatumRun:
        """Return some consecutive rows of this run as a new run.

        Args:
            start: Index of the first row.
            end: Index after the last row.

        Returns:
            A run that shares the buffer `data` with this one.
        """
        return dataclasses.replace(
            self,
            offsets=self.offsets[start : end + 1],
            ids=self.ids[start:end],
            digests=self.digests[start:end],
            hours=self.hours[start:end],
            index_row=self.index_row + start,
        )


class ContainerSet(ExitStack):
    """Writer of Avro container files, with one open file per bucket and schema.

    Late events (events of earlier hours) are written to separate files. Use an instance as a
    context manager. If the block raises an exception, unfinished files are discarded.

    Args:
        storage: Storage to write to.
        folder: Path of the folder for the files.
        schemas: Avro schemas as JSON, by schema id.
        target_bytes: Size in bytes at which a file is finished and a new one is created.
        codec: Codec of the files.
        parquet_types: Event types whose rows are also written as Parquet files.
        step_bytes: Bytes of encoded events that are written between two checks of the file size.
    """

    def __init__(
        self,
        storage: Storage,
        folder: str,
        schemas: Mapping[int, str],
        target_bytes: int,
        codec: AvroCodec,
        parquet_types: Collection[str] = frozenset(),
        step_bytes: int = STEP_BYTES,
    ) -> None:
        super().__init__()
        self._parquet_types = parquet_types
        self._step_bytes, self._codec = step_bytes, codec
        self._storage, self._folder, self._schemas, self._target_bytes = (
            storage,
            folder,
            schemas,
            target_bytes,
        )
        self._open: dict[_Key, _OpenContainer] = {}
        self._finished: list[WrittenFile] = []

    def write(self, run: DatumRun) -> None:
        """Append rows to the file of their bucket and schema.

        The file is created if necessary. When it reaches the target size, it is finished.

        Args:
            run: The rows. Their ids must not be less than the ids that are already in the file.
        """
        key = (run.event_type, run.hour_s, run.late, run.schema_id)
        start, end = 0, len(run.ids)
        while start < end:
            until = (
                int(np.searchsorted(run.offsets, run.offsets[start] + self._step_bytes, "right"))
                - 1
            )
            until = min(end, max(until, start + 1))
            if key not in self._open:
                path = f"{self._folder}/{uuid.uuid4().hex}.avro"
                file = self.enter_context(ExitStack())
                self._open[key] = _OpenContainer(
                    self._storage,
                    path,
                    file,
                    self._schemas[run.schema_id],
                    self._codec,
                    key,
                    self._parquet_files(run, file),
                )
            self._open[key].write(run.part(start, until))
            if self._open[key].size >= self._target_bytes:
                self._finished.append(self._open.pop(key).finish())
            start = until

    def _parquet_files(self, run: DatumRun, opened: ExitStack) -> ParquetFiles | None:
        # None also for a schema that Parquet cannot express, such as that of an older version.
        if run.event_type not in self._parquet_types:
            return None
        try:
            converter = DatumConverter(json.loads(self._schemas[run.schema_id]))
        except ValueError:
            return None
        return ParquetFiles(self._storage, self._folder, converter, opened)

    def finish(self) -> list[WrittenFile]:
        """Finish all open files and verify them by reading them back from storage.

        Returns:
            All files that this instance has written. If the content of a file differs from what was
            written, its `read_back_error` is set.
        """
        while self._open:
            self._finished.append(self._open.popitem()[1].finish())
        return self._finished


class _OpenContainer:
    def __init__(
        self,
        storage: Storage,
        path: str,
        file: ExitStack,
        schema_json: str,
        codec: AvroCodec,
        of: _Key,
        parquet: ParquetFiles | None,
    ) -> None:
        self._storage, self._path, self._file, self._of = storage, path, file, of
        self._codec, self._parquet = codec, parquet
        self._writer = ContainerWriter(
            file.enter_context(storage.create(path, unpublished=True)), schema_json, codec=codec
        )
        self._index: list[IdIndexSegment] = []
        self._id_sum = 0
        self._hours = defaultdict[int, EventTotals](EventTotals)

    @property
    def size(self) -> int:
        return self._writer.size

    def write(self, run: DatumRun) -> None:
        self._writer.append_run(run.data, run.offsets)
        tails = run.ids[:, 8:].copy().view(">u8").ravel().astype(np.uint64)
        self._id_sum += int(tails.sum(dtype=np.uint64))
        hashes = datum_hashes(tails, run.schema_id, run.offsets, run.data)
        for hour, rows in totals_by_hour(run.hours, run.digests, hashes).items():
            self._hours[hour] += rows
        self._add_index(run.index_path, run.index_row, len(run.ids))
        if self._parquet is not None:
            self._parquet.write(run.data, run.offsets, run.hours)

    def _add_index(self, path: str, first_row: int, rows: int) -> None:
        if self._index and (
            self._index[-1].path,
            self._index[-1].first_row + self._index[-1].rows,
        ) == (path, first_row):
            last = self._index.pop()
            first_row, rows = last.first_row, last.rows + rows
        self._index.append(IdIndexSegment(path, first_row, rows))

    def finish(self) -> WrittenFile:
        stats = self._writer.close()
        parquet = () if self._parquet is None else self._parquet.finish()
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
            codec=self._codec,
            index=tuple(self._index),
            parquet=parquet,
        )
        errors = [
            verify_written_file(self._storage, written),
            *(of.read_back_error for of in parquet),
        ]
        if self._parquet is not None and self._parquet.error:
            errors.append(
                f"events of {event_type} with schema id {schema_id} cannot be written as Parquet: "
                f'{self._parquet.error}; set format = "avro" for the type, and run `hourmark types '
                "apply`"
            )
        return dataclasses.replace(written, read_back_error="; ".join(filter(None, errors)))


def verify_written_file(storage: Storage, written: WrittenFile) -> str:
    """Read a container file back from storage and compare it with what was written.

    The digest, the size, the number of records, the codec and the event type in the schema are
    compared.

    Args:
        storage: Storage with the file.
        written: The file and its expected properties.

    Returns:
        A human-readable description of the difference; empty if there is none.

    Raises:
        StorageError: The file cannot be opened, for example because storage is unavailable.
    """
    with storage.open(written.path, size=written.bytes) as file:
        seen = DigestingReader(file)
        try:
            # only its `read` method is needed
            container = ContainerReader(seen)  # type: ignore[arg-type]
            _check_type(container, written.event_type)
            if container.codec != written.codec:
                raise ValueError(f"its codec is {container.codec}, not {written.codec}")
            records = sum(block.records for block in container)
        except Exception as error:  # noqa: BLE001  # damaged bytes make a decoder raise anything
            return (
                f"{storage.url(written.path)} cannot be read back as Avro "
                f"({type(error).__name__}: {error})"
            )
    found, wanted = (
        (records, seen.bytes, seen.digest.hexdigest()),
        (written.records, written.bytes, written.blake2b),
    )
    return (
        f"{storage.url(written.path)} was read back as {found}, but {wanted} was written"
        if found != wanted
        else ""
    )


def _check_type(container: ContainerReader, event_type: str) -> None:
    schema = json.loads(container.metadata["avro.schema"])
    wanted = event_schema(event_type, [])
    if (schema["name"], schema.get("namespace")) != (wanted["name"], wanted["namespace"]):
        raise ValueError(
            f"its schema is of {schema.get('namespace')}.{schema['name']}, not of the event type "
            f"{event_type}"
        )
