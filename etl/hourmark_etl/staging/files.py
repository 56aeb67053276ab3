"""Staged files: one Parquet file per task and micro-batch, or per part of it, with a unique name.

Event files are sorted by type, hour and event id. A group, the rows of one type and hour, is
therefore one contiguous run of rows sorted by id, and an id range of it touches few row groups. The
datum is the Kafka value without its framing and is copied into buckets unchanged. Each file carries
digests of its content (`verified`) and describes its content in its footer (`pieces.StagedNote`);
a lost ledger is rebuilt from these notes.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hourmark_etl.arrow import Bools, Int64s
from hourmark_etl.errors import Unreadable
from hourmark_etl.staging.pieces import StagedNote
from hourmark_etl.staging.verified import DAMAGE, VerifiedFile, encode_verified
from hourmark_etl.storage import ContentLost, Storage

EVENT_SCHEMA: Final = pa.schema(
    [
        ("type", pa.dictionary(pa.int32(), pa.string())),
        ("hour", "int64"),  # Unix seconds of the bucket's start, from the id's time
        ("event_id", pa.binary(16)),
        ("range_id", pa.binary(8)),
        ("schema_id", "int32"),
        ("datum", "binary"),
        ("partition", "int32"),  # of the type's topic
        ("offset", "int64"),
        (
            "value_hash",
            "uint64",
        ),  # `hourmark.avro.value_hash`; files of version 0.3.0 do not have it
    ]
)
AUDIT_SCHEMA: Final = pa.schema(
    [
        ("type", "string"),
        ("hour", "int64"),
        ("range_id", pa.binary(8)),
        ("count", "int64"),
        ("sum", "int64"),
        ("offset", "int64"),
        ("origin", "string"),  # human-readable: host, path and bytes of the range
        ("observed_at", "int64"),  # of the range, Unix milliseconds
        (
            "content",
            pa.binary(8),
        ),  # digest of all that its audit record promises (`task.content_of`)
        (
            "checksum",
            "uint64",
        ),  # of the promise, null where it has none; files of version 0.3.0 do not have these two
        (
            "values",
            pa.binary(8),
        ),  # digest of all checksums of the audit record, null where it has none
    ]
)
# Columns that files of version 0.3.0 do not have: they are read as null.
LATER: Final = pa.schema(
    [EVENT_SCHEMA.field("value_hash"), AUDIT_SCHEMA.field("checksum"), AUDIT_SCHEMA.field("values")]
)
ROWS_IN_GROUP: Final = 65_536  # some 8 MB of datums: what is read at least, for one id of it
ID_MAX: Final = (1 << 128) - 1


class IdRange(NamedTuple):
    """A range of event ids, as 128-bit numbers.

    Attributes:
        low: First id of the range.
        high: Last id of the range (inclusive).
    """

    low: int = 0
    high: int = ID_MAX


@dataclasses.dataclass(frozen=True, slots=True)
class RowSlice:
    """Consecutive rows of a staged file with the same event type and hour.

    A staged file is a Parquet file with records that were copied from Kafka.

    Attributes:
        first: Index of the first row in the file.
        count: Number of rows.
    """

    first: int
    count: int


def write_rows(storage: Storage, stem: str, table: pa.Table, note: StagedNote) -> StagedNote:
    """Write rows atomically to a new staged file (Parquet with digests).

    A staged file contains records that were copied from Kafka.

    Args:
        storage: Storage to write to.
        stem: Path without digest and suffix. The file is named `<stem>-<digest>.parquet`.
        table: Rows with the columns of EVENT_SCHEMA or AUDIT_SCHEMA.
        note: Description of the content. It is stored in the footer.

    Returns:
        The note with the file's path.

    Raises:
        AlreadyExists: A file with the same content and stem exists.
        StorageError: The file could not be written.
    """
    content, digest = encode_verified(table, note.to_json().encode(), ROWS_IN_GROUP)
    path = f"{stem}-{digest}.parquet"
    storage.write_new(path, content)
    return note.with_path(path)


def read_rows(
    storage: Storage,
    path: str,
    row_slices: Sequence[RowSlice],
    columns: Sequence[str],
    id_range: IdRange | None = None,
) -> tuple[pa.Table, Int64s]:
    """Read columns of selected rows of a staged file and verify their digests.

    A staged file contains records that were copied from Kafka. Only the Parquet row groups that
    contain these rows are read.

    Args:
        storage: Storage of the file.
        path: Path relative to the storage root.
        row_slices: Disjoint row slices in ascending order.
        columns: Names of the columns to return.
        id_range: Range of event ids to return; None for all. With a range, each slice must be
            sorted by event id.

    Returns:
        A pair of the rows in the order of the slices, and the number of rows from each slice.

    Raises:
        Unreadable: The file is missing, damaged, or shorter than the slices.
        StorageError: The storage is unavailable.
    """
    with _readable(path), _opened(storage, path) as file:
        return _read(file, row_slices, columns, id_range)


def read_all(storage: Storage, path: str, columns: Sequence[str]) -> pa.Table:
    """Read columns of all rows of a staged file and verify their digests.

    A staged file is a Parquet file with records that were copied from Kafka.

    Args:
        storage: Storage of the file.
        path: Path relative to the storage root.
        columns: Names of the columns to return.

    Returns:
        A table with these columns. Columns that files of version 0.3.0 do not have are null.

    Raises:
        Unreadable: The file is missing or damaged.
        StorageError: The storage is unavailable.
    """
    with _readable(path):
        return load_all(storage, path, columns)


def load_all(storage: Storage, path: str, columns: Sequence[str]) -> pa.Table:
    """Read columns of all rows of a staged file and verify their digests.

    A staged file is a Parquet file with records that were copied from Kafka. Unlike `read_all`,
    this function raises different exceptions for a missing file and a damaged file. `read_all`
    raises `Unreadable` in both cases.

    Args:
        storage: Storage of the file.
        path: Path relative to the storage root.
        columns: Names of the columns to return.

    Returns:
        A table with these columns.

    Raises:
        StorageError: The file is missing (`ContentLost`), or the storage is unavailable.
        Exception: One of the classes in `verified.DAMAGE` if the file is damaged.
    """
    with _opened(storage, path) as file:
        return _with_later(file, columns)


def read_note(storage: Storage, path: str) -> StagedNote:
    """Read the description of a staged file's content from its Parquet footer.

    A staged file contains records that were copied from Kafka.

    Args:
        storage: Storage of the file.
        path: Path relative to the storage root.

    Returns:
        The description, which contains the id of the ledger (the ETL's state database), the number
        of rows, Kafka offset ranges, and totals by event type and hour.

    Raises:
        Unreadable: The file is missing or damaged, or has no valid description.
        StorageError: The storage is unavailable.
    """
    with _readable(path), _opened(storage, path) as file:
        return StagedNote.from_json(path, file.note.decode())


@contextlib.contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except ContentLost as error:
        raise Unreadable(path, str(error)) from error
    except DAMAGE as error:
        raise Unreadable(path, f"{type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _opened(storage: Storage, path: str) -> Iterator[VerifiedFile]:
    with storage.open(path) as file:
        yield VerifiedFile(file, path)


def _read(
    file: VerifiedFile, wanted: Sequence[RowSlice], columns: Sequence[str], within: IdRange | None
) -> tuple[pa.Table, Int64s]:
    counts = np.array(
        [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)], np.int64
    )
    starts = np.append(0, np.cumsum(counts))  # of row groups; the last is the number of all rows
    spans = np.array([(w.first, w.first + w.count) for w in wanted], np.int64).reshape(-1, 2)
    if len(spans) and spans[:, 1].max() > starts[-1]:
        raise EOFError(f"it contains {starts[-1]} rows, but the ledger lists {spans[:, 1].max()}")
    touched = np.zeros(len(starts) - 1, bool)
    for low, high in zip(
        np.searchsorted(starts, spans[:, 0], "right") - 1,
        np.searchsorted(starts, spans[:, 1]),
        strict=True,
    ):
        touched[low:high] = True
    if within is not None:
        touched &= _overlapping(file.metadata, within)
    names = [*columns] if within is None or "event_id" in columns else [*columns, "event_id"]
    table = _with_later(file, names, np.flatnonzero(touched).tolist())
    # Index of each file row in the table read: rows of skipped groups take no space.
    places = np.append(0, np.cumsum(np.where(touched, counts, 0)))

    def place(rows: Int64s) -> Int64s:
        group = np.minimum(np.searchsorted(starts, rows, "right") - 1, len(touched) - 1)
        return places[group] + np.where(touched[group], rows - starts[group], 0)

    ranges = place(spans)
    if within is not None:
        ids = table.column("event_id")
        ranges = np.array(
            [_narrowed(ids, low, high, within) for low, high in ranges.tolist()], np.int64
        ).reshape(-1, 2)
    return _slices(table.select(list(columns)), ranges), ranges[:, 1] - ranges[:, 0]


def _with_later(
    file: VerifiedFile, columns: Sequence[str], row_groups: Sequence[int] | None = None
) -> pa.Table:
    there = set(file.names)
    absent = [name for name in columns if name not in there and name in LATER.names]
    table = file.read([name for name in columns if name not in absent], row_groups)
    for name in absent:
        table = table.append_column(LATER.field(name), pa.nulls(len(table), LATER.field(name).type))
    return table.select(list(columns))


def _overlapping(metadata: pq.FileMetaData, within: IdRange) -> Bools:
    column = EVENT_SCHEMA.get_field_index("event_id")
    found = np.ones(metadata.num_row_groups, bool)
    for i in range(metadata.num_row_groups):
        statistics = metadata.row_group(i).column(column).statistics
        if statistics is not None and statistics.has_min_max:
            found[i] = (
                int.from_bytes(statistics.max, "big") >= within.low
                and int.from_bytes(statistics.min, "big") <= within.high
            )
    return found


def _narrowed(ids: pa.ChunkedArray, low: int, high: int, within: IdRange) -> tuple[int, int]:

    def id_at(row: int) -> int:
        return int.from_bytes(ids[row].as_py(), "big")

    first = bisect.bisect_left(range(high), within.low, low, high, key=id_at)
    return first, bisect.bisect_right(range(high), within.high, first, high, key=id_at)


def _slices(table: pa.Table, ranges: Int64s) -> pa.Table:
    ranges = ranges[ranges[:, 1] > ranges[:, 0]]
    if not len(ranges):
        return table.slice(0, 0)
    breaks = np.flatnonzero(ranges[1:, 0] != ranges[:-1, 1]) + 1
    runs = zip(
        ranges[np.append(0, breaks), 0].tolist(),
        ranges[np.append(breaks, len(ranges)) - 1, 1].tolist(),
        strict=True,
    )
    return pa.concat_tables([table.slice(low, high - low) for low, high in runs])
