"""Reads what staging needs out of Kafka's keys and values, column-wise: no event is decoded, no row is looped over.

Layout of keys: `hourmark.record_key`; of values: `hourmark.avro` (Confluent's framing).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hourmark.avro import FRAMING_SIZE
from hourmark.record_key import KEY_SIZE

_TIME_WEIGHTS = 1 << (8 * np.arange(5, -1, -1, dtype=np.int64))
_ID_WEIGHTS = 1 << (8 * np.arange(3, -1, -1, dtype=np.int64))


class BadRecord(ValueError):
    """A record on an event topic that no delivery service can have written; `row` is its index."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row


@dataclasses.dataclass(frozen=True)
class KeyColumns:
    """One entry a row. `tail` is the last 8 bytes of the event id, as a signed integer (two's complement)."""

    event_id: pa.Array  # fixed 16
    range_id: pa.Array  # fixed 8
    time_ms: npt.NDArray[np.int64]
    tail: npt.NDArray[np.int64]


def key_columns(keys: pa.Array) -> KeyColumns:
    """Split record keys; BadRecord for one that has not 24 bytes."""
    matrix = _fixed_matrix(keys, KEY_SIZE, "the key has not 24 bytes")
    return KeyColumns(
        _fixed_array(matrix[:, :16]),
        _fixed_array(matrix[:, 16:]),
        matrix[:, :6].astype(np.int64) @ _TIME_WEIGHTS,
        np.ascontiguousarray(matrix[:, 8:16]).view(">i8").ravel().astype(np.int64),
    )


def schema_ids(values: pa.Array) -> npt.NDArray[np.int32]:
    """The schema id of each framed value; BadRecord for one without framing."""
    offsets, data = _binary_buffers(values)
    starts = offsets[:-1]
    short = np.flatnonzero(np.diff(offsets) < FRAMING_SIZE)
    if len(short):
        raise BadRecord(int(short[0]), "the value is shorter than its framing")
    unframed = np.flatnonzero(data[starts] != 0)
    if len(unframed):
        raise BadRecord(int(unframed[0]), "the value does not begin with 0x00 and a schema id")
    digits = data[starts[:, None] + np.arange(1, FRAMING_SIZE)].astype(np.int64)
    ids: npt.NDArray[np.int32] = (digits @ _ID_WEIGHTS).astype(np.int32)
    return ids


def lengths(values: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of each value."""
    return np.diff(_binary_buffers(values)[0])


def _fixed_matrix(values: pa.Array, size: int, what: str) -> npt.NDArray[np.uint8]:
    offsets, data = _binary_buffers(values)
    wrong = np.flatnonzero(np.diff(offsets) != size)
    if len(wrong):
        raise BadRecord(int(wrong[0]), what)
    return data[offsets[0] : offsets[-1]].reshape(len(values), size) if len(values) else np.empty((0, size), np.uint8)


def _fixed_array(matrix: npt.NDArray[np.uint8]) -> pa.Array:
    rows, size = matrix.shape
    buffer = pa.py_buffer(np.ascontiguousarray(matrix).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), rows, [None, buffer])


def _binary_buffers(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Offsets (one more than rows) and bytes; BadRecord for a null."""
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise BadRecord(row, "the key or the value is null")
    kind: Any = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offset_buffer, data_buffer = values.buffers()
    if not len(values):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, kind)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    return offsets, data
