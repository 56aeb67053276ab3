"""Columnar operations on record keys, values and datums; no row is looped over in Python.

The key layout is defined in `hourmark.records.record_key`. Values use Confluent's framing, see
`hourmark.avro.framing`. Datums of many schemas are checked in one native call, see
`hourmark.avro.datum_check`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

import hourmark_native as native
from hourmark.avro.datum_check import NO_PROGRAM, REASONS, DatumVerdict, check_datums
from hourmark.avro.framing import FRAMING_SIZE
from hourmark.records.record_key import KEY_SIZE

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
UInt8s = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]


class KeyColumns(NamedTuple):
    """Record keys, one row per key, as raw bytes and as three big-endian 64-bit words.

    The first two words are the event id: ids sort like the pair (head, low64).

    Attributes:
        matrix: The raw keys, rows x 24 bytes.
        head: First word: 48 bits of event time in Unix milliseconds, then 16 other bits.
        low64: Second word: the last 8 bytes of the event id.
        ranges: Third word: the range id.
    """

    matrix: UInt8s  # rows x 24
    head: UInt64s  # 48 bits of event time in milliseconds, then 16 others
    low64: UInt64s  # the last 8 bytes of the event id
    ranges: UInt64s


def key_columns(keys: pa.Array) -> KeyColumns:
    """Split a binary array of 24-byte record keys into a byte matrix and columns of 64-bit words."""
    offsets, data = binary_buffers(keys)
    matrix = data[offsets[0] : offsets[-1]].reshape(len(keys), KEY_SIZE)
    return KeyColumns(matrix, *(word.astype(np.uint64) for word in matrix.view(">u8").T))


def hour_starts_s(heads: UInt64s, length_s: int) -> Int64s:
    """Return the start of each event's hour in Unix seconds.

    Args:
        heads: The first 8 bytes of each event id; the upper 48 bits are Unix milliseconds.
        length_s: Length of an hour (a bucket) in seconds.
    """
    seconds = (heads >> np.uint64(16)).astype(np.int64) // 1000
    return seconds - seconds % length_s


def schema_ids(values: pa.Array) -> Int32s:
    """Return the schema id of each value of a binary array.

    Args:
        values: Record values in the schema registry's wire format: a zero byte, the schema id as
            a big-endian 32-bit integer, then the Avro datum.
    """
    offsets, data = binary_buffers(values)
    starts = offsets[:-1]
    ids = np.zeros(len(values), np.int32)
    for at in range(1, FRAMING_SIZE):
        ids = (ids << 8) | data[starts + at]
    return ids


def to_single_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return the column as one contiguous array; copies only if it has several chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def distinct_values(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return each distinct combination of values of the given columns once.

    The result has no other columns, and its rows are in no particular order.
    """
    return rows.group_by(list(columns), use_threads=False).aggregate([])


def semi_join(rows: pa.Table, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows whose values in `columns` occur together in `keys` (left semi join)."""
    return rows.join(keys.select(columns), list(columns), join_type="left semi", use_threads=False)


def anti_join(rows: pa.Table, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows whose values in `columns` do not occur together in `keys`.

    This is a left anti join.
    """
    return rows.join(keys.select(columns), list(columns), join_type="left anti", use_threads=False)


def value_hashes(
    ids_low64: UInt64s, schemas: Int32s, values: pa.Array, skip_bytes: int = 0
) -> UInt64s:
    """Return the value hash (`hourmark.avro.value_hash`) of each row.

    Args:
        ids_low64: The last 8 bytes of each event id.
        schemas: The schema id of each row.
        values: Binary or large_binary array without nulls.
        skip_bytes: Number of bytes that precede the datum in each value.
    """
    kind: Any = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offset_buffer, content = values.buffers()
    if not len(values):
        return np.empty(0, np.uint64)
    offsets = np.frombuffer(offset_buffer, kind)[values.offset : values.offset + len(values) + 1]
    data = memoryview(content) if content is not None else memoryview(b"")
    return datum_hashes(ids_low64, schemas, offsets, data, skip_bytes)


def datum_hashes(
    ids_low64: UInt64s,
    schemas: Int32s | int,
    offsets: npt.NDArray[Any],
    data: memoryview,
    skip_bytes: int = 0,
) -> UInt64s:
    """Return the value hash (`hourmark.avro.value_hash`) of each datum in a buffer.

    Datum i is `data[offsets[i] + skip_bytes:offsets[i + 1]]`.

    Args:
        ids_low64: The last 8 bytes of each event id.
        schemas: One schema id for all datums, or one for each.
        offsets: int32 or int64 offsets into `data`, one more than there are datums.
        data: Buffer that contains all datums.
        skip_bytes: Number of bytes that precede the datum in each value.
    """
    seeds = np.ascontiguousarray(ids_low64 + np.asarray(schemas).astype(np.uint64))
    if native.MODULE is not None:
        made = native.MODULE.value_hashes(
            seeds, np.ascontiguousarray(offsets), offsets.itemsize, skip_bytes, data
        )
        return np.frombuffer(made, np.uint64)
    bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), seeds.tolist(), strict=True)
    found = (
        xxhash.xxh64_intdigest(data[start + skip_bytes : end], seed) for start, end, seed in bounds
    )
    return np.fromiter(found, np.uint64, len(seeds))


