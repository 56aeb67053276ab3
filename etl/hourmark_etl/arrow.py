"""Reads what staging needs out of Kafka's keys and values, column-wise: no event is decoded, no row
is looped over.

Layout of keys: `hourmark.records.record_key`; of values: `hourmark.avro.framing` (Confluent's
framing).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from hourmark import native
from hourmark.avro.framing import FRAMING_SIZE
from hourmark.records.record_key import KEY_SIZE

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
UInt8s = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]


class KeyColumns(NamedTuple):
    """One entry a row: the record key as three big-endian words, and as it is.

    An id sorts as its two words do.
    """

    matrix: UInt8s  # rows x 24
    head: UInt64s  # 48 bits of event time in milliseconds, then 16 others
    low64: UInt64s  # the last 8 bytes of the event id
    ranges: UInt64s


def key_columns(keys: pa.Array) -> KeyColumns:
    """Split record keys of 24 bytes."""
    offsets, data = binary_buffers(keys)
    matrix = data[offsets[0] : offsets[-1]].reshape(len(keys), KEY_SIZE)
    return KeyColumns(matrix, *(word.astype(np.uint64) for word in matrix.view(">u8").T))


def hour_starts_s(heads: UInt64s, length_s: int) -> Int64s:
    """Where the hour of each id begins; `heads`: the first 8 bytes of the ids, of which 48 bits are
    Unix milliseconds.
    """
    seconds = (heads >> np.uint64(16)).astype(np.int64) // 1000
    return seconds - seconds % length_s


def schema_ids(values: pa.Array) -> Int32s:
    """The schema id of each framed value."""
    offsets, data = binary_buffers(values)
    starts = offsets[:-1]
    ids = np.zeros(len(values), np.int32)
    for at in range(1, FRAMING_SIZE):
        ids = (ids << 8) | data[starts + at]
    return ids


def in_one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column in one piece, not copied where it is one."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def distinct(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Each combination of values of these columns once, and no other columns."""
    return rows.group_by(list(columns), use_threads=False).aggregate([])


def matching(rows: pa.Table, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Rows whose values of these columns stand together in `keys`."""
    return rows.join(keys.select(columns), list(columns), join_type="left semi", use_threads=False)


def unmatched(rows: pa.Table, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The other rows."""
    return rows.join(keys.select(columns), list(columns), join_type="left anti", use_threads=False)


def value_hashes(ids_low64: UInt64s, schemas: Int32s, values: pa.Array, skip: int = 0) -> UInt64s:
    """Return the value hash (`hourmark.avro.value_hash`) of each row.

    Args:
        ids_low64: The last 8 bytes of each event id.
        schemas: The schema id of each row.
        values: Binary column without nulls.
        skip: How many bytes of each value come before its datum.
    """
    kind: Any = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offset_buffer, content = values.buffers()
    if not len(values):
        return np.empty(0, np.uint64)
    offsets = np.frombuffer(offset_buffer, kind)[values.offset : values.offset + len(values) + 1]
    data = memoryview(content) if content is not None else memoryview(b"")
    return datum_hashes(ids_low64, schemas, offsets, data, skip)


def datum_hashes(
    ids_low64: UInt64s,
    schemas: Int32s | int,
    offsets: npt.NDArray[Any],
    data: memoryview,
    skip: int = 0,
) -> UInt64s:
    """Return the same of datums `data[offsets[i] + skip:offsets[i + 1]]`; `offsets` are int32 or
    int64.
    """
    seeds = np.ascontiguousarray(ids_low64 + np.asarray(schemas).astype(np.uint64))
    if native.MODULE is not None:
        made = native.MODULE.value_hashes(
            seeds, np.ascontiguousarray(offsets), offsets.itemsize, skip, data
        )
        return np.frombuffer(made, np.uint64)
    bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), seeds.tolist(), strict=True)
    found = (xxhash.xxh64_intdigest(data[start + skip : end], seed) for start, end, seed in bounds)
    return np.fromiter(found, np.uint64, len(seeds))


def lengths(values: pa.Array) -> Int64s:
    """Bytes of each value."""
    return np.diff(binary_buffers(values)[0])


def fixed_array(matrix: UInt8s) -> pa.Array:
    """Rows of bytes as an Arrow column."""
    rows, size = matrix.shape
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(size), rows, [None, pa.py_buffer(np.ascontiguousarray(matrix))]
    )


def binary_buffers(values: pa.Array) -> tuple[Int64s, UInt8s]:
    """Offsets (one more than rows) and bytes; a null has none."""
    kind: Any = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offset_buffer, data_buffer = values.buffers()
    if not len(values):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, kind)[
        values.offset : values.offset + len(values) + 1
    ].astype(np.int64)
    data = (
        np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    )
    return offsets, data


def run_starts(*columns: npt.NDArray[Any]) -> Int64s:
    """Where, in sorted columns, a new combination of values begins; none where there are no
    rows.
    """
    changed = np.zeros(len(columns[0]), bool)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def schemas_of_runs(counts: Int64s, schemas: Int32s) -> list[tuple[int, ...]]:
    """The distinct schema ids, ascending, of each run of so many rows."""
    run = np.repeat(np.arange(len(counts)), counts)
    changes = run_starts(run, schemas)
    pairs = np.unique(run[changes] << 32 | schemas[changes].astype(np.int64))
    found: list[list[int]] = [[] for _ in counts]
    for pair in pairs.tolist():
        found[pair >> 32].append(pair & 0xFFFFFFFF)
    return [tuple(ids) for ids in found]


def low64s(event_ids: pa.ChunkedArray) -> UInt64s:
    """The last 8 bytes of each id, unsigned."""
    return _words(event_ids, 2)[:, 1]


def range_words(range_ids: pa.ChunkedArray) -> UInt64s:
    """Range ids as numbers."""
    return _words(range_ids, 1)[:, 0]


def _words(column: pa.ChunkedArray, words: int) -> UInt64s:
    array = in_one(column)
    if not len(array):
        return np.empty((0, words), np.uint64)
    data = np.frombuffer(array.buffers()[1], ">u8").reshape(-1, words)[
        array.offset : array.offset + len(array)
    ]
    return data.astype(np.uint64)
