"""Compares the Parquet files of a closed bucket with the Avro file that contains the same events.

Every value is compared. Memory: one block of the Avro file and one batch of the Parquet file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hourmark.records.hours import Hour
from hourmark.records.manifest import BucketFile, ParquetFile
from hourmark_etl.arrow import hour_starts_s
from hourmark_etl.buckets.avro_container import ContainerReader
from hourmark_etl.buckets.parquet_rows import DatumConverter, find_difference
from hourmark_etl.storage import Storage, StorageError

_BATCH_ROWS: Final = 16_384


def find_parquet_differences(
    storage: Storage,
    folder: str,
    avro: BucketFile,
    files: Sequence[ParquetFile],
    bucket_seconds: int,
) -> Iterator[tuple[str, str]]:
    """Yield the differences between an Avro file and the Parquet files with the same events.

    Args:
        storage: Storage with the bucket.
        folder: Path of the bucket's folder.
        avro: The Avro file. It must be readable.
        files: The existing Parquet files of the Avro file, in the order of the manifest.
        bucket_seconds: Length of the bucket in seconds.

    Yields:
        The name of a file in the bucket, and a human-readable description. Only the first row that
        differs is reported.

    Raises:
        StorageError: Storage is unavailable.
    """
    with storage.open(f"{folder}/{avro.name}") as opened:
        container = ContainerReader(opened)
        try:
            converter = DatumConverter(json.loads(container.metadata["avro.schema"]))
        except ValueError as error:
            if files:
                yield files[0].name, f"Parquet cannot express the schema of {avro.name}: {error}"
            return
        if not files:
            yield avro.name, "no Parquet file contains its events, although the bucket has some"
            return
        rows = _ParquetRows(storage, folder, files, converter.schema, bucket_seconds)
        try:
            number = 0
            for block in container:
                expected = converter.convert_block(container.content(block), block.records)
                found = rows.take(len(expected))
                at = find_difference(found, expected)
                if at is not None:
                    what = _describe(found, expected, at, number + at, avro.name)
                    yield _file_of_row(files, number + at), what
                    return
                number += len(expected)
            if more := len(rows.take(1)):
                yield rows.name, f"contains {more} or more events that {avro.name} does not contain"
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001  # damaged bytes make a decoder raise anything
            yield rows.name, f"{type(error).__name__}: {error}"


class _ParquetRows:
    # The rows of several Parquet files in order, read in batches.
    def __init__(
        self,
        storage: Storage,
        folder: str,
        files: Sequence[ParquetFile],
        schema: pa.Schema,
        bucket_seconds: int,
    ) -> None:
        self.name = files[0].name  # of the file that is being read
        self._storage, self._folder, self._schema = storage, folder, schema
        self._bucket_seconds = bucket_seconds
        self._batches = self._read(files)
        self._rest = schema.empty_table()

    def take(self, count: int) -> pa.Table:
        # Return the next rows; fewer than `count` at the end of the last file.
        parts, have = [self._rest], len(self._rest)
        while have < count and (batch := next(self._batches, None)) is not None:
            parts.append(batch)
            have += len(batch)
        joined = pa.concat_tables(parts)
        self._rest = joined.slice(count)
        return joined.slice(0, count)

    def _read(self, files: Sequence[ParquetFile]) -> Iterator[pa.Table]:
        for file in files:
            self.name = file.name
            with (
                self._storage.open(f"{self._folder}/{file.name}") as opened,
                pq.ParquetFile(opened) as parquet,
            ):
                if not parquet.schema_arrow.equals(self._schema):
                    raise ValueError(
                        f"it has the columns {parquet.schema_arrow.names} with types other than "
                        "those of its Avro file"
                    )
                if parquet.metadata.num_rows != file.records:
                    raise ValueError(
                        f"{parquet.metadata.num_rows} events, but the manifest states "
                        f"{file.records}"
                    )
                for batch in parquet.iter_batches(_BATCH_ROWS):
                    rows = pa.Table.from_batches([batch])
                    self._check_hours(rows, file.origin_hour)
                    yield rows

    def _check_hours(self, rows: pa.Table, origin_hour: str) -> None:
        ids = np.frombuffer(b"".join(rows.column("event_id").to_pylist()), ">u8").astype(np.uint64)
        for start_s in np.unique(hour_starts_s(ids[::2], self._bucket_seconds)).tolist():
            hour = str(Hour(start_s, self._bucket_seconds))
            if hour != origin_hour:
                raise ValueError(
                    f"contains an event of {hour}, but the manifest states the origin hour "
                    f"{origin_hour}"
                )


def _file_of_row(files: Sequence[ParquetFile], row: int) -> str:
    for file in files[:-1]:
        if row < file.records:
            return file.name
        row -= file.records
    return files[-1].name


def _describe(found: pa.Table, expected: pa.Table, at: int, row: int, avro_name: str) -> str:
    if at == len(found):
        return f"ends before row {row} of {avro_name}"
    row_found, row_expected = found.slice(at, 1), expected.slice(at, 1)
    columns = [
        name
        for name in expected.column_names
        if find_difference(row_found.select([name]), row_expected.select([name])) is not None
    ]
    event_id = expected.column("event_id")[at].as_py().hex()
    return (
        f"row {row}, event {event_id}: the values of {', '.join(columns)} differ from those in "
        f"{avro_name}"
    )
