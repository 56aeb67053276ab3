"""Validation of a column of Avro datums of many schemas in one native call.

The check itself is `hourmark.avro.datum_check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from hourmark.avro.datum_check import NO_PROGRAM, REASONS, DatumVerdict, check_datums
from hourmark_etl.arrow import Int32s, UInt8s


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