def value_lengths(values: pa.Array) -> Int64s:
    """Return the length of each value of a binary array in bytes."""
    return np.diff(binary_buffers(values)[0])


def fixed_size_binary_array(matrix: UInt8s) -> pa.Array:
    """Convert a matrix of bytes into an Arrow array of fixed-size binary values, one per row."""
    rows, size = matrix.shape
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(size), rows, [None, pa.py_buffer(np.ascontiguousarray(matrix))]
    )


def binary_buffers(values: pa.Array) -> tuple[Int64s, UInt8s]:
    """Return the offsets and the data of a binary array.

    Value i is `data[offsets[i]:offsets[i + 1]]`. The offsets are int64 and have one entry more than
    the array. A null has length 0.
    """
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


def find_run_starts(*columns: npt.NDArray[Any]) -> Int64s:
    """Return the row indexes at which a new combination of values begins in sorted columns.

    Args:
        *columns: Arrays of equal length, sorted so that equal combinations are adjacent.

    Returns:
        Ascending indexes that begin with 0; empty if there are no rows.
    """
    changed = np.zeros(len(columns[0]), bool)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def distinct_schemas_by_run(counts: Int64s, schemas: Int32s) -> list[tuple[int, ...]]:
    """Return the distinct schema ids of each run of rows, in ascending order.

    Args:
        counts: Number of rows of each run; the runs are adjacent.
        schemas: The schema id of each row.
    """
    run = np.repeat(np.arange(len(counts)), counts)
    changes = find_run_starts(run, schemas)
    pairs = np.unique(run[changes] << 32 | schemas[changes].astype(np.int64))
    found: list[list[int]] = [[] for _ in counts]
    for pair in pairs.tolist():
        found[pair >> 32].append(pair & 0xFFFFFFFF)
    return [tuple(ids) for ids in found]


def low64_of_ids(event_ids: pa.ChunkedArray) -> UInt64s:
    """Return the last 8 bytes of each event id as an unsigned integer."""
    return _words(event_ids, 2)[:, 1]


def range_ids_to_ints(range_ids: pa.ChunkedArray) -> UInt64s:
    """Return each 8-byte range id as an unsigned integer."""
    return _words(range_ids, 1)[:, 0]


def _words(column: pa.ChunkedArray, words: int) -> UInt64s:
    array = to_single_array(column)
    if not len(array):
        return np.empty((0, words), np.uint64)
    data = np.frombuffer(array.buffers()[1], ">u8").reshape(-1, words)[
        array.offset : array.offset + len(array)
    ]
    return data.astype(np.uint64)


def describe_verdict(verdict: int, schema_id: int) -> str:
    """Return a readable reason why a datum with this verdict cannot be part of a bucket.

    Args:
        verdict: A verdict of `datum_verdicts` other than `Verdict.VALID`.
        schema_id: The datum's schema id, for the message.
    """
    if verdict == NO_PROGRAM:
        return f"its schema id {schema_id} stands for no schema of its type that the ledger knows"
    return REASONS[DatumVerdict(verdict)]


def datum_verdicts(
    ids: UInt8s,
    values: pa.Array,
    schemas: Int32s,
    programs: Mapping[int, bytes],
    skip_bytes: int = 0,
) -> UInt8s:
    """Return one verdict per row: a `Verdict`, or `NO_PROGRAM` if the row's schema is unknown.

    Args:
        ids: Matrix with one row per datum; each row starts with the event id.
        values: Arrow binary or large_binary array without nulls.
        schemas: The schema id of each row.
        programs: Compiled checks by schema id; an empty program counts as missing.
        skip_bytes: Number of bytes that precede the datum in each value.
    """
    kind: Any = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offset_buffer, content = values.buffers()
    offsets = np.frombuffer(offset_buffer, kind)[values.offset : values.offset + len(values) + 1]
    rows, row_ids = (
        np.ascontiguousarray(column) for column in (schemas.astype(np.int32, copy=False), ids)
    )
    data = memoryview(content) if content is not None else b""
    return np.frombuffer(
        check_datums(
            programs, rows, row_ids, ids.shape[1], offsets, offsets.itemsize, skip_bytes, data
        ),
        np.uint8,
    )
