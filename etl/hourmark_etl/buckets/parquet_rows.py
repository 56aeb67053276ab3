"""Converts Avro datums to the Arrow rows of Parquet files. Pure functions, without storage.

A `DatumConverter` decodes datums with fastavro and builds Arrow arrays of the columns that
`hourmark.avro.parquet_columns` defines. Numbers, dates and times are decoded as integers, so no
value passes through Python's `datetime`. All timestamps become microseconds, as Iceberg requires.
`event_id` is a fixed binary of 16 bytes without Parquet's UUID annotation, which Spark rejects.
"""

from __future__ import annotations

import decimal
import io
from collections.abc import Iterator, Mapping
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa
from fastavro.read import LOGICAL_READERS

from hourmark.avro.framing import Schema, encode_long
from hourmark.avro.parquet_columns import ColumnKind, ParquetColumn, parquet_columns
from hourmark_etl.arrow import Int64s
from hourmark_etl.buckets.datum_columns import ColumnDecoder, NotColumnar

CONVERTED_BYTES: Final = 1 << 20  # of datums that are Python objects at the same time
FIELD_ID: Final = b"PARQUET:field_id"
_END_OF_ARRAY: Final = b"\x00"
_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, traps=[decimal.Inexact])
_DECIMAL: Final = "hourmark-decimal"  # fastavro rounds a decimal that exceeds its precision
_ARROW: Final[Mapping[ColumnKind, pa.DataType]] = {
    ColumnKind.BOOLEAN: pa.bool_(),
    ColumnKind.INT: pa.int32(),
    ColumnKind.LONG: pa.int64(),
    ColumnKind.FLOAT: pa.float32(),
    ColumnKind.DOUBLE: pa.float64(),
    ColumnKind.STRING: pa.string(),
    ColumnKind.BYTES: pa.binary(),
    ColumnKind.DATE: pa.date32(),
    ColumnKind.TIME_MILLIS: pa.time32("ms"),
    ColumnKind.TIME_MICROS: pa.time64("us"),
    ColumnKind.TIMESTAMP_MILLIS: pa.timestamp("ms", "UTC"),
    ColumnKind.TIMESTAMP_MICROS: pa.timestamp("us", "UTC"),
    ColumnKind.LOCAL_TIMESTAMP_MILLIS: pa.timestamp("ms"),
    ColumnKind.LOCAL_TIMESTAMP_MICROS: pa.timestamp("us"),
}
_IN_MICROSECONDS: Final[Mapping[ColumnKind, pa.DataType]] = {
    **_ARROW,
    ColumnKind.TIMESTAMP_MILLIS: pa.timestamp("us", "UTC"),
    ColumnKind.LOCAL_TIMESTAMP_MILLIS: pa.timestamp("us"),
}


class DatumConverter:
    """Converter of Avro datums of one schema to Arrow rows.

    Args:
        schema: Avro record schema of the datums, as parsed JSON.

    Attributes:
        schema: Arrow schema of the rows, with Parquet field ids.

    Raises:
        ValueError: Parquet cannot express a field of the schema.
    """

    def __init__(self, schema: Schema) -> None:
        columns = parquet_columns(schema)
        self.schema = pa.schema([_field(column, _IN_MICROSECONDS) for column in columns])
        self._decoded = pa.struct([_field(column, _ARROW) for column in columns])
        self._decoder = ColumnDecoder(schema, pa.schema(self._decoded))
        self._datums = fastavro.parse_schema({"type": "array", "items": _as_stored(schema)})

    def convert(self, data: memoryview, offsets: Int64s) -> pa.Table:
        """Convert consecutive datums.

        Args:
            data: Buffer with the Avro-encoded events. They must be valid for the schema.
            offsets: Byte offsets into `data`, one more than the number of events. Event i is
                `data[offsets[i]:offsets[i + 1]]`.

        Returns:
            A table with the schema `schema` and one row for each datum, in the same order.

        Raises:
            ValueError: A value does not fit its type, such as a decimal with more digits than its
                precision.
        """
        try:
            return self._decoder.decode(data, offsets).cast(self.schema)
        except NotColumnar:
            pass
        return pa.concat_tables(
            [
                self.schema.empty_table(),
                *(
                    self.convert_block(data[int(offsets[start]) : int(offsets[end])], end - start)
                    for start, end in _parts(offsets)
                ),
            ]
        )

    def convert_block(self, data: bytes | memoryview, count: int) -> pa.Table:
        """Convert concatenated datums, such as the content of a block of an Avro file.

        Memory: all datums are Python objects at the same time.

        Args:
            data: The Avro-encoded events. They must be valid for the schema.
            count: Number of events, at least 1.

        Returns:
            A table with the schema `schema` and one row for each datum, in the same order.

        Raises:
            ValueError: A value does not fit its type, such as a decimal with more digits than its
                precision.
        """
        encoded = io.BytesIO(b"".join((encode_long(count), data, _END_OF_ARRAY)))
        rows = fastavro.schemaless_reader(encoded, self._datums, None)
        decoded = pa.RecordBatch.from_struct_array(pa.array(rows, self._decoded))
        return pa.Table.from_batches([decoded]).cast(self.schema)


