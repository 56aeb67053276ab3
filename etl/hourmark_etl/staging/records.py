"""Checks of each record on an event topic: key, framing, schema id and datum.

A record that fails a check is set aside; all others are staged. Checks run on columns: all datums
of one schema id are checked in one native call (`hourmark.avro.datum_check`), which also compares
the event id in the datum with the one in the key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hourmark.avro.datum_check import NO_PROGRAM, REASONS, DatumVerdict
from hourmark.avro.framing import FRAMING_SIZE
from hourmark.records.record_key import KEY_SIZE
from hourmark_etl.arrow import (
    Bools,
    Int32s,
    KeyColumns,
    UInt8s,
    binary_buffers,
    datum_verdicts,
    key_columns,
    schema_ids,
    to_single_array,
    value_lengths,
)
from hourmark_etl.model import ExcludedRecords, OffsetSpan
from hourmark_etl.staging.pieces import StagePlan

BAD_KEY: Final = f"the key does not have {KEY_SIZE} bytes"
NO_FRAMING: Final = f"the value is null, or shorter than {FRAMING_SIZE} bytes"
BAD_FRAMING: Final = "the value does not begin with 0x00 and a schema id"
_MALFORMED: Final = ("", BAD_KEY, NO_FRAMING, BAD_FRAMING)


class CheckedRecords(NamedTuple):
    """Result of checking event records: valid records, and records that failed a check.

    Attributes:
        table: Valid records in input order, with the columns key, value, topic, partition and
            offset.
        codes: Event type of each valid record, as an index into the parameter `types` of
            `check_records`.
        key: Parsed keys of the valid records.
        schemas: Schema ids of the valid records.
        set_aside: Records that failed a check, with the reasons.
    """

    table: pa.Table
    codes: npt.NDArray[Any]
    key: KeyColumns
    schemas: Int32s
    set_aside: tuple[ExcludedRecords, ...]


def check_records(
    table: pa.Table,
    types: Sequence[str],
    codes: npt.NDArray[Any],
    spans: Sequence[OffsetSpan],
    plan: StagePlan,
) -> CheckedRecords:
    """Validate Kafka records of event topics, and separate the invalid ones.

    A record is invalid if its key or value is malformed, if its schema id belongs to another event
    type, or if its content does not match the schema. Buckets cannot contain invalid records.

    Args:
        table: Records with the columns key, value, topic, partition and offset.
        types: Event types.
        codes: Event type of each record, as an index into `types`.
        spans: Offset ranges that were read. They provide the topic ids.
        plan: Settings with the event types and content checks of schema ids. A record whose schema
            id has no check is accepted, and checked when its bucket is written.

    Returns:
        The valid records, and the invalid records with the reasons.
    """
    topic_ids = {s.topic: s.topic_id for s in spans}
    set_aside: list[ExcludedRecords] = []

    def set_aside_where(faults: npt.NDArray[Any], reasons: Sequence[str]) -> Bools:
        nonlocal table, codes
        wrong: Bools = faults != 0
        if wrong.any():
            why = [reasons[fault] for fault in faults[wrong].tolist()]
            set_aside.extend(
                _set_aside(table.filter(pa.array(wrong)), why, types, codes[wrong], topic_ids)
            )
            table, codes = table.filter(pa.array(~wrong)), codes[~wrong]
        return ~wrong

    set_aside_where(_malformed(table), _MALFORMED)
    schemas = schema_ids(to_single_array(table.column("value")))
    schemas = schemas[set_aside_where(*_of_other_types(schemas, types, codes, plan.schema_types))]
    key, values = (
        key_columns(to_single_array(table.column("key"))),
        to_single_array(table.column("value")),
    )
    verdicts = datum_verdicts(key.matrix, values, schemas, plan.programs, FRAMING_SIZE)
    verdicts = np.where(
        verdicts == NO_PROGRAM, np.uint8(DatumVerdict.VALID), verdicts
    )  # they are checked when they are written
    if verdicts.any():
        schemas = schemas[
            set_aside_where(verdicts, [REASONS.get(verdict, "") for verdict in DatumVerdict])
        ]
        key = key_columns(to_single_array(table.column("key")))
    return CheckedRecords(table, codes, key, schemas, tuple(set_aside))


def _malformed(table: pa.Table) -> UInt8s:
    keys, values = to_single_array(table.column("key")), to_single_array(table.column("value"))
    offsets, data = binary_buffers(values)
    sizes = np.diff(offsets)
    sizes[values.is_null().to_numpy(zero_copy_only=False)] = 0
    framed = sizes >= FRAMING_SIZE
    faults = np.full(len(table), _MALFORMED.index(NO_FRAMING), np.uint8)
    starts = offsets[:-1][framed]
    faults[framed] = np.where(
        (data[starts] != 0) | (data[starts + 1] >= 0x80), _MALFORMED.index(BAD_FRAMING), 0
    )
    faults[(value_lengths(keys) != KEY_SIZE) | keys.is_null().to_numpy(zero_copy_only=False)] = (
        _MALFORMED.index(BAD_KEY)
    )
    return faults


def _of_other_types(
    schemas: Int32s, types: Sequence[str], codes: npt.NDArray[Any], known: Mapping[int, str]
) -> tuple[Int32s, list[str]]:
    faults, reasons = np.zeros(len(schemas), np.int32), [""]
    for schema_id in np.unique(schemas).tolist():
        if (
            meant := known.get(schema_id)
        ) is not None:  # a ledger that is an older copy may not know it; closing asks again
            others = np.array([t != meant for t in types])[codes] & (schemas == schema_id)
            faults[others] = len(reasons)
            reasons.append(f"its schema id {schema_id} belongs to the type {meant}")
    return faults, reasons


def _set_aside(
    table: pa.Table,
    reasons: Sequence[str],
    types: Sequence[str],
    codes: npt.NDArray[Any],
    topic_ids: Mapping[str, str],
) -> list[ExcludedRecords]:
    found = defaultdict[tuple[str, int, str, str], list[int]](list)
    columns = (
        table.column("topic").cast("string"),
        table.column("partition"),
        table.column("offset"),
    )
    rows = zip(*(column.to_pylist() for column in columns), reasons, codes.tolist(), strict=True)
    for topic, partition, offset, reason, code in rows:
        found[topic, partition, types[code], reason].append(offset)
    return [
        ExcludedRecords(
            topic=topic,
            topic_id=topic_ids.get(topic, ""),
            partition=partition,
            event_type=event_type,
            reason=reason,
            offsets=tuple(sorted(offsets)),
        )
        for (topic, partition, event_type, reason), offsets in sorted(found.items())
    ]
