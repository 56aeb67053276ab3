"""Values as Avro holds them, from what a line says: JSON, or the text of a pattern's group.

Values are plain, as Avro writes them below its logical types: a timestamp is a whole number, a
decimal is bytes. A whole number is no float and no boolean, and the other way round.
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
    """A line, or a value in it, is not of the type.

    `reason`: of the dead letter; `says` is part of its detail.
    """

    def __init__(
        self, reason: str = "wrong_field", detail: str = "", claimed_type: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason, self.detail, self.claimed_type = reason, detail, claimed_type


NamedTypes = Mapping[str, Any]  # the schema's named types


def strip_annotations(schema: Any) -> Any:
    """Return a copy of an Avro schema without `logicalType` and `doc` keys."""
    if isinstance(schema, dict):
        return {
            key: strip_annotations(value)
            for key, value in schema.items()
            if key not in ("logicalType", "doc")
        }
    return [strip_annotations(item) for item in schema] if isinstance(schema, list) else schema


def equal_values(a: object, b: object) -> bool:
    """Return whether two values are equal in value and type, including the sign of zero."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal_values(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal_values, a, b))
    return repr(a) == repr(b) if isinstance(a, float) else a == b


def from_json(avro: Any, value: Any, names: NamedTypes) -> Any:
    """Convert a JSON value to the value that Avro stores for it.

    Args:
        avro: Avro schema of the value.
        value: parsed JSON value.
        names: named types of the schema, by name.

    Raises:
        Refused: if the value does not match the schema.
    """
    if isinstance(avro, list):
        return _first_accepted(lambda branch: from_json(branch, value, names), avro)
    kind, logical, avro = _resolve_type(avro, names)
    match kind:
        case "array":
            return [from_json(avro["items"], item, names) for item in _require_type(list, value)]
        case "map":
            return {
                key: from_json(avro["values"], item, names)
                for key, item in _require_type(dict, value).items()
            }
        case "record" | "error":
            return record_from_json(avro["fields"], _require_type(dict, value), names)
        case "enum":
            return _require(_require_type(str, value), value in avro["symbols"])
        case "bytes" | "fixed":
            return _bytes_from_json(avro, value, kind, logical)
        case "float" | "double":
            return _float_from_json(value, kind)
        case "int" | "long":
            return _integer_from_json(value, kind, logical)
        case "string":
            return _require(_require_type(str, value), logical != "uuid" or _UUID.fullmatch(value))
    return _require_type(bool if kind == "boolean" else type(None), value)


def record_from_json(
    fields: list[dict[str, Any]], value: Mapping[str, Any], names: NamedTypes
) -> dict[str, Any]:
    """The same for an object of exactly these fields; those with a default may be missing."""
    converted = {}
    for field in fields:
        name = field["name"]
        if name not in value and "default" not in field:
            raise LineRejected("missing_field", name)
        try:
            converted[name] = from_json(field["type"], value.get(name, field.get("default")), names)
        except LineRejected:
            raise LineRejected("wrong_field", name) from None
    if unknown := sorted(value.keys() - converted.keys()):
        raise LineRejected("unknown_field", unknown[0][:100])
    return converted


def from_text(avro: Any, text: bytes, names: NamedTypes) -> Any:
    """Convert the text of a field to the value that Avro stores for it.

    Args:
        avro: Avro schema of the value.
        text: raw bytes of the field.
        names: named types of the schema, by name.

    Raises:
        Refused: if the text cannot be converted.
    """
    if isinstance(avro, list):
        return _first_accepted(
            lambda branch: from_text(branch, text, names),
            [branch for branch in avro if branch != "null"],
        )
    kind, _, _ = _resolve_type(avro, names)
    if kind == "bytes":
        return text
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise LineRejected(
            "not_utf8" if kind in ("string", "enum", "long") else "wrong_field"
        ) from None
    if kind in ("string", "enum") or (kind == "long" and not _WHOLE.fullmatch(decoded)):
        return from_json(avro, decoded, names)
    if kind in ("int", "long"):
        return from_json(avro, int(_require(decoded, _WHOLE.fullmatch(decoded))), names)
    if kind in ("float", "double"):
        number = float(_require(decoded, _DECIMAL.fullmatch(decoded)))
        return from_json(avro, _require(number, abs(number) != float("inf")), names)
    return from_json(
        avro, _require(decoded, kind == "boolean" and decoded in ("true", "false")) == "true", names
    )


def _resolve_type(avro: Any, names: NamedTypes) -> tuple[str, str | None, Any]:
    """The type below names and annotations, its logical type, and its own declaration."""
    logical = None
    while not isinstance(avro, str) or avro in names:
        avro = names[avro] if isinstance(avro, str) else avro
        logical = logical or avro.get("logicalType")
        if avro["type"] in ("array", "map", "record", "error", "enum", "fixed"):
            return avro["type"], logical, avro
        avro = avro["type"]
    return avro, logical, avro


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


def _bytes_from_json(avro: Any, value: Any, kind: str, logical: str | None) -> bytes:
    if kind == "fixed" and logical == "uuid" and _UUID.fullmatch(_require_type(str, value)):
        return uuid.UUID(value).bytes
    try:
        raw: bytes = _require_type(str, value).encode("latin-1")
    except UnicodeEncodeError:
        raise LineRejected from None
    return bytes(_require(raw, kind == "bytes" or len(raw) == avro["size"]))


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