def find_difference(found: pa.Table, expected: pa.Table) -> int | None:
    """Return the index of the first row in which two tables differ.

    Two values that are not a number (NaN) are equal.

    Args:
        found: A table.
        expected: Another table with the same columns.

    Returns:
        Index of the row; the number of rows of the shorter table if it is the beginning of the
        other one; None if the tables are equal.
    """
    if found.equals(expected):
        return None
    rows = zip(found.to_pylist(), expected.to_pylist(), strict=False)
    for at, (row, other) in enumerate(rows):
        if repr(row) != repr(other):  # unlike ==, also for NaN within lists and records
            return at
    return None if len(found) == len(expected) else min(len(found), len(expected))


def _parts(offsets: Int64s) -> Iterator[tuple[int, int]]:
    start, end = 0, len(offsets) - 1
    while start < end:
        until = int(np.searchsorted(offsets, offsets[start] + CONVERTED_BYTES, "right")) - 1
        until = min(end, max(until, start + 1))
        yield start, until
        start = until


def _field(column: ParquetColumn, types: Mapping[ColumnKind, pa.DataType]) -> pa.Field:
    return pa.field(
        column.name,
        _arrow_type(column, types),
        nullable=column.nullable,
        metadata={FIELD_ID: str(column.field_id)},
    )


def _arrow_type(column: ParquetColumn, types: Mapping[ColumnKind, pa.DataType]) -> pa.DataType:
    if column.kind is ColumnKind.FIXED:
        return pa.binary(column.size)
    if column.kind is ColumnKind.DECIMAL:
        return pa.decimal128(column.precision, column.scale)
    children = [_field(child, types) for child in column.children]
    if column.kind is ColumnKind.RECORD:
        return pa.struct(children)
    if column.kind is ColumnKind.LIST:
        return pa.list_(children[0])
    if column.kind is ColumnKind.MAP:
        return pa.map_(*children)
    return types[column.kind]


def _as_stored(avro_type: Any) -> Any:
    # Return the schema with which fastavro returns stored values: integers, strings and bytes. Only
    # a decimal keeps a logical type, which is read exactly.
    if isinstance(avro_type, list):
        return [_as_stored(branch) for branch in avro_type]
    if not isinstance(avro_type, dict):
        return avro_type
    kept = {key: value for key, value in avro_type.items() if key not in ("logicalType", "default")}
    if avro_type.get("logicalType") == "decimal":
        kept["logicalType"] = _DECIMAL
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = _as_stored(kept[key])
    if "fields" in kept:
        kept["fields"] = [_as_stored(field) for field in kept["fields"]]
    return kept


def _read_decimal(data: bytes, writer_schema: Any = None, _: Any = None) -> Any:
    unscaled = int.from_bytes(data, "big", signed=True)
    if abs(unscaled) >= 10 ** writer_schema["precision"]:
        raise ValueError(
            f"a decimal has more than the {writer_schema['precision']} digits of its precision"
        )
    return _EXACT.scaleb(decimal.Decimal(unscaled), -writer_schema.get("scale", 0))


LOGICAL_READERS[f"bytes-{_DECIMAL}"] = _read_decimal
LOGICAL_READERS[f"fixed-{_DECIMAL}"] = _read_decimal
