"""The Parquet columns of an Avro record schema, and the reasons why a schema has none.

This module decides about types only and needs no Parquet library. `hourmark types check` uses it to
refuse a declaration, and the ETL builds its Arrow schema from the same columns.

Parquet and its readers cannot express all Avro types. A schema is refused if it contains a union
other than `["null", T]`, a record without fields, a record that contains itself, a field of type
`null`, or a decimal of more than 38 digits (the limit of Spark, Hive and BigQuery).

Field ids are derived from the path of a field, so that a column keeps its id in all versions of a
type. `BACKWARD_TRANSITIVE` ensures that a name never returns with another type.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fastavro.schema import expand_schema

from hourmark.avro.framing import Schema, digest

DECIMAL_DIGITS_MAX: Final = 38
_FIELD_ID_END: Final = 2_147_000_000  # Iceberg reserves the ids below 2^31
_NEXT_STEP: Final = 'or set format = "avro"'


class ColumnKind(enum.Enum):
    """The kind of a Parquet column. Each member corresponds to one Avro type or logical type."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    FIXED = "fixed"
    DECIMAL = "decimal"
    DATE = "date"
    TIME_MILLIS = "time-millis"
    TIME_MICROS = "time-micros"
    TIMESTAMP_MILLIS = "timestamp-millis"
    TIMESTAMP_MICROS = "timestamp-micros"
    LOCAL_TIMESTAMP_MILLIS = "local-timestamp-millis"
    LOCAL_TIMESTAMP_MICROS = "local-timestamp-micros"
    RECORD = "record"
    LIST = "array"
    MAP = "map"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParquetColumn:
    """A column of a Parquet file, or a part of a nested column.

    Attributes:
        name: Name of the field; `element` for the items of a list, `key` and `value` for a map.
        kind: Kind of the values.
        field_id: Id that is the same in all versions of the event type.
        nullable: Whether values may be null.
        size: Number of bytes of a `FIXED` value; otherwise 0.
        precision: Number of digits of a `DECIMAL` value; otherwise 0.
        scale: Number of digits after the decimal point of a `DECIMAL` value; otherwise 0.
        children: The fields of a `RECORD`, the element of a `LIST`, or the key and value of a
            `MAP`; otherwise empty.
    """

    name: str
    kind: ColumnKind
    field_id: int
    nullable: bool
    size: int = 0
    precision: int = 0
    scale: int = 0
    children: tuple[ParquetColumn, ...] = ()


# Logical types that change the kind. All others have the kind of their Avro type.
_LOGICAL: Final[Mapping[tuple[str, str], ColumnKind]] = {
    ("int", "date"): ColumnKind.DATE,
    ("int", "time-millis"): ColumnKind.TIME_MILLIS,
    ("long", "time-micros"): ColumnKind.TIME_MICROS,
    ("long", "timestamp-millis"): ColumnKind.TIMESTAMP_MILLIS,
    ("long", "timestamp-micros"): ColumnKind.TIMESTAMP_MICROS,
    ("long", "local-timestamp-millis"): ColumnKind.LOCAL_TIMESTAMP_MILLIS,
    ("long", "local-timestamp-micros"): ColumnKind.LOCAL_TIMESTAMP_MICROS,
    ("bytes", "decimal"): ColumnKind.DECIMAL,
    ("fixed", "decimal"): ColumnKind.DECIMAL,
}
_SIMPLE: Final[Mapping[str, ColumnKind]] = {
    "boolean": ColumnKind.BOOLEAN,
    "int": ColumnKind.INT,
    "long": ColumnKind.LONG,
    "float": ColumnKind.FLOAT,
    "double": ColumnKind.DOUBLE,
    "string": ColumnKind.STRING,
    "enum": ColumnKind.STRING,
    "bytes": ColumnKind.BYTES,
    "fixed": ColumnKind.FIXED,
}


