"""Arrow columns of Avro fields. Pure functions.

| Avro | Arrow |
|---|---|
| boolean, int, long, float, double, string, bytes | bool, int32, int64, float, double, string, binary |
| fixed, enum | fixed-size binary, string |
| record, array, map | struct, list, map |
| union of null and one type | the type, nullable |
| timestamp-millis, timestamp-micros | timestamp(us, UTC) |
| local-timestamp-millis, local-timestamp-micros | timestamp(us) |
| date, time-millis, time-micros | date32, time64(us) |
| decimal | decimal128, or decimal256 with more than 38 digits |
| uuid on string | string |

Other logical types are ignored, as the Avro specification requires; uuid on fixed is one of them.
Unions of several types other than null, recursive records and decimals with more than 76 digits are
refused, because tables cannot express them.

The values come from fastavro. It converts most logical types, but passes the default of a field
that the writer did not know as it stands in the JSON of the schema. Converters for such files
accept both.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa

from hourmark_reading.errors import UnknownColumns, UnsupportedField
from hourmark_reading.hours import EPOCH

AvroSchema = Mapping[str, Any]
Converter = Callable[[Any], Any] | None
"""Converts a decoded value to one that pyarrow accepts; None if no conversion is needed."""

_DECIMAL_DIGITS_MAX: Final = 76  # of decimal256
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_LOCAL_EPOCH: Final = EPOCH.replace(tzinfo=None)
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "int-date": pa.date32(),
    "int-time-millis": pa.time64("us"),
    "long-time-micros": pa.time64("us"),
    "long-timestamp-millis": pa.timestamp("us", "UTC"),
    "long-timestamp-micros": pa.timestamp("us", "UTC"),
    "long-local-timestamp-millis": pa.timestamp("us"),
    "long-local-timestamp-micros": pa.timestamp("us"),
    "string-uuid": pa.string(),
}


class ArrowColumn(NamedTuple):
    """An Arrow column and the converters of its values.

    Attributes:
        field: The Arrow field.
        convert: Converter for files that were written with the same schema.
        convert_older: Converter for files that were written with another schema.
    """

    field: pa.Field
    convert: Converter
    convert_older: Converter


def build_columns(schema: AvroSchema) -> list[ArrowColumn]:
    """Return the columns of an Avro record, in the order of its fields.

    Args:
        schema: Avro schema of a record.

    Raises:
        UnsupportedField: A field has a type that no Arrow type expresses.
    """
    expanded: Any = fastavro.schema.expand_schema(dict(schema))
    return [_column(field, field["name"]) for field in expanded["fields"]]


def select_fields(schema: AvroSchema, names: Sequence[str]) -> AvroSchema:
    """Return the schema of a record with only some of its fields, in the given order.

    Args:
        schema: Avro schema of a record.
        names: Names of fields.

    Returns:
        A valid Avro schema. The first reference to a type that a removed field declared is replaced
        by its declaration.

    Raises:
        UnknownColumns: The record has no field with one of the names.
    """
    types: dict[str, Any] = {}
    parsed: Any = fastavro.parse_schema(dict(schema), named_schemas=types)
    fields = {field["name"]: field for field in parsed["fields"]}
    if unknown := [name for name in names if name not in fields]:
        raise UnknownColumns(
            f"{parsed['name']} has no field {', '.join(unknown)}; its fields are "
            f"{', '.join(fields)}"
        )
    declared: set[str] = set()

    def inline(avro_type: Any) -> Any:
        if isinstance(avro_type, list):
            return [inline(branch) for branch in avro_type]
        if isinstance(avro_type, str):
            is_declared = avro_type in declared or avro_type not in types
            return avro_type if is_declared else inline(types[avro_type])
        if "name" in avro_type:
            if avro_type["name"] in declared:
                return avro_type["name"]
            declared.add(avro_type["name"])
        changed = {key: inline(avro_type[key]) for key in ("items", "values") if key in avro_type}
        if "fields" in avro_type:
            changed["fields"] = [{**f, "type": inline(f["type"])} for f in avro_type["fields"]]
        return {**avro_type, **changed}

    kept = [{**fields[name], "type": inline(fields[name]["type"])} for name in names]
    return {"type": "record", "name": parsed["name"], "fields": kept}


def _column(field: Mapping[str, Any], path: str) -> ArrowColumn:
    arrow_type, nullable, convert, convert_older = _compile(field["type"], path)
    return ArrowColumn(pa.field(field["name"], arrow_type, nullable), convert, convert_older)


class _Compiled(NamedTuple):
    type: pa.DataType
    nullable: bool
    convert: Converter
    convert_older: Converter


def _compile(avro_type: Any, path: str) -> _Compiled:
    if isinstance(avro_type, list):
        return _compile_union(avro_type, path)
    declared: Any = {"type": avro_type} if isinstance(avro_type, str) else avro_type
    kind = declared["type"]
    if not isinstance(kind, str):
        return _compile(kind, path)
    if kind in ("record", "error"):
        return _compile_record(declared, path)
    if kind == "array":
        return _compile_array(declared, path)
    if kind == "map":
        return _compile_map(declared, path)
    if (decimal_type := _decimal_type(declared, path)) is not None:
        scale, precision = declared.get("scale", 0), declared["precision"]
        return _Compiled(decimal_type, False, None, lambda v: _to_decimal(v, scale, precision))
    if kind == "fixed":
        return _Compiled(pa.binary(declared["size"]), False, None, _to_bytes)
    logical = f"{kind}-{declared.get('logicalType')}"
    name = logical if logical in _TYPES else kind
    if name not in _TYPES:
        raise UnsupportedField(
            f"the field {path} contains the record {name} that contains itself, which a table "
            "cannot express; select the other fields with the argument columns"
        )
    converter = str if name == "string-uuid" else None
    return _Compiled(_TYPES[name], kind == "null", converter, _OLDER.get(name))


def _compile_union(branches: Sequence[Any], path: str) -> _Compiled:
    others = [branch for branch in branches if branch != "null"]
    if len(others) > 1:
        raise UnsupportedField(
            f"the field {path} is a union of {len(others)} types other than null, which a table "
            "cannot express; select the other fields with the argument columns"
        )
    inner = _compile(others[0] if others else "null", path)
    if len(others) == len(branches):
        return inner
    convert, older = inner.convert, inner.convert_older
    return _Compiled(inner.type, True, _optional(convert), _optional(older))


def _optional(convert: Converter) -> Converter:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _compile_array(declared: Mapping[str, Any], path: str) -> _Compiled:
    inner = _compile(declared["items"], f"{path}[]")
    arrow_type = pa.list_(pa.field("item", inner.type, inner.nullable))
    convert, older = inner.convert, inner.convert_older
    return _Compiled(
        arrow_type,
        False,
        convert and (lambda values: [convert(value) for value in values]),
        older and (lambda values: [older(value) for value in values]),
    )


def _compile_map(declared: Mapping[str, Any], path: str) -> _Compiled:
    inner = _compile(declared["values"], f"{path}{{}}")
    arrow_type = pa.map_(pa.string(), pa.field("value", inner.type, inner.nullable))
    convert, older = inner.convert, inner.convert_older
    return _Compiled(
        arrow_type,
        False,
        convert and (lambda values: {key: convert(value) for key, value in values.items()}),
        older and (lambda values: {key: older(value) for key, value in values.items()}),
    )


def _compile_record(declared: Mapping[str, Any], path: str) -> _Compiled:
    columns = [_column(field, f"{path}.{field['name']}") for field in declared["fields"]]
    defaults = {f["name"]: f["default"] for f in declared["fields"] if "default" in f}
    converted = [(c.field.name, c.convert) for c in columns if c.convert]

    def convert(record: Mapping[str, Any]) -> dict[str, Any]:
        return {**record, **{name: inner(record[name]) for name, inner in converted}}

    def convert_older(record: Mapping[str, Any]) -> dict[str, Any]:
        full = {**defaults, **record}
        return {
            column.field.name: column.convert_older(full[column.field.name])
            if column.convert_older
            else full[column.field.name]
            for column in columns
        }

    arrow_type = pa.struct([column.field for column in columns])
    return _Compiled(arrow_type, False, convert if converted else None, convert_older)


def _decimal_type(declared: Mapping[str, Any], path: str) -> pa.DataType | None:
    if declared.get("logicalType") != "decimal" or declared["type"] not in ("bytes", "fixed"):
        return None
    precision, scale = declared["precision"], declared.get("scale", 0)
    if precision > _DECIMAL_DIGITS_MAX:
        raise UnsupportedField(
            f"the field {path} is a decimal of {precision} digits, and columns have at most "
            f"{_DECIMAL_DIGITS_MAX}; select the other fields with the argument columns"
        )
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


# Values of older files are either decoded values or the defaults that JSON expresses.


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value.encode("latin-1") if isinstance(value, str) else bytes(value)


def _to_decimal(value: Any, scale: int, precision: int) -> decimal.Decimal:
    if isinstance(value, decimal.Decimal):
        return value
    unscaled = int.from_bytes(_to_bytes(value), "big", signed=True)
    return decimal.Decimal(unscaled).scaleb(-scale, decimal.Context(prec=max(precision, 80)))


def _to_date(value: Any) -> dt.date:
    return EPOCH.date() + dt.timedelta(days=value) if isinstance(value, int) else value


def _to_time(unit: dt.timedelta) -> Callable[[Any], dt.time]:
    return lambda value: (_LOCAL_EPOCH + value * unit).time() if isinstance(value, int) else value


def _to_datetime(epoch: dt.datetime, unit: dt.timedelta) -> Callable[[Any], dt.datetime]:
    return lambda value: epoch + value * unit if isinstance(value, int) else value


_OLDER: Final[Mapping[str, Callable[[Any], Any]]] = {
    "float": float,
    "double": float,
    "string": str,
    "bytes": _to_bytes,
    "string-uuid": str,
    "int-date": _to_date,
    "int-time-millis": _to_time(1000 * _MICROSECOND),
    "long-time-micros": _to_time(_MICROSECOND),
    "long-timestamp-millis": _to_datetime(EPOCH, 1000 * _MICROSECOND),
    "long-timestamp-micros": _to_datetime(EPOCH, _MICROSECOND),
    "long-local-timestamp-millis": _to_datetime(_LOCAL_EPOCH, 1000 * _MICROSECOND),
    "long-local-timestamp-micros": _to_datetime(_LOCAL_EPOCH, _MICROSECOND),
}
