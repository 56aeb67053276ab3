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
        ranges: Third word: the range id, which identifies the byte range of a log file, or the API
            batch, that contains the event.
    """

    matrix: UInt8s  # rows x 24
    head: UInt64s  # 48 bits of event time in milliseconds, then 16 others
    low64: UInt64s  # the last 8 bytes of the event id
    ranges: UInt64s


def key_columns(keys: pa.Array) -> KeyColumns:
    """Split 24-byte Kafka record keys into a byte matrix and columns of 64-bit words.

    Args:
        keys: Arrow binary array without nulls; each value must have 24 bytes.

    Returns:
        One row per key, in the order of `keys`.

    Raises:
        ValueError: The total length of the values is not 24 bytes per row.
    """
    offsets, data = binary_buffers(keys)
    matrix = data[offsets[0] : offsets[-1]].reshape(len(keys), KEY_SIZE)
    return KeyColumns(matrix, *(word.astype(np.uint64) for word in matrix.view(">u8").T))


def hour_starts_s(heads: UInt64s, length_s: int) -> Int64s:
    """Return the start of each event's hourly bucket, computed from the time in the event id.

    Args:
        heads: The first 8 bytes of each event id; the upper 48 bits are Unix milliseconds.
        length_s: Length of a bucket in seconds.

    Returns:
        Unix seconds, one element per event.
    """
    seconds = (heads >> np.uint64(16)).astype(np.int64) // 1000
    return seconds - seconds % length_s


def schema_ids(values: pa.Array) -> Int32s:
    """Extract the schema ids from Kafka record values in the schema registry's wire format.

    Args:
        values: Arrow binary array without nulls. Each value consists of a zero byte, the schema id
            as a big-endian 32-bit integer, and the Avro datum.

    Returns:
        One schema id per value. The zero byte is not checked.
    """
    offsets, data = binary_buffers(values)
    starts = offsets[:-1]
    ids = np.zeros(len(values), np.int32)
    for at in range(1, FRAMING_SIZE):
        ids = (ids << 8) | data[starts + at]
    return ids


def to_single_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Combine the chunks of an Arrow column into one contiguous array.

    The data is copied only if the column has several chunks.

    Args:
        column: The column. An array is returned unchanged.

    Returns:
        An array with all values of the column; empty if the column has no chunks.
    """
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def distinct_values(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the distinct combinations of values in some columns of a table.

    Args:
        rows: The table.
        columns: Names of the columns to compare.

    Returns:
        A table with only these columns and one row per combination, in no particular order.
    """
    return rows.group_by(list(columns), use_threads=False).aggregate([])


def semi_join(rows: pa.Table, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows of a table whose values in some columns occur in another table.

    This is a left semi join: the result has the columns of `rows` only, and no row is repeated.

    Args:
        rows: The table to filter.
        keys: The table to search. Further columns are ignored.
        columns: Names of the columns to compare, which both tables must have.

    Returns:
        The matching rows, in no particular order.
    """
    return rows.join(keys.select(columns), list(columns), join_type="left semi", use_threads=False)


def anti_join(rows: pa.Table, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows of a table whose values in some columns do not occur in another table.

    This is a left anti join, the complement of `semi_join`.

    Args:
        rows: The table to filter.
        keys: The table to search. Further columns are ignored.
        columns: Names of the columns to compare, which both tables must have.

    Returns:
        The rows without a match, in no particular order.
    """
    return rows.join(keys.select(columns), list(columns), join_type="left anti", use_threads=False)


def value_hashes(
    ids_low64: UInt64s, schemas: Int32s, values: pa.Array, skip_bytes: int = 0
) -> UInt64s:
    """Compute a 64-bit hash of each event's Avro datum, as `hourmark.avro.value_hash` does.

    The hash also depends on the event id and the schema id.

    Args:
        ids_low64: The last 8 bytes of each event id.
        schemas: The schema id of each row.
        values: Arrow binary or large_binary array without nulls that contains the datums.
        skip_bytes: Number of bytes that precede the datum in each value.

    Returns:
        One hash per row; empty if there are no rows.
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
    """Compute a 64-bit hash of each Avro datum in a buffer, as `hourmark.avro.value_hash` does.

    The hash also depends on the event id and the schema id. Datum i is `data[offsets[i] +
    skip_bytes:offsets[i + 1]]`.

    Args:
        ids_low64: The last 8 bytes of each event id.
        schemas: One schema id for all datums, or one for each.
        offsets: int32 or int64 offsets into `data`, one more than there are datums.
        data: Buffer that contains all datums.
        skip_bytes: Number of bytes that precede the datum in each value.

    Returns:
        One hash per datum.
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
    """Return the length of each value of an Arrow binary array.

    Args:
        values: Array of type binary or large_binary.

    Returns:
        Lengths in bytes, one element per value. A null has length 0.
    """
    return np.diff(binary_buffers(values)[0])


def fixed_size_binary_array(matrix: UInt8s) -> pa.Array:
    """Convert a numpy matrix of bytes to an Arrow array of fixed-size binary values.

    Args:
        matrix: One row per value. The number of columns becomes the size of the values.

    Returns:
        An array of type `fixed_size_binary` without nulls.
    """
    rows, size = matrix.shape
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(size), rows, [None, pa.py_buffer(np.ascontiguousarray(matrix))]
    )


def binary_buffers(values: pa.Array) -> tuple[Int64s, UInt8s]:
    """Return the offsets and the data of an Arrow binary array as numpy arrays.

    Value i is `data[offsets[i]:offsets[i + 1]]`. The data is not copied.

    Args:
        values: Array of type binary or large_binary.

    Returns:
        A pair: int64 offsets, one more than there are values, and the bytes. A null has length 0.
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
    """Return the row indexes at which the values of sorted columns change.

    Args:
        *columns: Arrays of equal length. Equal combinations of values must be adjacent.

    Returns:
        The index of the first row of each combination, ascending and beginning with 0. The array is
        empty if there are no rows.
    """
    changed = np.zeros(len(columns[0]), bool)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def distinct_schemas_by_run(counts: Int64s, schemas: Int32s) -> list[tuple[int, ...]]:
    """Return the distinct schema ids in each run of consecutive rows.

    Args:
        counts: Number of rows in each run. The first run begins at row 0, and each of the others
            begins where the previous one ends.
        schemas: The schema id of each row.

    Returns:
        One tuple of ascending schema ids per run; a run without rows has an empty tuple.
    """
    run = np.repeat(np.arange(len(counts)), counts)
    changes = find_run_starts(run, schemas)
    pairs = np.unique(run[changes] << 32 | schemas[changes].astype(np.int64))
    found: list[list[int]] = [[] for _ in counts]
    for pair in pairs.tolist():
        found[pair >> 32].append(pair & 0xFFFFFFFF)
    return [tuple(ids) for ids in found]


def low64_of_ids(event_ids: pa.ChunkedArray) -> UInt64s:
    """Return the last 8 bytes of each 16-byte event id as an unsigned integer.

    Args:
        event_ids: Column of type `fixed_size_binary(16)` without nulls.

    Returns:
        One integer per id, read in big-endian order; empty if the column is empty.
    """
    return _words(event_ids, 2)[:, 1]


def range_ids_to_ints(range_ids: pa.ChunkedArray) -> UInt64s:
    """Convert 8-byte range ids to unsigned integers.

    A range id identifies a byte range of a log file.

    Args:
        range_ids: Column of type `fixed_size_binary(8)` without nulls.

    Returns:
        One integer per id, read in big-endian order; empty if the column is empty.
    """
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
    """Describe why an invalid datum cannot be written to a bucket.

    A datum is an event in Avro binary encoding.

    Args:
        verdict: A result of `datum_verdicts` other than `DatumVerdict.VALID`.
        schema_id: The datum's schema id, for the message.

    Returns:
        A clause that begins in lower case and has no final period.
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
    """Check whether Avro datums are valid for their schemas and event ids.

    A verdict is an integer that states whether a datum is valid or what is wrong with it;
    `describe_verdict` converts it to text. A datum is an event in Avro binary encoding.

    Args:
        ids: Matrix with one row per datum; each row starts with the event id.
        values: Arrow binary or large_binary array without nulls.
        schemas: The schema id of each row.
        programs: Maps each schema id to the compiled check of the schema
            (`hourmark.avro.datum_check`); an empty program counts as missing.
        skip_bytes: Number of bytes that precede the datum in each value.

    Returns:
        One `DatumVerdict` value per row, or `NO_PROGRAM` if `programs` has no check for the row's
        schema.
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