def parquet_columns(schema: Schema) -> tuple[ParquetColumn, ...]:
    """Return the Parquet columns of a record schema, in the order of its fields.

    Args:
        schema: A valid Avro record schema as parsed JSON.

    Returns:
        One column for each field of the record.

    Raises:
        ValueError: Parquet cannot express a field. The message contains the path of the field, such
            as `address.lines.element`, and the next step.
    """
    expanded = expand_schema(schema)
    assert isinstance(expanded, dict), "an event is a record"
    columns = _fields(expanded["fields"], "")
    _check_ids(columns)
    return columns


def _fields(fields: Sequence[Mapping[str, Any]], parent: str) -> tuple[ParquetColumn, ...]:
    return tuple(_column(field["name"], field["type"], parent) for field in fields)


def _column(name: str, avro_type: Any, parent: str) -> ParquetColumn:
    path = f"{parent}.{name}" if parent else name
    branches = avro_type if isinstance(avro_type, list) else [avro_type]
    values = [branch for branch in branches if _kind_name(branch) != "null"]
    if len(values) > 1:
        raise ValueError(
            f"field {path}: Parquet has no type for the union of "
            f"{', '.join(map(_kind_name, branches))}; declare a record with one optional field for "
            f"each of these types, {_NEXT_STEP}"
        )
    if not values:
        raise ValueError(
            f"field {path}: readers of Parquet do not support a field that is always null; declare "
            f'the union ["null", "string"], {_NEXT_STEP}'
        )
    of = values[0] if isinstance(values[0], dict) else {"type": values[0]}
    return dataclasses.replace(
        _typed(of, path),
        name=name,
        field_id=1 + int(digest(path), 16) % (_FIELD_ID_END - 1),
        nullable=len(branches) > 1,
    )


def _typed(of: Mapping[str, Any], path: str) -> ParquetColumn:
    # Return a column whose kind is set, without its name, id and nullability.
    avro_type = of["type"]
    if avro_type == "record":
        if not of["fields"]:
            raise ValueError(
                f"field {path}: Parquet has no record without fields; add a field, {_NEXT_STEP}"
            )
        return _blank(ColumnKind.RECORD, children=_fields(of["fields"], path))
    if avro_type == "array":
        return _blank(ColumnKind.LIST, children=(_column("element", of["items"], path),))
    if avro_type == "map":
        key, value = _column("key", "string", path), _column("value", of["values"], path)
        return _blank(ColumnKind.MAP, children=(key, value))
    kind = _LOGICAL.get((avro_type, of.get("logicalType", "")), _SIMPLE.get(avro_type))
    if kind is None:  # only the name of a record that is not complete is not expanded
        raise ValueError(
            f"field {path}: Parquet has no type for {avro_type}, a record that contains itself; "
            f"declare a limited number of levels, {_NEXT_STEP}"
        )
    if kind is ColumnKind.DECIMAL:
        if of["precision"] > DECIMAL_DIGITS_MAX:
            raise ValueError(
                f"field {path}: a decimal in Parquet has at most {DECIMAL_DIGITS_MAX} digits, but "
                f"the precision is {of['precision']}; reduce it, {_NEXT_STEP}"
            )
        return _blank(kind, precision=of["precision"], scale=of.get("scale", 0))
    return _blank(kind, size=of["size"] if kind is ColumnKind.FIXED else 0)


def _blank(kind: ColumnKind, **values: Any) -> ParquetColumn:
    return ParquetColumn(name="", kind=kind, field_id=0, nullable=False, **values)


def _kind_name(branch: Any) -> str:
    return str(branch["type"] if isinstance(branch, dict) else branch)


def _check_ids(columns: Sequence[ParquetColumn]) -> None:
    paths: dict[int, str] = {}
    for path, column in _walk(columns, ""):
        other = paths.setdefault(column.field_id, path)
        if other != path:
            raise ValueError(
                f"fields {other} and {path}: their names result in the same Parquet field id "
                f"{column.field_id}; rename one of them, {_NEXT_STEP}"
            )


def _walk(columns: Sequence[ParquetColumn], parent: str) -> Iterator[tuple[str, ParquetColumn]]:
    for column in columns:
        path = f"{parent}.{column.name}"
        yield path, column
        yield from _walk(column.children, path)
