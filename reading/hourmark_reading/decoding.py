"""Decodes Avro files of buckets to Arrow record batches.

Memory: the records of one batch as Python objects, one block of the file (1 MiB before
compression), and what the store reads ahead. Each file is compared with its marker while it is
read: after the last batch, its size, digest and number of records must match.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import IO, Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from hourmark_reading.avro_columns import ArrowColumn, AvroSchema, build_columns, select_fields
from hourmark_reading.coverage import FileTask, Span
from hourmark_reading.errors import DamagedAvroFile

EVENT_TIME: Final = "event_time"


@dataclasses.dataclass(frozen=True)
class EventDecoder:
    """Decoder of the files of one event type to record batches of one schema.

    Records of files with an older schema are resolved to the schema as Avro specifies: fields are
    matched by name or alias, and missing fields get their default.

    Attributes:
        avro_schema: The newest schema of the type, as JSON.
        columns: Names of the fields to decode, in the order of the columns; None for all fields.
    """

    avro_schema: str
    columns: tuple[str, ...] | None

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the record batches.

        Raises:
            UnknownColumns: The type has no field with one of the names.
            UnsupportedField: A field has a type that no Arrow type expresses.
        """
        return pa.schema([column.field for column in self._columns][: self._width])

    def decode(
        self, file: IO[bytes], task: FileTask, batch_rows: int, where: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selected events of a file.

        Args:
            file: The file, positioned at its start.
            task: What the marker lists of the file, and which event times to select.
            batch_rows: Maximum number of rows of a batch.
            where: URL of the file, for messages.

        Yields:
            Record batches with at least one row each.

        Raises:
            DamagedAvroFile: The file cannot be decoded or differs from its marker. Batches before
                the damage were already yielded.
        """
        checked: Any = _CheckedFile(file)
        records = 0
        try:
            reader: Any = fastavro.reader(checked, dict(self._reader_schema))
            is_older = json.loads(reader.metadata["avro.schema"]) != self._full_schema
            while rows := list(itertools.islice(reader, batch_rows)):
                records += len(rows)
                if (batch := self._to_batch(rows, task.spans, is_older)).num_rows:
                    yield batch
        except OSError:
            raise  # of the store
        except Exception as error:  # damaged bytes make a decoder raise anything
            raise DamagedAvroFile(
                f"{where} cannot be decoded after {records} records ({type(error).__name__}: "
                f"{error}); `hourmark bucket verify` lists the problems of a bucket"
            ) from error
        found = (records, checked.bytes, checked.digest.hexdigest())
        if found != (task.records, task.bytes, task.blake2b):
            raise DamagedAvroFile(
                f"{where} has {found[0]} records in {found[1]} bytes with the digest {found[2]}, "
                f"but its marker lists {task.records} records in {task.bytes} bytes with the "
                f"digest {task.blake2b}; restore the file from a copy"
            )

    def _to_batch(
        self, rows: Sequence[AvroSchema], spans: Sequence[Span] | None, is_older: bool
    ) -> pa.RecordBatch:
        arrays = [_to_array(column, rows, is_older) for column in self._columns]
        batch = pa.RecordBatch.from_arrays(arrays[: self._width], schema=self.schema)
        if spans is None:
            return batch
        times = arrays[self._time_index].cast(pa.int64())
        return batch.filter(_is_in_spans(times, spans))

    @cached_property
    def _full_schema(self) -> AvroSchema:
        schema: AvroSchema = json.loads(self.avro_schema)
        return schema

    @cached_property
    def _reader_schema(self) -> AvroSchema:
        if self.columns is None:
            return self._full_schema
        names = (*self.columns, *({EVENT_TIME} - {*self.columns}))
        return select_fields(self._full_schema, names)

    @cached_property
    def _columns(self) -> Sequence[ArrowColumn]:
        return build_columns(self._reader_schema)

    @property
    def _width(self) -> int:
        return len(self._columns) if self.columns is None else len(self.columns)

    @cached_property
    def _time_index(self) -> int:
        return [column.field.name for column in self._columns].index(EVENT_TIME)


class _CheckedFile:
    """A file that counts and hashes the bytes that are read from it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.blake2b(digest_size=16)
        self.bytes = 0

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        self.digest.update(content)
        self.bytes += len(content)
        return content


def _to_array(column: ArrowColumn, rows: Sequence[AvroSchema], is_older: bool) -> pa.Array:
    name = column.field.name
    convert: Callable[[Any], Any] | None = column.convert_older if is_older else column.convert
    values = [row[name] for row in rows] if convert is None else [convert(r[name]) for r in rows]
    return pa.array(values, column.field.type)


def _is_in_spans(times_us: pa.Array, spans: Sequence[Span]) -> pa.Array:
    found = None
    for start, end in spans:
        inside = pc.and_(pc.greater_equal(times_us, start), pc.less(times_us, end))
        found = inside if found is None else pc.or_(found, inside)
    return found
