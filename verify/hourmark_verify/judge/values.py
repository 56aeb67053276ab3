"""Conversion of JSON values and texts to the values that Avro stores.

Logical types are not applied: a timestamp is an integer, a decimal is bytes. Integers, floats and
booleans are not converted into each other.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from hourmark_verify.judge.rfc5424 import rfc3339_us

_DAYS: Final = (-719_162, 2_932_897)  # of the years 1 to 9999, since 1970
_UNITS: Final = {"millis": 86_400_000, "micros": 86_400_000_000}  # to the day
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


class LineRejected(Exception):
    """Raised when a line does not match its declared type.

    The delivery service is expected to store such a line as a dead letter instead of an event.

    Attributes:
        reason: Reason code of the dead letter, such as `wrong_field`.
        detail: Text that the explanation in the dead letter must contain; may be empty.
        claimed_type: Event type that the dead letter must name; None if it must not name one.
    """

    def __init__(
        self, reason: str = "wrong_field", detail: str = "", claimed_type: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason, self.detail, self.claimed_type = reason, detail, claimed_type


NamedTypes = Mapping[str, Any]  # named types of a schema, by full name


def strip_annotations(schema: Any) -> Any:
    """Remove the annotations `logicalType` and `doc` from an Avro schema, at all levels.

    Schemas that differ only in these annotations become equal.

    Args:
        schema: Avro schema as parsed JSON. It is not modified.

    Returns:
        A copy of the schema without these keys.
    """
    if isinstance(schema, dict):
        return {
            key: strip_annotations(value)
            for key, value in schema.items()
            if key not in ("logicalType", "doc")
        }
    return [strip_annotations(item) for item in schema] if isinstance(schema, list) else schema


def equal_values(a: object, b: object) -> bool:
    """Compare two decoded values, including their types, at all levels of nesting.

    Unlike `==`, this function distinguishes 1 from 1.0 and 0.0 from -0.0, and treats NaN as equal
    to NaN.

    Args:
        a: Value as decoded from Avro; dicts and lists are compared recursively.
        b: Value to compare with `a`.

    Returns:
        True if the values and their types are equal.
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal_values(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal_values, a, b))
    return repr(a) == repr(b) if isinstance(a, float) else a == b


def avro_from_json(schema: Any, value: Any, named_types: NamedTypes) -> Any:
    """Convert a JSON value to the value that Avro stores for it.

    Logical types are not applied: a timestamp becomes an integer, a decimal becomes bytes.

    Args:
        schema: Avro schema of the value. If it is a union, the first matching branch is used.
        value: Parsed JSON value.
        named_types: Named types that the schema refers to, by full name.

    Returns:
        The value as a Python object: int, float, bool, str, bytes, list, dict or None.

    Raises:
        LineRejected: The value does not match the schema.
    """
    if isinstance(schema, list):
        return _first_accepted(lambda branch: avro_from_json(branch, value, named_types), schema)
    kind, logical, schema = _resolve_type(schema, named_types)
    match kind:
        case "array":
            return [
                avro_from_json(schema["items"], item, named_types)
                for item in _require_type(list, value)
            ]
        case "map":
            return {
                key: avro_from_json(schema["values"], item, named_types)
                for key, item in _require_type(dict, value).items()
            }
        case "record" | "error":
            return record_from_json(schema["fields"], _require_type(dict, value), named_types)
        case "enum":
            return _require(_require_type(str, value), value in schema["symbols"])
        case "bytes" | "fixed":
            return _bytes_from_json(schema, value, kind, logical)
        case "float" | "double":
            return _float_from_json(value, kind)
        case "int" | "long":
            return _integer_from_json(value, kind, logical)
        case "string":
            return _require(_require_type(str, value), logical != "uuid" or _UUID.fullmatch(value))
    return _require_type(bool if kind == "boolean" else type(None), value)


def record_from_json(
    fields: list[dict[str, Any]], value: Mapping[str, Any], named_types: NamedTypes
) -> dict[str, Any]:
    """Convert a JSON object to the values of an Avro record.

    Args:
        fields: Avro fields of the record. The object must contain no other fields.
        value: Parsed JSON object.
        named_types: Named types that the schema refers to, by full name.

    Returns:
        Values by field name. An absent field gets its default value.

    Raises:
        LineRejected: With reason `missing_field` if a field without default is absent,
            `wrong_field` if a value has the wrong type, or `unknown_field` if the object contains
            another field.
    """
    converted = {}
    for field in fields:
        name = field["name"]
        if name not in value and "default" not in field:
            raise LineRejected("missing_field", name)
        try:
            converted[name] = avro_from_json(
                field["type"], value.get(name, field.get("default")), named_types
            )
        except LineRejected:
            raise LineRejected("wrong_field", name) from None
    if unknown := sorted(value.keys() - converted.keys()):
        raise LineRejected("unknown_field", unknown[0][:100])
    return converted


