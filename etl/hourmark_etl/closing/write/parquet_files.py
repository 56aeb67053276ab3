"""Writes the Parquet files of a bucket: the events of an Avro file once more, as columns.

The rows are those of the Avro file, in the same order, so they are sorted by event id and therefore
by event time. There is one Parquet file for each hour of event time: a table format such as Iceberg
cannot assign a file with several hours to a partition. Rows are written in row groups of one step
of the Avro file. Each file is read back completely before it can be published.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import uuid
from contextlib import ExitStack
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from hourmark_etl.arrow import Int64s, find_run_starts
from hourmark_etl.buckets.digesting_reader import DigestingReader
from hourmark_etl.buckets.parquet_rows import DatumConverter
from hourmark_etl.ids.lookups import to_id_array
from hourmark_etl.storage import Storage, StorageError

# an object with the buffer protocol; `collections.abc.Buffer` since Python 3.12
Buffer = Any
_LEVEL: Final = 3  # of Zstandard, as in the Avro files
_DIGEST_SIZE: Final = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenParquet:
    """A Parquet file that was written but is not part of a bucket yet.

    Attributes:
        path: Path relative to the storage root.
        hour_s: Unix seconds at the start of the hour that contains the times of all events.
        records: Number of events.
        bytes: Size of the file in bytes.
        blake2b: BLAKE2b digest of the file in hex.
        read_back_error: Difference that was found when the file was read back, as human-readable
            text; empty if there is none.
    """

    path: str
    hour_s: int
    records: int
    bytes: int
    blake2b: str
    read_back_error: str = ""


class ParquetFiles:
    """Writer of the Parquet files that belong to one Avro file.

    At most one Parquet file is open at a time, because rows are sorted by time.

    Args:
        storage: Storage to write to.
        folder: Path of the folder for the files.
        converter: Converter of the rows' schema.
        opened: Stack of the caller. If it ends with an exception, the open file is discarded.

    Attributes:
        error: Why rows could not be converted, as human-readable text; empty if there is no error.
            After an error, no more rows are written, and the files must not be published.
    """

    def __init__(
        self, storage: Storage, folder: str, converter: DatumConverter, opened: ExitStack
    ) -> None:
        self._storage, self._folder, self._converter = storage, folder, converter
        self._opened = opened
        self._open: _OpenParquet | None = None
        self._finished: list[WrittenParquet] = []
        self.error = ""

    def write(self, data: memoryview, offsets: Int64s, hours: Int64s) -> None:
        """Append rows as one row group of each hour's file.

        Args:
            data: Buffer with the encoded events.
            offsets: Byte offsets into `data`, one more than the number of rows.
            hours: Hour of event time of each row in Unix seconds, in ascending order.

        Raises:
            StorageError: A file cannot be created or written.
        """
        if self.error:
            return
        starts = find_run_starts(hours).tolist()
        for start, end in zip(starts, [*starts[1:], len(hours)], strict=True):
            hour_s = int(hours[start])
            try:
                rows = self._converter.convert(data, offsets[start : end + 1])
            except (ValueError, OverflowError) as error:  # such as a decimal with too many digits
                self.error = str(error)
                return
            if self._open is not None and self._open.hour_s != hour_s:
                self._finish_open()
            if self._open is None:
                path = f"{self._folder}/{uuid.uuid4().hex}.parquet"
                self._open = _OpenParquet(
                    self._storage, path, self._converter.schema, hour_s, self._opened
                )
            self._open.write(rows)

    def finish(self) -> tuple[WrittenParquet, ...]:
        """Finish the open file, and return all files after reading them back from storage.

        Returns:
            The files in the order of their rows; empty if there are no rows.

        Raises:
            StorageError: A file cannot be completed or opened.
        """
        self._finish_open()
        return tuple(
            dataclasses.replace(of, read_back_error=verify_written_parquet(self._storage, of))
            for of in self._finished
        )

    def _finish_open(self) -> None:
        if self._open is not None:
            self._finished.append(self._open.finish())
            self._open = None


class _OpenParquet:
    def __init__(
        self, storage: Storage, path: str, schema: pa.Schema, hour_s: int, opened: ExitStack
    ) -> None:
        self.hour_s = hour_s
        self._path = path
        self._file = opened.enter_context(ExitStack())
        self._sink = _DigestingWriter(
            self._file.enter_context(storage.create(path, unpublished=True))
        )
        self._writer = self._file.enter_context(
            pq.ParquetWriter(
                self._sink,
                schema,
                compression="zstd",
                compression_level=_LEVEL,
                write_statistics=True,
                write_page_index=True,
                sorting_columns=[pq.SortingColumn(schema.get_field_index("event_id"))],
            )
        )
        self._records = 0

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=len(rows))
        self._records += len(rows)

    def finish(self) -> WrittenParquet:
        self._file.close()  # the footer first, then the file
        return WrittenParquet(
            path=self._path,
            hour_s=self.hour_s,
            records=self._records,
            bytes=self._sink.bytes,
            blake2b=self._sink.digest.hexdigest(),
        )


class _DigestingWriter(io.RawIOBase):
    # What pyarrow needs of a file; it must not close the storage's file.
    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
        self.bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        content = memoryview(data)
        self.digest.update(content)
        self._file.write(content)
        self.bytes += len(content)
        return len(content)


def verify_written_parquet(storage: Storage, written: WrittenParquet) -> str:
    """Read a Parquet file back from storage and compare it with what was written.

    The digest, the size and the number of records are compared, all columns are decoded, and the
    rows must be sorted by event id.

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
        seen.read_rest()
        found: tuple[object, ...] = (seen.bytes, seen.digest.hexdigest())
        wanted: tuple[object, ...] = (written.bytes, written.blake2b)
        if found == wanted:
            try:
                file.seek(0)
                records = _count_sorted_rows(file)
            except StorageError:
                raise
            except Exception as error:  # noqa: BLE001  # damaged bytes make a decoder raise anything
                return (
                    f"{storage.url(written.path)} cannot be read back as Parquet "
                    f"({type(error).__name__}: {error})"
                )
            found, wanted = (*found, records), (*wanted, written.records)
    return (
        f"{storage.url(written.path)} was read back as {found}, but {wanted} was written"
        if found != wanted
        else ""
    )


def _count_sorted_rows(file: BinaryIO) -> int:
    records, last = 0, b""
    with pq.ParquetFile(file) as opened:
        for number in range(opened.num_row_groups):
            rows = opened.read_row_group(number)
            ids = to_id_array(rows.column("event_id"))
            if len(ids) and (ids[0] < last or (ids[1:] < ids[:-1]).any()):
                raise ValueError(f"the rows of row group {number} are not sorted by event id")
            last = ids[-1] if len(ids) else last
            records += len(rows)
    return records
