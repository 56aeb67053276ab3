"""Checks a column of datums under many schemas, in one native call
(`hourmark.avro.datum_check`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from hourmark.avro.datum_check import NO_PROGRAM, REASONS, DatumVerdict, check_datums
from hourmark_etl.arrow import Int32s, UInt8s


def reason_of(verdict: int, schema_id: int) -> str:
    """Return why a datum with this verdict, which is not `VALID`, cannot be in a bucket."""
    if verdict == NO_PROGRAM:
        return f"its schema id {schema_id} stands for no schema of its type that the ledger knows"
    return REASONS[DatumVerdict(verdict)]


def datum_verdicts(
    ids: UInt8s, values: pa.Array, schemas: Int32s, programs: Mapping[int, bytes], skip: int = 0
) -> UInt8s:
    """Return a `Verdict` for each row, or `NO_PROGRAM`.

    Args:
        ids: Rows of bytes that begin with the event id.
        values: Binary or large binary, without nulls.
        schemas: The schema id of each row.
        programs: By schema id; an empty one counts as none.
        skip: How many bytes of each value come before its datum.
    """
    kind: Any = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offset_buffer, content = values.buffers()
    offsets = np.frombuffer(offset_buffer, kind)[values.offset : values.offset + len(values) + 1]
    rows, row_ids = (
        np.ascontiguousarray(column) for column in (schemas.astype(np.int32, copy=False), ids)
    )
    data = memoryview(content) if content is not None else b""
    return np.frombuffer(
        check_datums(programs, rows, row_ids, ids.shape[1], offsets, offsets.itemsize, skip, data),
        np.uint8,
    )