def avro_from_text(schema: Any, text: bytes, named_types: NamedTypes) -> Any:
    """Convert the text of a field to the value that Avro stores for it.

    Supported types are strings, enums, bytes, numbers, booleans, and unions of these. A timestamp
    field also accepts text in RFC 3339 format.

    Args:
        schema: Avro schema of the value. If it is a union, the first matching branch other than
            null is used.
        text: Raw bytes of the field. Except for type bytes, they must be UTF-8.
        named_types: Named types that the schema refers to, by full name.

    Returns:
        The value as a Python object: int, float, bool, str or bytes.

    Raises:
        LineRejected: The text cannot be converted, with reason `not_utf8` or `wrong_field`.
    """
    if isinstance(schema, list):
        return _first_accepted(
            lambda branch: avro_from_text(branch, text, named_types),
            [branch for branch in schema if branch != "null"],
        )
    kind, _, _ = _resolve_type(schema, named_types)
    if kind == "bytes":
        return text
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise LineRejected(
            "not_utf8" if kind in ("string", "enum", "long") else "wrong_field"
        ) from None
    if kind in ("string", "enum") or (kind == "long" and not _WHOLE.fullmatch(decoded)):
        return avro_from_json(schema, decoded, named_types)
    if kind in ("int", "long"):
        return avro_from_json(
            schema, int(_require(decoded, _WHOLE.fullmatch(decoded))), named_types
        )
    if kind in ("float", "double"):
        number = float(_require(decoded, _DECIMAL.fullmatch(decoded)))
        return avro_from_json(schema, _require(number, abs(number) != float("inf")), named_types)
    return avro_from_json(
        schema,
        _require(decoded, kind == "boolean" and decoded in ("true", "false")) == "true",
        named_types,
    )


def _resolve_type(schema: Any, named_types: NamedTypes) -> tuple[str, str | None, Any]:
    # returns (type, logical type, declaration)
    logical = None
    while not isinstance(schema, str) or schema in named_types:
        schema = named_types[schema] if isinstance(schema, str) else schema
        logical = logical or schema.get("logicalType")
        if schema["type"] in ("array", "map", "record", "error", "enum", "fixed"):
            return schema["type"], logical, schema
        schema = schema["type"]
    return schema, logical, schema


def _first_accepted(read: Callable[[Any], Any], branches: list[Any]) -> Any:
    refused = LineRejected()
    for branch in branches:
        try:
            return read(branch)
        except LineRejected as error:
            refused = error
    raise refused


def _require(value: Any, holds: object) -> Any:
    if not holds:
        raise LineRejected
    return value


def _require_type(kind: type, value: Any) -> Any:
    return _require(value, type(value) is kind)


def _bytes_from_json(schema: Any, value: Any, kind: str, logical: str | None) -> bytes:
    if kind == "fixed" and logical == "uuid" and _UUID.fullmatch(_require_type(str, value)):
        return uuid.UUID(value).bytes
    try:
        raw: bytes = _require_type(str, value).encode("latin-1")
    except UnicodeEncodeError:
        raise LineRejected from None
    return bytes(_require(raw, kind == "bytes" or len(raw) == schema["size"]))


def _float_from_json(value: Any, kind: str) -> float:
    _require(value, type(value) in (int, float))
    try:
        number = float(value)
        converted = struct.unpack("<f", struct.pack("<f", number))[0] if kind == "float" else number
    except OverflowError:
        raise LineRejected from None
    return float(_require(converted, type(value) is float or converted == value))


def _integer_from_json(value: Any, kind: str, logical: str | None) -> int:
    low, end = (-(1 << 31), 1 << 31) if kind == "int" else (-(1 << 63), 1 << 63)
    what, _, unit = (logical or "").rpartition("-")
    if logical == "date" and kind == "int":
        low, end = _DAYS
    elif what == "time" and (kind == "int") == (unit == "millis"):
        low, end = 0, _UNITS[unit]
    elif what in ("timestamp", "local-timestamp") and kind == "long" and unit in _UNITS:
        low, end = (day * _UNITS[unit] for day in _DAYS)
        if what == "timestamp" and type(value) is str:
            micros, each = rfc3339_us(value), _UNITS["micros"] // _UNITS[unit]
            value = _require(micros, micros is not None and micros % each == 0) // each
    return int(_require(value, type(value) is int and low <= value < end))
