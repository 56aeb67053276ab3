"""Checks a column of datums under many schemas, in one native call for each schema id (`hourmark.datum_check`)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from hourmark.datum_check import REASONS, Verdict, check_datums
from hourmark_etl.arrow import Int32s, UInt8s, run_starts

NO_PROGRAM: Final = 255  # instead of a `Verdict`: nothing is known of the row's schema id


def reason_of(verdict: int, schema_id: int) -> str:
    """Return why a datum with this verdict, which is not `VALID`, cannot be in a bucket."""
    if verdict == NO_PROGRAM:
        return f"its schema id {schema_id} stands for no schema of its type that the ledger knows"
    return REASONS[Verdict(verdict)]


def datum_verdicts(ids: UInt8s, values: pa.Array, schemas: Int32s, programs: Mapping[int, bytes], skip: int = 0) -> UInt8s:
    """Return a `Verdict` for each row, or `NO_PROGRAM`.

    Args:
        ids: Rows of bytes that begin with the event id.
        values: Binary or large binary, without nulls.
        schemas: The schema id of each row.
        programs: By schema id; an empty one counts as none.
        skip: How many bytes of each value come before its datum.
    """
    found = np.full(len(values), NO_PROGRAM, np.uint8)
    order = np.argsort(schemas, kind="stable")
    starts = run_starts(schemas[order])
    if len(starts) == 1:  # the usual case needs no copy of the values
        program = programs.get(int(schemas[0]))
        return _verdicts(program, ids, values, skip) if program else found
    for start, end in itertools.pairwise([*starts.tolist(), len(order)]):
        rows = order[start:end]
        if program := programs.get(int(schemas[rows[0]])):
            found[rows] = _verdicts(program, ids[rows], values.take(pa.array(rows)), skip)
    return found


def _verdicts(program: bytes, ids: UInt8s, values: pa.Array, skip: int) -> UInt8s:
    kind: Any = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offset_buffer, content = values.buffers()
    offsets = np.frombuffer(offset_buffer, kind)[values.offset : values.offset + len(values) + 1]
    data = memoryview(content) if content is not None else memoryview(b"")
    made = check_datums(program, ids.tobytes(), ids.shape[1], offsets.tobytes(), offsets.itemsize, skip, data)
    return np.frombuffer(made, np.uint8)
